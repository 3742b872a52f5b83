"""Everything that one call knows."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from honcho_fallback._core.target import Attempt
from honcho_fallback._values.failure import KINDS, Failure, FailureKind
from honcho_fallback._values.record import OUTCOMES, AttemptRecord, CallRecord
from honcho_fallback.redaction import CODE

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from honcho_fallback._core.recovery import PendingAction
    from honcho_fallback._core.resolved import ResolvedPolicy
    from honcho_fallback._core.target import Partial
    from honcho_fallback._core.turn import Turn
    from honcho_fallback._values.record import Limit, Outcome

# The notes of attempts at a target that rests or rested.
PROBE = "a probe after its cooldown"
FORCED = "in its cooldown, as nobody else was left"
_LEFT = "the turn had already left it"
_KEPT_WARM = "the session stays where its prompt cache is warm"
_PROBED = "another call was probing it"
_NOTHING: Mapping[int, Any] = MappingProxyType({})  # one for all calls


class PastAttempt(NamedTuple):
    """One attempt that came to an end; times on the clock's scale."""

    attempt: Attempt
    began: float
    ended: float
    failure: Failure | None
    note: str = ""
    usage: Mapping[str, Any] | None = None
    received: int | None = None


@dataclass(slots=True, eq=False)
class CallState:
    """Everything that one call knows; written by its run, read by the rules.

    A target is named by its position in the chain, and time is the clock's.
    """

    policy: ResolvedPolicy
    call_id: str
    started: float
    started_at: float  # since the epoch
    turn: Turn | None  # what a switch of this call moves, or None
    turn_id: str | None  # of the turn that it is a part of, whatever a switch lasts for
    unfit: Mapping[int, str]  # who cannot take this call and why
    attempt: Attempt = field(init=False)  # at hand, or the last one
    first: int = field(init=False)  # where the turn has come to
    # Who may be asked at all, those last that the turn has left, for they are better than nobody;
    # and who of them is left, those in a cooldown included.
    order: Sequence[int] = field(init=False)
    remaining: Sequence[int] = field(init=False)
    deadline_at: float = field(init=False)  # infinite without a deadline
    metadata: Mapping[str, Any] | None = None
    outcome: Outcome = "running"
    ended: float = 0.0

    # The attempts that failed, in order, and what they raised; by position what a target has in
    # common with one of them.
    past: tuple[PastAttempt, ...] = ()
    errors: tuple[Exception, ...] = ()
    shared: Mapping[int, str] = field(init=False)
    limit: Limit | None = None  # what forbade to ask more

    # Of the attempt at hand: when it begins, what is particular about it, what its answer cost as
    # far as somebody said, and the characters it had brought when it was cut.
    began: float = field(init=False)
    note: str = ""
    usage: Mapping[str, Any] | None = None
    received: int | None = None
    # Of a stream: when its first content was handed out, what another attempt may do with it,
    # where a caller of ``commit`` keeps it, and the text that another attempt goes on with.
    content_at: float | None = None
    mode: Partial = "final"
    partial: Sequence[Any] = ()
    text: str = ""

    # I/O that comes before the attempt at hand or after the end, and whom it may go to then.
    pending: PendingAction | None = None
    positions_after_pending: Sequence[int] = ()
    # What recoveries the target at hand had, and of which generation its first credential was; the
    # requests after them are on top of max_attempts.
    recovered: frozenset[str] = frozenset()
    generation: int = 0
    extra_attempts: int = 0
    clients: Mapping[int, Any] = field(init=False)  # whose transport was rebuilt

    # What the cooldown lent and said: the permit of a probe, and who was passed over with the
    # seconds left, 0 where another call was probing.
    permit: str | None = None
    cooling: Mapping[int, float] = field(init=False)

    def __post_init__(self) -> None:
        self.began = self.started
        self.shared = self.clients = self.cooling = _NOTHING
        policy = self.policy
        length, deadline = len(policy.chain), policy.config.deadline
        self.first = 0 if self.turn is None else self.turn.position
        self.order = range(length)
        if self.first or self.unfit:
            order = (*range(self.first, length), *range(self.first))
            self.order = [position for position in order if position not in self.unfit]
        self.remaining = self.order
        self.deadline_at = inf if deadline is None else self.started + deadline
        position, config = self.remaining[0], policy.config
        terms = config.timeout, config.connect_timeout, 0.0, self.call_id
        limits = config.first_token_timeout, config.idle_timeout
        self.attempt = Attempt(policy.chain[position], 1, position, *terms, *limits)

    @property
    def name(self) -> str:
        """Name the target at hand as records do."""
        return self.policy.names[self.attempt.position]

    def failures_at(self, position: int) -> int:
        """Count how often a target has failed in this call."""
        return sum(one.attempt.position == position for one in self.past)

    def share_of_time(self, position: int, now: float) -> float:
        """Tell how much of the call's deadline an attempt may take from ``now`` on.

        What is reserved for those behind it is left out; where the reserves would leave it less,
        all share what is left alike. Nothing is kept for a target that rests, or that the turn
        has left, while one is asked that is not.
        """
        is_forced = self.note == FORCED
        behind = sum(
            one != position if is_forced else one > position and one not in self.cooling
            for one in self.remaining
        )
        left = self.deadline_at - now
        reserve = max(1.0, (self.deadline_at - self.started) / 3)
        return left - min(behind * reserve, left * behind / (behind + 1))

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
        tried = {one.attempt.position for one in past}
        names = policy.names
        return CallRecord(
            call_id=attempt.call_id,
            agent=policy.agent,
            chain=names,
            attempts=tuple(_attempt_record(policy, one, self.started) for one in past),
            outcome=outcome,
            answered_by=self.name if answered else None,
            is_fallback=answered and attempt.position > 0,
            started_at=self.started_at,
            seconds=max(0.0, ended - self.started),
            # What a rejected answer cost stands in its attempt: nobody got it.
            usage=self.usage,
            time_to_first_token=None if content_at is None else content_at - self.started,
            untried=tuple(
                (name, self._why_untried(n)) for n, name in enumerate(names) if n not in tried
            ),
            why=self.why() if outcome == "exhausted" else None,
            metadata=self.metadata,
            turn_id=self.turn_id,
            limit=self.limit if outcome == "exhausted" else None,
            cooling={names[n]: left for n, left in self.cooling.items() if n not in tried} or None,
        )

    def why(self) -> str | None:
        """Say why no more was asked, where something forbade it."""
        match self.limit:
            case "deadline":
                return f"the deadline of {self.policy.config.deadline:g} s left no time for more"
            case "retry_budget":
                return f"the retry budget for {self.name} was used up"
            case "replay":
                return f"the request to {self.name} may have had an effect and replay is 'safe'"
            case None:
                return None

    def _why_untried(self, position: int) -> str:
        """Say why a target was never asked."""
        if position in self.unfit:
            return self.unfit[position]
        if position in self.cooling:
            left = self.cooling[position]
            return f"it was cooling down for another {left:.0f} s" if left else _PROBED
        has_answer = self.outcome == "success"
        if position in self.shared and not (has_answer and position > self.attempt.position):
            return self.shared[position]
        if position < self.first and position != self.attempt.position:
            place = self.turn and self.turn.place
            return _KEPT_WARM if place and position < place.position else _LEFT
        if position < self.attempt.position:
            return "its context window is not larger"
        limited = self.why() if self.outcome == "exhausted" else None
        return limited or OUTCOMES[self.outcome].untried


def _attempt_record(policy: ResolvedPolicy, past: PastAttempt, started: float) -> AttemptRecord:
    attempt, failure, position = past.attempt, past.failure, past.attempt.position
    ruled = failure.reason if failure and failure.by_rule else None
    return AttemptRecord(
        target=policy.names[position],
        model=policy.models[position],
        provider=policy.providers[position],
        number=attempt.number,
        position=position,
        started=past.began - started,
        seconds=max(0.0, past.ended - past.began),
        wait=attempt.wait,
        kind=failure.kind if failure else None,
        status=failure.status if failure else None,
        code=failure.code if failure and CODE.fullmatch(failure.code or "") else None,
        error=(failure.error or None) if failure else None,
        retry_after=failure.retry_after if failure else None,
        next_action=KINDS[failure.kind].next_action if failure else None,
        note=", ".join(filter(None, (past.note, ruled))) or None,
        usage=past.usage,
        is_probe=past.note == PROBE,
        is_forced=past.note == FORCED,
        reached=failure.reached if failure else None,
        received=past.received,
        transient=failure.transient if failure else None,
    )
