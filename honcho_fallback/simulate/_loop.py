"""Virtual time: an event loop that goes straight to its next timer instead of waiting for it."""

from __future__ import annotations

import asyncio
import selectors
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

T = TypeVar("T")


class _Clock(selectors.DefaultSelector):
    """Be where the loop waits: let time pass there at once."""

    now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        # Without a timer there is no time to go to; only a thread can wake the loop then.
        ready = super().select(None if timeout is None else 0)
        if timeout is not None and not ready:
            self.now += max(0.0, timeout)
        return ready


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """Run tasks that overlap in virtual time; the same tasks always run in the same order."""

    def __init__(self) -> None:
        self._clock = _Clock()
        super().__init__(self._clock)

    def time(self) -> float:
        """Return the virtual time in seconds, from 0."""
        return self._clock.now


def run_in_virtual_time(main: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run a coroutine to its end, also where a loop is running already, as in a notebook."""
    if not _is_loop_running():
        return _run(main)
    with ThreadPoolExecutor(1) as thread:  # a thread runs one loop at a time
        return thread.submit(_run, main).result()


def _run(main: Callable[[], Coroutine[Any, Any, T]]) -> T:
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        return runner.run(main())


def _is_loop_running() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
