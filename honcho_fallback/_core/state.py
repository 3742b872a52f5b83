"""What all calls on a policy share, and everything that one call knows."""

from __future__ import annotations

import inspect
from functools import partial
from math import inf
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeVar

from honcho_fallback._classify import classify
from honcho_fallback._classify._answers import check_response
from honcho_fallback._core.errors import (
    AnswerRejected,
    FallbackConfigError,
    TargetUnavailable,
    require_text,
    require_type,
)
from honcho_fallback._core.failure import KINDS, NOT_ACCEPTABLE, Failure, FailureKind
from honcho_fallback._core.observers import logger
from honcho_fallback._core.record import OUTCOMES, AttemptRecord, CallRecord
from honcho_fallback._core.target import Attempt, Target

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Mapping, Sequence

    from honcho_fallback._core.config import FallbackConfig
    from honcho_fallback._core.observers import Observers
    from honcho_fallback._core.record import Limit, Outcome
    from honcho_fallback._core.recovery import PendingAction
    from honcho_fallback._core.turn import Turn

T = TypeVar("T")

PROBE = "a probe after its cooldown"  # the note of such an attempt
_PROBED = "another call was probing it"
_NO_SKIPS: Mapping[int, str] = MappingProxyType({})
_NO_SECONDS: Mapping[int, float] = MappingProxyType({})


class ResolvedPolicy:
    """What every call on a policy shares, looked up once; nothing in it changes.

    Args:
        chain: As ``check_chain`` returns it.
        config: The options.
        agent: A label for logs and records.
        observers: Who hears of calls, or None.

    Raises:
        FallbackConfigError: The label is empty.
    """

    def __init__(
        self,
        chain: tuple[Target, ...],
        config: FallbackConfig,
        agent: str,
        observers: Observers | None,
    ) -> None:
        require_text("agent", agent, "pass a name or leave it out")
        self.chain, self.config, self.agent, self.observers = chain, config, agent, observers
        self.timeout, self.connect_timeout = config.timeout, config.connect_timeout
        self.first_token_timeout = config.first_token_timeout
        self.idle_timeout = config.idle_timeout
        self.validate = config.validate_answer
        check = partial(check_response, rules=config.rules) if config.rules else check_response
        self.check = check if config.check_responses else None
        each = config.attempts_per_target
        attempts = len(chain) * each if each else max(3, len(chain))
        self.max_attempts = config.max_attempts or attempts
        self.turn_scoped = config.reset == "turn"
        self.grouped = config.on_exhausted == "group" and len(chain) > 1
        fallbacks = 0 if config.must_not_degrade else config.max_fallbacks
        self.usable_targets = len(chain) if fallbacks is None else min(len(chain), 1 + fallbacks)
        # Only such a call looks at more than its own attempts before it asks.
        limits = (config.cooldown, config.deadline, config.retry_budget, config.transport_recovery)
        self.has_call_limits = any(option is not None for option in limits) or any(
            target.credential is not None for target in chain
        )
        # Most policies have neither: what they classify need not go through the steps of hooks.
        self.classifies_plainly = config.classify is None and config.refine is None
        hooks = {"validate": self.validate, "classify": config.classify, "refine": config.refine}
        self.async_hooks = frozenset(name for name, hook in hooks.items() if _is_async(hook))

    def labelled(self, agent: str) -> ResolvedPolicy:
        """Return a copy under another label."""
        require_text("agent", agent, "pass a name or leave it out")
        policy = object.__new__(ResolvedPolicy)
        policy.__dict__.update(self.__dict__, agent=agent)
        return policy

    def classify(self, error: BaseException) -> Failure:
        """Say what an exception means where no hook of the user's has a say."""
        config = self.config
        return classify(
            error,
            local_errors=config.local_errors,
            provider_errors=config.provider_errors,
            rules=config.rules,
        )

    def classification(
        self, error: BaseException, base: Failure | None = None
    ) -> HookSteps[Failure]:
        """Say what an exception means under these options.

        ``base`` is what it means unless the options say otherwise, where that is known already:
        for an error that stands for an answer.
        """
        config = self.config
        if base is not None and not isinstance(error, config.local_errors):
            failure = base
            if config.rules and not base.by_rule:
                ruled = self.classify(error)
                failure = ruled if ruled.by_rule else base
        else:
            failure = self.classify(error)
        # A cancellation never switches, whatever the config says; and a target that the program
        # itself says it cannot ask is no matter of opinion.
        if failure.kind is FailureKind.CANCELLED or isinstance(error, TargetUnavailable):
            return failure
        if config.classify is not None and not failure.by_rule:
            call = partial(config.classify, error)
            failure = yield from _failure_from("classify", call, failure)
        if config.refine is not None:
            call = partial(config.refine, failure, error)
            refined = yield from _failure_from("refine", call, failure)
            if refined.kind is not failure.kind and refined[1:3] == failure[1:3]:
                # A kind brings its answers with it: _replace(kind=...) keeps the old ones.
                known = KINDS[refined.kind]
                refined = refined._replace(transient=known.transient, switchable=known.switchable)
            failure = refined
        return failure

    def examination(
        self, answer: Any, target: Target, *, is_stream: bool
    ) -> HookSteps[tuple[Exception, Failure] | None]:
        """Say what is wrong with an answer: the error that stands for it and its meaning.

        Of a stream the answer is the tuple of its chunks, and ``validate`` is not asked: it is for
        whole answers.
        """
        error: Exception | None = None
        failure = self.check(answer) if self.check is not None else None
        if failure is not None:
            error = AnswerRejected(failure)
            failure = failure._replace(error=AnswerRejected.__name__)
        elif is_stream:
            if not answer:
                error = AnswerRejected(f"{target.name} sent a stream without a single chunk")
        elif self.validate is not None:
            try:
                verdict = yield HookStep("validate", self.validate(answer))
            except Exception as raised:  # noqa: BLE001 # whatever a validator raises says no
                error = raised
            else:
                if verdict is False:
                    error = AnswerRejected(f"validate said no to the answer of {target.name}")
        if error is None:
            return None
        if failure is None:
            kind, name = FailureKind.MALFORMED_RESPONSE, type(error).__name__
            failure = Failure.of(kind, reason=NOT_ACCEPTABLE, error=name)
        return error, (yield from self.classification(error, failure))


