"""The policy in a simulation is the policy in production."""

from __future__ import annotations

import logging
import random
import threading
from contextlib import suppress
from itertools import cycle
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from incidents import FALLBACK, PRIMARY, failing, incident

from honcho_fallback import (
    CallRecord,
    Cooldown,
    FailureKind,
    FallbackConfig,
    FallbackConfigError,
    FallbackPolicy,
    RetryBudget,
    Runtime,
    Target,
)
from honcho_fallback.credentials import ApiKey
from honcho_fallback.testing.simulate import (
    Scenario,
    contenders,
    load_scenario,
    shipped,
    simulate,
)
from honcho_fallback.testing.simulate._failures import again

if TYPE_CHECKING:
    from collections.abc import Sequence

# Single calls outside of turns are meant to stand alone here.
pytestmark = pytest.mark.filterwarnings("ignore:.*has no effect outside of a turn:UserWarning")

BOTH_DOWN: dict[str, Any] = {"fallback": (failing(529),)}


def asked(records: Sequence[CallRecord]) -> list[list[str]]:
    """Who was asked in each call, by a letter."""
    return [[one.target[0] for one in record.attempts] for record in records]


@pytest.mark.parametrize("name", shipped())
@pytest.mark.parametrize("policy", [*contenders()])
def test_the_same_seed_gives_the_same_report(name: str, policy: str) -> None:
    """Waits and all; another seed gives another one."""
    scenario = load_scenario(name)
    first, second, other = (
        simulate(scenario, contenders()[policy], calls=150, seed=seed) for seed in (7, 7, 8)
    )
    assert first == second
    assert first.records != other.records


@pytest.mark.parametrize("name", shipped())
@pytest.mark.parametrize("policy", [*contenders()])
def test_nothing_is_lost(name: str, policy: str) -> None:
    """Calls in are answers and errors out; requests are attempts; every record is closed once."""
    report = simulate(load_scenario(name), contenders()[policy], calls=250)
    records = report.records
    assert report.calls == len(records) == len({record.call_id for record in records})
    outcomes = [record.outcome for record in records]
    assert report.answered == outcomes.count("success")
    assert set(outcomes) <= {"success", "exhausted", "rejected", "interrupted"}
    attempts = [attempt for record in records for attempt in record.attempts]
    assert sum(report.requests.values()) == len(attempts)
    assert report.wasted == sum(attempt.kind is not None for attempt in attempts)
    assert sum(window.calls for window in report.windows) == report.calls
    for record in records:
        busy = sum(attempt.seconds + attempt.wait for attempt in record.attempts)
        assert record.seconds >= busy - 1e-6


def test_a_simulation_learns_nothing_for_production_and_nothing_from_it() -> None:
    """The same policy twice gives the same report, and its cooldown has not heard of it."""
    store, budget = Cooldown(), RetryBudget()
    config = FallbackConfig(cooldown=store, retry_budget=budget)
    policy = FallbackPolicy(incident().chain(), config)
    incidents = incident(failing(starts=3))
    first, second = simulate(incidents, policy), simulate(incidents, policy)
    assert first.requests == second.requests == {PRIMARY: 4, FALLBACK: 7}
    assert not store._entries
    assert not budget._seen


def test_a_shared_cooldown_stays_in_memory() -> None:
    """What others know is neither fetched nor told; the rests are the same."""

    class Shared(Cooldown):
        @property
        def shared(self) -> Any:  # type: ignore[override] # the protocol's property
            return self

        def pull(self, *_: Any) -> None:
            raise AssertionError

        push = pull

    scenario = incident(failing(starts=3))
    report = simulate(scenario, FallbackConfig(cooldown=Shared(base=2.2, cap=10)))
    assert (
        report.requests
        == simulate(scenario, FallbackConfig(cooldown=Cooldown(base=2.2, cap=10))).requests
    )
    assert report.requests[PRIMARY] < 10


