"""Healthy LangChain models fail on schedule, with the errors that production sees."""

from __future__ import annotations

import asyncio
import json
import pickle
from typing import TYPE_CHECKING, Any

import openai
import pytest
from langchain_anthropic import ChatAnthropic
from langchain_core.language_models import FakeListChatModel, FakeMessagesListChatModel
from langchain_core.messages import AIMessage, HumanMessage
from langchain_openai import ChatOpenAI
from langchain_openai.chat_models.base import OpenAIRateLimitError
from werkzeug import Response

from honcho_fallback import FailureKind, FallbackConfigError, StreamInterrupted, classify
from honcho_fallback.testing import StatusError, assert_answered, assert_switched
from honcho_fallback_langchain import FallbackChatModel, without_sdk_retries
from tests.helpers.chat_models import ScriptedChat
from tests.helpers.wire import chat_answer, chat_events

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from langchain_core.language_models import BaseChatModel
    from langchain_core.outputs import ChatGenerationChunk
    from pytest_httpserver import HTTPServer

    from honcho_fallback.testing import Clock, FaultInjector, Records

    Ask = Callable[[BaseChatModel], str]


def by_invoke(model: BaseChatModel) -> str:
    return str(model.invoke("hi").content)


def by_ainvoke(model: BaseChatModel) -> str:
    return str(asyncio.run(model.ainvoke("hi")).content)


def by_stream(model: BaseChatModel) -> str:
    return "".join(str(chunk.content) for chunk in model.stream("hi"))


def by_astream(model: BaseChatModel) -> str:
    async def read() -> str:
        return "".join([str(chunk.content) async for chunk in model.astream("hi")])

    return asyncio.run(read())


WAYS = [by_invoke, by_ainvoke, by_stream, by_astream]


class Iterating(ScriptedChat):
    """Streams by an iterator that is no generator."""

    def _stream(self, *args: Any, **kwargs: Any) -> Iterator[ChatGenerationChunk]:
        return iter([*super()._stream(*args, **kwargs)])


def healthy(kind: str) -> BaseChatModel:
    """Return models that differ in which methods they have."""
    if kind == "generates":
        return FakeMessagesListChatModel(responses=[AIMessage("hello")])
    if kind == "calls":
        return FakeListChatModel(responses=["hello"])
    if kind == "iterates":
        return Iterating(script=[["hel", "lo"]])
    return ScriptedChat(script=[["hel", "lo"]])


@pytest.mark.parametrize("kind", ["generates", "calls", "streams", "iterates"])
@pytest.mark.parametrize("ask", WAYS)
def test_requests_are_counted_once(fault: FaultInjector, ask: Ask, kind: str) -> None:
    """The second of three requests fails, whoever does what is missing: model or LangChain."""
    failing = fault(healthy(kind)).on(2, status=503)
    assert ask(failing.subject) == "hello"
    with pytest.raises(StatusError, match="HTTP 503"):
        ask(failing.subject)
    assert ask(failing.subject) == "hello"
    assert (failing.requests, failing.failed) == (3, 1)


class Streaming(ScriptedChat):
    """Generates by reading its own stream, as ChatAnthropic may."""

    def _generate(self, *args: Any, **kwargs: Any) -> Any:
        from langchain_core.language_models.chat_models import (  # noqa: PLC0415 # theirs
            generate_from_stream,
        )

        return generate_from_stream(self._stream(*args, **kwargs))


def test_a_model_that_reads_its_own_stream_makes_one_request(fault: FaultInjector) -> None:
    """What happens inside a request is no request."""
    failing = fault(Streaming(script=[["hello"]])).on(2, status=503)
    assert by_invoke(failing.subject) == "hello"
    assert failing.requests == 1


def test_the_original_stays_healthy(fault: FaultInjector) -> None:
    """The copy fails and the shared object does not; to whoever looks it is of the same class."""
    model = ScriptedChat(script=[["hello"]], temperature=0.5)
    failing = fault(model).every(1, status=503)
    copy = failing.subject
    assert copy is not model
    assert isinstance(copy, ScriptedChat)
    assert type(copy).__name__ == "ScriptedChat"
    assert copy.temperature == 0.5
    assert type(model) is ScriptedChat
    assert by_invoke(model) == "hello"
    assert failing.requests == 0
    assert pickle.loads(pickle.dumps(model)).temperature == 0.5  # noqa: S301 # our own


