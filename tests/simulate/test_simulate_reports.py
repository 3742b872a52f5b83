"""Scenarios and policies as files, and what comes of a simulation, also on the command line."""

from __future__ import annotations

import json
import re
import tomllib
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, get_args

import pytest
from typer.testing import CliRunner

from honcho_fallback import Cooldown, FallbackConfig, FallbackConfigError
from honcho_fallback.cli._app import app
from honcho_fallback.simulate import (
    Comparison,
    Scenario,
    compare,
    load_policy,
    load_scenario,
    retry_then_next,
    shipped,
    simulate,
)
from honcho_fallback.simulate._scenario import Phase, Price, SimulatedTarget, Traffic
from tests.simulate.incidents import FALLBACK, PRIMARY, failing, incident

if TYPE_CHECKING:
    from typer.testing import Result


def times(seconds: float = 100, seed: int = 0, **traffic: Any) -> list[float]:
    rng = Random(seed)  # noqa: S311 # no secrets
    return list(Traffic(**traffic).times(seconds, rng))


def test_the_shipped_ones() -> None:
    """Six incidents, each with a primary that has a bad day and a fallback to ask."""
    names = "both_down flapping outage quota_at_noon rate_limit_burst slow_provider"
    assert shipped() == tuple(names.split())
    listed = run("--list").stdout
    for name in shipped():
        scenario = load_scenario(name)
        assert (scenario.name, len(scenario.targets)) == (name, 2)
        assert name in listed
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
    assert times(5, kind="steady", at=(0, 1, 7)) == [0, 1]


@pytest.mark.parametrize(
    "traffic",
    [
        {"kind": "steady", "per_second": 3},
        {"kind": "poisson", "per_second": 3, "iterations": 4},
        {"kind": "bursts", "per_second": 1, "every": 10, "turns_each": 7},
    ],
)
def test_a_number_of_calls_is_another_rate(traffic: dict[str, Any]) -> None:
    """About so many calls over the same time, whatever the traffic, if it has a rate at all."""
    scenario = incident(traffic=traffic, seconds=100)
    assert 850 < simulate(scenario, FallbackConfig(), calls=1000).calls < 1150
    on_record = incident(traffic={"per_second": 0, "at": [1]})
    with pytest.raises(FallbackConfigError, match=r"calls: this traffic has no rate.*; leave it"):
        simulate(on_record, FallbackConfig(), calls=5)


MISTAKES: dict[str, Any] = tomllib.loads(
    Path(__file__).with_name("mistakes.toml").read_text(encoding="utf-8")
)
TARGET: dict[str, Any] = {"name": "a", "latency": {"median": 1}}
SOUND: dict[str, Any] = {
    "name": "x",
    "seconds": 5,
    "traffic": {"kind": "steady", "per_second": 1},
    "targets": [TARGET],
}


NAMES = {"a": (None, "a", "a"), "p/one": ("p", "one", "p/one"), "a/b/c": ("a", "b/c", "a/b/c")}


@pytest.mark.parametrize(("changed", "message"), MISTAKES["scenarios"])
def test_a_mistake_is_named_with_its_place(changed: dict[str, Any], message: str) -> None:
    """What was wrong, where, and what to do; a sound one is a chain, with providers or without."""
    assert Scenario.parse(SOUND).targets[0].name == "a"
    whole = Scenario.parse(SOUND | {"targets": [TARGET | {"name": one} for one in NAMES]})
    assert [(one.provider, one.model, one.name) for one in whole.chain()] == [*NAMES.values()]
    with pytest.raises(FallbackConfigError) as caught:
        Scenario.parse(SOUND | changed, "x.toml")
    (line,) = str(caught.value).splitlines()
    assert line.startswith(f"x.toml: {message}")


def test_files(mine: Path) -> None:
    """A file is read as a shipped one is; what is no file or no TOML is refused."""
    assert load_scenario(mine) == load_scenario(str(mine))
    mine.write_text("name = ")
    with pytest.raises(FallbackConfigError, match=r"mine.toml: no TOML: Invalid v.*; correct it"):
        load_scenario(mine)


