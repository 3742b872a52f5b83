"""What may be done about a failure: the algorithm, once, and without effects.

Theory of operation
-------------------

A call asks one target at a time. When an attempt fails, ``options`` yields everything that the
policy allows next, the best first; the run takes the first one that the deadline and the retry
budget permit, and that is all the choosing there is. The order is the specification:

1. **SwitchTo** whoever goes on with a text that its reader has: with ``partial="continue"``, where
   it is plain text and a target has ``prefill``.
2. **Stop** where a reader has content: nobody can take it back.
3. **Stop** where the request may have had an effect. Under ``replay="safe"`` only: a second
   request would repeat it, at whatever target.
4. **Recover** the credential. A refused key says nothing about the model: a fresh key on the same
   target is better than another model. Once per target.
5. **Stop** where nobody can help: a caller's own bug, a refusal, the last target gone for good.
6. **Retry** a target: the one at hand while ``switch_after`` grants it more failures (a stated
   wait of at most ``SHORT_WAIT`` is obeyed then; a longer one is not, as another target is free),
   at once where a connection was of another event loop, which is not one of ``max_attempts``; once
   nobody is left and a failure may pass, after a wait, the last one outside of a cooldown.
7. **Recover** the transport: the primary's connection was lost, and a new one may work. Once.
8. **SwitchTo** another target, at once: those further down the chain, then those that the turn has
   left, and those in a cooldown last. A memory orders, it never forbids: an error costs a request,
   silence costs the call. Those that could not take this request are passed over, and those that
   share what failed: the model with the same parameters, the key or the host.
9. **Stop**: every attempt is used up.

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

from honcho_fallback._core.recovery import refresh_of
from honcho_fallback._core.shared import CooldownReport
from honcho_fallback._core.state import FORCED
from honcho_fallback._core.target import ApiKey
from honcho_fallback._values.failure import KINDS, FailureKind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from honcho_fallback._core.recovery import PendingAction
    from honcho_fallback._core.resolved import ResolvedPolicy
    from honcho_fallback._core.state import CallState
    from honcho_fallback._values.failure import Failure, Health
    from honcho_fallback._values.record import Limit, Outcome

# Seconds of a stated Retry-After that a request which switch_after grants waits for: an answer of
# the target that was asked for is worth them, and a person hardly notices.
SHORT_WAIT = 2.0
# So many connections of earlier event loops a client's pool may hand out before a new one.
MOST_STALE = 10

_LARGER_WINDOW = frozenset({FailureKind.CONTEXT_OVERFLOW, FailureKind.PAYLOAD_TOO_LARGE})


class Recover(NamedTuple):
    """Do something that takes I/O, then ask the same target once more; not one of max_attempts."""

    action: PendingAction


class Retry(NamedTuple):
    """Ask a target again."""

    wait: float  # seconds before it
    position: int


class SwitchTo(NamedTuple):
    """Ask another target, at once."""

    positions: Sequence[int]  # those that could take the request, the best first


class Stop(NamedTuple):
    """End the call: ``rejected`` where no other target could have helped."""

    outcome: Outcome
    limit: Limit | None = None  # what forbids to ask anybody else
    error: int = -1  # which of the call's errors comes out where one does


Option = Recover | Retry | SwitchTo | Stop


def options(
    policy: ResolvedPolicy, call: CallState, failure: Failure, error: Exception
) -> Iterator[Option]:
    """Yield what may be done about a failure, the best first; the last one is always a Stop.

    The failed attempt is the last of ``call.past``; the error is for wait strategies that look at
    it.
    """
    is_safe, may_help = policy.config.replay == "safe", switches(call, failure)
    if call.content_at is not None:
        may_go_on = may_help and not is_safe and call.attempt.number < policy.max_attempts
        able = [position for position in call.remaining if policy.chain[position].prefill]
        if call.text and may_go_on and able:
            yield SwitchTo(able)
        yield Stop("interrupted")
        return
    if is_safe and failure.reached == "unknown" and (failure.transient or may_help):
        yield Stop("exhausted", "replay")
        return
    if (refresh := credential_refresh(call, failure)) is not None:
        yield Recover(refresh)
    fit = fitting(call)
    others = fit if may_help else ()
    left = call.remaining if _is_of_a_window(failure) else fit
    again = None if left or is_stale(failure) else repeatable(call)
    if not (others or is_stale(failure)) and again is None:
        # Where the chain ends with a failure that would have switched, the chain is exhausted;
        # where somebody is left who could not help, the request itself is the trouble, and so it
        # is where everybody lacks what it needs.
        kinds = {one.failure and one.failure.kind for one in call.past}
        lacking = kinds == {FailureKind.UNSUPPORTED}
        outcome: Outcome = "exhausted" if may_help and not (left or lacking) else "rejected"
        yield Stop(outcome, error=0 if lacking else -1)
        return
    requests_left = policy.max_attempts + call.extra_attempts - call.attempt.number
    # Patience with one target costs no other its turn.
    if requests_left > len(others) or is_stale(failure):
        retry = granted_retry(call, failure, error) if again is None else retry_at_end(call, again)
        if retry is not None:
            yield Retry(*retry)
    # The primary only: by the time a fallback is asked, the call has waited long enough.
    if (rebuild := transport_rebuild(call, failure)) is not None:
        yield Recover(rebuild)
    if requests_left > 0 and others:
        yield SwitchTo(others)
    yield Stop("exhausted")


def credential_refresh(call: CallState, failure: Failure) -> PendingAction | None:
    """Return the refresh that may help: after a 401, or a 403 about credentials, once."""
    credential = call.attempt.target.credential
    is_due = failure.kind is FailureKind.AUTHENTICATION and "refresh" not in call.recovered
    if not is_due or credential is None or isinstance(credential, ApiKey):
        return None
    # The generation of when this target was asked: if another call has refreshed the credential
    # since, nothing is fetched and the new one is simply tried.
    return refresh_of(credential).action(credential, call.generation)


def transport_rebuild(call: CallState, failure: Failure) -> PendingAction | None:
    """Return how a new transport may help the primary, once."""
    recovery, attempt = call.policy.config.transport_recovery, call.attempt
    if recovery is None or "rebuild" in call.recovered or attempt.is_fallback:
        return None
    return recovery.action(attempt.target, failure, call.failures_at(attempt.position))


def switches(call: CallState, failure: Failure) -> bool:
    """Tell whether a failure is one that another target may be asked for."""
    if failure.kind is FailureKind.INVALID_REQUEST and call.attempt.is_fallback:
        # What the primary would have taken, another provider may not: the next one may again.
        return True
    if failure.kind not in call.policy.config.fallback_on:
        return False
    # A kind that the table does not switch on does so once it is named in fallback_on; one that
    # the table switches on may still have been refined to say no.
    return failure.switchable or not KINDS[failure.kind].switchable


def is_stale(failure: Failure) -> bool:
    """Tell of a connection of an earlier event loop, or one that a neighbour cancelled."""
    return failure.scope == "client" and failure.kind is FailureKind.CONNECTION


def fitting(call: CallState) -> Sequence[int]:
    """List those of the remaining positions that could take the request."""
    overflown = [one for one in call.past if one.failure and _is_of_a_window(one.failure)]
    if not overflown or not call.remaining:
        return call.remaining
    # What nobody knows is asked: only a window that is known to be no larger than one that was too
    # small cannot help, whatever another target has failed with since.
    most = max(one.attempt.target.context_window or 0 for one in overflown)
    windows = {n: call.policy.chain[n].context_window for n in call.remaining}
    return [n for n, size in windows.items() if size is None or size > most]


def _is_of_a_window(failure: Failure) -> bool:
    """Tell whether a request was larger than a window, and not than an account's minute."""
    is_of_a_minute = failure.status == 429 or failure.code == "rate_limit_exceeded"
    return failure.kind in _LARGER_WINDOW and not is_of_a_minute


