"""Every call leaves a line in a file that comes back as it was, and a record that can be shown."""

from __future__ import annotations

import copy
import io
import json
import os
import pickle
import re
from dataclasses import replace
from datetime import UTC, datetime
from html import unescape
from threading import Thread
from typing import TYPE_CHECKING, Any

import pytest
from rich.console import Console

from honcho_fallback import (
    CallRecord,
    FallbackConfigError,
    FallbackPolicy,
    Target,
)
from honcho_fallback.cli._show import Call, show_in_detail
from honcho_fallback.records import JsonlObserver, RecordError, read_records
from tests.helpers.processes import python
from tests.helpers.records import (
    EVERY_OUTCOME,
    HOSTILE,
    HOSTILE_CALL,
    WAITED,
    of_many_attempts,
    with_attempts,
)

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

LINE = json.dumps(WAITED.to_dict())
SECRET = "sk-secret"


def test_a_file_its_lines_and_its_path_are_the_same(tmp_path: Path) -> None:
    """A path in both forms, an open file, bytes and strings; line ends and empty lines vary.

    A path that is not there is no empty list.
    """
    path = tmp_path / "records.jsonl"
    path.write_bytes(f"\n{LINE}\r\n\n  \n{LINE}".encode())
    with path.open() as text, path.open("rb") as raw:
        read = [list(read_records(source)) for source in (path, str(path), text, raw)]
    assert read == [[WAITED, WAITED]] * 4
    with pytest.raises(FileNotFoundError, match=r"none\.jsonl"):
        list(read_records(tmp_path / "none.jsonl"))


BROKEN = {
    "cut": (LINE[:-9], "not JSON"),
    "two in one": (LINE + LINE, "not JSON"),
    "no object": ("[1]", "not a JSON object"),
    "foreign": ('{"message": "hello"}', "no record of a call: call_id: Field required (and 11 "),
    "outcome": (LINE.replace('"success"', '"won"'), "outcome: Input should be 'running', 'suc"),
    "kind": (LINE.replace('"overloaded"', '"tired"'), "attempts.0.kind: Input should be 'rate_"),
    "type": (LINE.replace('"number": 1', '"number": "1"'), "attempts.0.number: Input should be"),
    "NaN": (LINE.replace('"started": 0.0', '"started": NaN'), "started: Input should be a fin"),
    "no chain": (json.dumps({**WAITED.to_dict(), "chain": []}), "chain: Tuple should have at le"),
    "a secret": (LINE.replace('"success"', f'"{SECRET}"'), "outcome: Input should be"),
    "two of them": (json.dumps({**WAITED.to_dict(), "agent": [SECRET], "attempts": SECRET}), ": "),
    "not UTF-8": (b'{"call_id": "\xff"}', "not JSON"),
}


@pytest.mark.parametrize(("line", "words"), BROKEN.values(), ids=BROKEN)
def test_a_line_that_is_no_record_is_named(line: str | bytes, words: str) -> None:
    """The error says which line and what is wrong; with ``broken`` the others are read.

    What stands in a foreign line may be a secret: it is not quoted.
    """
    records = read_records(["", LINE, line, LINE])
    assert next(records) == WAITED
    with pytest.raises(RecordError) as caught:
        next(records)
    assert str(caught.value).startswith("line 3: ")
    assert words in str(caught.value)
    assert SECRET not in str(caught.value)
    assert caught.value.__cause__ is None
    refused: list[RecordError] = []
    assert list(read_records([LINE, line, LINE], broken=refused.append)) == [WAITED] * 2
    assert [error.line for error in refused] == [2]


def test_fields_of_other_versions_are_no_reason_to_refuse_a_line() -> None:
    """Those that are not known here are passed over; those with a default may be missing."""
    whole = EVERY_OUTCOME["success"]
    told = {**whole.to_dict(), "weather": "fine"}
    optional = ("kind", "status", "code", "error", "retry_after", "next_action")
    last = {name: value for name, value in told["attempts"][1].items() if name not in optional}
    told["attempts"] = [{**told["attempts"][0], "weather": "fine"}, last]
    assert list(read_records([json.dumps(told)])) == [whole]


# Lines that an observer writes.

OK = EVERY_OUTCOME["success"]
posix = pytest.mark.skipif(os.name != "posix", reason="no fork, no /dev/full")


def numbered(numbers: Iterable[int]) -> list[CallRecord]:
    """Return calls that differ by their id."""
    return [replace(OK, call_id=str(number)) for number in numbers]


def finish(observer: JsonlObserver, ended: Iterable[CallRecord]) -> None:
    for record in ended:
        observer.on_finish(record)


def ids(path: Path) -> list[str]:
    return [record.call_id for record in read_records(path)]


