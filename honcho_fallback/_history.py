"""From what a run kept to the record that people read; made only when someone asks."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from honcho_fallback._failure import Failure, FailureKind
from honcho_fallback._outlook import Outlook
from honcho_fallback._record import OUTCOMES, AttemptRecord, CallRecord

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from honcho_fallback._plan import Plan
    from honcho_fallback._record import Outcome
    from honcho_fallback._target import Attempt

_NOTE = "honcho_fallback: "
_TOLD = ("kind", "status", "code", "retry_after", "next_action")


class Step(NamedTuple):
    """Keep one attempt that came to an end.

    Args:
        attempt: What was asked.
        began: When, on the clock's scale.
        ended: When it was over.
        failure: What went wrong, or None.
        note: What was particular about it.
    """

    attempt: Attempt
    began: float
    ended: float
    failure: Failure | None
    note: str = ""


class History:
    """Keep what a run did, and make the record of it; a run is one.

    What most calls never touch stands on the class: the happy path sets none of it.
    """

    _plan: Plan
    _clock: Callable[[], float]
    _attempt: Attempt
    _started: float
    _started_at: float
    _began: float
    _outcome: Outcome = "running"
    _ended = 0.0
    _content_at: float | None = None
    _usage: Mapping[str, Any] | None = None
    _steps: tuple[Step, ...] = ()
    _skipped: Mapping[int, str] = MappingProxyType({})
    _outlook: Outlook | None = None

    @property
    def _ahead(self) -> Outlook:
        if self._outlook is None:
            self._outlook = Outlook(self._plan, self._started)
        return self._outlook

    @property
    def record(self) -> CallRecord:
        """Build the record of what has happened so far; complete once the call is over."""
        attempt, outcome, outlook = self._attempt, self._outcome, self._outlook
        ended = self._clock() if outcome == "running" else self._ended
        told = [*self._steps]
        content_at = self._content_at
        answered = outcome == "success" or (outcome == "abandoned" and content_at is not None)
        # A call that was cancelled while it waited had not asked again.
        if answered or (outcome in {"cancelled", "abandoned"} and ended >= self._began):
            failure = None if answered else Failure.of(FailureKind.CANCELLED)
            note = outlook.note if outlook else ""
            told.append(Step(attempt, self._began, ended, failure, note))
        return CallRecord(
            call_id=attempt.call_id,
            agent=self._plan.agent,
            chain=tuple(target.name for target in self._plan.chain),
            attempts=tuple(tell_step(step, self._started) for step in told),
            outcome=outcome,
            answered_by=attempt.target.name if answered else None,
            is_fallback=answered and attempt.is_fallback,
            started_at=self._started_at,
            seconds=max(0.0, ended - self._started),
            usage=self._usage,
            time_to_first_token=None if content_at is None else content_at - self._started,
            untried=self._untried({step.attempt.position for step in told}),
            why=outlook.why if outlook and outcome == "exhausted" else None,
        )

    @property
    def failed(self) -> tuple[AttemptRecord, ...]:
        """Return the attempts that failed so far, in order."""
        return tuple(tell_step(step, self._started) for step in self._steps)

    def _untried(self, asked: set[int]) -> tuple[tuple[str, str], ...]:
        chain, here = self._plan.chain, self._attempt.position
        left, reach = range(min(asked, default=here)), range(self._plan.reach, len(chain))
        said: str = OUTCOMES[self._outcome]["untried"]
        why = dict.fromkeys(range(len(chain)), said)
        why |= dict.fromkeys(range(here), "its context window is not larger")
        why |= dict.fromkeys(left, "the turn had already left it")
        why |= dict.fromkeys(reach, "the call must not degrade")
        why |= {**self._skipped, **(self._outlook.passed if self._outlook else {})}
        return tuple((chain[n].name, said) for n, said in why.items() if n not in asked)


def annotate(error: BaseException, record: CallRecord) -> None:
    """Note the attempts on an exception that comes out untouched.

    Args:
        error: The provider's own exception.
        record: The call's record.
    """
    told = "; ".join(
        f"{one.target} {one.result()} in {one.seconds * 1000:.0f} ms" for one in record.attempts
    )
    # An exception that is raised again and again carries the latest note only.
    kept = [note for note in getattr(error, "__notes__", ()) if not note.startswith(_NOTE)]
    error.__notes__ = kept
    error.add_note(f"{_NOTE}{told}")


def tell_step(step: Step, started: float) -> AttemptRecord:
    """Return what became of one attempt.

    Args:
        step: The attempt.
        started: The call's start, on the clock's scale.
    """
    attempt, failure, target = step.attempt, step.failure, step.attempt.target
    told = {name: getattr(failure, name) for name in _TOLD} if failure else {}
    return AttemptRecord(
        target=target.name,
        model=target.model,
        provider=target.provider,
        number=attempt.number,
        position=attempt.position,
        started=step.began - started,
        seconds=max(0.0, step.ended - step.began),
        wait=attempt.wait,
        note=step.note or None,
        error=(failure.error or None) if failure else None,
        **told,
    )
