"""Every call leaves a line in a file, whatever becomes of the file."""

from __future__ import annotations

import copy
import io
import json
import os
import pickle
import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime
from threading import Thread
from typing import TYPE_CHECKING, Any

import pytest

from honcho_fallback import CallRecord, FallbackConfigError, FallbackPolicy, Target
from honcho_fallback.records import JsonlObserver, read_records
from tests.helpers.records import EVERY_OUTCOME, HOSTILE, WAITED

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

OK = EVERY_OUTCOME["success"]
SECRET = "sk-secret"
posix = pytest.mark.skipif(os.name != "posix", reason="no fork, no /dev/full")


def numbered(numbers: Iterable[int]) -> list[CallRecord]:
    """Return calls that differ by their id."""
    return [replace(OK, call_id=str(number)) for number in numbers]


def finish(observer: JsonlObserver, ended: Iterable[CallRecord]) -> None:
    for record in ended:
        observer.on_finish(record)


def ids(path: Path) -> list[str]:
    return [record.call_id for record in read_records(path)]


def saved(*ended: CallRecord) -> list[str]:
    """Return the lines that the observer makes of records."""
    stream = io.StringIO()
    with JsonlObserver(stream) as observer:
        finish(observer, ended)
    return stream.getvalue().splitlines(keepends=True)


def run(code: str, *args: object) -> subprocess.CompletedProcess[str]:
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
    return subprocess.run(
        [sys.executable, *warnings, "-c", program, *map(str, args)],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "calls.jsonl"


def test_a_policy_writes_a_line_for_each_call(path: Path) -> None:
    """The time comes first, and the rest is the record."""
    with JsonlObserver(path) as observer:
        policy = FallbackPolicy([Target("m")], observers=[observer])
        runs = [policy.start(metadata={"workspace": HOSTILE}) for _ in range(2)]
        runs[0].succeed()
        runs[1].cancel()
    lines = [json.loads(line) for line in path.read_bytes().splitlines()]
    assert [next(iter(line)) for line in lines] == ["time", "time"]
    assert [{**line, "time": 0} for line in lines] == [
        {"time": 0, **run.record.to_dict()} for run in runs
    ]
    assert list(read_records(path)) == [run.record for run in runs]


def test_calls_of_every_outcome_have_the_same_keys() -> None:
    """pandas makes a column of each key: one object on a line, its keys always the same.

    The time is the end of the call, ISO 8601 in UTC, to the millisecond.
    """
    lines = saved(*EVERY_OUTCOME.values())
    began = datetime(2026, 11, 22, 12, 0, 0, 250_000, tzinfo=UTC).timestamp()
    (line,) = saved(replace(OK, started_at=began, seconds=1.5))
    assert json.loads(line)["time"] == "2026-11-22T12:00:01.750+00:00"
    assert [list(json.loads(line)) for line in lines] == [["time", *OK.to_dict()]] * len(lines)
    assert list(read_records(lines)) == list(EVERY_OUTCOME.values())
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


def test_half_a_surrogate_spoils_no_line() -> None:
    """It is a question mark, and what is around it, in any script, is as it was."""
    (line,) = saved(replace(OK, metadata={"a": "caf\u00e9 \U0001f600", "b": "half \ud83d"}))
    (read,) = read_records([line])
    assert read.metadata == {"a": "caf\u00e9 \U0001f600", "b": "half ?"}
    assert line.isascii()


def test_a_stream_stays_open_and_its_own_words_are_not_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """What a stream raises may be a secret: its class is named."""

    class Faulty(io.StringIO):
        def write(self, text: str) -> int:
            raise RuntimeError(SECRET)

    stream = Faulty()
    with JsonlObserver(stream) as observer:
        finish(observer, [OK])
    assert not stream.closed
    assert caplog.messages[0].startswith("Faulty: calls are not saved (RuntimeError)")


@pytest.mark.parametrize("file", [None, b"calls.jsonl"])
def test_what_is_no_file_is_refused(file: Any) -> None:
    """It is said when the observer is made, not when the first call ends."""
    with pytest.raises(FallbackConfigError, match=r"^file: got a .*; pass a path or an open str"):
        JsonlObserver(file)
