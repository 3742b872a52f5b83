"""A whole run: warm up, make the calls, close everything, and look what is left."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from benchmarks.report import table
from benchmarks.soak.backends import BACKENDS
from benchmarks.soak.checker import RECORDS, Checker, Observation, RecordObserver, Records
from benchmarks.soak.leaks import SOCKET, holdings, left_over, live_runs, lost_tasks, resident
from benchmarks.soak.plan import CANCEL, CLOSE, DROP, Way, calls

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from benchmarks.providers import ProviderProcess
    from benchmarks.soak.backends import Backend
    from benchmarks.soak.checker import Ending
    from benchmarks.soak.plan import Call
    from honcho_fallback import FallbackObserver

# The frameworks' own cost decides how often each is asked.
_SHARES = {"core": 84, "langchain": 12, "litellm": 4}
_WAYS = {(False, False): 50, (False, True): 25, (True, False): 15, (True, True): 10}
# What comes first is loaded, allocated and started once and belongs to no call.
_WARM_UP = 0.1
# How often the providers are asked what they saw, in seconds.
_PERIOD = 0.5
# A stream that was dropped is closed when it is collected; a request may be on its way.
_SETTLING = 3
# Seconds after the last call may begin, in which all have to end: some attempts, each timed out.
_PATIENCE = 35.0
# In MiB: pools, caches and the allocator take their time to fill.
_ROOM = 24.0


@dataclass(frozen=True, slots=True)
class Extent:
    """Say how much is done."""

    calls: int
    at_a_time: int
    seconds: float


@dataclass(slots=True)
class Report:
    """Hold what came of a run."""

    seconds: float
    endings: Counter[tuple[str, str]]
    memory: list[float]
    count: int
    violations: list[str]
    connections: list[str] = field(default_factory=list[str])

    def add(self, violations: Sequence[str]) -> None:
        self.count += len(violations)
        self.violations += violations

    def __str__(self) -> str:
        total = self.endings.total()
        kinds = sorted({ending for _, ending in self.endings})
        rows = [
            [way, *(str(self.endings[way, kind]) for kind in kinds)]
            for way in sorted({way for way, _ in self.endings})
        ]
        memory = ", ".join(f"{mebibytes:.1f}" for mebibytes in self.memory)
        return "\n".join(
            (
                table([f"{total} calls in {self.seconds:.0f} s", *kinds], rows),
                f"\nmemory, MiB, at the start, in the middle, at the end: {memory}",
                f"connections that the SDKs' pools still count: {len(self.connections)}",
                f"violations: {self.count}",
            )
        )


async def soak(
    providers: ProviderProcess,
    names: Sequence[str],
    seed: int,
    extent: Extent,
    make: Mapping[str, Callable[[str, FallbackObserver], Backend]] = BACKENDS,
) -> Report:
    """Run, in this loop."""
    empty, lost = holdings(), lost_tasks(asyncio.get_running_loop())
    runs_before = live_runs()
    observer, checker, began = RecordObserver(), Checker(extent.calls), time.monotonic()
    backends = {name: make[name](providers.url, observer) for name in names}
    crew = Crew(backends, checker, providers, extent.at_a_time, began + extent.seconds)
    shares = {
        Way(name, sync, stream): _SHARES[name] * weight
        for name in names
        for (sync, stream), weight in _WAYS.items()
    }
    warm = int(extent.calls * _WARM_UP)
    await crew.make(lambda: calls(seed, range(warm), shares))
    usual = holdings()
    usual[SOCKET] = empty[SOCKET]
    crew.memory[:] = [resident()]
    await crew.make(lambda: calls(seed, range(warm, extent.calls), shares))
    memory = [crew.memory[0], crew.memory[len(crew.memory) // 2], resident()]
    seconds = time.monotonic() - began
    report = Report(seconds, checker.endings, memory, checker.count, checker.violations)
    report.add(observer.violations)
    report.add([f"nobody waited for a task: {one}" for one in lost])
    report.connections = [one for backend in backends.values() for one in backend.unfinished()]
    # Some stay in use when a busy loop cancels a call: a bare httpx.AsyncClient (0.28.1 over
    # httpcore 1.0.9) loses a few in a hundred of those. A stream that this package left open
    # would be one in ten calls.
    if len(report.connections) > max(3, extent.calls // 200):
        report.add(report.connections)
    report.add(await _left_over(backends, observer, usual, runs_before))
    if (growth := memory[-1] - memory[0]) > _ROOM:
        report.add([f"memory grew by {growth:.1f} MiB"])
    return report


async def _left_over(
    backends: Mapping[str, Backend],
    observer: RecordObserver,
    usual: Counter[str],
    runs_before: int,
) -> list[str]:
    left: list[str] = []
    if observer.open:
        left.append(f"{observer.open} records were never closed")
    for backend in backends.values():
        await backend.close()
    await asyncio.sleep(0.2)
    runs = live_runs() - runs_before
    if runs > 0:
        left.append(f"{runs} calls are held by somebody")
    return [*left, *left_over(usual)]


@dataclass(frozen=True, slots=True)
class Crew:
    """Make calls so many at a time: first in tasks, then in threads.

    Both at once would starve the event loop, which is one of many that want the interpreter.
    """

    backends: Mapping[str, Backend]
    checker: Checker
    providers: ProviderProcess
    at_a_time: int
    until: float
    lock: threading.Lock = field(default_factory=threading.Lock)
    memory: list[float] = field(default_factory=list[float])

    async def make(self, planned: Callable[[], Iterator[Call]]) -> None:
        """Make the calls, and check them."""
        for_tasks = (call for call in planned() if not call.way.sync)
        for_threads = (call for call in planned() if call.way.sync)
        tasks = [asyncio.ensure_future(self._work(for_tasks)) for _ in range(self.at_a_time)]
        if not await self._check_while(lambda: not all(task.done() for task in tasks)):
            return
        await asyncio.gather(*tasks)
        threads = [
            threading.Thread(target=self._work_in_thread, args=(for_threads,), daemon=True)
            for _ in range(self.at_a_time)
        ]
        for thread in threads:
            thread.start()
        if not await self._check_while(lambda: any(thread.is_alive() for thread in threads)):
            return
        for left in reversed(range(_SETTLING)):
            gc.collect()
            await asyncio.sleep(_PERIOD)
            self._check(last=not left)

    async def _work(self, planned: Iterator[Call]) -> None:
        while (call := self._next(planned)) is not None:
            self.checker.end(call, *await ask(self.backends[call.way.backend], call))

    def _work_in_thread(self, planned: Iterator[Call]) -> None:
        while (call := self._next(planned)) is not None:
            backend = self.backends[call.way.backend]
            self.checker.end(call, *contextvars.Context().run(ask_in_thread, backend, call))

    def _next(self, planned: Iterator[Call]) -> Call | None:
        if time.monotonic() > self.until:
            return None
        with self.lock:
            call = next(planned, None)
            if call is not None:
                self.checker.begin(call)
            return call

    async def _check_while(self, is_running: Callable[[], bool]) -> bool:
        while is_running():
            if time.monotonic() > self.until + _PATIENCE:
                self.checker.give_up()
                return False
            await asyncio.sleep(_PERIOD)
            self._check()
        return True

    def _check(self, *, last: bool = False) -> None:
        # A few milliseconds during which no task runs, which is one more thing that may happen.
        self.checker.check(self.providers.control()["requests"], last=last)
        self.memory.append(resident())


async def ask(backend: Backend, call: Call) -> tuple[Observation, Records]:
    """Ask in a task of its own, and cancel it where the plan says so."""
    records = Records()
    RECORDS.set(records)  # the task below copies the context
    read: list[str] = []
    task = asyncio.ensure_future(_aread(backend, call, read))
    accepted = False
    if call.leave == CANCEL:
        await asyncio.wait({task}, timeout=call.patience)
        accepted = task.cancel()
    await asyncio.wait({task})
    if task.cancelled():
        return Observation("cancelled", "".join(read)), records
    return _observation(task.exception(), read, swallowed=accepted), records


async def _aread(backend: Backend, call: Call, read: list[str]) -> None:
    if not call.way.stream:
        read.append(await backend.acall(call.prompt))
        return
    chunks = backend.astream(call.prompt)
    async for chunk in chunks:
        read.append(chunk)
        if len(read) == call.chunks and call.leave in {CLOSE, DROP}:
            if call.leave == CLOSE:
                await chunks.aclose()
            raise _LeftError


def ask_in_thread(backend: Backend, call: Call) -> tuple[Observation, Records]:
    """Ask in this thread."""
    records = Records()
    RECORDS.set(records)
    read: list[str] = []
    try:
        _read(backend, call, read)
    except Exception as error:  # noqa: BLE001 # what a call raises is what is checked
        return _observation(error, read), records
    return _observation(None, read), records


def _read(backend: Backend, call: Call, read: list[str]) -> None:
    if not call.way.stream:
        read.append(backend.call(call.prompt))
        return
    chunks = backend.stream(call.prompt)
    for chunk in chunks:
        read.append(chunk)
        if len(read) == call.chunks and call.leave in {CLOSE, DROP}:
            if call.leave == CLOSE:
                chunks.close()
            raise _LeftError


class _LeftError(Exception):
    """Stop reading; what is left of the stream is nobody's."""


def _observation(
    error: BaseException | None, read: list[str], *, swallowed: bool = False
) -> Observation:
    text = "".join(read)
    if error is None:
        return Observation("answer", text, swallowed=swallowed)
    # Its frames would hold the stream that nobody is to hold.
    error.__traceback__ = None
    if isinstance(error, _LeftError):
        return Observation("left", text)
    ending: Ending = "interrupted" if text else "error"
    return Observation(ending, text, type(error).__name__, swallowed)
