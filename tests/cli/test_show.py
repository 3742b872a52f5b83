"""``honcho-fallback show``."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from rich.cells import cell_len
from typer.testing import CliRunner

from honcho_fallback import Failure, FailureKind
from honcho_fallback.cli._app import app
from tests.helpers.records import EVERY_OUTCOME, WAITED, call, with_attempts

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from typer.testing import Result

    from honcho_fallback import CallRecord

NOON = datetime(2026, 11, 22, 12, tzinfo=UTC).timestamp()
MARKUP = "[red]x[/red]:warning:"
OK = call(("succeed", 1))


def at(minutes: float, record: CallRecord = OK, **fields: Any) -> CallRecord:
    """Return the call, so many minutes after noon UTC."""
    return replace(record, started_at=NOON + minutes * 60, **fields)


def lines(records: Iterable[CallRecord]) -> str:
    """One record per line, as programs save them."""
    return "".join(f"{json.dumps(record.to_dict())}\n" for record in records)


def show(*args: str | Path, stdin: str | bytes | None = None, columns: int = 80) -> Result:
    """Run the command in a terminal of so many columns."""
    env = {"COLUMNS": str(columns)}
    return CliRunner().invoke(app, ["show", *map(str, args)], input=stdin, env=env)


def chosen(*args: str, records: Iterable[CallRecord]) -> list[str]:
    """Return the ids of the calls that the options choose."""
    result = show("-", "--json", *args, stdin=lines(records))
    assert result.exit_code == 0, result.stderr
    parsed = json.loads(result.stdout)
    assert parsed["figures"]["calls"] == len(parsed["calls"])
    return [record["call_id"] for record in parsed["calls"]]


@pytest.fixture(autouse=True)
def berlin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let local time be an hour before UTC."""
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    """Calls of every outcome, a minute apart, in a file."""
    path = tmp_path / "records.jsonl"
    records = [*EVERY_OUTCOME.values(), WAITED]
    path.write_text(lines(at(minute, record) for minute, record in enumerate(records)))
    return path


def test_figures_come_first_then_calls(saved: Path) -> None:
    """What it comes to, and a line for each call, in local time; the same as JSON for machines."""
    result = show(saved, columns=200)
    assert (result.exit_code, result.stderr) == (0, "")
    parsed = json.loads(show(saved, "--json").stdout)
    figures = parsed["figures"]
    assert {name: figures.pop(name) for name in ("calls", "requests", "switches")} == {
        "calls": 8,
        "requests": 15,
        "switches": 6,
    }
    assert figures == {
        "outcomes": {"success": 2, **dict.fromkeys([*EVERY_OUTCOME][1:], 1)},
        "answered_by": {"anthropic/claude-sonnet-5": 2, "openai/gpt-5.5": 1},
        "failures": {
            f"{kind} StatusError {status}: {Failure.of(FailureKind(kind)).next_action}": count
            for count, kind, status in (
                (8, "overloaded", 503),
                (1, "rate_limit", 429),
                (1, "authentication", 401),
                (1, "invalid_request", 400),
            )
        },
        "failures_by_target": {
            "openai/gpt-5.5": 8,
            "anthropic/claude-sonnet-5": 2,
            "lmstudio/qwen3-4b": 1,
        },
    }
    assert parsed["calls"][-1] == at(7, WAITED).to_dict()
    head, *shown = result.stdout.splitlines()
    assert head == "8 calls, 15 requests, 6 switches"
    for name, counts in figures.items():
        block = ["", name.replace("_", " "), *(f"{n:>8}  {one}" for one, n in counts.items())]
        assert shown[: len(block)] == block
        shown = shown[len(block) :]
    first = "openai/gpt-5.5 rate_limit -> anthropic/claude-sonnet-5"
    assert shown[:2] == ["", f"1 2026-11-22 13:00:00    4.00 s success     greeter {first}"]
    path = "openai/gpt-5.5 2x overloaded -> anthropic/claude-sonnet-5"
    assert shown[-1] == f"8 2026-11-22 13:07:00    8.00 s success     greeter {path}"
    assert show("-", stdin=saved.read_bytes(), columns=200).stdout == result.stdout