def test_nothing_outside_happens(caplog: pytest.LogCaptureFixture) -> None:
    """No observer hears, no switch is logged, no credential is refreshed; others still log."""

    class Loud:
        def on_start(self, call: Any) -> None:
            raise AssertionError

        on_switch = on_finish = on_start

    class Refreshing(ApiKey):
        def refresh(self) -> Any:
            raise AssertionError

    logger = logging.getLogger("honcho_fallback")

    def talk(error: BaseException) -> Any:
        thread = threading.Thread(target=logger.warning, args=("from production",))
        thread.start()
        thread.join()
        raise error

    chain = [
        Target("one", provider="p", credential=Refreshing("key")),
        Target("two", provider="f"),
    ]
    config = FallbackConfig(cooldown=Cooldown(), refine=lambda failure, error: talk(error))
    policy = FallbackPolicy(chain, config, observers=[Loud()])
    with caplog.at_level(logging.WARNING):
        report = simulate(incident(failing(401), seconds=1), policy)
    # Asked again after what would have been a refresh, then the fallback.
    assert asked(report.records) == [["p", "p", "f"]]
    assert [line.getMessage() for line in caplog.records] == ["from production"] * 2
    assert not logger.filters


def test_the_module_random_is_left_as_it_was() -> None:
    """Waits are drawn from it, so it is seeded, and put back."""
    state = random.getstate()
    simulate(incident(failing(), **BOTH_DOWN), FallbackConfig())
    assert random.getstate() == state


def test_a_target_that_nobody_described_is_refused() -> None:
    """Before anything is played, with the names there are."""
    policy = FallbackPolicy([Target("other")])
    with pytest.raises(
        FallbackConfigError, match=r"has no 'other'; use its targets.*p/one, f/two"
    ):
        simulate(incident(), policy)
    with pytest.raises(FallbackConfigError, match="got a int; pass a FallbackPolicy"):
        simulate(incident(), 5)  # type: ignore[arg-type] # the point


# Cooldowns, budgets and turns go by the virtual clock.


def test_a_cooldown_probes_once_and_again_after_twice_the_rest() -> None:
    """Down from 3 to 7 s: rests of 1.2 and 2.4 s, a probe at 5 that fails, one at 8 that is up."""
    config = FallbackConfig(cooldown=Cooldown(base=1.2))
    report = simulate(incident(failing(starts=3), {"kind": "up", "starts": 7}), config)
    assert asked(report.records) == [
        *[["p"]] * 3,
        ["p", "f"],
        ["f"],
        ["p", "f"],
        ["f"],
        ["f"],
        ["p"],
        ["p"],
    ]
    noted = [
        (number, one.note)
        for number, record in enumerate(report.records)
        for one in record.attempts
        if one.note
    ]
    assert noted == [(5, "a probe after its cooldown"), (8, "a probe after its cooldown")]
    assert report.requests == {PRIMARY: 7, FALLBACK: 5}


def test_one_probe_at_a_time_in_the_shipped_outage() -> None:
    """In 20 minutes of an outage the primary sees a handful of requests, all of them probes."""
    report = simulate(load_scenario("outage"), FallbackConfig.resilient())
    down = [
        one
        for record in report.records
        if 900 <= record.started_at < 2099
        for one in record.attempts
        if one.position == 0
    ]
    # Rests of 60, 120, 240, 480 and 960 s; the calls under way when it began come on top.
    probes = [one for one in down if one.note == "a probe after its cooldown"]
    assert len(probes) == 4
    assert {one.kind for one in probes} == {FailureKind.OVERLOADED}
    assert len(down) - len(probes) <= 2
    assert report.success_rate == 1.0


@settings(deadline=None, max_examples=8)
@given(
    per_second=st.floats(0.5, 12),
    status=st.sampled_from([429, 500, 503, 529]),
    max_attempts=st.integers(2, 6),
    switch_after=st.integers(1, 3),
)
def test_a_retry_budget_bounds_the_load(
    per_second: float, status: int, max_attempts: int, switch_after: int
) -> None:
    """With every target down, each sees at most 1.1 requests per call; without it, far more."""
    options: Any = {"wait": 0.2, "max_attempts": max_attempts, "switch_after": switch_after}
    scenario = incident(
        failing(status),
        fallback=(failing(status),),
        traffic={"per_second": per_second},
        seconds=40,
    )
    budget = RetryBudget(ratio=0.1, min_per_second=0)
    report = simulate(scenario, FallbackConfig(retry_budget=budget, **options))
    assert report.answered == 0
    assert max(report.requests.values()) <= 1.1 * report.calls
    without = simulate(scenario, FallbackConfig(**options))
    assert sum(without.requests.values()) == max_attempts * without.calls


