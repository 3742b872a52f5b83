"""What may be done about a failure, read off the list of options itself and off whole calls."""

from __future__ import annotations

from datetime import timedelta
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import openai
import pytest
from tenacity import BaseRetrying

from honcho_fallback import (
    ApiKey,
    Cooldown,
    Failure,
    FailureKind,
    FallbackConfig,
    FallbackExhausted,
    FallbackPolicy,
    FallbackRun,
    Target,
    TargetUnavailable,
    TransportRecovery,
)
from honcho_fallback._core import rules
from honcho_fallback._core.resolved import ResolvedPolicy
from honcho_fallback._core.rules import Retry, Stop, SwitchTo
from honcho_fallback._core.state import FORCED, CallState, PastAttempt
from honcho_fallback.testing import StatusError
from tests.helpers.scripted import DRIVERS, repeating

if TYPE_CHECKING:
    import tenacity

P, F, G = "primary", "fallback", "third"
DOWN = StatusError(503)


KEY: Any = SimpleNamespace(get=str, refresh=str)  # a credential that does nothing


def listed(failure: Failure, *targets: Target, **options: Any) -> list[Any]:
    """List what may be done after so many failures of the target at a position."""
    where = {name: options.pop(name) for name in ("failures", "number", "at") if name in options}
    config = FallbackConfig(**{"wait": 2.0, **options})
    return options_of(failed(failure, config, *targets, **where))


def failed(
    failure: Failure,
    config: FallbackConfig,
    *targets: Target,
    failures: int = 1,
    number: int = 1,
    at: int = 0,
) -> CallState:
    """Make what a call knows once it failed so often at a position, and once before it."""
    call = called(ResolvedPolicy(targets, config, "test", None))
    for position in range(at):
        before = call.attempt._replace(target=targets[position], position=position)
        call.past += (PastAttempt(before, 0.0, 1.0, DENIED),)
    call.attempt = call.attempt._replace(target=targets[at], position=at, number=number)
    call.past += (PastAttempt(call.attempt, 0.0, 1.0, failure),) * failures
    call.errors = (DOWN,) * len(call.past)
    call.remaining = [n for n in call.remaining if n > at]
    return call


def called(policy: ResolvedPolicy) -> CallState:
    """Make what a call knows at its beginning."""
    return CallState(policy, "call", 0.0, 0.0, None, None, policy.unfit)


def options_of(call: CallState) -> list[Any]:
    """List what may be done about the last failure of a call."""
    failure = call.past[-1].failure
    assert failure is not None
    return list(rules.options(call.policy, call, failure, DOWN))


def kinds(options: list[Any]) -> list[str]:
    return [type(option).__name__ for option in options]


BUSY = Failure.of(FailureKind.OVERLOADED)
DENIED = Failure.of(FailureKind.AUTHENTICATION)
BUG = Failure.of(FailureKind.INVALID_REQUEST)
LOST = Failure.of(FailureKind.CONNECTION)
STALE = Failure.of(FailureKind.CONNECTION, scope="client")  # of another event loop
CANCELLED = STALE._replace(error=ConnectionAbortedError.__name__)  # by a neighbour
ONE, TWO, THREE = Target(P), Target(F), Target(G)


def test_the_whole_list_in_its_order() -> None:
    """Recover, Retry, Recover, SwitchTo, Stop: each where the options allow it, the best first."""
    lost_key = Failure.of(FailureKind.AUTHENTICATION, transient=True)
    target = Target(P, credential=KEY)
    recovery = TransportRecovery()
    options: dict[str, Any] = {"switch_after": 2, "transport_recovery": recovery}
    refused = kinds(listed(lost_key, target, TWO, **options))
    assert refused == ["Recover", "Retry", "SwitchTo", "Stop"]
    assert kinds(listed(LOST, ONE, TWO, **options)) == ["Retry", "Recover", "SwitchTo", "Stop"]


