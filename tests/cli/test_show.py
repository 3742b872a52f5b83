"""``honcho-fallback show``."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from rich.cells import cell_len
from typer.testing import CliRunner

from honcho_fallback.cli._app import app
from tests.helpers.records import CHAIN, EVERY_OUTCOME, RIGHT_TO_LEFT, WAITED, call, with_attempts

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    from typer.testing import Result

    from honcho_fallback import CallRecord

NOON = datetime(2026, 11, 22, 12, tzinfo=UTC).timestamp()
NARROW = {"COLUMNS": "80"}
MARKUP, WIDE = "[red]x[/red]", "\u6a21\u578b" * 20
OK = call(("succeed", 1))


def at(minutes: float, record: CallRecord = OK, **fields: Any) -> CallRecord:
    """Return the call, so many minutes after noon UTC."""
    return replace(record, started_at=NOON + minutes * 60, **fields)


def lines(records: Iterable[CallRecord]) -> str:
    """One record per line, as programs save them."""
    return "".join(f"{json.dumps(record.to_dict())}\n" for record in records)


def show(
    *args: str | Path, stdin: str | bytes | None = None, env: Mapping[str, str] = NARROW
) -> Result:
    """Run the command in a terminal of 80 columns."""
    return CliRunner().invoke(app, ["show", *map(str, args)], input=stdin, env=env)


def chosen(*args: str, records: Iterable[CallRecord]) -> list[str]:
    """Return the ids of the calls that the options choose."""
    result = show("-", "--json", *args, stdin=lines(records))
    assert result.exit_code == 0, result.stderr
    return [record["call_id"] for record in json.loads(result.stdout)["calls"]]


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


def test_figures_come_first_then_periods_then_calls(saved: Path) -> None:
    """What it comes to, when it happened, and a line for each call, in local time."""
    result = show(saved)
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout.splitlines() == [
        "8 calls, 15 requests, 6 switches",
        "2026-11-22 13:00:00 to 2026-11-22 13:07:00 CET",
        "",
        "outcomes",
        f"  {'success':40}        2   25.0%",
        *(f"  {name:40}        1   12.5%" for name in [*EVERY_OUTCOME][1:]),
        "",
        "answered by",
        f"  {'anthropic/claude-sonnet-5':40}        2   25.0%",
        f"  {'openai/gpt-5.5':40}        1   12.5%",
        "",
        "failures by kind",
        f"  {'overloaded':40}        8   72.7%",
        *(
            f"  {kind:40}        1    9.1%"
            for kind in ("rate_limit", "authentication", "invalid_request")
        ),
        "",
        "failures by target",
        f"  {'openai/gpt-5.5':40}        8   72.7%",
        f"  {'anthropic/claude-sonnet-5':40}        2   18.2%",
        f"  {'lmstudio/qwen3-4b':40}        1    9.1%",
        "",
        "by minute             calls switched   failed",
        "  2026-11-22 13:00        1        1        0",
        "  2026-11-22 13:01        1        1        1",
        "  2026-11-22 13:02        1        0        1",
        "  2026-11-22 13:03        1        1        0",
        "  2026-11-22 13:04        1        1        1",
        "  2026-11-22 13:05        1        0        0",
        "  2026-11-22 13:06        1        0        0",
        "  2026-11-22 13:07        1        1        0",
        "",
        "#     time    s outcome     agent   path",
        "2026-11-22",
        "1 13:00:00 4.00 success     greeter gpt-5.5 rate_limit -> claude-sonnet-5",
        "2 13:01:00 5.00 exhausted   greeter gpt-5.5 overloaded -> claude-sonnet-5 ove...",
        "3 13:02:00 2.00 rejected    greeter gpt-5.5 invalid_request",
        "4 13:03:00 3.00 cancelled   greeter gpt-5.5 overloaded -> claude-sonnet-5 can...",
        "5 13:04:00 4.00 interrupted greeter gpt-5.5 overloaded -> claude-sonnet-5 ove...",
        "6 13:05:00 2.00 abandoned   greeter gpt-5.5",
        "7 13:06:00 0.00 running     greeter gpt-5.5 overloaded",
        "8 13:07:00 8.00 success     greeter gpt-5.5 2x overloaded -> claude-sonnet-5",
    ]
    assert show("-", stdin=saved.read_bytes()).stdout == result.stdout


@pytest.mark.parametrize("width", [80, 60])
def test_five_hundred_calls_fit_the_terminal(width: int) -> None:
    """One line each, none longer than the terminal is wide, whatever the names are."""
    names = [
        WIDE,
        MARKUP,
        RIGHT_TO_LEFT.replace("\ud800", ""),
        "\u0645\u06cc\u200c\u062e",
        "a" * 99,
    ]
    chance = random.Random(1)  # noqa: S311 # a sample
    records = [
        with_attempts(
            at(number, chance.choice([*EVERY_OUTCOME.values()]), agent=chance.choice(names)),
            target=chance.choice(names),
        )
        for number in range(500)
    ]
    shown = show("-", stdin=lines(records), env={"COLUMNS": str(width)}).stdout.splitlines()
    assert max(map(cell_len, shown)) <= width
    assert [int(line.split()[0]) for line in shown if re.match(r" *\d+ \d\d:", line)] == [
        *range(1, 501)
    ]


def test_a_long_name_is_cut_and_leaves_room() -> None:
    """An agent keeps to its column, also in letters of two cells, and the path is there."""
    for agent in ("a" * 99, "\u6a21" * 11):
        text = show("-", stdin=lines([at(0, agent=agent)])).stdout
        assert re.search(r"success (a+|\u6a21+) ?\.\.\. gpt-5\.5\n", text)


def test_names_are_text() -> None:
    """Markup, emoji codes and escape sequences are printed and do nothing."""
    name = f"{MARKUP}:warning:\x1b[31m"
    record = with_attempts(at(0, agent="[bold]", answered_by=name), target=name)
    for args in ((), ("--call", "1")):
        text = show("-", *args, stdin=lines([record])).stdout
        assert f"{MARKUP}:warning:\ufffd[31m" in text
        assert "[bold]" in text
        assert "\x1b" not in text


def test_times_are_local_or_utc() -> None:
    """A line says when the day changes; ``--utc`` is for those who compare with a server's log."""
    records = lines([at(0), at(11 * 60 + 30)])
    local, utc = (show("-", *args, stdin=records).stdout for args in ((), ("--utc",)))
    assert "2026-11-22 13:00:00 to 2026-11-23 00:30:00 CET\n" in local
    assert re.findall(r"^(?:\d{4}-\d\d-\d\d|\d \d\d:\d\d:\d\d)", local, re.MULTILINE)[1:] == [
        "2026-11-22",
        "1 13:00:00",
        "2026-11-23",
        "2 00:30:00",
    ]
    assert "2026-11-22 12:00:00 to 2026-11-22 23:30:00 UTC\n" in utc
    assert utc.count("\n2026-11-22\n") == 1


