"""The policy in a simulation is the policy in production, and nothing outside hears of it."""

from __future__ import annotations

import logging
import random
import threading
from contextlib import suppress
from functools import partial
from itertools import cycle
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from honcho_fallback import (
    CallRecord,
    Cooldown,
    Failure,
    FailureKind,
    FallbackConfig,
    FallbackConfigError,
    FallbackObserver,
    FallbackPolicy,
    RetryBudget,
    Runtime,
    Target,
    TransportRecovery,
)
from honcho_fallback.simulate import Scenario, load_scenario, retry_then_next, shipped, simulate
from honcho_fallback.simulate._endpoint import RecordedError
from honcho_fallback.simulate._scenario import Reply
from tests.simulate.incidents import FALLBACK, PRIMARY, asked, failing, incident, only, took

if TYPE_CHECKING:
    from collections.abc import Sequence

# Single calls outside of turns are meant to stand alone here.
pytestmark = pytest.mark.filterwarnings("ignore:.*has no effect outside of a turn:UserWarning")

POLICIES: dict[str, Any] = {
    "default": FallbackConfig,
    "resilient": FallbackConfig.resilient,
    "peer": retry_then_next,
}


@pytest.mark.parametrize("name", shipped())
@pytest.mark.parametrize("policy", [*POLICIES])
def test_the_same_seed_gives_the_same_report_and_nothing_is_lost(name: str, policy: str) -> None:
    """Calls in are answers and errors out; requests are attempts; another seed differs."""
    scenario = load_scenario(name)
    report, second, other = (
        simulate(scenario, POLICIES[policy](), calls=150, seed=seed) for seed in (7, 7, 8)
    )
    assert report == second
    assert report.records != other.records
    assert report.calls == len(report.records) == len({one.call_id for one in report.records})
    outcomes = [record.outcome for record in report.records]
    assert report.answered == outcomes.count("success")
    assert set(outcomes) <= {"success", "exhausted", "rejected", "interrupted"}
    attempts = [attempt for record in report.records for attempt in record.attempts]
    assert sum(report.requests.values()) == len(attempts)
    assert report.wasted == sum(attempt.kind is not None for attempt in attempts)
    assert [one.started_at for one in report.records] == sorted(
        one.started_at for one in report.records
    )


# The same decisions as over the driver of threads.

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
CONFIGS: dict[str, Any] = {
    "default": lambda: FallbackConfig(wait=0.25),
    "patient": lambda: FallbackConfig(wait=0.25, switch_after=2, max_attempts=5),
    "honcho": lambda: FallbackConfig.honcho(wait=0.25),
    "cooldown": lambda: FallbackConfig(wait=0.25, cooldown=Cooldown(after=1, base=1.5)),
    "resilient": lambda: FallbackConfig.resilient(wait=0.25, cooldown=Cooldown(after=1, base=2.5)),
    "deadline": lambda: FallbackConfig(wait=0.25, deadline=0.7, max_attempts=6),
}


def driven(
    config: FallbackConfig, scripts: Sequence[Sequence[FailureKind | None]], calls: int
) -> list[CallRecord]:
    """Make calls over ``policy.call``, one every ten seconds, each request taking 1/8 s."""
    now = 0.0
    kinds = {name: cycle(each) for name, each in zip((PRIMARY, FALLBACK), scripts, strict=True)}

    def pass_time(seconds: float) -> None:
        nonlocal now
        now += seconds

    def ask(attempt: Any) -> str:
        pass_time(0.125)
        kind = next(kinds[attempt.target.name])
        if kind is not None:
            raise RecordedError(Failure.of(kind))
        return "answer"

    records: list[CallRecord] = []
    runtime = Runtime(monotonic=lambda: now, sleep=pass_time)
    policy = FallbackPolicy(incident().chain(), config, runtime=runtime)
    for number in range(calls):
        now = max(now, number * 10.0)
        run = policy.start()
        with suppress(Exception):  # how it ended is in the record
            policy.call(ask, run=run)
        records.append(run.record)
    return records


def decisions(record: CallRecord) -> Any:
    """What decisions a record shows."""
    attempts = [
        (one.target, one.number, round(one.started, 6), one.wait, one.kind, one.note)
        for one in record.attempts
    ]
    return attempts, record.outcome, round(record.seconds, 6), record.why, record.untried


@settings(deadline=None, max_examples=100)
@given(name=st.sampled_from([*CONFIGS]), primary=SCRIPTS, fallback=SCRIPTS)
def test_the_same_attempts_as_by_the_driver_of_threads(
    name: str, primary: list[FailureKind | None], fallback: list[FailureKind | None]
) -> None:
    """The same scripted failures, the same attempts: who, when, after which wait, and the end."""

    def reply(kind: FailureKind | None) -> Reply:
        failure = kind and Failure.of(kind)
        return Reply(0.125, partial(RecordedError, failure) if failure else None)

    scenario = Scenario.parse(
        {
            "name": "scripted",
            "seconds": 39,
            "traffic": {"kind": "steady", "per_second": 0.1},
            "targets": [
                {"name": target, "latency": 1, "recorded": [(0.0, reply(kind)) for kind in kinds]}
                for target, kinds in ((PRIMARY, primary), (FALLBACK, fallback))
            ],
        }
    )
    simulated = simulate(scenario, CONFIGS[name]()).records
    threads = driven(CONFIGS[name](), (primary, fallback), len(simulated))
    assert len(simulated) == 4
    assert [decisions(record) for record in simulated] == [decisions(one) for one in threads]


