"""Chat models asked without a run: LangChain has opened one already, or nobody would hear of it.

``generate`` and the third version of ``stream_events`` open a run of their own around ``Silent``;
candidates asked by their public methods would report each token and its cost once more. And where
no handler listens, opening a run for every candidate is most of what a call costs.
"""

# pyright: reportPrivateUsage=false
# These are old, overridden by every integration, and the only way in without a run.

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessageChunk, HumanMessage
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.runnables.base import RunnableBindingBase
from langchain_core.runnables.config import ensure_config
from langchain_core.utils.utils import LC_ID_PREFIX

from honcho_fallback_langchain._marks import describe, mark, usage_of
from honcho_fallback_langchain._misread import MISREAD, check_misread, unreadable
from honcho_fallback_langchain._options import for_this_call
from honcho_fallback_langchain._sdk_keys import awith_key, with_key

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

    from langchain_core.messages import BaseMessage
    from langchain_core.runnables import Runnable, RunnableConfig

    from honcho_fallback import Attempt, FallbackObserver, FallbackPolicy, FallbackRun

    AskFor = Callable[[Attempt, Any, dict[str, Any]], tuple[Any, dict[str, Any]]]

# What an integration may have put between a caller and the model; where it has, it is asked.
_VERBS = ("invoke", "ainvoke", "generate", "agenerate", "generate_prompt", "agenerate_prompt")
_NO_CALLBACKS: RunnableConfig = {"callbacks": []}
_FOR_TRACING = frozenset({"ls_structured_output_format", "structured_output_format"})


class Silent:
    """Ask candidates by the methods that report nothing.

    Args:
        policy: The policy over the candidates.
        ask_for: Makes the input and the keywords for one attempt.
        messages: What is asked.
        kwargs: As for each candidate.
        observers: The observers of the call.
    """

    __slots__ = ("ask_for", "kwargs", "messages", "run")

    def __init__(
        self,
        policy: FallbackPolicy,
        ask_for: AskFor,
        messages: list[BaseMessage],
        kwargs: dict[str, Any],
        observers: tuple[FallbackObserver, ...],
    ) -> None:
        self.ask_for = ask_for
        self.messages = messages
        self.kwargs = kwargs
        # LangChain hands no config on; what a graph or a chain runs in is around us.
        policy, turn = for_this_call(ensure_config(), policy, observers)
        self.run: FallbackRun = policy.start(turn=turn)
        self.run.report(input=messages)

    def generate(self, attempt: Attempt) -> ChatResult:
        """Ask one candidate."""
        model, messages, kwargs = self._prepare(attempt, with_key(attempt.target))
        try:
            if isinstance(model, BaseChatModel):
                result = model._generate_with_cache(messages, **kwargs)  # noqa: SLF001 # see above
            else:
                result = _result(model.invoke(messages, _NO_CALLBACKS, **kwargs))
        except MISREAD as error:
            check_misread(error)
            raise
        return self._finish(attempt, result)

    async def agenerate(self, attempt: Attempt) -> ChatResult:
        """Ask one candidate."""
        model, messages, kwargs = self._prepare(attempt, await awith_key(attempt.target))
        try:
            if isinstance(model, BaseChatModel):
                result = await model._agenerate_with_cache(messages, **kwargs)  # noqa: SLF001 # see above
            else:
                result = _result(await model.ainvoke(messages, _NO_CALLBACKS, **kwargs))
        except MISREAD as error:
            check_misread(error)
            raise
        return self._finish(attempt, result)

    def stream(self, attempt: Attempt) -> Iterator[ChatGenerationChunk]:
        """Ask one candidate for its chunks."""
        model, messages, kwargs = self._prepare(attempt, with_key(attempt.target))
        if not isinstance(model, BaseChatModel) or not _streams(model, kwargs, async_api=False):
            yield _as_chunk(self.generate(attempt))
            return
        if model.rate_limiter is not None:
            model.rate_limiter.acquire(blocking=True)
        try:
            yield from model._stream(messages, **kwargs)  # noqa: SLF001 # see above
        except MISREAD as error:
            check_misread(error)
            raise

    async def astream(self, attempt: Attempt) -> AsyncIterator[ChatGenerationChunk]:
        """Ask one candidate for its chunks."""
        model, messages, kwargs = self._prepare(attempt, await awith_key(attempt.target))
        if not isinstance(model, BaseChatModel) or not _streams(model, kwargs, async_api=True):
            yield _as_chunk(await self.agenerate(attempt))
            return
        if model.rate_limiter is not None:
            await model.rate_limiter.aacquire(blocking=True)
        try:
            async for chunk in model._astream(messages, **kwargs):  # noqa: SLF001 # see above
                yield chunk
        except MISREAD as error:
            check_misread(error)
            raise

    def _prepare(
        self, attempt: Attempt, candidate: Runnable[Any, Any]
    ) -> tuple[Runnable[Any, Any], list[Any], dict[str, Any]]:
        messages, kwargs = self.ask_for(attempt, self.messages, self.kwargs)
        # What does more than to hold keywords (a retry, a configurable field) has to be asked.
        while isinstance(candidate, RunnableBindingBase) and _is_transparent(candidate):
            kwargs = {**candidate.kwargs, **kwargs}
            candidate = candidate.bound
        return candidate, messages, kwargs

    def _finish(self, attempt: Attempt, result: ChatResult) -> ChatResult:
        _check_generations(result)
        description = describe(self.run, attempt)
        generations = [
            generation.model_copy(update={"message": mark(generation.message, description)})
            for generation in result.generations
        ]
        usage = usage_of(generations[0].message)
        if usage is not None:
            self.run.report(usage=usage)
        return result.model_copy(update={"generations": generations})


