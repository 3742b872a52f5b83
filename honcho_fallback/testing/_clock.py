"""Time for tests: it stands still until a policy waits or the test moves it, or nobody waits."""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from dataclasses import replace
from heapq import heapify, heappop, heappush
from itertools import count
from typing import TYPE_CHECKING, Self

from honcho_fallback import FallbackConfigError, Runtime

if TYPE_CHECKING:
    from collections.abc import Generator

_MONOTONIC, _EPOCH = 1000.0, 1_767_225_600.0  # 2026-01-01T00:00:00Z


class Clock:
    """Stand for the time that policies see; a wait moves it and takes no real time.

    ``with clock.installed():`` gives it to every policy of the process, also to those that were
    made before, in threads and in tasks. Not moved by it: asyncio's own timeouts (``acall`` and
    ``astream`` bound an attempt by the event loop's time), LiteLLM's cooldowns and sleeps, and the
    SDKs' own retries.

    Args:
        now: Where the monotonic scale begins, in seconds.

    Attributes:
        now: Seconds on the monotonic scale; may be set.
        slept: The waits of the policies, in the order in which they began, in seconds.
    """

    def __init__(self, now: float = _MONOTONIC) -> None:
        self.now = self._began = now
        self.slept: list[float] = []
        self._waiting: list[tuple[float, int]] = []
        self._numbers = count()

    def __repr__(self) -> str:
        return f"<Clock at {self.now:g} s>"

    def __call__(self) -> float:
        """Return the time on the monotonic scale, in seconds."""
        return self.now

    def time(self) -> float:
        """Return the time in seconds since the epoch; a clock begins in 2026."""
        return _EPOCH + self.now - self._began

    def advance(self, seconds: float) -> None:
        """Let so many seconds pass."""
        self.now += seconds

    async def elapse(self, seconds: float) -> None:
        """Let so many seconds pass for this task, while other tasks go through the same time.

        Tasks that wait at once come back in the order in which their waits end.
        """
        due = (self.now + seconds, next(self._numbers))
        heappush(self._waiting, due)
        try:
            while True:
                await asyncio.sleep(0)  # the tasks that can go on go first
                if self._waiting[0] == due:
                    break
        except BaseException:
            self._waiting.remove(due)
            heapify(self._waiting)
            raise
        heappop(self._waiting)
        self.now = max(self.now, due[0])

    def sleep(self, seconds: float) -> None:
        """Wait so many seconds as a policy does in a thread."""
        self.slept.append(seconds)
        self.advance(seconds)

    async def asleep(self, seconds: float) -> None:
        """Wait so many seconds as a policy does in a task."""
        self.slept.append(seconds)
        await self.elapse(seconds)

    @contextmanager
    def installed(self) -> Generator[Self, None, None]:
        """Be the time of every policy of this process, until the ``with`` block ends."""
        runtime = replace(
            Runtime.current(),
            monotonic=self,
            time=self.time,
            sleep=self.sleep,
            asleep=self.asleep,
        )
        with runtime.installed():
            yield self


@contextmanager
def set_testing(*, max_attempts: int | None = None) -> Generator[None, None, None]:
    """Let no policy of this process wait, and none make more attempts, until the block ends.

    For an autouse fixture of a test session, as stamina's ``set_testing``: code under test that
    would ask a failing target again does so at once, or not at all.

    Args:
        max_attempts: The most attempts of any call, all targets together; None leaves it to the
            policies.

    Raises:
        FallbackConfigError: The number is not 1 or more.
    """
    if max_attempts is not None and (type(max_attempts) is not int or max_attempts < 1):
        fix = "pass a whole number, 1 or more, or None"
        raise FallbackConfigError.about("max_attempts", f"got {max_attempts!r}", fix)
    with replace(Runtime.current(), waits=False, max_attempts=max_attempts).installed():
        yield
