"""Every call leaves a line in a file, whatever becomes of the file."""

from __future__ import annotations

import copy
import io
import json
import os
import pickle
import subprocess
import sys
import tempfile
from collections import UserDict
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from threading import Event, Thread
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from honcho_fallback import CallRecord, FallbackConfigError, FallbackPolicy, Target
from honcho_fallback import _jsonl as module
from honcho_fallback.cli._app import app
from honcho_fallback.records import JsonlObserver, read_records
from honcho_fallback.simulate import replay
from tests.helpers.records import CHAIN, EVERY_OUTCOME, HOSTILE_CALL, WAITED, with_attempts
from tests.unit.test_records import JSON

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

OK = EVERY_OUTCOME["success"]
SECRET = "sk-secret"
MAPPINGS = st.none() | st.dictionaries(st.text(), JSON)
PATIENCE = 30.0  # seconds after which a test gives up; none of them takes a part of it
posix = pytest.mark.skipif(os.name != "posix", reason="no fork, no pipe with a name")


def numbered(numbers: Iterable[int]) -> list[CallRecord]:
    """Return calls that differ by their id."""
    return [replace(OK, call_id=str(number)) for number in numbers]


def finish(observer: JsonlObserver, records: Iterable[CallRecord]) -> None:
    for record in records:
        observer.on_finish(record)


def ids(path: Path) -> list[str]:
    return [record.call_id for record in read_records(path)]


def saved(*records: CallRecord) -> list[bytes]:
    """Return the lines that the observer makes of records."""
    stream = io.BytesIO()
    with JsonlObserver(stream) as observer:
        finish(observer, records)
        assert observer.flush(PATIENCE)
    return stream.getvalue().splitlines(keepends=True)


