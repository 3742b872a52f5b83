"""Chat models asked without a run: by the methods that every integration overrides.

They are old, and no other way in has no run: LangChain has opened one already, or nobody would
hear of it.
"""

# pyright: reportPrivateUsage=false
# See above.

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple, cast
from uuid import uuid4

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessageChunk, BaseMessage, HumanMessage
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.runnables.base import RunnableBindingBase
from langchain_core.utils.utils import LC_ID_PREFIX

from honcho_fallback_langchain._answers import unreadable

if TYPE_CHECKING:
    from langchain_core.runnables import Runnable, RunnableConfig


class Request(NamedTuple):
    """What one attempt of a chain sends."""

    candidate: Runnable[Any, Any]
    input: Any
    config: RunnableConfig
    kwargs: dict[str, Any]


# What an integration may have put between a caller and the model; where it has, it is asked.
_VERBS = ("invoke", "ainvoke", "generate", "agenerate", "generate_prompt", "agenerate_prompt")
_FOR_TRACING = frozenset({"ls_structured_output_format", "structured_output_format"})


def direct_request(request: Request) -> Request | None:
    """Return a request to ask without a run, or None where only the public methods will do.

    That is so where a class has such methods of its own, where handlers of its own listen, and
    where messages have blocks that LangChain rewrites first.
    """
    model, messages, config, kwargs = unbound(request)
    if not isinstance(model, BaseChatModel) or not _is_plain(type(model)):
        return None
    if model.callbacks or model.verbose:
        return None
    if isinstance(messages, str):
        messages = [HumanMessage(messages)]
    if type(messages) is not list or any(
        type(message.content) is not str for message in cast("list[BaseMessage]", messages)
    ):
        return None
    if not _FOR_TRACING.isdisjoint(kwargs):
        kwargs = {name: value for name, value in kwargs.items() if name not in _FOR_TRACING}
    return Request(model, messages, config, kwargs)


def unbound(request: Request) -> Request:
    """Take bindings off that do no more than to hold keywords; a retry does more."""
    candidate, kwargs = request.candidate, request.kwargs
    while isinstance(candidate, RunnableBindingBase) and _is_transparent(candidate):
        kwargs = {**candidate.kwargs, **kwargs}
        candidate = candidate.bound
    return request._replace(candidate=candidate, kwargs=kwargs)


def _is_transparent(binding: RunnableBindingBase[Any, Any]) -> bool:
    has_own_verbs = type(binding).invoke is not RunnableBindingBase.invoke
    return not (has_own_verbs or binding.config or binding.config_factories)


@cache
def _is_plain(kind: type[BaseChatModel]) -> bool:
    return all(getattr(kind, verb) is getattr(BaseChatModel, verb) for verb in _VERBS)


def message_of(result: ChatResult) -> BaseMessage:
    check_generations(result)
    message = result.generations[0].message
    if message.id is None:  # as a run would have given it
        return message.model_copy(update={"id": f"{LC_ID_PREFIX}-{uuid4()}-0"})
    return message


def check_generations(result: ChatResult) -> None:
    if not result.generations:
        raise unreadable("the answer has no choices")


def result_of(message: BaseMessage) -> ChatResult:
    return ChatResult(generations=[ChatGeneration(message=message)])


def streams(model: BaseChatModel, kwargs: dict[str, Any], *, async_api: bool) -> bool:
    stream_kwargs: dict[str, Any] = {**kwargs, "stream": True}
    return model._should_stream(async_api=async_api, **stream_kwargs)  # noqa: SLF001 # see above


def as_chunk(result: ChatResult) -> ChatGenerationChunk:
    message = result.generations[0].message
    whole = AIMessageChunk(**message.model_dump(exclude={"type"}), chunk_position="last")
    return ChatGenerationChunk(message=whole)
