"""Every outage by the model's name: what a client of any kind gets from ``benchmarks.faults``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import anthropic
import httpx
import openai
import pytest
from google import genai

from benchmarks.faults import ANSWER
from benchmarks.faults.__main__ import FaultServer, model_of
from benchmarks.faults.scenarios import SCENARIOS
from honcho_fallback import FallbackConfig, FallbackPolicy, Target, classify, read_answer
from tests.helpers.broken_server import AFTER_A_REQUEST

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SAY: Any = [{"role": "user", "content": "hello"}]


@pytest.fixture(scope="module")
def server() -> Iterator[FaultServer]:
    """Serve for all tests of this module."""
    with FaultServer() as server:
        yield server


def get(server: FaultServer, path: str, method: str = "GET") -> Any:
    """Ask the server about itself."""
    return httpx.request(method, f"{server.url}{path}", trust_env=False).json()


def chat(
    server: FaultServer, model: str, *, words: list[str] | None = None, timeout: float = 30
) -> Any:
    """Ask for a whole answer, or read the words of a stream."""
    with openai.OpenAI(api_key="k", base_url=f"{server.url}/v1", max_retries=0) as client:
        request: Any = {"model": model, "messages": SAY, "timeout": timeout}
        answer: Any = client.chat.completions.create(**request, stream=words is not None)
        if words is None:
            assert answer.choices
            return answer
        for chunk in answer:
            words.extend((chunk.choices[0].delta.content or "").split())
        return words


def responses(server: FaultServer, model: str) -> Any:
    with openai.OpenAI(api_key="k", base_url=f"{server.url}/v1", max_retries=0) as client:
        return client.responses.create(model=model, input="hello")


def messages(server: FaultServer, model: str) -> Any:
    with anthropic.Anthropic(api_key="k", base_url=server.url, max_retries=0) as client:
        return client.messages.create(model=model, messages=SAY, max_tokens=99)


def gemini(server: FaultServer, model: str) -> Any:
    options = genai.types.HttpOptions(base_url=server.url)
    client = genai.Client(api_key="k", http_options=options)
    return client.models.generate_content(model=model, contents="hello")


CLIENTS = pytest.mark.parametrize("ask", [chat, responses, messages, gemini])


@CLIENTS
def test_a_chain_of_two_models_gets_through_an_outage(
    server: FaultServer, ask: Callable[[FaultServer, str], Any]
) -> None:
    """In each of the four shapes: the primary's 503, then the fallback's answer."""
    policy = FallbackPolicy([Target("s04"), Target("s04-fallback")], FallbackConfig(wait=0))
    run = policy.start()
    answer = policy.call(lambda attempt: ask(server, attempt.target.model), run=run)
    assert read_answer(answer).content == ANSWER
    assert [one.status for one in run.record.attempts] == [503, None]


@pytest.mark.parametrize("way", sorted(AFTER_A_REQUEST))
def test_each_way_to_break_has_a_model(server: FaultServer, way: str) -> None:
    """Its client meets what the name says, and no error of its own."""
    model, needs = model_of(way), AFTER_A_REQUEST[way][1]
    words: list[str] | None = [] if needs.get("streamed") else None
    with pytest.raises(Exception, match=r".") as caught:
        chat(server, model, words=words, timeout=needs.get("timeout", 30))
    assert classify(caught.value).kind in {"connection", "timeout", "malformed_response"}


def test_it_lists_what_there_is_and_who_was_asked(server: FaultServer) -> None:
    """Each scenario with its title; requests by model, until they are forgotten."""
    listed = {one["id"]: one["title"] for one in get(server, "/models")["data"]}
    for scenario in SCENARIOS:
        assert scenario.title in listed[scenario.name.lower()]
        assert f"{scenario.name.lower()}-fallback" in listed
    get(server, "/reset", "POST")
    with pytest.raises(openai.APIStatusError):
        chat(server, "S03")
    chat(server, "s03")  # it fails once
    seen = get(server, "/requests")
    assert [one["answered"] for one in seen["s03"]] == [False, True]
    assert get(server, "/reset", "POST") == {}
    with pytest.raises(openai.APIStatusError):
        chat(server, "s03")


def test_a_stream_is_cut_where_the_scenario_says(server: FaultServer) -> None:
    """Two thirds of the words, and then an error of the connection."""
    words: list[str] = []
    with pytest.raises((openai.APIConnectionError, httpx.RemoteProtocolError)):
        chat(server, "s08", words=words)
    assert len(words) == 8