# Cooldowns, budgets and turns go by virtual time.


def test_a_cooldown_probes_once_and_again_after_twice_the_rest() -> None:
    """Down from 3 to 7 s: rests of 1.2 and 2.4 s, a probe at 5 that fails, one at 8 that is up."""
    config = FallbackConfig(cooldown=Cooldown(after=1, base=1.2))
    report = simulate(incident(failing(starts=3), {"kind": "up", "starts": 7}), config)
    assert asked(report) == ["p", "p", "p", "pf", "f", "pf", "f", "f", "p", "p"]
    notes = [
        (number, one.note)
        for number, record in enumerate(report.records)
        for one in record.attempts
        if one.note
    ]
    assert notes == [(5, "a probe after its cooldown"), (8, "a probe after its cooldown")]


def test_calls_that_overlap_share_one_probe() -> None:
    """In the 20 minutes of the shipped outage the primary sees ten probes and little else."""
    report = simulate(load_scenario("outage"), FallbackConfig.resilient())
    down = [
        one
        for record in report.records
        if 900 <= record.started_at < 2099
        for one in record.attempts
        if one.position == 0
    ]
    # Rests of 2 s doubling to 300 s, after the three failures that began them.
    probes = [one for one in down if one.note == "a probe after its cooldown"]
    assert len(probes) == 10
    assert len(down) - len(probes) == 3
    assert report.success_rate == 1.0


@settings(deadline=None, max_examples=8)
@given(per_second=st.floats(0.5, 12), switch_after=st.integers(1, 3))
def test_a_retry_budget_bounds_the_load(per_second: float, switch_after: int) -> None:
    """With every target down, each sees at most 1.1 requests per call; without it, far more."""
    options: Any = {"wait": 0.2, "max_attempts": 5, "switch_after": switch_after}
    traffic = {"per_second": per_second}
    scenario = incident(failing(), fallback=(failing(),), traffic=traffic, seconds=40)
    budget = RetryBudget(ratio=0.1, min_per_second=0)
    report = simulate(scenario, FallbackConfig(retry_budget=budget, **options))
    assert report.answered == 0
    assert max(report.requests.values()) <= 1.1 * report.calls
    without = simulate(scenario, FallbackConfig(**options))
    assert sum(without.requests.values()) == 5 * without.calls


def test_turns() -> None:
    """Of three calls in an outage: three requests to the primary, or one; a failed one is last."""
    scenario = incident(failing(), traffic={"iterations": 3, "pause": 0.1})
    each, turn = (simulate(scenario, FallbackConfig(reset=one)) for one in ("iteration", "turn"))
    assert each.calls == turn.calls == 30
    assert (each.requests[PRIMARY], turn.requests[PRIMARY]) == (30, 10)
    assert each.requests[FALLBACK] == turn.requests[FALLBACK] == 30
    report = simulate(incident(failing(400), traffic={"iterations": 3}), FallbackConfig())
    assert (report.calls, report.answered) == (10, 0)


# Nothing outside happens, and nothing outside is needed.


def test_a_simulation_learns_nothing_for_production_and_nothing_from_it() -> None:
    """The same policy twice gives the same report; its cooldown and budget stay empty."""
    store, budget = Cooldown(after=1, base=60), RetryBudget()
    policy = FallbackPolicy(incident().chain(), cooldown=store, retry_budget=budget)
    first, second = (simulate(incident(failing(starts=3)), policy) for _ in range(2))
    assert first.requests == second.requests == {PRIMARY: 4, FALLBACK: 7}
    assert not store._entries
    assert not budget._seen


def test_a_shared_cooldown_stays_in_this_process() -> None:
    """What others know is neither fetched nor published; the rests are the same."""

    class Shared(Cooldown):
        @property
        def shared(self) -> Any:  # type: ignore[override] # the protocol's property
            return self

        def apull(self, *_: Any) -> None:
            raise AssertionError

        apush = apull

    scenario = incident(failing(starts=3))
    shared, plain = (
        simulate(scenario, FallbackConfig(cooldown=store(base=2.2, cap=10)))
        for store in (Shared, Cooldown)
    )
    assert shared.requests == plain.requests
    assert shared.requests[PRIMARY] < 10


