"""What a candidate answers: the chunks of a stream, and what they add up to."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator
from functools import reduce
from operator import add
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from langchain_core.messages import AIMessage, AIMessageChunk
from langchain_core.messages.ai import add_ai_message_chunks
from langchain_core.runnables.config import var_child_runnable_config

from honcho_fallback import AnswerRejected, Failure, FailureKind
from honcho_fallback import has_content as carries_content
from honcho_fallback_langchain._sdk import ATTEMPTS

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

    from langchain_core.runnables import RunnableConfig

    from honcho_fallback import Attempt


# Stands for a stream that ended without a chunk: an answer for a chain, and no content.
NOTHING: Final = MappingProxyType[str, Any]({})
_END: Any = object()


def has_content(chunk: Any) -> bool:
    """Tell whether a chunk says anything yet; what a chain makes of an answer is whole."""
    if isinstance(chunk, AIMessage) and not isinstance(chunk, AIMessageChunk):
        return True
    return isinstance(chunk, int | float) or carries_content(chunk)


def ends_message(chunk: Any) -> bool:
    """Tell whether a chunk is the last of its message, or a whole message."""
    if isinstance(chunk, AIMessageChunk):
        return chunk.chunk_position == "last"
    return isinstance(chunk, AIMessage)


# A candidate is asked with its own config around it, for what asks for the config without having
# been handed one: a tool or a chain inside of a model. LangChain's own composites do the same for
# what they call, but in a copy of the context; here the context stays the reader's, and what a
# generator sets in it is still there at its last chunk.


def to_its_end(
    chunks: Iterator[Any],
    config: RunnableConfig,
    attempt: Attempt,
    settle: Callable[[BaseException], None],
) -> Iterator[Any]:
    """Pass chunks on, or say that there was none; settle the attempt if they break off."""
    last: Any = NOTHING
    try:
        while True:
            token = var_child_runnable_config.set(config)
            limits = ATTEMPTS.set((*ATTEMPTS.get(), attempt))
            try:
                chunk = next(chunks, _END)
            finally:
                ATTEMPTS.reset(limits)
                var_child_runnable_config.reset(token)
            if chunk is _END:
                break
            yield (last := chunk)
        if last is NOTHING:
            yield NOTHING
    except BaseException as error:
        settle(error)
        raise
    finally:
        if isinstance(chunks, Generator):
            chunks.close()


async def ato_its_end(
    chunks: AsyncIterator[Any],
    config: RunnableConfig,
    settle: Callable[[BaseException], Awaitable[None]],
) -> AsyncIterator[Any]:
    """Pass chunks on, or say that there was none; settle the attempt if they break off."""
    last: Any = NOTHING
    try:
        while True:
            token = var_child_runnable_config.set(config)
            try:
                chunk = await anext(chunks, _END)
            finally:
                var_child_runnable_config.reset(token)
            if chunk is _END:
                break
            yield (last := chunk)
        if last is NOTHING:
            yield NOTHING
    except BaseException as error:
        await settle(error)
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


def unreadable(why: str) -> AnswerRejected:
    """Return what stands for an answer that is none."""
    return AnswerRejected(Failure.of(FailureKind.MALFORMED_RESPONSE, reason=why))
