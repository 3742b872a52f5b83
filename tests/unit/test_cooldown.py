"""Cooldown: who is left alone, for how long, and who may look whether it is back."""

from __future__ import annotations

import asyncio
import copy
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext, suppress
from typing import TYPE_CHECKING, Any

import pytest

from honcho_fallback import (
    Cooldown,
    FailureKind,
    FallbackConfig,
    FallbackConfigError,
    FallbackExhausted,
    FallbackPolicy,
    FallbackRun,
    Restore,
    StreamInterrupted,
    Target,
)
from honcho_fallback.stores import CooldownReport
from honcho_fallback.testing import StatusError
from tests.helpers.observers import Listener
from tests.helpers.scripted import DRIVERS, repeating

if TYPE_CHECKING:
    from honcho_fallback import Attempt
    from honcho_fallback.testing import Clock

DOWN, DENIED = StatusError(503), StatusError(401)
CHAIN = [Target("primary"), Target("fallback")]


def pair(cooldown: Cooldown | None = None, **options: Any) -> FallbackPolicy:
    config = FallbackConfig(wait=0, cooldown=cooldown or Cooldown(after=1, base=60), **options)
    return FallbackPolicy(CHAIN, config)


def blips(policy: FallbackPolicy, *errors: Exception) -> None:
    """Let the primary fail in calls of their own, one after the other."""
    for error in errors:
        assert policy.call(repeating(primary=[error], fallback=["hello"]).ask) == "hello"


def state_of_primary(policy: FallbackPolicy) -> str:
    """Name the primary's state by whom the next two calls ask; they end without news."""
    runs = [policy.start(), policy.start()]
    states = {(0, 0): "up", (0, 1): "due", (1, 1): "resting"}
    state = states[runs[0].attempt.position, runs[1].attempt.position]
    for run in runs:
        run.cancel()
    return state


def test_a_target_that_cools_down_is_told(clock: Clock) -> None:
    """Who was passed over, and for how much longer; what a probe is, and that it alone is one.

    G-43, PraisonAI#3820: on_restore says that the primary is back, once.
    """
    listener, options = Listener(), FallbackConfig(wait=0, switch_after=2)
    cooldown = Cooldown(after=1, base=60)
    policy = FallbackPolicy(CHAIN, options, cooldown=cooldown, agent="x", observers=[listener])
    blips(policy, DOWN)
    clock.now += 18
    run = policy.start()
    policy.call(repeating(fallback=["hello"]).ask, run=run)
    assert run.record.untried == (("primary", "it was cooling down for another 42 s"),)
    assert run.record.cooling == {"primary": 42.0}
    assert "never asked, it was cooling down for another 42 s" in run.record.explain()
    clock.now += 42
    run = policy.start()
    assert policy.call(repeating(primary=[DOWN, "back"]).ask, run=run) == "back"
    attempts = [(one.is_probe, one.note) for one in run.record.attempts]
    assert attempts == [(True, "a probe after its cooldown"), (False, None)]
    assert run.record.cooling is None
    assert "primary (a probe after its cooldown): overloaded" in run.record.explain()
    policy.call(repeating(primary=["hello"]).ask)
    assert listener.restores == [Restore("x", CHAIN[0], "cooldown", run.record.call_id)]


def test_exactly_one_call_probes_and_the_others_stay(clock: Clock) -> None:
    """Half-open: while one call looks, everybody else goes on; the choice is atomic.

    A run that is never driven keeps nobody away from a primary that is back.
    """
    policy = pair()
    blips(policy, DOWN)
    clock.now += 60
    idle = policy.start()
    barrier = threading.Barrier(32)

    def start(_: int) -> FallbackRun:
        barrier.wait()
        run = policy.start()
        assert run.attempt.position in {0, 1}
        return run

    with ThreadPoolExecutor(32) as pool:
        runs = [*pool.map(start, range(32)), idle]
    probe, *others = sorted(runs, key=lambda run: run.attempt.position)
    assert [run.attempt.position for run in (probe, *others)] == [0] + [1] * 32
    assert probe is not idle
    assert others[0].record.untried[0][1] == "another call was probing it"
    assert others[0].record.cooling == {"primary": 0.0}
    probe.succeed()
    assert policy.start().attempt.position == 0


