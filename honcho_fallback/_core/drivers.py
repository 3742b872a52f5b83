"""The loops around ``ask``: in a thread or in a task, whole or as a stream. They decide nothing.

Each asks the attempt at hand, reports what came of it to the run, and goes on with what the run
answers. What they add is what a machine without I/O cannot have: sleeping, performing pending
actions, an attempt's timeout, and closing streams.
"""

# The drivers are the run's other half: they read its policy to know whether validate is async.
# pyright: reportPrivateUsage=false

from __future__ import annotations

import asyncio
import inspect
import sys
from collections.abc import AsyncIterable, Awaitable, Callable
from functools import lru_cache
from traceback import walk_tb
from types import CoroutineType
from typing import TYPE_CHECKING, Any, Generic, NoReturn, TypeAlias, TypeVar

from pydantic import BaseModel

from honcho_fallback._classify._answers import plain_text, read_answer, refuses, text_of, thinks
from honcho_fallback._classify._content import characters, repeats, without_start
from honcho_fallback._classify._reached import tree
from honcho_fallback._core.observers import logger
from honcho_fallback._core.target import Attempt
from honcho_fallback._values.errors import FallbackConfigError, WrongVerbError
from honcho_fallback._values.failure import Failure, FailureKind

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Generator, Iterable

    from honcho_fallback._core.run import FallbackRun
    from honcho_fallback._core.target import Partial

T = TypeVar("T")

# What a policy's verbs take: public, so that users can annotate what they hand on.
Ask: TypeAlias = Callable[[Attempt], T]  # of one target
HasContent: TypeAlias = Callable[[T], object]  # of a chunk
Start: TypeAlias = "Callable[[], FallbackRun]"

_END: Any = object()
_RATE_WINDOW = 10.0  # seconds of waiting for a stream after which its rate is judged


def call(run: FallbackRun, ask: Ask[T]) -> T:
    """Ask in this thread until the run is over; what ``ask`` raises is a failure."""
    _require_sync_validate(run)
    attempt, sleep = run.attempt, run._runtime.sleep
    try:
        while True:
            try:
                if attempt.wait:
                    sleep(attempt.wait)
                if run.pending is not None:
                    attempt = perform(run)
                answer = ask(attempt)
                if _is_unread(type(answer)):  # type: ignore[arg-type] # a class is hashable
                    _refuse("call", answer)
            except BaseException as error:  # noqa: BLE001 # the run raises what it does not handle
                attempt = run.fail(error)
            else:
                following = run.accept(answer)
                if following is None:
                    return answer
                attempt = following
    finally:
        if run.pending is not None:
            perform(run)


async def acall(run: FallbackRun, ask: Ask[Awaitable[T]]) -> T:
    """Ask in this task until the run is over, each attempt within its timeout."""
    attempt, asleep = run.attempt, run._runtime.asleep
    validate = run._call.policy.validate
    scope = TaskScope()
    try:
        while True:
            try:
                if attempt.wait:
                    await asleep(attempt.wait)
                async with scope.limit(attempt.timeout):
                    if run.pending is not None:
                        attempt = await aperform(run)
                    awaitable = ask(attempt)
                    if not isinstance(awaitable, Awaitable):  # pyright: ignore[reportUnnecessaryIsInstance] # users without a type checker
                        _refuse("acall", awaitable)
                    answer = await awaitable
                    if _is_unread(type(answer)):  # type: ignore[arg-type] # a class is hashable
                        await _aclose(answer)
                        _refuse("acall", answer)
            except BaseException as error:  # noqa: BLE001 # the run raises what it does not handle
                attempt = scope.fail(run, error)
            else:
                following = await _aaccept(run, answer, scope) if validate else run.accept(answer)
                if following is None:
                    return answer
                attempt = following
    finally:
        if run.pending is not None:
            await aperform(run)


