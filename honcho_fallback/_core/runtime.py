"""The one door for time: what a policy takes for the clock, and how it sleeps."""

from __future__ import annotations

import asyncio
import time as clock
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator

# What log lines are about: until when no more of them are needed, and how many there were.
Lines: TypeAlias = dict[tuple[str, str], tuple[float, int]]


@dataclass(frozen=True, slots=True)
class Runtime:
    """Where calls take their time from; tests and simulations bring their own.

    ``with runtime.installed():`` gives it to every policy of the process; ``runtime=`` gives it to
    one policy.

    Args:
        monotonic: Returns seconds on a scale that never goes back.
        time: Returns seconds since the epoch.
        sleep: Waits so many seconds in a thread.
        asleep: Waits so many seconds in a task.
        max_attempts: The most attempts that any call may make, or None: for tests of code that
            would retry (as stamina's testing mode has it).
        waits: Whether there is a wait before a target is asked again.
        on_finish: Called with the run of each call that ends, or None.
    """

    monotonic: Callable[[], float] = clock.monotonic
    time: Callable[[], float] = clock.time
    sleep: Callable[[float], object] = clock.sleep
    asleep: Callable[[float], Awaitable[object]] = asyncio.sleep
    max_attempts: int | None = None
    waits: bool = True
    on_finish: Callable[[Any], object] | None = None
    _of_process: ClassVar[Runtime]
    _lines: Lines = field(default_factory=Lines, init=False, repr=False, compare=False)

    @contextmanager
    def installed(self) -> Generator[Runtime, None, None]:
        """Be the time of every policy of this process until the ``with`` block ends.

        Policies that were made before count too, in threads and in tasks; asyncio's own timeouts
        (``acall`` and ``astream`` bound an attempt by the event loop's time) stay what they are.
        """
        before = Runtime._of_process
        Runtime._of_process = self
        try:
            yield self
        finally:
            Runtime._of_process = before

    @staticmethod
    def current() -> Runtime:
        """Return the runtime of the process: real time, unless a test installed another."""
        return Runtime._of_process


# A mutable global, as the observers of all policies are, and the reason why nothing else has to be
# patched in tests. A parameter alone would have to be passed by the very code under test.
Runtime._of_process = Runtime()  # noqa: SLF001 # pyright: ignore[reportPrivateUsage] # this module's