@pytest.mark.parametrize("driver", DRIVERS)
def test_each_probe_that_fails_doubles_the_rest_up_to_the_cap(clock: Clock, driver: str) -> None:
    """HRC-041: base * 2^n, at most the cap. G-03, litellm#40405: the primary gets one request."""
    policy = pair(Cooldown(after=1, base=10, cap=35))
    script = repeating(primary=[DOWN], fallback=["hello"])
    DRIVERS[driver](policy, script, policy.start())
    for rest in (10, 20, 35, 35):
        clock.now += rest - 0.5
        for _ in range(3):
            assert DRIVERS[driver](policy, script, policy.start()) == "hello"
        clock.now += 0.5
        assert DRIVERS[driver](policy, script, policy.start()) == "hello"
    assert script.asked.count("primary") == 5


@pytest.mark.parametrize(
    ("step", "what"),
    [
        ("cancel", "cancelled"),
        ("cancel", "abandoned"),
        ("fail", asyncio.CancelledError()),
        ("fail", KeyError("bug")),
    ],
)
def test_a_probe_that_learned_nothing_gives_its_permit_back(
    clock: Clock, step: str, what: Any
) -> None:
    """AN-021: a cancelled probe closes nothing and blocks nobody."""
    policy = pair()
    blips(policy, DOWN)
    clock.now += 60
    probe = policy.start()
    assert [probe.attempt.position, policy.start().attempt.position] == [0, 1]
    with pytest.raises(type(what)) if step == "fail" else nullcontext():
        getattr(probe, step)(what)
    assert state_of_primary(policy) == "due"


BUGS, ITS_OWN = (400, 413, 422), (401, 402, 403, 404, 408, 429, 500, 503, 529)


@pytest.mark.parametrize("status", [*BUGS, *ITS_OWN])
@pytest.mark.parametrize("has_content", [False, True])
def test_a_target_rests_for_what_says_something_of_it(
    clock: Clock, status: int, *, has_content: bool
) -> None:
    """HRC-043: every failure of its own arms it; a caller's bug takes it away from nobody."""
    policy = pair()
    run = policy.start()
    if has_content:
        run.commit()
    with suppress(StatusError, StreamInterrupted):
        run.fail(StatusError(status))
    assert policy.start().attempt.position == (status in ITS_OWN)


def test_failures_of_calls_under_way_count_as_one(clock: Clock) -> None:
    """A hundred calls that fail together are one failure: the first rest is the base."""
    policy = pair()
    runs = [policy.start() for _ in range(100)]
    assert {run.attempt.position for run in runs} == {0}
    for run in runs:
        run.fail(DOWN)
    clock.now += 59.9
    assert state_of_primary(policy) == "resting"
    clock.now += 0.1
    assert state_of_primary(policy) == "due"


def test_a_target_that_is_asked_again_at_once_is_not_cooled(clock: Clock) -> None:
    """With switch_after the second request decides; only a target that is left cools down."""
    policy, script = pair(switch_after=2), repeating(primary=[DOWN, "hello"], fallback=["no"])
    assert policy.call(script.ask) == "hello"
    assert policy.start().attempt.position == 0


# Errors of the primary, each in a call of its own, seconds that pass, and how the primary is then.
BLIP, LIMIT, SLOW = StatusError(429), StatusError(429, retry_after=7), TimeoutError()
OWN = {"after": {"timeout": 2, "rate_limit": 1}}
EXPIRING = {"after": 1, "base": 10, "cap": 100, "stated_cap": 100}


