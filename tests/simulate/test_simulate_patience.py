"""The policy's limits bound virtual time exactly as its drivers bound real time."""

from __future__ import annotations

from math import inf
from typing import Any

import pytest
from incidents import FALLBACK, PRIMARY, failing, incident

from honcho_fallback import FallbackConfig
from honcho_fallback.testing.simulate import Limits, simulate
from honcho_fallback.testing.simulate._exchange import Reply, seen

SILENT: dict[str, Any] = {"kind": "silent"}
STREAM: dict[str, Any] = {"stream": True}


def only(*phases: dict[str, Any], config: FallbackConfig, **more: Any) -> Any:
    """The record of a single call."""
    (record,) = simulate(incident(*phases, seconds=1, **more), config).records
    return record


def test_a_timeout_ends_an_attempt() -> None:
    """One that is longer than the answer takes changes nothing, one that is shorter ends it."""
    assert only(config=FallbackConfig(timeout=1.0)).answered_by == PRIMARY
    record = only(config=FallbackConfig(timeout=0.9, max_attempts=2))
    assert [(one.target, one.seconds, one.error) for one in record.attempts] == [
        (PRIMARY, 0.9, "TimeoutError"),
        (FALLBACK, 0.9, "TimeoutError"),
    ]


def test_a_connect_timeout_ends_only_what_cannot_connect() -> None:
    """A slow answer has a connection; a lost packet has none."""
    config = FallbackConfig(timeout=10, connect_timeout=0.5)
    assert only(config=config).attempts[0].seconds == 1.0
    assert only({"kind": "unreachable"}, config=config).attempts[0].seconds == 0.5
    sooner = FallbackConfig(timeout=0.2, connect_timeout=0.5)
    assert only({"kind": "unreachable"}, config=sooner).attempts[0].seconds == 0.2


def test_a_deadline_keeps_its_reserve_for_the_fallback() -> None:
    """Of nine seconds the silent primary gets six, and the fallback answers in time."""
    record = only(SILENT, config=FallbackConfig(deadline=9, reserve=3))
    assert [one.seconds for one in record.attempts] == [6.0, 2.0]
    assert (record.outcome, record.seconds) == ("success", 8.0)


def test_a_deadline_is_never_passed() -> None:
    """Where the fallback is silent too, it gets what is left and no more."""
    record = only(SILENT, fallback=(SILENT,), config=FallbackConfig(deadline=9, reserve=3))
    assert [one.seconds for one in record.attempts] == [6.0, 3.0]
    assert (record.outcome, record.seconds) == ("exhausted", 9.0)
    assert "deadline" in record.why


def test_a_stream_is_bound_up_to_its_first_content() -> None:
    """A quarter of an answer's time passes before: a second's timeout lets a stream of 4 s end."""
    slow = {"kind": "slow", "factor": 4}
    record = only(slow, config=FallbackConfig(timeout=1.0), traffic=STREAM)
    assert (record.answered_by, record.seconds, record.time_to_first_token) == (PRIMARY, 4.0, 1.0)
    record = only(slow, config=FallbackConfig(timeout=0.9), traffic=STREAM)
    assert [one.seconds for one in record.attempts] == [0.9, 2.0]


def test_first_token_timeout_is_for_streams_only() -> None:
    """What is not streamed has no first token."""
    config = FallbackConfig(first_token_timeout=0.7)
    slow = {"kind": "slow", "factor": 4}
    assert only(slow, config=config).seconds == 4.0
    record = only(slow, config=config, traffic=STREAM)
    assert [one.seconds for one in record.attempts] == [0.7, 2.0]
    assert record.time_to_first_token == 0.7 + 0.5


def test_idle_timeout_ends_a_stream_that_falls_silent() -> None:
    """After content nobody else is asked: the call is interrupted, a quarter second and two on."""
    phase = {**SILENT, "after_content": True}
    record = only(phase, config=FallbackConfig(idle_timeout=2.0), traffic=STREAM)
    assert (record.outcome, record.seconds) == ("interrupted", 2.25)
    assert record.time_to_first_token == 0.25
    patient = only(phase, config=FallbackConfig(), traffic=STREAM)
    assert (patient.outcome, patient.seconds) == ("interrupted", 7200.25)


def test_a_stream_that_keeps_talking_is_never_idle() -> None:
    """Fifteen seconds of content are no silence of two."""
    slow = {"kind": "slow", "factor": 20}
    record = only(slow, config=FallbackConfig(idle_timeout=2.0), traffic=STREAM)
    assert (record.outcome, record.seconds) == ("success", 20.0)


def test_no_time_left_is_not_for_ever() -> None:
    """A limit of nothing ends a request at once; no limit is None."""
    never = Reply(inf)
    assert seen("a", never, Limits(timeout=0.0)).seconds == 0.0
    assert seen("a", never, Limits(timeout=-1.0)).seconds == 0.0
    assert seen("a", Reply(9.0), Limits()).seconds == 9.0


@pytest.mark.parametrize("phase", [failing(), {"kind": "dropped", "delay": 0.5}])
def test_after_content_a_stream_breaks_for_good(phase: dict[str, Any]) -> None:
    """Before content the policy switches; after it the error is the caller's."""
    late = {**phase, "after_content": True}
    record = only(late, config=FallbackConfig(), traffic=STREAM)
    assert (record.outcome, record.seconds) == ("interrupted", 0.75)
    assert only(phase, config=FallbackConfig(), traffic=STREAM).outcome == "success"
    assert only(late, config=FallbackConfig()).outcome == "success"


def test_what_a_broken_stream_wrote_is_paid_for_and_lost() -> None:
    """Its caller has half an answer, the provider's bill has it too."""
    late = failing(after_content=True)
    scenario = incident(late, seconds=1, traffic=STREAM, price={"per_call": 2.0})
    report = simulate(scenario, FallbackConfig())
    assert (report.answered, report.money, report.wasted_money) == (0, 2.0, 2.0)
