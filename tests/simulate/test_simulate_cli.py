"""``honcho-fallback simulate``: what is printed, written and refused."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from incidents import failing, incident
from typer.testing import CliRunner

from honcho_fallback import FallbackConfig
from honcho_fallback.cli import _simulate
from honcho_fallback.cli._app import app
from honcho_fallback.testing.simulate import contenders, shipped, simulate

if TYPE_CHECKING:
    from pathlib import Path

    from typer.testing import Result

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


def run(*args: object) -> Result:
    return CliRunner().invoke(app, ["simulate", *map(str, args)])


def figures(*args: object) -> dict[str, Any]:
    """What ``--json`` prints, by policy."""
    result = run(*args, "--json")
    assert result.exit_code == 0, result.output
    told: dict[str, Any] = json.loads(result.stdout)
    return {one["name"]: one for one in told["reports"]}


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    path = tmp_path / "mine.toml"
    path.write_text(SCENARIO)
    return path


def test_without_policies_the_default_ones_are_compared() -> None:
    """A shipped scenario by name; a table and two plots."""
    result = run("outage", "--calls", 200)
    assert result.exit_code == 0
    for name in contenders():
        assert result.stdout.count(f"{name} ") == 3
    assert "20 minutes" in result.stdout


def test_files_side_by_side(mine: Path, tmp_path: Path) -> None:
    """Two policies on one incident: a figure each."""
    for name, timeout in (("a", 20), ("b", 0.5)):
        (tmp_path / f"{name}.toml").write_text(f"timeout = {timeout}")
    found = figures(mine, "--policy", tmp_path / "a.toml", "--policy", tmp_path / "b.toml")
    assert [*found] == ["a", "b"]
    assert found["a"]["requests"] == {"p/one": 10, "f/two": 5}
    assert (found["a"]["answered"], found["b"]["answered"]) == (10, 0)


def test_seed_and_calls(mine: Path) -> None:
    """The same seed, the same figures; another number of calls, another rate."""
    args = ("outage", "--policy", "default", "--calls", 100)
    assert figures(*args, "--seed", 3) == figures(*args, "--seed", 3) != figures(*args)
    assert figures(mine, "--policy", "default", "--calls", 40)["default"]["calls"] == 40


def test_a_page_is_written(mine: Path, tmp_path: Path) -> None:
    """One file, which stands alone."""
    path = tmp_path / "page.html"
    assert run(mine, "--html", path).exit_code == 0
    assert path.read_text().startswith("<!DOCTYPE html>")
    refused = run(mine, "--html", tmp_path / "no" / "page.html")
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert "name another file" in refused.stderr


def test_a_page_that_has_no_folder_is_refused_before_the_play(
    mine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A long play is not made for a page that nobody could write."""

    def never(*_args: object) -> None:
        pytest.fail("it was played")

    monkeypatch.setattr("honcho_fallback.cli._simulate.played", never)
    refused = run(mine, "--html", tmp_path / "no" / "page.html")
    assert refused.exit_code == 2
    assert "no is no folder; make it" in refused.stderr


def test_saved_records_are_played_again(tmp_path: Path) -> None:
    """A file of JSON lines is a scenario; what was taken for granted is told."""
    records = simulate(incident(failing(starts=5)), FallbackConfig()).records
    path = tmp_path / "tuesday.jsonl"
    path.write_text("\n".join(json.dumps(record.to_dict()) for record in records))
    found = figures(path, "--policy", "default")["default"]
    assert (found["scenario"], found["wasted"]) == ("tuesday", 5)
    assert "taken for granted: each call is a turn" in run(path, "--policy", "default").stdout


def test_the_shipped_ones_are_listed() -> None:
    """By name, with what happens."""
    result = run("--list")
    assert result.exit_code == 0
    for name in shipped():
        assert name in result.stdout


@pytest.mark.parametrize(
    ("args", "told"),
    [
        ((), "name a scenario, such as outage; --list shows those shipped"),
        (("otage",), "otage: No such file or directory; pass a TOML file or a shipped name:"),
        (("outage", "--policy", "x"), "x: No such file or directory; pass a TOML file or a name"),
        (("outage", "--policy", "default", "--policy", "default"), "'default' is taken; give"),
        (("outage", "--calls", "0"), "calls: got 0; pass 1 or more"),
        (("none.jsonl",), "none.jsonl: No such file or directory; pass a file with a record"),
    ],
)
def test_a_mistake_is_status_2_and_one_line(args: tuple[str, ...], told: str) -> None:
    """What, where, and what to do, on standard error."""
    result = run(*args)
    assert (result.exit_code, result.stdout) == (2, "")
    assert told in result.stderr


def test_interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C ends with 130 and no traceback, as with the other commands."""

    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(_simulate, "compare", interrupt)
    result = run("outage")
    assert (result.exit_code, result.output) == (130, "")
