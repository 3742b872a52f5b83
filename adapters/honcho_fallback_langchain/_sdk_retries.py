"""Chat models whose SDK asks once: the fallback decides what to ask next, not the client.

Every integration retries in its own place: in SDK clients that a field holds, in clients built on
first use, in a field read per request, in a decorator that counts attempts. Each has one function
below, found by class name, so that no provider's package is imported.
"""

from __future__ import annotations

import logging
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any, Final, TypeGuard, TypeVar

from langchain_core.language_models import BaseChatModel
from langchain_core.runnables import Runnable, RunnableSerializable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pydantic import BaseModel

CandidateT = TypeVar("CandidateT", bound=Runnable[Any, Any])

logger = logging.getLogger("honcho_fallback")


def without_sdk_retries(candidate: CandidateT) -> CandidateT:
    """Return a candidate that sends one request per call, or the same object if it already does.

    Chat models are found inside LangChain's own composites (bindings, sequences, parallels,
    branches, `configurable_fields`, `configurable_alternatives`), whose other parts stay the same
    objects. Left as they are: alternatives and models that are built during a call (factories,
    `init_chat_model` without a model), retries bound per call (`.bind(max_retries=...)`),
    `.with_retry()`, a LiteLLM Router's own policy, and the process-wide `litellm.num_retries`.

    Args:
        candidate: What a fallback chain asks; it and its clients are never changed.
    """
    quiet: CandidateT = _without(candidate)
    return quiet


def _without(part: Any) -> Any:
    kind: type[Any] = part.__class__
    if issubclass(kind, BaseChatModel):
        return _model_without(part)
    if _is_composite(kind):
        fields = {name: getattr(part, name) for name in kind.model_fields.keys() - _ASKED_WITH}
        quiet = {name: _without(value) for name, value in fields.items()}
        return _copy(part, quiet) if _differs(quiet.values(), fields.values()) else part
    if kind in {list, tuple}:
        items: Any = part.__class__(_without(item) for item in part)
        return items if _differs(items, part) else part
    if kind is dict:
        entries = {key: _without(value) for key, value in part.items()}
        return entries if _differs(entries.values(), part.values()) else part
    return part


def _differs(new: Iterable[Any], old: Iterable[Any]) -> bool:
    return any(one is not other for one, other in zip(new, old, strict=True))


def _is_composite(kind: type) -> TypeGuard[type[RunnableSerializable[Any, Any]]]:
    """Tell LangChain's ways to compose runnables from tools, retrievers and users' classes."""
    return issubclass(kind, RunnableSerializable) and any(
        base.__module__.startswith("langchain_core.runnables.")
        and base not in {Runnable, RunnableSerializable}
        for base in kind.__mro__
    )


def _model_without(model: Any) -> Any:
    for base in type(model).__mro__:
        turn_off = _TURN_OFF.get((base.__module__.partition(".")[0], base.__name__))
        if turn_off is not None:
            return turn_off(model)
    if any(getattr(model, name, 0) != 0 for name in _RETRY_FIELDS):
        _warn_of_unknown(f"{type(model).__module__}.{type(model).__qualname__}")
    return model


@cache  # one warning per class and process
def _warn_of_unknown(class_name: str) -> None:
    logger.warning(
        "%s may retry by itself before the fallback is asked, and how to turn that off is not "
        'known here: set max_retries=0 on it, or pass sdk_retries="keep"',
        class_name,
    )


def _copy(model: Any, changes: dict[str, Any]) -> Any:
    """Copy a model with other field values, and without what it computed from the old ones."""
    copy: BaseModel = model.model_copy(update=changes)
    for name in list(vars(copy)):
        if isinstance(getattr(type(copy), name, None), cached_property):
            del vars(copy)[name]
    return copy


def _client_without(client: Any) -> Any:
    """Derive a client that shares the connections, from an SDK's client or a resource of one."""
    if _retries(client):
        return client.with_options(max_retries=0)
    owner = getattr(client, "_client", client)  # what a resource like chat.completions asks
    return type(client)(owner.with_options(max_retries=0)) if _retries(owner) else client


def _retries(client: Any) -> bool:
    retries = getattr(client, "max_retries", None)
    return isinstance(retries, int) and retries > 0 and hasattr(client, "with_options")


def _held_clients(*names: str) -> Callable[[Any], Any]:
    """Derive the clients that fields hold: max_retries was read when they were built."""

    def turn_off(model: Any) -> Any:
        held = {name: getattr(model, name) for name in names}
        quiet = {name: _client_without(client) for name, client in held.items()}
        if not _differs(quiet.values(), held.values()):
            return model
        return _copy(model, {**quiet, "max_retries": 0})

    return turn_off


def _lazy_clients(*names: str) -> Callable[[Any], Any]:
    """Have clients built without retries on first use; derive those that were built already."""

    def turn_off(model: Any) -> Any:
        state: dict[str, Any] = model.__dict__
        built = {name: state[name] for name in names if name in state}
        quiet = {name: _client_without(client) for name, client in built.items()}
        if model.max_retries == 0 and not _differs(quiet.values(), built.values()):
            return model
        copy = _copy(model, {"max_retries": 0})
        copy.__dict__.update(quiet)
        return copy

    return turn_off


def _counted_attempts(model: Any) -> Any:
    """Allow one attempt: the field counts the first request too, and is read on every call."""
    return model if model.max_retries == 1 else _copy(model, {"max_retries": 1})


def _litellm(model: Any) -> Any:
    """Tell LiteLLM with each request: the field only counts LangChain's attempts around it."""
    kept = {name: value for name, value in model.model_kwargs.items() if name != "retry_policy"}
    changes = {"max_retries": 1, "model_kwargs": {**kept, "max_retries": 0, "num_retries": 0}}
    if all(getattr(model, name) == value for name, value in changes.items()):
        return model
    return _copy(model, changes)


def _untouched(model: Any) -> Any:
    """Leave it: how often a Router asks its deployments is the Router's policy."""
    return model


_ASKED_WITH: Final = {"config", "config_factories", "kwargs"}  # of a binding; holds no candidate
_RETRY_FIELDS: Final = ("max_retries", "num_retries", "retries")

# By distribution and class; the first hit along the MRO counts, so subclasses are covered.
_TURN_OFF: Final[dict[tuple[str, str], Callable[[Any], Any]]] = {
    ("langchain_anthropic", "ChatAnthropic"): _lazy_clients("_client", "_async_client"),
    ("langchain_google_genai", "ChatGoogleGenerativeAI"): _counted_attempts,
    ("langchain_groq", "ChatGroq"): _held_clients("client", "async_client"),
    ("langchain_litellm", "ChatLiteLLM"): _litellm,
    ("langchain_litellm", "ChatLiteLLMRouter"): _untouched,
    ("langchain_mistralai", "ChatMistralAI"): _counted_attempts,
    ("langchain_openai", "BaseChatOpenAI"): _held_clients(
        "client", "async_client", "root_client", "root_async_client"
    ),
}
