"""Chat models of Gemini's wire."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import httpx
from google import genai
from google.genai.types import HttpOptions
from langchain_google_genai import ChatGoogleGenerativeAI
from pydantic import Field

from honcho_fallback_honcho._model_plan import DiscreetChatModel

if TYPE_CHECKING:
    from ssl import SSLContext

    from langchain_core.messages import BaseMessage

    from honcho_fallback_honcho._model_plan import ModelPlan

_NAMES = {
    "temperature": "temperature",
    "top_p": "top_p",
    "top_k": "top_k",
    "frequency_penalty": "frequency_penalty",
    "presence_penalty": "presence_penalty",
    "seed": "seed",
    "max_output_tokens": "max_output_tokens",
    "stop_sequences": "stop",
    "thinking_budget_tokens": "thinking_budget",
}
_LEVELS = {"xhigh": "high", "max": "high"}


class GeminiChatModel(DiscreetChatModel, ChatGoogleGenerativeAI):
    """Ask Gemini, or a server of its wire; a call's ``max_tokens`` has another name there.

    Args:
        missing: Stands for a key that is missing: LangChain's class takes none with a request.
    """

    missing: Any = Field(default=None, exclude=True)

    def _prepare_request(self, messages: list[BaseMessage], **kwargs: Any) -> dict[str, Any]:
        if self.missing is not None:
            self.missing.get()  # raises
        if "max_tokens" in kwargs:
            kwargs["max_output_tokens"] = kwargs.pop("max_tokens")
        return super()._prepare_request(messages, **kwargs)


def make_model(plan: ModelPlan) -> GeminiChatModel:
    """Build a model whose client takes nothing from the SDK's environment variables."""
    _warm_up()
    options: dict[str, Any] = {
        "model": plan.name,
        "temperature": None,  # LangChain has a default of its own
        **plan.named(_NAMES),
        "api_key": plan.key,
        "base_url": plan.endpoint.address,
        "missing": plan.missing,
        "max_retries": 1,  # attempts, the first one included
        "timeout": plan.endpoint.timeout,
        "vertexai": False,
    }
    effort = plan.params.get("thinking_effort")
    if effort == "none":
        options["thinking_budget"] = 0
    elif effort is not None:
        options["thinking_level"] = _LEVELS.get(effort, effort)
    # LangChain leaves it to the environment whether its client asks Vertex AI instead.
    model = GeminiChatModel(**options)
    return model.model_copy(update={"client": _client(plan)})


def _client(plan: ModelPlan) -> genai.Client:
    sync, asynchronous = _transports()
    options = HttpOptions(
        base_url=plan.endpoint.address,
        extra_body=dict(plan.endpoint.extra_body) or None,
        headers=plan.headers,
        httpx_client=sync,
        httpx_async_client=asynchronous,
    )
    return genai.Client(vertexai=False, api_key=plan.key, http_options=options)


@cache  # neither follows a redirect with a key
def _transports() -> tuple[httpx.Client, httpx.AsyncClient]:
    verify = httpx.create_ssl_context()  # once for all of them: it reads every certificate
    return httpx.Client(verify=verify), _AsyncClient(verify=verify)


class _AsyncClient(httpx.AsyncClient):
    """Send each request with a client of its own, which keeps no connection.

    A connection belongs to the event loop that opened it, and a worker may run one for each task.
    """

    _limits = httpx.Limits(max_keepalive_connections=0)

    def __init__(self, *, verify: SSLContext) -> None:
        super().__init__(verify=verify)
        self._verify = verify

    async def send(self, request: httpx.Request, **options: Any) -> httpx.Response:
        client = httpx.AsyncClient(verify=self._verify, limits=self._limits)
        return await client.send(request, **options)


@cache  # once per process
def _warm_up() -> None:
    """Have the SDK build its data classes now, which takes 0.2 s, and not when a call switches."""
    answer = {"candidates": [{"content": {"role": "model", "parts": [{"text": "hello"}]}}]}
    transport = httpx.MockTransport(lambda _: httpx.Response(200, json=answer))
    with httpx.Client(transport=transport) as in_memory:
        options = HttpOptions(base_url="http://in-memory", timeout=1000, httpx_client=in_memory)
        client = genai.Client(vertexai=False, api_key="none", http_options=options)
        client.models.generate_content(model="none", contents="hello", config={"seed": 1})
