"""The scripted provider does what other tests rely on, as real SDKs see it."""

from __future__ import annotations

import json
import threading
import time
import urllib.error
import urllib.request
from typing import TYPE_CHECKING, Any

import anthropic
import httpx
import openai
import pytest

from tests.helpers.provider import Provider, ProviderProcess, ProviderServer, Reply, SeenRequest
from tests.helpers.wire import CHAT_USAGE, MESSAGE_USAGE, RESPONSES_USAGE, Json

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

HELLO: Any = [{"role": "user", "content": "hi"}]


@pytest.fixture
def server() -> Iterator[ProviderServer]:
    with ProviderServer() as server:
        yield server


def gpt(provider: Provider, key: str = "k") -> openai.OpenAI:
    return openai.OpenAI(base_url=provider.url, api_key=key, max_retries=0)


def claude(provider: Provider) -> anthropic.Anthropic:
    return anthropic.Anthropic(base_url=provider.url, api_key="k", max_retries=0)


def chat(provider: Provider, **options: Any) -> Any:
    with gpt(provider) as client:
        return client.chat.completions.create(model="m", messages=HELLO, **options)


def chat_stream(provider: Provider) -> tuple[str, Any]:
    with gpt(provider) as client:
        options: Any = {"stream": True, "stream_options": {"include_usage": True}}
        with client.chat.completions.create(model="m", messages=HELLO, **options) as chunks:
            read = list(chunks)
    text = "".join(one.choices[0].delta.content or "" for one in read if one.choices)
    return text, read[-1].usage


def message(provider: Provider) -> tuple[str, Any]:
    with claude(provider) as client:
        answer = client.messages.create(model="m", max_tokens=9, messages=HELLO)
    (block,) = answer.content
    return block.text, answer.usage  # type: ignore[union-attr] # text is all that it says


def message_stream(provider: Provider) -> tuple[str, Any]:
    with (
        claude(provider) as client,
        client.messages.stream(model="m", max_tokens=9, messages=HELLO) as stream,
    ):
        return stream.get_final_text(), stream.get_final_message().usage


def response(provider: Provider) -> tuple[str, Any]:
    with gpt(provider) as client:
        answer = client.responses.create(model="m", input="hi")
    return answer.output_text, answer.usage


def response_stream(provider: Provider) -> tuple[str, Any]:
    with gpt(provider) as client, client.responses.stream(model="m", input="hi") as stream:
        answer = stream.get_final_response()
    return answer.output_text, answer.usage


def embedding(provider: Provider) -> tuple[str, Any]:
    with gpt(provider) as client:
        answer = client.embeddings.create(model="m", input="hi", encoding_format="float")
    return str(answer.data[0].embedding), None


ENDPOINTS: dict[str, tuple[Callable[[Provider], tuple[str, Any]], Json]] = {
    "chat stream": (chat_stream, CHAT_USAGE),
    "message": (message, MESSAGE_USAGE),
    "message stream": (message_stream, MESSAGE_USAGE),
    "response": (response, RESPONSES_USAGE),
    "response stream": (response_stream, RESPONSES_USAGE),
}


@pytest.mark.parametrize("endpoint", ENDPOINTS)
def test_it_answers_in_the_form_it_is_asked_in(server: ProviderServer, endpoint: str) -> None:
    """An SDK reads the text and the tokens of an answer that nobody scripted."""
    ask, tokens = ENDPOINTS[endpoint]
    text, usage = ask(server["backup"])
    assert text == "hello from backup"
    reported = usage.model_dump(exclude_none=True)
    assert {name: reported[name] for name in tokens} == tokens


def test_it_embeds(server: ProviderServer) -> None:
    """Embeddings have a form of their own."""
    assert embedding(server["one"])[0] == "[0.5, 0.5]"


