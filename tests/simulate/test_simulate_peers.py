"""Models of others: what they ask and when, against figures measured over real sockets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from incidents import FALLBACK, PRIMARY, failing, incident

from honcho_fallback.testing.simulate import (
    Caller,
    LangChainLike,
    Ledger,
    Limits,
    LiteLLMLike,
    Report,
    simulate,
)

if TYPE_CHECKING:
    from collections.abc import Generator

    from honcho_fallback import CallRecord
    from honcho_fallback.testing.simulate import World

NOW: dict[str, Any] = {"delay": 0.0}


def only(peer: Caller, *phases: dict[str, Any], **more: Any) -> CallRecord:
    """The record of a single call."""
    (record,) = simulate(incident(*phases, seconds=1, **more), peer).records
    return record


def failover(record: CallRecord) -> tuple[int, float]:
    """Requests at the dead primary, and seconds from its first failure to the fallback."""
    dead = [one for one in record.attempts if one.target == PRIMARY]
    alive = next(one for one in record.attempts if one.target == FALLBACK)
    return len(dead), alive.started - (dead[0].started + dead[0].seconds)


# Measured: median of five, the packages' defaults, a server on loopback. What is drawn is within
# the jitter's bounds, so the measured median is too, give or take what the packages need.
MEASURED = [
    (LangChainLike(), {"kind": "failing", "status": 500, **NOW}, 3, 1.125, 1.5, 1.41),
    (LangChainLike(), {"kind": "failing", "status": 429, **NOW}, 3, 1.125, 1.5, 1.33),
    (
        LangChainLike(),
        {"kind": "failing", "status": 429, "retry_after": 5, **NOW},
        3,
        10,
        10,
        10.02,
    ),
    (LangChainLike(), {"kind": "failing", "status": 401, **NOW}, 1, 0, 0, 0.003),
    (LangChainLike(), {"kind": "dropped", **NOW}, 3, 1.125, 1.5, 1.34),
    (LiteLLMLike(), {"kind": "failing", "status": 500, **NOW}, 3, 3.5, 5.75, 4.63),
    (LiteLLMLike(), {"kind": "failing", "status": 429, **NOW}, 3, 3.5, 5.75, 4.39),
    (
        LiteLLMLike(),
        {"kind": "failing", "status": 429, "retry_after": 5, **NOW},
        3,
        15,
        17.25,
        16.24,
    ),
    (LiteLLMLike(), {"kind": "dropped", **NOW}, 3, 3.5, 5.75, 4.75),
]


@pytest.mark.parametrize(("peer", "phase", "requests", "least", "most", "measured"), MEASURED)
def test_a_peer_fails_over_as_it_was_measured_to(
    *,
    peer: Caller,
    phase: dict[str, Any],
    requests: int,
    least: float,
    most: float,
    measured: float,
) -> None:
    """So many requests to the dead primary, and the fallback asked after so long."""
    for seed in range(20):
        (record,) = simulate(incident(phase, seconds=1), peer, seed=seed).records
        found, seconds = failover(record)
        assert (found, record.answered_by) == (requests, FALLBACK)
        assert least - 1e-9 <= seconds <= most + 1e-9
    assert least - 0.03 <= measured <= most + 0.03


def test_langchain_gives_up_at_once_where_retry_after_is_long() -> None:
    """More than two minutes is no wait for the SDK; 120 s it waits twice."""
    assert failover(only(LangChainLike(), failing(429, retry_after=121))) == (1, 0.0)
    requests, seconds = failover(only(LangChainLike(), failing(429, retry_after=120)))
    assert (requests, seconds) == (3, 2 * 120 + 2 * 0.5)


def test_litellm_heeds_a_minute_and_sleeps_as_usual_above() -> None:
    """61 s is passed over, 60 s is slept three times."""
    short = failover(only(LiteLLMLike(), failing(429, retry_after=61)))
    assert 3.5 <= short[1] - 1.0 <= 5.75
    long = failover(only(LiteLLMLike(), failing(429, retry_after=60)))
    assert 180 <= long[1] - 1.0 <= 182.25


@pytest.mark.parametrize("peer", [LangChainLike(), LiteLLMLike()])
def test_a_hang_costs_the_sdks_timeout_each_time(peer: Caller) -> None:
    """Ten minutes, three times, before anybody else is asked."""
    record = only(peer, {"kind": "silent"})
    assert [one.seconds for one in record.attempts] == [600.0, 600.0, 600.0, 2.0]
    assert [one.seconds for one in only(peer, {"kind": "unreachable"}).attempts][:3] == [5.0] * 3


@pytest.mark.parametrize("peer", [LangChainLike(), LiteLLMLike()])
def test_with_everybody_down_each_target_sees_three_requests(peer: Caller) -> None:
    """No budget bounds what a call repeats."""
    record = only(peer, failing(), fallback=(failing(),))
    assert [one.target for one in record.attempts] == [PRIMARY] * 3 + [FALLBACK] * 3
    assert (record.outcome, record.answered_by) == ("exhausted", None)


def test_litellm_rests_a_lone_deployment_after_401_only() -> None:
    """For five seconds after a 401 or 404; never after what it asks again."""

    def hits(status: int) -> list[int]:
        report: Report = simulate(incident(failing(status, delay=0.5), seconds=12), LiteLLMLike())
        return [sum(one.target == PRIMARY for one in record.attempts) for record in report.records]

    assert hits(401) == hits(404) == [1, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0]
    assert hits(403) == hits(400) == [1] * 12
    assert hits(500) == hits(429) == [3] * 12


def test_litellm_rests_it_where_a_thousand_requests_of_a_minute_all_failed() -> None:
    """Above that traffic the dead primary is left alone, five seconds at a time."""
    busy = incident(failing(), traffic={"per_second": 100.0}, seconds=50)
    report = simulate(busy, LiteLLMLike())
    quiet = simulate(incident(failing(), traffic={"per_second": 5.0}, seconds=50), LiteLLMLike())
    assert quiet.requests[PRIMARY] == 3 * quiet.calls
    assert report.requests[PRIMARY] < 1.2 * report.calls
    alone = [record for record in report.records if len(record.attempts) == 1]
    assert alone
    assert {record.answered_by for record in alone} == {FALLBACK}


def test_langchain_breaks_off_a_stream_that_falls_silent_after_two_minutes() -> None:
    """After content nobody else is asked."""
    phase = {"kind": "silent", "after_content": True}
    record = only(LangChainLike(), phase, traffic={"stream": True})
    assert (record.outcome, record.seconds, len(record.attempts)) == ("interrupted", 120.25, 1)
    record = only(LiteLLMLike(), phase, traffic={"stream": True})
    assert (record.outcome, record.seconds, len(record.attempts)) == ("interrupted", 600.25, 1)


def test_anybody_may_be_a_caller() -> None:
    """A loop of one's own: every target once, a second of patience, no memory."""

    class Naive:
        def open(self, world: World, /) -> Naive:
            self.world = world
            return self

        def turn(self) -> None:
            pass

        def call(self, call_id: str, turn: None, /) -> Generator[float, None, CallRecord]:
            ledger = Ledger(self.world, "naive", call_id, self.world.scenario.names)
            for position in range(len(ledger.chain)):
                failure = yield from ledger.ask(position, Limits(timeout=2.0))
                if failure is None:
                    break
            return ledger.close()

    report = simulate(incident(failing(starts=5)), Naive())
    assert (report.answered, report.requests) == (10, {PRIMARY: 10, FALLBACK: 5})


def test_a_peers_records_are_records() -> None:
    """They tell and serialize as those of a policy do."""
    record = only(LangChainLike(), failing(429, retry_after=3))
    assert "the fallback f/two answered" in record.explain()
    assert "p/one after a wait of 3.00 s: rate_limit (429" in record.explain()
    assert record.to_dict()["attempts"][1]["retry_after"] == 3.0
    assert [one.provider for one in record.attempts] == ["p", "p", "p", "f"]
    happy = only(LiteLLMLike())
    assert happy.untried == ((FALLBACK, "another target answered first"),)