def run(code: str, *args: object) -> subprocess.CompletedProcess[str]:
    """Run a program with a policy of its own; ``call(n)`` makes so many calls."""
    program = f"""
import logging, os, sys, threading
from honcho_fallback import FallbackPolicy, Target
from honcho_fallback.records import JsonlObserver
logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s")
path, *args = sys.argv[1:]
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
        timeout=PATIENCE,
        check=False,
    )


def assert_whole(path: Path, count: int) -> None:
    """Every line is a call of its own, and there are so many."""
    read = ids(path)
    assert len(read) == count
    assert len(set(read)) == count
    assert path.read_bytes().count(b"\n") == count


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "calls.jsonl"


@pytest.fixture
def observer(path: Path) -> Iterator[JsonlObserver]:
    with JsonlObserver(path) as observer:
        yield observer


# What stands in the file.


def test_a_policy_writes_a_line_for_each_call(path: Path) -> None:
    """The time comes first, and the rest is the record."""
    with JsonlObserver(path) as observer:
        policy = FallbackPolicy([Target("m")], observers=[observer])
        runs = [policy.start(metadata={"workspace": "w"}) for _ in range(2)]
        runs[0].succeed()
        runs[1].cancel()
    lines = [json.loads(line) for line in path.read_bytes().splitlines()]
    assert [next(iter(line)) for line in lines] == ["time", "time"]
    assert [{**line, "time": 0} for line in lines] == [
        {"time": 0, **run.record.to_dict()} for run in runs
    ]
    assert list(read_records(path)) == [run.record for run in runs]


def test_the_time_is_the_end_of_the_call() -> None:
    """It is ISO 8601 in UTC, to the millisecond."""
    began = datetime(2026, 11, 22, 12, 0, 0, 250_000, tzinfo=UTC).timestamp()
    (line,) = saved(replace(OK, started_at=began, seconds=1.5))
    assert json.loads(line)["time"] == "2026-11-22T12:00:01.750+00:00"


def test_what_is_no_date_is_no_time() -> None:
    """A record that says so of its start is saved all the same."""
    record = replace(OK, started_at=1e300)
    (line,) = saved(record)
    assert json.loads(line)["time"] is None
    assert list(read_records([line])) == [record]


@pytest.mark.parametrize("outcome", EVERY_OUTCOME)
def test_calls_of_every_outcome_have_the_same_keys(outcome: str) -> None:
    """pandas makes a column of each key: one object on a line, its keys always the same."""
    (line,) = saved(EVERY_OUTCOME[outcome])
    assert list(json.loads(line)) == ["time", *OK.to_dict()]
    assert line.endswith(b"}\n")
    assert line.isascii()


@settings(deadline=None)  # it waits for a thread
@given(usage=MAPPINGS, metadata=MAPPINGS)
def test_what_is_json_is_read_as_it_was(
    usage: dict[str, Any] | None, metadata: dict[str, Any] | None
) -> None:
    """Whatever the caller or the provider says in JSON comes back, in each of its places."""
    record = replace(with_attempts(WAITED, usage=usage), usage=usage, metadata=metadata)
    assert list(read_records(saved(record))) == [record]


class Secretive:
    """Say a secret wherever it is asked to show itself."""

    def __repr__(self) -> str:
        return SECRET

    __str__ = __repr__


class Liar:
    """Claim to be text."""

    @property
    def __class__(self) -> Any:
        return str

    @__class__.setter
    def __class__(self, _: Any) -> None: ...


class Broken(dict[str, Any]):
    def items(self) -> Any:
        raise RuntimeError(SECRET)


class Uncopied(Secretive):
    def __deepcopy__(self, _: Any) -> Any:
        raise RuntimeError(SECRET)


class Loud(str):
    __slots__ = ()

    def __str__(self) -> str:
        raise RuntimeError(SECRET)


CIRCLE: list[Any] = [1]
CIRCLE += [CIRCLE, CIRCLE]
HOSTILE = [
    (Secretive(), "Secretive"),
    (Uncopied(), "Uncopied"),
    (Liar(), "Liar"),
    (Broken(a=1), "Broken"),
    (SECRET.encode(), "bytes"),
    ({SECRET}, "set"),
    (datetime.now(UTC), "datetime"),
    (float("nan"), "float"),
    (float("-inf"), "float"),
    (10**5000, "int"),
    (CIRCLE, [1, "list", "list"]),
    ([1, Secretive(), (2,)], [1, "Secretive", [2]]),
    (
        {1: 2, None: 3, Secretive(): 4, (5, "x"): 6},
        {"1": 2, "null": 3, "Secretive": 4, '[5, "x"]': 6},
    ),
    (UserDict(a=1), {"a": 1}),
    (Loud("text"), "text"),
    ("half \ud83d a pair", "half ? a pair"),
    ("\U0001f600 \u2028 \x9b", "\U0001f600 \u2028 \x9b"),
    (True, True),
]


@pytest.mark.parametrize(("value", "shown"), HOSTILE, ids=range(len(HOSTILE)))
def test_what_is_no_json_costs_its_own_value(value: Any, shown: Any) -> None:
    """The name of the class stands in its place, never what it says of itself."""
    values = {"before": 1, "it": value, "after": [2]}
    (line,) = saved(replace(with_attempts(OK, usage=values), usage=values, metadata=values))
    (read,) = read_records([line])
    kept = {"before": 1, "it": shown, "after": [2]}
    assert [read.usage, read.metadata, *(one.usage for one in read.attempts)] == [kept] * 4
    assert SECRET.encode() not in line


def test_a_mapping_that_cannot_be_read_is_named() -> None:
    """A record without its metadata is still a record."""
    (read,) = read_records(saved(replace(OK, metadata=Broken(a=1))))
    assert read == replace(OK, metadata={"lost": "Broken"})


def test_what_is_nested_too_deep_to_be_read_is_cut() -> None:
    """The parser refuses a line that goes deeper than it does."""
    nested: Any = 1
    for _ in range(500):
        nested = [nested]
    (read,) = read_records(saved(replace(OK, metadata={"it": nested, "after": 2})))
    assert read.metadata is not None
    assert read.metadata["after"] == 2


def test_names_in_any_script_are_read() -> None:
    """A name that is no text at all, for half a character is missing, spoils no line."""
    (read,) = read_records(saved(HOSTILE_CALL))
    assert read.agent == HOSTILE_CALL.agent
    assert read.chain[1] == HOSTILE_CALL.chain[1].replace("\ud800", "?")


def test_a_record_that_nobody_could_read_is_lost_alone(path: Path) -> None:
    """A figure that is no number would spoil the file for its reader."""
    with JsonlObserver(path) as observer:
        finish(observer, [OK, replace(OK, seconds=float("nan")), WAITED])
        assert observer.flush(PATIENCE)
        assert observer.lost == 1
    assert list(read_records(path)) == [OK, WAITED]


# Who reads it.


@pytest.fixture
def of_every_outcome(path: Path) -> Path:
    with JsonlObserver(path) as observer:
        finish(observer, [*EVERY_OUTCOME.values(), WAITED])
    return path


def test_the_command_shows_it(of_every_outcome: Path) -> None:
    """``show`` takes every line for a call."""
    result = CliRunner().invoke(app, ["show", str(of_every_outcome), "--json"])
    assert result.exit_code == 0, result.stderr
    calls = json.loads(result.stdout)["calls"]
    assert len(calls) == len(EVERY_OUTCOME) + 1


def test_the_simulator_plays_it_again(of_every_outcome: Path) -> None:
    """A scenario is made of it, by the command and by the function."""
    result = CliRunner().invoke(app, ["simulate", str(of_every_outcome)])
    assert result.exit_code == 0, result.output
    scenario = replay(of_every_outcome)
    assert [target.name for target in scenario.targets] == [target.name for target in CHAIN]


# Threads, forks and ends.


def test_threads_lose_nothing_and_write_nothing_twice(path: Path) -> None:
    """Eight of them at a time, and a line for each call."""
    with JsonlObserver(path) as observer:
        parts = [numbered(range(part, 4000, 8)) for part in range(8)]
        threads = [Thread(target=finish, args=(observer, part)) for part in parts]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert observer.flush(PATIENCE)
    assert_whole(path, 4000)


def test_two_processes_append_whole_lines(path: Path) -> None:
    """Neither writes into a line of the other."""
    threads = [
        Thread(target=run, args=("for _ in range(40): call(50); observer.flush()", path))
        for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert_whole(path, 4000)


@posix
def test_a_fork_in_the_middle_of_everything_hangs_nobody(path: Path) -> None:
    """The child writes its own calls and none of the parent's, however it was copied."""
    code = """
stop = threading.Event()
def work():
    while not stop.is_set():
        call(20)
        observer.flush(30)
        made.append(20)
made = []
threads = [threading.Thread(target=work) for _ in range(3)]
for thread in threads: thread.start()
for _ in range(20):
    child = os.fork()
    if not child:
        call(5)
        os._exit(0 if observer.flush(10) and observer.lost == 0 else 1)
    _, status = os.waitpid(child, 0)
    if status:
        print("the child did not write", status)
        break
stop.set()
for thread in threads: thread.join()
print(sum(made) + 100, observer.flush(10))
"""
    done = run(code, path)
    assert done.returncode == 0, done.stderr
    assert not done.stderr
    count, written = done.stdout.split()
    assert written == "True"
    assert_whole(path, int(count))


