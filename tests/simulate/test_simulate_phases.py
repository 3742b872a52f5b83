"""What each kind of phase does to a policy, with figures worked out by hand."""

from __future__ import annotations

from math import isclose
from typing import Any, get_args

import pytest

from honcho_fallback import FailureKind, FallbackConfig
from honcho_fallback.simulate import simulate
from honcho_fallback.simulate._scenario import Phase
from tests.simulate.incidents import FALLBACK, PRIMARY, asked, failing, incident, only, took

PLAIN = FallbackConfig(wait=0.25, timeout=20, connect_timeout=3)
STREAM: dict[str, Any] = {"stream": True}
SILENT: dict[str, Any] = {"kind": "silent"}
TOKENS = {"input_tokens": 1_000_000, "output_tokens": 100_000}
PRICE = {"per_call": 0.5, "per_million_input": 2.0, "per_million_output": 10.0}

BAD_DAYS: list[tuple[dict[str, Any], FailureKind | None, int | None, float]] = [
    ({"kind": "up", "latency": 3.0}, None, None, 3.0),
    ({"kind": "slow", "factor": 19}, None, None, 19.0),
    ({"kind": "slow", "factor": 30}, FailureKind.TIMEOUT, None, 20.0),
    (failing(503), FailureKind.OVERLOADED, 503, 0.5),
    (failing(500), FailureKind.SERVER_ERROR, 500, 0.5),
    (failing(401), FailureKind.AUTHENTICATION, 401, 0.5),
    (failing(400, code="context_length_exceeded"), FailureKind.CONTEXT_OVERFLOW, 400, 0.5),
    ({"kind": "recovering", "delay": 0.5}, FailureKind.OVERLOADED, 503, 0.5),
    ({"kind": "quota", "delay": 0.5}, FailureKind.QUOTA, 429, 0.5),
    ({"kind": "dropped", "delay": 0.5}, FailureKind.CONNECTION, None, 0.5),
    (SILENT, FailureKind.TIMEOUT, None, 20.0),
    ({"kind": "unreachable"}, FailureKind.TIMEOUT, None, 3.0),
    ({"kind": "rate_limited", "calls": 0, "window": 9}, FailureKind.RATE_LIMIT, 429, 0.05),
]


@pytest.mark.parametrize(("phase", "kind", "status", "seconds"), BAD_DAYS)
@pytest.mark.parametrize("stream", [False, True])
def test_each_kind_is_seen_as_its_kind(
    phase: dict[str, Any],
    kind: FailureKind | None,
    status: int | None,
    seconds: float,
    stream: bool,
) -> None:
    """The classifier sees what an SDK would raise, when it would raise it, streamed or not."""
    # A stream is bound up to its first content, which takes a quarter of the time.
    config = PLAIN.replace(timeout=5.0) if stream and phase["kind"] == "slow" else PLAIN
    seconds = 5.0 if stream and seconds == 20 and phase["kind"] == "slow" else seconds
    later = {"kind": "up", "starts": 1e9}
    record = only(phase, later, config=config, traffic={"stream": stream})
    first, *others = record.attempts
    assert (first.kind, first.status) == (kind, status)
    assert isclose(first.seconds, seconds)
    assert [one.target for one in others] == ([FALLBACK] if kind and record.answered_by else [])


def test_every_kind_of_phase_is_tested() -> None:
    """None is added without a line in the table above."""
    assert {phase["kind"] for phase, *_ in BAD_DAYS} == {
        *get_args(Phase.model_fields["kind"].annotation)
    }


def test_an_outage_of_three_calls() -> None:
    """Three of ten calls meet the outage: half a second lost, then the fallback's two."""
    report = simulate(incident(failing(starts=3), {"kind": "up", "starts": 6}), PLAIN)
    assert (report.calls, report.answered, report.success_rate) == (10, 10, 1.0)
    assert (report.p50, report.p95) == pytest.approx((1.0, 2.5))
    assert dict(report.requests) == {PRIMARY: 10, FALLBACK: 3}
    assert (report.wasted, report.money, report.lost) == (3, None, None)
    assert asked(report) == ["p"] * 3 + ["pf"] * 3 + ["p"] * 4
    assert [one.seconds for one in report.records] == pytest.approx(
        [1.0] * 3 + [2.5] * 3 + [1.0] * 4
    )


