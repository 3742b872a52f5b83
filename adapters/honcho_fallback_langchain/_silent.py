"""The chain behind ``generate``: one run that LangChain opened, candidates that open none.

``generate`` and the third version of ``stream_events`` open a run of their own around the methods
here. Candidates asked by their public methods would report each token and its cost once more.
"""

# pyright: reportPrivateUsage=false
# These are old, overridden by every integration, and the only way in without a run.

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessageChunk
from langchain_core.outputs import ChatGenerationChunk
from langchain_core.runnables import RunnableBinding

from honcho_fallback_langchain._chunks import has_content
from honcho_fallback_langchain._marks import describe, mark, usage_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

    from langchain_core.messages import BaseMessage
    from langchain_core.outputs import ChatResult

    from honcho_fallback import Attempt, FallbackPolicy, FallbackRun

    AskFor = Callable[[Attempt, Any, dict[str, Any]], tuple[Any, dict[str, Any]]]


class Silent:
    """Ask candidates by the methods that report nothing.

    Args:
        policy: Whom to ask.
        ask_for: Makes the input and the keywords for one attempt.
        messages: What is asked.
        kwargs: As for each candidate.
    """

    __slots__ = ("ask_for", "kwargs", "messages", "run")

    def __init__(
        self,
        policy: FallbackPolicy,
        ask_for: AskFor,
        messages: list[BaseMessage],
        kwargs: dict[str, Any],
    ) -> None:
        self.ask_for = ask_for
        self.messages = messages
        self.kwargs = kwargs
        self.run: FallbackRun = policy.start()
        if self.run.wants_content:
            self.run.tell(input=messages)

    def generate(self, attempt: Attempt) -> ChatResult:
        """Ask one candidate."""
        model, messages, kwargs = self._prepare(attempt)
        return self._finish(attempt, model._generate_with_cache(messages, **kwargs))  # noqa: SLF001 # see above

    async def agenerate(self, attempt: Attempt) -> ChatResult:
        """Ask one candidate."""
        model, messages, kwargs = self._prepare(attempt)
        return self._finish(attempt, await model._agenerate_with_cache(messages, **kwargs))  # noqa: SLF001 # see above

    def stream(self, attempt: Attempt) -> Iterator[ChatGenerationChunk]:
        """Ask one candidate for its chunks."""
        model, messages, kwargs = self._prepare(attempt)
        if _streams(model, kwargs, async_api=False):
            return model._stream(messages, **kwargs)  # noqa: SLF001 # see above
        return map(_as_chunk, [self.generate(attempt)])

    async def astream(self, attempt: Attempt) -> AsyncIterator[ChatGenerationChunk]:
        """Ask one candidate for its chunks."""
        model, messages, kwargs = self._prepare(attempt)
        if _streams(model, kwargs, async_api=True):
            async for chunk in model._astream(messages, **kwargs):  # noqa: SLF001 # see above
                yield chunk
        else:
            yield _as_chunk(await self.agenerate(attempt))

    def _prepare(self, attempt: Attempt) -> tuple[BaseChatModel, list[Any], dict[str, Any]]:
        messages, kwargs = self.ask_for(attempt, self.messages, self.kwargs)
        candidate = attempt.target.client
        while isinstance(candidate, RunnableBinding):
            kwargs = {**candidate.kwargs, **kwargs}
            candidate = candidate.bound
        if not isinstance(candidate, BaseChatModel):
            raise NotImplementedError(
                f"generate() cannot ask a {type(candidate).__name__}; use invoke() or stream()"
            )
        return candidate, messages, kwargs

    def _finish(self, attempt: Attempt, result: ChatResult) -> ChatResult:
        told = describe(self.run, attempt)
        generations = [
            generation.model_copy(update={"message": mark(generation.message, told)})
            for generation in result.generations
        ]
        usage = usage_of(generations[0].message) if generations else None
        if usage is not None:
            self.run.tell(usage=dict(usage))
        return result.model_copy(update={"generations": generations})


def says_something(chunk: ChatGenerationChunk) -> bool:
    """Tell whether a generation's chunk says anything yet.

    Args:
        chunk: Of a stream.
    """
    return has_content(chunk.message)


def _streams(model: BaseChatModel, kwargs: dict[str, Any], *, async_api: bool) -> bool:
    asked: dict[str, Any] = {**kwargs, "stream": True}
    return model._should_stream(async_api=async_api, **asked)  # noqa: SLF001 # see above


def _as_chunk(result: ChatResult) -> ChatGenerationChunk:
    message = result.generations[0].message
    whole = AIMessageChunk(**message.model_dump(exclude={"type"}), chunk_position="last")
    return ChatGenerationChunk(message=whole)