@posix
def test_a_child_does_not_write_what_its_parent_had_queued(tmp_path: Path) -> None:
    """What waits while the folder is missing is the parent's to write."""
    path = tmp_path / "later" / "calls.jsonl"
    code = """
call(3)
print(observer.flush())
if not os.fork():
    call(1)
    observer.flush()
    os.mkdir(os.path.dirname(path))
    sys.exit(0)
os.wait()
print(observer.flush())
"""
    done = run(code, path)
    assert done.stdout.split() == ["False", "True"]
    assert_whole(path, 4)


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="no list of what is open")
def test_a_child_opens_the_file_for_itself(path: Path) -> None:
    """What the fork copied is closed, and nobody hears of it."""
    code = """
call(1)
observer.flush()
if not os.fork():
    call(1)
    observer.flush()
    names = [os.path.realpath(f"/proc/self/fd/{number}") for number in range(20)]
    print(names.count(os.path.realpath(path)))
    sys.exit(0)
os.wait()
"""
    done = run(code, path)
    assert (done.stdout, done.stderr) == ("1\n", "")
    assert_whole(path, 2)


def test_what_is_queued_is_written_at_the_end_of_the_program(path: Path) -> None:
    """Nobody has to flush."""
    done = run("call(500)", path)
    assert (done.returncode, done.stderr) == (0, "")
    assert_whole(path, 500)