class HookStep(NamedTuple):
    """What a hook of the user's returned: its result, or something to await for it."""

    hook: str
    result: Any


# Yields each hook's step and is sent the result; so that hooks may be sync or async and what is
# done with their results stands once.
HookSteps: TypeAlias = "Generator[HookStep, Any, T]"


def run_hooks(steps: HookSteps[T]) -> T:
    """Go through the steps in a thread."""
    try:
        step = next(steps)
        while True:
            if inspect.isawaitable(step.result):
                getattr(step.result, "close", bool)()  # a coroutine that nobody will await
                raise FallbackConfigError.about(step.hook, "it is async", "use acall or astream")
            step = steps.send(step.result)
    except StopIteration as end:
        result: T = end.value
        return result


async def arun_hooks(steps: HookSteps[T]) -> T:
    """Go through the steps in a task, and await what a hook returned for that."""
    try:
        step = next(steps)
        while True:
            if not inspect.isawaitable(step.result):
                step = steps.send(step.result)
                continue
            try:
                result = await step.result
            except Exception as error:  # noqa: BLE001 # for the step, as where a sync hook raises
                step = steps.throw(error)
            else:
                step = steps.send(result)
    except StopIteration as end:
        final: T = end.value
        return final


def _failure_from(hook: str, call: Callable[[], Any], before: Failure) -> HookSteps[Failure]:
    """Ask a hook for a failure; where it breaks, an outage is no time to lose the error."""
    try:
        result = yield HookStep(hook, call())
    except Exception as broken:  # noqa: BLE001 # see above
        logger.error(
            "%s raised %s; it is passed over", hook, type(broken).__name__
        )  # its frames could show what a call carries
        return before
    if isinstance(result, Failure):
        return result
    logger.error("%s returned no Failure; it is passed over", hook)
    return before


def _is_async(hook: object) -> bool:
    return inspect.iscoroutinefunction(hook) or inspect.iscoroutinefunction(
        getattr(hook, "__call__", None)  # noqa: B004 # its kind matters, not whether it is there
    )


