"""The policy in a simulation is the policy in production, and nothing outside hears of it."""

from __future__ import annotations

import json
import logging
import random
import threading
from collections import Counter
from dataclasses import replace
from operator import attrgetter
from ssl import SSLCertVerificationError
from typing import TYPE_CHECKING, Any, get_args

import pytest

from honcho_fallback import (
    AttemptRecord,
    CallRecord,
    Cooldown,
    Failure,
    FailureKind,
    FallbackConfig,
    FallbackConfigError,
    FallbackExhausted,
    FallbackObserver,
    FallbackPolicy,
    RetryBudget,
    Target,
    TransportRecovery,
)
from honcho_fallback.simulate import (
    load_scenario,
    replay,
    retry_then_next,
    shipped,
    simulate,
)
from honcho_fallback.simulate._scenario import Phase
from honcho_fallback.testing import Clock, recorded
from tests.simulate.incidents import FALLBACK, PRIMARY, asked, failing, incident, only, took

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


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
    assert facts(report.records) == facts(second.records) != facts(other.records)
    assert report.calls == len(report.records) == len({one.call_id for one in report.records})
    outcomes = [record.outcome for record in report.records]
    assert report.answered == outcomes.count("success")
    assert set(outcomes) <= {"success", "exhausted", "rejected", "interrupted"}
    assert sum(report.requests.values()) == sum(len(one.attempts) for one in report.records)
    times = [one.started_at for one in report.records]
    assert times == sorted(times)


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


async def test_a_simulation_learns_nothing_for_production_and_nothing_from_it() -> None:
    """Twice the same report, beside a running loop as well; cooldown and budget stay empty."""
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
    """No observer hears, no switch is logged, nothing is refreshed or rebuilt; others do log.

    The module random, which waits are drawn from, is seeded and put back.
    """

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
    state = random.getstate()
    with caplog.at_level(logging.WARNING):
        report = simulate(incident(*phases, traffic={"per_second": 1.1}, seconds=1), policy)
    assert random.getstate() == state
    # Asked again after what would have been a rebuild, then the fallback.
    assert asked(report) == ["pf", "ppf"]
    assert {line.getMessage() for line in caplog.records} == {"from production"}
    assert not logger.filters


def test_a_target_that_nobody_described_is_refused() -> None:
    """The message names those that are there."""
    policy = FallbackPolicy([Target("on", provider="p")])
    with pytest.raises(
        FallbackConfigError, match=r"p/on: no such target in .*; did you mean p/one\?.*f/two"
    ):
        simulate(incident(), policy)


# The model of peers.


@pytest.mark.parametrize(
    ("phase", "waits"),
    [
        (failing(500), [0, 0.5, 1]),
        (failing(429, code="insufficient_quota"), [0, 0.5, 1]),
        (failing(429, retry_after=120), [0, 120, 120]),
        (failing(429, retry_after=121), [0]),
        (failing(401), [0]),
        (failing(400, code="context_length_exceeded"), [0]),
        ({"kind": "dropped", "delay": 0.5}, [0, 0.5, 1]),
    ],
)
def test_a_peer_retries_then_asks_the_next(phase: dict[str, Any], waits: list[float]) -> None:
    """So many requests to the dead primary, after such waits or up to a quarter less."""
    record = only(phase, config=retry_then_next())
    *to_primary, last = record.attempts
    assert [one.target for one in to_primary] == [PRIMARY] * len(waits)
    for one, wait in zip(to_primary, waits, strict=True):
        assert one.wait == wait if wait > 1 else 0.75 * wait <= one.wait <= wait
    assert (last.target, last.wait, record.outcome) == (FALLBACK, 0, "success")


def test_a_peers_parameters() -> None:
    """Retries, waits that double up to the longest, and limits; everybody down, both are asked."""
    peer = retry_then_next(retries=6, timeout=30)
    record = only(failing(), fallback=(failing(),), config=peer)
    for one, most in zip(record.attempts, [0, 0.5, 1, 2, 4, 8, 8] * 2, strict=True):
        assert 0.75 * most <= one.wait <= most
    assert record.outcome == "exhausted"
    silent = {"kind": "silent"}
    assert took(only(silent, config=retry_then_next())) == [600.0] * 3 + [2.0]
    assert took(only(silent, config=peer)) == [30.0] * 7 + [2.0]
    late = only({**silent, "after_content": True}, config=peer, traffic={"stream": True})
    assert took(late) == [30.25]


FIXED = FallbackConfig(wait=0.25)
PLAIN = FIXED.replace(timeout=20)
TOKENS = {"input_tokens": 1_000_000, "output_tokens": 100_000}
PRICE = {"per_million_input": 2.0, "per_million_output": 10.0}