class Unheard:
    """Ask one chat model for one answer; made by ``unheard``.

    Args:
        model: The chat model.
        messages: What is asked.
        kwargs: As for the model.
    """

    __slots__ = ("kwargs", "messages", "model")

    def __init__(
        self, model: BaseChatModel, messages: list[BaseMessage], kwargs: dict[str, Any]
    ) -> None:
        self.model = model
        self.messages = messages
        self.kwargs = kwargs

    def invoke(self) -> BaseMessage:
        """Return the answer."""
        return _answer(self.model._generate_with_cache(self.messages, **self.kwargs))  # noqa: SLF001 # see above

    async def ainvoke(self) -> BaseMessage:
        """Return the answer."""
        return _answer(await self.model._agenerate_with_cache(self.messages, **self.kwargs))  # noqa: SLF001 # see above


def unheard(candidate: object, model_input: Any, kwargs: dict[str, Any]) -> Unheard | None:
    """Return a way to ask a candidate without a run, or None where only its verbs will do.

    That is so where a class has verbs of its own, where handlers of its own listen, and where
    messages have blocks that LangChain rewrites first.
    """
    while isinstance(candidate, RunnableBindingBase) and _is_transparent(candidate):
        kwargs = {**candidate.kwargs, **kwargs}
        candidate = candidate.bound
    if not isinstance(candidate, BaseChatModel) or not _is_plain(type(candidate)):
        return None
    if candidate.callbacks or candidate.verbose:
        return None
    if isinstance(model_input, str):
        model_input = [HumanMessage(model_input)]
    if type(model_input) is not list or any(
        type(message.content) is not str for message in model_input
    ):
        return None
    if not _FOR_TRACING.isdisjoint(kwargs):
        kwargs = {name: value for name, value in kwargs.items() if name not in _FOR_TRACING}
    return Unheard(candidate, model_input, kwargs)


def _check_generations(result: ChatResult) -> None:
    if not result.generations:
        raise unreadable("the answer has no choices")


def _answer(result: ChatResult) -> BaseMessage:
    _check_generations(result)
    message = result.generations[0].message
    if message.id is None:  # as a run would have given it
        return message.model_copy(update={"id": f"{LC_ID_PREFIX}-{uuid4()}-0"})
    return message


def _is_transparent(binding: RunnableBindingBase[Any, Any]) -> bool:
    # A retry is a binding, too, and does more than to hold keywords.
    verbs = type(binding).invoke is RunnableBindingBase.invoke
    return verbs and not binding.config and not binding.config_factories


@cache
def _is_plain(kind: type[BaseChatModel]) -> bool:
    return all(getattr(kind, verb) is getattr(BaseChatModel, verb) for verb in _VERBS)


def _result(message: BaseMessage) -> ChatResult:
    return ChatResult(generations=[ChatGeneration(message=message)])


def _streams(model: BaseChatModel, kwargs: dict[str, Any], *, async_api: bool) -> bool:
    stream_kwargs: dict[str, Any] = {**kwargs, "stream": True}
    return model._should_stream(async_api=async_api, **stream_kwargs)  # noqa: SLF001 # see above


def _as_chunk(result: ChatResult) -> ChatGenerationChunk:
    message = result.generations[0].message
    whole = AIMessageChunk(**message.model_dump(exclude={"type"}), chunk_position="last")
    return ChatGenerationChunk(message=whole)