def test_names_are_text_and_fit_the_terminal() -> None:
    """Markup and escape sequences do nothing, and no line is longer than the terminal is wide."""
    name = f"{MARKUP}\x1b[31m" + "\u6a21\u578b" * 20
    record = with_attempts(at(0, agent=name, answered_by=name), target=name)
    text = show("-", stdin=lines([record])).stdout
    assert f"{MARKUP}\ufffd[31m" in text
    assert "\x1b" not in text + show("-", "--call", "1", stdin=lines([record])).stdout
    assert max(map(cell_len, text.splitlines())) <= 80


def test_calls_are_chosen_by_what_they_are() -> None:
    """By agent, by outcome, by a switch, by how many there are at the end, and by all together.

    They stand in the order in which they began: several processes may have written to one file.
    """
    early, late = at(1, call_id="a"), at(2, call_id="b")
    assert chosen(records=[late, early]) == ["a", "b"]
    assert chosen("--call", "1", records=[late, early]) == ["b"]
    records = [
        at(minute, record, call_id=outcome, agent="odd" if minute % 2 else "even")
        for minute, (outcome, record) in enumerate(EVERY_OUTCOME.items())
    ]
    names = [*EVERY_OUTCOME]
    for options, wanted in {
        "--agent odd": names[1::2],
        "--agent odd --agent even": names,
        "--outcome running --outcome success": ["success", "running"],
        "--switched": ["success", "exhausted", "cancelled", "interrupted"],
        "--last 2": names[-2:],
        "--agent odd --switched --last 1": ["cancelled"],
        "--call rejected": ["rejected"],
        "--call 4": [names[3]],
    }.items():
        assert chosen(*options.split(), records=records) == wanted


def test_one_call_in_detail(saved: Path) -> None:
    """When it began, and the record in words."""
    for call_id in ("8", WAITED.call_id):
        text = show(saved, "--call", call_id, columns=120).stdout
        assert text == f"8. 2026-11-22 13:07:00\n{WAITED.explain()}\n"


def test_a_broken_line_is_named_and_the_others_are_shown(saved: Path) -> None:
    """Each complaint names file and line on standard error; the exit status is 1."""
    good = saved.read_text().splitlines()
    saved.write_text("\n".join([good[0], "{", good[1], '{"a": 1}', good[2]]))
    foreign = "no record of a call: call_id: Field required (and 11 more)"
    for args in ((), ("--json",)):
        result = show(saved, *args)
        assert result.exit_code == 1
        assert result.stderr.splitlines() == [
            f"honcho-fallback: {saved}: line 2: not JSON",
            f"honcho-fallback: {saved}: line 4: {foreign}",
        ]
    assert show(saved).stdout.startswith("3 calls, ")


@pytest.mark.parametrize("moment", ["1e999", "NaN", "null", "253402300800", "1e300", "{}"])
def test_a_moment_that_is_none_is_a_broken_line(moment: str) -> None:
    """A sentence says so, whoever wrote the file, and there is no traceback."""
    line = json.dumps({**OK.to_dict(), "started_at": "HERE"}).replace('"HERE"', moment)
    assert "standard input: line 1: " in show("-", stdin=line).stderr


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["none.jsonl"], "none.jsonl: No such file or directory; check the path"),
        (["."], ".: Is a directory; check the path"),
        (["-", "--last", "0"], "--last"),
        ([], "Missing argument"),
    ],
)
def test_what_cannot_be_is_refused(args: list[str], words: str) -> None:
    """Bad input gets one clear message on standard error and exit status 2."""
    result = show(*args, stdin=lines([OK]))
    assert result.exit_code == 2
    assert words in result.stderr
    assert result.stdout == ""