def run(code: str, path: Path) -> Any:
    """Run a program with a policy of its own; ``call(n)`` makes so many calls."""
    program = f"""
import os, sys
from honcho_fallback import FallbackPolicy, Target
from honcho_fallback.records import JsonlObserver
path = sys.argv[1]
observer = JsonlObserver(path)
policy = FallbackPolicy([Target("m")], observers=[observer])
def call(number):
    for _ in range(number):
        policy.call(lambda attempt: "hello")
{code}
"""
    # From 3.12 on Python warns of a fork beside threads, which is what is tried here.
    warnings = ["-W", "error::ResourceWarning", "-W", "ignore:This process:DeprecationWarning"]
    return python(*warnings, "-c", program, path, timeout=30)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "calls.jsonl"


def test_a_policy_writes_a_line_for_each_call(path: Path) -> None:
    """The time comes first, and the rest is the record; half a surrogate spoils no line."""
    texts = {"a": HOSTILE, "b": "caf\u00e9 \U0001f600", "c": "half \ud83d"}
    with JsonlObserver(path) as observer:
        policy = FallbackPolicy([Target("m")], observers=[observer])
        runs = [policy.start(metadata=texts) for _ in range(2)]
        runs[0].succeed()
        runs[1].cancel()
    texts["c"] = "half ?"
    records = [replace(run.record, metadata=texts) for run in runs]
    lines = [json.loads(line) for line in path.read_text("ascii").splitlines()]
    assert [next(iter(line)) for line in lines] == ["time", "time"]
    assert [{**line, "time": 0} for line in lines] == [
        {"time": 0, **record.to_dict()} for record in records
    ]
    assert list(read_records(path)) == records


def test_calls_of_every_outcome_have_the_same_keys() -> None:
    """What was saved is read; pandas makes a column of each key, which are always the same.

    The time is the end of the call, ISO 8601 in UTC, to the millisecond.
    """
    began = datetime(2026, 11, 22, 12, 0, 0, 250_000, tzinfo=UTC).timestamp()
    usage = {"tokens": [1, 2.5, {"\u6a21": None}], "'\"\n": True}
    ended = [*EVERY_OUTCOME.values(), replace(OK, started_at=began, seconds=1.5, usage=usage)]
    stream = io.StringIO()
    with JsonlObserver(stream) as observer:
        finish(observer, ended)
    assert not stream.closed
    lines = stream.getvalue().splitlines(keepends=True)
    assert json.loads(lines[-1])["time"] == "2026-11-22T12:00:01.750+00:00"
    assert [list(json.loads(line)) for line in lines] == [["time", *OK.to_dict()]] * len(lines)
    assert list(read_records(lines)) == ended
    assert all(line.endswith("}\n") and line.isascii() for line in lines)


class Secretive:
    """Say a secret wherever it is asked to show itself."""

    def __repr__(self) -> str:
        return SECRET

    __str__ = __repr__


def test_what_is_no_json_costs_its_own_value(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The name of the class stands in its place; a value that contains itself costs its record."""
    hostile: dict[Any, Any] = {"it": Secretive(), "raw": SECRET.encode(), Secretive(): 2}
    values = {"before": 1, **hostile, "after": [3]}
    circle: list[Any] = []
    circle.append(circle)
    with JsonlObserver(path) as observer:
        finish(observer, [replace(OK, usage=values, metadata=values)])
        finish(observer, [replace(OK, metadata={"it": circle}), WAITED])
    assert observer.lost == 1
    read, last = read_records(path)
    kept = {"before": 1, "it": "Secretive", "raw": "bytes", "after": [3]}
    assert ([read.usage, read.metadata], last) == ([kept, kept], WAITED)
    assert SECRET not in path.read_text()
    assert "calls are not saved (ValueError)" in caplog.text


def test_threads_lose_nothing_and_write_nothing_twice(path: Path) -> None:
    """Four of them at a time, while a fifth closes the file again and again."""
    with JsonlObserver(path) as observer:
        parts = [numbered(range(part, 2000, 4)) for part in range(4)]
        threads = [Thread(target=finish, args=(observer, part)) for part in parts]
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            observer.close()
        finish(observer, numbered([2000]))
    assert sorted(ids(path), key=int) == [str(number) for number in range(2001)]


@posix
def test_processes_append_whole_lines_and_lose_none_when_they_are_killed(path: Path) -> None:
    """A forked child writes to the parent's file; neither closes it, and both just stop."""
    code = """
call(50)
child = os.fork()
call(500)
if child:
    os.wait()
os._exit(0)
"""
    done = run(code, path)
    assert (done.returncode, done.stderr) == (0, "")
    read = ids(path)
    assert len(read) == len(set(read)) == 1050


def test_a_copy_writes_for_itself(path: Path) -> None:
    """A copy opens the file itself."""
    observer = JsonlObserver(path)
    for other in (copy.deepcopy(observer), pickle.loads(pickle.dumps(observer))):  # noqa: S301 # ours
        with other:
            finish(other, [OK])
    assert list(read_records(path)) == [OK, OK]


def test_a_rotated_file_is_opened_again(path: Path) -> None:
    """Moved away as by logrotate's ``create``, or emptied as by ``copytruncate``."""
    observer = JsonlObserver(path)
    finish(observer, numbered([1, 2]))
    observer.close()
    finish(observer, numbered([3]))
    moved = path.rename(path.with_suffix(".1"))
    finish(observer, numbered([4]))
    observer.close()
    assert [*ids(moved), *ids(path)] == ["1", "2", "3", "4"]
    os.truncate(path, 0)
    finish(observer, numbered([5]))
    observer.close()
    assert ids(path) == ["5"]


@posix
@pytest.mark.parametrize(
    ("outage", "problem"),
    [("missing folder", "No such file or directory"), ("full disk", "No space left on device")],
)
def test_an_outage_hurts_no_call_and_is_logged_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, outage: str, problem: str
) -> None:
    """What ends meanwhile is lost and counted; what ends after it is saved."""
    path = tmp_path / "folder" / "calls.jsonl"
    if outage == "full disk":
        path.parent.mkdir()
        path.symlink_to("/dev/full")
    with JsonlObserver(path) as observer:
        finish(observer, numbered(range(3)))
        observer.close()
        assert observer.lost == 3
        path.parent.mkdir(exist_ok=True)
        path.unlink(missing_ok=True)
        finish(observer, numbered([3]))
    assert ids(path) == ["3"]
    (message,) = caplog.messages
    assert message.startswith(f"{path}: calls are not saved ({problem}), but go on")


