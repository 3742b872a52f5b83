"""What the chunks of a stream are to a call: content, an end, a whole to report."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator
from functools import reduce
from operator import add
from typing import TYPE_CHECKING, Any, Final

from langchain_core.messages import AIMessage, AIMessageChunk
from langchain_core.messages.ai import add_ai_message_chunks

from honcho_fallback import has_content as carries_content
from honcho_fallback_langchain._misread import MISREAD, check_misread

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator


class _Nothing:
    """Stand for a stream that ended without a chunk: an answer for a chain, not a failure."""

    def __bool__(self) -> bool:
        return False

    def __repr__(self) -> str:
        return "<no chunk>"


NOTHING: Final = _Nothing()


def has_content(chunk: Any) -> bool:
    """Tell whether a chunk says anything yet; what a chain makes of an answer is whole.

    Args:
        chunk: Of a message or of whatever a chain produces.
    """
    if isinstance(chunk, AIMessage) and not isinstance(chunk, AIMessageChunk):
        return True
    return isinstance(chunk, int | float) or carries_content(chunk)


def ends_message(chunk: Any) -> bool:
    """Tell whether a chunk is the last of its message, or a whole message."""
    if isinstance(chunk, AIMessageChunk):
        return chunk.chunk_position == "last"
    return isinstance(chunk, AIMessage)


def to_its_end(chunks: Iterator[Any]) -> Iterator[Any]:
    """Pass chunks on, or say that there was none."""
    chunk = NOTHING
    try:
        for chunk in chunks:
            yield chunk
        if chunk is NOTHING:
            yield NOTHING
    except MISREAD as error:
        check_misread(error)
        raise
    finally:
        if isinstance(chunks, Generator):
            chunks.close()


async def ato_its_end(chunks: AsyncIterator[Any]) -> AsyncIterator[Any]:
    """Pass chunks on, or say that there was none."""
    chunk = NOTHING
    try:
        async for chunk in chunks:
            yield chunk
        if chunk is NOTHING:
            yield NOTHING
    except MISREAD as error:
        check_misread(error)
        raise
    finally:
        if isinstance(chunks, AsyncGenerator):
            await chunks.aclose()


def merged(chunks: list[Any]) -> Any:
    """Add chunks up, for the end of a run; where they do not add up, the last stands for all."""
    if not chunks:
        return None
    first, *others = chunks
    if all(isinstance(chunk, AIMessageChunk) for chunk in chunks):
        return add_ai_message_chunks(first, *others)
    try:
        return reduce(add, chunks)
    except TypeError:  # as everywhere in LangChain
        return chunks[-1]
