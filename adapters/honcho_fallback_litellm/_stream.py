"""A stream of ours: goes on with the next target until content arrives, and ends the call.

LiteLLM's callers look at a stream's class (the Proxy, LangChain's wrapper), so ours is a subclass
of the one that it stands for and shares its attributes.
"""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache, partial
from typing import TYPE_CHECKING, Any

from honcho_fallback import has_content, read_answer
from honcho_fallback_litellm._answers import renew
from honcho_fallback_litellm._call import provider_error, working_for

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from honcho_fallback_litellm._call import RouterCall


def is_stream(answer: Any) -> bool:
    """Tell a stream from an answer: an iterator, which is its own; a mock's is another object."""
    kind = type(answer)
    if hasattr(kind, "__anext__"):
        return answer.__aiter__() is answer
    return hasattr(kind, "__next__") and iter(answer) is answer


def managed_stream(
    inner: Any,
    call: RouterCall,
    reopen: Callable[[RouterCall], Any],
    areopen: Callable[[RouterCall], Awaitable[Any]],
) -> Any:
    """Return a stream like another one, under the call's control."""
    attributes = getattr(inner, "__dict__", None)
    kind = ManagedStream if attributes is None else _like(_named_class(type(inner)))
    stream = kind.__new__(kind)
    if attributes is not None:
        stream.__dict__ = attributes  # shared: LiteLLM and its callers write into both
    stream.reading = _Reading(inner, call, reopen, areopen, call.attempt.number)
    return stream


@dataclass(eq=False, repr=False, slots=True)
class _Reading:
    """Hold the state of a stream between two chunks."""

    inner: Any  # LiteLLM's stream
    call: RouterCall
    reopen: Callable[[RouterCall], Any]  # asks the next target for a stream, in this thread
    areopen: Callable[[RouterCall], Awaitable[Any]]  # does so in this task
    attempt: int
    # The chunks before the first content, dropped if the attempt fails; None after it.
    buffer: list[Any] | None = field(default_factory=list[Any])
    ready: deque[Any] = field(default_factory=deque[Any])
    over: bool = False
    usage_chunks: list[Any] = field(default_factory=list[Any])
    output: list[Any] = field(default_factory=list[Any])  # what a cut stream has brought

    def restart_time_limit(self) -> None:
        """Bound the silence after the first content; before it the attempt's own time runs."""
        limit = self.call.time_limit
        if self.buffer is None and limit is not None and not self.call.ended:
            attempt = self.call.attempt
            limit.restart(attempt.idle_timeout, attempt.target)

    def take(self, chunk: Any) -> None:
        call = self.call
        if self.buffer is not None and not call.ended and call.attempt.number != self.attempt:
            self.attempt = call.attempt.number
            self.forget()  # LiteLLM has gone on to another target
        if _may_tell_usage(chunk):  # one or two of a stream's chunks
            answer = read_answer(chunk)
            if answer.usage is not None:
                self.usage_chunks.append(chunk)
                if call.hides_usage and answer.finish_reason is None and not carries(chunk):
                    return
        self.output.append(chunk)
        if self.buffer is None:
            self.ready.append(chunk)
            return
        self.buffer.append(chunk)
        if carries(chunk):
            if not call.ended:
                call.run.commit()
            self.release()

    def forget(self) -> None:
        """Drop what a failed attempt had sent."""
        if self.buffer is not None:
            self.buffer.clear()
        self.output.clear()
        self.usage_chunks.clear()

    def release(self) -> None:
        self.ready.extend(self.buffer or ())
        self.buffer = None

    def finish(self, stream: Any) -> None:
        self.over = True
        self.release()
        call = self.call
        if not call.ended:
            if call.wants_content and self.output:
                call.run.report(output=tuple(self.output))
            call.succeed(read_answer(self.usage_chunks).usage)
        renew(stream, call.run.record)

    def fail(self, error: BaseException) -> BaseException | None:
        """Return what to raise, or None when another target is to be asked."""
        if isinstance(error, Exception):
            self.call.report(error, partial=tuple(self.output))
            if self.call.goes_on and self.buffer is not None:
                return None
        broken = provider_error(error)
        self.end(broken)
        return broken

    def end(self, error: BaseException) -> None:
        self.over = True
        self.call.close(error)

    def abandon(self) -> None:
        self.over = True
        self.call.abandon(tuple(self.output))


