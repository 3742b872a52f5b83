"""Saved records as a scenario: what would this policy have done?"""

from __future__ import annotations

import json
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
    classify,
)
from honcho_fallback.testing.simulate import (
    LangChainLike,
    Scenario,
    load_records,
    load_scenario,
    replay,
    shipped,
    simulate,
)
from honcho_fallback.testing.simulate._failures import again

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

FIXED = FallbackConfig(wait=0.25)


def told(records: Sequence[CallRecord], start: float = 0.0) -> list[Any]:
    """What happened in each call, down to the microsecond."""
    return [
        (
            round(record.started_at - start, 5),
            record.outcome,
            round(record.seconds, 5),
            [
                (
                    one.target,
                    round(one.started, 5),
                    round(one.seconds, 5),
                    one.wait,
                    one.kind,
                    one.status,
                )
                for one in record.attempts
            ],
        )
        for record in records
    ]


@pytest.mark.parametrize("name", shipped())
def test_the_same_policy_fares_as_it_did(name: str) -> None:
    """Each request meets what it met on record: the same answers, failures, times and end."""
    scenario = load_scenario(name)
    options: dict[str, Any] = {"update": {"iterations": 1, "pause": 0.0}}
    scenario = scenario.model_copy(update={"traffic": scenario.traffic.model_copy(**options)})
    before = simulate(scenario, FIXED, calls=400).records
    played = replay(before)
    after = simulate(played, FIXED).records
    assert told(after, played.started_at) == told(before, played.started_at)


def test_another_policy_fares_otherwise() -> None:
    """On the morning's records a cooldown would have spared most of what was wasted."""
    scenario = incident(failing(starts=3), {"kind": "up", "starts": 7})
    records = simulate(scenario, FIXED).records
    tuesday = replay(records, name="tuesday")
    as_it_was = simulate(tuesday, FIXED)
    with_cooldown = simulate(tuesday, FallbackConfig(cooldown=Cooldown(base=1.2)))
    peer = simulate(tuesday, LangChainLike())
    assert (as_it_was.scenario, as_it_was.wasted) == ("tuesday", 4)
    assert with_cooldown.wasted == 2
    assert peer.wasted > 4
    assert as_it_was.calls == with_cooldown.calls == peer.calls == 10


def record(number: int, *attempts: dict[str, Any], **more: Any) -> dict[str, Any]:
    """A saved record, as JSON gives it back; one a second since an odd moment."""
    return {
        "chain": [PRIMARY, FALLBACK],
        "attempts": [
            {"target": PRIMARY, "started": 0.0, "seconds": 0.5, **one} for one in attempts
        ],
        "outcome": "success",
        "started_at": 1763725000.25 + number,
        "agent": "not read",
        **more,
    }


def test_what_is_nearest_in_time_is_met() -> None:
    """Between two observations the nearer one decides, the earlier one at the middle."""
    records = [record(0, {}), record(10, {"kind": "overloaded", "status": 503})]
    scenario = replay([*records, *(record(at, *[{"target": FALLBACK}]) for at in (4, 5, 6))])
    report = simulate(scenario, FallbackConfig())
    assert [len(one.attempts) for one in report.records] == [1, 1, 1, 2, 2]


def test_requests_of_the_same_moment_take_turns() -> None:
    """A burst of which half was refused is a burst of which half is refused."""
    refused = {"kind": "rate_limit", "status": 429, "retry_after": 7}
    records = [
        record(0, *([refused, {"target": FALLBACK, "started": 0.5}] if odd else [{}]))
        for odd in (0, 1, 0, 1)
    ]
    report = simulate(replay(records), FallbackConfig())
    assert [len(one.attempts) for one in report.records] == [1, 2, 1, 2]
    assert report.records[1].attempts[0].retry_after == 7.0


def test_who_hung_up_does_not_know_what_would_have_come() -> None:
    """After a timeout on record nothing comes, however long one waits; and it says so."""
    hung = {"kind": "timeout", "error": "TimeoutError", "seconds": 30.0}
    scenario = replay([record(0, hung, {"target": FALLBACK, "started": 30.0})])
    patient = simulate(scenario, FallbackConfig(timeout=100)).records[0]
    assert [one.seconds for one in patient.attempts] == [100.0, 0.5]
    hasty = simulate(scenario, FallbackConfig(timeout=10)).records[0]
    assert [one.seconds for one in hasty.attempts] == [10.0, 0.5]
    assert scenario.assumptions == (
        f"{PRIMARY} would not have answered after the timeouts on record",
    )
    said = replay([record(0, {**hung, "status": 504}, {"target": FALLBACK, "started": 30.0})])
    assert [
        one.seconds for one in simulate(said, FallbackConfig(timeout=100)).records[0].attempts
    ] == [30.0, 0.5]
    assert not said.assumptions


