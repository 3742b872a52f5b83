"""The observer that saves records: a line of JSON for each call, written by a thread.

Theory of operation: a call leaves its record in a queue (``_Writer.put``) and goes on. A thread
turns records into lines and appends them with one write (``_Output.write``), which opens the file
again where another one stands at its path. What a write refuses stays in memory and is tried
again. A request to flush travels through the same queue, so its answer means that everything
before it is written.
"""

from __future__ import annotations

import errno
import io
import json
import logging
import math
import os
from _thread import start_new_thread
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from itertools import islice, takewhile
from multiprocessing.util import Finalize
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import TIMEOUT_MAX, Lock, RLock
from time import monotonic, sleep
from typing import IO, TYPE_CHECKING, Any, NamedTuple, Self, cast

from honcho_fallback import FallbackConfigError, FallbackObserver

if TYPE_CHECKING:
    from honcho_fallback import CallRecord

logger = logging.getLogger("honcho_fallback")

_BATCH = 1000  # lines in one write
_PAUSE = 1.0  # seconds between two tries to write, where writing fails
_EXIT = 2.0  # seconds that the end of the process waits
_DEPTH = 100  # of what is saved; the parser that reads it gives up at 200


class JsonlObserver(FallbackObserver):
    """Append a line for each call to a file; ``read_records`` reads it.

    A line is ``json.dumps(record.to_dict())`` with a key more before the others: ``time``, the
    call's end in UTC. Instead of a value that JSON cannot express stands the name of its class.

    A call only leaves its record in a queue; a thread writes. What cannot be written, such as to a
    full disk, waits in memory and is tried again every second. That is logged once, and once more
    when it works again. What is queued is written when the process ends, within two seconds; one
    that ends by a signal or ``os._exit`` has to ``flush`` before.

    The file may be rotated, and several processes may append to it. A forked child opens it anew.

    Args:
        file: A path, whose folder is there; or an open stream of text or bytes, which stays open.
        most: How many records may wait; those that end beyond them are ``lost``.

    Raises:
        FallbackConfigError: An argument is of another kind.
    """

    def __init__(
        self, file: str | os.PathLike[str] | IO[str] | IO[bytes], *, most: int = 10_000
    ) -> None:
        self._writers: dict[int, _Writer] = {}  # by process: no thread survives a fork
        path = os.fspath(file) if isinstance(file, str | os.PathLike) else None
        if path != "" and isinstance(path, str):
            self._file: Any = Path(path).absolute()  # a program may change its folder
        elif path is None and callable(getattr(file, "write", None)):
            self._file = file
        else:
            problem = "it is empty" if path == "" else f"got a {type(file).__name__}"
            raise FallbackConfigError.about("file", problem, "pass a path or an open stream")
        if type(most) is not int or most < 1:
            raise FallbackConfigError.about("most", f"got {most!r}", "pass a number of records")
        self._most = most

    def __repr__(self) -> str:
        return f"JsonlObserver({_name(self._file)!r})"

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_writers": {}}  # a copy writes for itself

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        self.close(0)

    @property
    def lost(self) -> int:
        """Count the records of this process that will never be written."""
        writer = self._writers.get(os.getpid())
        return 0 if writer is None else writer.lost

    def on_finish(self, record: CallRecord, /) -> None:
        """Leave the record to the thread that writes."""
        pid = os.getpid()
        writer = self._writers.get(pid)
        if writer is None:  # without a lock: a fork could copy it while it is taken
            writer = self._writers.setdefault(pid, _Writer(self._file, self._most))
            for other in {*self._writers} - {pid}:
                if parent := self._writers.pop(other, None):
                    parent.release()
        writer.put(record)

    def flush(self, timeout: float = 2.0) -> bool:
        """Write what is queued now, and tell whether that is done.

        Args:
            timeout: Seconds to wait at most; for a file that takes nothing there is no wait.
        """
        return self._flush(timeout, close=False)

    def close(self, timeout: float = 2.0) -> bool:
        """Do so, and close the file until another call ends.

        Args:
            timeout: As for ``flush``.
        """
        return self._flush(timeout, close=True)

    def _flush(self, timeout: Any, *, close: bool) -> bool:
        if not (isinstance(timeout, int | float) and 0 <= timeout <= TIMEOUT_MAX):
            raise FallbackConfigError.about("timeout", f"got {timeout!r}", "pass seconds")
        writer = self._writers.get(os.getpid())
        return writer is None or writer.flush(timeout, close=close)


def _name(file: Any) -> str:
    return str(file) if isinstance(file, Path) else type(file).__name__


class _Request(NamedTuple):
    """Ask the thread to say once whether everything before this is written."""

    reply: SimpleQueue[bool]
    close: bool