def stream(
    start: Start, ask: Ask[Iterable[T]], has_content: HasContent[T], mode: Partial
) -> Generator[T, None, None]:
    """Hand out the chunks of the first target that brings content."""
    run = start()
    _require_sync_validate(run)
    sleep = run._runtime.sleep
    reading = _Reading(run, has_content, mode)
    source = chunks = None
    try:
        while run.outcome == "running":
            try:
                if chunks is None:
                    attempt = run.attempt
                    if attempt.wait:
                        sleep(attempt.wait)
                    attempt = perform(run)
                    opened = ask(attempt._replace(timeout=attempt.stream_timeout))
                    if _is_whole(opened) or _is_async(opened) or _is_manager(type(opened)):
                        _refuse("stream", opened)
                    source = opened
                    chunks = iter(source)
                since = reading.clock()
                chunk = next(chunks, _END)
                ready = reading.take(chunk, since)
            except BaseException as error:  # noqa: BLE001 # the run raises what it does not handle
                _close(source)
                source = chunks = None
                run.fail(error, partial=reading.came)
                reading.restart()
                continue
            if chunk is _END:
                _close(source)
                source = chunks = None
                ready += reading.end(run.accept(reading.chunks, stream=True))
            yield from ready
    finally:
        run.cancel("abandoned", partial=reading.chunks)
        _close(source)
        perform(run)


async def astream(
    start: Start,
    ask: Ask[AsyncIterable[T] | Awaitable[AsyncIterable[T]]],
    has_content: HasContent[T],
    mode: Partial,
) -> AsyncGenerator[T, None]:
    """Hand out the chunks of the first target that brings content, within its timeouts."""
    run = start()
    asleep = run._runtime.asleep
    reading = _Reading(run, has_content, mode)
    source = chunks = None
    try:
        while run.outcome == "running":
            scope, attempt = TaskScope(), run.attempt
            seconds = reading.seconds(attempt)
            try:
                if chunks is None:
                    seconds = attempt.stream_timeout
                    if attempt.wait:
                        await asleep(attempt.wait)
                    reading.opened = reading.clock()
                async with scope.limit(seconds):
                    if chunks is None:
                        source = await _open(ask, await aperform(run))
                        chunks = aiter(source)
                    while True:
                        since = reading.clock()
                        chunk = await anext(chunks, _END)
                        # A model that thinks is alive: from here on no silence may be longer than
                        # idle_timeout, as after content.
                        if (ready := reading.take(chunk, since)) or chunk is _END or thinks(chunk):
                            break
            except BaseException as error:  # noqa: BLE001 # the run raises what it does not handle
                await _aclose(source)
                source = chunks = None
                scope.fail(run, error, reading.came)
                reading.restart()
                continue
            if chunk is _END:
                await _aclose(source)
                source = chunks = None
                scope.limit(attempt.timeout)
                ready += reading.end(await _aaccept(run, reading.chunks, scope, stream=True))
            for chunk in ready:
                yield chunk
    finally:
        run.cancel("abandoned", partial=reading.chunks)
        await _aclose(source)
        await aperform(run)


def _require_sync_validate(run: FallbackRun) -> None:
    """Refuse what only a task can await, before anything is asked."""
    if run._call.policy.validate_is_async:
        run.cancel()
        raise FallbackConfigError.about("validate", "it is async", "use acall or astream")


def perform(run: FallbackRun) -> Attempt:
    """Do in this thread what the run wants done, and return the attempt to make."""
    while (action := run.pending) is not None:
        run.resume(action.call())
    return _at_hand(run)


async def aperform(run: FallbackRun) -> Attempt:
    """Do in this task what the run wants done, and return the attempt to make."""
    while (action := run.pending) is not None:
        run.resume(await action.acall())
    return _at_hand(run)


def _at_hand(run: FallbackRun) -> Attempt:
    """Return the attempt to make, which the first look takes; after the end the last one."""
    return run.attempt if run.outcome == "running" else run._call.attempt


