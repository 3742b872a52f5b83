"""Virtual time: what sleeps is an event in a queue, so an hour passes in a moment."""

from __future__ import annotations

from heapq import heappop, heappush
from itertools import count
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Generator

    Process = Generator[float, None, object]


class VirtualClock:
    """Run processes that overlap in virtual time, one after the other in real time.

    A process is a generator that yields the seconds it sleeps. Those due at the same moment run
    in the order in which they fell asleep, so a run can be repeated exactly.
    """

    def __init__(self) -> None:
        self.now = 0.0
        self._order = count()
        self._events: list[tuple[float, int, Process]] = []

    def __call__(self) -> float:
        """Return the virtual time in seconds."""
        return self.now

    def spawn(self, process: Process) -> None:
        """Start a process at the present moment, after those that are due now."""
        heappush(self._events, (self.now, next(self._order), process))

    def run(self) -> None:
        """Run until every process has ended."""
        events = self._events
        while events:
            self.now, _, process = heappop(events)
            for pause in process:
                heappush(events, (self.now + pause, next(self._order), process))
                break
