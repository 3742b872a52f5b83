"""So many calls at a time, until the plan or the time is over."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from soak.ask import asked, asked_in_thread
from soak.provider import CONTROL

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from soak.court import Court
    from soak.lanes import Lane
    from soak.plan import Call
    from standins import Served

# How often the providers are asked what they saw.
_PERIOD = 0.5
# A stream that was dropped is closed when it is collected; a request may be on its way.
_SETTLING = 3
# Seconds after the last call may begin, in which all have to end: some attempts, each timed out.
_PATIENCE = 35.0


class Supply:
    """Hand calls to workers, until there are none or the time is over."""

    def __init__(self, calls: Iterator[Call], until: float) -> None:
        self._calls, self._until = calls, until
        self._lock = threading.Lock()
        self.handed = 0

    def next(self) -> Call | None:
        with self._lock:
            if time.monotonic() > self._until:
                return None
            call = next(self._calls, None)
            self.handed += call is not None
            return call


@dataclass(frozen=True, slots=True)
class Crew:
    """Make calls so many at a time: first in tasks, then in threads.

    Both at once would starve the event loop, which is one of many that want the interpreter.

    Args:
        lanes: By name.
        court: Judges.
        served: The providers.
        at_a_time: How many tasks, and how many threads.
        until: When no call is begun any more, on the monotonic clock.
        heard: Called after each judgement.
    """

    lanes: Mapping[str, Lane]
    court: Court
    served: Served
    at_a_time: int
    until: float
    heard: Callable[[], None]

    async def make(self, for_tasks: Supply, for_threads: Supply) -> None:
        """Make all calls, and judge them."""

        async def work() -> None:
            while (call := for_tasks.next()) is not None:
                self.court.begin(call)
                self.court.add(call, *await asked(self.lanes[call.way.lane], call))

        def work_in_thread() -> None:
            while (call := for_threads.next()) is not None:
                self.court.begin(call)
                told = contextvars.Context().run(asked_in_thread, self.lanes[call.way.lane], call)
                self.court.add(call, *told)

        tasks = [asyncio.ensure_future(work()) for _ in range(self.at_a_time)]
        if not await self._judge_while(lambda: not all(task.done() for task in tasks)):
            return
        await asyncio.gather(*tasks)
        threads = [
            threading.Thread(target=work_in_thread, name=f"soak {number}", daemon=True)
            for number in range(self.at_a_time)
        ]
        for thread in threads:
            thread.start()
        if not await self._judge_while(lambda: any(thread.is_alive() for thread in threads)):
            return
        for left in reversed(range(_SETTLING)):
            gc.collect()
            await asyncio.sleep(_PERIOD)
            self.court.hold(_log(self.served), last=not left)

    async def _judge_while(self, running: Callable[[], bool]) -> bool:
        while running():
            if time.monotonic() > self.until + _PATIENCE:
                self.court.give_up()
                return False
            await asyncio.sleep(_PERIOD)
            self.court.hold(_log(self.served))
            self.heard()
        return True


def _log(served: Served) -> list[tuple[int, str, str]]:
    # A few milliseconds during which no task runs, which is one more thing that may happen.
    return [(number, target, fault) for number, target, fault in served.ask(CONTROL, "/log")]
