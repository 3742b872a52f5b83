"""Measure in alternating rounds; what counts is the median of what each round says.

pyperf and pytest-benchmark measure one job to its end before they begin the next. A ratio of two
of their figures compares two moments of the machine, and another program's burst falls on one of
the two. Here every round asks every job, every other round in reverse order, and a ratio is taken
within a round.

The interval is that of the order statistics of the median: it assumes nothing about how figures
are distributed, needs ``math.comb`` of the standard library, and draws nothing at random.
"""

from __future__ import annotations

import asyncio
import gc
import time
from dataclasses import dataclass, replace
from math import comb, floor, inf, isfinite, log10
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

CONFIDENCE = 0.95
LEAST_ROUNDS = 6  # of fewer, not even the smallest and the largest value hold the median so often
NO_DIFFERENCE = "no difference measured"

K = TypeVar("K")
N = TypeVar("N")
T = TypeVar("T")

# Long enough for what a library does behind a call's back, so that no other job pays for it.
PAUSE = 0.02


@dataclass(frozen=True, slots=True)
class Interval:
    """Hold a median and the two values between which it lies with 95 % confidence."""

    median: float
    low: float
    high: float
    rounds: int
    series: int = 1  # how many were measured until it was narrow enough
    is_wide: bool = False  # whether even the last was not

    @classmethod
    def of(cls, values: Sequence[float]) -> Interval:
        """Return the median of independent values with its interval.

        Raises:
            ValueError: There are too few values for any interval.
        """
        count = len(values)
        if count < LEAST_ROUNDS:
            raise ValueError(f"{count} values have no interval; pass {LEAST_ROUNDS} or more")
        # The median is below the rank-th value as often as so few of n coins show heads.
        rank, beyond = 0, 1 / 2**count
        while (beyond := beyond + comb(count, rank + 1) / 2**count) <= (1 - CONFIDENCE) / 2:
            rank += 1
        ordered = sorted(values)
        return cls(median(ordered), ordered[rank], ordered[-1 - rank], count)

    @property
    def width(self) -> float:
        """Return how wide it is, as a share of the median."""
        if self.low == self.high:
            return 0.0
        if not self.median or not isfinite(self.median):
            return inf
        return (self.high - self.low) / abs(self.median)

    def __str__(self) -> str:
        wide = ", wide" * self.is_wide
        return f"{number(self.median)} ({number(self.low)} to {number(self.high)}{wide})"

    def as_ratio(self) -> str:
        """Write a ratio, or that the interval does not tell it from 1."""
        return NO_DIFFERENCE if self.low <= 1 <= self.high else str(self)

    def as_difference(self) -> str:
        """Write a difference, or that the interval does not tell it from nothing."""
        return NO_DIFFERENCE if self.low <= 0 <= self.high else str(self)

    def verdict(self, most: float) -> str:
        """Say whether a limit is kept, where the interval decides it."""
        if self.high <= most:
            return "kept"
        return "**missed**" if self.low > most else "undecided"


class Plan(NamedTuple):
    """Say how much is measured."""

    rounds: int = 15  # of the first series; each further one has twice as many as the last
    series: int = 3  # at most, of a figure whose interval is too wide
    widest: float = 0.2  # width of an interval, as a share of the median, that is not repeated
    seconds: float = inf  # of one job in the first series; after LEAST_ROUNDS it is asked no more


QUICK = Plan(LEAST_ROUNDS, series=1)


class Figure(NamedTuple):
    """Say what is read out of each round."""

    jobs: tuple[Any, ...]
    of: Callable[..., float]  # of what the jobs returned in that round, in their order


def added(spent: float, bare: float) -> float:
    return spent - bare


def ratio(subject: float, peer: float) -> float:
    """Return a ratio that can be put in order also where a peer spends nothing, or never ends."""
    if subject == peer or (subject <= 0 and peer <= 0):
        return 1.0
    return subject / peer if peer > 0 else inf


