"""The stream of whoever answers, read through the policy."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator

    from pydantic_ai.messages import ModelResponse, ModelResponseStreamEvent
    from pydantic_ai.models import StreamedResponse

# What is told of usage, under the names that Pydantic AI and a record have in common.
COUNTS = ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens")


def closing_chunk(response: ModelResponse) -> Any:
    """Return what the policy learns of a stream at its end: how it ended and what it cost.

    No event of Pydantic AI says so; the form is one that ``read_answer`` knows.
    """
    # Not every model says why it ended, but Pydantic AI knows of some that they had not.
    unsaid = None if response.state == "incomplete" else "stop"
    counts = {name: getattr(response.usage, name) for name in COUNTS}
    return {
        "type": "message_delta",
        "delta": {"stop_reason": response.finish_reason or unsaid},
        "usage": counts if response.usage.has_values() else None,
        "model": response.model_name,
    }


class EventStream:
    """Stand for the stream of whoever answers, whose chunks come through the policy.

    Everything else is the own of the stream that was opened last: its response, its usage, its
    state, and its class.
    """

    def __init__(
        self, opened: list[StreamedResponse], first: Any, chunks: AsyncGenerator[Any, None]
    ) -> None:
        own = {"_opened": opened, "_chunks": chunks}
        # Under this name Pydantic AI puts an iterator of its own around it, to look at the first.
        self.__dict__.update(own, _event_iterator=self._read(first, chunks))

    @property
    def _source(self) -> StreamedResponse:
        stream: StreamedResponse = self.__dict__["_opened"][-1]
        return stream

    @property  # type: ignore[misc] # object's can be written
    def __class__(self) -> type:  # pyright: ignore[reportIncompatibleMethodOverride] # the same
        return type(self._source)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._source, name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in self.__dict__:
            self.__dict__[name] = value
        else:
            setattr(self._source, name, value)

    def __aiter__(self) -> AsyncIterator[ModelResponseStreamEvent]:
        events: AsyncIterator[ModelResponseStreamEvent] = self._event_iterator
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
