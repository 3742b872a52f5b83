"""What a call costs more when a policy stands around it: microseconds, memory, import time.

Every subject asks the same in-process fakes that take no time: on the happy path the primary
answers; on failover it raises an error with status 503 once, nobody waits, the fallback answers.
Rounds are interleaved in random order, each call is timed by itself with the collector on, and the
half of the rounds with the lowest medians counts, because other programs run on the machine too.
"Added" is a subject's figure minus that of the bare call of the same kind. The log line of a
switch is made and thrown away, for all alike. Quote ratios: they come from one run.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import logging
import os
import platform
import random
import statistics
import subprocess
import sys
import time
import tracemalloc
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from importlib.metadata import version
from typing import NamedTuple

import stamina
import tenacity

from honcho_fallback import Attempt, FallbackPolicy, Target

Sync = Callable[[], object]
Async = Callable[[], Awaitable[object]]

HAPPY, FAILOVER = "happy", "failover"
SYNC, ASYNC, STREAM, ASTREAM = "sync", "async", "stream", "async stream"
PEER = "tenacity"
# The figures to reach, in added microseconds (median), and as a share of tenacity's.
TARGETS = {
    (HAPPY, SYNC): 5.0,
    (HAPPY, ASYNC): 12.0,
    (FAILOVER, SYNC): 60.0,
    (FAILOVER, ASYNC): 60.0,
}
SHARES = {HAPPY: 1 / 4, FAILOVER: 2 / 3}
MEMORY_TARGET = 2048
CHUNKS = ("", "a", "b", "c")


class OverloadedError(Exception):
    """Stand for an SDK's error."""

    status_code = 503


class Job(NamedTuple):
    """Name one cell of the table and how to run one call of it."""

    subject: str
    kind: str
    path: str
    sync: Sync | None
    coroutine: Async | None


class Figures(NamedTuple):
    """Hold the microseconds of one call."""

    median: float
    p99: float


def good() -> str:
    return "answer"


def bad() -> str:
    raise OverloadedError


async def agood() -> str:
    return "answer"


async def abad() -> str:
    raise OverloadedError


def good_stream() -> Iterator[str]:
    yield from CHUNKS


def bad_stream() -> Iterator[str]:
    raise OverloadedError
    yield ""


async def good_astream() -> AsyncIterator[str]:
    for chunk in CHUNKS:
        yield chunk


async def bad_astream() -> AsyncIterator[str]:
    raise OverloadedError
    yield ""


def is_transient(error: BaseException) -> bool:
    return getattr(error, "status_code", 0) in {408, 429, 500, 502, 503, 504, 529}


def bare() -> Iterator[Job]:
    async def drain() -> list[str]:
        return [chunk async for chunk in good_astream()]

    yield Job("bare call", SYNC, HAPPY, good, None)
    yield Job("bare call", ASYNC, HAPPY, None, agood)
    yield Job("bare call", STREAM, HAPPY, lambda: list(good_stream()), None)
    yield Job("bare call", ASTREAM, HAPPY, None, drain)


def with_tenacity(path: str) -> Iterator[Job]:
    first, afirst = (good, agood) if path == HAPPY else (bad, abad)
    number = 1

    def note(state: tenacity.RetryCallState) -> None:
        nonlocal number
        number = state.attempt_number + 1

    @tenacity.retry(
        retry=tenacity.retry_if_exception(is_transient),
        stop=tenacity.stop_after_attempt(2),
        wait=tenacity.wait_none(),
        before_sleep=note,
        reraise=True,
    )
    def ask() -> str:
        return (first if number == 1 else good)()

    @tenacity.retry(
        retry=tenacity.retry_if_exception(is_transient),
        stop=tenacity.stop_after_attempt(2),
        wait=tenacity.wait_none(),
        before_sleep=note,
        reraise=True,
    )
    async def aask() -> str:
        return await (afirst if number == 1 else agood)()

    def call() -> str:
        nonlocal number
        number = 1
        return ask()

    async def acall() -> str:
        nonlocal number
        number = 1
        return await aask()

    yield Job(PEER, SYNC, path, call, None)
    yield Job(PEER, ASYNC, path, None, acall)


