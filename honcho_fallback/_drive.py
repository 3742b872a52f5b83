"""Ask until the run is over, in a thread or in a task; decides nothing itself."""

from __future__ import annotations

import asyncio
import inspect
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from honcho_fallback._errors import FallbackConfigError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from honcho_fallback._machine import FallbackRun
    from honcho_fallback._target import Attempt

T = TypeVar("T")

Ask: TypeAlias = "Callable[[Attempt], T]"  # one target
Start: TypeAlias = "Callable[[], FallbackRun]"
Sleep: TypeAlias = "Callable[[float], object]"
AsyncSleep: TypeAlias = "Callable[[float], Awaitable[object]]"
Test: TypeAlias = "Callable[[T], object]"  # on a chunk


def call(run: FallbackRun, ask: Ask[T], sleep: Sleep) -> T:
    """Ask in this thread.

    Args:
        run: A run that has not ended.
        ask: Asks one target; what it raises is a failure.
        sleep: Waits so many seconds.
    """
    attempt = run.attempt
    try:
        while True:
            try:
                if attempt.wait:
                    sleep(attempt.wait)
                if run.errand is not None:
                    attempt = settle(run)
                answer = ask(attempt)
            except BaseException as error:  # noqa: BLE001 # the run raises what it does not handle
                attempt = run.fail(error)
            else:
                following = run.accept(answer)
                if following is None:
                    return answer
                attempt = following
    finally:
        if run.errand is not None:
            settle(run)


async def acall(run: FallbackRun, ask: Ask[Awaitable[T]], sleep: AsyncSleep) -> T:
    """Ask in this task, each attempt within its timeout.

    Args:
        run: A run that has not ended.
        ask: Asks one target; what it raises is a failure.
        sleep: Waits so many seconds.
    """
    attempt = run.attempt
    scope = TaskScope()
    try:
        while True:
            try:
                if attempt.wait:
                    await sleep(attempt.wait)
                async with scope.limit(attempt, attempt.timeout):
                    if run.errand is not None:
                        attempt = await asettle(run)
                    answer = await ask(attempt)
            except BaseException as error:  # noqa: BLE001 # the run raises what it does not handle
                attempt = run.fail(scope.read(error))
            else:
                following = run.accept(answer)
                if following is None:
                    return answer
                attempt = following
    finally:
        if run.errand is not None:
            await asettle(run)


def settle(run: FallbackRun) -> Attempt:
    """Do in this thread what the run wants done, and return the attempt to make.

    Args:
        run: A run with an errand; what an errand raises is for ``run.fail``.
    """
    while (errand := run.errand) is not None:
        result = errand.call()
        if inspect.isawaitable(result):
            getattr(result, "close", bool)()  # a coroutine that nobody will await
            raise FallbackConfigError.about(errand.what, "it is async", "use acall or astream")
        run.resume()
    return run.latest


async def asettle(run: FallbackRun) -> Attempt:
    """Do in this task what the run wants done, and return the attempt to make.

    Args:
        run: A run with an errand; what an errand raises is for ``run.fail``.
    """
    while (errand := run.errand) is not None:
        call = errand.acall or errand.call
        result = asyncio.to_thread(call) if errand.blocks else call()
        while inspect.isawaitable(result):  # an async function called in a thread is one still
            result = await result
        run.resume()
    return run.latest


class TaskScope:
    """Know what this task knows of an error: a timeout of ours, or a cancellation in disguise.

    An SDK that catches CancelledError and raises its own connection error would send a cancelled
    call on to the fallback; the task still knows better.
    """

    __slots__ = ("_before", "_name", "_seconds", "_task", "_timeout")

    def __init__(self) -> None:
        self._timeout: asyncio.Timeout | None = None
        self._task = asyncio.current_task()
        self._before = self._task.cancelling() if self._task else 0

    def limit(self, attempt: Attempt, seconds: float | None) -> asyncio.Timeout:
        """Bound what stands under ``async with``.

        Args:
            attempt: Whose time it is.
            seconds: How much, or None.
        """
        self._name = attempt.target.name
        self._seconds = seconds
        self._timeout = asyncio.timeout(seconds)
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
            error.args = (f"{self._name} gave no answer within {self._seconds:g} s",)
        return error