def test_answers_take_as_long_as_was_said() -> None:
    """Half of 2,000 answers below the median, one in a hundred above p99, give or take."""
    phase = {"kind": "up", "latency": {"median": 2.0, "p99": 9.0}}
    report = simulate(incident(phase, seconds=2000), FallbackConfig())
    seconds = sorted(record.seconds for record in report.records)
    assert 1.9 < report.p50 < 2.1
    assert 7.5 < seconds[-20] < 11.0
    other = simulate(incident(phase, seconds=2000), FallbackConfig(), seed=1)
    assert other.p50 != report.p50


def test_a_rate_limit_counts_per_window_and_says_when_it_ends() -> None:
    """Two of five calls pass in each window; Retry-After is what is left of it, rounded up."""
    limit = {"kind": "rate_limited", "calls": 2, "window": 5, "delay": 0.5}
    report = simulate(incident(limit, traffic={"per_second": 0.99}), PLAIN)
    assert asked(report) == ["p", "p", "pf", "pf", "pf", "p", "p", "pf", "pf", "pf"]
    refused = [record.attempts[0].retry_after for record in report.records]
    assert refused == [None, None, 3.0, 2.0, 1.0, None, None, 3.0, 2.0, 1.0]
    silent = simulate(incident({**limit, "says_when": False}), PLAIN)
    assert {one.retry_after for record in silent.records for one in record.attempts} == {None}


def test_a_recovery_refuses_less_and_less() -> None:
    """Of 1,000 requests the first fifth fails at about 90 %, the last at about 10 %."""
    phases = ({"kind": "recovering", "status": 500}, {"kind": "up", "starts": 1000})
    failed = [len(one) - 1 for one in asked(simulate(incident(*phases, seconds=1000), PLAIN))]
    shares = [sum(failed[at : at + 200]) / 200 for at in range(0, 1000, 200)]
    assert shares == sorted(shares, reverse=True)
    assert [round(share, 1) for share in (shares[0], shares[-1])] == [0.9, 0.1]


@pytest.mark.parametrize("kind", ["failing", "quota", "dropped", "silent"])
def test_a_share_fails_and_the_others_are_answered(kind: str) -> None:
    """Half of 1,000 requests, give or take three standard deviations."""
    phase = {"kind": kind, "share": 0.5, **({"status": 500} if kind == "failing" else {})}
    report = simulate(incident(phase, seconds=1000), PLAIN)
    assert 450 < report.wasted < 550
    assert report.requests[FALLBACK] == report.wasted


def test_nobody_hangs_for_ever() -> None:
    """Without a timeout a silent target ends when its phase does, or when the kernel gives up."""
    config = FallbackConfig(timeout=None, connect_timeout=None)
    assert took(only(SILENT, {"kind": "up", "starts": 50}, config=config)) == [50.0, 2.0]
    assert took(only(SILENT, config=config)) == [7200.0, 2.0]
    for patient in (config, FallbackConfig(timeout=None, connect_timeout=300)):
        assert took(only({"kind": "unreachable"}, config=patient)) == [127.0, 2.0]


def test_a_connect_timeout_ends_only_what_cannot_connect() -> None:
    """A slow answer has a connection; a lost packet has none, and the shorter limit ends it."""
    config = FallbackConfig(timeout=10, connect_timeout=0.5)
    assert took(only(config=config)) == [1.0]
    assert took(only({"kind": "unreachable"}, config=config)) == [0.5, 2.0]
    sooner = FallbackConfig(timeout=0.2, connect_timeout=0.5, max_attempts=2)
    assert took(only({"kind": "unreachable"}, config=sooner)) == [0.2, 0.2]


