"""A chat model that fails on schedule around a healthy one, with the SDK's own exceptions."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import anthropic
import groq
import httpx
import openai
import pytest
from langchain.agents import create_agent
from langchain_anthropic import ChatAnthropic
from langchain_core.language_models import FakeListChatModel, FakeMessagesListChatModel
from langchain_core.messages import AIMessage, HumanMessage
from langchain_groq import ChatGroq
from langchain_openai import ChatOpenAI
from langchain_openai.chat_models.base import OpenAIRateLimitError

from honcho_fallback import FailureKind, StreamInterrupted, classify
from honcho_fallback.testing import (
    FaultSchedule,
    FaultTransport,
    StatusError,
    assert_switched,
)
from honcho_fallback_langchain import FallbackChatModel, FallbackMiddleware, without_sdk_retries
from honcho_fallback_langchain.testing import FaultyChatModel
from tests.helpers.chat_models import ScriptedChat

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from langchain_core.language_models import BaseChatModel
    from langchain_core.outputs import ChatGenerationChunk
    from langchain_core.runnables import Runnable

    from honcho_fallback.testing import Clock, Records
    from tests.helpers.provider import ProviderServer

    Ask = Callable[[Runnable[Any, Any]], str]


def by_invoke(model: Runnable[Any, Any]) -> str:
    return str(model.invoke("hi").content)


def by_ainvoke(model: Runnable[Any, Any]) -> str:
    return str(asyncio.run(model.ainvoke("hi")).content)


def by_stream(model: Runnable[Any, Any]) -> str:
    return "".join(str(chunk.content) for chunk in model.stream("hi"))


def by_astream(model: Runnable[Any, Any]) -> str:
    async def read() -> str:
        return "".join([str(chunk.content) async for chunk in model.astream("hi")])

    return asyncio.run(read())


WAYS = [by_invoke, by_ainvoke, by_stream, by_astream]


class Iterating(ScriptedChat):
    """Streams by an iterator that is no generator."""

    def _stream(self, *args: Any, **kwargs: Any) -> Iterator[ChatGenerationChunk]:
        return iter([*super()._stream(*args, **kwargs)])


class Streaming(ScriptedChat):
    """Generates by reading its own stream, as ChatAnthropic may."""

    def _generate(self, *args: Any, **kwargs: Any) -> Any:
        from langchain_core.language_models.chat_models import (  # noqa: PLC0415 # theirs
            generate_from_stream,
        )

        return generate_from_stream(self._stream(*args, **kwargs))


def healthy(kind: str) -> BaseChatModel:
    """Return models that differ in which methods they have."""
    if kind == "generates":
        return FakeMessagesListChatModel(responses=[AIMessage("hello")])
    if kind == "calls":
        return FakeListChatModel(responses=["hello"])
    kinds = {"iterates": Iterating, "reads its stream": Streaming, "streams": ScriptedChat}
    return kinds[kind](script=[["hel", "lo"]])


@pytest.mark.parametrize("kind", ["generates", "calls", "streams", "iterates", "reads its stream"])
@pytest.mark.parametrize("ask", WAYS)
def test_requests_are_counted_once(ask: Ask, kind: str) -> None:
    """The second of three requests fails, whoever does what is missing: model or LangChain."""
    faults = FaultSchedule().on(2, status=503)
    model = FaultyChatModel(healthy(kind), faults)
    assert ask(model) == "hello"
    with pytest.raises(StatusError, match="HTTP 503"):
        ask(model)
    assert ask(model) == "hello"
    assert (faults.requests, faults.failed) == (3, 1)


def test_it_has_the_names_of_the_model_inside(fallback_records: Records) -> None:
    """Records and traces show the model that was meant, and chains know its window."""
    inside = ScriptedChat(model="gpt", script=[["hello"]], profile={"max_input_tokens": 7})
    model = FallbackChatModel(
        FaultyChatModel(inside, FaultSchedule().on(1, status=503)), healthy("streams")
    )
    model.invoke("hi")
    assert fallback_records.one.chain[0] == "scripted/gpt"
    assert model.profile is None
    alone = FaultyChatModel(inside, FaultSchedule())
    assert alone.profile == {"max_input_tokens": 7}
    assert alone.asdict() == inside.asdict()  # what a cache tells models apart by


def test_what_is_derived_fails_with_it() -> None:
    """Bound tools, changed copies and models without SDK retries go by the same schedule."""
    inside = ScriptedChat(script=[["hello"]])
    faults = FaultSchedule().every(1, status=429)
    model = FaultyChatModel(inside, faults)
    for derived in (
        model.bind_tools([]),
        model.model_copy(update={"metadata": {}}),
        without_sdk_retries(model),
        model.bind(stop=["x"]) | (lambda message: message),
        model.with_structured_output({"title": "x", "type": "object", "properties": {}}),
    ):
        with pytest.raises(StatusError):
            derived.invoke("hi")
    assert faults.failed == 5
    assert inside.asked == []
    assert by_invoke(inside) == "hello"


def test_tools_are_bound_as_the_model_binds_them() -> None:
    """What reaches the model inside is its own form of a tool."""
    inside = ScriptedChat(model="mine", script=[["hello"]])

    def look_up(name: str) -> str:
        """Look a name up."""
        return name

    bound = FaultyChatModel(inside, FaultSchedule()).bind_tools([look_up], tool_choice="any")
    bound.invoke("hi")
    (asked,) = inside.asked
    assert asked.kwargs["tools"][0]["for"] == "mine"
    assert asked.kwargs["tool_choice"] == "any"


@pytest.mark.parametrize("ask", [by_stream, by_astream])
def test_streams_break_off(ask: Ask, fallback_records: Records) -> None:
    """After so many chunks the provider's error comes; before content, the fallback answers."""
    inside = ScriptedChat(script=[["hel", "lo"]])
    faults = FaultSchedule().on(1, status=529, after_chunks=1)
    faults.on(2, error=ConnectionResetError("gone"), after_chunks=2)
    model = FallbackChatModel(
        FaultyChatModel(inside, faults), ScriptedChat(model="b", script=[["fine"]])
    )
    assert ask(model) == "fine"  # the first chunk is empty
    assert_switched(fallback_records.one, kind="overloaded")
    with pytest.raises(StreamInterrupted) as caught:
        ask(model)
    assert isinstance(caught.value.__cause__, ConnectionResetError)
    assert ask(model) == "hello"
    assert inside.closed == ["left", "left", "whole"]


