"""What each kind of phase does, with figures worked out by hand."""

from __future__ import annotations

from typing import Any

import pytest
from incidents import FALLBACK, PRIMARY, failing, incident

from honcho_fallback import FailureKind, FallbackConfig
from honcho_fallback.testing.simulate import Report, simulate

PLAIN = FallbackConfig(wait=0.25, timeout=20, connect_timeout=3)


def kinds(report: Report) -> list[tuple[str, FailureKind | None, int | None]]:
    """What became of each request, call by call."""
    return [
        (attempt.target, attempt.kind, attempt.status)
        for record in report.records
        for attempt in record.attempts
    ]


def test_an_outage_of_three_calls() -> None:
    """Three of ten calls meet the outage: half a second lost, then the fallback's two."""
    report = simulate(incident(failing(starts=3), {"kind": "up", "starts": 6}), PLAIN)
    assert (report.calls, report.answered, report.success_rate) == (10, 10, 1.0)
    assert (report.p50, report.p95, report.p99) == (1.0, 2.5, 2.5)
    assert dict(report.requests) == {PRIMARY: 10, FALLBACK: 3}
    assert report.wasted == 3
    assert [record.seconds for record in report.records] == [1.0] * 3 + [2.5] * 3 + [1.0] * 4
    assert (report.money, report.wasted_money) == (None, None)


@pytest.mark.parametrize(
    ("phase", "kind", "status", "seconds"),
    [
        (failing(503), FailureKind.OVERLOADED, 503, 0.5),
        (failing(500), FailureKind.SERVER_ERROR, 500, 0.5),
        (failing(401), FailureKind.AUTHENTICATION, 401, 0.5),
        ({"kind": "quota", "delay": 0.5}, FailureKind.QUOTA, 429, 0.5),
        ({"kind": "dropped", "delay": 0.5}, FailureKind.CONNECTION, None, 0.5),
        ({"kind": "silent"}, FailureKind.TIMEOUT, None, 20.0),
        ({"kind": "unreachable"}, FailureKind.TIMEOUT, None, 3.0),
        ({"kind": "slow", "factor": 30}, FailureKind.TIMEOUT, None, 20.0),
        ({"kind": "rate_limited", "calls": 0, "window": 60}, FailureKind.RATE_LIMIT, 429, 0.05),
    ],
)
def test_each_bad_day_is_read_from_its_facts(
    phase: dict[str, Any], kind: FailureKind, status: int | None, seconds: float
) -> None:
    """The classifier sees what an SDK would raise, when it would raise it."""
    report = simulate(incident(phase, seconds=1), PLAIN)
    assert kinds(report) == [(PRIMARY, kind, status), (FALLBACK, None, None)]
    assert report.records[0].attempts[0].seconds == seconds
    assert report.records[0].seconds == seconds + 2.0


def test_slow_is_slow_and_no_failure() -> None:
    """Within the timeout a slow answer is an answer."""
    report = simulate(incident({"kind": "slow", "factor": 19}, seconds=1), PLAIN)
    assert (report.wasted, report.p50) == (0, 19.0)


def test_answers_take_as_long_as_was_said() -> None:
    """Half of 2,000 answers below the median, one in a hundred above p99, give or take."""
    phase = {"kind": "up", "latency": {"median": 2.0, "p99": 9.0}}
    report = simulate(incident(phase, seconds=2000), PLAIN)
    assert 1.9 < report.p50 < 2.1
    assert 7.5 < report.p99 < 11.0
    assert len({record.seconds for record in report.records}) > 1900


def test_a_phase_may_have_a_latency_of_its_own() -> None:
    """``up`` with another latency replaces the target's."""
    phase = {"kind": "up", "starts": 1, "latency": 0.5}
    report = simulate(incident(phase, seconds=2), PLAIN)
    assert [record.seconds for record in report.records] == [1.0, 0.5]


def test_a_rate_limit_counts_per_window_and_says_when_it_ends() -> None:
    """Two of five calls pass in each window; Retry-After is what is left of it, rounded up."""
    limit = {"kind": "rate_limited", "calls": 2, "window": 5, "delay": 0.5}
    report = simulate(incident(limit), PLAIN)
    passed = [number for number, one in enumerate(report.records) if len(one.attempts) == 1]
    assert passed == [0, 1, 5, 6]
    asked = [one.attempts[0].retry_after for one in report.records if len(one.attempts) == 2]
    assert asked == [3.0, 2.0, 1.0, 3.0, 2.0, 1.0]
    silent = simulate(incident({**limit, "says_when": False}), PLAIN)
    assert {one.retry_after for record in silent.records for one in record.attempts} == {None}


def test_a_recovery_refuses_less_and_less() -> None:
    """Of 1,000 requests the first fifth fails at about 90 %, the last at about 10 %."""
    phases = ({"kind": "recovering", "status": 500}, {"kind": "up", "starts": 1000})
    report = simulate(incident(*phases, seconds=1000), PLAIN)
    failed = [len(record.attempts) - 1 for record in report.records]
    shares = [sum(failed[at : at + 200]) / 200 for at in range(0, 1000, 200)]
    assert shares == sorted(shares, reverse=True)
    assert [round(share, 1) for share in (shares[0], shares[-1])] == [0.9, 0.1]


@pytest.mark.parametrize("kind", ["failing", "dropped", "silent"])
def test_a_share_fails_and_the_others_are_answered(kind: str) -> None:
    """Half of 1,000 requests, give or take three standard deviations."""
    phase = {"kind": kind, "share": 0.5, **({"status": 500} if kind == "failing" else {})}
    report = simulate(incident(phase, seconds=1000), PLAIN)
    assert 450 < report.wasted < 550
    assert report.requests[FALLBACK] == report.wasted


def test_nobody_hangs_for_ever() -> None:
    """Without a timeout a silent target ends when its phase does, or when the kernel gives up."""
    config = FallbackConfig(timeout=None, connect_timeout=None)
    until = simulate(incident({"kind": "silent"}, {"kind": "up", "starts": 50}, seconds=1), config)
    assert [one.seconds for one in until.records[0].attempts] == [50.0, 2.0]
    ever = simulate(incident({"kind": "silent"}, seconds=1), config)
    assert [one.seconds for one in ever.records[0].attempts] == [7200.0, 2.0]
    lost = simulate(incident({"kind": "unreachable"}, seconds=1), config)
    assert [one.seconds for one in lost.records[0].attempts] == [127.0, 2.0]


def test_prices() -> None:
    """What was written is paid for, what nobody waited for is lost, a refusal costs nothing."""
    tokens = {"input_tokens": 1_000_000, "output_tokens": 100_000}
    price = {"per_call": 0.5, "per_million_input": 2.0, "per_million_output": 10.0}
    phases = (
        failing(starts=3),
        {"kind": "slow", "factor": 40, "starts": 5},
        {"kind": "up", "starts": 6},
    )
    report = simulate(incident(*phases, traffic=tokens, price=price), PLAIN)
    # Ten answers that were heard, one that came too late; 0.5 + 2 + 1 each.
    assert report.money == 11 * 3.5
    assert report.wasted_money == 3.5
    assert report.wasted == 3