@pytest.mark.parametrize(
    ("failure", "targets", "options", "wanted"),
    [
        (BUSY, (ONE, TWO), {}, [SwitchTo([1]), Stop("exhausted")]),
        (BUSY, (ONE, TWO, THREE), {}, [SwitchTo([1, 2]), Stop("exhausted")]),
        (BUSY, (ONE,), {}, [Retry(2.0, 0), Stop("exhausted")]),
        (STALE, (ONE, TWO), {}, [Retry(0.0, 0), SwitchTo([1]), Stop("exhausted")]),
        (STALE, (ONE, TWO), {"attempts_per_target": 1}, [SwitchTo([1]), Stop("exhausted")]),
        (STALE, (ONE, TWO, THREE), {}, [Retry(0.0, 0), SwitchTo([1, 2]), Stop("exhausted")]),
        (STALE, (ONE,), {"max_attempts": 1, "failures": 9}, [Retry(0.0, 0), Stop("exhausted")]),
        (STALE, (ONE,), {"failures": 10}, [Stop("exhausted")]),
        (STALE._replace(reached="no"), (ONE,), {"failures": 2}, [Stop("exhausted")]),
        (CANCELLED, (ONE,), {"failures": 2}, [Stop("exhausted")]),
        (STALE, (ONE, TWO), {"max_attempts": 1}, [Retry(0.0, 0), Stop("exhausted")]),
        (BUSY, (ONE, TWO), {"max_attempts": 1}, [Stop("exhausted")]),
        (BUSY, (ONE,), {"max_attempts": 1}, [Stop("exhausted")]),
        (BUSY, (ONE, TWO), {"must_not_degrade": True}, [Retry(2.0, 0), Stop("exhausted")]),
        (BUSY, (ONE, TWO), {"fallback_on": {"timeout"}}, [Stop("rejected")]),
        (BUG, (ONE, TWO), {}, [Stop("rejected")]),
        (BUG, (ONE,), {}, [Stop("rejected")]),
        (DENIED, (ONE,), {}, [Stop("exhausted")]),
        (DENIED, (ONE, TWO), {}, [SwitchTo([1]), Stop("exhausted")]),
        (BUG, (ONE, TWO), {"fallback_on": [BUG.kind]}, [SwitchTo([1]), Stop("exhausted")]),
    ],
)  # fmt: skip
def test_what_may_be_done_about_a_first_failure(
    failure: Failure, targets: tuple[Target, ...], options: Any, wanted: list[Any]
) -> None:
    """The list is the specification, one row each."""
    assert listed(failure, *targets, **options) == wanted


@pytest.mark.parametrize("chain", [2, 3, 5])
@pytest.mark.parametrize("options", [{}, {"max_attempts": 5}])
@pytest.mark.parametrize("patience", [1, 2, 3, {"timeout": 2, "overloaded": 4}])
def test_patience_with_one_target_costs_no_other_its_turn(
    chain: int, options: Any, patience: Any
) -> None:
    """However often `switch_after` asks the dead again, the last target is reached."""
    *dead, last = (f"m{n}" for n in range(chain))
    script = repeating(**{name: [DOWN] for name in dead}, **{last: ["hello"]})
    config = FallbackConfig(wait=0, switch_after=patience, **options)
    assert FallbackPolicy(script.targets, config).call(script.ask) == "hello"
    failures = patience if isinstance(patience, int) else patience["overloaded"]
    assert options or script.asked == [*(name for name in dead for _ in range(failures)), last]


@pytest.mark.parametrize("length", [2, 3, 4])
async def test_a_connection_of_another_event_loop_costs_no_call(length: int) -> None:
    """One client of each target outlived its loop: what is asked on new connections counts."""
    *dead, last = (f"m{n}" for n in range(length))
    old = RuntimeError("Event loop is closed")
    script = repeating(**{name: [old, DOWN] for name in dead}, **{last: [old, "hello"]})
    policy = FallbackPolicy(script.targets, FallbackConfig(wait=0))
    assert await policy.acall(script.aask) == "hello"
    assert script.asked == [name for name in (*dead, last) for _ in range(2)]


