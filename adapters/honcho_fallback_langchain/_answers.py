"""What a candidate answers: the chunks of a stream, and answers that could not be parsed."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Generator
from contextlib import contextmanager
from functools import reduce
from operator import add
from traceback import walk_tb
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from langchain_core.messages import AIMessage, AIMessageChunk
from langchain_core.messages.ai import add_ai_message_chunks
from langchain_core.runnables.config import var_child_runnable_config

from honcho_fallback import AnswerRejected, Failure, FailureKind
from honcho_fallback import has_content as carries_content

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

    from langchain_core.runnables import RunnableConfig


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
    chunks: Iterator[Any], config: RunnableConfig, settle: Callable[[BaseException], None]
) -> Iterator[Any]:
    """Pass chunks on, or say that there was none; settle the attempt if they break off."""
    last: Any = NOTHING
    try:
        with parsing_answers():
            while True:
                token = var_child_runnable_config.set(config)
                try:
                    chunk = next(chunks, _END)
                finally:
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
        with parsing_answers():
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


# Answers that a provider's package could not parse: the provider's failure, not the program's.
# Where ``choices`` are empty or null, LangChain and its integrations raise whatever an index or a
# loop happens to raise, and a stream without events is a bare ValueError. Where it was raised
# tells them from a mistake of the program, of a tool, a parser or a callback.

# Methods of a chat model from which a request is written, sent, and its answer read.
_VERB: Final = re.compile("_a?(generate|stream)(_responses)?")
# What they call to read one, in every integration: _create_chat_result, _format_output and so on.
_READS: Final = re.compile("chunk|output|response|result")
# Where LangChain itself looks for the first of no answers.
_MODELS: Final = "langchain_core.language_models."
_FIRST_OF_NONE: Final = re.compile("a?(invoke|stream|generate_from_stream)")


@contextmanager
def parsing_answers() -> Generator[None]:
    """Raise what an error stands for, if it was raised while an answer was parsed."""
    try:
        yield
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        frames = [frame for frame, _ in walk_tb(error.__traceback__)]
        places = [(str(one.f_globals.get("__name__")), one.f_code.co_name) for one in frames]
        if _is_unparsable(places):
            raise unreadable(f"the answer could not be read ({type(error).__name__})") from error
        raise


def unreadable(why: str) -> AnswerRejected:
    """Return what stands for an answer that is none."""
    return AnswerRejected(Failure.of(FailureKind.MALFORMED_RESPONSE, reason=why))


def _is_unparsable(frames: list[tuple[str, str]]) -> bool:
    module, name = frames[-1]  # there is one: the generator that has caught the error
    if module.startswith(_MODELS) and _FIRST_OF_NONE.fullmatch(name):
        return True
    if not _is_integration(module):
        return False
    verbs = [place for place, (_, name) in enumerate(frames) if _VERB.fullmatch(name)]
    called = frames[verbs[-1] + 1 :] if verbs else []
    # In a task it is called in a thread, through LangChain's and Python's own functions.
    first = next((name for module, name in called if _is_integration(module)), "")
    return _READS.search(first) is not None


def _is_integration(module: str) -> bool:
    return module.startswith("langchain_") and not module.startswith("langchain_core.")