def check_chain(targets: Iterable[Target]) -> tuple[Target, ...]:
    """Return the chain as a tuple."""
    if isinstance(targets, str | Target):
        problem = f"got a single {type(targets).__name__}"
        raise FallbackConfigError.about("targets", problem, "pass a list of Target objects")
    chain = tuple(targets)
    if not chain:
        fix = "pass at least one Target"
        raise FallbackConfigError.about("targets", "the chain is empty", fix)
    for position, target in enumerate(chain):
        fix = "pass a Target, such as Target('gpt-5.5', provider='openai')"
        require_type(f"targets[{position}]", target, Target, fix)
        name = target.name
        if name in [one.name for one in chain[:position]]:
            field, problem = f"targets[{position}].name", f"{name!r} is in the chain twice"
            raise FallbackConfigError.about(field, problem, "give one of them another name=")
    return chain


class PastAttempt(NamedTuple):
    """One attempt that came to an end; times on the clock's scale."""

    attempt: Attempt
    began: float
    ended: float
    failure: Failure | None
    note: str = ""
    usage: Mapping[str, Any] | None = None


class CallState:
    """Everything that one call knows; written by its run, read by the rules.

    Attributes:
        attempt: The attempt at hand, or the last one.
        outcome: How the call ended, or ``"running"``.
        started: The call's start on the clock's scale, and ``started_at`` since the epoch.
        began: When the attempt at hand begins or began.
        past: The attempts that failed, in order; ``errors`` holds what they raised.
        failures_here: How often the target at hand has failed in a row.
        content_at: When the first content of a stream was handed out.
        replaceable: Whether that content may still be replaced by another attempt's.
        partial: What was handed out, where a caller of ``commit`` keeps it.
        usage: What the answer at hand cost, as far as somebody said.
        note: What is particular about the attempt at hand.
        pending: I/O that comes before the attempt at hand, or after the end of the call.
        positions_after_pending: Whom the attempt may go to once that is done.
        extra_attempts: Requests on top of max_attempts: those after a recovery.
        refreshed: Whether the target at hand had its new credential (Hermes: one-shot guards).
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
        "refreshed",
        "replaceable",
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
        self.unfit = unfit or _NO_SKIPS
        position = 0
        if self.turn is not None and policy.usable_targets > 1:
            position = self.turn.position
        if unfit:
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
        self.failures_here = 0
        self.content_at: float | None = None
        self.replaceable = False
        self.partial: Sequence[Any] = ()
        self.usage: Mapping[str, Any] | None = None
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
            past.append(PastAttempt(attempt, self.began, ended, failure, self.note, self.usage))
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
            case None:
                return None

    def _untried(self, tried: set[int]) -> tuple[tuple[str, str], ...]:
        """Say of each target that was never asked why."""
        untried = [n for n in range(len(self.policy.chain)) if n not in tried]
        if not untried:
            return ()
        failed = {one.attempt.target.identity for one in self.past}
        first = min(tried, default=self.attempt.position)
        return tuple(
            (self.policy.chain[n].name, self._why_untried(n, first, failed)) for n in untried
        )

    def _why_untried(  # noqa: PLR0911 # one per reason, the nearest first
        self, position: int, first: int, failed: set[str]
    ) -> str:
        """Say why a target was never asked; ``first`` is the position that was asked first."""
        policy = self.policy
        if position in self.unfit:
            return self.unfit[position]
        if position in self.cooling:
            left = self.cooling[position]
            return f"it was cooling down for another {left:.0f} s" if left else _PROBED
        if position in self.skipped:
            return self.skipped[position]
        if failed and policy.chain[position].identity in failed:
            return "it had failed under another name"
        if position >= policy.usable_targets:
            if policy.config.must_not_degrade:
                return "the call must not degrade"
            return f"the policy asks at most {policy.usable_targets - 1} of the fallbacks"
        if position < first:
            return "the turn had already left it"
        if position < self.attempt.position:
            return "its context window is not larger"
        return OUTCOMES[self.outcome].untried


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
        next_action=failure.next_action if failure else None,
        note=", ".join(filter(None, (past.note, ruled))) or None,
        usage=past.usage,
        is_probe=past.note == PROBE,
    )
