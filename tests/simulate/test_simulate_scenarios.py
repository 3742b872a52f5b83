"""Scenarios are data: those shipped are sound, and a mistake in one is named with its place."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from incidents import PRIMARY, failing, incident

from honcho_fallback import FallbackConfig, FallbackConfigError
from honcho_fallback.testing.simulate import (
    Bursts,
    Latency,
    Poisson,
    Scenario,
    Steady,
    load_scenario,
    shipped,
    simulate,
)

if TYPE_CHECKING:
    from pathlib import Path


def times(traffic: Bursts | Poisson | Steady, seconds: float = 100, seed: int = 0) -> list[float]:
    return list(traffic.times(seconds, Random(seed)))  # noqa: S311 # luck, not secrets


def test_the_shipped_ones() -> None:
    """Six incidents, each with a primary that has a bad day and a fallback to ask."""
    assert shipped() == (
        "both_down",
        "flapping",
        "outage",
        "quota_at_noon",
        "rate_limit_burst",
        "slow_provider",
    )
    for name in shipped():
        scenario = load_scenario(name)
        assert (scenario.name, len(scenario.targets)) == (name, 2)
        assert scenario.summary
        assert scenario.targets[0].phases
        report = simulate(scenario, FallbackConfig(), calls=1200)
        assert 1000 < report.calls < 1400
        assert report.wasted > 0
        assert report.money


def test_traffic() -> None:
    """Even distances; independent ones at the same rate; bursts over a trickle of others."""
    assert times(Steady(per_second=2), 2) == [0.0, 0.5, 1.0, 1.5]
    poisson = Poisson(per_second=5)
    found = times(poisson, 1000)
    assert found == times(poisson, 1000) != times(poisson, 1000, seed=1)
    assert found == sorted(found)
    assert 4800 < len(found) < 5200
    bursts = Bursts(every=40, turns_each=3)
    assert times(bursts) == [40.0] * 3 + [80.0] * 3
    mixed = times(Bursts(every=40, turns_each=3, per_second=1))
    assert mixed == sorted(mixed)
    assert mixed.count(40.0) == 3
    assert 60 < len(mixed) < 140


@pytest.mark.parametrize(
    "traffic",
    [
        {"kind": "steady", "per_second": 3},
        {"kind": "poisson", "per_second": 3, "iterations": 4},
        {"kind": "bursts", "per_second": 3, "every": 10, "turns_each": 7},
    ],
)
def test_a_number_of_calls_is_another_rate(traffic: dict[str, Any]) -> None:
    """About so many calls over the same time, whatever the traffic; the incident stays."""
    scenario = incident(traffic=traffic, seconds=100).with_calls(1000)
    assert scenario.seconds == 100
    assert 850 < simulate(scenario, FallbackConfig()).calls < 1150
    with pytest.raises(FallbackConfigError, match="calls: got 0; pass 1 or more"):
        scenario.with_calls(0)
    never = incident(traffic={"kind": "bursts", "every": 100, "turns_each": 5, "per_second": 0})
    with pytest.raises(FallbackConfigError, match="calls: the scenario begins none; leave it"):
        never.with_calls(5)


@given(normal=st.floats(-5, 5), median=st.floats(0.01, 100), tail=st.floats(1, 50))
def test_latency(normal: float, median: float, tail: float) -> None:
    """The median at the middle, p99 where one in a hundred lies, more for more."""
    latency = Latency(median=median, p99=median * tail)
    assert latency.seconds(0.0) == pytest.approx(median)
    assert latency.seconds(2.3263478740408408) == pytest.approx(median * tail)
    assert latency.seconds(normal + 1) >= latency.seconds(normal)
    assert latency.seconds(normal, 3) == pytest.approx(3 * latency.seconds(normal))
    assert Latency(median=median).seconds(normal) == pytest.approx(median)


TARGET: dict[str, Any] = {"name": "a", "latency": 1}
SOUND: dict[str, Any] = {
    "name": "x",
    "seconds": 5,
    "traffic": {"kind": "steady", "per_second": 1},
    "targets": [TARGET],
}


def phases(*given: dict[str, Any]) -> dict[str, Any]:
    return {"targets": [TARGET | {"phases": given}]}


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"secnods": 5}, "x.toml: secnods: no such key; choose from name, summary, seconds"),
        ({"targets": []}, "x.toml: targets: Tuple should have at least 1 item"),
        ({"targets": [TARGET, TARGET]}, "x.toml: targets: 'a' is there twice, give one another"),
        ({"targets": [{"latency": 1}]}, "x.toml: targets[0].name: is missing; add it"),
        ({"seconds": -1}, "x.toml: seconds: Input should be greater than 0"),
        ({"traffic": {"per_second": 1}}, "x.toml: traffic: kind is missing; say which"),
        (
            {"traffic": {"kind": "odd"}},
            "x.toml: traffic: no such kind 'odd'; choose from 'steady', 'poisson', 'bursts'",
        ),
        (
            {"traffic": {"kind": "steady", "per_second": 1, "per_secnod": 1}},
            "x.toml: traffic.per_secnod: no such key; choose from iterations, pause, stream,",
        ),
        (
            phases({"kind": "failing", "status": 503}, {"kind": "silent", "starts": 2, "shar": 1}),
            "x.toml: targets[0].phases[1].shar: no such key; choose from starts, kind, share,",
        ),
        (
            phases({"kind": "failing", "status": 200}),
            "x.toml: targets[0].phases[0].status: Input should be greater than or equal to 400",
        ),
        (phases({"kind": "up"}, {"kind": "up"}), "x.toml: targets[0].phases: each phase must"),
        (phases({"kind": "recovering"}), "x.toml: targets[0].phases: a recovery needs an end"),
        (
            {"targets": [TARGET | {"latency": {"median": 2, "p99": 1}}]},
            "x.toml: targets[0].latency: p99 is 1, pass the median (2) or more",
        ),
        (
            {"targets": [TARGET | {"price": {"per_cal": 1}}]},
            "x.toml: targets[0].price.per_cal: no such key; choose from per_call, per_million",
        ),
    ],
)
def test_a_mistake_is_named_with_its_place(changed: dict[str, Any], told: str) -> None:
    """What was wrong, where, and what to do; and nothing but that."""
    assert Scenario.parse(SOUND).names == ("a",)
    with pytest.raises(FallbackConfigError) as caught:
        Scenario.parse(SOUND | changed, "x.toml")
    lines = str(caught.value).splitlines()
    assert lines[0].startswith(told)
    assert all(line.startswith("x.toml: t") for line in lines[1:])


def test_files(tmp_path: Path) -> None:
    """A file is read as a shipped one is; what is no file, no text or no TOML is refused."""
    path = tmp_path / "mine.toml"
    path.write_text(
        'name = "mine"\nseconds = 3\ntraffic = { kind = "steady", per_second = 1 }\n'
        '[[targets]]\nname = "a"\nlatency = 1\n'
    )
    assert load_scenario(path) == load_scenario(str(path))
    path.write_text("name = ")
    with pytest.raises(FallbackConfigError, match=r"mine.toml: no TOML: .*; correct it"):
        load_scenario(path)
    path.write_bytes(b"\xff")
    with pytest.raises(FallbackConfigError, match=r"mine.toml: no UTF-8 text; pass a TOML file"):
        load_scenario(path)
    with pytest.raises(FallbackConfigError, match=r"No such file.*shipped name: both_down, flap"):
        load_scenario("otage")


def test_targets_become_a_chain() -> None:
    """In the scenario's order or another; an unknown one is refused."""
    scenario = incident()
    one, two = scenario.chain()
    assert (one.name, one.provider, one.model) == (PRIMARY, "p", "one")
    assert [target.name for target in scenario.chain([two.name, one.name])] == ["f/two", PRIMARY]
    assert scenario.chain(["f/two"])[0].model == "two"
    with pytest.raises(FallbackConfigError, match="'by hand' has no 'x'"):
        scenario.chain(["x"])


def test_before_its_first_phase_a_target_is_up() -> None:
    """And the last phase lasts for ever."""
    report = simulate(incident(failing(starts=8)), FallbackConfig())
    assert report.wasted == 2