class _Writer:
    """Write the records of one process, in a thread that begins with the first of them."""

    def __init__(self, file: Any, most: int) -> None:
        self._output = _Output(file)
        self._name = _name(file)
        self._most = most
        # Reentrant: the collector may end a generator's call in the middle of another's put.
        self._queue: SimpleQueue[CallRecord | _Request] = SimpleQueue()
        self._unwritten: deque[bytes | _Request] = deque()  # changed by the thread alone
        self._running = Lock()  # held by the thread; nobody waits for it
        self._counting = RLock()
        self._at_exit: Finalize | None = None
        self._failing = self._reported = self._closing = False
        self.lost = self._lost_before = 0

    def put(self, record: CallRecord) -> None:
        if self._queue.qsize() + len(self._unwritten) < self._most:
            self._queue.put(record)
        else:
            self._report("more calls end than it takes")
            self._lose()
        self._start()

    def flush(self, timeout: float, *, close: bool = False) -> bool:
        if not (self._running.locked() or self._queue.qsize() or self._unwritten):
            return True
        reply: SimpleQueue[bool] = SimpleQueue()
        self._queue.put(_Request(reply, close))
        self._start()
        try:
            return reply.get(timeout=timeout)
        except Empty:
            return False

    def release(self) -> None:
        """Close the file, or what a fork copied of it."""
        if self._at_exit is not None:
            self._at_exit.cancel()
        self._output.close()

    def _start(self) -> None:
        if self._running.acquire(blocking=False):
            # Unlike atexit, this is run by the children of multiprocessing, and by no other fork.
            self._at_exit = Finalize(None, self._exit, exitpriority=0)
            try:
                # Thread.start waits for the thread's first step: 80 ms where others are busy.
                start_new_thread(self._run, ())
            except RuntimeError:  # there are too many threads: the next record tries again
                self.release()
                self._running.release()

    def _exit(self) -> None:
        if not self.flush(_EXIT) and not self._reported:
            text = "%s: the last calls are not saved: it took nothing for %g s; see who reads it"
            logger.warning(text, self._name, _EXIT)

    def _run(self) -> None:
        try:
            self._closing = False
            while not self._closing:
                self._collect()
                try:
                    self._write()
                except Exception as error:  # noqa: BLE001 # a stream may raise anything
                    self._fail(error)
        finally:
            self.release()
            self._running.release()
        if self._queue.qsize():  # it came while the thread was about to end
            self._start()

    def _collect(self) -> None:
        """Wait for records; after a failure for the next try, which a request brings forward."""
        due = monotonic() + _PAUSE
        timeout = _PAUSE if self._failing else None
        with suppress(Empty):
            while self._failing or len(self._unwritten) < _BATCH:
                item = self._queue.get(timeout=timeout)
                try:
                    self._unwritten.append(item if isinstance(item, _Request) else _line(item))
                except Exception:  # noqa: BLE001 # one record is lost, the thread goes on
                    self._lose()
                timeout = due - monotonic() if self._failing else 0.0
                if not len(self._unwritten) % 8:
                    sleep(0.0001)  # or a call would wait 5 ms for the interpreter
                if timeout < 0 or (self._failing and isinstance(item, _Request)):
                    return

    def _write(self) -> None:
        while self._unwritten:
            ahead = takewhile(lambda item: isinstance(item, bytes), self._unwritten)
            if lines := cast("list[bytes]", [*islice(ahead, _BATCH)]):
                for _ in range(self._output.write(lines)):
                    self._unwritten.popleft()
            else:
                self._settle()
                self._answer(self._unwritten.popleft(), done=True)
        self._settle()

    def _answer(self, request: Any, *, done: bool) -> None:
        if request.close:
            self._output.close()
            self._closing = True
        request.reply.put(done)

    def _fail(self, error: Exception) -> None:
        self._failing = True
        # In the system's words or by its class: what a stream says may be a secret.
        number = error.errno if isinstance(error, OSError) else None
        self._report(os.strerror(number) if number else type(error).__name__)
        for request in [item for item in self._unwritten if isinstance(item, _Request)]:
            self._unwritten.remove(request)
            self._answer(request, done=False)

    def _settle(self) -> None:
        """Flush what was written; where that had failed before, say that it works again."""
        self._output.flush()
        self._failing = False
        if self._reported and not self._queue.qsize():
            self._reported = False
            missing = self.lost - self._lost_before
            logger.info("%s: calls are saved again, %d are missing", self._name, missing)

    def _report(self, problem: str) -> None:
        with self._counting:
            if self._reported:
                return
            self._reported, self._lost_before = True, self.lost
        logger.warning(
            "%s: calls are not saved (%s), but go on; see that it is there, open, writable and "
            "has space; until then the first %d are kept in memory",
            self._name,
            problem,
            self._most,
        )

    def _lose(self) -> None:
        with self._counting:
            self.lost += 1