def with_stamina(path: str) -> Iterator[Job]:
    first, afirst = (good, agood) if path == HAPPY else (bad, abad)

    def call() -> str:
        for attempt in stamina.retry_context(
            on=OverloadedError, attempts=2, wait_initial=0, wait_max=0, wait_jitter=0, timeout=None
        ):
            with attempt:
                return (first if attempt.num == 1 else good)()
        raise AssertionError

    async def acall() -> str:
        async for attempt in stamina.retry_context(
            on=OverloadedError, attempts=2, wait_initial=0, wait_max=0, wait_jitter=0, timeout=None
        ):
            with attempt:
                return await (afirst if attempt.num == 1 else agood)()
        raise AssertionError

    yield Job("stamina", SYNC, path, call, None)
    yield Job("stamina", ASYNC, path, None, acall)


def with_policy(policy: FallbackPolicy, path: str) -> Iterator[Job]:
    failing = path == FAILOVER

    def ask(attempt: Attempt) -> str:
        return bad() if failing and attempt.position == 0 else good()

    async def aask(attempt: Attempt) -> str:
        return await (abad() if failing and attempt.position == 0 else agood())

    def ask_stream(attempt: Attempt) -> Iterator[str]:
        return bad_stream() if failing and attempt.position == 0 else good_stream()

    def ask_astream(attempt: Attempt) -> AsyncIterator[str]:
        return bad_astream() if failing and attempt.position == 0 else good_astream()

    async def drain() -> list[str]:
        return [chunk async for chunk in policy.astream(ask_astream)]

    yield Job("policy.call", SYNC, path, lambda: policy.call(ask), None)
    yield Job("policy.acall", ASYNC, path, None, lambda: policy.acall(aask))
    yield Job("policy.stream", STREAM, path, lambda: list(policy.stream(ask_stream)), None)
    yield Job("policy.astream", ASTREAM, path, None, drain)


async def timed(job: Job, calls: int) -> list[int]:
    clock = time.perf_counter_ns
    spent = [0] * calls
    if job.sync is not None:
        call = job.sync
        for number in range(calls):
            start = clock()
            call()
            spent[number] = clock() - start
    elif job.coroutine is not None:
        acall = job.coroutine
        for number in range(calls):
            start = clock()
            await acall()
            spent[number] = clock() - start
    return spent


