"""Ask for streams until the run is over; a failed attempt's chunks are never seen."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable
from typing import TYPE_CHECKING, TypeVar

from honcho_fallback._drive import TaskScope, asettle, settle
from honcho_fallback._errors import AnswerRejected
from honcho_fallback._observer import logger

if TYPE_CHECKING:
    from collections.abc import (
        AsyncGenerator,
        AsyncIterable,
        AsyncIterator,
        Callable,
        Generator,
        Iterable,
        Iterator,
    )

    from honcho_fallback._machine import FallbackRun
    from honcho_fallback._target import Attempt

T = TypeVar("T")


def stream(
    start: Callable[[], FallbackRun],
    ask: Callable[[Attempt], Iterable[T]],
    has_content: Callable[[T], object],
    sleep: Callable[[float], object],
) -> Generator[T, None, None]:
    """Hand out the chunks of the first target that brings content.

    Args:
        start: Gives the run; called with the first chunk's reading, not before.
        ask: Asks one target for an iterable of chunks.
        has_content: Tells whether a chunk is worth handing out; no switch after that.
        sleep: Waits so many seconds.
    """
    run = start()
    source: object = None
    held: list[T] = []
    try:
        source, chunks, settled = _open(run, ask, has_content, sleep, held)
        if settled:
            run.content()
        yield from held
        while settled:
            try:
                chunk = next(chunks)
            except StopIteration:
                break
            except BaseException as error:  # noqa: BLE001 # the run raises what it does not handle
                run.fail(error, partial=tuple(held))
            else:
                held.append(chunk)
                yield chunk
        if settled:
            run.check(tuple(held), partial=tuple(held))
        run.tell(output=tuple(held))
        run.succeed()
    finally:
        run.abandon(partial=tuple(held))
        _close(source)
        if run.errand is not None:
            settle(run)


async def astream(
    start: Callable[[], FallbackRun],
    ask: Callable[[Attempt], AsyncIterable[T] | Awaitable[AsyncIterable[T]]],
    has_content: Callable[[T], object],
    sleep: Callable[[float], Awaitable[object]],
) -> AsyncGenerator[T, None]:
    """Hand out the chunks of the first target that brings content.

    An attempt's timeout bounds the time up to the first content, ``idle_timeout`` what follows.

    Args:
        start: Gives the run; called with the first chunk's reading, not before.
        ask: Asks one target for an async iterable of chunks, or an awaitable of one.
        has_content: Tells whether a chunk is worth handing out; no switch after that.
        sleep: Waits so many seconds.
    """
    run = start()
    source: object = None
    held: list[T] = []
    try:
        source, chunks, settled = await _aopen(run, ask, has_content, sleep, held)
        if settled:
            run.content()
        for chunk in held:
            yield chunk
        idle = run.idle_timeout
        while settled:
            scope = TaskScope()
            try:
                if idle is None:
                    chunk = await anext(chunks)
                else:
                    async with scope.limit(run.attempt, idle):
                        chunk = await anext(chunks)
            except StopAsyncIteration:
                break
            except BaseException as error:  # noqa: BLE001 # the run raises what it does not handle
                run.fail(scope.read(error), partial=tuple(held))
            else:
                held.append(chunk)
                yield chunk
        if settled:
            run.check(tuple(held), partial=tuple(held))
        run.tell(output=tuple(held))
        run.succeed()
    finally:
        run.abandon(partial=tuple(held))
        await _aclose(source)
        if run.errand is not None:
            await asettle(run)


def _open(
    run: FallbackRun,
    ask: Callable[[Attempt], Iterable[T]],
    has_content: Callable[[T], object],
    sleep: Callable[[float], object],
    held: list[T],
) -> tuple[object, Iterator[T], bool]:
    attempt = run.attempt
    while True:
        source: object = None
        try:
            if attempt.wait:
                sleep(attempt.wait)
            if run.errand is not None:
                attempt = settle(run)
            source = iterable = ask(attempt._replace(timeout=run.silence(attempt)))
            chunks = iter(iterable)
            for chunk in chunks:
                held.append(chunk)
                if has_content(chunk):
                    return source, chunks, True
        except BaseException as error:  # noqa: BLE001 # the run raises what it does not handle
            _close(source)
            attempt = run.fail(error)
            held.clear()
        else:
            _close(source)
            following = run.check(tuple(held))
            if held and following is None:
                return None, chunks, False
            attempt = following or run.reject(_empty(attempt))
            held.clear()


async def _aopen(
    run: FallbackRun,
    ask: Callable[[Attempt], AsyncIterable[T] | Awaitable[AsyncIterable[T]]],
    has_content: Callable[[T], object],
    sleep: Callable[[float], Awaitable[object]],
    held: list[T],
) -> tuple[object, AsyncIterator[T], bool]:
    attempt = run.attempt
    scope = TaskScope()
    while True:
        source: object = None
        try:
            if attempt.wait:
                await sleep(attempt.wait)
            async with scope.limit(attempt, run.silence(attempt)):
                if run.errand is not None:
                    attempt = await asettle(run)
                source = asked = ask(attempt)
                source = iterable = await asked if isinstance(asked, Awaitable) else asked
                chunks = aiter(iterable)
                async for chunk in chunks:
                    held.append(chunk)
                    if has_content(chunk):
                        return source, chunks, True
        except BaseException as error:  # noqa: BLE001 # the run raises what it does not handle
            await _aclose(source)
            attempt = run.fail(scope.read(error))
            held.clear()
        else:
            await _aclose(source)
            following = run.check(tuple(held))
            if held and following is None:
                return None, chunks, False
            attempt = following or run.reject(_empty(attempt))
            held.clear()


def _empty(attempt: Attempt) -> AnswerRejected:
    return AnswerRejected(f"{attempt.target.name} sent a stream without a single chunk")


def _close(source: object) -> None:
    try:
        getattr(source, "close", bool)()
    except Exception as error:  # noqa: BLE001 # the stream is dead already; the call goes on
        logger.debug("closing a stream raised %s", type(error).__name__)


async def _aclose(source: object) -> None:
    # Async generators have aclose; the SDKs' async streams a close that is a coroutine.
    close = getattr(source, "aclose", None) or getattr(source, "close", None)
    try:
        closing = close() if close else None
        if inspect.isawaitable(closing):
            await closing
    except Exception as error:  # noqa: BLE001 # the stream is dead already; the call goes on
        logger.debug("closing a stream raised %s", type(error).__name__)
