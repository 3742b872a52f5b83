"""The chat models of LangChain's integrations, as a fallback chain has to ask them.

Three things are changed on copies, never on the user's object: an SDK must not ask a dead provider
again by itself, it must give up when the attempt's time is over (a thread cannot be interrupted),
and it must take the key that a credential gives for this attempt (a keyword or a header of the
call would stand in its traces). How that is done for which integration stands in one table,
``INTEGRATIONS``, at the end; models are found in it by distribution and class, so that no
provider's package is imported, and inside whatever LangChain composed of them.
"""

from __future__ import annotations

import inspect
import logging
from contextvars import ContextVar
from functools import cache, cached_property, partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeGuard, TypeVar, cast
from urllib.parse import urlsplit, urlunsplit

from langchain_core.language_models import BaseChatModel
from langchain_core.runnables import (
    Runnable,
    RunnableParallel,
    RunnableSequence,
    RunnableSerializable,
)
from langchain_core.runnables.base import RunnableBindingBase
from langchain_core.runnables.configurable import DynamicRunnable
from pydantic import SecretStr

from honcho_fallback import ApiKey, FallbackConfigError, Target
from honcho_fallback.providers import owner_of, with_timeout, without_retries
from honcho_fallback.providers import with_key as with_key_of_sdk

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from pydantic import BaseModel

    from honcho_fallback import Attempt

PartT = TypeVar("PartT")
CandidateT = TypeVar("CandidateT", bound=Runnable[Any, Any])

logger = logging.getLogger("honcho_fallback")


class Integration(NamedTuple):
    """Say how a copy of an integration's chat model is made that does as a chain needs it."""

    # The fields of the clients that a thread asks by; in a task an attempt is interrupted.
    sync_clients: tuple[str, ...] = ()
    async_clients: tuple[str, ...] = ()
    key: str | None = None  # the field of the key that they are built with
    # The fields of one that sends one request per call; of model_kwargs, the entries. None change
    # where how often its deployments or models are asked is a policy of its own.
    asks_once: Mapping[str, Any] = MappingProxyType({"max_retries": 0})
    # The message format of its answers, as they carry it in ``model_provider``; models of others
    # that are built on it write it, too.
    writes: str | None = None


def integration_of(model: Any) -> Integration:
    classes = ((base.__module__.partition(".")[0], base.__name__) for base in type(model).__mro__)
    return next((INTEGRATIONS[one] for one in classes if one in INTEGRATIONS), _UNKNOWN)


# Retries.


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
    return with_changed(candidate, _without_retries)


def _without_retries(model: Any) -> Any:
    integration = integration_of(model)
    if integration is not _UNKNOWN:
        fields = {**integration.asks_once}
        if "model_kwargs" in fields:
            kwargs = {**model.model_kwargs, **fields["model_kwargs"]}
            kwargs.pop("retry_policy", None)
            fields["model_kwargs"] = kwargs
        # Clients that are not built yet read the field on first use.
        return _changed(model, fields, _where_known(without_retries))
    if any(getattr(model, name, 0) != 0 for name in ("max_retries", "num_retries", "retries")):
        _warn_of_unknown(f"{type(model).__module__}.{type(model).__qualname__}")
    return model


@cache  # one warning per class and process
def _warn_of_unknown(class_name: str) -> None:
    logger.warning(
        "%s may retry by itself before the fallback is asked, and how to turn that off is not "
        'known here: set max_retries=0 on it, or pass sdk_retries="keep"',
        class_name,
    )


