"""Chat models of Gemini's wire."""

from __future__ import annotations

from asyncio import AbstractEventLoop, get_running_loop
from contextvars import ContextVar
from functools import cache
from typing import TYPE_CHECKING, Any
from urllib.request import getproxies, proxy_bypass

import httpx
from google import genai
from google.genai.types import HttpOptions
from langchain_google_genai import ChatGoogleGenerativeAI

from honcho_fallback_honcho._model_plan import DiscreetChatModel

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from langchain_core.messages import BaseMessage
    from langchain_core.outputs import ChatGenerationChunk

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
_responses: ContextVar[list[httpx.Response] | None] = ContextVar("responses", default=None)


class GeminiChatModel(DiscreetChatModel, ChatGoogleGenerativeAI):
    """Ask Gemini, or a server of its wire; a call's ``max_tokens`` has another name there."""

    def _prepare_request(self, messages: list[BaseMessage], **kwargs: Any) -> dict[str, Any]:
        if "max_tokens" in kwargs:
            kwargs["max_output_tokens"] = kwargs.pop("max_tokens")
        return super()._prepare_request(messages, **kwargs)

    async def _astream(self, *args: Any, **kwargs: Any) -> AsyncIterator[ChatGenerationChunk]:
        # The SDK leaves the response of an abandoned stream open until garbage is collected.
        responses: list[httpx.Response] = []
        chunks = super()._astream(*args, **kwargs)
        try:
            # Between two chunks the context is the reader's.
            token = _responses.set(responses)
            try:
                first = await anext(chunks, None)
            finally:
                _responses.reset(token)
            if first is not None:
                yield first
                async for chunk in chunks:
                    yield chunk
        finally:
            for response in responses:
                await response.aclose()


def make_model(plan: ModelPlan) -> GeminiChatModel:
    """Build a model whose client takes nothing from the SDK's environment variables."""
    _warm_up()
    options: dict[str, Any] = {
        "model": plan.name,
        "temperature": None,  # LangChain has a default of its own
        **plan.named(_NAMES),
        "api_key": plan.key,
        "base_url": plan.endpoint.address,
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
    transport, async_transport = _transports()
    options = HttpOptions(
        base_url=plan.endpoint.address,
        extra_body=dict(plan.endpoint.extra_body) or None,
        headers=plan.headers,
        httpx_client=transport,
        httpx_async_client=async_transport,
    )
    return genai.Client(vertexai=False, api_key=plan.key, http_options=options)


@cache  # one pool for all, as LangChain's clients of the other SDKs share theirs
def _transports() -> tuple[httpx.Client, httpx.AsyncClient]:
    asynchronous = httpx.AsyncClient(
        transport=_TransportOfLoop(), event_hooks={"response": [_note]}
    )
    return httpx.Client(), asynchronous


class _TransportOfLoop(httpx.AsyncBaseTransport):
    """Send over connections of the running event loop: those of a closed one are dead.

    The proxies of the environment are read here, since a client reads them only without a
    transport.
    """

    def __init__(self) -> None:
        self._context = httpx.create_ssl_context()
        self._by_loop: dict[AbstractEventLoop, dict[str | None, httpx.AsyncHTTPTransport]] = {}

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        host, proxies = request.url.host, getproxies()
        proxy = proxies.get(request.url.scheme, proxies.get("all"))
        if proxy is not None and proxy_bypass(host):
            proxy = None
        for loop in [one for one in list(self._by_loop) if one.is_closed()]:
            self._by_loop.pop(loop, None)
        transports = self._by_loop.setdefault(get_running_loop(), {})
        if proxy not in transports:
            transports[proxy] = httpx.AsyncHTTPTransport(verify=self._context, proxy=proxy)
        return await transports[proxy].handle_async_request(request)


async def _note(response: httpx.Response) -> None:
    responses = _responses.get()
    if responses is not None:
        responses.append(response)


@cache  # once per process
def _warm_up() -> None:
    """Have the SDK build its data classes now, which takes 0.2 s, and not when a call switches."""
    answer = {"candidates": [{"content": {"role": "model", "parts": [{"text": "hello"}]}}]}
    transport = httpx.MockTransport(lambda _: httpx.Response(200, json=answer))
    with httpx.Client(transport=transport) as in_memory:
        options = HttpOptions(base_url="http://in-memory", timeout=1000, httpx_client=in_memory)
        client = genai.Client(vertexai=False, api_key="none", http_options=options)
        client.models.generate_content(model="none", contents="hello", config={"seed": 1})