def added_ratio(subject: float, peer: float, bare: float) -> float:
    return ratio(subject - bare, peer - bare)


def measure(
    jobs: Mapping[K, Callable[[], Any]],
    figures: Mapping[N, Figure],
    plan: Plan,
    clock: Callable[[], float] = time.monotonic,
) -> dict[N, Interval]:
    """Return each figure's median and interval, and measure anew what is too wide.

    A further series replaces the one before and has a length that was known before it began:
    rounds that are added until an interval looks narrow would make it narrower than it is.
    """
    intervals: dict[N, Interval] = {}
    pending = dict(figures)
    for repeat in range(plan.series):
        needed = {job for figure in pending.values() for job in figure.jobs}
        samples = series(
            {job: ask for job, ask in jobs.items() if job in needed},
            plan.rounds * 2**repeat,
            plan.seconds * 2**repeat,
            clock,
        )
        for name, figure in pending.items():
            # A job that ran out of time has the first rounds only: so does what it is paired with.
            rounds = zip(*(samples[job] for job in figure.jobs), strict=False)
            interval = Interval.of([figure.of(*values) for values in rounds])
            is_wide = interval.width > plan.widest
            intervals[name] = replace(interval, series=repeat + 1, is_wide=is_wide)
        pending = {name: one for name, one in pending.items() if intervals[name].is_wide}
        if not pending:
            break
    return intervals


def series(
    jobs: Mapping[K, Callable[[], T]],
    rounds: int,
    seconds: float = inf,
    clock: Callable[[], float] = time.monotonic,
) -> dict[K, list[T]]:
    """Ask every job in every round, every other round in reverse order."""
    gc.collect()
    samples: dict[K, list[T]] = {job: [] for job in jobs}
    spent = dict.fromkeys(jobs, 0.0)
    for turn in range(rounds):
        for job in [*jobs][:: -1 if turn % 2 else 1]:
            if turn < LEAST_ROUNDS or spent[job] < seconds:
                start = clock()
                samples[job].append(jobs[job]())
                spent[job] += clock() - start
    return samples


def number(value: float) -> str:
    """Write three digits that count, without an exponent."""
    if not isfinite(value):
        return str(value)
    digits = 2 - floor(log10(abs(value))) if value else 0
    return f"{round(value, digits):.{max(0, digits)}f}"


@dataclass(frozen=True, slots=True)
class Job:
    """Name one figure and how to make one call of it."""

    row: str  # the competitor
    kind: str  # what it is compared with: jobs of one kind share a floor, their bare call
    path: str  # "happy" or "failover"
    call: Callable[[], object]  # returns an awaitable where the kind is async

    def timer(
        self, runner: asyncio.Runner, seconds: float, clock: Callable[[], int]
    ) -> Callable[[], float]:
        """Return what makes as many calls as fill so many seconds: microseconds of one call."""

        def turn(calls: int) -> float:
            if "async" in self.kind:
                return runner.run(_awaited(self, calls, clock))
            return _called(self, calls, clock)

        # The first calls fill caches; a turn of a fast job has to be long enough for the clock.
        turn(3)
        calls = 10
        while (spent := turn(calls) * calls / 1e6) < seconds / 10 and calls < 1_000_000:
            calls *= 4
        enough = max(3, round(calls * seconds / max(spent, 1e-9)))
        return lambda: turn(enough)


def _called(job: Job, calls: int, clock: Callable[[], int]) -> float:
    call = job.call
    start = clock()
    for _ in range(calls):
        call()
    return (clock() - start) / calls / 1e3


async def _awaited(job: Job, calls: int, clock: Callable[[], int]) -> float:
    call: Callable[[], Awaitable[object]] = job.call  # type: ignore[assignment] # the kind says so
    start = clock()
    for _ in range(calls):
        await call()
    spent = clock() - start
    await asyncio.sleep(PAUSE)
    return spent / calls / 1e3