class ManagedStream:
    """Read a stream, sync or async; stands in front of LiteLLM's class of it."""

    __slots__ = ("__dict__", "reading")
    reading: _Reading

    def __iter__(self) -> ManagedStream:
        return self

    __aiter__ = __iter__

    async def __anext__(self) -> Any:
        reading = self.reading
        while not reading.ready:
            if reading.over:
                raise StopAsyncIteration
            try:
                with working_for(reading.call):
                    reading.restart_time_limit()
                    reading.take(await reading.call.within_time(reading.inner.__anext__()))
            except StopAsyncIteration:
                reading.finish(self)
            except BaseException as error:
                out = reading.fail(error)
                if out is error:
                    raise
                if out is not None:
                    raise out from error
                await self._areopen()
            finally:
                await reading.call.publish()
        return reading.ready.popleft()

    def __next__(self) -> Any:
        reading = self.reading
        while not reading.ready:
            if reading.over:
                raise StopIteration
            try:
                with working_for(reading.call):
                    reading.take(next(reading.inner))
            except StopIteration:
                reading.finish(self)
            except BaseException as error:
                out = reading.fail(error)
                if out is error:
                    raise
                if out is not None:
                    raise out from error
                self._reopen()
            finally:
                reading.call.publish_here()
        return reading.ready.popleft()

    async def _areopen(self) -> None:
        reading = self.reading
        with suppress(Exception):  # one that fell silent is open still
            await reading.inner.aclose()
        try:
            with working_for(reading.call):
                reading.inner = await reading.areopen(reading.call)
        except BaseException as error:
            reading.end(error)
            raise

    def _reopen(self) -> None:
        reading = self.reading
        try:
            with working_for(reading.call):
                reading.inner = reading.reopen(reading.call)
        except BaseException as error:
            reading.end(error)
            raise

    async def aclose(self) -> None:
        """Stop reading; the record says so."""
        self.reading.abandon()
        try:
            close = getattr(self.reading.inner, "aclose", None)
            if close is not None:
                await close()
        finally:
            await self.reading.call.publish()

    def close(self) -> None:
        """Stop reading; the record says so."""
        self.reading.abandon()
        try:
            close = getattr(self.reading.inner, "close", None)
            if close is not None:
                close()
        finally:
            self.reading.call.publish_here()

    def __del__(self) -> None:
        reading = getattr(self, "reading", None)
        if reading is not None and not reading.over:
            reading.abandon()  # what it leaves for others goes with the next call's news


@cache
def _like(kind: type) -> type[ManagedStream]:
    return type(f"Managed{kind.__name__}", (ManagedStream, kind), {"__module__": __name__})


def _named_class(kind: type) -> type:
    """Return the class that callers can know: LiteLLM makes some anew in every call."""
    return next(one for one in kind.__mro__ if "<locals>" not in one.__qualname__)


def _may_tell_usage(chunk: Any) -> bool:
    """Tell whether a chunk is worth reading for what the answer cost."""
    if isinstance(chunk, bytes):
        return b'"usage"' in chunk
    # An event of the Responses API holds the whole answer at its end, Anthropic's at its start.
    places = ("usage", "response", "message")
    read = chunk.get if isinstance(chunk, dict) else partial(getattr, chunk)
    if any(read(place, None) is not None for place in places):
        return True
    # Where nobody asked for usage, LiteLLM keeps it beside the last chunk.
    return "usage" in (getattr(chunk, "_hidden_params", None) or ())


def carries(chunk: Any) -> bool:
    """Tell whether a chunk is worth handing out; no other target is asked after that."""
    # What Anthropic sends is passed on to Messages as it came over the wire.
    return b"content_block_delta" in chunk if isinstance(chunk, bytes) else has_content(chunk)
