"""Scenarios are data: those shipped are sound, and a mistake in one is named with its place."""

from __future__ import annotations

import re
from importlib.resources import files
from random import Random
from typing import TYPE_CHECKING, Any, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from honcho_fallback import FallbackConfig, FallbackConfigError
from honcho_fallback.simulate import Scenario, load_scenario, shipped, simulate
from honcho_fallback.simulate._scenario import Latency, Phase, Price, SimulatedTarget, Traffic
from tests.simulate.incidents import PRIMARY, incident

if TYPE_CHECKING:
    from pathlib import Path


def times(seconds: float = 100, seed: int = 0, **traffic: Any) -> list[float]:
    rng = Random(seed)  # noqa: S311 # no secrets
    return list(Traffic(**traffic).times(seconds, rng))


def test_the_shipped_ones() -> None:
    """Six incidents, each with a primary that has a bad day and a fallback to ask."""
    names = "both_down flapping outage quota_at_noon rate_limit_burst slow_provider"
    assert shipped() == tuple(names.split())
    for name in shipped():
        scenario = load_scenario(name)
        assert (scenario.name, len(scenario.targets)) == (name, 2)
        assert scenario.summary
        report = simulate(scenario, FallbackConfig(), calls=1200)
        assert 1000 < report.calls < 1400
        assert report.wasted > 0
        assert report.money


def test_one_of_them_says_all_that_may_stand_in_one() -> None:
    """The file that people copy names every kind and every key."""
    text = (files("honcho_fallback.simulate") / "scenarios" / "outage.toml").read_text("utf-8")
    words = {*re.findall(r"\w+", text)}
    for part in (Traffic, Phase, SimulatedTarget, Price):
        field = part.model_fields.get("kind")
        kinds = get_args(field.annotation) if field else ()
        assert {*part.model_fields, *kinds} - {"recorded"} <= words


def test_traffic() -> None:
    """Even distances; independent ones at the same rate; bursts over a trickle of others."""
    assert times(2, kind="steady", per_second=2) == [0.0, 0.5, 1.0, 1.5]
    assert times(2, kind="steady", per_second=0) == times(2, kind="poisson", per_second=0) == []
    poisson = times(1000, kind="poisson", per_second=5)
    assert poisson == sorted(poisson) != times(1000, seed=1, kind="poisson", per_second=5)
    assert 4800 < len(poisson) < 5200
    assert times(kind="bursts", every=40, turns_each=3) == [40.0] * 3 + [80.0] * 3
    mixed = times(kind="bursts", every=40, turns_each=3, per_second=1)
    assert mixed == sorted(mixed)
    assert mixed.count(40.0) == 3
    assert 60 < len(mixed) < 140
    assert times(5, kind="recorded", at=(0, 1, 7)) == [0, 1]


@pytest.mark.parametrize(
    "traffic",
    [
        {"kind": "steady", "per_second": 3},
        {"kind": "poisson", "per_second": 3, "iterations": 4},
        {"kind": "bursts", "per_second": 1, "every": 10, "turns_each": 7},
    ],
)
def test_a_number_of_calls_is_another_rate(traffic: dict[str, Any]) -> None:
    """About so many calls over the same time, whatever the traffic."""
    scenario = incident(traffic=traffic, seconds=100)
    assert 850 < simulate(scenario, FallbackConfig(), calls=1000).calls < 1150
    with pytest.raises(FallbackConfigError, match="calls: got 0; pass 1 or more"):
        simulate(scenario, FallbackConfig(), calls=0)


@pytest.mark.parametrize(
    "traffic",
    [{"every": 100, "turns_each": 5, "per_second": 0}, {"kind": "recorded", "at": [1]}],
)
def test_what_has_no_rate_has_no_other(traffic: dict[str, Any]) -> None:
    """A record is what it is, and none cannot be multiplied."""
    base = {"kind": "bursts", **traffic}
    scenario = Scenario.parse(SOUND | {"traffic": base, "seconds": 100})
    with pytest.raises(FallbackConfigError, match=r"calls: this traffic has no rate.*; leave it"):
        simulate(scenario, FallbackConfig(), calls=5)


