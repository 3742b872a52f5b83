"""Honcho's agents as LangChain chat models.

Per wire a class of LangChain's, and a table from Honcho's names to its; a name that a wire's table
lacks is left out. LangChain's classes show all of a model in reprs and traces, so that each is
derived from.
"""

from __future__ import annotations

import json
import re
from functools import cache
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Unpack, cast
from urllib.parse import urlsplit

from honcho_fallback_honcho._extras import import_extra
from honcho_fallback_honcho._keys import NO_KEY, state_of
from honcho_fallback_honcho._loaders import LoadOptions, load_policies

if find_spec("langchain_core") is None:  # its own adapter would name an extra that is not enough
    import_extra("langchain_core", "providers")

import httpx
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import SystemMessage
from langchain_core.runnables import RunnableLambda
from langchain_core.utils.function_calling import convert_to_json_schema
from pydantic import Field

from honcho_fallback import FallbackConfigError, check_observers
from honcho_fallback_langchain import FallbackChatModel

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from ssl import SSLContext

    from langchain_core.language_models import LanguageModelInput
    from langchain_core.language_models.base import LangSmithParams
    from langchain_core.messages import BaseMessage
    from langchain_core.runnables import Runnable

    from honcho_fallback import Credential, Target
    from honcho_fallback_honcho._slots import Endpoint

_STAYS = {"set", "not needed"}  # keys that nobody refreshes
_CONNECT_SECONDS = 5.0
_SHORT_TTL_SECONDS = 300
# gpt-5 and later, o1, o3-mini and so on, also as gateways name them: openai/gpt-5.5. Not gpt-35.
_REASONS = re.compile(r"(?:^|[/:])(?:gpt-[5-9](?!\d)|o\d(?![\d\w]))", re.IGNORECASE)


def load_chat_models(
    source: Mapping[str, str] | None = None, **options: Unpack[LoadOptions]
) -> dict[str, FallbackChatModel]:
    """Read Honcho's own names and return a chat model for each of its nine agents.

    Each asks its targets in order, over LangChain's own packages of the providers; those are
    imported here and now, so that the first switch to another provider waits for nothing. What a
    provider's API lacks is left out. A target whose key is missing fails as a refused key does,
    and no request is sent.

    Args:
        source: Environment variables; default: those of the process at the time of the call.
        **options: As for ``load_policies``.

    Returns:
        Chat models by ``deriver``, ``dialectic.minimal`` to ``dialectic.max``, ``summary``,
        ``dream.deduction`` and ``dream.induction``.

    Raises:
        FallbackConfigError: A value is not one that could be used, or, with ``strict``, something
            is missing or misnamed.
        ImportError: The extra ``honcho`` or ``providers`` is not installed.
    """
    observers = options["observers"] = check_observers(options.get("observers", ()))
    return {
        agent: FallbackChatModel(
            *map(_chat_model, policy.targets),
            agent=agent,
            credentials=[*map(_credential_of, policy.targets)],
            fallback_config=policy.config,
            observers=observers,
        )
        for agent, policy in load_policies(source, **options).items()
    }


def _credential_of(target: Target) -> Credential | None:
    """Return what gives the key of each request; a model has a key that stays, or none, itself."""
    state, keeps_one = state_of(target.credential), target.client.wire == "gemini"
    if keeps_one and state == "refreshed":
        field, problem = f"credentials[{target.client.transport!r}]", "its model keeps one key"
        raise FallbackConfigError.about(field, problem, "pass an ApiKey, or use load_policies")
    return None if keeps_one or state in _STAYS else target.credential


def _chat_model(target: Target) -> BaseChatModel:
    """Build the chat model of one target; it takes nothing from the SDKs' own variables."""
    endpoint: Endpoint = target.client
    names, build = _WIRES[endpoint.wire]
    credential = target.credential
    key = str(credential.get()) if credential and state_of(credential) in _STAYS else NO_KEY
    named = {names[name]: value for name, value in target.params.items() if name in names}
    common = {"model": target.model, "api_key": key, "base_url": endpoint.base_url}
    return build(target, endpoint, {**common, **named})