@posix
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_a_child_of_multiprocessing_writes_at_its_end(path: Path, method: str) -> None:
    """It ends by ``os._exit`` and runs no atexit."""
    code = """
import multiprocessing
if __name__ == "__main__":
    call(1)
    context = multiprocessing.get_context(args[0])
    children = [context.Process(target=os_call, args=(observer, 300)) for _ in range(2)]
    for child in children: child.start()
    for child in children: child.join()
    print([child.exitcode for child in children])
"""
    worker = path.with_name("worker.py")
    worker.write_text("""
from honcho_fallback import FallbackPolicy, Target
def os_call(observer, number):
    policy = FallbackPolicy([Target("m")], observers=[observer])
    for _ in range(number):
        policy.call(lambda attempt: "hello")
""")
    code = f"sys.path.insert(0, {str(worker.parent)!r})\nfrom worker import os_call\n{code}"
    done = run(code, path, method)
    assert done.stdout.strip() == "[0, 0]", done.stderr
    assert not done.stderr
    assert_whole(path, 601)


@posix
def test_a_pipe_that_nobody_empties_does_not_hang_the_end(tmp_path: Path) -> None:
    """The program waits two seconds, says so, and ends."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    done = run("reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)\ncall(500)", pipe)
    assert done.returncode == 0
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"WARNING {pipe}: the last calls are not saved")


def test_a_full_disk_does_not_hang_the_end() -> None:
    """One WARNING is all that is seen of it."""
    done = run("call(500)", "/dev/full")
    assert done.returncode == 0
    (line,) = done.stderr.splitlines()
    assert line.startswith("WARNING /dev/full: calls are not saved (No space left on device)")


def test_a_call_that_ends_within_the_end_of_another_hangs_nobody(path: Path) -> None:
    """So does a generator's that is collected; a lock that is taken would wait for itself."""
    code = """
run = policy.start()
run.succeed()
def end(frame, event, _):  # wherever Python may come in between
    global between
    sys.setprofile(None)
    observer.on_finish(run.record)
    between += 1
    sys.setprofile(end)
between = 0
sys.setprofile(end)
for _ in range(100):
    observer.on_finish(run.record)
sys.setprofile(None)
print(observer.flush(10), between > 500, between + 101)
"""
    done = run(code, path)
    written, often, count = done.stdout.split()
    assert (written, often) == ("True", "True"), done.stderr
    assert path.read_bytes().count(b"\n") == int(count)


def test_close_is_no_end(path: Path) -> None:
    """A call that ends later opens the file again."""
    observer = JsonlObserver(path)
    assert observer.close()
    for number in range(3):
        finish(observer, numbered([number]))
        assert observer.close()
        assert len(ids(path)) == number + 1
        assert observer.flush()


class Late(io.BytesIO):
    """End a call when the thread, asked to end, flushes for the last time."""

    def __init__(self) -> None:
        super().__init__()
        self.observer = JsonlObserver(self)
        self.is_written = Event()
        self.calls = [WAITED]

    def write(self, data: Any) -> int:
        if not self.calls:
            self.is_written.set()
        return super().write(data)

    def flush(self) -> None:
        (writer,) = self.observer._writers.values()
        if writer._closing and self.calls:
            self.observer.on_finish(self.calls.pop())


