"""What comes of a simulation, in Python and from ``honcho-fallback simulate``."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

import honcho_fallback.simulate
from honcho_fallback import FallbackConfig
from honcho_fallback.cli import _simulate
from honcho_fallback.cli._app import app
from honcho_fallback.simulate import (
    Comparison,
    compare,
    load_scenario,
    retry_then_next,
    shipped,
    simulate,
)
from tests.simulate.incidents import FALLBACK, PRIMARY, failing, incident

if TYPE_CHECKING:
    from pathlib import Path

    from typer.testing import Result

NASTY = '<script>"[red]'
SCENARIO = """
name = "mine"
seconds = 10
traffic = { kind = "steady", per_second = 1 }
[[targets]]
name = "p/one"
latency = 1
phases = [{ kind = "failing", status = 503, starts = 5 }]
[[targets]]
name = "f/two"
latency = 2
"""


def compared(**more: Any) -> Comparison:
    """Two policies in an outage of both, beside the peer: one asks the primary alone, one both."""
    scenario = incident(
        failing(starts=3), {"kind": "up", "starts": 6}, fallback=(failing(),), **more
    )
    once = FallbackConfig(max_attempts=1)
    policies = {NASTY: once, "both": FallbackConfig(max_attempts=2)}
    return compare(scenario, policies)


@settings(deadline=None, max_examples=40)
@given(st.lists(st.integers(1, 50), min_size=1, max_size=30))
def test_a_percentile_is_a_time_that_so_many_calls_do_not_exceed(seconds: list[int]) -> None:
    """The smallest of the calls' times that at least that share is not above."""
    phases = [{"kind": "up", "starts": at, "latency": one} for at, one in enumerate(seconds)]
    report = simulate(incident(*phases, seconds=len(seconds)), FallbackConfig())
    for share, time in ((0.5, report.p50), (0.95, report.p95)):
        assert time in [record.seconds for record in report.records]
        assert sum(record.seconds <= time for record in report.records) >= share * len(seconds)
        assert sum(record.seconds < time for record in report.records) < share * len(seconds)


def test_figures_are_plain_values_found_by_name() -> None:
    """A report is data; its dict goes through JSON unchanged, without the records."""
    comparison = compared(price={"per_call": 0.5})
    values = comparison.to_dict()
    assert json.loads(json.dumps(values)) == values
    assert [one["name"] for one in values["reports"]] == [NASTY, "both", "retry-then-next"]
    assert values["reports"][0]["requests"] == {PRIMARY: 10, FALLBACK: 0}
    assert "records" not in values["reports"][0]
    assert comparison["both"].requests == {PRIMARY: 10, FALLBACK: 3}
    with pytest.raises(KeyError):
        comparison["nobody"]


def test_the_table() -> None:
    """A column of money where there are prices; escaped in a notebook."""
    priced, free = compared(price={"per_call": 0.5}), compared()
    lines = [line.split() for line in str(priced).splitlines()]
    heads = "policy calls answered p50 s p95 s requests wasted money lost"
    assert lines[1] == heads.split()
    assert lines[2] == [NASTY, "10", "70.00%", "1.00", "1.00", "10+0", "3", "3.50", "0.00"]
    assert "money" not in str(free)
    assert len({len(line) for line in str(priced).splitlines()[1:4]}) == 1
    assert "<script" not in priced._repr_html_()
    assert "&lt;script&gt;" in priced._repr_html_()


def test_one_lost_call_in_many_is_never_a_hundred_percent() -> None:
    """Rounding does not hide it."""
    report = simulate(incident(), FallbackConfig())
    for answered, shown in ((10**6 - 1, " 99.99%"), (10**6, "100.00%")):
        rate = answered / 10**6
        one = replace(report, calls=10**6, answered=answered, success_rate=rate)
        assert shown in str(Comparison("x", "", (), (one,)))


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


def test_nothing_was_called() -> None:
    """A scenario without a single call has a report, too."""
    report = simulate(incident(traffic={"per_second": 0}), FallbackConfig())
    assert (report.calls, report.success_rate, report.p95) == (0, 0.0, 0.0)


def test_public_names() -> None:
    """Few, sorted, and each with a docstring; importing them loads nothing that draws."""
    names = honcho_fallback.simulate.__all__
    assert names == sorted(names)
    assert len(names) <= 14
    assert all(getattr(honcho_fallback.simulate, name).__doc__ for name in names)
    code = "import sys, honcho_fallback.simulate; print({'matplotlib', 'rich'} & {*sys.modules})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


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


def test_a_shipped_scenario_is_printed_as_a_table() -> None:
    """What happens in it, and a line for each policy."""
    result = run("outage", "--calls", 200)
    assert result.exit_code == 0
    assert "20 minutes" in result.stdout
    assert [line.split()[0] for line in result.stdout.splitlines()[2:5]] == [
        "default",
        "resilient",
        "retry-then-next",
    ]


def test_files_side_by_side(mine: Path, tmp_path: Path) -> None:
    """Two policies on one incident, beside the peer."""
    for name, timeout in (("a", 20), ("b", 0.5)):
        (tmp_path / f"{name}.toml").write_text(f"timeout = {timeout}")
    reports = figures(mine, "--policy", tmp_path / "a.toml", "--policy", tmp_path / "b.toml")
    assert [*reports] == ["a", "b", "retry-then-next"]
    assert reports["a"]["requests"] == {"p/one": 10, "f/two": 5}
    assert (reports["a"]["answered"], reports["b"]["answered"]) == (10, 0)


def test_seed_and_calls(mine: Path) -> None:
    """The same seed, the same figures; another number of calls, another rate."""
    args = ("outage", "--policy", "default", "--calls", 100)
    assert figures(*args, "--seed", 3) == figures(*args, "--seed", 3) != figures(*args)
    assert figures(mine, "--policy", "default", "--calls", 40)["default"]["calls"] == 40


def test_saved_records_are_played_again(tmp_path: Path) -> None:
    """A file of JSON lines is a scenario; what is assumed is said."""
    records = simulate(incident(failing(starts=5)), FallbackConfig()).records
    path = tmp_path / "tuesday.jsonl"
    path.write_text("\n".join(json.dumps(record.to_dict()) for record in records))
    assert figures(path, "--policy", "default")["default"]["wasted"] == 5
    printed = run(path, "--policy", "default").stdout
    assert printed.startswith("tuesday: 10 calls on record")
    assert "assumed: each call is a turn of its own" in printed


def test_the_shipped_ones_are_listed() -> None:
    """By name, with what happens."""
    result = run("--list")
    assert result.exit_code == 0
    for name in shipped():
        assert name in result.stdout


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ((), "name a scenario, such as outage; --list shows those shipped"),
        (("otage",), "otage: no such file (No such file or directory) or name; did you mean"),
        (
            ("outage", "--policy", "x"),
            "x: no such file (No such file or directory) or name; choose from",
        ),
        (("outage", "--policy", "default", "--policy", "default"), "'default' is there twice; gi"),
        (("outage", "--calls", "0"), "calls: got 0; pass 1 or more"),
        (("none.jsonl",), "none.jsonl: No such file or directory; pass a file with a record"),
    ],
)
def test_a_mistake_is_status_2_and_one_line(args: tuple[str, ...], message: str) -> None:
    """What, where, and what to do, on standard error."""
    result = run(*args)
    assert (result.exit_code, result.stdout) == (2, "")
    assert message in result.stderr


def test_interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C ends with 130 and no traceback, as with the other commands."""

    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(_simulate, "compare", interrupt)
    result = run("outage")
    assert (result.exit_code, result.output) == (130, "")