@pytest.mark.parametrize(
    ("cooldown", "course"),
    [
        # A blip costs its own call a switch and nobody else anything; the third is an outage.
        ({}, [DOWN, BLIP, "up"]),
        ({}, [DOWN, BLIP, DOWN, "resting"]),
        # A stated wait, a dead key and an empty quota; a timeout cost its caller enough.
        ({}, [LIMIT, "resting"]),
        ({}, [DENIED, "resting"]),
        ({}, [StatusError(402), "resting"]),
        ({}, [SLOW, "resting"]),
        # As in switch_after, each kind may have its own; one that is not named keeps the default.
        (OWN, [SLOW, "up"]),
        (OWN, [SLOW, SLOW, "resting"]),
        (OWN, [BLIP, "resting"]),
        ({"after": {FailureKind.TIMEOUT: 2}}, [DOWN, DOWN, "up"]),
        ({"after": {FailureKind.TIMEOUT: 2}}, [DOWN, DOWN, StatusError(500), "resting"]),
        # HRC-041, HRC-045: Retry-After says when, up to the cap; a probe that fails with one does
        # not double it.
        ({}, [LIMIT, 6.9, "resting", 0.1, "due", LIMIT, 6.9, "resting", 0.1, "due"]),
        ({"stated_cap": 9}, [StatusError(429, retry_after=3000), 8.9, "resting", 0.1, "due"]),
        # A probe that is refused as a request was answered: the target is back.
        ({"after": 1, "base": 60}, [DOWN, 60, "due", StatusError(400), "up"]),
        # HRC-022: what nobody came back for is forgotten, with its count of failures.
        (EXPIRING, [DOWN, 10, "due", DOWN, 1000, "up"]),
    ],
)
def test_a_rest_has_its_course(clock: Clock, cooldown: Any, course: list[Any]) -> None:
    """It begins after three failures in a row, at once for what is no blip; and it ends."""
    policy = pair(Cooldown(**cooldown))
    for event in course:
        if isinstance(event, str):
            assert state_of_primary(policy) == event
        elif isinstance(event, Exception):
            run = policy.start()
            assert run.attempt.position == 0
            with suppress(StatusError):
                run.fail(event)
                run.succeed()
        else:
            clock.now += event


def test_a_blip_of_resilient_is_one_switch(clock: Clock) -> None:
    """Of 500 calls with a single 503 one is the fallback's."""
    policy = FallbackPolicy(CHAIN, FallbackConfig.resilient())
    script = repeating(primary=["hello"] * 9 + [DOWN] + ["hello"] * 490, fallback=["hello"])
    for _ in range(500):
        with policy.turn():
            policy.call(script.ask)
    assert script.asked.count("fallback") == 1


def test_an_answer_begins_the_count_anew(clock: Clock) -> None:
    """In a row means in a row, also for the answer of a call that began before the failures."""
    policy, earlier = pair(Cooldown()), repeating(primary=["hello"])
    for _ in range(3):
        under_way = policy.start()
        assert under_way.attempt.position == 0
        blips(policy, DOWN, DOWN)
        policy.call(earlier.ask, run=under_way)
    assert state_of_primary(policy) == "up"


@pytest.mark.parametrize("minutes", [1.1, 2, 4, 8, 16, 32, 64, 130])
def test_the_primary_is_back_within_five_minutes_of_any_outage(
    clock: Clock, minutes: float
) -> None:
    """What doubles ends at five minutes, so no outage is followed by another of our own."""
    policy, end = pair(Cooldown()), clock.now + 60 * minutes

    def ask(attempt: Attempt) -> int:
        if attempt.position == 0 and clock.now < end:
            raise DOWN
        return attempt.position

    while policy.call(ask) or clock.now < end:
        clock.now += 1
    assert clock.now - end <= 300


def test_what_does_not_pass_by_itself_rests_up_to_the_longer_cap(clock: Clock) -> None:
    """A dead key is asked about ever less, an overload at least every five minutes."""
    for error, longest in ((StatusError(401), 14400.0), (TimeoutError(), 300.0)):
        policy = pair(Cooldown())
        for _ in range(16):
            blips(policy, error)
            clock.now += longest
        blips(policy, error)
        run = policy.start()
        assert run.attempt.position == 1
        assert run.record.cooling == {"primary": longest}


# A memory orders, it never forbids.


@pytest.mark.parametrize("stated", [30, 90, None])
@pytest.mark.parametrize("names", ["ab", "abc"])
def test_after_a_blip_of_all_nobody_is_lost(clock: Clock, names: str, stated: Any) -> None:
    """The primary is down for good, the others blipped once: ten calls, ten answers."""
    policy = FallbackPolicy([Target(one) for one in names], FallbackConfig.resilient(wait=0))
    down = {"a": [StatusError(429, retry_after=stated)]}
    with pytest.raises(FallbackExhausted), policy.turn():
        policy.call(repeating(**({one: [DOWN] for one in names} | down)).ask)
    script = repeating(**({one: ["hello"] for one in names} | down))
    for _ in range(10):
        with policy.turn():
            assert policy.call(script.ask) == "hello"