def _where_known(derive: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda client: client if owner_of(client) is None else derive(client)


def without_thinking(candidate: CandidateT) -> CandidateT:
    """Return a candidate that does not think: over Anthropic's field no keyword has a say."""

    def turn_off(model: Any) -> Any:
        thinks = getattr(model, "thinking", None) is not None
        return model.model_copy(update={"thinking": None}) if thinks else model

    return with_changed(candidate, turn_off)


def with_stream_usage(candidate: CandidateT) -> CandidateT:
    """Return a candidate whose streams say what they cost, unless the user has chosen.

    LangChain leaves that off for OpenAI's protocol at any other address.
    """
    name = "stream_usage"

    def turn_on(model: Any) -> Any:
        fields = type(model).model_fields
        if name not in fields or name in model.model_fields_set:
            return model
        return model.model_copy(update={name: True})

    return with_changed(candidate, turn_on)


# Timeouts: the clients of copies get one that looks, request by request, at how much time the
# attempt around it has. A keyword per call would reach no model inside a chain, and would be part
# of a cache's key.


# The attempts that a request is made in, the outermost first: a candidate may be a chain.
ATTEMPTS: Final[ContextVar[tuple[Attempt, ...]]] = ContextVar(
    "honcho_fallback_langchain", default=()
)


def within_attempts(candidate: CandidateT) -> CandidateT:
    """Return a candidate whose requests end with the attempt, or the same object if it does.

    A timeout of the model's own stays where it is shorter; one that is given with a call stays as
    it is.
    """
    return with_changed(candidate, _bounded)


def _bounded(model: Any) -> Any:
    sync_clients = integration_of(model).sync_clients
    if not sync_clients:
        return model
    copy = model.model_copy()  # its client may be built right now, and not on the user's object
    for name in sync_clients:
        getattr(copy, name)
    timed = _where_known(partial(with_timeout, attempts=ATTEMPTS.get))
    bounded = _changed(copy, {}, timed, sync_clients)
    return model if bounded is copy else bounded


# Keys: compared without showing them, and replaced for one attempt.


def check_takes_keys(candidate: Runnable[Any, Any], position: int) -> None:
    """Refuse a credential for a model that cannot be given its key."""

    def check(model: Any) -> Any:
        if integration_of(model).key is None:
            raise FallbackConfigError.about(
                f"credentials[{position}]",
                f"how a {type(model).__name__} takes another key is not known here",
                "leave it out, or pass None in its place",
            )
        return model

    with_changed(candidate, check)


def with_key(target: Target, key: Any) -> Any:
    """Return a target's candidate, asking with a key of its credential."""
    if inspect.isawaitable(key):
        getattr(key, "close", bool)()  # a coroutine that nobody will await
        raise FallbackConfigError.about(
            "credentials", f"that of {target.name} is async", "use ainvoke or astream"
        )
    return with_changed(target.client, partial(_with_key, key=key))


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


def _with_key(model: Any, key: str) -> Any:
    field = integration_of(model).key
    if field is None or callable(getattr(model, field)):
        return model  # it asks for its key itself
    # What it builds on first use is built with the key.
    return _changed(model, {field: SecretStr(key)}, partial(with_key_of_sdk, key=key))


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


# Models inside of runnables, and clients inside of models.

# Fields of a binding that contain no candidate.
_BINDING_FIELDS: Final = {"config", "config_factories", "kwargs"}


def chat_model_of(candidate: object) -> BaseChatModel | None:
    """Find the chat model under bindings and retries, or None."""
    while isinstance(candidate, RunnableBindingBase | DynamicRunnable):
        candidate = (
            candidate.bound if isinstance(candidate, RunnableBindingBase) else candidate.default
        )
    return candidate if isinstance(candidate, BaseChatModel) else None


def first_chat_model(candidate: object) -> BaseChatModel | None:
    """Find the first chat model that a candidate asks, or None."""
    while isinstance(candidate, RunnableBindingBase):
        candidate = candidate.bound
    # A map of one is how structured output keeps its raw message.
    if isinstance(candidate, RunnableParallel) and len(candidate.steps__) == 1:
        (candidate,) = candidate.steps__.values()
        return first_chat_model(candidate)
    if isinstance(candidate, RunnableSequence):
        models = (first_chat_model(step) for step in candidate.steps)
        return next((model for model in models if model is not None), None)
    return chat_model_of(candidate)


def with_changed(part: PartT, change: Callable[[Any], Any]) -> PartT:
    """Return a runnable over other chat models, or the same object where none was changed."""
    changed, given = part, cast("Any", part)
    kind: type[Any] = part.__class__
    if issubclass(kind, BaseChatModel):
        changed = change(part)
    elif _is_composite(kind):
        names = kind.model_fields.keys() - _BINDING_FIELDS
        fields = {name: getattr(part, name) for name in names}
        others = with_changed(fields, change)
        changed = part if others is fields else copied(part, others)
    elif kind in {list, tuple}:
        items: Any = kind(with_changed(item, change) for item in given)
        changed = items if differ(items, given) else part
    elif kind is dict:
        entries: Any = {key: with_changed(value, change) for key, value in given.items()}
        changed = entries if differ(entries.values(), given.values()) else part
    return changed


def differ(new: Iterable[Any], old: Iterable[Any]) -> bool:
    return any(one is not other for one, other in zip(new, old, strict=True))


def _changed(
    model: Any,
    fields: dict[str, Any],
    derive: Callable[[Any], Any],
    clients: Iterable[str] | None = None,
) -> Any:
    """Return a model with other fields, and clients derived of those that it has built.

    It is the same object where nothing changes.
    """
    integration = integration_of(model)
    names = integration.sync_clients + integration.async_clients if clients is None else clients
    built = {name: vars(model)[name] for name in names if name in vars(model)}
    derived = {name: derive(client) for name, client in built.items()}
    is_told = all(getattr(model, name) == value for name, value in fields.items())
    if is_told and not differ(derived.values(), built.values()):
        return model
    copy = copied(model, fields) if fields else model.model_copy()
    vars(copy).update(derived)
    return copy


def copied(model: Any, changes: dict[str, Any]) -> Any:
    """Copy a model with other field values, and without what it computed from the old ones."""
    copy: BaseModel = model.model_copy(update=changes)
    for name in list(vars(copy)):
        if isinstance(getattr(type(copy), name, None), cached_property):
            del vars(copy)[name]
    return copy


def _is_composite(kind: type) -> TypeGuard[type[RunnableSerializable[Any, Any]]]:
    """Tell LangChain's ways to compose runnables from tools, retrievers and users' classes."""
    return issubclass(kind, RunnableSerializable) and any(
        base.__module__.startswith("langchain_core.runnables.")
        and base not in {Runnable, RunnableSerializable}
        for base in kind.__mro__
    )


_UNKNOWN: Final = Integration()
# The field counts the first request, too, and is read on every call.
_ONE_ATTEMPT: Final = {"max_retries": 1}
INTEGRATIONS: Final[Mapping[tuple[str, str], Integration]] = {
    ("honcho_fallback_langchain", "FallbackChatModel"): Integration(asks_once={}),
    ("langchain_anthropic", "ChatAnthropic"): Integration(
        ("_client",), ("_async_client",), "anthropic_api_key", writes="anthropic"
    ),
    ("langchain_google_genai", "ChatGoogleGenerativeAI"): Integration(
        asks_once=_ONE_ATTEMPT, writes="google"
    ),
    ("langchain_groq", "ChatGroq"): Integration(
        ("client",), ("async_client",), "groq_api_key", writes="groq"
    ),
    ("langchain_litellm", "ChatLiteLLM"): Integration(
        # LiteLLM is told with each request; the field counts LangChain's attempts around it.
        asks_once={**_ONE_ATTEMPT, "model_kwargs": {"max_retries": 0, "num_retries": 0}},
        writes="litellm",
    ),
    ("langchain_litellm", "ChatLiteLLMRouter"): Integration(asks_once={}, writes="litellm"),
    ("langchain_mistralai", "ChatMistralAI"): Integration(
        asks_once=_ONE_ATTEMPT, writes="mistralai"
    ),
    ("langchain_openai", "BaseChatOpenAI"): Integration(
        ("client", "root_client"),
        ("async_client", "root_async_client"),
        "openai_api_key",
        writes="openai",
    ),
}