class TaskScope:
    """Report errors with what this task knows of them: timeouts of ours, and its cancellation.

    An SDK that catches CancelledError and raises its own connection error would send a cancelled
    call on to the fallback. And a look-up, a lock or a connection that several calls wait for may
    be cancelled by one of them: the others get a CancelledError that nobody sent to them.
    """

    __slots__ = ("_before", "_seconds", "_task", "_timeout")

    def __init__(self) -> None:
        self._timeout: asyncio.Timeout | None = None
        self._task = asyncio.current_task()
        self._before = self._task.cancelling() if self._task else 0

    def limit(self, seconds: float | None) -> asyncio.Timeout:
        """Bound what stands under ``async with`` by so many seconds, or None."""
        self._seconds = seconds
        self._timeout = asyncio.timeout(seconds)
        return self._timeout

    def fail(
        self, run: FallbackRun, error: BaseException, partial: tuple[Any, ...] = ()
    ) -> Attempt:
        """Report the error: a cancellation of this task as one, another's as a lost connection."""
        failure, task, call = None, self._task, run._call
        if sys.version_info < (3, 13) and task and task.cancelling() > self._before:
            _take_back_wakings(task, error)
        # Who gathers tasks may take what one of them raised for an answer, as LangChain does.
        below = error.obj if isinstance(error, AttributeError) else error
        # A cancellation that was sent before the call began may arrive only now: it counts, too.
        if isinstance(below, asyncio.CancelledError) and task and not task.cancelling():
            what = f"what {call.name} was asked with was cancelled from outside"
            raised, error = error, ConnectionAbortedError(f"{what}, the call was not")
            error.__cause__, error.__traceback__ = below, raised.__traceback__
            failure = call.policy.classification(error, _OTHERS_CANCELLATION)
        elif isinstance(error, Exception) and task and task.cancelling() > self._before:
            raised, error = error, asyncio.CancelledError()
            error.__cause__ = raised
        elif isinstance(error, Exception) and self._timeout and self._timeout.expired():
            if not isinstance(error, TimeoutError):  # a client makes an error of its cancellation
                raised, error = error, TimeoutError()
                error.__cause__ = raised
            error.args = (f"{call.name} gave no answer within {self._seconds:g} s",)
        try:
            return run.fail(error, failure=failure, partial=partial)
        finally:  # as in the run's own: what goes out is part of no cycle
            del error, below

    async def verdict(self, validating: Awaitable[T]) -> T:
        """Await what ``validate`` says, no longer than the attempt may take."""
        limit = asyncio.timeout_at(self._timeout.when() if self._timeout else None)
        try:
            async with limit:
                return await validating
        except asyncio.CancelledError as error:
            if self._task is None or self._task.cancelling():
                raise
            what = "what validate waited for was cancelled, the call was not"
            raise ConnectionAbortedError(what) from error
        except TimeoutError as error:
            if limit.expired():
                error.args = ("validate said nothing within the attempt's time",)
            raise


def _take_back_wakings(task: asyncio.Task[Any], error: BaseException) -> None:
    """Take back the cancellations by which task groups only woke their task, as Python 3.13 does.

    Before that, a group that waits for its members when one fails leaves its own in the count.
    """
    frames = {frame for one in tree(error) for frame, _ in walk_tb(one.__traceback__)}
    for own in (frame.f_locals for frame in frames if frame.f_code.co_name == "__aexit__"):
        group: dict[str, Any] = getattr(own.get("self"), "__dict__", {})
        woke_up = group.get("_parent_cancel_requested") and own.get("et") is None
        if woke_up and group.get("_parent_task") is task:
            task.uncancel()


# The provider and its host have done nothing: nobody rests for it.
_OTHERS_CANCELLATION = Failure.of(
    FailureKind.CONNECTION,
    scope="client",
    reason="what it waited for was cancelled, the call was not",
    error=ConnectionAbortedError.__name__,
)


