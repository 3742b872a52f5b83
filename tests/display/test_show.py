"""``honcho-fallback show``."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from honcho_fallback.cli._app import app
from tests.helpers.records import EVERY_OUTCOME, RIGHT_TO_LEFT, WAITED

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from typer.testing import Result

    from honcho_fallback import CallRecord

WIDE = {"COLUMNS": "160"}


def lines(records: Iterable[CallRecord]) -> str:
    """One record per line, as programs save them."""
    return "".join(f"{json.dumps(record.to_dict())}\n" for record in records)


def show(*args: str | Path, stdin: str | bytes | None = None) -> Result:
    """Run the command."""
    return CliRunner().invoke(app, ["show", *map(str, args)], input=stdin, env=WIDE)


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    """Calls of every outcome, in a file."""
    path = tmp_path / "records.jsonl"
    path.write_text(lines([*EVERY_OUTCOME.values(), WAITED]))
    return path


def test_every_call_is_drawn_and_counted(saved: Path) -> None:
    """A time line for each, then the figures; from a file and from standard input alike."""
    result = show(saved)
    assert (result.exit_code, result.stderr) == (0, "")
    for record in EVERY_OUTCOME.values():
        assert record.call_id in result.stdout
    assert "......xx" in result.stdout
    figures = result.stdout.partition("\ncalls ")[2].split()
    assert figures[:5] == ["8", "requests", "15", "switches", "6"]
    assert show("-", stdin=saved.read_bytes()).stdout == result.stdout


def test_a_broken_line_is_named_and_the_others_are_shown(saved: Path) -> None:
    """Each complaint names file and line on standard error; the exit status is 1."""
    good = saved.read_text().splitlines()
    saved.write_text("\n".join([good[0], "{", good[1], '{"a": 1}', good[2]]))
    result = show(saved)
    assert result.exit_code == 1
    foreign = "no record of a call: call_id: Field required (and 11 more)"
    assert result.stderr.splitlines() == [
        f"honcho-fallback: {saved}: line 2: not JSON",
        f"honcho-fallback: {saved}: line 4: {foreign}",
    ]
    assert result.stdout.count("of agent greeter") == 3
    assert "Traceback" not in result.output


@pytest.mark.parametrize("text", ["", "\n\n"])
def test_an_empty_file_says_so(tmp_path: Path, text: str) -> None:
    """It is no error, and no empty table."""
    path = tmp_path / "records.jsonl"
    path.write_text(text)
    assert (show(path).exit_code, show(path).stdout.replace("\n", "")) == (
        0,
        f"No calls in {path}.",
    )
    assert show("-", stdin=text).stdout == "No calls in standard input.\n"


def test_calls_are_chosen(saved: Path) -> None:
    """By outcome, by how many there are at the end, and by both."""
    some = show(saved, "--outcome", "success", "--outcome", "rejected")
    assert some.stdout.count("of agent greeter") == 3
    last = show(saved, "--last", "2")
    assert last.stdout.count("of agent greeter") == 2
    assert WAITED.call_id in last.stdout
    both = show(saved, "--last", "1", "--outcome", "exhausted")
    assert EVERY_OUTCOME["exhausted"].call_id in both.stdout


def test_a_page_is_written_instead(saved: Path, tmp_path: Path) -> None:
    """The page holds what was chosen; the terminal says where it is."""
    page = tmp_path / "calls.html"
    result = show(saved, "--html", page, "--last", "3")
    assert (result.exit_code, result.stdout) == (0, f"{page}: 3 calls from {saved}\n")
    assert page.read_text("utf-8").count('aria-label="call"') == 3
    saved.write_text(f"{lines([WAITED])}nonsense")
    assert show(saved, "--html", page).exit_code == 1
    assert page.read_text("utf-8").count('aria-label="call"') == 1


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["none.jsonl"], "none.jsonl: No such file or directory; check the path"),
        (["."], ".: Is a directory; check the path"),
        (["-", "--outcome", "won"], "--outcome: got 'won'; pass one of running, success"),
        (["-", "--html", "none/calls.html"], "none/calls.html: No such file or directory; check"),
        (["-", "--last", "0"], "--last"),
        ([], "Missing argument"),
    ],
)
def test_what_cannot_be_is_refused(
    args: list[str], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bad input gets one clear message on standard error and exit status 2."""
    monkeypatch.chdir(tmp_path)
    result = show(*args, stdin="")
    assert result.exit_code == 2
    assert words in result.stderr
    assert result.stdout == ""


def test_ten_thousand_calls_make_a_page(tmp_path: Path) -> None:
    """Every one of them is on it."""
    saved, page = tmp_path / "records.jsonl", tmp_path / "calls.html"
    saved.write_text(lines([EVERY_OUTCOME["success"]]) * 10_000)
    assert show(saved, "--html", page).exit_code == 0
    assert page.read_text("utf-8").count('aria-label="call"') == 10_000


def test_a_terminal_without_utf8_shows_names_all_the_same(tmp_path: Path) -> None:
    """What it has no character for is written out."""
    saved = tmp_path / "records.jsonl"
    saved.write_text(lines([replace(WAITED, agent=RIGHT_TO_LEFT.replace("\ud800", ""))]))
    env = {**os.environ, **WIDE, "PYTHONIOENCODING": "ascii"}
    command = [sys.executable, "-W", "error", "-m", "honcho_fallback.cli", "show", str(saved)]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert "\\u05de" in done.stdout


@pytest.mark.skipif(sys.platform == "win32", reason="signals are POSIX's")
def test_an_interrupt_ends_quietly() -> None:
    """Ctrl-C while it reads exits with 130, without a traceback."""
    command = [sys.executable, "-m", "honcho_fallback.cli", "show", "-"]
    with subprocess.Popen(
        command,
        env={**os.environ, **WIDE, "PYTHONUNBUFFERED": "1"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as showing:
        assert showing.stdin is not None
        assert showing.stdout is not None
        showing.stdin.write(lines([WAITED]))
        showing.stdin.flush()
        assert showing.stdout.readline().startswith("Call ")
        showing.send_signal(signal.SIGINT)
        _, complained = showing.communicate()
    assert (showing.returncode, complained) == (130, "")
