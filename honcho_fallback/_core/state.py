"""Everything that one call knows."""

from __future__ import annotations

from math import inf
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from honcho_fallback._core.target import Attempt
from honcho_fallback._values.failure import KINDS, Failure, FailureKind
from honcho_fallback._values.record import OUTCOMES, AttemptRecord, CallRecord

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from honcho_fallback._core.recovery import PendingAction
    from honcho_fallback._core.resolved import ResolvedPolicy
    from honcho_fallback._core.turn import Turn
    from honcho_fallback._values.record import Limit, Outcome

PROBE = "a probe after its cooldown"  # the note of such an attempt
_PROBED = "another call was probing it"
_NO_SKIPS: Mapping[int, str] = MappingProxyType({})
_NO_SECONDS: Mapping[int, float] = MappingProxyType({})


class PastAttempt(NamedTuple):
    """One attempt that came to an end; times on the clock's scale."""

    attempt: Attempt
    began: float
    ended: float
    failure: Failure | None
    note: str = ""
    usage: Mapping[str, Any] | None = None
    received: int | None = None


class CallState:
    """Everything that one call knows; written by its run, read by the rules.

    Attributes:
        attempt: The attempt at hand, or the last one.
        outcome: How the call ended, or ``"running"``.
        started: The call's start on the clock's scale, and ``started_at`` since the epoch.
        began: When the attempt at hand begins or began.
        past: The attempts that failed, in order; ``errors`` holds what they raised.
        shared: By position what a target has in common with one that failed.
        failures_here: How often the target at hand has failed in a row.
        content_at: When the first content of a stream was handed out.
        replaceable: Whether that content may still be replaced by another attempt's.
        partial: What was handed out, where a caller of ``commit`` keeps it.
        usage: What the answer at hand cost, as far as somebody said.
        received: Characters of content that the attempt at hand had brought when it was cut.
        note: What is particular about the attempt at hand.
        pending: I/O that comes before the attempt at hand, or after the end of the call.
        positions_after_pending: Whom the attempt may go to once that is done.
        extra_attempts: Requests on top of max_attempts: those after a recovery.
        refreshed: Whether the target at hand had its new credential.
        transport_recovered: Whether it had its new transport.
        generation: Of its credential, when it was first asked.
        clients: New clients of targets whose transport was rebuilt, by position.
        permit: The probe that this call is, or None.
        all_cooling: Whether every target cools down and this one was due first.
        cooling: Who was passed over in a cooldown, by position, with the seconds left of it; 0
            where another call was probing.
        skipped: Whom a framework took out of rotation and why, by position.
        unfit: Who cannot take this call and why, by position, as its caller says.
        deadline_at: When the call's time is over; infinite where it has no deadline.
        metadata: What the caller says of the call, for its record.
        limit: What forbade to ask more, or None.
    """

    __slots__ = (
        "all_cooling",
        "attempt",
        "began",
        "clients",
        "content_at",
        "cooling",
        "deadline_at",
        "ended",
        "errors",
        "extra_attempts",
        "failures_here",
        "generation",
        "limit",
        "metadata",
        "note",
        "outcome",
        "partial",
        "past",
        "pending",
        "permit",
        "policy",
        "positions_after_pending",
        "received",
        "refreshed",
        "replaceable",
        "shared",
        "skipped",
        "started",
        "started_at",
        "transport_recovered",
        "turn",
        "turn_id",
        "unfit",
        "usage",
    )

    def __init__(  # noqa: PLR0913 # each is a part of what a call begins with
        self,
        policy: ResolvedPolicy,
        turn: Turn | None,
        call_id: str,
        now: float,
        started_at: float,
        *,
        unfit: Mapping[int, str] | None = None,
    ) -> None:
        self.policy = policy
        # Without reset="turn" a turn only has a name.
        self.turn = turn if policy.turn_scoped else None
        self.turn_id = None if turn is None else turn.turn_id
        self.started = self.began = now
        self.started_at = started_at
        self.unfit = {**policy.unfit, **unfit} if unfit else policy.unfit
        position = 0
        if self.turn is not None and policy.usable_targets > 1:
            position = self.turn.position
        if self.unfit:
            # Whom the turn has left is still better than nobody.
            position = (self.positions(position) or self.positions(0))[0]
        self.attempt = Attempt(
            policy.chain[position],
            1,
            position,
            policy.timeout,
            policy.connect_timeout,
            0.0,
            call_id,
            policy.first_token_timeout,
            policy.idle_timeout,
        )
        deadline = policy.config.deadline
        self.deadline_at = inf if deadline is None else now + deadline
        self.outcome: Outcome = "running"
        self.ended = 0.0
        self.past: tuple[PastAttempt, ...] = ()
        self.errors: tuple[Exception, ...] = ()
        self.shared: Mapping[int, str] = _NO_SKIPS
        self.failures_here = 0
        self.content_at: float | None = None
        self.replaceable = False
        self.partial: Sequence[Any] = ()
        self.usage: Mapping[str, Any] | None = None
        self.received: int | None = None
        self.note = ""
        self.metadata: Mapping[str, Any] | None = None
        self.pending: PendingAction | None = None
        self.positions_after_pending: Sequence[int] = ()
        self.extra_attempts = 0
        self.refreshed = self.transport_recovered = False
        self.generation = 0
        self.clients: Mapping[int, Any] = _NO_SKIPS
        self.permit: str | None = None
        self.all_cooling = False
        self.cooling: Mapping[int, float] = _NO_SECONDS
        self.skipped: Mapping[int, str] = _NO_SKIPS
        self.limit: Limit | None = None

    def positions(self, start: int) -> Sequence[int]:
        """List the positions from one on that may be asked for this call."""
        offered = range(start, self.policy.usable_targets)
        return [one for one in offered if one not in self.unfit] if self.unfit else offered

    def record(self, now: float) -> CallRecord:
        """Build the record of what has happened so far; complete once the call is over."""
        attempt, outcome, policy = self.attempt, self.outcome, self.policy
        ended = now if outcome == "running" else self.ended
        past, content_at = [*self.past], self.content_at
        answered = outcome == "success" or (outcome == "abandoned" and content_at is not None)
        # A call that was cancelled while it waited had not asked again.
        if answered or (outcome in {"cancelled", "abandoned"} and ended >= self.began):
            failure = None if answered else Failure.of(FailureKind.CANCELLED)
            spent = self.usage, self.received
            past.append(PastAttempt(attempt, self.began, ended, failure, self.note, *spent))
        return CallRecord(
            call_id=attempt.call_id,
            agent=policy.agent,
            chain=tuple(target.name for target in policy.chain),
            attempts=tuple(_attempt_record(one, self.started) for one in past),
            outcome=outcome,
            answered_by=attempt.target.name if answered else None,
            is_fallback=answered and attempt.is_fallback,
            started_at=self.started_at,
            seconds=max(0.0, ended - self.started),
            # What a rejected answer cost stands in its attempt: nobody got it.
            usage=self.usage,
            time_to_first_token=None if content_at is None else content_at - self.started,
            untried=self._untried({one.attempt.position for one in past}),
            why=self.why() if outcome == "exhausted" else None,
            metadata=self.metadata,
            turn_id=self.turn_id,
            limit=self.limit if outcome == "exhausted" else None,
            cooling={policy.chain[n].name: left for n, left in self.cooling.items()} or None,
        )

    def why(self) -> str | None:
        """Say why no more was asked, where something forbade it."""
        match self.limit:
            case "deadline":
                return f"the deadline of {self.policy.config.deadline:g} s left no time for more"
            case "retry_budget":
                return f"the retry budget for {self.attempt.target.name} was used up"
            case "replay":
                name = self.attempt.target.name
                return f"the request to {name} may have had an effect and replay is 'safe'"
            case None:
                return None

    def _untried(self, tried: set[int]) -> tuple[tuple[str, str], ...]:
        """Say of each target that was never asked why."""
        untried = [n for n in range(len(self.policy.chain)) if n not in tried]
        if not untried:
            return ()
        first = min(tried, default=self.attempt.position)
        return tuple((self.policy.chain[n].name, self._why_untried(n, first)) for n in untried)

    def _why_untried(self, position: int, first: int) -> str:  # noqa: PLR0911 # one per reason
        """Say why a target was never asked; ``first`` is the position that was asked first."""
        policy = self.policy
        if position in self.unfit:
            return self.unfit[position]
        if position in self.cooling:
            left = self.cooling[position]
            return f"it was cooling down for another {left:.0f} s" if left else _PROBED
        if position in self.skipped:
            return self.skipped[position]
        answered_first = self.outcome == "success" and position > self.attempt.position
        if not answered_first and position in self.shared:
            return self.shared[position]
        if position >= policy.usable_targets:
            return "the call must not degrade"
        if position < first:
            return "the turn had already left it"
        if position < self.attempt.position:
            return "its context window is not larger"
        limited = self.why() if self.outcome == "exhausted" else None
        return limited or OUTCOMES[self.outcome].untried


def _attempt_record(past: PastAttempt, started: float) -> AttemptRecord:
    attempt, failure, target = past.attempt, past.failure, past.attempt.target
    ruled = failure.reason if failure and failure.by_rule else None
    return AttemptRecord(
        target=target.name,
        model=target.model,
        provider=target.provider,
        number=attempt.number,
        position=attempt.position,
        started=past.began - started,
        seconds=max(0.0, past.ended - past.began),
        wait=attempt.wait,
        kind=failure.kind if failure else None,
        status=failure.status if failure else None,
        code=failure.code if failure else None,
        error=(failure.error or None) if failure else None,
        retry_after=failure.retry_after if failure else None,
        next_action=KINDS[failure.kind].next_action if failure else None,
        note=", ".join(filter(None, (past.note, ruled))) or None,
        usage=past.usage,
        is_probe=past.note == PROBE,
        reached=failure.reached if failure else None,
        received=past.received,
    )