@settings(deadline=None)
@given(normal=st.floats(-5, 5), median=st.floats(0.01, 100), tail=st.floats(1, 50))
def test_latency(normal: float, median: float, tail: float) -> None:
    """The median at the middle, p99 where one in a hundred lies, more for more."""
    latency = Latency(median=median, p99=median * tail)
    assert latency.seconds(0.0) == pytest.approx(median)
    assert latency.seconds(2.3263478740408408) == pytest.approx(median * tail)
    assert latency.seconds(normal + 1) >= latency.seconds(normal)
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


def target(**changed: Any) -> dict[str, Any]:
    return {"targets": [TARGET | changed]}


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"secnods": 5}, ": secnods: no such key; take it out"),
        ({"targets": []}, ": targets: there are none; describe at least one"),
        ({"targets": [TARGET, TARGET]}, ": targets: two have the same name; give one of them"),
        ({"targets": [{"latency": 1}]}, ": targets[0].name: it is missing; add it"),
        ({"seconds": -1}, ": seconds: got -1; Input should be greater than 0"),
        ({"traffic": {"per_second": 1}}, ": traffic.kind: it is missing; add it"),
        (
            {"traffic": {"kind": "odd"}},
            ": traffic.kind: got 'odd' (str); Input should be 'steady', 'poisson', 'bu",
        ),
        (
            phases({"kind": "failing", "status": 503}, {"kind": "silnet", "starts": 2}),
            ": targets[0].phases[1].kind: got 'silnet' (str); Input should be 'up', 'slow'",
        ),
        (
            phases({"kind": "failing", "status": 200}),
            ": targets[0].phases[0].status: got 200; Input should be greater than or equal to 400",
        ),
        (phases({"kind": "up"}, {"kind": "up"}), ": targets[0].phases: each phase must start la"),
        (phases({"kind": "recovering"}), ": targets[0].phases: a recovery needs an end; add a"),
        (
            target(latency=True),
            ": targets[0].latency: got True; Input should be a valid dictionary",
        ),
        (target(price={"per_cal": 1}), ": targets[0].price.per_cal: no such key; take it out"),
    ],
)
def test_a_mistake_is_named_with_its_place(changed: dict[str, Any], message: str) -> None:
    """What was wrong, where, and what to do; and nothing but that."""
    assert Scenario.parse(SOUND).targets[0].name == "a"
    with pytest.raises(FallbackConfigError) as caught:
        Scenario.parse(SOUND | changed, "x.toml")
    (line,) = str(caught.value).splitlines()
    assert line.startswith(f"x.toml{message}")


def test_each_mistake_has_a_line() -> None:
    """All of those in different tables are named at once."""
    with pytest.raises(FallbackConfigError) as caught:
        Scenario.parse(SOUND | {"seconds": 0, "traffic": {"kind": "odd"}})
    assert len(str(caught.value).splitlines()) == 2


def test_files(tmp_path: Path) -> None:
    """A file is read as a shipped one is; what is no file, no text or no TOML is refused."""
    path = tmp_path / "mine.toml"
    path.write_text(
        'name = "mine"\nseconds = 3\ntraffic = { kind = "steady", per_second = 1 }\n'
        '[[targets]]\nname = "a"\nlatency = 1\n'
    )
    assert load_scenario(path) == load_scenario(str(path))
    path.write_text("name = ")
    with pytest.raises(
        FallbackConfigError, match=r"mine.toml: no TOML: Invalid value.*; correct it"
    ):
        load_scenario(path)
    path.write_bytes(b"\xff")
    with pytest.raises(FallbackConfigError, match=r"mine.toml: no TOML: 'utf-8' codec"):
        load_scenario(path)
    with pytest.raises(
        FallbackConfigError, match=r"otage: no such file .* or name; did you mean outage"
    ):
        load_scenario("otage")


def test_targets_become_a_chain() -> None:
    """In the scenario's order or another; a name may have a provider or none."""
    one, two = incident().chain()
    assert (one.name, one.provider, one.model) == (PRIMARY, "p", "one")
    assert [each.name for each in incident().chain([two.name, one.name])] == ["f/two", PRIMARY]
    for name, provider, model in (("a", None, "a"), ("a/b/c", "a", "b/c"), ("a/", None, "a/")):
        (one,) = Scenario.parse(SOUND | target(name=name)).chain()
        assert (one.name, one.provider, one.model) == (name, provider, model)