def test_a_connection_that_was_never_made_ends_with_the_connect_timeout() -> None:
    """Its class tells it from an answer that was too slow."""
    lost = {"kind": "timeout", "error": "ConnectTimeout", "seconds": 5.0}
    scenario = replay([record(0, lost, {"target": FALLBACK})])
    report = simulate(scenario, FallbackConfig(timeout=100, connect_timeout=2))
    assert report.records[0].attempts[0].seconds == 2.0


def test_a_target_that_nobody_asked_is_taken_to_answer() -> None:
    """In the median time of all answers, and the report says that this was taken for granted."""
    scenario = replay(
        [record(0, {"seconds": 0.2}), record(1, {"seconds": 0.4}), record(2, {"seconds": 3.0})]
    )
    assert scenario.assumptions == (
        f"{FALLBACK} was never asked; it is taken to answer in 0.40 s",
        "each call is a turn of its own",
    )
    report = simulate(scenario, FallbackConfig())
    assert report.assumptions == scenario.assumptions
    assert report.requests == {PRIMARY: 3, FALLBACK: 0}


def test_what_says_nothing_about_a_provider_is_left_out() -> None:
    """A cancelled attempt and a bug of the caller's are no bad day of the target."""
    ours = ({"kind": kind, "seconds": 0.01} for kind in ("cancelled", "local"))
    records = [record(0, {}), *(record(5, one) for one in ours)]
    report = simulate(replay(records), FallbackConfig())
    assert (report.calls, report.answered, report.wasted) == (3, 3, 0)
    assert [one.seconds for one in report.records] == [0.5] * 3


def test_streams_come_back_as_streams() -> None:
    """First content and what broke after it."""
    phase = {"kind": "dropped", "delay": 0.5, "after_content": True, "starts": 5}
    scenario = incident(phase, traffic={"stream": True})
    before = simulate(scenario, FIXED)
    after = simulate(replay(before.records), FIXED)
    assert told(after.records) == told(before.records)
    assert [one.time_to_first_token for one in after.records] == [0.25] * 10
    assert [one.outcome for one in after.records].count("interrupted") == 5


@pytest.mark.parametrize("kind", [*FailureKind])
@pytest.mark.parametrize("status", [None, 200, 400, 404, 429, 503])
@pytest.mark.parametrize("code", [None, "whatever"])
def test_a_kind_on_record_is_the_kind_that_is_met(
    kind: FailureKind, status: int | None, code: str | None
) -> None:
    """Even where status and code alone would mean something else."""
    error = again(kind, status, code, None)
    if kind in {FailureKind.CANCELLED, FailureKind.LOCAL}:
        assert error is None
    else:
        assert error is not None
        assert classify(error).kind is kind


def test_facts_on_record_are_kept() -> None:
    """Status, code and Retry-After come back as they were."""
    error = again(FailureKind.QUOTA, 402, "insufficient_balance", 5.0)
    assert error is not None
    found = classify(error)
    assert (found.status, found.code, found.retry_after) == (402, "insufficient_balance", 5.0)


def test_files(tmp_path: Path) -> None:
    """JSON lines, as ``to_dict`` gives them; a mistake is named with its line or record."""
    records = simulate(incident(failing(starts=5)), FIXED).records
    path = tmp_path / "tuesday.jsonl"
    path.write_text("\n\n".join(json.dumps(one.to_dict()) for one in records))
    assert replay(load_records(path)) == replay(records)
    for broken in ('{"half', "[1]", "{}"):
        path.write_text(f"\n{broken}")
        with pytest.raises(FallbackConfigError, match=r"jsonl: line 2: .*; write json.dumps"):
            load_records(path)
    with pytest.raises(FallbackConfigError, match=r"No such file"):
        load_records(tmp_path / "nothing")
    with pytest.raises(FallbackConfigError, match="records: there are none; pass at least one"):
        replay([])
    with pytest.raises(
        FallbackConfigError, match=r"record 2: attempts\[0\].seconds: Input should"
    ):
        replay([record(0, {}), record(1, {"seconds": -1})])
    with pytest.raises(FallbackConfigError, match="record 1: chain: is missing; add it"):
        replay([{"attempts": [], "outcome": "success", "started_at": 1.0}])


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
    records = [record(at, {"kind": kind, "seconds": took}) for at, kind, took in seen]
    scenario = replay(records)
    assert isinstance(scenario, Scenario)
    report = simulate(scenario, FallbackConfig())
    assert report.calls == len(records)


def test_a_record_has_the_rate_it_has() -> None:
    """Another number of calls cannot be made of it."""
    with pytest.raises(FallbackConfigError, match=r"recorded traffic cannot be .*; leave it out"):
        simulate(replay([record(0, {})]), FallbackConfig(), calls=5)