def loaded(tmp_path: Path, text: str) -> FallbackConfig:
    path = tmp_path / "mine.toml"
    path.write_text(text)
    name, config = load_policy(path)
    assert name == "mine"
    assert isinstance(config, FallbackConfig)
    return config


def test_a_preset_and_its_changes(tmp_path: Path) -> None:
    """Options come on top; tables make objects; an empty file is the default."""
    assert loaded(tmp_path, "") == FallbackConfig()
    config = loaded(
        tmp_path,
        """
        preset = "resilient"
        timeout = 7
        wait = 1.5
        must_not_degrade = false
        cooldown = { base = 5, cap = 50 }
        retry_budget = { ratio = 0.2 }
        transport_recovery = {}
        switch_after = { rate_limit = 2 }
        fallback_on = ["rate_limit"]
        """,
    )
    assert (config.timeout, config.reset) == (7.0, "turn")
    assert isinstance(config.cooldown, Cooldown)
    assert (config.cooldown.base, config.cooldown.cap) == (5.0, 50.0)
    assert config.retry_budget is not None
    assert config.retry_budget.ratio == 0.2
    assert config.transport_recovery is not None
    assert config.first_token_timeout == 10.0
    assert config.must_not_degrade is False
    assert {*config.fallback_on} == {"rate_limit"}


@pytest.mark.parametrize(("text", "message"), MISTAKES["policies"].items())
def test_a_mistake_in_a_policy_is_named_with_its_place(
    tmp_path: Path, text: str, message: str
) -> None:
    """What was wrong, where, and what to do; what names code is refused, never imported."""
    with pytest.raises(FallbackConfigError, match=f"mine.toml: {message}"):
        loaded(tmp_path, text)


def test_names() -> None:
    """Presets and the peer need no file; an unknown name lists them."""
    for name in ("default", "resilient", "honcho", "hermes", "retry-then-next"):
        assert load_policy(name)[0] == name
    peer: Any = load_policy("retry-then-next")[1]
    assert peer.switch_after == retry_then_next().switch_after == 3
    assert (load_policy("hermes")[1].reset, load_policy("default")[1].cooldown) == ("turn", None)
    with pytest.raises(FallbackConfigError, match=r"resiliant: no such file .*mean resilient"):
        load_policy("resiliant")


SCENARIO = """
name = "mine"
seconds = 10
traffic = { kind = "steady", per_second = 1 }
[[targets]]
name = "p/one"
latency = { median = 1 }
phases = [{ kind = "failing", status = 503, starts = 5 }]
[[targets]]
name = "f/two"
latency = { median = 2 }
"""


@pytest.mark.parametrize(
    ("seconds", "half", "most"),
    [([3], 3, 3), ([2, 1], 1, 2), ([*range(20, 0, -1)], 10, 19), ([*range(1, 22)], 11, 20)],
)
def test_a_percentile_is_a_time_that_so_many_calls_do_not_exceed(
    seconds: list[int], half: int, most: int
) -> None:
    """The smallest of the calls' times that at least that share is not above."""
    phases = [{"kind": "slow", "starts": at, "factor": one} for at, one in enumerate(seconds)]
    report = simulate(incident(*phases, seconds=len(seconds)), FallbackConfig())
    assert (report.p50, report.p95) == (half, most)


def test_figures_and_the_table() -> None:
    """Plain values, found by name, without the records; a column of money where there are prices.

    Two policies in an outage of three calls, beside the peer: one asks the primary alone, one
    both; there a call loses half a second and takes the fallback's two.
    """
    tokens = {"input_tokens": 1_000_000}
    phases = (failing(starts=3), {"kind": "up", "starts": 6})
    policies = {"once": FallbackConfig(max_attempts=1), "both": FallbackConfig(max_attempts=2)}
    priced, free = (
        compare(incident(*phases, traffic=tokens, price=price), policies)
        for price in ({"per_million_input": 0.5}, {})
    )
    values = priced.to_dict()
    assert json.loads(json.dumps(values)) == values
    assert [one["name"] for one in values["reports"]] == ["once", "both", "retry-then-next"]
    assert values["reports"][0]["requests"] == {PRIMARY: 10, FALLBACK: 0}
    assert "records" not in values["reports"][0]
    assert priced["both"].requests == {PRIMARY: 10, FALLBACK: 3}
    lines = [line.split() for line in str(priced).splitlines()]
    heads = "policy calls answered p50 s p95 s requests wasted money lost"
    assert lines[1] == heads.split()
    assert lines[3] == ["both", "10", "100.00%", "1.00", "2.50", "10+3", "3", "5.00", "0.00"]
    assert lines[2] == ["once", "10", "70.00%", "1.00", "1.00", "10+0", "3", "3.50", "0.00"]
    assert "money" not in str(free)
    assert len({len(line) for line in str(priced).splitlines()[1:4]}) == 1