def test_a_call_that_ends_while_the_thread_does_is_written() -> None:
    """It takes the thread for one that goes on, and nobody comes after it."""
    stream = Late()
    finish(stream.observer, [OK])
    assert stream.observer.close(PATIENCE)
    assert stream.is_written.wait(PATIENCE)
    assert stream.observer.flush(PATIENCE)
    assert list(read_records(stream.getvalue().splitlines())) == [OK, WAITED]


def test_an_observer_that_is_gone_leaves_no_thread(path: Path) -> None:
    """It writes what it has, and closes the file."""
    observer = JsonlObserver(path)
    finish(observer, numbered(range(3)))
    (writer,) = observer._writers.values()
    del observer
    assert writer._running.acquire(timeout=PATIENCE)
    assert len(ids(path)) == 3
    assert writer._output._stream is None


def test_without_a_thread_a_record_waits_for_the_next(
    observer: JsonlObserver, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the system has no thread left, the next call asks again."""
    with monkeypatch.context() as full:

        def refuse(*_: object) -> None:
            raise RuntimeError("can't start new thread")

        full.setattr(module, "start_new_thread", refuse)
        finish(observer, numbered([1]))
    finish(observer, numbered([2]))
    assert observer.flush(PATIENCE)
    assert ids(path) == ["1", "2"]


# Rotation.


def test_a_file_that_was_moved_is_opened_again(observer: JsonlObserver, path: Path) -> None:
    """As logrotate's ``create`` does; nothing is lost on the way."""
    files = [path.with_suffix(f".{number}") for number in range(3)]
    for number, moved in enumerate(files):
        finish(observer, numbered(range(number * 5, number * 5 + 5)))
        assert observer.flush(PATIENCE)
        path.rename(moved)
        if number == 1:
            path.touch()
    finish(observer, numbered([15]))
    assert observer.flush(PATIENCE)
    assert [len(ids(file)) for file in (*files, path)] == [5, 5, 5, 1]


def test_a_file_that_was_emptied_is_begun_again(observer: JsonlObserver, path: Path) -> None:
    """As logrotate's ``copytruncate`` does; no hole stands where the old lines were."""
    finish(observer, numbered([1]))
    assert observer.flush(PATIENCE)
    os.truncate(path, 0)
    finish(observer, numbered([2]))
    assert observer.flush(PATIENCE)
    assert ids(path) == ["2"]
    assert_whole(path, 1)


def test_a_moved_file_loses_nothing_while_calls_end(path: Path) -> None:
    """Each line is in one of the files, whichever it was when it was written."""
    with JsonlObserver(path) as observer:
        thread = Thread(target=finish, args=(observer, numbered(range(5000))))
        thread.start()
        moved: list[Path] = []
        while thread.is_alive():
            if path.exists():
                moved.append(path.rename(path.with_suffix(f".{len(moved)}")))
        thread.join()
        assert observer.flush(PATIENCE)
    read = [call for file in (*moved, path) if file.exists() for call in ids(file)]
    assert sorted(read, key=int) == [str(number) for number in range(5000)]


# Outages.


def outages(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.levelname for record in caplog.records if record.name == "honcho_fallback"]


def break_folder(path: Path) -> None:
    path.unlink()
    path.parent.rmdir()


def mend_folder(path: Path) -> None:
    path.parent.mkdir()


def break_by_a_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def mend_by_no_folder(path: Path) -> None:
    path.rmdir()


def break_by_a_file(path: Path) -> None:
    break_folder(path)
    path.parent.touch()


def mend_by_no_file(path: Path) -> None:
    path.parent.unlink()
    path.parent.mkdir()


def break_by_full(path: Path) -> None:
    path.unlink()
    path.symlink_to("/dev/full")


def break_by_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


OUTAGES: dict[str, tuple[Callable[[Path], object], Callable[[Path], object]]] = {
    "No such file or directory": (break_folder, mend_folder),
    "Is a directory": (break_by_a_folder, mend_by_no_folder),
    "Not a directory": (break_by_a_file, mend_by_no_file),
    "No space left on device": (break_by_full, Path.unlink),
    "No such device or address": (break_by_pipe, Path.unlink),
}


@posix
@pytest.mark.parametrize("problem", OUTAGES)
def test_an_outage_is_told_once_and_its_end_once(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    problem: str,
) -> None:
    """Calls go on, what ends meanwhile is written by the next flush, and no line is spoilt."""
    caplog.set_level("INFO", "honcho_fallback")
    monkeypatch.setattr(module, "_PAUSE", 3600.0)
    path = tmp_path / "folder" / "calls.jsonl"
    path.parent.mkdir()
    stop, mend = OUTAGES[problem]
    with JsonlObserver(path) as observer:
        finish(observer, numbered([0]))
        assert observer.flush(PATIENCE)
        stop(path)
        for number in range(1, 4):
            finish(observer, numbered([number]))
            assert not observer.flush(PATIENCE)
        assert outages(caplog) == ["WARNING"]
        assert caplog.messages[0].startswith(f"{path}: calls are not saved ({problem})")
        mend(path)
        assert observer.flush(PATIENCE)
        finish(observer, numbered([4]))
        assert observer.flush(PATIENCE)
        assert observer.lost == 0
    assert ids(path) == ["1", "2", "3", "4"]
    assert outages(caplog) == ["WARNING", "INFO"]
    assert caplog.messages[1] == f"{path}: calls are saved again, 0 are missing"


@posix
def test_without_permission_one_warning_says_so(tmp_path: Path) -> None:
    """Whoever may do everything becomes somebody who may not."""
    code = """
if not os.geteuid():
    os.setgroups([])
    os.setuid(65534)
call(3)
print(observer.flush())
"""
    tmp_path.chmod(0o500)
    done = run(code, tmp_path / "calls.jsonl")
    tmp_path.chmod(0o700)
    assert done.stdout == "False\n"
    (line,) = done.stderr.splitlines()
    assert "calls are not saved (Permission denied)" in line


def test_an_outage_ends_by_itself(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Nobody has to make a call or to flush for the next try."""
    caplog.set_level("INFO", "honcho_fallback")
    path = tmp_path / "folder" / "calls.jsonl"
    with JsonlObserver(path) as observer:
        finish(observer, numbered([1]))
        assert not observer.flush(PATIENCE)
        os.mkfifo(tmp_path / "pipe")
        path.parent.mkdir()
        path.symlink_to(tmp_path / "pipe")
        with path.open() as pipe:  # waits until somebody opens it to write
            (read,) = read_records([pipe.readline()])
    assert read.call_id == "1"


@posix
def test_what_waits_is_bounded_and_what_is_lost_is_counted(
    caplog: pytest.LogCaptureFixture, path: Path
) -> None:
    """The first calls are kept, those that end beyond the bound are missing."""
    caplog.set_level("INFO", "honcho_fallback")
    path.symlink_to("/dev/full")
    observer = JsonlObserver(path, most=10)
    finish(observer, numbered([0]))
    assert not observer.flush(PATIENCE)
    finish(observer, numbered(range(1, 10)))
    assert not observer.flush(PATIENCE)
    finish(observer, numbered(range(10, 30)))
    assert observer.lost == 20
    path.unlink()
    assert observer.close(PATIENCE)
    assert ids(path) == [str(number) for number in range(10)]
    assert outages(caplog) == ["WARNING", "INFO"]
    assert caplog.messages[1] == f"{path}: calls are saved again, 20 are missing"


@posix
def test_a_pipe_that_is_not_read_holds_up_no_call(
    caplog: pytest.LogCaptureFixture, path: Path
) -> None:
    """The thread waits for its reader; the calls go on, and what is lost is counted and told."""
    caplog.set_level("INFO", "honcho_fallback")
    os.mkfifo(path)
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    observer = JsonlObserver(path, most=100)
    finish(observer, numbered([0]))
    assert observer.flush(PATIENCE)
    finish(observer, numbered(range(1, 3000)))
    assert not observer.flush(0.0)
    assert observer.lost
    assert outages(caplog) == ["WARNING"]
    os.set_blocking(reader, True)
    with os.fdopen(reader, "rb") as lines:
        records = read_records(lines)
        read = [next(records).call_id for _ in range(3000 - observer.lost)]
        assert observer.close(PATIENCE)
        assert not lines.read()
    assert len(set(read)) == len(read)
    assert outages(caplog) == ["WARNING", "INFO"]


@posix
def test_a_disk_that_fills_in_the_middle_of_a_line_spoils_no_other(path: Path) -> None:
    """The rest of the line is given up, and the whole of it stands on one of its own."""
    code = """
import resource
call(1); observer.flush()
size = os.stat(path).st_size
resource.setrlimit(resource.RLIMIT_FSIZE, (size * 2 + 100, resource.RLIM_INFINITY))
call(5)
print(observer.flush(), os.stat(path).st_size - 2 * size)
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
print(observer.flush())
call(1)
"""
    done = run(code, path)
    assert done.stdout.split() == ["False", "100", "True"], done.stderr
    refused: list[Any] = []
    read = list(read_records(path, broken=refused.append))
    assert len({record.call_id for record in read}) == len(read) == 7
    assert len(refused) == 1
    assert [line.split()[0] for line in done.stderr.splitlines()] == ["WARNING", "INFO"]


def test_half_a_line_of_another_process_is_left_alone(observer: JsonlObserver, path: Path) -> None:
    """Whoever wrote it, our line is our own."""
    finish(observer, [OK])
    assert observer.flush(PATIENCE)
    with path.open("ab") as other:
        other.write(b'{"call_id": "ha')
    finish(observer, [WAITED])
    assert observer.flush(PATIENCE)
    assert list(read_records(path, broken=lambda _: None)) == [OK, WAITED]


# Streams.


def streams(folder: Path) -> Iterator[Any]:
    yield io.StringIO()
    yield io.BytesIO()
    yield (folder / "text").open("w+", encoding="ascii")
    yield (folder / "buffered").open("wb+")
    yield (folder / "raw").open("wb+", buffering=0)
    yield tempfile.NamedTemporaryFile()  # noqa: SIM115 # the test closes it
    yield tempfile.NamedTemporaryFile("w+")  # noqa: SIM115 # the test closes it


def test_a_stream_of_any_kind_is_written_and_left_open(tmp_path: Path) -> None:
    """Text or bytes; what was flushed can be read behind its back."""
    for stream in streams(tmp_path):
        with JsonlObserver(stream) as observer:
            finish(observer, [OK, HOSTILE_CALL])
            assert observer.flush(PATIENCE)
            if not isinstance(stream, io.StringIO | io.BytesIO):
                assert len(list(read_records(stream.name))) == 2
        assert not stream.closed
        stream.seek(0)
        assert len(list(read_records(stream))) == 2
        stream.close()


class Faulty(io.StringIO):
    """Take half a line of what is written, where it is told to."""

    broken = False

    def write(self, text: str) -> int:
        if self.broken:
            super().write(text[:100])
            raise RuntimeError(SECRET)
        return super().write(text)


def test_a_stream_that_raises_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    """Its own words are not repeated, and what it had taken of a line spoils no other."""
    caplog.set_level("INFO", "honcho_fallback")
    stream = Faulty()
    with JsonlObserver(stream) as observer:
        stream.broken = True
        for record in (OK, WAITED):
            finish(observer, [record])
            assert not observer.flush(PATIENCE)
        stream.broken = False
        assert observer.flush(PATIENCE)
    read = list(read_records(stream.getvalue().splitlines(), broken=lambda _: None))
    assert read == [OK, WAITED]
    assert outages(caplog) == ["WARNING", "INFO"]
    assert SECRET not in caplog.text
    assert "RuntimeError" in caplog.text


def test_a_closed_stream_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    """Calls go on."""
    stream = io.StringIO()
    stream.close()
    observer = JsonlObserver(stream)
    for record in (OK, WAITED):
        finish(observer, [record])
        assert not observer.flush(PATIENCE)
    assert outages(caplog) == ["WARNING"]
    assert caplog.messages[0].startswith("StringIO: calls are not saved (ValueError)")


class Unflushed(io.BytesIO):
    """Refuse to flush, where it is told to."""

    broken = True

    def flush(self) -> None:
        if self.broken:
            raise OSError(28, SECRET)


def test_what_a_stream_has_taken_is_not_written_again() -> None:
    """Where only the flush fails, the stream keeps the lines itself."""
    stream = Unflushed()
    with JsonlObserver(stream) as observer:
        finish(observer, [OK])
        assert not observer.flush(PATIENCE)
        stream.broken = False
        assert observer.flush(PATIENCE)
    assert list(read_records(stream.getvalue().splitlines())) == [OK]


def test_a_stream_that_takes_a_part_is_given_the_rest() -> None:
    """A pipe without a buffer that does not wait takes what it has room for."""
    out, into = os.pipe()
    os.set_blocking(into, False)
    with os.fdopen(into, "wb", buffering=0) as stream, os.fdopen(out, "rb") as lines:
        observer = JsonlObserver(stream)
        finish(observer, numbered(range(200)))
        assert not observer.flush(PATIENCE)
        read: list[str] = []
        while len(read) < 200:
            read += [
                record.call_id
                for record in read_records(
                    os.read(out, 1 << 20).splitlines(), broken=lambda _: None
                )
            ]
            observer.flush(PATIENCE)
        assert observer.close(PATIENCE)
        assert not lines.closed
    assert read == [str(number) for number in range(200)]


# Arguments.


@pytest.mark.parametrize("file", [None, 1, b"calls.jsonl", "", object(), ["a"]])
def test_what_is_no_file_is_refused(file: Any) -> None:
    with pytest.raises(FallbackConfigError, match=r"^file: .*; pass a path or an open stream$"):
        JsonlObserver(file)


@pytest.mark.parametrize("most", [0, -1, True, 1.5, None, "10"])
def test_a_bound_that_is_none_is_refused(most: Any) -> None:
    with pytest.raises(FallbackConfigError, match=r"^most: got .*; pass a number of records$"):
        JsonlObserver("calls.jsonl", most=most)


@pytest.mark.parametrize("timeout", [-1, None, float("nan"), float("inf"), "1"])
def test_a_timeout_that_is_none_is_refused(timeout: Any) -> None:
    observer = JsonlObserver("calls.jsonl")
    for method in (observer.flush, observer.close):
        with pytest.raises(FallbackConfigError, match=r"^timeout: got .*; pass seconds$"):
            method(timeout)


def test_a_path_means_the_same_in_another_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program that changes its folder goes on with the same file; no file is made before."""
    monkeypatch.chdir(tmp_path)
    with JsonlObserver("calls.jsonl") as observer:
        assert not list(tmp_path.iterdir())
        monkeypatch.chdir("/")
        finish(observer, [OK])
    assert list(read_records(tmp_path / "calls.jsonl")) == [OK]


def test_it_shows_its_file_and_nothing_else() -> None:
    """Of a stream its class is shown: it may call itself what it likes."""

    class Stream(io.StringIO):
        def __repr__(self) -> str:
            return SECRET

    assert repr(JsonlObserver("/var/log/calls.jsonl")) == "JsonlObserver('/var/log/calls.jsonl')"
    assert repr(JsonlObserver(Stream())) == "JsonlObserver('Stream')"


@pytest.mark.parametrize(
    "copied",
    [copy.copy, copy.deepcopy, lambda it: pickle.loads(pickle.dumps(it))],  # noqa: S301 # ours
)
def test_a_copy_writes_for_itself(observer: JsonlObserver, path: Path, copied: Any) -> None:
    """Neither the thread nor what is queued is copied."""
    finish(observer, numbered([1]))
    with copied(observer) as other:
        finish(other, numbered([2]))
    assert observer.flush(PATIENCE)
    assert sorted(ids(path)) == ["1", "2"]