@pytest.mark.parametrize(
    ("hours", "head", "first"),
    [
        (0.2, "minute", "2026-11-22 13:00"),
        (1, "5 minutes", "2026-11-22 13:00"),
        (12, "hour", "2026-11-22 13:00"),
        (24 * 20, "day", "2026-11-22 00:00"),
        (24 * 40, "day", "2026-11-22 00:00"),
    ],
)
def test_periods_are_as_long_as_the_file_needs(hours: float, head: str, first: str) -> None:
    """Some twenty rows unless days are more, on the clock's own hours and days; none is empty."""
    count = 50
    records = [at(number * hours * 60 / count) for number in range(count)]
    text = show("-", stdin=lines(records)).stdout
    rows = re.search(rf"^by {head} .*\n((?:  \d.*\n)+)", text, re.MULTILINE)
    assert rows is not None
    assert rows[1].startswith(f"  {first} ")
    assert len(rows[1].splitlines()) <= max(24, hours / 24)
    assert sum(int(row.split()[2]) for row in rows[1].splitlines()) == count


def test_calls_stand_in_the_order_in_which_they_began() -> None:
    """Several processes may have written to one file; the numbers are those of the lines."""
    assert chosen(records=[at(2, call_id="b"), at(1, call_id="a")]) == ["a", "b"]
    shown = show("-", stdin=lines([at(2), at(1)])).stdout
    assert re.findall(r"^(\d) 13:", shown, re.MULTILINE) == ["2", "1"]


