"""From what a run kept to the record that people read; made only when someone asks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from honcho_fallback._failure import Failure, FailureKind
from honcho_fallback._record import AttemptRecord, CallRecord

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from honcho_fallback._plan import Plan
    from honcho_fallback._record import Outcome
    from honcho_fallback._target import Attempt

_NOTE = "honcho_fallback: "

_UNTRIED: dict[str, str] = {
    "running": "the call is still running",
    "success": "another target answered first",
    "exhausted": "max_attempts was reached",
    "rejected": "the failure is not one that it could help with",
    "cancelled": "the call was cancelled",
    "interrupted": "content had already been handed out",
    "abandoned": "the reader stopped",
}


class Step(NamedTuple):
    """Keep one attempt that came to an end.

    Args:
        attempt: What was asked.
        began: When, on the clock's scale.
        ended: When it was over.
        failure: What went wrong, or None.
    """

    attempt: Attempt
    began: float
    ended: float
    failure: Failure | None


def build_record(  # noqa: PLR0913 # the run's whole state, handed over once
    *,
    plan: Plan,
    attempt: Attempt,
    steps: Sequence[Step],
    outcome: Outcome,
    started: float,
    started_at: float,
    began: float,
    ended: float,
    content_at: float | None,
    usage: Mapping[str, Any] | None,
    skipped: Mapping[int, str],
) -> CallRecord:
    """Build the record of a call.

    Args:
        plan: The chain and its options.
        attempt: The latest attempt.
        steps: The attempts that failed.
        outcome: How the call ended.
        started: The call's start, on the clock's scale.
        started_at: The same in seconds since the epoch.
        began: Start of the latest attempt.
        ended: The call's end, or the time of asking.
        content_at: When content was first handed out, or None.
        usage: What the caller reported, or None.
        skipped: Why targets were passed over, by position.
    """
    told = list(steps)
    answered = outcome == "success" or (outcome == "abandoned" and content_at is not None)
    # A call that was cancelled while it waited had not asked again.
    if answered or (outcome in {"cancelled", "abandoned"} and ended >= began):
        failure = None if answered else Failure.of(FailureKind.CANCELLED)
        told.append(Step(attempt, began, ended, failure))
    asked = {step.attempt.position for step in told}
    first = min(asked, default=attempt.position)
    untried: list[tuple[str, str]] = []
    for position, target in enumerate(plan.chain):
        if position in asked:
            continue
        if position in skipped:
            why = skipped[position]
        elif position < first:
            why = "the turn had already left it"
        elif position < attempt.position:
            why = "its context window is not larger"
        else:
            why = _UNTRIED[outcome]
        untried.append((target.name, why))
    return CallRecord(
        call_id=attempt.call_id,
        agent=plan.agent,
        chain=tuple(target.name for target in plan.chain),
        attempts=tuple(tell_step(step, started) for step in told),
        outcome=outcome,
        answered_by=attempt.target.name if answered else None,
        is_fallback=answered and attempt.is_fallback,
        started_at=started_at,
        seconds=max(0.0, ended - started),
        usage=usage,
        time_to_first_token=None if content_at is None else content_at - started,
        untried=tuple(untried),
    )


def annotate(error: BaseException, record: CallRecord) -> None:
    """Note the attempts on an exception that comes out untouched.

    Args:
        error: The provider's own exception.
        record: The call's record.
    """
    told = "; ".join(
        f"{attempt.target} {attempt.result()} in {attempt.seconds * 1000:.0f} ms"
        for attempt in record.attempts
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
    attempt, failure = step.attempt, step.failure
    return AttemptRecord(
        target=attempt.target.name,
        model=attempt.target.model,
        provider=attempt.target.provider,
        number=attempt.number,
        position=attempt.position,
        started=step.began - started,
        seconds=max(0.0, step.ended - step.began),
        wait=attempt.wait,
        kind=failure.kind if failure else None,
        status=failure.status if failure else None,
        code=failure.code if failure else None,
        error=(failure.error or None) if failure else None,
        retry_after=failure.retry_after if failure else None,
        next_action=failure.next_action if failure else None,
    )