def test_a_reply_is_used_once_and_the_standing_one_for_the_rest(server: ProviderServer) -> None:
    """What is queued comes first; whoever came is noted with body, headers and order."""
    provider = server["one"]
    provider.reply(Reply(text="first"), Reply(text="second", usage=False))
    provider.standing = Reply(text="then this")
    answers = [chat(provider) for _ in range(4)]
    assert [answer.choices[0].message.content for answer in answers] == [
        "first",
        "second",
        "then this",
        "then this",
    ]
    assert answers[1].usage is None
    message(server["two"])
    assert server.order == ["one"] * 4 + ["two"]
    request = provider.requests[0]
    assert (request.path, request.key, request.body["messages"]) == (
        "chat/completions",
        "k",
        HELLO,
    )
    assert request.at <= (request.answered or 0) <= time.monotonic()


def test_it_may_decide_by_the_request(server: ProviderServer) -> None:
    """A standing function sees the request."""

    def echo(request: SeenRequest) -> Reply:
        return Reply(text=request.body["messages"][0]["content"])

    server["one"].standing = echo
    assert chat(server["one"]).choices[0].message.content == "hi"


@pytest.mark.parametrize(
    ("status", "openai_error", "anthropic_error"),
    [
        (401, openai.AuthenticationError, anthropic.AuthenticationError),
        (429, openai.RateLimitError, anthropic.RateLimitError),
        (500, openai.InternalServerError, anthropic.InternalServerError),
    ],
)
def test_it_fails_in_each_form(
    server: ProviderServer,
    status: int,
    openai_error: type[openai.APIStatusError],
    anthropic_error: type[anthropic.APIStatusError],
) -> None:
    """So many times, with headers, and well after that; without a number from then on."""
    server["one"].fail(status, times=2, headers={"retry-after": "7"}, error="its type")
    with pytest.raises(openai_error) as caught:
        chat(server["one"])
    assert caught.value.type == "its type"
    with pytest.raises(anthropic_error) as theirs:
        message(server["one"])
    assert theirs.value.response.headers["retry-after"] == "7"
    chat(server["one"])
    server["one"].fail(status)
    for _ in range(2):
        with pytest.raises(openai_error):
            chat(server["one"])


def test_a_stream_may_break_with_an_error(server: ProviderServer) -> None:
    """The words come first, then the error in the provider's form in place of the end."""
    server["one"].standing = Reply(text="hello there", error="overloaded_error")
    with pytest.raises(openai.APIError, match="in our own words"):
        chat_stream(server["one"])
    with pytest.raises(anthropic.APIStatusError) as caught:
        message_stream(server["one"])
    assert caught.value.type == "overloaded_error"
    with (
        gpt(server["one"]) as client,
        client.responses.create(model="m", input="hi", stream=True) as events,
    ):
        *words, last = events
    assert "response.output_text.delta" in {one.type for one in words}
    assert (last.type, getattr(last, "code", None)) == ("error", "overloaded_error")


@pytest.mark.parametrize("fault", ["drop", "cut", "cut stream"])
def test_a_connection_may_drop(server: ProviderServer, fault: str) -> None:
    """Before any answer, in the middle of a body, after some events."""
    provider = server["one"]
    if fault == "cut stream":
        provider.reply(Reply(events=["data: 1"], cut=True))
        with httpx.stream("POST", f"{provider.url}/chat/completions", trust_env=False) as answer:
            lines = answer.iter_lines()
            assert [next(lines), next(lines)] == ["data: 1", ""]
            with pytest.raises(httpx.RemoteProtocolError):
                next(lines)
        return
    provider.reply(Reply(drop=fault == "drop", cut=fault == "cut"))
    with pytest.raises(openai.APIConnectionError):
        chat(provider)
    assert chat(provider).choices[0].message.content == "hello from one"


@pytest.mark.parametrize("events", [None, ["data: 1"]])
def test_it_hangs_until_the_client_leaves(
    server: ProviderServer, events: list[str] | None
) -> None:
    """Nothing comes, or nothing after the events; the next request is answered."""
    provider = server["one"]
    provider.reply(Reply(hang=True, events=events))
    statuses = list[int]()
    body = {"stream": True, "model": "m"}
    url = f"{provider.url}/chat/completions"
    with (
        pytest.raises(httpx.ReadTimeout),
        httpx.stream("POST", url, json=body, timeout=0.5, trust_env=False) as answer,
    ):
        statuses.append(answer.status_code)
        answer.read()
    assert statuses == ([200] if events else [])
    assert chat(provider).choices[0].message.content == "hello from one"


