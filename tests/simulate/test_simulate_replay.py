"""Saved records as a scenario: what would this policy have done?"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from honcho_fallback import (
    AttemptRecord,
    CallRecord,
    Cooldown,
    FailureKind,
    FallbackConfig,
    FallbackConfigError,
)
from honcho_fallback.simulate import load_scenario, replay, retry_then_next, shipped, simulate
from tests.simulate.incidents import FALLBACK, PRIMARY, asked, failing, incident, took

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

FIXED = FallbackConfig(wait=0.25)


def facts(records: Sequence[CallRecord], start: float = 0.0) -> list[Any]:
    """What happened in each call, down to a hundredth of a millisecond."""
    return [
        (
            round(record.started_at - start, 5),
            record.outcome,
            round(record.seconds, 5),
            [
                (one.target, round(one.started, 5), one.wait, one.kind, one.status, one.code)
                for one in record.attempts
            ],
        )
        for record in records
    ]


@pytest.mark.parametrize("name", shipped())
def test_the_same_policy_fares_as_it_did(name: str) -> None:
    """Each request meets what it met on record: the same answers, failures, times and end."""
    scenario = load_scenario(name)
    one_call = scenario.traffic.model_copy(update={"iterations": 1, "pause": 0.0})
    scenario = scenario.model_copy(update={"traffic": one_call})
    before = simulate(scenario, FIXED, calls=400).records
    incident = replay(before)
    after = simulate(incident, FIXED).records
    assert facts(after, incident.started_at) == facts(before, incident.started_at)


def test_another_policy_fares_otherwise() -> None:
    """On the morning's records a cooldown would have spared most of what was wasted."""
    scenario = incident(failing(starts=3), {"kind": "up", "starts": 7})
    tuesday = replay(simulate(scenario, FIXED).records, name="tuesday")
    as_it_was = simulate(tuesday, FIXED)
    with_cooldown = simulate(tuesday, FallbackConfig(cooldown=Cooldown(after=1, base=1.2)))
    peer = simulate(tuesday, retry_then_next())
    assert (tuesday.name, as_it_was.wasted, with_cooldown.wasted) == ("tuesday", 4, 2)
    assert peer.wasted > 4
    assert as_it_was.calls == with_cooldown.calls == peer.calls == 10


def attempt(target: str = PRIMARY, **more: Any) -> AttemptRecord:
    values = {"number": 1, "position": 0, "started": 0.0, "seconds": 0.5, "wait": 0.0, **more}
    return AttemptRecord(target, target, None, **values)


def record(second: float, *attempts: AttemptRecord, **more: Any) -> CallRecord:
    """A call so many seconds after an odd moment."""
    call = CallRecord(
        call_id="1",
        agent="not read",
        chain=(PRIMARY, FALLBACK),
        attempts=attempts,
        outcome="success",
        answered_by=None,
        is_fallback=False,
        started_at=1763725000.25 + second,
        seconds=0.0,
        usage=None,
        time_to_first_token=None,
        untried=(),
    )
    return replace(call, **more)


def test_what_is_nearest_in_time_is_met() -> None:
    """Between two observations the nearer one decides, the earlier one at the middle."""
    overloaded = attempt(kind=FailureKind.OVERLOADED, status=503)
    others = (record(at, attempt(FALLBACK)) for at in (4, 5, 6))
    report = simulate(replay([record(0, attempt()), record(10, overloaded), *others]), FIXED)
    assert asked(report) == ["p", "p", "p", "pf", "pf"]


def test_requests_of_the_same_moment_take_turns() -> None:
    """A burst of which half was refused is a burst of which half is refused."""
    refused = attempt(kind=FailureKind.RATE_LIMIT, status=429, retry_after=7.0)
    report = simulate(replay([record(0, attempt()), record(0, refused)] * 2), FIXED)
    assert asked(report) == ["p", "pf", "p", "pf"]
    assert report.records[1].attempts[0].retry_after == 7.0


def test_who_hung_up_does_not_know_what_would_have_come() -> None:
    """After a timeout on record nothing comes, however long one waits; and it says so."""
    hung = attempt(kind=FailureKind.TIMEOUT, error="TimeoutError", seconds=30.0)
    answer = attempt(FALLBACK, started=30.0)
    scenario = replay([record(0, hung, answer)])
    for timeout in (100, 10):
        report = simulate(scenario, FallbackConfig(timeout=timeout))
        assert took(report.records[0]) == [timeout, 0.5]
    assert scenario.assumptions == (
        f"{PRIMARY} would not have answered after the timeouts on record",
    )
    with_status = replay([record(0, replace(hung, status=504), answer)])
    assert took(simulate(with_status, FIXED).records[0]) == [30.0, 0.5]
    assert not with_status.assumptions


def test_a_connection_that_was_never_made_ends_with_the_connect_timeout() -> None:
    """Its class tells it from an answer that was too slow."""
    lost = attempt(kind=FailureKind.TIMEOUT, error="ConnectTimeout", seconds=5.0)
    report = simulate(
        replay([record(0, lost, attempt(FALLBACK))]), FallbackConfig(connect_timeout=2)
    )
    assert took(report.records[0]) == [2.0, 0.5]


def test_a_target_that_nobody_asked_is_assumed_to_answer() -> None:
    """In the median time of all answers, and the scenario says that this is assumed."""
    scenario = replay([record(at, attempt(seconds=took)) for at, took in enumerate((0.2, 0.4, 3))])
    assert scenario.assumptions == (
        f"{FALLBACK} was never asked; it would answer in 0.40 s",
        "each call is a turn of its own",
    )
    down = FallbackConfig(timeout=0.1, max_attempts=2)
    assert took(simulate(scenario, down).records[0]) == [0.1, 0.1]
    assert simulate(scenario, FIXED).requests == {PRIMARY: 3, FALLBACK: 0}


def test_what_says_nothing_about_a_provider_is_left_out() -> None:
    """A cancelled attempt and a bug of the caller's are no bad day of the target."""
    ours = [attempt(kind=kind) for kind in (FailureKind.CANCELLED, FailureKind.LOCAL)]
    records = [record(0, attempt()), *(record(5, one) for one in ours)]
    report = simulate(replay(records), FIXED)
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
@pytest.mark.parametrize("status", [None, 200, 404, 429, 503])
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
        with pytest.raises(FallbackConfigError, match=r"jsonl: line 2: .*; write json.dumps"):
            replay(path)
    with pytest.raises(FallbackConfigError, match=r"No such file.*; pass a file with a record"):
        replay(tmp_path / "nothing")
    with pytest.raises(FallbackConfigError, match="records: there are none; pass at least one"):
        replay([])


@settings(deadline=None, max_examples=40)
@given(
    st.lists(
        st.tuples(st.integers(0, 20), st.sampled_from([None, *FailureKind]), st.floats(0, 9)),
        min_size=1,
        max_size=12,
    )
)
def test_any_records_can_be_played(seen: list[tuple[int, FailureKind | None, float]]) -> None:
    """Whatever was on record, as many calls are made and each of them ends."""
    records = [record(at, attempt(kind=kind, seconds=took)) for at, kind, took in seen]
    report = simulate(replay(records), FallbackConfig())
    assert report.calls == len(records)