class _Output:
    """Write lines to a stream, or to whatever file has the path now.

    ``logging.handlers.WatchedFileHandler`` would open the file again, too, but keeps what a full
    disk refused in a buffer that is written later, in parts and beside our own second try.
    """

    def __init__(self, file: Any) -> None:
        self._path = file if isinstance(file, Path) else None
        self._stream: Any = None if self._path else file
        self._torn = False

    def write(self, lines: list[bytes]) -> int:
        """Write lines at once, and return how many of them were taken whole."""
        if self._path is not None:
            self._open(self._path)
        start = b"\n" if self._torn else b""
        data = start + b"".join(lines)
        self._torn = True
        try:
            taken = self._stream.write(data.decode())
        except TypeError:  # it takes bytes
            taken = self._stream.write(data)
        # Others take everything, and not all of them say so.
        taken = taken or 0 if isinstance(self._stream, io.RawIOBase) else len(data)
        if not taken:
            raise BlockingIOError(errno.EAGAIN, "nothing was taken")
        self._torn = not data.endswith(b"\n", 0, taken)
        return max(0, data.count(b"\n", 0, taken) - len(start))

    def flush(self) -> None:
        if self._path is None:
            self._stream.flush()

    def close(self) -> None:
        if self._path is not None and self._stream is not None:
            with suppress(OSError):
                self._stream.close()
            self._stream = None

    def _open(self, path: Path) -> None:
        if not self._is_open(path):
            self.close()
            # Open for both, a pipe would be its own reader.
            is_pipe = path.is_fifo()
            opener = _open_pipe if is_pipe else None
            self._stream = io.FileIO(path, "a" if is_pipe else "a+", opener=opener)
        if path.is_file():
            self._torn = self._ends_torn()

    def _ends_torn(self) -> bool:
        """Tell whether somebody left half a line, and not whether somebody just writes one."""
        before, size = -1, 0
        while size != before:
            before, size = size, os.fstat(self._stream.fileno()).st_size
            self._stream.seek(max(0, size - 1))
            if self._stream.read(1) in {b"", b"\n"}:
                return False
            sleep(0.001)
        return True

    def _is_open(self, path: Path) -> bool:
        try:
            return self._stream is not None and os.path.samestat(
                path.stat(), os.fstat(self._stream.fileno())
            )
        except OSError:
            return False


def _open_pipe(path: str, flags: int) -> int:
    """Open a pipe, or raise where nobody reads it."""
    pipe = os.open(path, flags | os.O_NONBLOCK)
    os.set_blocking(pipe, True)
    return pipe


def _line(record: CallRecord) -> bytes:
    bare = tuple(replace(attempt, usage=None) for attempt in record.attempts)
    values = replace(record, attempts=bare, usage=None, metadata=None).to_dict()
    for saved, attempt in zip(values["attempts"], record.attempts, strict=True):
        saved["usage"] = _plain_mapping(attempt.usage)
    values["usage"] = _plain_mapping(record.usage)
    values["metadata"] = _plain_mapping(record.metadata)
    ended = None
    with suppress(ValueError, OverflowError, OSError):  # no date
        moment = datetime.fromtimestamp(record.started_at + record.seconds, UTC)
        ended = moment.isoformat(timespec="milliseconds")
    text = json.dumps({"time": ended, **values}, ensure_ascii=False, allow_nan=False)
    if not text.isascii():  # half a surrogate pair is no text that could be read
        text = json.dumps(json.loads(text.encode(errors="replace")))
    return f"{text}\n".encode()


def _plain_mapping(mapping: Mapping[str, Any] | None) -> dict[str, Any] | None:
    plain = _plain(mapping)
    return {"lost": plain} if isinstance(plain, str) else plain


def _plain(value: Any, *inside: int) -> Any:
    """Return a value as JSON can say it, or the name of its class; never its ``repr``."""
    kind = cast("Any", type(value))  # isinstance asks the value, which may lie
    plain: Any = kind.__name__
    with suppress(Exception):
        if value is None or kind is bool:
            plain = value
        elif issubclass(kind, str):
            plain = str.__str__(value)
        elif issubclass(kind, int):
            plain = int(int.__repr__(value))  # longer than Python prints, it cannot be read either
        elif issubclass(kind, float):
            plain = float.__float__(value) if math.isfinite(value) else plain
        elif len(inside) < _DEPTH and id(value) not in inside:
            inside = (*inside, id(value))
            if issubclass(kind, Mapping):
                plain = {_key(key): _plain(item, *inside) for key, item in [*value.items()]}
            elif issubclass(kind, list | tuple):
                plain = [_plain(item, *inside) for item in [*value]]
    return plain


def _key(key: Any) -> str:
    plain = _plain(key)
    return plain if isinstance(plain, str) else json.dumps(plain)