@pytest.mark.parametrize(
    ("since", "ids"),
    [
        ("2m", "cd"),
        ("90s", "d"),
        ("1.5h", "bcd"),
        ("1d", "bcd"),
        ("2d", "abcd"),
        ("13:08", "cd"),
        ("13:10:00", "d"),
        ("13:11", "bcd"),  # the last call is at 13:10: yesterday's
        ("2026-11-22", "bcd"),
        ("2026-11-22T13:09", "d"),
        ("2026-11-22T12:09Z", "d"),
        ("2027-01-01", ""),
    ],
)
def test_since(since: str, ids: str) -> None:
    """A clock time, an ISO date or time, local unless it says otherwise, or a duration."""
    records = [
        at(minutes, call_id=name) for name, minutes in zip("abcd", (-1500, 0, 8, 10), strict=True)
    ]
    assert "".join(chosen("--since", since, records=records)) == ids


def test_since_is_in_the_zone_that_is_shown() -> None:
    """With ``--utc`` the clock time is UTC, too."""
    records = [at(minutes, call_id=name) for name, minutes in (("a", 0), ("b", 10))]
    assert chosen("--utc", "--since", "12:05", records=records) == ["b"]


def test_calls_are_chosen_by_what_they_are() -> None:
    """By agent, by outcome, by a switch, by how many there are at the end, and by all together."""
    records = [
        at(minute, record, call_id=outcome, agent="odd" if minute % 2 else "even")
        for minute, (outcome, record) in enumerate(EVERY_OUTCOME.items())
    ]
    names = [*EVERY_OUTCOME]
    switched = ["success", "exhausted", "cancelled", "interrupted"]
    assert chosen("--agent", "odd", records=records) == names[1::2]
    assert chosen("--agent", "odd", "--agent", "even", records=records) == names
    assert chosen("--outcome", "running", "--outcome", "success", records=records) == [
        "success",
        "running",
    ]
    assert chosen("--switched", records=records) == switched
    assert chosen("--last", "2", records=records) == names[-2:]
    assert chosen("--agent", "odd", "--switched", "--last", "1", records=records) == ["cancelled"]
    assert chosen("--call", "rejected", records=records) == ["rejected"]
    assert chosen("--call", "4", records=records) == [names[3]]


def test_nothing_chosen_says_by_which_options(saved: Path) -> None:
    """An empty choice is no error; it says what was asked for."""
    options = ["--since", "1h", "--agent", "a", "--agent", "b", "--outcome", "running"]
    result = show(
        saved, *options, "--last", "3", "--switched", "--call", "x", env={"COLUMNS": "300"}
    )
    assert result.exit_code == 0
    assert result.stdout == (
        f"No calls in {saved}. Of its 8 calls none has --since 1h --agent a, b "
        "--outcome running --switched --last 3 --call x.\n"
    )


@pytest.mark.parametrize("text", ["", "\n\n"])
def test_an_empty_file_says_so(text: str) -> None:
    """It is no error, and no empty table; the options are still looked at."""
    assert show("-", stdin=text).stdout == "No calls in standard input.\n"
    assert show("-", "--since", "12:00", stdin=text).stdout == "No calls in standard input.\n"
    assert show("-", "--since", "noon", stdin=text).exit_code == 2


def test_one_call_in_detail(saved: Path) -> None:
    """When it began, the record in words, and its time line."""
    text = show(saved, "--call", "8", env={"COLUMNS": "120"}).stdout
    assert text.startswith(f"8. 2026-11-22 13:07:00+01:00\n{WAITED.explain()}\n   1 xxxxxxxx\n")
    assert show(saved, "--call", WAITED.call_id, env={"COLUMNS": "120"}).stdout == text


def test_json_holds_figures_and_calls(saved: Path) -> None:
    """Machines get what people get, and each record as it was saved."""
    parsed = json.loads(show(saved, "--json", "--switched").stdout)
    assert parsed["figures"] == {
        "calls": 5,
        "requests": 12,
        "switches": 6,
        "outcomes": {"success": 2, "exhausted": 1, "cancelled": 1, "interrupted": 1},
        "answered_by": {"anthropic/claude-sonnet-5": 2},
        "failures_by_kind": {"overloaded": 7, "rate_limit": 1, "authentication": 1},
        "failures_by_target": {
            "openai/gpt-5.5": 6,
            "anthropic/claude-sonnet-5": 2,
            "lmstudio/qwen3-4b": 1,
        },
    }
    assert parsed["calls"][-1] == at(7, WAITED).to_dict()


