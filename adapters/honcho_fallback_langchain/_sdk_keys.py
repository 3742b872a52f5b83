"""The keys of chat models: compared without showing them, and replaced for one attempt.

A credential that is refreshed gives a new key from one request to the next. What is asked then is
a copy of the model with that key: a keyword or a header of the call would stand in its traces.
"""

from __future__ import annotations

import inspect
from functools import partial
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit, urlunsplit

from pydantic import SecretStr

from honcho_fallback import ApiKey, FallbackConfigError, Target
from honcho_fallback_langchain._models_inside import (
    copied,
    derived,
    of_integration,
    owner_of,
    with_changed,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from langchain_core.language_models import BaseChatModel
    from langchain_core.runnables import Runnable


def check_takes_keys(candidate: Runnable[Any, Any], position: int) -> None:
    """Refuse a credential for a model that cannot be given its key."""

    def check(model: Any) -> Any:
        if of_integration(model, _KEYS) is None:
            raise FallbackConfigError.about(
                f"credentials[{position}]",
                f"how a {type(model).__name__} takes another key is not known here",
                "leave it out, or pass None in its place",
            )
        return model

    with_changed(candidate, check)


def with_key(target: Target) -> Any:
    """Return a target's candidate with the key that its credential gives."""
    credential = target.credential
    if credential is None:
        return target.client
    key = credential.get()
    if inspect.isawaitable(key):
        getattr(key, "close", bool)()  # a coroutine that nobody will await
        raise FallbackConfigError.about(
            "credentials", f"that of {target.name} is async", "use ainvoke or astream"
        )
    return _asking_with(target.client, key)


async def awith_key(target: Target) -> Any:
    """Return a target's candidate with the key that its credential gives."""
    credential = target.credential
    if credential is None:
        return target.client
    key = credential.get()
    return _asking_with(target.client, await key if inspect.isawaitable(key) else key)


def identity_of(model: BaseChatModel | None, name: str, provider: str | None) -> str | None:
    """Return a model's identity for cooldowns, or None; models with equal facts share it."""
    if model is None or provider is None:
        return None
    endpoint, secrets = _endpoint_of(model), _secrets_of(model)
    if endpoint is None or secrets is None:
        return None
    return Target(name, provider, endpoint=endpoint, credential=ApiKey(secrets)).identity


def public_endpoint_of(model: BaseChatModel | None) -> str | None:
    """Return where a model asks, without what an address may hold beside it."""
    endpoint = None if model is None else _endpoint_of(model)
    if endpoint is None:
        return None
    parts = urlsplit(endpoint)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


def _asking_with(candidate: Any, key: str) -> Any:
    return with_changed(candidate, partial(_with_key, key=key))


def _with_key(model: Any, key: str) -> Any:
    change: Callable[[Any, str], Any] | None = of_integration(model, _KEYS)
    return model if change is None else change(model, key)


def _keyed(field: str, *clients: str) -> Callable[[Any, str], Any]:
    def change(model: Any, key: str) -> Any:
        if callable(getattr(model, field)):
            return model  # it asks for its key itself
        copy = copied(model, {field: SecretStr(key)})
        built = {name: vars(model)[name] for name in clients if name in vars(model)}
        vars(copy).update({name: derived(one, api_key=key) for name, one in built.items()})
        return copy  # what it builds on first use is built with the key

    return change


def _endpoint_of(model: BaseChatModel) -> str | None:
    for name in ("root_client", "root_async_client", "client"):
        url = getattr(owner_of(getattr(model, name, None)), "base_url", None)
        if url is not None:
            return str(url)
    for name in ("anthropic_api_url", "base_url"):  # the second is Gemini's
        url = getattr(model, name, None)
        if isinstance(url, str):
            return url
    return None


def _secrets_of(model: BaseChatModel) -> str | None:
    fields = sorted(model.lc_secrets)
    values = [getattr(model, name, None) for name in fields]
    if any(callable(value) for value in values):
        return None
    keys = [value.get_secret_value() for value in values if isinstance(value, SecretStr)]
    headers = getattr(model, "default_headers", None)
    secrets = [*keys, *([repr(sorted(headers.items()))] if headers else [])]
    return "\0".join(secrets) if any(keys) else None


_KEYS: Final = {
    ("langchain_anthropic", "ChatAnthropic"): _keyed(
        "anthropic_api_key", "_client", "_async_client"
    ),
    ("langchain_groq", "ChatGroq"): _keyed("groq_api_key", "client", "async_client"),
    ("langchain_openai", "BaseChatOpenAI"): _keyed(
        "openai_api_key", "client", "async_client", "root_client", "root_async_client"
    ),
}
