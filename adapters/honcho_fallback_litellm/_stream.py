"""A stream of ours: the policy's chunks in the shape of LiteLLM's stream.

LiteLLM's callers look at a stream's class (the Proxy, LangChain's wrapper), so ours is a subclass
of the one that it stands for and shares its attributes.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from honcho_fallback import read_answer
from honcho_fallback_litellm._responses import attach, carries, renew

if TYPE_CHECKING:
    from honcho_fallback_litellm._router_call import RouterCall


async def astream_of(call: RouterCall) -> Any:
    """Ask the chain in this task; return a stream, or the whole answer that came instead."""
    chunks = call.chain.policy.astream(call.aopen, run=call.run, has_content=call.has_content)
    first = await anext(chunks, None)
    if first is not call.opened:
        return _managed_stream(call, chunks, first)
    await anext(chunks, None)  # a whole answer in place of a stream: the call ends with it
    return attach(first, call.run.record)


def stream_of(call: RouterCall) -> Any:
    """Ask the chain in this thread; return a stream, or the whole answer that came instead."""
    chunks = call.chain.policy.stream(call.open, run=call.run, has_content=call.has_content)
    first = next(chunks, None)
    if first is not call.opened:
        return _managed_stream(call, chunks, first)
    next(chunks, None)  # a whole answer in place of a stream: the call ends with it
    return attach(first, call.run.record)


def _managed_stream(call: RouterCall, chunks: Any, first: Any) -> Any:
    """Return a stream that looks like LiteLLM's, of the policy's chunks behind the first."""
    attributes, kind = getattr(call.opened, "__dict__", None), ManagedStream
    if attributes is not None:
        # The class that callers can know: LiteLLM makes some anew in every call.
        classes = type(call.opened).__mro__
        kind = _like(next(one for one in classes if "<locals>" not in one.__qualname__))
    stream = kind.__new__(kind)
    if attributes is not None:
        stream.__dict__ = attributes  # shared: LiteLLM and its callers write into both
    stream.call, stream.chunks, stream.first = call, chunks, first
    record, attempt = call.run.record, call.attempt
    answering = attempt.target.name if attempt and record.outcome == "running" else None
    return attach(stream, record, answering)


class ManagedStream:
    """Read a stream, sync or async; stands in front of LiteLLM's class of it."""

    __slots__ = ("__dict__", "call", "chunks", "first")
    call: RouterCall
    chunks: Any
    first: Any

    def __iter__(self) -> ManagedStream:
        return self

    __aiter__ = __iter__

    async def __anext__(self) -> Any:
        try:
            while self._hides(chunk := self._begun() or await anext(self.chunks)):
                pass
        except Exception as error:  # noqa: BLE001 # the caller knows LiteLLM's
            end = self._end_of(error)
        else:
            return chunk
        try:
            raise end
        finally:
            del end  # what is raised refers to this frame

    def __next__(self) -> Any:
        try:
            while self._hides(chunk := self._begun() or next(self.chunks)):
                pass
        except Exception as error:  # noqa: BLE001 # the caller knows LiteLLM's
            end = self._end_of(error)
        else:
            return chunk
        try:
            raise end
        finally:
            del end  # what is raised refers to this frame

    def _end_of(self, error: Exception) -> Exception:
        """Return what the caller gets for what has ended the chunks."""
        if not isinstance(error, StopIteration | StopAsyncIteration):
            return self.call.final(error)
        renew(self, self.call.run.record)
        return error

    def _begun(self) -> Any:
        """Return the first chunk, once."""
        first, self.first = self.first, None
        return first

    def _hides(self, chunk: Any) -> bool:
        """Tell whether a chunk has nothing but the usage that the caller did not ask for."""
        if not self.call.hides_usage or getattr(chunk, "usage", None) is None:
            return False
        return read_answer(chunk).finish_reason is None and not carries(chunk)

    async def aclose(self) -> None:
        await self.chunks.aclose()

    def close(self) -> None:
        self.chunks.close()


@cache
def _like(kind: type) -> type[ManagedStream]:
    return type(f"Managed{kind.__name__}", (ManagedStream, kind), {"__module__": __name__})
