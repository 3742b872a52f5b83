"""What may be done about a failure: the algorithm, once, and without effects.

Theory of operation
-------------------

A call asks one target at a time. When an attempt fails, ``options`` yields everything that the
policy allows next, the best first; the run takes the first one that the deadline and the retry
budget permit, and that is all the choosing there is. The order is the specification:

1. **Stop** where the request may have had an effect. Under ``replay="safe"`` only: a second
   request would repeat it, at whatever target.
2. **Recover** the credential. A refused key says nothing about the model: a fresh key on the same
   target is better than another model. Once per target.
3. **Stop** where nobody can help: a caller's own bug, a refusal, the last target gone for good.
4. **Retry** the same target: while ``switch_after`` grants it more failures, or at the chain's
   end, where a failure that may pass is waited for. Never while a stated Retry-After would have to
   be sat out and another target is free.
5. **Recover** the transport: the primary's connection was lost, and a new one may work. Once.
6. **SwitchTo** a target further down the chain, at once. Those that could not take this request
   are passed over, and those that share what failed: the model with the same parameters, the key
   or the host.
7. **Stop**: every attempt is used up.

The generator is lazy because a later option may cost something to work out (a wait strategy that
draws a random number), and because most failures take the first option.

Nothing here reads a clock, sleeps, logs or writes to the call: what an option means for the call
is the run's to apply. What a call may do next can therefore be printed: that is what ``explain``
and ``dry-run`` show.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import tenacity

from honcho_fallback._core.recovery import REFRESHES
from honcho_fallback._core.shared import CooldownReport
from honcho_fallback._core.target import ApiKey
from honcho_fallback._values.failure import KINDS, FailureKind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from honcho_fallback._core.recovery import PendingAction
    from honcho_fallback._core.resolved import ResolvedPolicy
    from honcho_fallback._core.state import CallState
    from honcho_fallback._values.failure import Failure, Health
    from honcho_fallback._values.record import Limit, Outcome

_LARGER_WINDOW = frozenset({FailureKind.CONTEXT_OVERFLOW, FailureKind.PAYLOAD_TOO_LARGE})


class Recover(NamedTuple):
    """Do something that takes I/O, then ask the same target once more; not one of max_attempts.

    Args:
        action: What has to be done.
    """

    action: PendingAction


class Retry(NamedTuple):
    """Ask the same target again.

    Args:
        wait: Seconds before it.
    """

    wait: float


class SwitchTo(NamedTuple):
    """Ask another target, at once.

    Args:
        positions: Those that could take the request, in the order of the chain.
    """

    positions: Sequence[int]


class Stop(NamedTuple):
    """End the call.

    Args:
        outcome: ``exhausted``, or ``rejected`` where no other target could have helped.
        limit: What forbids to ask anybody else, or None.
    """

    outcome: Outcome
    limit: Limit | None = None


Option = Recover | Retry | SwitchTo | Stop


def options(
    policy: ResolvedPolicy, call: CallState, failure: Failure, error: Exception
) -> Iterator[Option]:
    """Yield what may be done about a failure, the best first; the last one is always a Stop.

    The failed attempt is the last of ``call.past``; the error is for wait strategies that look at
    it.
    """
    attempt = call.attempt
    if policy.config.replay == "safe" and may_have_acted(policy, call, failure):
        yield Stop("exhausted", "replay")
        return
    if (refresh := credential_refresh(call, failure)) is not None:
        yield Recover(refresh)
    remaining = remaining_positions(policy, call)
    others = candidates(policy, call, failure, remaining)
    is_last = not remaining
    may_pass = is_last and failure.transient
    # A probe that failed while everybody cools down has shown all there is to see: asking the
    # others, or the same one again, is what the cooldown is there to prevent.
    if not (others or may_pass) or call.all_cooling:
        # Where the chain ends with a failure that would have switched, the chain is exhausted;
        # where somebody is left who could not help, the request itself is the trouble.
        exhausted = call.all_cooling or (is_last and switches(policy, call, failure))
        yield Stop("exhausted" if exhausted else "rejected")
        return
    may_ask = attempt.number < policy.max_attempts + call.extra_attempts
    if may_ask:
        wait = retry_wait(policy, call, failure, error, others)
        if wait is not None:
            yield Retry(wait)
    # The primary only: by the time a fallback is asked, the call has waited long enough.
    if (rebuild := transport_rebuild(policy, call, failure)) is not None:
        yield Recover(rebuild)
    if may_ask and others:
        yield SwitchTo(others)
    yield Stop("exhausted")


def may_have_acted(policy: ResolvedPolicy, call: CallState, failure: Failure) -> bool:
    """Tell whether a provider's failure leaves open what became of the request."""
    helps = failure.transient or switches(policy, call, failure)
    return failure.reached == "unknown" and helps


def credential_refresh(call: CallState, failure: Failure) -> PendingAction | None:
    """Return the refresh that may help: after a 401, or a 403 about credentials, once."""
    credential = call.attempt.target.credential
    if call.refreshed or credential is None or isinstance(credential, ApiKey):
        return None
    if failure.kind is not FailureKind.AUTHENTICATION:
        return None
    # The generation of when this target was asked: if another call has refreshed the credential
    # since, nothing is fetched and the new one is simply tried.
    return REFRESHES.of(credential).action(call.generation)


