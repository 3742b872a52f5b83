"""Chat models whose SDK asks once: the fallback decides what to ask next, not the client.

Every integration retries in its own place: in SDK clients that a field holds, in clients built on
first use, in a field read per request, in a decorator that counts attempts. Each has one function
below, found by class name, so that no provider's package is imported.
"""

from __future__ import annotations

import logging
from functools import cache
from typing import TYPE_CHECKING, Any, Final, TypeVar

from langchain_core.runnables import Runnable

from honcho_fallback_langchain._models_inside import (
    copied,
    derived,
    differ,
    of_integration,
    owner_of,
    with_changed,
)

if TYPE_CHECKING:
    from collections.abc import Callable

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
    quiet: CandidateT = with_changed(candidate, _model_without)
    return quiet


def _model_without(model: Any) -> Any:
    turn_off = of_integration(model, _TURN_OFF)
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


def _client_without(client: Any) -> Any:
    retries = getattr(owner_of(client), "max_retries", None)
    again = isinstance(retries, int) and retries > 0
    return derived(client, max_retries=0) if again else client


def _field_clients(*names: str) -> Callable[[Any], Any]:
    """Derive the clients in fields: each client read max_retries when it was built."""

    def turn_off(model: Any) -> Any:
        clients = {name: getattr(model, name) for name in names}
        quiet = {name: _client_without(client) for name, client in clients.items()}
        if not differ(quiet.values(), clients.values()):
            return model
        return copied(model, {**quiet, "max_retries": 0})

    return turn_off


def _lazy_clients(*names: str) -> Callable[[Any], Any]:
    """Have clients built without retries on first use; derive those that were built already."""

    def turn_off(model: Any) -> Any:
        state: dict[str, Any] = model.__dict__
        built = {name: state[name] for name in names if name in state}
        quiet = {name: _client_without(client) for name, client in built.items()}
        if model.max_retries == 0 and not differ(quiet.values(), built.values()):
            return model
        copy = copied(model, {"max_retries": 0})
        copy.__dict__.update(quiet)
        return copy

    return turn_off


def _counted_attempts(model: Any) -> Any:
    """Allow one attempt: the field counts the first request too, and is read on every call."""
    return model if model.max_retries == 1 else copied(model, {"max_retries": 1})


def _litellm(model: Any) -> Any:
    """Tell LiteLLM with each request: the field only counts LangChain's attempts around it."""
    model_kwargs = {
        name: value for name, value in model.model_kwargs.items() if name != "retry_policy"
    }
    changes = {
        "max_retries": 1,
        "model_kwargs": {**model_kwargs, "max_retries": 0, "num_retries": 0},
    }
    if all(getattr(model, name) == value for name, value in changes.items()):
        return model
    return copied(model, changes)


def _untouched(model: Any) -> Any:
    """Leave it: how often a Router asks its deployments is the Router's policy."""
    return model


_RETRY_FIELDS: Final = ("max_retries", "num_retries", "retries")

_TURN_OFF: Final[dict[tuple[str, str], Callable[[Any], Any]]] = {
    ("langchain_anthropic", "ChatAnthropic"): _lazy_clients("_client", "_async_client"),
    ("langchain_google_genai", "ChatGoogleGenerativeAI"): _counted_attempts,
    ("langchain_groq", "ChatGroq"): _field_clients("client", "async_client"),
    ("langchain_litellm", "ChatLiteLLM"): _litellm,
    ("langchain_litellm", "ChatLiteLLMRouter"): _untouched,
    ("langchain_mistralai", "ChatMistralAI"): _counted_attempts,
    ("langchain_openai", "BaseChatOpenAI"): _field_clients(
        "client", "async_client", "root_client", "root_async_client"
    ),
}