def test_one_lost_call_in_many_is_never_a_hundred_percent() -> None:
    """Rounding does not hide it; a scenario without a single call has a report, too."""
    none = simulate(incident(traffic={"per_second": 0}), FallbackConfig())
    assert str(Comparison("x", "", (none,)))
    report = simulate(incident(), FallbackConfig())
    for answered, shown in ((10**6 - 1, " 99.99%"), (10**6, "100.00%")):
        one = replace(report, calls=10**6, answered=answered)
        assert shown in str(Comparison("x", "", (one,)))


def test_who_is_compared_by_default() -> None:
    """Your policies beside what an SDK does; in an outage ``resilient`` wastes least."""
    comparison = compare(load_scenario("outage"), calls=600)
    names = ["default", "resilient", "retry-then-next"]
    assert [report.name for report in comparison.reports] == names
    wasted = [report.wasted for report in comparison.reports]
    assert wasted[1] < wasted[0] < wasted[2]
    mine = {"retry-then-next": retry_then_next(retries=0)}
    report = compare(incident(failing()), mine).reports[0]
    assert report.requests == {PRIMARY: 10, FALLBACK: 10}
    assert len(compare(incident(), {"mine": FallbackConfig()}).reports) == 2


# The command.


def run(*args: object) -> Result:
    return CliRunner().invoke(app, ["simulate", *map(str, args)])


def figures(*args: object) -> dict[str, Any]:
    """What ``--json`` prints, by policy."""
    result = run(*args, "--json")
    assert result.exit_code == 0, result.output
    return {one["name"]: one for one in json.loads(result.stdout)["reports"]}


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    path = tmp_path / "mine.toml"
    path.write_text(SCENARIO)
    return path


def test_files_side_by_side(mine: Path, tmp_path: Path) -> None:
    """Two policies on one incident, beside the peer; the same seed gives the same figures."""
    for name, timeout in (("a", 20), ("b", 0.5)):
        (tmp_path / f"{name}.toml").write_text(f"timeout = {timeout}")
    reports = figures(mine, "--policy", tmp_path / "a.toml", "--policy", tmp_path / "b.toml")
    assert [*reports] == ["a", "b", "retry-then-next"]
    assert reports["a"]["requests"] == {"p/one": 10, "f/two": 5}
    assert (reports["a"]["answered"], reports["b"]["answered"]) == (10, 0)
    args = ("outage", "--policy", "default", "--calls", 100)
    assert figures(*args, "--seed", 3) == figures(*args, "--seed", 3) != figures(*args)
    assert figures(mine, "--policy", "default", "--calls", 40)["default"]["calls"] == 40


@pytest.mark.parametrize("name", ["tuesday.jsonl", "tuesday.jsonl.1", "tuesday"])
def test_saved_records_are_played_again(tmp_path: Path, name: str) -> None:
    """A file of JSON lines is a scenario, rotated or not, whatever it is called."""
    records = simulate(incident(failing(starts=5)), FallbackConfig()).records
    path = tmp_path / name
    path.write_text("\n".join(json.dumps(record.to_dict()) for record in records))
    assert figures(path, "--policy", "default")["default"]["wasted"] == 5
    printed = run(path, "--policy", "default").stdout
    assert printed.startswith("tuesday: 10 calls on record")


@pytest.mark.parametrize(("line", "message"), MISTAKES["commands"].items())
def test_a_mistake_is_status_2_and_one_line(line: str, message: str) -> None:
    """What, where, and what to do, on standard error."""
    result = run(*line.split())
    assert (result.exit_code, result.stdout) == (2, "")
    assert message in result.stderr