def test_nothing_outside_happens(caplog: pytest.LogCaptureFixture) -> None:
    """No observer hears, no switch is logged, nothing is refreshed or rebuilt; others do log."""

    class Forbidden(FallbackObserver):
        fingerprint, max_retries, with_options = "f", 2, None

        def get(self, *_: Any) -> Any:
            raise AssertionError

        refresh = on_start = on_switch = on_finish = rebuild = get

        def __call__(self, *_: Any) -> Any:
            raise AssertionError

    logger = logging.getLogger("honcho_fallback")

    def log_elsewhere(failure: Failure, _: BaseException) -> Failure:
        thread = threading.Thread(target=logger.warning, args=("from production",))
        thread.start()
        thread.join()
        return failure

    forbidden: Any = Forbidden()
    chain = [
        Target("one", provider="p", credential=forbidden, client=forbidden),
        Target("two", provider="f"),
    ]
    config = FallbackConfig(
        refine=log_elsewhere,
        validate=forbidden,
        transport_recovery=TransportRecovery(rebuild=forbidden),
    )
    with pytest.warns(UserWarning, match="retries of its own"):  # once, and not in simulations
        policy = FallbackPolicy(chain, config, observers=[forbidden])
    phases = (failing(401), {"kind": "dropped", "starts": 0.9})
    with caplog.at_level(logging.WARNING):
        report = simulate(incident(*phases, traffic={"per_second": 1.1}, seconds=1), policy)
    # Asked again after what would have been a rebuild, then the fallback.
    assert asked(report) == ["pf", "ppf"]
    assert {line.getMessage() for line in caplog.records} == {"from production"}
    assert not logger.filters


def test_the_module_random_is_left_as_it_was() -> None:
    """Waits are drawn from it, so it is seeded, and put back."""
    state = random.getstate()
    simulate(incident(failing(), fallback=(failing(),)), FallbackConfig())
    assert random.getstate() == state


async def test_a_loop_may_be_running() -> None:
    """As in a notebook: the report is the same."""
    scenario = incident(failing(starts=3))
    beside = simulate(scenario, FallbackConfig())
    assert asked(beside) == ["p"] * 3 + ["pf"] * 7


def test_what_cannot_be_played_is_refused() -> None:
    """A target that nobody described, and what is no policy."""
    policy = FallbackPolicy([Target("on", provider="p")])
    with pytest.raises(
        FallbackConfigError, match=r"p/on: no such target in .*; did you mean p/one\?.*f/two"
    ):
        simulate(incident(), policy)
    with pytest.raises(FallbackConfigError, match="got a int; pass a FallbackPolicy"):
        simulate(incident(), 5)  # type: ignore[arg-type] # the point


# The model of peers.


@pytest.mark.parametrize(
    ("phase", "requests", "least", "most"),
    [
        (failing(500), 3, 1.125, 1.5),
        (failing(429), 3, 1.125, 1.5),
        (failing(429, code="insufficient_quota"), 3, 1.125, 1.5),
        (failing(429, retry_after=5), 3, 10, 10),
        (failing(429, retry_after=120), 3, 240, 240),
        (failing(429, retry_after=121), 1, 0, 0),
        (failing(401), 1, 0, 0),
        (failing(400, code="context_length_exceeded"), 1, 0, 0),
        ({"kind": "dropped", "delay": 0.5}, 3, 1.125, 1.5),
    ],
)
def test_a_peer_retries_then_asks_the_next(
    phase: dict[str, Any], requests: int, least: float, most: float
) -> None:
    """So many requests to the dead primary, and waits that are spread within bounds."""
    waits: set[float] = set()
    for seed in range(10):
        (record,) = simulate(incident(phase, seconds=1), retry_then_next(), seed=seed).records
        assert [one.target for one in record.attempts] == [PRIMARY] * requests + [FALLBACK]
        waits.add(sum(one.wait for one in record.attempts))
        assert record.outcome == "success"
    assert least <= min(waits) <= max(waits) <= most
    assert len(waits) == (10 if least < most else 1)


def test_a_peers_parameters() -> None:
    """Retries, waits that double up to the longest, and limits; everybody down, both are asked."""
    peer = retry_then_next(retries=4, wait=2, timeout=30)
    record = only(failing(), fallback=(failing(),), config=peer)
    assert [one.target for one in record.attempts] == [PRIMARY] * 5 + [FALLBACK] * 5
    longest = [0, 2, 4, 8, 8] * 2
    for one, most in zip(record.attempts, longest, strict=True):
        assert 0.75 * most <= one.wait <= most
    assert record.outcome == "exhausted"
    silent = {"kind": "silent"}
    assert took(only(silent, config=retry_then_next())) == [600.0] * 3 + [2.0]
    assert took(only(silent, config=peer)) == [30.0] * 5 + [2.0]
    unreachable = only({"kind": "unreachable"}, config=retry_then_next())
    assert took(unreachable) == [5.0] * 3 + [2.0]
    late = only({**silent, "after_content": True}, config=peer, traffic={"stream": True})
    assert took(late) == [30.25]
