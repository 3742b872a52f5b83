"""Ask for streams until the run is over; a failed attempt's chunks are never seen."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from honcho_fallback._drive import TaskScope, asettle, settle
from honcho_fallback._errors import AnswerRejected
from honcho_fallback._observer import logger

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterable, Generator, Iterable

    from honcho_fallback._drive import Ask, AsyncSleep, Sleep, Start, Test
    from honcho_fallback._machine import FallbackRun

T = TypeVar("T")

_END: Any = object()


def stream(
    start: Start, ask: Ask[Iterable[T]], has_content: Test[T], sleep: Sleep
) -> Generator[T, None, None]:
    """Hand out the chunks of the first target that brings content.

    Args:
        start: Gives the run; called with the first chunk's reading, not before.
        ask: Asks one target for an iterable of chunks.
        has_content: Tells whether a chunk is worth handing out; no switch after that.
        sleep: Waits so many seconds.
    """
    run = start()
    reading = _Reading(run, has_content)
    source = chunks = None
    try:
        while not reading.over:
            try:
                if chunks is None:
                    attempt = run.attempt
                    if attempt.wait:
                        sleep(attempt.wait)
                    attempt = settle(run)
                    source = iterable = ask(attempt._replace(timeout=run.silence(attempt)))
                    chunks = iter(iterable)
                chunk = next(chunks, _END)
                ready = reading.take(chunk)
            except BaseException as error:  # noqa: BLE001 # the run raises what it does not handle
                _close(source)
                source = chunks = None
                run.fail(error, partial=reading.seen)
                reading.held.clear()
                continue
            if chunk is _END:
                _close(source)
                source = chunks = None
                ready = reading.end()
            yield from ready
        reading.succeed()
    finally:
        run.abandon(partial=tuple(reading.held))
        _close(source)
        settle(run)


async def astream(
    start: Start,
    ask: Ask[AsyncIterable[T] | Awaitable[AsyncIterable[T]]],
    has_content: Test[T],
    sleep: AsyncSleep,
) -> AsyncGenerator[T, None]:
    """Hand out the chunks of the first target that brings content, within its timeout.

    Args:
        start: Gives the run; called with the first chunk's reading, not before.
        ask: Asks one target for an async iterable of chunks, or an awaitable of one.
        has_content: Tells whether a chunk is worth handing out; no switch after that.
        sleep: Waits so many seconds.
    """
    run = start()
    reading = _Reading(run, has_content)
    source = chunks = None
    try:
        while not reading.over:
            scope, seconds = TaskScope(), run.idle_timeout
            try:
                if chunks is None:
                    attempt = run.attempt
                    seconds = run.silence(attempt)
                    if attempt.wait:
                        await sleep(attempt.wait)
                async with scope.limit(run.latest, seconds):
                    if chunks is None:
                        source = asked = ask(await asettle(run))
                        source = iterable = await asked if isinstance(asked, Awaitable) else asked
                        chunks = aiter(iterable)
                    chunk = await anext(chunks, _END)
                    while not (ready := reading.take(chunk)) and chunk is not _END:
                        chunk = await anext(chunks, _END)
            except BaseException as error:  # noqa: BLE001 # the run raises what it does not handle
                await _aclose(source)
                source = chunks = None
                run.fail(scope.read(error), partial=reading.seen)
                reading.held.clear()
                continue
            if chunk is _END:
                await _aclose(source)
                source = chunks = None
                ready = reading.end()
            for chunk in ready:
                yield chunk
        reading.succeed()
    finally:
        run.abandon(partial=tuple(reading.held))
        await _aclose(source)
        await asettle(run)


class _Reading(Generic[T]):
    """Hold chunks back up to the first content; know what has been handed out."""

    def __init__(self, run: FallbackRun, has_content: Test[T]) -> None:
        self._run = run
        self._has_content = has_content
        self._settled = False
        self.held: list[T] = []
        self.over = False

    @property
    def seen(self) -> tuple[T, ...]:
        """Return what has been handed out."""
        return tuple(self.held) if self._settled else ()

    def take(self, chunk: T) -> tuple[T, ...]:
        """Return what is to be handed out now."""
        if chunk is _END:
            return ()
        self.held.append(chunk)
        if self._settled:
            return (chunk,)
        if not self._has_content(chunk):
            return ()
        self._run.content()
        self._settled = True
        return self.seen

    def end(self) -> tuple[T, ...]:
        """Take a stream's end: the last of them, or that of an attempt that brought nothing."""
        held = tuple(self.held)
        following = self._run.check(held, partial=self.seen)
        self.over = bool(held) and following is None
        if self.over:
            return () if self._settled else held
        if following is None:
            name = self._run.attempt.target.name
            self._run.reject(AnswerRejected(f"{name} sent a stream without a single chunk"))
        self.held.clear()
        return ()

    def succeed(self) -> None:
        """End the call, once the last chunk was taken."""
        self._run.tell(output=tuple(self.held))
        self._run.succeed()


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