class _Reading(Generic[T]):
    """Hold chunks back up to the first content; know what has been handed out."""

    def __init__(self, run: FallbackRun, has_content: HasContent[T], mode: Partial) -> None:
        run._require_running("stream")
        self.run = run
        self._has_content = has_content
        self._mode: Partial = mode
        self._holds_refusals = run._call.policy.leaves_refusals
        self._least = run._call.policy.config.min_rate
        self.clock = run._runtime.monotonic
        self.opened = 0.0
        self._chunks: list[T] = []
        self._handed_out = 0  # of these
        self._following: str | None = ""  # what the others say, where they say a text alone
        self._committed = False
        self._waited, self._characters = 0.0, 0

    @property
    def chunks(self) -> tuple[T, ...]:
        """Return what this attempt brought so far, with what it goes on with."""
        return tuple(self._chunks)

    @property
    def came(self) -> tuple[T, ...]:
        """Return what came of an attempt that failed; once there is a reader, what it has."""
        return tuple(self._chunks[: self._handed_out or None])

    def seconds(self, attempt: Attempt) -> float | None:
        """Return how long the next chunk may take; up to the first content all share a timeout."""
        idle, whole = attempt.idle_timeout, attempt.timeout
        if self._committed or whole is None:
            return idle
        left = whole - (self.clock() - self.opened)
        return left if idle is None else min(idle, left)

    def take(self, chunk: T, since: float) -> tuple[T, ...]:
        """Return what is to be handed out now, of a chunk that was waited for since then."""
        if chunk is _END:
            return self._hand_out() if self._handed_out and self._find_seam(is_whole=True) else ()
        if self._least is not None and self._committed:
            self._require_rate(chunk, since, self._least)
        self._chunks.append(chunk)
        if self._committed:
            self._handed_out += 1
            return (chunk,)
        if self._handed_out and self._following is not None:
            before = self._chunks[-2] if len(self._chunks) - self._handed_out > 1 else None
            text = "" if repeats(chunk, before) else text_of(chunk)
            self._following = None if text is None else self._following + text
        if not self._has_content(chunk) or (self._holds_refusals and refuses(chunk)):
            return ()
        if self._handed_out and not self._find_seam(is_whole=False):
            return ()
        self.run.commit(mode=self._mode)
        self._committed = True
        return self._hand_out()

    def _hand_out(self) -> tuple[T, ...]:
        """Return what the reader has not had."""
        ready = tuple(self._chunks[self._handed_out :])
        self._handed_out = len(self._chunks)
        return ready

    def _find_seam(self, *, is_whole: bool) -> bool:
        """Drop what this attempt repeats of the text before it; False where more has to come."""
        if self._committed:
            return False
        text = plain_text([self._following or ""])
        count = repeated(self.run._call.text, text, is_whole=is_whole or not text)
        if count:
            following = self._chunks[self._handed_out :]
            self._chunks[self._handed_out :] = without_start(following, count)
        return count is not None

    def end(self, following: Attempt | None) -> tuple[T, ...]:
        """Return what is left to hand out where the run took the stream, else start anew."""
        if following is None:
            return self._hand_out()
        self.restart()
        return ()

    def restart(self) -> None:
        """Forget the chunks of an attempt that failed, but those that are gone on with."""
        self._handed_out = self._handed_out if self.run._call.text else 0
        del self._chunks[self._handed_out :]
        self._following = ""
        self._committed = False
        self._waited, self._characters = 0.0, 0

    def _require_rate(self, chunk: T, since: float, least: float) -> None:
        """Raise a TimeoutError where content comes too slowly.

        Judged from the first content on, whenever a window of waiting is full. A reader's own time
        between two chunks does not count.
        """
        self._waited += self.clock() - since
        if repeats(chunk, self._chunks[-1]):
            return
        count = characters((chunk,))
        self._characters += count
        if not count and text_of(chunk) is None:
            # Thinking, an image, a chunk of one's own: nobody knows how fast that is.
            self._waited, self._characters = 0.0, 0
        elif self._waited >= _RATE_WINDOW:
            rate = self._characters / self._waited
            if rate < least:
                what = f"{rate:.1f} characters/s, fewer than min_rate={least:g}"
                raise TimeoutError(f"{self.run._call.name} sent {what}")
            self._waited, self._characters = 0.0, 0


# Where a text that broke off and the one that goes on with it meet. A model that is given the
# beginning of its answer writes what follows. Some say the last words once more, some begin at the
# beginning, and the beginning is sent without the white space at its end, which then comes again.
# What came twice is dropped where it is certain that it did: all of the beginning, white space, or
# so many characters that do not repeat themselves, as the cells of a table do. In doubt nothing
# is: a word twice can be read, a missing one cannot.
_CERTAIN = 20
_SHORTEST = 4  # of a beginning that is said again in whole


def repeated(before: str, after: str, *, is_whole: bool) -> int | None:
    """Count the characters that a text repeats of the one before; None where more will tell."""
    if not is_whole:
        at = before.find(after)
        may_be_certain = at == 0 or (at > 0 and len(before) - at >= _CERTAIN)
        if not after.strip() or may_be_certain:
            return None
    for length in range(min(len(before), len(after)), 0, -1):
        again = after[:length]
        if not before.endswith(again):
            continue
        is_all = length == len(before) >= _SHORTEST
        if is_all or again.isspace() or (length >= _CERTAIN and not _repeats_itself(again)):
            return length
    return 0