def transport_rebuild(
    policy: ResolvedPolicy, call: CallState, failure: Failure
) -> PendingAction | None:
    """Return how a new transport may help the primary, once."""
    recovery = policy.config.transport_recovery
    if recovery is None or call.transport_recovered or call.attempt.is_fallback:
        return None
    return recovery.action(call.attempt.target, failure, call.failures_here)


def switches(policy: ResolvedPolicy, call: CallState, failure: Failure) -> bool:
    """Tell whether a failure is one that another target may be asked for."""
    if failure.kind is FailureKind.INVALID_REQUEST and call.attempt.is_fallback:
        # What the primary would have taken, another provider may not: the next one may again.
        return True
    if failure.kind not in policy.config.fallback_on:
        return False
    # A kind that the table does not switch on does so once it is named in fallback_on; one that
    # the table switches on may still have been refined to say no.
    return failure.switchable or not KINDS[failure.kind].switchable


def remaining_positions(policy: ResolvedPolicy, call: CallState) -> Sequence[int]:
    """List the fitting positions further down that share nothing with what has failed."""
    following = range(call.attempt.position + 1, policy.usable_targets)
    return [n for n in following if n not in call.unfit and n not in call.shared]


def candidates(
    policy: ResolvedPolicy, call: CallState, failure: Failure, remaining: Sequence[int]
) -> Sequence[int]:
    """List those of the remaining positions that could take the request."""
    if not remaining or not switches(policy, call, failure):
        return ()
    if failure.kind not in _LARGER_WINDOW:
        return remaining
    window = call.attempt.target.context_window
    if window is None:  # unknown is never smaller than anything
        return ()
    windows = {n: policy.chain[n].context_window for n in remaining}
    return [n for n, size in windows.items() if size is not None and size > window]


def retry_wait(
    policy: ResolvedPolicy,
    call: CallState,
    failure: Failure,
    error: Exception,
    others: Sequence[int],
) -> float | None:
    """Tell how long to wait before the same target is asked again, or None to leave it."""
    config, stated = policy.config, failure.retry_after
    each = config.attempts_per_target
    if each is not None and call.failures_here >= each:
        return None
    if not others and stated is not None:
        return min(stated, config.retry_after_cap)
    if others and not (
        failure.transient and call.failures_here < switch_after(policy, failure.kind)
    ):
        return None
    wait = strategy_wait(config.wait, call, error)
    # Retry-After is never waited for while another target is free.
    return wait if stated is None or stated <= wait else None


def switch_after(policy: ResolvedPolicy, kind: FailureKind) -> int:
    """Return how many failures of a kind one target may have before the switch."""
    allowed = policy.config.switch_after
    return allowed.get(kind, 1) if isinstance(allowed, Mapping) else allowed


def strategy_wait(strategy: Callable[[Any], Any], call: CallState, error: BaseException) -> float:
    """Ask a tenacity wait strategy, or any callable on its RetryCallState, for seconds."""
    failures = call.failures_here
    state = tenacity.RetryCallState(tenacity.Retrying(), None, (), {})
    state.attempt_number = failures
    state.outcome = tenacity.Future.construct(failures, error, has_exception=True)
    wait = strategy(state)
    return max(0.0, wait.total_seconds() if hasattr(wait, "total_seconds") else float(wait))


def share_of_time(policy: ResolvedPolicy, call: CallState, position: int, now: float) -> float:
    """Tell how much of the call's deadline an attempt may take from ``now`` on.

    What is reserved for the targets behind it is left out; where the reserves would leave it
    less, the targets share what is left alike.
    """
    behind = len(call.positions(position + 1))
    left = call.deadline_at - now
    reserve = policy.config.reserve
    if reserve is None:
        reserve = max(1.0, (call.deadline_at - call.started) / 3)
    return left - min(behind * reserve, left * behind / (behind + 1))


def attempt_timeout(policy: ResolvedPolicy, call: CallState, position: int, now: float) -> float:
    """Tell how long an attempt of a call with a deadline may take, if it begins then."""
    share = share_of_time(policy, call, position, now)
    return share if policy.timeout is None else min(share, policy.timeout)


def cooldown_reports(
    call: CallState, failure: Failure | None, outcome: Outcome
) -> tuple[CooldownReport, ...]:
    """Say what the cooldown learns from leaving the target at hand, or from the end of a call.

    A failure is news of its scope: the model, the key or the host. A probe that ends says
    something of all three, if only that another call may look next.
    """
    health: Health = "up" if outcome == "success" else "unknown"
    permit, keys = call.permit, call.attempt.target.keys
    if failure is not None and outcome in {"exhausted", "rejected", "interrupted"}:
        health = KINDS[failure.kind].health
    if health != "down" or failure is None:
        # Without a probe it is no news: nobody was missing it.
        if permit is None:
            return ()
        return tuple(CooldownReport(key, health, None, permit) for key in keys.values())
    failed = keys.get(failure.scope, keys["model"])
    report = CooldownReport(failed, health, failure.retry_after, permit)
    if permit is None:
        return (report,)
    others = [key for key in keys.values() if key != failed]
    return (report, *(CooldownReport(key, "unknown", None, permit) for key in others))


def is_in_time(
    policy: ResolvedPolicy, call: CallState, position: int, now: float, wait: float
) -> bool:
    """Tell whether an attempt that begins after a wait has any time."""
    return wait < share_of_time(policy, call, position, now)