def figures(rounds: list[list[int]]) -> Figures:
    quiet = sorted(rounds, key=statistics.median)[: (len(rounds) + 1) // 2]
    spent = sorted(nanoseconds for one in quiet for nanoseconds in one)
    return Figures(statistics.median(spent) / 1e3, spent[int(0.99 * (len(spent) - 1))] / 1e3)


async def measure(
    jobs: list[Job], calls: int, rounds: int, warm_up: int = 300
) -> dict[tuple[str, str, str], Figures]:
    for job in jobs:
        await timed(job, warm_up)
    spent: dict[Job, list[list[int]]] = {job: [] for job in jobs}
    order = random.Random(7)
    for _ in range(rounds):
        for job in order.sample(jobs, len(jobs)):
            spent[job].append(await timed(job, -(-calls // rounds)))
    return {(job.subject, job.kind, job.path): figures(spent[job]) for job in jobs}


def show_overhead(table: dict[tuple[str, str, str], Figures]) -> None:
    print(f"\n{'added microseconds':<32}{'median':>8}{'p99':>9}{'of tenacity':>13}  to reach")
    for path in (HAPPY, FAILOVER):
        print(path)
        for (subject, kind, where), got in table.items():
            floor = table["bare call", kind, HAPPY]
            if where != path:
                continue
            if subject == "bare call":
                print(f"  {f'{subject} ({kind})':<30}{got.median:8.2f}{got.p99:9.2f}  (the floor)")
                continue
            peer = table.get((PEER, kind, path))
            share = goal = ""
            if peer is not None and subject.startswith("policy"):
                ratio = (got.median - floor.median) / (
                    peer.median - table["bare call", kind, HAPPY].median
                )
                share = f"{ratio:.2f}"
                goal = f"<= {TARGETS[path, kind]:g} us, <= {SHARES[path]:.2f} of tenacity"
            print(
                f"  {f'{subject} ({kind})':<30}{got.median - floor.median:8.2f}"
                f"{got.p99 - floor.p99:9.2f}{share:>13}  {goal}"
            )


async def bytes_in_flight(ask: Callable[[asyncio.Event], Awaitable[object]], count: int) -> float:
    gate = asyncio.Event()
    gc.collect()
    tracemalloc.start()
    tasks = [asyncio.ensure_future(ask(gate)) for _ in range(count)]
    await asyncio.sleep(0)
    gc.collect()
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    gate.set()
    await asyncio.gather(*tasks)
    return size / count


async def show_memory(policy: FallbackPolicy, count: int = 2000) -> None:
    async def bare_call(gate: asyncio.Event) -> None:
        await gate.wait()

    async def through_policy(gate: asyncio.Event) -> None:
        await policy.acall(lambda _attempt: gate.wait())

    await bytes_in_flight(through_policy, 100)
    floor = await bytes_in_flight(bare_call, count)
    full = await bytes_in_flight(through_policy, count)
    gc.collect()
    tracemalloc.start()
    runs = [policy.start() for _ in range(count)]
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    print(f"\nbytes per call in flight ({count} open): run alone {size / len(runs):.0f}, ", end="")
    print(f"added to a task {full - floor:.0f}   to reach: <= {MEMORY_TARGET}")


def show_import(rounds: int = 9) -> None:
    statements = {
        "nothing": "pass",
        "its two dependencies": "import tenacity; from pydantic import BaseModel, field_validator",
    }
    statements["honcho_fallback"] = "import honcho_fallback"
    spent: dict[str, list[float]] = {name: [] for name in statements}
    for _ in range(rounds):
        for name, statement in statements.items():
            start = time.perf_counter_ns()
            subprocess.run([sys.executable, "-c", statement], check=True)
            spent[name].append((time.perf_counter_ns() - start) / 1e6)
    floor = statistics.median(spent.pop("nothing"))
    print("\nimport, milliseconds over a bare interpreter (median of fresh processes)")
    for name, milliseconds in spent.items():
        print(f"  {name:<30}{statistics.median(milliseconds) - floor:8.1f}")


def silence() -> None:
    """Make log lines and throw them away, so that a terminal is not what is measured."""
    for name in ("honcho_fallback", "stamina"):
        logging.getLogger(name).addHandler(logging.NullHandler())
        logging.getLogger(name).propagate = False
    stamina.instrumentation.set_on_retry_hooks([])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--calls", type=int, default=4000, help="per cell (default 4000)")
    parser.add_argument("--rounds", type=int, default=20, help="interleaved (default 20)")
    options = parser.parse_args()

    silence()
    policy = FallbackPolicy(
        [Target("big", provider="one"), Target("small", provider="two")], agent="bench"
    )
    jobs = [*bare()]
    for path in (HAPPY, FAILOVER):
        jobs += [*with_tenacity(path), *with_stamina(path), *with_policy(policy, path)]

    packages = ", ".join(
        f"{name} {version(name)}" for name in ("tenacity", "stamina", "honcho-fallback")
    )
    print(
        f"Python {platform.python_version()}, {os.cpu_count()} cores, "
        f"load {os.getloadavg()[0]:.1f}"
    )
    print(f"{packages}; {options.calls} calls per cell in {options.rounds} rounds")
    show_overhead(asyncio.run(measure(jobs, options.calls, options.rounds)))
    asyncio.run(show_memory(policy))
    show_import()


if __name__ == "__main__":
    main()