def test_what_is_derived_fails_with_it(fault: FaultInjector) -> None:
    """Bound tools, changed copies and models without SDK retries go by the same schedule."""
    failing = fault(ScriptedChat(script=[["hello"]])).every(1, status=429)
    for derived in (
        failing.subject.bind_tools([]),
        failing.subject.model_copy(update={"temperature": 0.1}),
        without_sdk_retries(failing.subject),
        failing.subject.bind(stop=["x"]) | (lambda message: message),
    ):
        with pytest.raises(StatusError):
            derived.invoke("hi")
    assert failing.failed == 4


@pytest.mark.parametrize("ask", [by_stream, by_astream])
def test_streams_break_off(fault: FaultInjector, ask: Ask, fallback_records: Records) -> None:
    """After so many chunks the provider's error comes; before content, the fallback answers."""
    failing = fault(healthy("streams")).on(1, status=529, after_chunks=1)
    failing.on(2, error=ConnectionResetError("gone"), after_chunks=2)
    model = FallbackChatModel(failing.subject, ScriptedChat(model="b", script=[["fine"]]))
    assert ask(model) == "fine"  # the first chunk is empty
    assert_switched(fallback_records.one, kind="overloaded")
    with pytest.raises(StreamInterrupted) as caught:
        ask(model)
    assert isinstance(caught.value.__cause__, ConnectionResetError)
    assert ask(model) == "hello"


def test_a_short_stream_breaks_off_at_its_end(fault: FaultInjector) -> None:
    """A fault that was due is not lost because the stream was shorter."""
    failing = fault(healthy("streams")).on(1, status=529, after_chunks=100)
    with pytest.raises(StatusError):
        by_stream(failing.subject)


def test_it_fails_for_a_time_of_the_clock(
    fault: FaultInjector, fallback_clock: Clock, fallback_records: Records
) -> None:
    """An outage of a minute ends when the clock has moved on by one."""
    failing = fault(healthy("generates")).for_seconds(60, status=503)
    model = FallbackChatModel(failing.subject, healthy("streams"))
    for seconds in (0, 59.5, 0.5):
        fallback_clock.advance(seconds)
        assert by_invoke(model) == "hello"
    assert [record.is_fallback for record in fallback_records] == [True, True, False]


def test_waits_are_the_clocks(
    fault: FaultInjector, fallback_clock: Clock, fallback_records: Records
) -> None:
    """With nobody else to ask, the provider's Retry-After passes on the clock."""
    failing = fault(healthy("generates")).on(1, status=429, retry_after=20)
    too = fault(healthy("generates")).on(1, status=429, retry_after=20)
    model = FallbackChatModel(failing.subject, too.subject)
    assert by_invoke(model) == "hello"
    assert fallback_clock.slept == [20.0]
    assert fallback_records.one.seconds == 20


def chat_openai(server: HTTPServer) -> ChatOpenAI:
    body = {"id": "1", "object": "chat.completion", "created": 1, "model": "m"}
    choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant"}}

    def answer(request: Any) -> Response:
        if request.get_json().get("stream"):
            return Response(
                "\n\n".join(chat_events(chat_answer("hello"))) + "\n\n",
                content_type="text/event-stream",
            )
        choices = [{**choice, "message": {"role": "assistant", "content": "hello"}}]
        return Response(json.dumps({**body, "choices": choices}), content_type="application/json")

    server.expect_request("/chat/completions").respond_with_handler(answer)
    return ChatOpenAI(model="gpt-5.5", base_url=server.url_for("/"), api_key="not-a-key")


@pytest.mark.parametrize("ask", WAYS)
def test_chat_openai_raises_what_it_raises_in_production(
    fault: FaultInjector, httpserver: HTTPServer, ask: Ask
) -> None:
    """LangChain's own class over the SDK's, with its headers; the next request is real."""
    failing = fault(chat_openai(httpserver)).on(1, status=429, retry_after=5)
    with pytest.raises(OpenAIRateLimitError) as caught:
        ask(failing.subject)
    assert isinstance(caught.value, openai.RateLimitError)
    assert classify(caught.value).retry_after == 5
    assert not httpserver.log
    assert ask(failing.subject) == "hello"
    assert len(httpserver.log) == 1


FAULTS: list[tuple[dict[str, Any], str, FailureKind]] = [
    ({"status": 400}, "{}InvalidRequestError", FailureKind.INVALID_REQUEST),
    ({"status": 401}, "{}AuthenticationError", FailureKind.AUTHENTICATION),
    ({"status": 403}, "{}PermissionDeniedError", FailureKind.PERMISSION),
    ({"status": 404}, "{}ModelNotFoundError", FailureKind.MODEL_UNAVAILABLE),
    ({"status": 429}, "{}RateLimitError", FailureKind.RATE_LIMIT),
    ({"status": 500}, "{}APIError", FailureKind.SERVER_ERROR),
    ({"status": 503}, "{}APIError", FailureKind.OVERLOADED),
    ({"error": "timeout"}, "{}TimeoutError", FailureKind.TIMEOUT),
    ({"error": "connection"}, "{}ConnectionError", FailureKind.CONNECTION),
]