async def test_a_stream_that_broke_off_is_closed_at_once() -> None:
    """The model's stream does not wait for the garbage collector or the end of the loop."""
    inside = ScriptedChat(script=[["hel", "lo"]])
    with pytest.raises(ConnectionError):
        async for _ in FaultyChatModel(inside, FaultSchedule().on(1, after_chunks=1)).astream(
            "hi"
        ):
            assert inside.closed == []
    assert inside.closed == ["left"]


@pytest.mark.parametrize("ask", [by_stream, by_astream])
def test_a_short_stream_breaks_off_at_its_end(ask: Ask) -> None:
    """A fault that was due is not lost because the stream was shorter."""
    faults = FaultSchedule().on(1, status=529, after_chunks=100)
    with pytest.raises(StatusError):
        ask(FaultyChatModel(healthy("streams"), faults))


@pytest.mark.parametrize("ask", WAYS)
def test_a_fallback_chain_outlives_an_outage(
    ask: Ask, fallback_clock: Clock, fallback_records: Records
) -> None:
    """Until the clock has moved on by a minute, the fallback answers."""
    primary = FaultyChatModel(healthy("streams"), FaultSchedule().for_seconds(60, status=503))
    model = FallbackChatModel(primary, healthy("generates"))
    for seconds in (0, 59.5, 0.5):
        fallback_clock.advance(seconds)
        assert ask(model) == "hello"
    assert [record.is_fallback for record in fallback_records] == [True, True, False]


def test_waits_are_the_clocks(fallback_clock: Clock, fallback_records: Records) -> None:
    """With nobody else to ask, the provider's Retry-After passes on the clock."""
    faults = [FaultSchedule().on(1, status=429, retry_after=20) for _ in range(2)]
    model = FallbackChatModel(*(FaultyChatModel(healthy("generates"), one) for one in faults))
    assert by_invoke(model) == "hello"
    assert fallback_clock.slept == [20.0]
    assert fallback_records.one.seconds == 20


@pytest.mark.parametrize("ask", WAYS)
def test_langchains_own_fallbacks_see_it(ask: Ask) -> None:
    """``with_fallbacks`` takes the exception for a provider's, as it would in production."""
    primary = FaultyChatModel(healthy("streams"), FaultSchedule().on(1, status=503))
    chain = primary.with_fallbacks([ScriptedChat(script=[["fine"]])])
    assert [ask(chain), ask(chain)] == ["fine", "hello"]


def test_an_agent_goes_on_with_the_fallback(fallback_records: Records) -> None:
    """In an agent's tool loop the second request fails, and the loop ends all the same."""
    call = AIMessage(
        "", tool_calls=[{"name": "look_up", "args": {"name": "x"}, "id": "1", "type": "tool_call"}]
    )

    def look_up(name: str) -> str:
        """Look a name up."""
        return f"{name} is found"

    class Calling(FakeMessagesListChatModel):
        def bind_tools(self, tools: Any, **kwargs: Any) -> Any:
            return self.bind(tools=tools)

    faults = FaultSchedule().on(2, status=429)
    primary = FaultyChatModel(Calling(responses=[call]), faults)
    backup = Calling(responses=[AIMessage("done")])
    for agent in (
        create_agent(FallbackChatModel(primary, backup), [look_up]),
        create_agent(primary, [look_up], middleware=[FallbackMiddleware(backup)]),
    ):
        answer = agent.invoke({"messages": [HumanMessage("look it up")]})
        assert answer["messages"][-1].content == "done"
        assert "x is found" in {message.content for message in answer["messages"]}
        assert fallback_records[-2].answered_by == fallback_records[-2].chain[0]
        assert fallback_records[-1].answered_by == fallback_records[-1].chain[1]
        faults.requests = 0