def repeatable(call: CallState) -> int | None:
    """Find the failed attempt whose target is asked again once nobody is left, or None.

    The last one, or the last outside of a cooldown: what fails while it rests is no news, and a
    target that failed for the first time a second ago may be back.
    """
    transient = [n for n, one in enumerate(call.past) if one.failure and one.failure.transient]
    if not transient or (call.past[-1].note != FORCED and transient[-1] != len(call.past) - 1):
        return None  # what the chain ended with does not pass
    return next((n for n in reversed(transient) if call.past[n].note != FORCED), transient[-1])


def granted_retry(call: CallState, failure: Failure, error: Exception) -> Retry | None:
    """Return one more request at the target at hand, if ``switch_after`` grants it."""
    config, stated, position = call.policy.config, failure.retry_after, call.attempt.position
    allowed = config.switch_after
    if isinstance(allowed, Mapping):
        allowed = allowed.get(failure.kind, 1)
    if is_stale(failure):
        is_old = failure.reached != "no" and failure.error != ConnectionAbortedError.__name__
        allowed = max(allowed, MOST_STALE if is_old else 2)  # not where a neighbour cancelled it
    allowed = min(allowed, config.attempts_per_target or allowed) if failure.transient else 1
    if allowed == 1 or (failures := call.failures_at(position)) >= allowed:
        return None
    wait = 0.0 if is_stale(failure) else strategy_wait(config.wait, failures, error)
    if stated is not None and stated > wait:
        return Retry(stated, position) if stated <= SHORT_WAIT else None
    return Retry(wait, position)