def test_a_turn_stays_where_it_works() -> None:
    """Turns of three calls in an outage: three requests to the primary each, or one."""
    scenario = incident(failing(), traffic={"iterations": 3, "pause": 0.1})
    each, turn = (
        simulate(scenario, FallbackConfig(reset=reset)) for reset in ("iteration", "turn")
    )
    assert each.calls == turn.calls == 30
    assert (each.requests[PRIMARY], turn.requests[PRIMARY]) == (30, 10)
    assert each.requests[FALLBACK] == turn.requests[FALLBACK] == 30


def test_a_call_that_fails_ends_its_turn() -> None:
    """An agent whose call raised makes no further one."""
    scenario = incident(failing(400), traffic={"iterations": 3})
    report = simulate(scenario, FallbackConfig())
    assert (report.calls, report.answered) == (10, 0)
    assert {record.outcome for record in report.records} == {"rejected"}


# The same decisions as over a real driver.

KINDS = st.sampled_from(
    [
        None,
        FailureKind.RATE_LIMIT,
        FailureKind.SERVER_ERROR,
        FailureKind.CONNECTION,
        FailureKind.AUTHENTICATION,
        FailureKind.INVALID_REQUEST,
        FailureKind.MALFORMED_RESPONSE,
    ]
)
SCRIPTS = st.lists(KINDS, min_size=1, max_size=8)


def config_of(name: str) -> FallbackConfig:
    """Options that wait a fixed time; a cooldown and a budget are made for each run."""
    return {
        "default": lambda: FallbackConfig(wait=0.25),
        "patient": lambda: FallbackConfig(wait=0.25, switch_after=2, max_attempts=5),
        "honcho": lambda: FallbackConfig.honcho(wait=0.25),
        "cooldown": lambda: FallbackConfig(wait=0.25, cooldown=Cooldown(base=1.5)),
        "resilient": lambda: FallbackConfig.resilient(wait=0.25, cooldown=Cooldown(base=2.5)),
        "deadline": lambda: FallbackConfig(wait=0.25, deadline=0.7, max_attempts=6),
    }[name]()


def driven(
    config: FallbackConfig, scripts: Sequence[list[FailureKind | None]], calls: int
) -> list[CallRecord]:
    """Make calls over ``policy.call``, one every ten seconds, each request taking 1/8 s."""
    now = 0.0
    said = {name: cycle(kinds) for name, kinds in zip((PRIMARY, FALLBACK), scripts, strict=True)}

    def take(seconds: float) -> None:
        nonlocal now
        now += seconds

    def ask(attempt: Any) -> str:
        take(0.125)
        kind = next(said[attempt.target.name])
        error = None if kind is None else again(kind, None, None, None)
        if error is not None:
            raise error
        return "answer"

    records: list[CallRecord] = []
    runtime = Runtime(monotonic=lambda: now, sleep=take)
    policy = FallbackPolicy(incident().chain(), config, runtime=runtime)
    for number in range(calls):
        now = max(now, number * 10.0)
        run = policy.start()
        with suppress(Exception):  # how it ended is in the record
            policy.call(ask, run=run)
        records.append(run.record)
    return records


@settings(deadline=None, max_examples=150)
@given(
    name=st.sampled_from(["default", "patient", "honcho", "cooldown", "resilient", "deadline"]),
    primary=SCRIPTS,
    fallback=SCRIPTS,
)
def test_the_same_targets_are_asked_as_by_the_real_driver(
    name: str, primary: list[FailureKind | None], fallback: list[FailureKind | None]
) -> None:
    """The same scripted failures, the same attempts: who, when, after which wait, and the end."""
    said = {
        target: {"kind": "recorded", "seen": [(0.0, 0.125, kind) for kind in kinds]}
        for target, kinds in ((PRIMARY, primary), (FALLBACK, fallback))
    }
    scenario = Scenario.parse(
        {
            "name": "scripted",
            "seconds": 40,
            "traffic": {"kind": "steady", "per_second": 0.1},
            "targets": [
                {"name": target, "latency": 1, "phases": [phase]} for target, phase in said.items()
            ],
        }
    )
    simulated = simulate(scenario, config_of(name)).records
    real = driven(config_of(name), (primary, fallback), len(simulated))
    assert [steps(record) for record in simulated] == [steps(record) for record in real]


def steps(record: CallRecord) -> Any:
    """What decisions a record shows."""
    attempts = [
        (one.target, one.number, round(one.started, 6), one.seconds, one.wait, one.kind, one.note)
        for one in record.attempts
    ]
    return attempts, record.outcome, round(record.seconds, 6), record.why, record.untried