@pytest.mark.parametrize(("what", "name", "kind"), FAULTS)
@pytest.mark.parametrize("provider", ["OpenAI", "Anthropic"])
def test_every_fault_has_its_class(
    fault: FaultInjector, provider: str, what: dict[str, Any], name: str, kind: FailureKind
) -> None:
    """Classes are those that the integration and the SDK choose, and classify reads them right."""
    model: BaseChatModel = (
        ChatOpenAI(model="m", api_key="not-a-key")
        if provider == "OpenAI"
        else ChatAnthropic(model="m", api_key="not-a-key")
    )
    failing = fault(model).on(1, **what)
    with pytest.raises(Exception) as caught:
        failing.subject.invoke([HumanMessage("hi")])
    assert type(caught.value).__name__ == name.format(provider)
    assert classify(caught.value).kind is kind


def test_an_overloaded_anthropic_and_an_empty_account(fault: FaultInjector) -> None:
    """Statuses and codes of one provider's own come out as its own."""
    claude = fault(ChatAnthropic(model="m", api_key="not-a-key")).on(1, status=529)
    with pytest.raises(Exception, match="overloaded_error") as caught:
        claude.subject.invoke("hi")
    assert type(caught.value).__name__ == "AnthropicOverloadedError"
    gpt = fault(ChatOpenAI(model="m", api_key="not-a-key"))
    gpt.on(1, status=429, code="insufficient_quota")
    with pytest.raises(openai.RateLimitError) as quota:
        gpt.subject.invoke("hi")
    assert quota.value.code == "insufficient_quota"
    assert classify(quota.value).kind is FailureKind.QUOTA


def test_errors_of_ones_own_come_out_as_they_are(fault: FaultInjector) -> None:
    """An exception is raised as given, by no integration's hands."""
    error = KeyError("a bug")
    failing = fault(ChatOpenAI(model="m", api_key="not-a-key")).on(1, error=error)
    with pytest.raises(KeyError) as caught:
        failing.subject.invoke("hi")
    assert caught.value is error


def test_the_first_rule_that_applies_counts(fault: FaultInjector) -> None:
    """Rules stand in an order, and every third is the third, the sixth and so on."""
    failing = fault(healthy("generates")).on(3, status=401).every(3, status=503)
    said: list[str | int] = []
    for _ in range(7):
        try:
            said.append(by_invoke(failing.subject))
        except StatusError as error:
            said.append(error.status_code)
    assert said == ["hello", "hello", 401, "hello", "hello", 503, "hello"]
    assert repr(failing) == "<Failing: 2 of 7 requests failed>"


@pytest.mark.parametrize(
    ("write", "message"),
    [
        (lambda failing: failing.on(status=500), "count requests from 1"),
        (lambda failing: failing.on(0, status=500), "count requests from 1"),
        (lambda failing: failing.every(0, status=500), "nth: got 0"),
        (lambda failing: failing.on(1), "not one of status and error"),
        (lambda failing: failing.on(1, status=500, error="timeout"), "not one of status and"),
        (lambda failing: failing.on(1, status=200), "status: got 200"),
        (lambda failing: failing.on(1, error="slow"), "error: got 'slow'"),
    ],
)
def test_bad_rules_are_refused(
    fault: FaultInjector, write: Callable[[Any], Any], message: str
) -> None:
    """A rule that could never do what it says is refused where it is written."""
    with pytest.raises(FallbackConfigError, match=message):
        write(fault(healthy("generates")))


def test_what_cannot_fail_is_refused(fault: FaultInjector) -> None:
    """Bindings and chains are not models: the error says what to pass."""
    for subject in (object(), healthy("streams").bind(stop=["x"])):
        with pytest.raises(FallbackConfigError, match="the model inside it"):
            fault(subject)
    with pytest.raises(FallbackConfigError, match="subject: got a ScriptedChat"):
        fault(healthy("streams"), "deployment")


def test_the_agents_answer_is_the_fallbacks(
    fault: FaultInjector, fallback_records: Records
) -> None:
    """In a chain the schedule reaches the policy's model, and the record tells."""
    primary = fault(healthy("generates")).on(1, status=429)
    model = FallbackChatModel(primary.subject, healthy("streams"))
    chain = model | (lambda message: message.content)
    assert chain.invoke("hi") == "hello"
    assert_answered(fallback_records.one, by=fallback_records.one.chain[1])