@pytest.mark.parametrize(
    ("stated", "targets", "options", "wanted"),
    [
        (1.0, (ONE,), {}, Retry(1.0, 0)),
        (7.0, (ONE,), {}, Retry(7.0, 0)),
        (700.0, (ONE,), {}, Retry(30.0, 0)),
        (700.0, (ONE,), {"retry_after_cap": 5}, Retry(5.0, 0)),
        # Never sat out while another is free: asked again only where it may be by then.
        (1.0, (ONE, TWO), {"switch_after": 2}, Retry(2.0, 0)),
        (2.0, (ONE, TWO), {"switch_after": 2}, Retry(2.0, 0)),
        (2.1, (ONE, TWO), {"switch_after": 2}, SwitchTo([1])),
    ],
)
def test_a_stated_wait_is_obeyed_where_nobody_else_is_free(
    stated: float, targets: tuple[Target, ...], options: Any, wanted: Any
) -> None:
    """Up to its cap, whatever the strategy says."""
    failure = Failure.of(FailureKind.RATE_LIMIT, retry_after=stated)
    assert listed(failure, *targets, **options)[0] == wanted


def test_a_strategy_is_asked_with_the_failures_of_the_target() -> None:
    """A wait may be a number, a time delta or anything below nothing; it sees count and error."""
    seen: list[Any] = []

    def strategy(state: tenacity.RetryCallState) -> float:
        assert state.outcome is not None
        assert (state.args, state.kwargs, state.outcome.attempt_number) == ((), {}, 2)
        assert isinstance(state.retry_object, BaseRetrying)
        seen.append((state.attempt_number, state.outcome.exception()))
        return -1.0

    assert listed(BUSY, ONE, failures=2, wait=strategy)[0] == Retry(0.0, 0)
    assert seen == [(2, DOWN)]
    delta = timedelta(minutes=1)
    assert listed(BUSY, ONE, wait=lambda _: delta)[0] == Retry(60.0, 0)


@pytest.mark.parametrize(
    ("windows", "positions"),
    [
        ([100, 100, None, 200], [2, 3]),
        ([100, 101, 99, 200], [1, 3]),
        ([None, 100, None, 300], [1, 2, 3]),
        ([100, 100, 50, 99], None),
    ],
)
@pytest.mark.parametrize("kind", [FailureKind.CONTEXT_OVERFLOW, FailureKind.PAYLOAD_TOO_LARGE])
def test_too_long_goes_wherever_a_window_is_not_known_to_be_no_larger(
    windows: list[int | None], positions: list[int] | None, kind: FailureKind
) -> None:
    """What nobody knows is asked: an error costs a request, silence costs the call."""
    chain = [Target(f"t{n}", context_window=window) for n, window in enumerate(windows)]
    options = listed(Failure.of(kind), *chain)
    wanted = [Stop("rejected")] if positions is None else [SwitchTo(positions), Stop("exhausted")]
    assert options == wanted


def test_what_is_too_much_for_a_minute_goes_anywhere() -> None:
    """An account's limit of tokens per minute is no window."""
    facts: Any
    for facts in ({"status": 429}, {"status": 413, "code": "rate_limit_exceeded"}):
        small, other = (Target(name, context_window=100) for name in "ab")
        failure = Failure.of(FailureKind.PAYLOAD_TOO_LARGE, **facts)
        assert listed(failure, small, other) == [SwitchTo([1]), Stop("exhausted")]


def test_a_window_that_was_too_small_stays_so_for_the_whole_call() -> None:
    """A model with no larger window is not asked after another model's failure either."""
    chain = [Target(f"t{n}", context_window=window) for n, window in enumerate([8, 32, 8, None])]
    call = failed(BUSY, FallbackConfig(), *chain, at=1)
    long = Failure.of(FailureKind.CONTEXT_OVERFLOW)
    call.past = (call.past[0]._replace(failure=long), *call.past[1:])
    assert options_of(call) == [SwitchTo([3]), Stop("exhausted")]
    # Nobody is left but one that cannot take it: the end, where who was busy is asked again.
    call.remaining = [2]
    assert kinds(options_of(call)) == ["Retry", "Stop"]


