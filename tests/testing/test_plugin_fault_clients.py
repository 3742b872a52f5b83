"""Healthy SDK clients fail on schedule; what does not fail goes out as before."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import anthropic
import openai
import pytest
from werkzeug import Response

from honcho_fallback import FallbackConfigError, FallbackPolicy, Target, classify
from honcho_fallback.testing import assert_switched

if TYPE_CHECKING:
    from pytest_httpserver import HTTPServer
    from werkzeug import Request

    from honcho_fallback import Attempt
    from honcho_fallback.testing import FaultInjector, Records

BODY = {"id": "1", "object": "chat.completion", "created": 1, "model": "m"}
MESSAGE: Any = [{"role": "user", "content": "hi"}]


def answer(request: Request) -> Response:
    if request.get_json().get("stream"):
        chunk = {**BODY, "choices": [{"index": 0, "delta": {"content": "hello"}}]}
        told = f"data: {json.dumps(chunk)}\n\ndata: [DONE]\n\n"
        return Response(told, content_type="text/event-stream")
    message = {"role": "assistant", "content": "hello"}
    choice = {"index": 0, "finish_reason": "stop", "message": message}
    return Response(json.dumps({**BODY, "choices": [choice]}), content_type="application/json")


@pytest.fixture
def url(httpserver: HTTPServer) -> str:
    """Serve a healthy provider."""
    httpserver.expect_request("/chat/completions").respond_with_handler(answer)
    return httpserver.url_for("/")


def test_a_client_fails_as_its_provider_would(
    fault: FaultInjector, url: str, httpserver: HTTPServer
) -> None:
    """The SDK makes the error; requests that do not fail reach the real server, streams too."""
    client = openai.OpenAI(base_url=url, api_key="key", max_retries=0)
    failing = fault(client).on(1, status=429, retry_after=7, code="slow_down")

    def ask(who: openai.OpenAI) -> str | None:
        completion = who.chat.completions.create(model="m", messages=MESSAGE)
        return completion.choices[0].message.content

    with pytest.raises(openai.RateLimitError) as caught:
        ask(failing.subject)
    assert caught.value.code == "slow_down"
    assert classify(caught.value).retry_after == 7
    assert not httpserver.log
    assert ask(failing.subject) == "hello"
    stream = failing.subject.chat.completions.create(model="m", messages=MESSAGE, stream=True)
    assert [chunk.choices[0].delta.content for chunk in stream] == ["hello"]
    assert ask(client) == "hello"
    assert (failing.requests, failing.failed, len(httpserver.log)) == (3, 1, 3)
    assert httpserver.log[0][0].headers["authorization"] == "Bearer key"


def test_an_async_client(fault: FaultInjector, url: str) -> None:
    """The same for a client that is awaited."""

    async def main() -> None:
        async with openai.AsyncOpenAI(base_url=url, api_key="key", max_retries=0) as client:
            failing = fault(client).on(1, error="timeout").on(2, error="connection")
            completions = failing.subject.chat.completions
            with pytest.raises(openai.APITimeoutError):
                await completions.create(model="m", messages=MESSAGE)
            with pytest.raises(openai.APIConnectionError):
                await completions.create(model="m", messages=MESSAGE)
            completion = await completions.create(model="m", messages=MESSAGE)
            assert completion.choices[0].message.content == "hello"

    asyncio.run(main())


def test_an_anthropic_client(fault: FaultInjector) -> None:
    """Its body and its classes are its own."""
    client = anthropic.Anthropic(api_key="key", max_retries=0)
    failing = fault(client).every(1, status=529)
    with pytest.raises(anthropic.APIStatusError, match="overloaded_error") as caught:
        failing.subject.messages.create(model="m", messages=MESSAGE, max_tokens=1)
    assert type(caught.value).__name__ == "OverloadedError"


def test_the_sdks_own_retries_are_requests(fault: FaultInjector, url: str) -> None:
    """A client that retries by itself shows that it does."""
    client = openai.OpenAI(base_url=url, api_key="key", max_retries=1)
    failing = fault(client).on(1, status=503, retry_after=0.01)
    failing.subject.chat.completions.create(model="m", messages=MESSAGE)
    assert (failing.requests, failing.failed) == (2, 1)


def test_a_raw_loop(fault: FaultInjector, url: str, fallback_records: Records) -> None:
    """The README's raw loop, with a primary that fails once."""
    healthy = openai.OpenAI(base_url=url, api_key="key", max_retries=0)
    primary = fault(healthy).on(1, status=500)
    policy = FallbackPolicy(
        [Target("m", provider="openai", client=primary.subject), Target("n", client=healthy)]
    )

    def ask(attempt: Attempt) -> str | None:
        client: openai.OpenAI = attempt.target.client
        completion = client.chat.completions.create(model=attempt.target.model, messages=MESSAGE)
        return completion.choices[0].message.content

    assert policy.call(ask) == "hello"
    assert_switched(fallback_records.one, from_="openai/m", to="n", kind="server_error")


def test_streams_of_clients_cannot_be_broken_off(fault: FaultInjector) -> None:
    """What is not built is refused, and not left out without a word."""
    client = openai.OpenAI(api_key="key")
    with pytest.raises(FallbackConfigError, match="after_chunks: this is no chat model"):
        fault(client).on(1, status=500, after_chunks=1)
