"""Ask until the run is over, in a thread or in a task; decides nothing itself."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from honcho_fallback._machine import FallbackRun
    from honcho_fallback._target import Attempt

T = TypeVar("T")


def call(run: FallbackRun, ask: Callable[[Attempt], T], sleep: Callable[[float], object]) -> T:
    """Ask in this thread.

    Args:
        run: A run that has not ended.
        ask: Asks one target; what it raises is a failure.
        sleep: Waits so many seconds.
    """
    attempt = run.attempt
    while True:
        try:
            if attempt.wait:
                sleep(attempt.wait)
            answer = ask(attempt)
        except BaseException as error:  # noqa: BLE001 # the run raises what it does not handle
            attempt = run.fail(error)
        else:
            following = run.accept(answer)
            if following is None:
                return answer
            attempt = following


async def acall(
    run: FallbackRun,
    ask: Callable[[Attempt], Awaitable[T]],
    sleep: Callable[[float], Awaitable[object]],
) -> T:
    """Ask in this task, each attempt within its timeout.

    Args:
        run: A run that has not ended.
        ask: Asks one target; what it raises is a failure.
        sleep: Waits so many seconds.
    """
    attempt = run.attempt
    scope = TaskScope(attempt)
    while True:
        try:
            if attempt.wait:
                await sleep(attempt.wait)
            async with scope.limit(attempt):
                answer = await ask(attempt)
        except BaseException as error:  # noqa: BLE001 # the run raises what it does not handle
            attempt = run.fail(scope.read(error))
        else:
            following = run.accept(answer)
            if following is None:
                return answer
            attempt = following


class TaskScope:
    """Know what this task knows of an error: a timeout of ours, or a cancellation in disguise.

    An SDK that catches CancelledError and raises its own connection error would send a cancelled
    call on to the fallback; the task still knows better.
    """

    __slots__ = ("_attempt", "_before", "_task", "_timeout")

    def __init__(self, attempt: Attempt) -> None:
        self._attempt = attempt
        self._timeout: asyncio.Timeout | None = None
        self._task = asyncio.current_task()
        self._before = self._task.cancelling() if self._task else 0

    def limit(self, attempt: Attempt) -> asyncio.Timeout:
        """Bound what stands under ``async with`` by an attempt's timeout.

        Args:
            attempt: The attempt.
        """
        self._attempt = attempt
        self._timeout = asyncio.timeout(attempt.timeout)
        return self._timeout

    def read(self, error: BaseException) -> BaseException:
        """Return the error with its meaning: a cancellation unmasked, a timeout explained.

        Args:
            error: What was raised.
        """
        if not isinstance(error, Exception):
            return error
        if self._task is not None and self._task.cancelling() > self._before:
            hidden = asyncio.CancelledError()
            hidden.__cause__ = error
            return hidden
        if isinstance(error, TimeoutError) and self._timeout and self._timeout.expired():
            name, seconds = self._attempt.target.name, self._attempt.timeout
            error.args = (f"{name} gave no answer within {seconds:g} s",)
        return error
