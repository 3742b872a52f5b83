"""A whole run: warm up, make the calls, close everything, and look what is left."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING

from soak.court import Court
from soak.drive import Crew, Supply
from soak.leaks import Holdings, live_runs, lost_tasks, resident
from soak.ledger import Ledger
from soak.plan import Way, calls

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from soak.lanes import Lane
    from soak.plan import Call
    from standins import Served

# The frameworks' own cost decides how often each is asked.
_SHARES = {"core": 84, "langchain": 12, "litellm": 4}
_WAYS = {(False, False): 50, (False, True): 25, (True, False): 15, (True, True): 10}
LANES = {
    "core": ("core", "CoreLane"),
    "langchain": ("langchain_models", "LangChainLane"),
    "litellm": ("litellm_routers", "LiteLLMLane"),
}
# What comes first is loaded, allocated and started once and belongs to no call.
_WARM_UP = 0.1
# LiteLLM's logging worker keeps the context of the call that started it, and of the last it saw.
_HELD_BY_LITELLM = 4
# In MiB: pools, caches and the allocator take their time to fill.
_ROOM = 24.0


@dataclass(frozen=True, slots=True)
class Extent:
    """Say how much is done.

    Args:
        calls: How many.
        at_a_time: How many are in flight.
        seconds: After which no call is begun.
    """

    calls: int
    at_a_time: int
    seconds: float


@dataclass(slots=True)
class Report:
    """Hold what came of a run."""

    seconds: float
    endings: Counter[tuple[str, str]]
    memory: list[float]
    found: int = 0
    troubles: list[str] = field(default_factory=list[str])
    connections: list[str] = field(default_factory=list[str])

    def add(self, troubles: Sequence[str]) -> None:
        self.found += len(troubles)
        self.troubles += troubles

    def note_connections(self, lanes: Mapping[str, Lane], calls: int) -> list[str]:
        """Note what the SDKs' pools count as in use though nobody waits.

        Some stay so when a busy loop cancels a call: a bare httpx.AsyncClient (0.28.1, over
        httpcore 1.0.9) loses a few in a hundred that are cancelled in a loop as busy as this. A
        stream that this package left open would be one in ten calls.

        Args:
            lanes: By name.
            calls: How many were planned.
        """
        self.connections = [one for lane in lanes.values() for one in lane.unfinished()]
        few = max(3, calls // 1000)
        return self.connections if len(self.connections) > few else []

    def lines(self) -> list[str]:
        """Write it for a terminal."""
        total = self.endings.total()
        told = [f"{total} calls in {self.seconds:.0f} s, {total / self.seconds:.0f} a second"]
        ways = sorted({way for way, _ in self.endings})
        endings = sorted({ending for _, ending in self.endings})
        told.append(f"{'':<26}" + "".join(f"{ending:>13}" for ending in endings))
        for way in ways:
            counts = "".join(f"{self.endings[way, ending]:>13}" for ending in endings)
            told.append(f"  {way:<24}{counts}")
        start, middle, end = self.memory
        told.append(f"memory, MiB: start {start:.1f}, middle {middle:.1f}, end {end:.1f}")
        told.append(f"connections that the SDKs' pools still count: {len(self.connections)}")
        told.append(f"violations: {self.found}")
        return told


def lane(name: str, served: Served, ledger: Ledger) -> Lane:
    """Make a lane, which loads its framework."""
    module, kind = LANES[name]
    made: Lane = getattr(import_module(f"soak.lanes.{module}"), kind)(served, ledger)
    return made


async def soak(
    served: Served,
    names: Sequence[str],
    seed: int,
    extent: Extent,
    make: Callable[[str, Served, Ledger], Lane] = lane,
) -> Report:
    """Run, in this loop.

    Args:
        served: The providers.
        names: Of the lanes.
        seed: What everything is drawn from.
        extent: How much.
        make: Makes a lane.
    """
    empty, lost = Holdings.now(), lost_tasks(asyncio.get_running_loop())
    held = live_runs()
    ledger, court, began = Ledger(), Court(), time.monotonic()
    lanes = {name: make(name, served, ledger) for name in names}
    shares = {
        Way(name, sync, stream): _SHARES[name] * weight
        for name in names
        for (sync, stream), weight in _WAYS.items()
    }
    warm = int(extent.calls * _WARM_UP)
    memory: list[float] = []

    def planned(first: int, last: int, until: float) -> tuple[Supply, Supply]:
        def some(*, sync: bool) -> Iterator[Call]:
            drawn = calls(seed, last, shares)
            return (one for one in drawn if one.number >= first and one.way.sync == sync)

        return Supply(some(sync=False), until), Supply(some(sync=True), until)

    def remember() -> None:
        memory.append(resident())

    until = began + extent.seconds
    crew = Crew(lanes, court, served, extent.at_a_time, until, lambda: None)
    await crew.make(*planned(0, warm, until))
    usual = Holdings.now()
    remember()
    crew = Crew(lanes, court, served, extent.at_a_time, until, remember)
    await crew.make(*planned(warm, extent.calls, until))
    remember()
    report = Report(time.monotonic() - began, court.endings, _three(memory))
    report.found, report.troubles = court.found, court.troubles
    report.add(ledger.troubles)
    report.add([f"nobody waited for a task: {one}" for one in lost])
    report.add(report.note_connections(lanes, extent.calls))
    report.add(await _left_over(lanes, ledger, usual, empty, held))
    if (growth := report.memory[2] - report.memory[0]) > _ROOM:
        report.add([f"memory grew by {growth:.1f} MiB"])
    return report


def _three(memory: list[float]) -> list[float]:
    return [memory[0], memory[len(memory) // 2], memory[-1]]


async def _left_over(
    lanes: dict[str, Lane], ledger: Ledger, usual: Holdings, empty: Holdings, held: int
) -> list[str]:
    told: list[str] = []
    if ledger.open:
        told.append(f"{ledger.open} records were never closed")
    for lane in lanes.values():
        await lane.close()
    await asyncio.sleep(0.2)
    if (runs := live_runs() - held) > (_HELD_BY_LITELLM if "litellm" in lanes else 0):
        told.append(f"{runs} calls are held by somebody")
    left = Holdings.now()
    told += left.left_over(Holdings(usual.tasks, usual.threads, empty.sockets))
    return told