SILENT: dict[str, Any] = {"kind": "silent"}
SLOW: dict[str, Any] = {"kind": "slow", "factor": 4}
DROPPED: dict[str, Any] = {"kind": "dropped", "delay": 0.5}
LATE = {"after_content": True}
NEVER, IDLE = {"timeout": None}, {"idle_timeout": 2.0}
STALLED, CUT = "timeout 20 > ok 2", "content at 0.25, interrupted"

# A phase, options, and what comes of them as an answer in whole; then as a stream, or when that
# has its first content where nothing else differs.
PHASES: list[tuple[dict[str, Any], dict[str, Any], str, str | float]] = [
    ({"kind": "up"}, {}, "ok 1", 0.25),
    (SLOW | {"factor": 19}, {}, "ok 19", 4.75),
    # A stream is bound up to its first content, which begins after a quarter of its time.
    (SLOW | {"factor": 30}, {}, STALLED, "ok 30, content at 7.5"),
    (SLOW, {"timeout": 1.1, "max_attempts": 1}, "timeout 1.1, exhausted", "ok 4, content at 1"),
    (SLOW, {"first_token_timeout": 0.8}, "ok 4", "timeout 0.8 > ok 2, content at 1.3"),
    # Without a timeout a silent target ends when its phase does, or when the kernel gives up.
    (SILENT, {}, STALLED, 20.5),
    (SILENT | {"until": 50}, NEVER, "connection 50 > ok 2", 50.5),
    (SILENT, NEVER, "connection 7200 > ok 2", 7200.5),
    # After content nobody else is asked; fifteen seconds of content are no silence of two.
    (SILENT | LATE, IDLE, STALLED, f"timeout 2.25, {CUT}"),
    (SILENT | LATE, {}, STALLED, f"connection 7200.25, {CUT}"),
    (SLOW | {"factor": 20}, IDLE | NEVER, "ok 20", 5.0),
    (DROPPED | LATE | {"delay": 9.0}, IDLE, "connection 9 > ok 2", f"connection 9.25, {CUT}"),
    (DROPPED | LATE, {}, "connection 0.5 > ok 2", f"connection 0.75, {CUT}"),
    (failing(**LATE), {}, "overloaded 503 0.5 > ok 2", f"overloaded 503 0.75, {CUT}"),
    # Before content the policy switches.
    (DROPPED, {}, "connection 0.5 > ok 2", 1.0),
    (failing(503), {}, "overloaded 503 0.5 > ok 2", 1.0),
    (failing(500), {}, "server_error 500 0.5 > ok 2", 1.0),
    (failing(401), {}, "authentication 401 0.5 > ok 2", 1.0),
    (failing(400, code="context_length_exceeded"), {}, "context_overflow 400 0.5 > ok 2", 1.0),
    (failing(429, code="insufficient_quota"), {}, "quota 429 0.5 > ok 2", 1.0),
    ({"kind": "recovering", "delay": 0.5}, {}, "overloaded 503 0.5 > ok 2", 1.0),
    ({"kind": "rate_limited", "calls": 0, "window": 9}, {}, "rate_limit 429 0.05 > ok 2", 0.55),
]


def story(record: CallRecord) -> str:
    """What each attempt met and how long it took, the first content, an end that was none."""
    attempts = (
        " ".join(str(one) for one in (each.kind or "ok", each.status, f"{each.seconds:g}") if one)
        for each in record.attempts
    )
    first, told = record.time_to_first_token, [" > ".join(attempts)]
    told += [] if first is None else [f"content at {first:g}"]
    told += [] if record.outcome == "success" else [record.outcome]
    return ", ".join(told)


@pytest.mark.parametrize(("phase", "options", "whole", "streamed"), PHASES)
def test_what_a_phase_does_to_a_call(
    phase: dict[str, Any], options: dict[str, Any], whole: str, streamed: str | float
) -> None:
    """The classifier sees what an SDK would raise, when it would; each limit ends its own."""
    assert {row[0]["kind"] for row in PHASES} == {*get_args(Phase.model_fields["kind"].annotation)}
    if isinstance(streamed, float):
        streamed = f"{whole}, content at {streamed:g}"
    phase = {"until": 1e9, **phase}
    later = {"kind": "up", "starts": phase.pop("until")}
    for stream, wanted in ((False, whole), (True, streamed)):
        traffic = {"stream": stream}
        record = only(phase, later, config=PLAIN.replace(**options), traffic=traffic)
        assert story(record) == wanted


def test_answers_take_as_long_as_was_said() -> None:
    """Half of 2,000 answers below the median, one in a hundred above p99, give or take."""
    scenario = incident(seconds=2000, latency={"median": 2.0, "p99": 9.0})
    report = simulate(scenario, FallbackConfig())
    seconds = sorted(record.seconds for record in report.records)
    assert 1.9 < report.p50 < 2.1
    assert 7.5 < seconds[-20] < 11.0