def test_a_deadline_is_kept_with_its_reserve() -> None:
    """Of nine seconds the silent primary gets six; a silent fallback gets what is left."""
    config = FallbackConfig(deadline=9)
    record = only(SILENT, config=config)
    assert (took(record), record.outcome) == ([6.0, 2.0], "success")
    record = only(SILENT, fallback=(SILENT,), config=config)
    assert (took(record), record.outcome) == ([6.0, 3.0], "exhausted")
    assert "deadline" in str(record.why)


def test_a_stream_is_bound_up_to_its_first_content() -> None:
    """A second's timeout lets a stream of 4 s end whose content begins after 0.9 s."""
    slow = {"kind": "slow", "factor": 4}
    target = {"traffic": STREAM, "first": 0.225}
    record = only(slow, config=FallbackConfig(timeout=1.0), **target)
    assert (record.answered_by, took(record)) == (PRIMARY, [4.0])
    assert record.time_to_first_token == pytest.approx(0.9)
    assert took(only(slow, config=FallbackConfig(timeout=0.8), **target)) == [0.8, 2.0]
    tokens = FallbackConfig(first_token_timeout=0.8)
    assert took(only(slow, config=tokens, **target)) == [0.8, 2.0]
    assert took(only(slow, config=tokens)) == [4.0]  # what is not streamed has no first token


def test_idle_timeout_ends_a_stream_that_falls_silent_and_no_other() -> None:
    """After content nobody else is asked; fifteen seconds of content are no silence of two."""
    phase = {**SILENT, "after_content": True}
    record = only(phase, config=FallbackConfig(idle_timeout=2.0), traffic=STREAM)
    assert (record.outcome, took(record)) == ("interrupted", [2.25])
    assert record.time_to_first_token == 0.25
    patient = only(phase, config=FallbackConfig(), traffic=STREAM)
    assert (patient.outcome, took(patient)) == ("interrupted", [7200.25])
    slow = {"kind": "slow", "factor": 20}
    record = only(slow, config=FallbackConfig(idle_timeout=2.0), traffic=STREAM)
    assert (record.outcome, took(record)) == ("success", [20.0])
    late = {"kind": "dropped", "delay": 9.0, "after_content": True}
    record = only(late, config=FallbackConfig(idle_timeout=2.0), traffic=STREAM)
    assert record.attempts[0].kind is FailureKind.CONNECTION


@pytest.mark.parametrize("phase", [failing(), {"kind": "dropped", "delay": 0.5}])
def test_after_content_a_stream_breaks_for_good(phase: dict[str, Any]) -> None:
    """Before content the policy switches; after it the error is the caller's."""
    late = {**phase, "after_content": True}
    record = only(late, config=FallbackConfig(), traffic=STREAM)
    assert (record.outcome, took(record)) == ("interrupted", [0.75])
    assert only(phase, config=FallbackConfig(), traffic=STREAM).outcome == "success"
    assert took(only(late, config=FallbackConfig())) == [0.5, 2.0]  # not streamed: no content


def test_prices() -> None:
    """What was written is paid for, what nobody waited for is lost, a refusal costs nothing."""
    phases = (failing(starts=3), {"kind": "slow", "factor": 40, "starts": 5})
    up = {"kind": "up", "starts": 6}
    report = simulate(incident(*phases, up, traffic=TOKENS, price=PRICE), PLAIN)
    # Ten answers that were heard, one that came too late; 0.5 + 2 + 1 each.
    assert (report.money, report.lost, report.wasted) == (11 * 3.5, 3.5, 3)


def test_what_a_broken_stream_wrote_is_paid_for_and_lost() -> None:
    """Its caller has half an answer, the provider's bill has it too."""
    late = failing(after_content=True)
    scenario = incident(late, seconds=1, traffic=STREAM, price={"per_call": 2.0})
    report = simulate(scenario, FallbackConfig())
    assert (report.answered, report.money, report.lost) == (0, 2.0, 2.0)