def test_a_hundred_calls_at_once() -> None:
    """Threads and tasks share one schedule: exactly every fifth request fails."""
    faults = FaultSchedule().every(5, status=503)
    model = FaultyChatModel(FakeListChatModel(responses=["hello"]), faults)

    def fails(_: int) -> bool:
        try:
            model.invoke("hi")
        except StatusError:
            return True
        return False

    async def main() -> list[Any]:
        calls = (model.ainvoke("hi") for _ in range(100))
        return [*await asyncio.gather(*calls, return_exceptions=True)]

    with ThreadPoolExecutor(16) as pool:
        assert [*pool.map(fails, range(100))].count(True) == 20
    assert [type(one) for one in asyncio.run(main())].count(StatusError) == 20
    assert (faults.requests, faults.failed) == (200, 40)


FAULTS: list[tuple[dict[str, Any], str, FailureKind]] = [
    ({"status": 400}, "BadRequestError", FailureKind.INVALID_REQUEST),
    ({"status": 401}, "AuthenticationError", FailureKind.AUTHENTICATION),
    ({"status": 404}, "NotFoundError", FailureKind.MODEL_UNAVAILABLE),
    ({"status": 429, "retry_after": 5}, "RateLimitError", FailureKind.RATE_LIMIT),
    ({"status": 503}, "InternalServerError", FailureKind.OVERLOADED),
    ({"status": 429, "code": "insufficient_quota"}, "RateLimitError", FailureKind.QUOTA),
    ({"error": "timeout"}, "APITimeoutError", FailureKind.TIMEOUT),
    ({"error": "connection"}, "APIConnectionError", FailureKind.CONNECTION),
]


@pytest.mark.parametrize("ask", WAYS)
@pytest.mark.parametrize(("fault", "name", "kind"), FAULTS)
@pytest.mark.parametrize(
    ("make", "sdk"), [(ChatOpenAI, openai), (ChatAnthropic, anthropic), (ChatGroq, groq)]
)
def test_the_exception_is_the_sdks(
    make: Any, sdk: Any, fault: dict[str, Any], name: str, kind: FailureKind, ask: Ask
) -> None:
    """A model that stands on an SDK fails with the SDK's class, which classify reads right."""
    model = make(model="m", api_key="none")
    with pytest.raises(getattr(sdk, name)) as caught:
        ask(FaultyChatModel(model, FaultSchedule().on(1, **fault)))
    failure = classify(caught.value)
    assert failure.kind is kind
    assert failure.retry_after == fault.get("retry_after")


@pytest.mark.parametrize(
    ("error", "kind"),
    [("timeout", FailureKind.TIMEOUT), ("connection", FailureKind.CONNECTION)],
)
def test_other_models_fail_with_plain_exceptions(error: Any, kind: FailureKind) -> None:
    """Without a known SDK there is still nothing to guess for the classifier."""
    with pytest.raises(OSError, match="a fault of the test") as caught:
        by_invoke(FaultyChatModel(healthy("streams"), FaultSchedule().on(1, error=error)))
    assert classify(caught.value).kind is kind


def test_errors_of_ones_own_come_out_as_they_are() -> None:
    """An exception is raised as given, by no SDK's hands."""
    error = KeyError("a bug")
    model = FaultyChatModel(
        ChatOpenAI(model="m", api_key="none"), FaultSchedule().on(1, error=error)
    )
    with pytest.raises(KeyError) as caught:
        model.invoke("hi")
    assert caught.value is error


@pytest.mark.parametrize("ask", WAYS)
def test_an_integration_over_the_transport_raises_its_own_class(
    ask: Ask, providers: ProviderServer
) -> None:
    """Where a model takes an HTTP client, LangChain's class over the SDK's comes out."""
    faults = FaultTransport().on(1, status=429, retry_after=5)
    with httpx.Client(transport=faults) as http_client:
        model = ChatOpenAI(
            model="gpt-5.5",
            api_key="none",
            base_url=providers["openai"].url,
            http_client=http_client,
            # No connection may outlive the event loop that `ask` runs.
            http_async_client=httpx.AsyncClient(transport=faults, headers={"connection": "close"}),
        )
        with pytest.raises(OpenAIRateLimitError) as caught:
            ask(without_sdk_retries(model))
        assert isinstance(caught.value, openai.RateLimitError)
        assert classify(caught.value).retry_after == 5
        assert ask(model)
    assert (faults.requests, faults.failed) == (2, 1)
