"""LangChain's own chat models behind a FallbackChatModel, against what the providers send.

Their SDKs keep their default retries: a second request to a failing primary would be refused by
the cassette, and the test fail.
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any, Literal, NamedTuple
from urllib.parse import urlsplit

import anthropic
import openai
import pytest
from langchain_anthropic import ChatAnthropic
from langchain_core.messages import AIMessageChunk
from langchain_openai import ChatOpenAI
from pydantic import BaseModel, SecretStr

from honcho_fallback import FallbackExhausted
from honcho_fallback_langchain import FallbackChatModel

if TYPE_CHECKING:
    from collections.abc import Callable

    from langchain_core.language_models import BaseChatModel
    from langchain_core.messages import AIMessage
    from langchain_core.runnables import Runnable
    from vcr.cassette import Cassette

# LangChain's integrations share asynchronous clients between models, so they share a loop here.
pytestmark = [pytest.mark.vcr, pytest.mark.asyncio(loop_scope="module")]

SAY = "Answer with the one word: harbor"
WEATHER = "What is the weather in Oslo? Use the tool."
TARGETS = {
    "openai": "openai/gpt-5.5",
    "anthropic": "anthropic/claude-sonnet-5",
    "local": "openai/tiny-local",
}
HOSTS = {"openai": "api.openai.com", "anthropic": "api.anthropic.com", "local": "localhost:1234"}


class Weather(BaseModel):
    """Name the city whose weather is asked for."""

    city: Literal["Oslo", "Lima"]


def get_weather(city: Literal["Oslo", "Lima"]) -> str:
    """Tell the weather of a city."""
    return city


def model_of(provider: str, *, max_tokens: int = 64, api_key: str | None = None) -> BaseChatModel:
    """Return the integration's own model, at the provider's real address."""
    key = SecretStr(api_key or os.environ.get(f"{provider.upper()}_API_KEY") or "none")
    if provider == "anthropic":
        return ChatAnthropic(
            model="claude-sonnet-5",
            max_tokens=max_tokens,
            api_key=key,
            base_url="https://api.anthropic.com",
            timeout=30,
            stop=None,
        )
    at = {"openai": "https://api.openai.com/v1", "local": "http://localhost:1234/v1"}[provider]
    model = {"openai": "gpt-5.5", "local": "tiny-local"}[provider]
    return ChatOpenAI(
        model=model,
        max_completion_tokens=max_tokens,
        api_key=key,
        base_url=at,
        stream_usage=True,
        timeout=30,
    )


class Answer(NamedTuple):
    """Hold what came back, and the message that carries it."""

    message: AIMessage
    parsed: Any = None
    chunks: tuple[AIMessageChunk, ...] = ()


async def invoke(runnable: Runnable[Any, Any], asked: str, *, sync: bool) -> Any:
    """Ask for a whole answer."""
    return runnable.invoke(asked) if sync else await runnable.ainvoke(asked)


class Shape(NamedTuple):
    """Say how one sort of answer is asked for, what it is called by provider, and what is sent."""

    name: str
    replies: dict[str, str]
    ask: Callable[[FallbackChatModel, bool], Any]
    check: Callable[[Answer, str], None]
    sends: Callable[[str, dict[str, Any]], bool]

    def __repr__(self) -> str:
        return self.name


async def _ask_text(model: FallbackChatModel, sync: bool) -> Answer:
    return Answer(await invoke(model, SAY, sync=sync))


async def _ask_tools(model: FallbackChatModel, sync: bool) -> Answer:
    bound = model.bind_tools([get_weather], tool_choice="any")
    return Answer(await invoke(bound, WEATHER, sync=sync))


async def _ask_structured(model: FallbackChatModel, sync: bool) -> Answer:
    structured = model.with_structured_output(Weather, include_raw=True)
    told = await invoke(structured, WEATHER, sync=sync)
    assert told["parsing_error"] is None
    return Answer(told["raw"], told["parsed"])


async def _ask_stream(model: FallbackChatModel, sync: bool) -> Answer:
    chunks: list[Any] = (
        list(model.stream(SAY)) if sync else [chunk async for chunk in model.astream(SAY)]
    )
    whole = chunks[0]
    for chunk in chunks[1:]:
        whole += chunk
    return Answer(whole, chunks=tuple(chunks))


def _says_a_word(answer: Answer, provider: str) -> None:
    text = str(answer.message.text)
    assert text if provider == "local" else "harbor" in text.lower()
    assert answer.message.usage_metadata is not None
    assert answer.message.usage_metadata["output_tokens"] > 0


def _calls_the_tool(answer: Answer, provider: str) -> None:
    (call, *others) = answer.message.tool_calls
    assert call["name"] == "get_weather"
    assert call["args"] in ({"city": "Oslo"}, {"city": "Lima"})
    assert call["id"]
    assert provider == "local" or (call["args"]["city"] == "Oslo" and not others)


def _gives_the_schema(answer: Answer, provider: str) -> None:
    assert isinstance(answer.parsed, Weather)
    assert provider == "local" or answer.parsed.city == "Oslo"


def _streams_a_word(answer: Answer, provider: str) -> None:
    _says_a_word(answer, provider)
    assert all(isinstance(chunk, AIMessageChunk) for chunk in answer.chunks)
    assert len({chunk.id for chunk in answer.chunks}) == 1
    marked = ["fallback" in chunk.response_metadata for chunk in answer.chunks]
    assert marked == [False] * (len(marked) - 1) + [True]


def _offers_the_tool(provider: str, body: dict[str, Any]) -> bool:
    (tool,) = body["tools"]
    if provider == "anthropic":
        return (tool["name"], body["tool_choice"]["type"]) == ("get_weather", "any")
    return (tool["function"]["name"], body["tool_choice"]) == ("get_weather", "required")


def _asks_for_the_schema(provider: str, body: dict[str, Any]) -> bool:
    if provider == "anthropic":
        forced: bool = body["tool_choice"] == {"type": "tool", "name": "Weather"}
        return forced
    return "tools" not in body and bool(
        body["response_format"]["json_schema"]["name"] == "Weather"
    )


TEXT = Shape(
    "text",
    {"openai": "openai_chat", "anthropic": "anthropic_message", "local": "local_chat"},
    _ask_text,
    _says_a_word,
    lambda _, body: not body.get("stream") and "tools" not in body,
)
TOOLS = Shape(
    "tools",
    {
        "openai": "openai_tool_call",
        "anthropic": "anthropic_tool_use",
        "local": "local_tool_call",
    },
    _ask_tools,
    _calls_the_tool,
    _offers_the_tool,
)
STRUCTURED = Shape(
    "structured",
    {
        "openai": "openai_structured",
        "anthropic": "anthropic_structured",
        "local": "local_structured",
    },
    _ask_structured,
    _gives_the_schema,
    _asks_for_the_schema,
)
STREAM = Shape(
    "stream",
    {"openai": "openai_stream", "anthropic": "anthropic_stream", "local": "local_stream"},
    _ask_stream,
    _streams_a_word,
    lambda _, body: body["stream"] is True,
)
SHAPES = (TEXT, TOOLS, STRUCTURED, STREAM)


class Failing(NamedTuple):
    """Say what a primary answers, what it must be taken for, and who stands in."""

    says: str
    status: int
    kind: str
    error: str
    fallback: str

    @property
    def provider(self) -> str:
        """Return whose answer it is."""
        return self.says.partition("_")[0]


FAILING = (
    Failing("openai_rate_limit", 429, "rate_limit", "OpenAIRateLimitError", "anthropic"),
    Failing("openai_overloaded", 503, "overloaded", "OpenAIAPIError", "anthropic"),
    Failing("openai_overloaded", 503, "overloaded", "OpenAIAPIError", "local"),
    Failing("anthropic_rate_limit", 429, "rate_limit", "AnthropicRateLimitError", "openai"),
    Failing("anthropic_overloaded", 529, "overloaded", "AnthropicOverloadedError", "openai"),
    Failing("anthropic_unavailable", 503, "overloaded", "AnthropicAPIError", "openai"),
)


def told(shape: Shape, *replies: str, values: tuple[Any, ...] = ()) -> Any:
    """Make one case, and say what is recorded for it."""
    name = "-".join([shape.name, *replies])
    return pytest.param(shape, *values, marks=pytest.mark.upstream(*replies), id=name)


@pytest.fixture
def default_cassette_name(request: pytest.FixtureRequest) -> str:
    """Name a cassette by what was asked and what was said: an error is the same to all shapes."""
    marker = request.node.get_closest_marker("upstream")
    shape = request.node.callspec.params.get("shape")
    return "-".join([*([shape.name] if shape else []), *marker.args])


@pytest.fixture(params=[True, False], ids=["sync", "async"])
def sync(request: pytest.FixtureRequest) -> bool:
    """Ask in both ways; both are to send the same."""
    return bool(request.param)


def assert_asked(cassette: Cassette, shape: Shape, *providers: str) -> None:
    """Compare the requests, each of which the guards know to be played, with what is expected."""
    seen = [urlsplit(request.uri).netloc for request in cassette.requests]
    assert seen == [HOSTS[provider] for provider in providers]
    bodies = [json.loads(request.body) for request in cassette.requests]
    asked = [TARGETS[provider].partition("/")[2] for provider in providers]
    assert [body["model"] for body in bodies] == asked
    assert all(map(shape.sends, providers, bodies))


def assert_told(message: AIMessage, answering: str, *failed: Failing) -> None:
    """Compare what the answer says of its attempts with what went on, figures of time aside."""
    fallback = message.response_metadata["fallback"]
    assert fallback["is_fallback"] is bool(failed)
    assert fallback["model"] == TARGETS[answering].partition("/")[2]
    *before, last = fallback["attempts"]
    facts = [(one["target"], one["status"], one["kind"], one["error"]) for one in before]
    assert facts == [(TARGETS[one.provider], one.status, one.kind, one.error) for one in failed]
    assert last["target"] == TARGETS[answering]


LATE = Failing("anthropic_late_stream_error", 200, "overloaded", "APIStatusError", "openai")
CHAIN = (
    Failing("openai_quota", 429, "quota", "OpenAIRateLimitError", "anthropic"),
    Failing("anthropic_overloaded", 529, "overloaded", "AnthropicOverloadedError", "local"),
)


@pytest.mark.parametrize(
    ("shape", "failing", "answering", "unasked"),
    [
        told(
            shape,
            *(one.says for one in failing),
            shape.replies[answering],
            values=(failing, answering, unasked),
        )
        for shape, failing, answering, unasked in (
            *((shape, (), "openai", ["anthropic"]) for shape in SHAPES),
            *((shape, (), "anthropic", ["openai"]) for shape in SHAPES),
            *((shape, (one,), one.fallback, []) for shape in SHAPES for one in FAILING),
            # Told inside HTTP 200, after an empty first chunk.
            (STREAM, (LATE,), "openai", []),
            (TEXT, CHAIN, "local", []),
        )
    ],
)
async def test_each_failing_provider_is_asked_once_and_the_next_one_answers(
    shape: Shape,
    failing: tuple[Failing, ...],
    answering: str,
    unasked: list[str],
    sync: bool,
    vcr: Cassette,
) -> None:
    """Each gets the question in its own format; the answer says what those before it said.

    Where the primary answers, nobody else sees anything.
    """
    asked = [*(one.provider for one in failing), answering]
    model = FallbackChatModel(*map(model_of, [*asked, *unasked]))

    answer = await shape.ask(model, sync)

    shape.check(answer, answering)
    assert_told(answer.message, answering, *failing)
    assert_asked(vcr, shape, *asked)


REJECTED: dict[str, type[openai.BadRequestError | anthropic.BadRequestError]] = {
    "openai": openai.BadRequestError,
    "anthropic": anthropic.BadRequestError,
}


@pytest.mark.parametrize(
    ("shape", "provider"),
    [
        told(shape, f"{provider}_bad_request", values=(provider,))
        for shape in SHAPES
        for provider in REJECTED
    ],
)
async def test_a_callers_mistake_comes_back_as_the_providers_own_error(
    shape: Shape, provider: str, sync: bool, vcr: Cassette
) -> None:
    """A 400 surfaces at once and untouched; the fallback is not asked to make up for it."""
    (other,) = REJECTED.keys() - {provider}
    model = FallbackChatModel(model_of(provider, max_tokens=0), model_of(other))

    with pytest.raises(REJECTED[provider]) as caught:
        await shape.ask(model, sync)

    refused: Any = caught.value
    assert refused.status_code == 400
    assert TARGETS[provider] in refused.__notes__[0]
    assert_asked(vcr, shape, provider)


@pytest.mark.upstream("openai_overloaded", "anthropic_bad_key")
async def test_a_call_that_nobody_answers_carries_both_providers_errors(
    sync: bool, vcr: Cassette
) -> None:
    """The group holds the exceptions that the integrations raised, in the order they came."""
    model = FallbackChatModel(model_of("openai"), model_of("anthropic", api_key="not-a-key"))

    with pytest.raises(FallbackExhausted) as caught:
        await TEXT.ask(model, sync)

    overloaded, refused = caught.value.exceptions
    assert isinstance(overloaded, openai.InternalServerError)
    assert isinstance(refused, anthropic.AuthenticationError)
    assert_asked(vcr, TEXT, "openai", "anthropic")