def test_an_invalid_request_goes_on_from_a_fallback() -> None:
    """G-22: what the primary would have taken another provider may not, and the next one may."""
    assert listed(BUG, ONE, TWO, THREE, at=1) == [SwitchTo([2]), Stop("exhausted")]
    assert listed(BUG, ONE, TWO, at=1) == [Stop("exhausted")]
    refused = Failure.of(FailureKind.CONTENT_POLICY)
    assert listed(refused, ONE, TWO, THREE, at=1) == [Stop("rejected")]


def test_a_transport_recovers_on_the_primary_only() -> None:
    """HRS-013: by the time a fallback is asked, the call has waited long enough."""
    recovery: dict[str, Any] = {"transport_recovery": TransportRecovery()}
    first = listed(LOST, ONE, TWO, failures=2, **recovery)
    assert kinds(first) == ["Recover", "SwitchTo", "Stop"]
    assert first[0].action.wait == 5.0
    assert kinds(listed(LOST, ONE, TWO, THREE, at=1, **recovery)) == ["SwitchTo", "Stop"]
    alone = listed(LOST, ONE, number=3, **recovery)
    assert kinds(alone) == ["Recover", "Stop"]


def test_options_have_no_effects() -> None:
    """Listing them twice lists the same: nothing is written, waited for or told."""
    call = failed(DENIED, FallbackConfig(wait=1), Target(P, credential=KEY), TWO)
    before = {name: getattr(call, name) for name in CallState.__slots__}
    first = kinds(options_of(call))
    assert first == kinds(options_of(call))
    assert before == {name: getattr(call, name) for name in CallState.__slots__}


def test_who_was_passed_over_or_left_is_asked_last() -> None:
    """A turn that came to the third target asks those before it, too, before a call is lost."""
    policy = FallbackPolicy([ONE, TWO, THREE], FallbackConfig(reset="turn"))
    script = repeating(primary=[DOWN, "back"], fallback=[DOWN], third=["hello", DOWN])
    with policy.turn():
        assert [policy.call(script.ask) for _ in range(3)] == ["hello", "back", "back"]
    assert script.asked == [P, F, G, G, P, P]


def test_nothing_is_kept_for_a_target_that_rests() -> None:
    """A fallback has all the time where only a primary in its cooldown could come after it."""
    config = FallbackConfig(deadline=30.0)
    call = called(ResolvedPolicy((ONE, TWO, THREE), config, "test", None))
    call.cooling = {0: 5.0, 2: 5.0}
    assert call.share_of_time(1, 0.0) == 30.0
    call.note = FORCED
    assert call.share_of_time(1, 0.0) == 10.0


# The same through whole calls.


@pytest.mark.parametrize("driver", DRIVERS)
def test_a_target_that_cannot_be_asked_is_passed_over(driver: str) -> None:
    """HRC-016: a host's own look-up that finds no client goes on, under every preset."""
    for config in (
        FallbackConfig(),
        FallbackConfig.honcho(),
        FallbackConfig.hermes(reset="iteration"),
    ):
        gone = TargetUnavailable("no key for primary")
        policy = FallbackPolicy([Target(P), Target(F)], config)
        run = policy.start()
        script = repeating(primary=[gone], fallback=["hello"])
        assert DRIVERS[driver](policy, script, run) == "hello"
        first = run.record.attempts[0]
        assert (first.kind, first.error) == ("model_unavailable", "TargetUnavailable")


def test_one_identity_is_asked_once_per_call() -> None:
    """HRC-013: a target that failed is not asked again under another name.

    Where all that is left is the same backend, it is asked again after a wait, as one target is.
    """
    same: dict[str, Any] = {"provider": "openai", "identity": "one backend"}
    chain = [Target("m", name=P, **same), Target("m", name=F, **same), Target(G)]
    script = repeating(primary=[DOWN], third=["hello"])
    policy = FallbackPolicy(chain)
    run = policy.start()
    assert policy.call(script.ask, run=run) == "hello"
    assert script.asked == [P, G]
    assert run.record.untried == ((F, "it had failed under another name"),)
    script = repeating(primary=[DOWN, DOWN, "back"])
    assert FallbackPolicy(chain[:2], wait=0).call(script.ask) == "back"
    assert script.asked == [P, P, P]


