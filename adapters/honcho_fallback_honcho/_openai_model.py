"""Chat models of OpenAI's wire, which most other servers speak as well."""

from __future__ import annotations

import json
import re
from functools import cache
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import openai
from langchain_core.messages import SystemMessage
from langchain_core.runnables import Runnable, RunnableLambda
from langchain_core.utils.function_calling import convert_to_json_schema
from langchain_openai import ChatOpenAI
from langchain_openai.chat_models.base import BaseChatOpenAI

from honcho_fallback_honcho._model_plan import DiscreetChatModel

if TYPE_CHECKING:
    from langchain_core.language_models import LanguageModelInput
    from langchain_core.language_models.base import LangSmithParams
    from langchain_core.messages import BaseMessage

    from honcho_fallback_honcho._endpoint import Endpoint
    from honcho_fallback_honcho._model_plan import ModelPlan

_NAMES = {
    "temperature": "temperature",
    "top_p": "top_p",
    "frequency_penalty": "frequency_penalty",
    "presence_penalty": "presence_penalty",
    "seed": "seed",
    "thinking_effort": "reasoning_effort",
    "max_output_tokens": "max_tokens",
    "stop_sequences": "stop",
}
_CONNECT_SECONDS = 5.0
# gpt-5 and later, o1, o3-mini and so on, also as gateways name them: openai/gpt-5.5. Not gpt-35.
_REASONS = re.compile(r"(?:^|[/:])(?:gpt-[5-9](?!\d)|o\d(?![\d\w]))", re.IGNORECASE)


class CompatibleChatModel(DiscreetChatModel, BaseChatOpenAI):
    """Ask a server of OpenAI's wire that knows ``max_tokens``.

    Args:
        provider: What records and traces call it.
        json_object: Whether structured output is asked for without a schema, which stands in the
            prompt instead.
    """

    provider: str = "openai"
    json_object: bool = False

    @property
    def lc_secrets(self) -> dict[str, str]:
        """Name the field of the key: with the address it tells models apart."""
        return {"openai_api_key": "OPENAI_API_KEY"}

    def with_structured_output(
        self, schema: Any = None, *, method: Any = None, **kwargs: Any
    ) -> Runnable[LanguageModelInput, Any]:
        """Return what answers in a schema.

        Args:
            schema: As for ``ChatOpenAI``.
            method: As there; the default is the one that was configured.
            **kwargs: As there.
        """
        in_json_mode = method is None and self.json_object
        method = "json_mode" if in_json_mode else method or "json_schema"
        model: Any = super()
        answering: Runnable[Any, Any] = model.with_structured_output(
            schema, method=method, **kwargs
        )
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

    def _get_ls_params(self, stop: list[str] | None = None, **kwargs: Any) -> LangSmithParams:
        params = super()._get_ls_params(stop=stop, **kwargs)
        return {**params, "ls_provider": self.provider}


class OpenAIChatModel(CompatibleChatModel, ChatOpenAI):
    """Ask a model that needs ``max_completion_tokens``."""


def make_model(plan: ModelPlan) -> CompatibleChatModel:
    """Build a model that takes neither key nor address from the SDK's environment variables."""
    endpoint = plan.endpoint
    is_openai = _is_at_openai(endpoint)
    body = {name: plan.params[name] for name in ("top_k",) if name in plan.params}
    body |= endpoint.extra_body
    kind = (
        OpenAIChatModel if _needs_completion_tokens(plan.name, endpoint) else CompatibleChatModel
    )
    sync, asynchronous = _transports()
    options: dict[str, Any] = {
        "model": plan.name,
        **plan.named(_NAMES),
        "api_key": plan.key,
        "base_url": endpoint.address,
        "default_headers": plan.headers,
        "default_query": dict(endpoint.extra_query),
        "extra_body": body or None,
        "http_async_client": asynchronous,
        "http_client": sync,
        "json_object": plan.params.get("structured_output_mode") == "json_object",
        "max_retries": 0,
        "openai_proxy": None,
        "provider": endpoint.transport,
        "stream_chunk_timeout": endpoint.timeout,
        "stream_usage": True,
        "timeout": openai.Timeout(endpoint.timeout, connect=_CONNECT_SECONDS),
        "use_responses_api": None if is_openai else False,
    }
    return kind(**options)


@cache  # one pool for all; neither follows a redirect with a key
def _transports() -> tuple[openai.DefaultHttpxClient, openai.DefaultAsyncHttpxClient]:
    return (
        openai.DefaultHttpxClient(follow_redirects=False),
        openai.DefaultAsyncHttpxClient(follow_redirects=False),
    )


def _needs_completion_tokens(model: str, endpoint: Endpoint) -> bool:
    """Tell whether a model of OpenAI's wire takes ``max_completion_tokens`` for its limit.

    OpenAI's reasoning models refuse ``max_tokens`` wherever they are asked; many other servers
    know no other name.
    """
    return _is_at_openai(endpoint) or _REASONS.search(model) is not None


def _is_at_openai(endpoint: Endpoint) -> bool:
    """Tell whether an endpoint is OpenAI's own, in whatever region."""
    host = urlsplit(endpoint.base_url).hostname or ""
    return host == "api.openai.com" or host.endswith(".api.openai.com")