def test_when_all_rest_all_are_asked_who_is_due_first_before_the_others(clock: Clock) -> None:
    """HRC-022 and its kin left services without any target; what is written says how it was."""
    chain = [Target("late"), Target("soon"), Target("middle")]
    policy = FallbackPolicy(chain, FallbackConfig(wait=0, cooldown=Cooldown()))
    due = {"late": 50, "soon": 20, "middle": 30}
    limits = {name: [StatusError(429, retry_after=rest)] for name, rest in due.items()}
    with pytest.raises(FallbackExhausted):
        policy.call(repeating(**limits).ask)
    script = repeating(**(limits | {"late": ["hello"]}))
    run = policy.start()
    assert policy.call(script.ask, run=run) == "hello"
    assert script.asked == ["soon", "middle", "late"]
    notes = {one.note for one in run.record.attempts}
    assert notes == {"in its cooldown, as nobody else was left"}
    assert run.record.cooling is None
    assert not any(one.is_probe for one in run.record.attempts)


@pytest.mark.parametrize(
    ("fallback", "primary", "then"),
    [
        (DOWN, "hello", []),  # one that is back answers the call in which the fallback is down
        (DOWN, DOWN, ["fallback"]),
        (DOWN, DENIED, ["fallback"]),
        (DENIED, DOWN, ["primary"]),
        (DENIED, DENIED, []),
    ],
)
def test_who_blips_beside_a_resting_primary_is_asked_again(
    clock: Clock, fallback: Exception, primary: Any, then: list[str]
) -> None:
    """Whom the memory adds takes no request from those asked without it; a dead key is no blip."""
    policy = pair(Cooldown(after=1, base=60))
    blips(policy, DOWN)
    script = repeating(primary=[primary, "hello"], fallback=[fallback, "hello"])
    run = policy.start()
    is_lost = not then and primary != "hello"
    with pytest.raises(FallbackExhausted) if is_lost else nullcontext():
        policy.call(script.ask, run=run)
    assert script.asked == ["fallback", "primary", *then]
    assert run.record.attempts[1].note == "in its cooldown, as nobody else was left"
    assert is_lost or (state_of_primary(policy) == "up") is (script.asked[-1] == "primary")


def test_an_answer_in_a_rest_ends_it_and_a_failure_begins_it_anew(clock: Clock) -> None:
    """The target that failed last is due last; no failure in a rest doubles it."""
    chain = [Target("one"), Target("two")]
    cooldown = Cooldown(after=1, base=60)
    policy = FallbackPolicy(chain, FallbackConfig(max_attempts=2, cooldown=cooldown))
    with pytest.raises(FallbackExhausted):
        policy.call(repeating(one=[DOWN], two=[DOWN]).ask)
    clock.now += 30
    asked = repeating(one=[DOWN], two=["hello"])
    policy.call(asked.ask)
    assert asked.asked == ["one", "two"]
    run = policy.start()
    assert run.attempt.target.name == "two"
    assert run.record.cooling == {"one": 60.0}


def test_policies_share_what_they_are_given_and_nothing_else(clock: Clock) -> None:
    """The memory is the Cooldown object's; a copy of it starts empty."""
    shared = Cooldown(after=1, base=60)
    one, two, other = pair(shared), pair(shared), pair(copy.deepcopy(shared))
    one.call(repeating(primary=[DOWN], fallback=["hello"]).ask)
    assert [policy.start().attempt.position for policy in (one, two, other)] == [1, 1, 0]


def test_a_turn_that_starts_beside_a_cooling_primary_stays_there(clock: Clock) -> None:
    """Within a turn the target does not change back in the middle; the next turn probes."""
    policy = pair(reset="turn")
    with policy.turn():
        blips(policy, DOWN)
    with policy.turn():
        assert policy.start().attempt.position == 1
        clock.now += 60
        assert policy.start().attempt.position == 1
    with policy.turn():
        assert policy.start().attempt.position == 0


@pytest.mark.parametrize("bad", [0, -1, float("nan"), float("inf"), "60", True])
def test_bad_arguments_are_refused(bad: Any) -> None:
    """A rest of nothing, or for ever, is a mistake; a number of failures is a whole number."""
    with pytest.raises(FallbackConfigError, match=r"base: got .*; pass seconds"):
        Cooldown(after=1, base=bad)
    with pytest.raises(FallbackConfigError, match="cooldown"):
        FallbackConfig(cooldown=bad)
    others: list[Any] = [bad, 1.5, {"timeout": bad}, {"timeuot": 2}, [3]]
    for after in others:
        with pytest.raises(FallbackConfigError, match=r"after: got .*; pass a whole number, 1"):
            Cooldown(after)
    assert Cooldown({}).after == {}