def _repeats_itself(text: str) -> bool:
    return any(text[length:] == text[:-length] for length in range(1, len(text) // 2 + 1))


async def _open(
    ask: Ask[AsyncIterable[T] | Awaitable[AsyncIterable[T]]], attempt: Attempt
) -> AsyncIterable[T]:
    opened = ask(attempt._replace(timeout=attempt.stream_timeout))
    source = await opened if isinstance(opened, Awaitable) else opened
    if not isinstance(source, AsyncIterable):  # pyright: ignore[reportUnnecessaryIsInstance] # users without a type checker
        _refuse("astream", source, None if source is opened else "acall")
    return source


async def _aaccept(
    run: FallbackRun, answer: Any, scope: TaskScope, *, stream: bool = False
) -> Attempt | None:
    if run._call.policy.validate is None:
        return run.accept(answer, stream=stream)
    fault = run._read(answer, stream=stream)
    return await run._examine(answer, fault, stream=stream, verdict_of=scope.verdict)


@lru_cache(maxsize=512)
def _is_unread(cls: type) -> bool:
    """Tell whether an answer is none yet: its failure would come after the call was a success.

    A coroutine, a generator, an SDK's stream, which is an iterator to close, or the manager of
    one; a file is an iterator to close, too, and a legal answer.
    """
    if hasattr(cls, "__next__"):
        return hasattr(cls, "close") and not hasattr(cls, "read")
    is_async = hasattr(cls, "__anext__") and not hasattr(cls, "read")
    return is_async or cls is CoroutineType or _is_manager(cls)


def _is_manager(cls: type) -> bool:
    """Tell whether a class is one of those that ask nobody before they are entered."""
    opens = cls.__name__.endswith("Manager")
    return opens and (hasattr(cls, "__enter__") or hasattr(cls, "__aenter__"))


def _is_async(source: object) -> bool:
    """Tell whether a stream can be read in a task only; LiteLLM's can be read in both ways."""
    cls = type(source)
    return cls is CoroutineType or (hasattr(cls, "__aiter__") and not hasattr(cls, "__iter__"))


def _is_whole(source: object) -> bool:
    """Tell whether a stream is none: a whole answer, which iterates over its own fields."""
    if isinstance(source, BaseModel):
        return type(source).__iter__ is BaseModel.__iter__
    return isinstance(source, dict) and read_answer(source).content is not None


def _refuse(verb: str, returned: object, fits: str | None = None) -> NoReturn:
    """Say which verb takes what ``ask`` returned to this one."""
    cls, what = type(returned), f"a {type(returned).__name__}"
    if _is_manager(cls):
        for part in getattr(returned, "__dict__", {}).values():
            if isinstance(part, CoroutineType):
                part.close()
        is_sync = hasattr(cls, "__enter__")
        enter, fits = ("with", "stream") if is_sync else ("async with", "astream")
        problem = f"it returned a manager that nobody entered ({cls.__name__}) to policy.{verb}"
        fix = f"write `{enter} manager as events:` in ask and return the answer that they make"
        raise WrongVerbError.about("ask", problem, f"{fix}, or yield them for policy.{fits}")
    if isinstance(returned, CoroutineType):
        fits, what = {"call": "acall", "stream": "astream"}.get(verb, verb), "a coroutine"
        returned.close()
    elif _is_async(returned) or (verb == "acall" and isinstance(returned, AsyncIterable)):
        fits, what = "astream", f"an async stream ({cls.__name__})"
    elif hasattr(cls, "__next__"):
        fits = "stream"
        _close(returned)
    elif fits is None:
        fits = "stream" if verb == "astream" and not _is_whole(returned) else "call"
    fix = f"use policy.{fits} for such a function" if fits != verb else "await it in ask"
    if fits.endswith("call") and verb.endswith("stream"):
        fix = f"{fix}, or ask for a stream in it (stream=True)"
    raise WrongVerbError.about("ask", f"it returned {what} to policy.{verb}", fix)


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
