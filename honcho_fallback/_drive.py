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
    attempt: Attempt | None = run.attempt
    while attempt is not None:
        try:
            if attempt.wait:
                sleep(attempt.wait)
            answer = ask(attempt)
        except BaseException as error:  # noqa: BLE001 # the run raises what it does not handle
            attempt = run.fail(error)
        else:
            attempt = run.accept(answer)
            if attempt is None:
                return answer
    raise AssertionError("unreachable: a run ends by an answer or an error")


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
    cancellation = Cancellation()
    attempt: Attempt | None = run.attempt
    while attempt is not None:
        try:
            if attempt.wait:
                await sleep(attempt.wait)
            async with limit(attempt):
                answer = await ask(attempt)
        except BaseException as error:  # noqa: BLE001 # the run raises what it does not handle
            attempt = run.fail(cancellation.unmask(error))
        else:
            attempt = run.accept(answer)
            if attempt is None:
                return answer
    raise AssertionError("unreachable: a run ends by an answer or an error")


def limit(attempt: Attempt) -> asyncio.Timeout:
    """Bound what stands under ``async with`` by the attempt's timeout.

    Args:
        attempt: The attempt.
    """
    return asyncio.timeout(attempt.timeout)


class Cancellation:
    """See a cancellation that an SDK turned into an error of its own.

    An SDK that catches CancelledError and raises its connection error would make a cancelled call
    go on to the fallback; the task still knows better.
    """

    __slots__ = ("_before", "_task")

    def __init__(self) -> None:
        self._task = asyncio.current_task()
        self._before = self._task.cancelling() if self._task else 0

    def unmask(self, error: BaseException) -> BaseException:
        """Return the error, or the cancellation that it hides.

        Args:
            error: What was raised.
        """
        if (
            self._task is None
            or not isinstance(error, Exception)
            or self._task.cancelling() <= self._before
        ):
            return error
        hidden = asyncio.CancelledError()
        hidden.__cause__ = error
        return hidden