def test_the_record_names_everybody_whom_a_cooldown_kept_from_being_asked(clock: Clock) -> None:
    """Those passed over before the first attempt, and those passed over at a switch."""
    chain = [Target(name) for name in ("one", "two", "three", "four")]
    cooldown = Cooldown(after=1, base=60)
    for target in (chain[0], chain[2]):
        alone = FallbackPolicy([target], max_attempts=1, cooldown=cooldown)
        with pytest.raises(StatusError):
            alone.call(repeating(**{target.name: [DOWN]}).ask)
    clock.now += 10
    policy = FallbackPolicy(chain, cooldown=cooldown)
    run = policy.start()
    assert policy.call(repeating(two=[DOWN], four=["hello"]).ask, run=run) == "hello"
    assert run.record.cooling == {"one": 50.0, "three": 50.0}


def test_a_policy_per_request_does_not_fill_the_memory(
    clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    """Targets without endpoint are new each time: they are forgotten, and one line says so."""
    cooldown = Cooldown(after=1, base=60)
    for _ in range(1000):
        policy = FallbackPolicy([Target("a"), Target("b")], cooldown=cooldown)
        assert policy.call(repeating(a=[DOWN], b=["hello"]).ask) == "hello"
        clock.advance(1)
    assert len(cooldown._entries) < 200
    (warning,) = [one for one in caplog.messages if "make the policy once" in one]
    assert "identity=" in warning


def test_a_known_target_is_remembered_beside_many_others(clock: Clock) -> None:
    """What is swept are targets that nobody can come back to; a rest that is over still counts."""
    cooldown = Cooldown(after=1, base=60)
    known = Target("known", identity="known-one")
    policy = FallbackPolicy([known, Target("b")], cooldown=cooldown)
    policy.call(repeating(known=[DOWN], b=["hello"]).ask)
    clock.advance(61)
    for number in range(200):
        cooldown.update_and_select([CooldownReport(f"here:{number}", "down")], (), clock.now)
    assert policy.start().attempt.is_fallback is False
    probe = policy.start()
    assert probe.attempt.is_fallback  # the first look took the probe


# Whoever owns the loop: perform and aperform are a first look, too.


@pytest.mark.parametrize("verb", ["perform", "aperform"])
def test_performing_first_is_a_first_look(clock: Clock, verb: str) -> None:
    """It hands out no primary that is cooling down, and takes the probe that is due."""
    policy = pair()
    blips(policy, DOWN)

    def first_look() -> Any:
        run = policy.start()
        attempt = policy.perform(run) if verb == "perform" else asyncio.run(policy.aperform(run))
        assert attempt is run.attempt
        return run

    run = first_look()
    assert run.attempt.target.name == "fallback"
    run.succeed()
    clock.now += 60
    probe, beside = first_look(), first_look()
    assert [one.attempt.target.name for one in (probe, beside)] == ["primary", "fallback"]
    probe.succeed()
    assert policy.perform(probe).target.name == "primary"  # the last one, after the end


@pytest.mark.parametrize(
    ("options", "lease"),
    [
        ({"timeout": 180.0}, 180),
        ({"timeout": 180.0, "deadline": 90.0}, 90),
        ({"timeout": None, "deadline": 90.0}, 90),
        ({"timeout": None}, 60),
    ],
)
def test_a_probe_keeps_others_away_for_as_long_as_it_may_take(
    clock: Clock, options: Any, lease: float
) -> None:
    """Its lease is the attempt's time, base where nothing bounds it; then another may look.

    resilience4j#903: a permit has an owner and expires, nothing stays half-open for ever.
    """
    policy = pair(**options)
    blips(policy, DOWN)
    clock.now += 60
    lost = policy.start()
    assert lost.attempt.position == 0
    clock.now += lease - 1
    assert policy.start().attempt.position == 1
    clock.now += 1
    assert policy.start().attempt.position == 0
    lost.cancel()  # too late: the permit is another call's now
    assert policy.start().attempt.position == 1
