"""Every call of a test leaves its record, and assertions on it tell the whole call."""

from __future__ import annotations

import asyncio
import gc
from threading import Thread
from typing import TYPE_CHECKING, Any

import pytest

from honcho_fallback import FailureKind, FallbackObserver, FallbackPolicy, Target
from honcho_fallback.testing import (
    Records,
    StatusError,
    assert_not_switched,
    assert_switched,
    recorded,
)

if TYPE_CHECKING:
    from honcho_fallback import Attempt, CallRecord
    from honcho_fallback.testing import Scripted


def ask(attempt: Attempt) -> str:
    if attempt.target.name == "primary":
        raise StatusError(429)
    return "hello"


# Made before any test, as services do.
POLICY = FallbackPolicy([Target("primary"), Target("backup")], agent="service")


def test_records_of_policies_made_elsewhere_are_collected(fallback_records: Records) -> None:
    """Neither the policy nor its maker knows of the test."""
    assert list(fallback_records) == []
    POLICY.call(ask)
    assert_switched(fallback_records.one, from_="primary", to="backup", kind="rate_limit")
    POLICY.call(ask, agent="other")
    assert [record.agent for record in fallback_records] == ["service", "other"]
    assert [*fallback_records[:1]] == [fallback_records[0]]


def test_every_ending_is_collected_once(fallback_records: Records, scripted: Scripted) -> None:
    """Answered, exhausted, rejected, cancelled, abandoned, interrupted: one record each."""
    bad = scripted.status(400)
    script = scripted(
        only=["a", scripted.status(401), bad, asyncio.CancelledError, ["b", "c"], ["d", OSError]]
    )
    policy = FallbackPolicy(script.targets, agent="each")
    policy.call(script.ask)
    for error in (StatusError, StatusError, asyncio.CancelledError):
        with pytest.raises(error):
            policy.call(script.ask)
    next(policy.stream(script.stream))
    gc.collect()
    with pytest.raises(Exception, match="broke off"):
        list(policy.stream(script.stream))
    assert [record.outcome for record in fallback_records] == [
        "success",
        "exhausted",
        "rejected",
        "cancelled",
        "abandoned",
        "interrupted",
    ]


def test_threads_and_loops_are_seen(fallback_records: Records) -> None:
    """A call counts wherever it is made."""
    thread = Thread(target=POLICY.call, args=(ask,))
    thread.start()
    thread.join()

    async def aask(attempt: Attempt) -> str:
        return ask(attempt)

    asyncio.run(POLICY.acall(aask))
    assert len(fallback_records) == 2


def test_observers_are_told_as_ever(fallback_records: Records) -> None:
    """Records come to those who were asked to be told, too."""
    heard: list[CallRecord] = []

    class Listener(FallbackObserver):
        def on_start(self, call: Any) -> None: ...
        def on_switch(self, switch: Any) -> None: ...
        def on_finish(self, record: CallRecord) -> None:
            heard.append(record)

    FallbackPolicy([Target("backup")], observers=[Listener()]).call(ask)
    assert heard == [*fallback_records]


def test_blocks_nest_and_end() -> None:
    """Each block collects its own time; after it, nothing is collected."""
    with recorded() as outer:
        POLICY.call(ask)
        with recorded() as inner:
            POLICY.call(ask)
    POLICY.call(ask)
    assert (len(outer), len(inner)) == (2, 1)


def test_not_one_record_shows_those_there_are(fallback_records: Records) -> None:
    """Who expects one call and sees two learns which."""
    with pytest.raises(AssertionError, match="there are 0 records, not one"):
        _ = fallback_records.one
    POLICY.call(ask)
    POLICY.call(ask)
    with pytest.raises(
        AssertionError, match=r"2 records, not one\nCall .* agent service: the fall"
    ):
        _ = fallback_records.one
    assert repr(fallback_records).count("rate_limit") == 2


@pytest.fixture
def record(fallback_records: Records) -> CallRecord:
    """Of a call that went from the primary over the second to the third."""
    policy = FallbackPolicy([Target(name) for name in ("primary", "second", "third")])

    def serve(attempt: Attempt) -> str:
        if attempt.target.name == "third":
            return "hello"
        raise StatusError({"primary": 429, "second": 503}[attempt.target.name])

    policy.call(serve)
    return fallback_records.one


@pytest.mark.parametrize(
    "expected",
    [
        {},
        {"from_": "primary"},
        {"to": "third"},
        {"kind": FailureKind.RATE_LIMIT},
        {"from_": "second", "to": Target("third"), "kind": "overloaded"},
        {"from_": Target("primary"), "to": "second", "kind": "rate_limit"},
    ],
)
def test_switches_that_were_made(record: CallRecord, expected: dict[str, Any]) -> None:
    """What is left out may be anything; the rest has to be true of one and the same switch."""
    assert_switched(record, **expected)


@pytest.mark.parametrize(
    ("expected", "wanted"),
    [
        ({"from_": "third"}, "from third to any target"),
        ({"to": Target("primary")}, "from any target to primary"),
        ({"from_": "primary", "to": "third"}, "from primary to third"),
        ({"from_": "primary", "kind": "overloaded"}, "from primary to any target for overloaded"),
        ({"kind": FailureKind.TIMEOUT}, "from any target to any target for timeout"),
    ],
)
def test_switches_that_were_not_made(
    record: CallRecord, expected: dict[str, Any], wanted: str
) -> None:
    """The message says what was wanted, what was done, and the whole call."""
    with pytest.raises(AssertionError) as caught:
        assert_switched(record, **expected)
    assert str(caught.value) == (
        f"expected a switch {wanted}, but it switched from primary to second for rate_limit, "
        f"then from second to third for overloaded\n{record.explain()}"
    )


def test_a_retry_is_no_switch(scripted: Scripted, fallback_records: Records) -> None:
    """Asking the same target again is not going to another."""
    script = scripted(only=[scripted.status(503), "hello"])
    FallbackPolicy(script.targets).call(script.ask)
    assert_not_switched(fallback_records.one)
    with pytest.raises(AssertionError, match="to any target, but there was no switch\nCall "):
        assert_switched(fallback_records.one)


def test_the_switches_of_a_call_that_should_have_made_none(record: CallRecord) -> None:
    """They are told with the call."""
    with pytest.raises(AssertionError, match="expected no switch, but it switched from primary"):
        assert_not_switched(record)