def _openai_model(target: Target, endpoint: Endpoint, options: dict[str, Any]) -> BaseChatModel:
    langchain = import_extra("langchain_openai.chat_models.base", "providers")
    timeout = import_extra("openai", "providers").Timeout
    host = urlsplit(endpoint.base_url).hostname or ""
    is_openai = host == "api.openai.com" or host.endswith(".api.openai.com")  # in any region
    # OpenAI's reasoning models refuse max_tokens wherever they are asked; many other servers know
    # no other name.
    reasons = is_openai or _REASONS.search(target.model) is not None
    body = {} if endpoint.transport == "openai" else {"top_k": target.params.get("top_k")}
    body = {name: value for name, value in body.items() if value is not None}
    return _derived(_OpenAIModel, langchain.ChatOpenAI if reasons else langchain.BaseChatOpenAI)(
        **options,
        default_headers=dict(endpoint.extra_headers),
        default_query=dict(endpoint.extra_query),
        extra_body={**body, **endpoint.extra_body} or None,
        json_object=target.params.get("structured_output_mode") == "json_object",
        max_retries=0,
        openai_proxy=None,
        provider=endpoint.transport,
        stream_chunk_timeout=endpoint.timeout,
        stream_usage=True,
        timeout=timeout(endpoint.timeout, connect=_CONNECT_SECONDS),
        use_responses_api=None if is_openai else False,
    )


def _anthropic_model(target: Target, endpoint: Endpoint, options: dict[str, Any]) -> BaseChatModel:
    langchain = import_extra("langchain_anthropic", "providers")
    params = target.params
    effort = params.get("thinking_effort")
    budget = params.get("thinking_budget_tokens", 0 if effort == "none" else None)
    if effort not in {None, "none", "minimal"}:  # it knows no minimal one
        options["effort"] = effort
    if budget is not None:
        enabled = {"type": "enabled", "budget_tokens": budget}
        options["thinking"] = enabled if budget else {"type": "disabled"}
    more = {"extra_body": dict(endpoint.extra_body), "extra_query": dict(endpoint.extra_query)}
    cache_policy = params.get("cache_policy", {})
    if cache_policy.get("mode") == "prefix":  # kept for five minutes or for an hour
        is_long = (cache_policy["ttl_seconds"] or 0) > _SHORT_TTL_SECONDS
        more["cache_control"] = {"type": "ephemeral", "ttl": "1h" if is_long else "5m"}
    return _derived(_DiscreetModel, langchain.ChatAnthropic)(
        **options,
        anthropic_proxy=None,
        default_headers=dict(endpoint.extra_headers),
        max_retries=0,
        model_kwargs={name: value for name, value in more.items() if value},
        timeout=endpoint.timeout,
    )


def _gemini_model(target: Target, endpoint: Endpoint, options: dict[str, Any]) -> BaseChatModel:
    langchain = import_extra("langchain_google_genai", "providers")
    genai = import_extra("google.genai", "providers")
    effort = target.params.get("thinking_effort")
    if effort == "none":
        options.setdefault("thinking_budget", 0)
    elif effort is not None and "thinking_budget" not in options:  # it takes one of the two
        options["thinking_level"] = {"xhigh": "high", "max": "high"}.get(effort, effort)
    for kind in (genai.types.GenerateContentConfig, genai.types.GenerateContentResponse):
        kind()  # built now, which takes 0.2 s, and not when a call switches
    model = _derived(_GeminiModel, langchain.ChatGoogleGenerativeAI)(
        **{"temperature": None, **options},  # LangChain has a default of its own
        max_retries=1,  # attempts, the first one included
        missing=target.credential if state_of(target.credential) == "missing" else None,
        timeout=endpoint.timeout,
        vertexai=False,
    )
    sync, asynchronous = _gemini_transports()
    http_options = genai.types.HttpOptions(
        base_url=endpoint.base_url,
        extra_body=dict(endpoint.extra_body) or None,
        headers=dict(endpoint.extra_headers),
        httpx_client=sync,
        httpx_async_client=asynchronous,
    )
    # LangChain leaves it to the environment whether its client asks Vertex AI instead.
    client = genai.Client(vertexai=False, api_key=options["api_key"], http_options=http_options)
    return model.model_copy(update={"client": client})


@cache  # neither follows a redirect with a key
def _gemini_transports() -> tuple[httpx.Client, httpx.AsyncClient]:
    verify = httpx.create_ssl_context()  # once for all of them: it reads every certificate
    return httpx.Client(verify=verify), _LoopsClient(verify=verify)