def test_a_rate_limit_counts_per_window_and_says_when_it_ends() -> None:
    """Two of five calls pass in each window; Retry-After is what is left of it, rounded up."""
    limit = {"kind": "rate_limited", "calls": 2, "window": 5, "delay": 0.5}
    report = simulate(incident(limit, traffic={"per_second": 0.99}), PLAIN)
    assert asked(report) == ["p", "p", "pf", "pf", "pf", "p", "p", "pf", "pf", "pf"]
    refused = [record.attempts[0].retry_after for record in report.records]
    assert refused == [None, None, 3.0, 2.0, 1.0, None, None, 3.0, 2.0, 1.0]


def test_a_recovery_refuses_less_and_less() -> None:
    """Of 1,000 requests the first fifth fails at about 90 %, the last at about 10 %."""
    phases = ({"kind": "recovering", "status": 500}, {"kind": "up", "starts": 1000})
    failed = [len(one) - 1 for one in asked(simulate(incident(*phases, seconds=1000), PLAIN))]
    shares = [sum(failed[at : at + 200]) / 200 for at in range(0, 1000, 200)]
    assert shares == sorted(shares, reverse=True)
    assert [round(share, 1) for share in (shares[0], shares[-1])] == [0.9, 0.1]


@pytest.mark.parametrize("kind", ["failing", "dropped", "silent"])
def test_a_share_fails_and_the_others_are_answered(kind: str) -> None:
    """Half of 1,000 requests, give or take three standard deviations."""
    report = simulate(incident({"kind": kind, "share": 0.5, "status": 500}, seconds=1000), PLAIN)
    assert 450 < report.wasted < 550
    assert report.requests[FALLBACK] == report.wasted


def test_prices() -> None:
    """What was written is paid for, what nobody waited for is lost, a refusal costs nothing."""
    phases = (failing(starts=3), {"kind": "slow", "factor": 40, "starts": 5})
    up = {"kind": "up", "starts": 6}
    report = simulate(incident(*phases, up, traffic=TOKENS, price=PRICE), PLAIN)
    # Ten answers that were heard, one that came too late; 2 + 1 each.
    assert (report.money, report.lost, report.wasted) == (11 * 3, 3, 3)
    # Who reads a stream that breaks has half an answer; the provider's bill has it, too.
    broken = incident(
        failing(after_content=True), seconds=1, traffic=TOKENS | {"stream": True}, price=PRICE
    )
    report = simulate(broken, FallbackConfig())
    assert (report.answered, report.money, report.lost) == (0, 3, 3)


MET = attrgetter("target", "wait", "kind", "status", "code", "error")


def facts(records: Sequence[CallRecord], start: float = 0.0) -> list[Any]:
    """What happened in each call, down to a hundredth of a millisecond."""
    return [
        (
            round(record.started_at - start, 5),
            record.outcome,
            round(record.seconds, 5),
            [(round(one.started, 5), MET(one)) for one in record.attempts],
        )
        for record in records
    ]


@pytest.mark.parametrize("name", shipped())
def test_the_same_policy_fares_as_it_did(name: str) -> None:
    """Each request meets what it met on record: the same answers, errors, times and end."""
    scenario = load_scenario(name)
    one_call = scenario.traffic.model_copy(update={"iterations": 1, "pause": 0.0})
    scenario = scenario.model_copy(update={"traffic": one_call})
    before = simulate(scenario, FIXED, calls=400).records
    incident = replay(before)
    after = simulate(incident, FIXED).records
    assert facts(after, incident.started_at) == facts(before, incident.started_at)


def test_what_does_not_pass_does_not_pass_on_record_either() -> None:
    """Another failure of its kind passes; this one no wait helped against, and none would have."""

    def ask(_: object) -> None:
        raise SSLCertVerificationError(1, "certificate verify failed")

    with Clock().installed() as clock, recorded() as records:
        policy = FallbackPolicy([Target(PRIMARY), Target(FALLBACK)])
        for _ in range(5):
            with policy.turn(), pytest.raises(FallbackExhausted):
                policy.call(ask)
            clock.advance(5)
        saved = [*records]
    again = simulate(replay(saved), FallbackConfig())
    requests = Counter(one.target for call in saved for one in call.attempts)
    assert again.requests == requests
    assert again.calls == 5


def attempt(target: str = PRIMARY, **more: Any) -> AttemptRecord:
    values = {"number": 1, "position": 0, "started": 0.0, "seconds": 0.5, "wait": 0.0, **more}
    return AttemptRecord(target, target, None, **values)


