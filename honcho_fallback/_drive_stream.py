"""Ask for streams until the run is over; a failed attempt's chunks are never seen."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, TypeVar

from honcho_fallback._drive import Cancellation, limit
from honcho_fallback._errors import AnswerRejected
from honcho_fallback._observer import logger

if TYPE_CHECKING:
    from collections.abc import (
        AsyncGenerator,
        AsyncIterable,
        AsyncIterator,
        Awaitable,
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
    attempt = run.attempt
    source: Iterable[T] | None = None
    try:
        while True:
            try:
                if attempt.wait:
                    sleep(attempt.wait)
                source = ask(attempt)
                chunks = iter(source)
                held, has_begun = _prime(chunks, has_content)
            except BaseException as error:  # noqa: BLE001 # the run raises what it does not handle
                _close(source)
                attempt = run.fail(error)
            else:
                if held:
                    break
                _close(source)
                attempt = run.reject(_empty(attempt))
            source = None
        if has_begun:
            run.content()
        yield from held
        while has_begun:
            try:
                chunk = next(chunks)
            except StopIteration:
                break
            except BaseException as error:  # noqa: BLE001 # the run raises what it does not handle
                run.fail(error, partial=tuple(held))
            else:
                held.append(chunk)
                yield chunk
        run.succeed()
    finally:
        run.abandon()
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
    attempt = run.attempt
    source: Any = None
    try:
        while True:
            cancellation = Cancellation()
            try:
                if attempt.wait:
                    await sleep(attempt.wait)
                async with limit(attempt):
                    source = ask(attempt)
                    if inspect.isawaitable(source):
                        source = await source
                    chunks: AsyncIterator[T] = aiter(source)
                    held, has_begun = await _aprime(chunks, has_content)
            except BaseException as error:  # noqa: BLE001 # the run raises what it does not handle
                await _aclose(source)
                attempt = run.fail(cancellation.unmask(error))
            else:
                if held:
                    break
                await _aclose(source)
                attempt = run.reject(_empty(attempt))
            source = None
        if has_begun:
            run.content()
        for chunk in held:
            yield chunk
        while has_begun:
            cancellation = Cancellation()
            try:
                chunk = await anext(chunks)
            except StopAsyncIteration:
                break
            except BaseException as error:  # noqa: BLE001 # the run raises what it does not handle
                run.fail(cancellation.unmask(error), partial=tuple(held))
            else:
                held.append(chunk)
                yield chunk
        run.succeed()
    finally:
        run.abandon()
        await _aclose(source)


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