def retry_at_end(call: CallState, again: int) -> Retry | None:
    """Return one more request at a target that nobody is left beside, if it may have one."""
    config, past = call.policy.config, call.past[again]
    position, stated = past.attempt.position, past.failure and past.failure.retry_after
    failures, each = call.failures_at(position), config.attempts_per_target
    if each is not None and failures >= each:
        return None
    if stated is not None:
        return Retry(min(stated, config.retry_after_cap), position)
    return Retry(strategy_wait(config.wait, failures, call.errors[again]), position)


def strategy_wait(strategy: Callable[[Any], Any], failures: int, error: BaseException) -> float:
    """Ask a tenacity wait strategy, or any callable on its RetryCallState, for seconds."""
    state = tenacity.RetryCallState(tenacity.Retrying(), None, (), {})
    state.attempt_number = failures
    state.outcome = tenacity.Future.construct(failures, error, has_exception=True)
    wait = strategy(state)
    return max(0.0, wait.total_seconds() if hasattr(wait, "total_seconds") else float(wait))


def cooldown_reports(
    call: CallState, failure: Failure | None, outcome: Outcome
) -> tuple[CooldownReport, ...]:
    """Say what the cooldown learns from leaving the target at hand, or from the end of a call.

    A failure is news of its scope: the model, the key or the host. An answer, and a probe that
    ends, say something of all three, if only that another call may look next.
    """
    health: Health = "up" if outcome == "success" else "unknown"
    permit, keys = call.permit, call.attempt.target.keys
    if failure is not None and outcome in {"exhausted", "rejected", "interrupted"}:
        health = "unknown" if failure.scope == "client" else KINDS[failure.kind].health
    if health != "down" or failure is None:
        if health == "unknown" and permit is None:
            return ()  # no news: nobody was missing it
        return tuple(CooldownReport(key, health, permit=permit) for key in keys.values())
    failed, lasts = keys.get(failure.scope, keys["model"]), not failure.transient
    others = [key for key in keys.values() if key != failed] if permit else ()
    return (
        CooldownReport(failed, health, failure.retry_after, permit, failure.kind, lasts),
        *(CooldownReport(key, "unknown", permit=permit) for key in others),
    )