def record(second: float, *attempts: AttemptRecord) -> CallRecord:
    """A call so many seconds after an odd moment."""
    of_a_run = FallbackPolicy([Target(PRIMARY), Target(FALLBACK)]).start().record
    return replace(
        of_a_run, attempts=attempts, outcome="success", started_at=1763725000.25 + second
    )


def test_what_is_nearest_in_time_is_met() -> None:
    """The earlier one at the middle; those of the same moment take turns."""
    overloaded = attempt(kind=FailureKind.OVERLOADED, status=503)
    others = (record(at, attempt(FALLBACK)) for at in (4, 5, 6))
    report = simulate(replay([record(0, attempt()), record(10, overloaded), *others]), FIXED)
    assert asked(report) == ["p", "p", "p", "pf", "pf"]
    refused = attempt(kind=FailureKind.RATE_LIMIT, status=429, retry_after=7.0)
    report = simulate(replay([record(0, attempt()), record(0, refused)] * 2), FIXED)
    assert asked(report) == ["p", "pf", "p", "pf"]
    assert report.records[1].attempts[0].retry_after == 7.0


def test_who_hung_up_does_not_know_what_would_have_come() -> None:
    """After a timeout on record nothing comes, however long one waits."""
    hung = attempt(kind=FailureKind.TIMEOUT, error="TimeoutError", seconds=30.0)
    answer = attempt(FALLBACK, started=30.0)
    scenario = replay([record(0, hung, answer)])
    for timeout in (100, 10):
        report = simulate(scenario, FallbackConfig(timeout=timeout))
        assert took(report.records[0]) == [timeout, 0.5]
    for known in (replace(hung, status=504), replace(hung, error="ConnectTimeout")):
        report = simulate(replay([record(0, known, answer)]), FIXED)
        assert took(report.records[0]) == [30.0, 0.5]


def test_what_records_do_not_say_is_assumed() -> None:
    """A target that nobody asked answers in the median time; what is ours is no bad day of it."""
    scenario = replay([record(at, attempt(seconds=took)) for at, took in enumerate((0.2, 0.4, 3))])
    down = FallbackConfig(timeout=0.1, max_attempts=2)
    assert took(simulate(scenario, down).records[0]) == [0.1, 0.1]
    assert simulate(scenario, FIXED).requests == {PRIMARY: 3, FALLBACK: 0}
    ours = [attempt(kind=kind) for kind in (FailureKind.CANCELLED, FailureKind.LOCAL)]
    report = simulate(replay([record(0, attempt()), *(record(5, one) for one in ours)]), FIXED)
    assert (report.calls, report.answered, report.wasted) == (3, 3, 0)


def test_streams_come_back_as_streams() -> None:
    """First content and what broke after it; what failed before has brought none."""
    late = {"kind": "dropped", "delay": 0.5, "after_content": True, "starts": 5}
    phases = (failing(starts=2), {"kind": "up", "starts": 3}, late)
    before = simulate(incident(*phases, traffic={"stream": True}), FIXED)
    after = simulate(replay(before.records), FIXED)
    assert facts(after.records) == facts(before.records)
    times = [one.time_to_first_token for one in after.records]
    assert times == pytest.approx([0.25, 0.25, 1.0, *[0.25] * 7])
    assert asked(after)[2] == "pf"
    assert [one.outcome for one in after.records].count("interrupted") == 5


@pytest.mark.parametrize("kind", sorted(set(FailureKind) - {"cancelled", "local"}))
@pytest.mark.parametrize("status", [None, 404, 429])
def test_a_kind_on_record_is_the_kind_that_is_met(kind: FailureKind, status: int | None) -> None:
    """With its own status, code and Retry-After, even where those alone would say otherwise."""
    failed = attempt(kind=kind, status=status, code="whatever", retry_after=5.0)
    config = FallbackConfig(fallback_on=set(FailureKind) - {FailureKind.CANCELLED}, timeout=1.0)
    first = simulate(replay([record(0, failed)]), config).records[0].attempts[0]
    assert first.kind is kind
    if kind is not FailureKind.TIMEOUT or status is not None:
        assert (first.status, first.code, first.retry_after) == (status, "whatever", 5.0)


def test_files(tmp_path: Path) -> None:
    """JSON lines, as ``to_dict`` gives them; a mistake is named with its line."""
    records = simulate(incident(failing(starts=5)), FIXED).records
    path = tmp_path / "tuesday.jsonl"
    path.write_text("\n\n".join(json.dumps(one.to_dict()) for one in records))
    assert simulate(replay(path), FIXED) == simulate(replay(records), FIXED)
    for broken in ('{"half', "[1]", "{}"):
        path.write_text(f"\n{broken}")
        with pytest.raises(FallbackConfigError, match=r"jsonl: line 2: .*; pass a file with json"):
            replay(path)
    with pytest.raises(FallbackConfigError, match="records: there are none; pass at least one"):
        replay([])