class _LoopsClient(httpx.AsyncClient):
    """Send each request with a client of its own, which keeps no connection.

    A worker may run an event loop per task: a pool of connections belongs to one loop, and the
    loops' threads would break its lists.
    """

    def __init__(self, *, verify: SSLContext) -> None:
        super().__init__(verify=verify)
        self._verify = verify

    async def send(self, request: httpx.Request, **options: Any) -> httpx.Response:
        limits = httpx.Limits(max_keepalive_connections=0)
        client = httpx.AsyncClient(verify=self._verify, limits=limits)
        return await client.send(request, **options)


def _same(*names: str) -> dict[str, str]:
    return {name: name for name in names}


# Honcho's name of each parameter, and LangChain's.
_PENALTIES = _same("frequency_penalty", "presence_penalty", "seed")
_WIRES: dict[str, tuple[Mapping[str, str], Callable[..., BaseChatModel]]] = {
    "openai": (
        {
            **_same("temperature", "top_p"),
            **_PENALTIES,
            "thinking_effort": "reasoning_effort",
            "max_output_tokens": "max_tokens",
            "stop_sequences": "stop",
        },
        _openai_model,
    ),
    "anthropic": (
        {
            **_same("temperature", "top_p", "top_k", "stop_sequences"),
            "max_output_tokens": "max_tokens",
        },
        _anthropic_model,
    ),
    "gemini": (
        {
            **_same("temperature", "top_p", "top_k", "max_output_tokens"),
            **_PENALTIES,
            "stop_sequences": "stop",
            "thinking_budget_tokens": "thinking_budget",
        },
        _gemini_model,
    ),
}


class _DiscreetModel(BaseChatModel):
    """Show no more of a model than its name: headers and bodies may hold secrets."""

    @classmethod
    def is_lc_serializable(cls) -> bool:
        """Refuse: a trace would show what the model was built from."""
        return False

    def __repr_args__(self) -> Any:
        return [("model", self._get_ls_params().get("ls_model_name"))]


class _OpenAIModel(_DiscreetModel):
    """Ask a server of OpenAI's wire, under the name that Honcho has for it."""

    provider: str = "openai"
    json_object: bool = False  # the schema stands in the prompt: the server knows none

    @property
    def lc_secrets(self) -> dict[str, str]:
        """Name the field of the key: with the address it tells models apart."""
        return {"openai_api_key": "OPENAI_API_KEY"}

    def _get_ls_params(self, stop: list[str] | None = None, **kwargs: Any) -> LangSmithParams:
        return {**super()._get_ls_params(stop=stop, **kwargs), "ls_provider": self.provider}

    def with_structured_output(
        self, schema: Any = None, *, method: Any = None, **kwargs: Any
    ) -> Runnable[LanguageModelInput, Any]:
        in_json_mode = method is None and self.json_object
        method = "json_mode" if in_json_mode else method or "json_schema"
        answering = super().with_structured_output(schema, method=method, **kwargs)
        if not in_json_mode or schema is None:
            return answering
        wanted = json.dumps(convert_to_json_schema(schema))
        wanted = f"Answer with a JSON object of this schema: {wanted}"

        def in_prompt(value: LanguageModelInput) -> list[BaseMessage]:
            messages = self._convert_input(value).to_messages()
            # Many local servers take one system message, and only as the first.
            if messages and isinstance(messages[0], SystemMessage):
                return [SystemMessage(f"{messages[0].text}\n\n{wanted}"), *messages[1:]]
            return [SystemMessage(wanted), *messages]

        return RunnableLambda(in_prompt) | answering


class _GeminiModel(_DiscreetModel):
    """Ask Gemini: not without a key, and with a call's ``max_tokens`` under its own name."""

    missing: Any = Field(default=None, exclude=True)  # stands for the key, and refuses

    def _prepare_request(self, messages: list[BaseMessage], **kwargs: Any) -> dict[str, Any]:
        if self.missing is not None:
            self.missing.get()
        if "max_tokens" in kwargs:
            kwargs["max_output_tokens"] = kwargs.pop("max_tokens")
        langchain: Any = super()
        return cast("dict[str, Any]", langchain._prepare_request(messages, **kwargs))  # noqa: SLF001 # its own


@cache
def _derived(first: type, langchain: type) -> Callable[..., BaseChatModel]:
    """Return LangChain's class with what the first one adds."""
    derived = type(langchain.__name__, (first, langchain), {"__module__": __name__})
    return cast("Callable[..., BaseChatModel]", derived)