@pytest.mark.parametrize(
    ("error", "thinking", "cooldown", "asked"),
    [
        (DOWN, "low", None, [P, F]),
        (DOWN, "high", None, [P, G]),
        (StatusError(401), "low", None, [P, G]),
        (DOWN, "low", Cooldown(after=1, base=60), [P, G]),
    ],
)
def test_other_parameters_make_another_target(
    error: Exception, thinking: str, cooldown: Cooldown | None, asked: list[str]
) -> None:
    """The same model with less thinking may answer; a dead key, and a cooldown, it shares."""
    same: dict[str, Any] = {"endpoint": "http://one", "credential": ApiKey("k")}
    chain = [
        Target("m", "openai", name, params={"thinking": {"effort": effort}}, **same)
        for name, effort in ((P, "high"), (F, thinking))
    ]
    script = repeating(primary=[error], fallback=["hello"], third=["hello"])
    policy = FallbackPolicy([*chain, Target(G)], cooldown=cooldown)
    assert policy.call(script.ask) == "hello"
    assert script.asked == asked


def test_a_client_with_retries_of_its_own_is_warned_of() -> None:
    """G-34: three requests to a dead primary before the policy hears of one are said once."""
    with pytest.warns(UserWarning, match=r"primary: its client makes up to 2 retries") as warned:
        policy = FallbackPolicy([Target(P, client=openai.OpenAI(api_key="k"))])
    assert warned[0].filename == __file__
    assert policy.call(lambda _: "hello") == "hello"
    FallbackPolicy([Target(P, client=openai.OpenAI(api_key="k", max_retries=0))])


@pytest.mark.parametrize(
    ("count", "client", "warns"),
    [
        ("2", {"model": "m"}, True),
        ("0", {"model": "m"}, False),
        ("2", openai.OpenAI(api_key="k"), False),
    ],
)
def test_retries_that_were_made_are_warned_of_where_no_client_could_tell(
    count: str, client: Any, warns: bool, recwarn: pytest.WarningsRecorder
) -> None:
    """A host's target may hold its configuration; those of a client are told at the start."""
    error = StatusError(503)
    error.request = SimpleNamespace(headers={"x-stainless-retry-count": count})  # type: ignore[attr-defined] # as an SDK's
    policy = FallbackPolicy([Target(P, client=client), Target(F)])
    recwarn.clear()
    assert policy.call(repeating(primary=[error], fallback=["hello"]).ask) == "hello"
    assert [str(one.message)[:36] for one in recwarn] == [
        "primary: its client made 2 retries o"
    ] * warns


def test_exhaustion_names_each_target_with_its_kind_or_why_it_was_passed_over() -> None:
    """Nobody has to read the record to see who failed with what, and who else there was."""

    def message(fallback: int, **options: Any) -> str:
        script = repeating(primary=[StatusError(429)], fallback=[StatusError(fallback)])
        with pytest.raises(FallbackExhausted) as caught:
            FallbackPolicy([ONE, TWO]).call(script.ask, **options)
        return caught.value.message

    assert message(401) == "no answer from primary (rate_limit), fallback (authentication)"
    assert message(503, unfit={1: "no tools"}, max_attempts=1) == (
        "no answer from primary (rate_limit); fallback was never asked: no tools"
    )


def test_a_policy_takes_part_in_the_turns_of_another() -> None:
    """What was derived from a policy goes on where its turn is; a chain of another length not."""
    first = FallbackPolicy([ONE, TWO], reset="turn")
    derived = FallbackPolicy([ONE, TWO], reset="turn", turns_of=first)
    with first.turn():
        first.call(repeating(primary=[DOWN], fallback=["hello"]).ask)
        assert derived.start().attempt.position == 1
    with pytest.raises(ValueError, match="turns_of: its chain is of another length"):
        FallbackPolicy([ONE], turns_of=first)


def test_a_run_is_not_begun_by_being_shown() -> None:
    """repr and record look at a run without taking its first attempt."""
    run = FallbackPolicy([ONE, TWO], deadline=9).start()
    assert isinstance(run, FallbackRun)
    assert "running" in repr(run)
    assert run.record.outcome == "running"
