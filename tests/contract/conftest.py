"""The real SDKs behind a policy, in the four ways to ask."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest
from anthropic import Anthropic, AsyncAnthropic
from anthropic.types import Message
from openai import AsyncOpenAI, OpenAI
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from openai.types.responses import Response

from honcho_fallback import FallbackPolicy, Target

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from honcho_fallback import Attempt, CallRecord

MODELS = {"openai": "gpt-5.5", "anthropic": "claude-sonnet-5", "local": "tiny-local"}
PARAMS = {"local": {"max_tokens": 16}}  # it would talk on and on
CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}


def pytest_configure(config: pytest.Config) -> None:
    """Declare the marker that says what is being recorded."""
    config.addinivalue_line(
        "markers",
        "upstream(*replies): what each provider says, in order, while the cassette is recorded "
        "(see recording/replies.py); also the cassette's name",
    )


@pytest.fixture
def default_cassette_name(request: pytest.FixtureRequest) -> str:
    """Name a cassette by what was said in it, so that sync and async share one."""
    marker = request.node.get_closest_marker("upstream")
    return "-".join(marker.args) if marker else str(request.node.name)


def _messages(text: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": text}]


SAY = _messages("Answer with the one word: harbor")
WEATHER = _messages("What is the weather in Oslo? Use the tool.")


@dataclass
class Asks:
    """Say how each provider is asked; the same for sync and async clients.

    The clients return an answer or an awaitable of one, as the policy's methods want it.
    """

    asked: list[str] = field(default_factory=list)

    def _client(self, attempt: Attempt) -> Any:
        self.asked.append(attempt.target.name)
        return attempt.target.client

    def answer(self, attempt: Attempt) -> Any:
        """Ask for a word."""
        client, model = self._client(attempt), attempt.target.model
        if attempt.target.provider == "anthropic":
            params = {"max_tokens": 16, **attempt.target.params}
            return client.messages.create(model=model, messages=SAY, **params)
        return client.chat.completions.create(model=model, messages=SAY, **attempt.target.params)

    def stream(self, attempt: Attempt) -> Any:
        """Ask for a word, chunk by chunk."""
        client, model = self._client(attempt), attempt.target.model
        if attempt.target.provider == "anthropic":
            return client.messages.create(model=model, messages=SAY, max_tokens=16, stream=True)
        options = {"include_usage": True}
        params = attempt.target.params
        return client.chat.completions.create(
            model=model, messages=SAY, stream=True, stream_options=options, **params
        )

    def tool(self, attempt: Attempt) -> Any:
        """Ask for a tool call."""
        client, model = self._client(attempt), attempt.target.model
        if attempt.target.provider == "anthropic":
            tool = {"name": "get_weather", "input_schema": CITY}
            return client.messages.create(
                model=model, messages=WEATHER, max_tokens=64, tools=[tool]
            )
        function = {"name": "get_weather", "parameters": CITY}
        tools = [{"type": "function", "function": function}]
        return client.chat.completions.create(model=model, messages=WEATHER, tools=tools)

    def responses(self, attempt: Attempt) -> Any:
        """Ask OpenAI's Responses API for a word; others as ever."""
        if attempt.target.provider != "openai":
            return self.answer(attempt)
        client, model = self._client(attempt), attempt.target.model
        return client.responses.create(model=model, input=SAY)


@dataclass
class Sdk:
    """Hold one set of clients, sync or async, and drive a policy with it."""

    clients: dict[str, Any]
    is_async: bool
    asks: Asks = field(default_factory=Asks)
    record: CallRecord | None = None

    def target(self, provider: str, model: str | None = None, **options: Any) -> Target:
        """Make a target with the client of its provider."""
        model = model or MODELS[provider]
        options = {"params": PARAMS.get(provider, {}), **options}
        return Target(model, provider=provider, client=self.clients[provider], **options)

    def policy(self, *providers: str) -> FallbackPolicy:
        """Make a policy over plain targets."""
        return FallbackPolicy([self.target(provider) for provider in providers])

    async def call(self, policy: FallbackPolicy, ask: Callable[[Attempt], Any]) -> Any:
        """Ask for an answer and keep the record, however it ends."""
        run = policy.start()
        try:
            if self.is_async:
                return await policy.acall(ask, run=run)
            return policy.call(ask, run=run)
        finally:
            self.record = run.record

    async def chunks(self, policy: FallbackPolicy) -> list[Any]:
        """Ask for a stream, read it to its end and keep the record, however it ends."""
        run = policy.start()
        ask = self.asks.stream
        try:
            if self.is_async:
                return [chunk async for chunk in policy.astream(ask, has_content=text_of, run=run)]
            return list(policy.stream(ask, has_content=text_of, run=run))
        finally:
            self.record = run.record


def text_of(answer: Any) -> str:
    """Return the text of an answer or of a chunk, whoever gave it."""
    if isinstance(answer, Response):
        return answer.output_text
    if isinstance(answer, ChatCompletion):
        return answer.choices[0].message.content or ""
    if isinstance(answer, ChatCompletionChunk):
        return "".join(choice.delta.content or "" for choice in answer.choices)
    if isinstance(answer, Message):
        return "".join(block.text for block in answer.content if block.type == "text")
    return getattr(getattr(answer, "delta", None), "text", "")


@pytest.fixture
def text() -> Callable[[Any], str]:
    """Return the function that reads the text of any answer."""
    return text_of


@pytest.fixture(params=["sync", "async"])
async def sdk(request: pytest.FixtureRequest) -> AsyncIterator[Sdk]:
    """Return real clients at the providers' real addresses; keys matter while recording only."""
    is_async = request.param == "async"
    openai, anthropic = (AsyncOpenAI, AsyncAnthropic) if is_async else (OpenAI, Anthropic)
    openai_key, anthropic_key = (_key(request, name) for name in ("openai", "anthropic"))
    clients: dict[str, Any] = {
        "openai": openai(api_key=openai_key, base_url="https://api.openai.com/v1", max_retries=0),
        "anthropic": anthropic(
            api_key=anthropic_key, base_url="https://api.anthropic.com", max_retries=0
        ),
        "local": openai(api_key="none", base_url="http://localhost:1234/v1", max_retries=0),
    }
    yield Sdk(clients, is_async)
    for client in clients.values():
        if is_async:
            await client.close()
        else:
            client.close()


def _key(request: pytest.FixtureRequest, provider: str) -> str:
    marker = request.node.get_closest_marker("upstream")
    if marker and f"{provider}_bad_key" in marker.args:
        return "not-a-key"
    return os.environ.get(f"{provider.upper()}_API_KEY") or "none"