def test_a_page_is_written_instead(saved: Path, tmp_path: Path) -> None:
    """It holds what the terminal would; names are text, and nothing is fetched."""
    page = tmp_path / "calls.html"
    script = "<script>alert(1)</script>"
    saved.write_text(lines([at(0, agent=script), at(1, agent=script), at(2, agent="other")]))
    result = show(saved, "--html", page, "--last", "2")
    assert result.exit_code == 0
    assert result.stdout == f"{page}: 2 calls from {saved}\n"
    html = page.read_text("utf-8")
    assert "&lt;script&gt;" in html
    assert "13:01:00" in html
    assert "13:00:00 1" not in html
    assert not re.search(r"<script|<link|url\(|src=|https?:", html)
    saved.write_text(f"{lines([WAITED])}nonsense")
    assert show(saved, "--html", page).exit_code == 1


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


@pytest.mark.parametrize("started_at", [1e300, -1e300, 1e12, 0.0, -1.0])
def test_a_start_that_no_calendar_has_is_left_out(started_at: float) -> None:
    """The call is counted and listed all the same."""
    record = replace(WAITED, started_at=started_at)
    result = show("-", "--since", "1d", "--json", stdin=lines([record]))
    assert (result.exit_code, result.exception) == (0, None)
    for args in ((), ("--call", "1")):
        assert show("-", *args, stdin=lines([record])).exit_code == 0
    assert "8.00 success" in show("-", stdin=lines([record])).stdout


def test_targets_of_one_name_keep_their_provider() -> None:
    """The provider is left out only where the rest says who it is."""
    names = [target.name for target in CHAIN[:2]]
    record = with_attempts(OK, target="azure/gpt-5.5")
    text = show("-", stdin=lines([at(0), at(1, record), at(2, EVERY_OUTCOME["success"])])).stdout
    assert re.findall(r"greeter (\S+)", text) == [names[0], "azure/gpt-5.5", names[0]]
    assert " -> claude-sonnet-5\n" in text


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["none.jsonl"], "none.jsonl: No such file or directory; check the path"),
        (["."], ".: Is a directory; check the path"),
        (["-", "--outcome", "won"], "--outcome: got 'won'; pass one of running, success"),
        (["-", "--since", "yesterday"], "--since: got 'yesterday'; pass a time such as 14:05"),
        (["-", "--since", "25:00"], "--since: got '25:00'"),
        (["-", "--since", "999999999d"], "--since: got '999999999d'"),
        (["-", "--html", "none/calls.html"], "none/calls.html: No such file or directory; check"),
        (["-", "--html", "x.html", "--json"], "--json and --html: pass one of them"),
        (["-", "--last", "0"], "--last"),
        ([], "Missing argument"),
    ],
)
def test_what_cannot_be_is_refused(
    args: list[str], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bad input gets one clear message on standard error and exit status 2."""
    monkeypatch.chdir(tmp_path)
    result = show(*args, stdin=lines([OK]))
    assert result.exit_code == 2
    assert words in result.stderr
    assert result.stdout == ""
    assert not [*tmp_path.iterdir()]


COMMAND = [sys.executable, "-m", "honcho_fallback.cli", "show"]


def test_a_terminal_without_utf8_shows_names_all_the_same(tmp_path: Path) -> None:
    """What it has no character for is written out."""
    saved = tmp_path / "records.jsonl"
    saved.write_text(lines([replace(WAITED, agent=RIGHT_TO_LEFT.replace("\ud800", ""))]))
    env = {**os.environ, **NARROW, "PYTHONIOENCODING": "ascii"}
    done = subprocess.run(
        [*COMMAND, str(saved)], env=env, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "\\u05de" in done.stdout


@pytest.mark.skipif(sys.platform == "win32", reason="pipes are POSIX's")
@pytest.mark.parametrize("options", [[], ["--json"]])
def test_a_reader_who_leaves_is_no_error(saved: Path, options: list[str]) -> None:
    """``| head`` ends it without a word."""
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "wb") as nobody_reads:
        command = [*COMMAND, str(saved), *options]
        done = subprocess.run(command, stdout=nobody_reads, stderr=subprocess.PIPE, check=False)
    assert done.stderr == b""


@pytest.mark.skipif(sys.platform == "win32", reason="signals are POSIX's")
def test_an_interrupt_ends_quietly() -> None:
    """Ctrl-C while it reads exits with 130, without a traceback."""
    with subprocess.Popen(
        [*COMMAND, "-"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as showing:
        assert showing.stdin is not None
        assert showing.stderr is not None
        showing.stdin.write(b"no record\n")
        showing.stdin.flush()
        # It is reading: it has complained of the first line.
        assert b"line 1" in showing.stderr.readline()
        showing.send_signal(signal.SIGINT)
        _, complaints = showing.communicate()
    assert (showing.returncode, complaints) == (130, b"")
