"""Ask for streams until the run is over; a failed attempt's chunks are never seen."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable
from typing import TYPE_CHECKING, TypeVar

from honcho_fallback._drive import TaskScope
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
        source, chunks, held, settled = _open(run, ask, has_content, sleep)
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


async def astream(
    start: Callable[[], FallbackRun],
    ask: Callable[[Attempt], AsyncIterable[T] | Awaitable[AsyncIterable[T]]],
    has_content: Callable[[T], object],
    sleep: Callable[[float], Awaitable[object]],
) -> AsyncGenerator[T, None]:
    """Hand out the chunks of the first target that brings content.

    The attempt's timeout bounds the time up to the first content.

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
        source, chunks, held, settled = await _aopen(run, ask, has_content, sleep)
        if settled:
            run.content()
        for chunk in held:
            yield chunk
        while settled:
            scope = TaskScope(run.attempt)
            try:
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


def _open(
    run: FallbackRun,
    ask: Callable[[Attempt], Iterable[T]],
    has_content: Callable[[T], object],
    sleep: Callable[[float], object],
) -> tuple[object, Iterator[T], list[T], bool]:
    attempt = run.attempt
    while True:
        source: object = None
        try:
            if attempt.wait:
                sleep(attempt.wait)
            source = iterable = ask(attempt)
            chunks = iter(iterable)
            held, settled = _prime(chunks, has_content)
        except BaseException as error:  # noqa: BLE001 # the run raises what it does not handle
            _close(source)
            attempt = run.fail(error)
        else:
            if settled:
                return source, chunks, held, True
            _close(source)
            following = run.check(tuple(held))
            if held and following is None:
                return None, chunks, held, False
            attempt = following or run.reject(_empty(attempt))


async def _aopen(
    run: FallbackRun,
    ask: Callable[[Attempt], AsyncIterable[T] | Awaitable[AsyncIterable[T]]],
    has_content: Callable[[T], object],
    sleep: Callable[[float], Awaitable[object]],
) -> tuple[object, AsyncIterator[T], list[T], bool]:
    attempt = run.attempt
    scope = TaskScope(attempt)
    while True:
        source: object = None
        try:
            if attempt.wait:
                await sleep(attempt.wait)
            async with scope.limit(attempt):
                source = asked = ask(attempt)
                source = iterable = await asked if isinstance(asked, Awaitable) else asked
                chunks = aiter(iterable)
                held, settled = await _aprime(chunks, has_content)
        except BaseException as error:  # noqa: BLE001 # the run raises what it does not handle
            await _aclose(source)
            attempt = run.fail(scope.read(error))
        else:
            if settled:
                return source, chunks, held, True
            await _aclose(source)
            following = run.check(tuple(held))
            if held and following is None:
                return None, chunks, held, False
            attempt = following or run.reject(_empty(attempt))


def _prime(chunks: Iterator[T], has_content: Callable[[T], object]) -> tuple[list[T], bool]:
    held: list[T] = []
    for chunk in chunks:
        held.append(chunk)
        if has_content(chunk):
            return held, True
    return held, False


async def _aprime(
    chunks: AsyncIterator[T], has_content: Callable[[T], object]
) -> tuple[list[T], bool]:
    held: list[T] = []
    async for chunk in chunks:
        held.append(chunk)
        if has_content(chunk):
            return held, True
    return held, False


def _empty(attempt: Attempt) -> AnswerRejected:
    return AnswerRejected(f"{attempt.target.name} sent a stream without a single chunk")


def _close(source: object) -> None:
    close = getattr(source, "close", None)
    if close is None:
        return
    try:
        close()
    except Exception as error:  # noqa: BLE001 # the stream is dead already; the call goes on
        logger.debug("closing a stream raised %s", type(error).__name__)


async def _aclose(source: object) -> None:
    # Async generators have aclose; the SDKs' async streams a close that is a coroutine.
    close = getattr(source, "aclose", None) or getattr(source, "close", None)
    if close is None:
        return
    try:
        closing = close()
        if inspect.isawaitable(closing):
            await closing
    except Exception as error:  # noqa: BLE001 # the stream is dead already; the call goes on
        logger.debug("closing a stream raised %s", type(error).__name__)