def test_it_drips_while_it_hangs(server: ProviderServer) -> None:
    """A stream stays alive without saying anything new."""
    provider = server["one"]
    provider.reply(Reply(events=["data: 1"], hang=True, drip=": ping"))
    with httpx.stream("POST", f"{provider.url}/chat/completions", trust_env=False) as answer:
        lines = (line for line in answer.iter_lines() if line)
        assert [next(lines) for _ in range(3)] == ["data: 1", ": ping", ": ping"]


def test_an_answer_waits_for_what_holds_it(server: ProviderServer) -> None:
    """It comes once the event is set."""
    late, answers = threading.Event(), list[Any]()
    server["one"].reply(Reply(hold=late))
    asking = threading.Thread(target=lambda: answers.append(chat(server["one"])))
    asking.start()
    assert not answers
    late.set()
    asking.join()
    assert len(answers) == 1


def test_a_provider_may_require_its_key(server: ProviderServer) -> None:
    """Whoever brings another is refused."""
    provider = server.new("one", key="theirs")
    with pytest.raises(openai.AuthenticationError):
        chat(provider)
    with gpt(provider, "theirs") as client:
        client.chat.completions.create(model="m", messages=HELLO)
    assert [request.key for request in provider.requests] == ["k", "theirs"]


class NoNames:
    """Refuse what names a user; remember ids."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def faults(self, body: Json) -> list[str]:
        return ["user is unknown"] if "user" in body else []

    def remember(self, answer: Any) -> None:
        self.seen.append(answer["id"])


def test_a_strict_provider_says_what_is_wrong(server: ProviderServer) -> None:
    """A broken rule is a 400 with the reason; only answers are remembered."""
    rules = NoNames()
    provider = server.new("one", rules=rules)
    chat(provider)
    with pytest.raises(openai.BadRequestError, match="user is unknown"):
        chat(provider, user="me")
    assert (provider.refused, rules.seen) == (["user is unknown"], ["chatcmpl-1"])


def test_names_that_are_new_are_new(server: ProviderServer) -> None:
    """Clients that are cached by URL meet nobody else's provider; a reset forgets all."""
    assert server.new("one").url != server.new("one").url
    chat(server["one"])
    server.reset()
    assert (server.order, server["one"].requests) == ([], [])


def test_closing_ends_what_hangs() -> None:
    """No client waits for a server that is gone."""
    server = ProviderServer()
    server["one"].reply(Reply(hang=True))
    closing = threading.Thread(target=server.close)
    with httpx.Client(trust_env=False, timeout=30) as client:

        def close(_request: httpx.Request) -> None:
            closing.start()

        client.event_hooks["request"] = [close]
        with pytest.raises(httpx.TransportError):
            client.post(f"{server['one'].url}/chat/completions")
    closing.join()


def test_it_runs_in_a_process_of_its_own() -> None:
    """The control path scripts it, tells what came, and forgets; it ends with its input."""
    with ProviderProcess() as process:
        process.control(providers={"one": {"replies": [{"status": 429}], "key": "theirs"}})
        request = urllib.request.Request(  # noqa: S310 # our own, on loopback
            f"{process.url}/one/chat/completions",
            json.dumps({"model": "m"}).encode(),
            {"x-api-key": "theirs"},
        )
        with pytest.raises(urllib.error.HTTPError) as caught:
            urllib.request.urlopen(request)  # noqa: S310 # likewise
        caught.value.close()
        urllib.request.urlopen(request).close()  # noqa: S310 # likewise
        seen = process.control(reset=True, providers={"one": {"always": {"status": 503}}})
        assert (seen["order"], seen["requests"]["one"]) == ([], [])
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(request)  # noqa: S310 # likewise
        refused.value.close()
        (reported,) = process.control()["requests"]["one"]
    assert (caught.value.code, refused.value.code) == (429, 503)
    assert reported["body"] == {"model": "m"}
    assert reported["at"] <= reported["answered"] <= time.monotonic()
