"""Time many jobs in alternating rounds; the quietest round of each counts.

pyperf and pytest-benchmark measure one job to its end before they begin the next. A ratio of two
of their figures compares two moments of the machine, and another program's burst falls on one of
the two. Here every round asks every job, in another order each time.
"""

from __future__ import annotations

import asyncio
import gc
import random
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

Clock = Callable[[], int]

# Long enough for what a library does behind a call's back, so that no other job pays for it.
_PAUSE = 0.02


@dataclass(frozen=True, slots=True)
class Job:
    """Name one figure and how to make one call of it."""

    row: str  # the competitor
    kind: str  # what it is compared with: jobs of one kind share a floor, their bare call
    path: str  # "happy" or "failover"
    call: Callable[[], object]  # returns an awaitable where the kind is async

    @property
    def is_async(self) -> bool:
        return "async" in self.kind


def quietest(
    jobs: Sequence[Job], rounds: int, seconds: float, clock: Clock = time.perf_counter_ns
) -> dict[Job, float]:
    """Return the microseconds of one call, per job, in its quietest round."""
    order = random.Random(7)
    with asyncio.Runner() as runner:

        def turn(job: Job, calls: int) -> float:
            return (
                runner.run(_turn(job, calls, clock)) if job.is_async else _times(job, calls, clock)
            )

        counts = {job: _calls_per_turn(job, turn, seconds) for job in jobs}
        gc.collect()
        figures = dict.fromkeys(jobs, float("inf"))
        for _ in range(rounds):
            for job in order.sample(jobs, len(jobs)):
                figures[job] = min(figures[job], turn(job, counts[job]))
    return figures


def _calls_per_turn(job: Job, turn: Callable[[Job, int], float], seconds: float) -> int:
    # The first calls fill caches; a turn of a fast job has to be long enough for the clock.
    turn(job, 3)
    calls = 10
    while (spent := turn(job, calls) * calls / 1e6) < seconds / 10 and calls < 1_000_000:
        calls *= 4
    return max(3, round(calls * seconds / max(spent, 1e-9)))


def _times(job: Job, calls: int, clock: Clock) -> float:
    call = job.call
    start = clock()
    for _ in range(calls):
        call()
    return (clock() - start) / calls / 1e3


async def _turn(job: Job, calls: int, clock: Clock) -> float:
    call: Callable[[], Awaitable[object]] = job.call  # type: ignore[assignment] # is_async says so
    start = clock()
    for _ in range(calls):
        await call()
    spent = clock() - start
    await asyncio.sleep(_PAUSE)
    return spent / calls / 1e3