@posix
def test_a_disk_that_fills_up_in_a_line_spoils_no_other(path: Path) -> None:
    """A line is in the file as a whole or not at all, and each that is not is counted."""
    code = """
import resource
call(1)
_, most = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (os.path.getsize(path) * 5 // 2, most))
call(4)
resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
call(2)
print(observer.lost)
"""
    done = run(code, path)
    assert done.stdout == "3\n", done.stderr
    assert len(ids(path)) == 1 + 4 + 2 - 3


def test_a_streams_own_words_are_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    """What a stream raises may be a secret: its class is named."""

    class Faulty(io.StringIO):
        def write(self, text: str) -> int:
            raise RuntimeError(SECRET)

    finish(JsonlObserver(Faulty()), [OK])
    assert caplog.messages[0].startswith("Faulty: calls are not saved (RuntimeError)")
    assert SECRET not in caplog.text


@pytest.mark.parametrize("file", [None, b"calls.jsonl"])
def test_what_is_no_file_is_refused(file: Any) -> None:
    """It is said when the observer is made, not when the first call ends."""
    with pytest.raises(FallbackConfigError, match=r"^file: got a .*; pass a path or an open str"):
        JsonlObserver(file)


# How a record is shown: in a notebook, in a terminal, and in words.


def printed(record: CallRecord, width: int = 80, *, colour: bool = False) -> str:
    """Return what ``honcho-fallback show --call`` prints below the line with number and time."""
    out = io.StringIO()
    console = Console(file=out, width=width, force_terminal=colour)
    show_in_detail([Call(1, record)], console)
    return out.getvalue().partition("\n")[2]


@pytest.mark.parametrize("outcome", EVERY_OUTCOME)
def test_a_notebook_shows_the_words(outcome: str) -> None:
    """It shows what explain says, and no name becomes an element."""
    record = replace(EVERY_OUTCOME[outcome], agent=HOSTILE, untried=((HOSTILE, HOSTILE),))
    html = record._repr_html_()
    assert (
        unescape(html.removeprefix('<pre dir="ltr">').removesuffix("</pre>")) == record.explain()
    )
    assert html.count("<") == 2
    html.encode()


def test_names_cannot_act_on_a_terminal() -> None:
    """Escape sequences, turned text, line ends, markup and emoji codes are printed as text."""
    name = "\x1b[31m\u202e[red]x[/red] :warning:\n2. forged"
    record = replace(with_attempts(WAITED, target=name), agent=name, untried=((name, "busy"),))
    for text in (record.explain(), printed(record, 200)):
        assert text.count("\ufffd[31m\ufffd[red]x[/red] :warning: 2. forged") == 5
        assert not {"\x1b", "\u202e"} & {*text}
    assert "\u05de\u05d5\u05d3\u05dc \ufffdgnihton\ufffd" in HOSTILE_CALL.explain()
    assert "\x1b[31m\ufffd" not in printed(record, colour=True)
    # Letters of any script, the joiners between them, and emoji are no danger.
    name = "\u6a21\u578b-\u05de\u05d5\u05d3\u05dc-\u00fcber \u0645\u06cc\u200c\u062e \U0001f642"
    assert name in replace(WAITED, agent=name).explain()


@pytest.mark.parametrize("width", [12, 40, 80])
def test_a_narrow_terminal_breaks_nothing(width: int) -> None:
    """No line is longer than the terminal is wide, and no attempt is left out."""
    text = printed(of_many_attempts(50), width)
    assert all(len(line) <= width for line in text.splitlines())
    assert len(re.findall(r"^  \d+\. ", text, re.MULTILINE)) == 50
