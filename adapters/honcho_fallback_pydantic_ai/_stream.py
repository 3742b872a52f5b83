"""The stream of whoever answers, read through the policy."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator

    from pydantic_ai.messages import ModelResponse, ModelResponseStreamEvent
    from pydantic_ai.models import StreamedResponse


def closing_chunk(response: ModelResponse) -> Any:
    """Return what the policy learns of a stream at its end: how it ended and what it cost.

    No event of Pydantic AI says so; the form is one that ``read_answer`` knows.
    """
    usage = response.usage
    counts = {"input_tokens": usage.input_tokens, "output_tokens": usage.output_tokens}
    counts["cache_read_tokens"] = usage.cache_read_tokens
    counts["cache_write_tokens"] = usage.cache_write_tokens
    return {
        "type": "message_delta",
        "delta": {"stop_reason": response.finish_reason or "stop"},
        "usage": counts if usage.has_values() else None,
        "model": response.model_name,
    }


class EventStream:
    """Stand for the stream of whoever answers, whose chunks come through the policy.

    Everything else is the stream's own: its response, its usage, its state, and its class.
    """

    def __init__(
        self, source: StreamedResponse, first: Any, chunks: AsyncGenerator[Any, None]
    ) -> None:
        own = {"_source": source, "_chunks": chunks, "_events": self._read(first, chunks)}
        self.__dict__.update(own)

    @property  # type: ignore[misc] # object's can be written
    def __class__(self) -> type:  # pyright: ignore[reportIncompatibleMethodOverride] # the same
        return type(self._source)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["_source"], name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._source, name, value)

    def __aiter__(self) -> AsyncIterator[ModelResponseStreamEvent]:
        events: AsyncIterator[ModelResponseStreamEvent] = self.__dict__["_events"]
        return events

    async def cancel(self) -> None:
        """End the stream; the call is one that its reader abandoned."""
        await self._source.cancel()
        # Another task may be reading: for that one the stream just ends.
        with suppress(RuntimeError):
            await self._chunks.aclose()

    @staticmethod
    async def _read(first: Any, chunks: AsyncIterator[Any]) -> AsyncIterator[Any]:
        if first is not None and not isinstance(first, dict):
            yield first
        async for chunk in chunks:
            if not isinstance(chunk, dict):
                yield chunk
