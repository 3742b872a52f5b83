"""A tool loop whose rounds are answered by different providers, over the real SDKs.

Each provider here refuses what the real one refuses (`strict_providers`), so a history that it
would answer with a 400 fails the test.
"""

from __future__ import annotations

import json
from copy import deepcopy
from itertools import count
from typing import TYPE_CHECKING, Any

import pytest
from langchain_anthropic import ChatAnthropic
from langchain_core.exceptions import ModelInvalidRequestError
from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
)
from langchain_core.messages.tool import invalid_tool_call
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from strict_providers import (
    StrictAnthropic,
    StrictOpenAIChat,
    StrictOpenAIResponses,
    StrictProvider,
    anthropic_answer,
    chat_answer,
    responses_answer,
)

from honcho_fallback_langchain._messages import for_provider, provider_of

if TYPE_CHECKING:
    from pytest_httpserver import HTTPServer

    Json = dict[str, Any]

LONG_ID = "toolu_" + "x" * 60  # as some gateways make them


@tool
def weather(city: str) -> str:
    """Tell the weather."""
    return f"rain in {city}"


# What each provider says in a tool loop, with everything that only it can read: a first call, a
# second call, an answer.


def anthropic_says(tag: str) -> list[Json]:
    thinking = {"type": "thinking", "thinking": "Let me see.", "signature": f"signed-{tag}"}
    redacted = {"type": "redacted_thinking", "data": f"hidden-{tag}"}
    search = {
        "type": "server_tool_use",
        "id": f"srvtoolu_{tag}",
        "name": "web_search",
        "input": {},
    }
    hit = {"type": "web_search_result", "url": "u", "title": "t", "encrypted_content": "e"}
    found = {
        "type": "web_search_tool_result",
        "tool_use_id": f"srvtoolu_{tag}",
        "content": [hit],
    }
    cited = {"type": "text", "text": "It rains.", "citations": None}

    def call(name: str, city: str) -> Json:
        return {"type": "tool_use", "id": name, "name": "weather", "input": {"city": city}}

    return [
        anthropic_answer(thinking, redacted, search, found, call(f"{LONG_ID}{tag}", "Oslo")),
        anthropic_answer(
            thinking,
            {"type": "text", "text": "Two more."},
            call(f"toolu_{tag}_1", "Rome"),
            call(f"toolu_{tag}_2", "Bern"),
        ),
        anthropic_answer(thinking, redacted, cited),
    ]


def chat_says(tag: str) -> list[Json]:
    return [
        chat_answer(None, (f"call_{tag}_1", "weather", {"city": "Oslo"})),
        chat_answer(
            "Two more.",
            (f"functions.weather:{tag}", "weather", {"city": "Rome"}),
            (f"call_{tag}_3", "weather", {"city": "Bern"}),
        ),
        chat_answer("It rains."),
    ]


def responses_says(tag: str) -> list[Json]:
    def reasoning(at: int) -> Json:
        return {
            "type": "reasoning",
            "id": f"rs_{tag}_{at}",
            "summary": [{"type": "summary_text", "text": "Let me see."}],
            "encrypted_content": f"hidden-{tag}-{at}",
        }

    def call(at: int, city: str) -> Json:
        return {
            "type": "function_call",
            "id": f"fc_{tag}_{at}",
            "call_id": f"call_{tag}_{at}",
            "name": "weather",
            "arguments": f'{{"city": "{city}"}}',
            "status": "completed",
        }

    search = {
        "type": "web_search_call",
        "id": f"ws_{tag}",
        "status": "completed",
        "action": {"type": "search", "query": "q"},
    }
    cited = {
        "type": "url_citation",
        "url": "u",
        "title": "t",
        "start_index": 0,
        "end_index": 2,
    }

    def said(at: int, text: str) -> Json:
        part = {"type": "output_text", "text": text, "annotations": [cited], "logprobs": []}
        return {
            "type": "message",
            "id": f"msg_{tag}_{at}",
            "role": "assistant",
            "status": "completed",
            "content": [part],
        }

    return [
        responses_answer(reasoning(1), search, call(1, "Oslo")),
        responses_answer(reasoning(2), said(2, "Two more."), call(2, "Rome"), call(3, "Bern")),
        responses_answer(reasoning(3), said(3, "It rains.")),
    ]


class Party:
    """A provider and the model that asks it."""

    places = count()

    def __init__(self, server: HTTPServer, kind: str, version: str | None) -> None:
        place = f"/{kind}{next(self.places)}"
        settings: Json = {"api_key": "k", "max_retries": 0, "output_version": version}
        self.provider: StrictProvider
        self.model: Any
        if kind == "anthropic":
            self.provider = StrictAnthropic(server, place, *anthropic_says("a"))
            self.model = ChatAnthropic(
                model="claude-sonnet-5", base_url=self.provider.url, max_tokens=9, **settings
            )
        elif kind == "chat":
            self.provider = StrictOpenAIChat(server, place, *chat_says("c"))
            self.model = ChatOpenAI(model="gpt-5.5", base_url=self.provider.url, **settings)
        else:
            self.provider = StrictOpenAIResponses(server, place, *responses_says("r"))
            self.model = ChatOpenAI(
                model="gpt-5.5", base_url=self.provider.url, use_responses_api=True, **settings
            )
        self.bound = self.model.bind_tools([weather])

    def sent(self, history: list[BaseMessage]) -> list[BaseMessage]:
        """Return what a candidate of a fallback would be sent."""
        provider = provider_of(self.bound)
        assert provider is not None
        return for_provider(history, provider)

    def ask(self, history: list[BaseMessage], *, streamed: bool = False) -> AIMessage:
        """Ask for the next message."""
        sent = self.sent(history)
        said: AIMessage
        if streamed:
            first, *rest = self.bound.stream(sent)
            said = sum(rest, start=first)
        else:
            said = self.bound.invoke(sent)
        return said


def marked(text: str) -> list[str | Json]:
    """Return content that ChatAnthropic's users mark for its cache."""
    return [{"type": "text", "text": text, "cache_control": {"type": "ephemeral"}}]


QUESTION = [SystemMessage(marked("Be brief.")), HumanMessage(marked("Weather?"))]


def results(message: AIMessage, *, plain: bool = False) -> list[ToolMessage]:
    """Run the tools."""
    told = {call["id"] or "": weather.invoke(call["args"]) for call in message.tool_calls}
    return [
        ToolMessage(text if plain else marked(text), tool_call_id=name)
        for name, text in told.items()
    ]


PAIRS = [
    ("chat", "anthropic"),
    ("anthropic", "chat"),
    ("responses", "anthropic"),
    ("anthropic", "responses"),
]


@pytest.mark.parametrize("version", [None, "v1"], ids=["native", "v1"])
@pytest.mark.parametrize("pair", PAIRS, ids="-".join)
def test_a_tool_loop_goes_on_at_another_provider(
    httpserver: HTTPServer, pair: tuple[str, str], version: str | None
) -> None:
    """Round by round, and into the next turn, each reads what the other wrote."""
    first, second = (Party(httpserver, kind, version) for kind in pair)
    history: list[BaseMessage] = [*QUESTION]
    for party in (first, second) * 3:
        before = deepcopy(history)
        said = party.ask(history)
        assert history == before
        history += [said, *results(said)]
        if not said.tool_calls:
            assert said.text == "It rains."
            history.append(HumanMessage("And now?"))

    assert (first.provider.refused, second.provider.refused) == ([], [])
    assert [len(party.provider.requests) for party in (first, second)] == [3, 3]


@pytest.mark.parametrize("version", [None, "v1"], ids=["native", "v1"])
@pytest.mark.parametrize("pair", PAIRS[:2], ids="-".join)
def test_streamed_answers_are_read_like_any_other(
    httpserver: HTTPServer, pair: tuple[str, str], version: str | None
) -> None:
    """Chunks that were added up carry what streams leave in them: indexes, pieces of JSON."""
    first, second = (Party(httpserver, kind, version) for kind in pair)
    history: list[BaseMessage] = [*QUESTION]
    for party in (first, second) * 3:
        said = party.ask(history, streamed=True)
        history += [said, *results(said)]
        if not said.tool_calls:
            assert said.text == "It rains."
            history.append(HumanMessage("And now?"))

    assert (first.provider.refused, second.provider.refused) == ([], [])
    assert [len(party.provider.requests) for party in (first, second)] == [3, 3]


@pytest.mark.parametrize("kind", ["anthropic", "chat", "responses"])
def test_a_provider_reads_its_own_messages_untouched(httpserver: HTTPServer, kind: str) -> None:
    """What it wrote comes back to it whole: thinking, reasoning, searches."""
    party = Party(httpserver, kind, None)
    question = HumanMessage("Weather?")
    history: list[BaseMessage] = [question]
    for _ in range(3):
        assert party.sent(history) is history
        said = party.ask(history)
        history += [said, *results(said, plain=True)]
    assert party.provider.refused == []
    told = json.dumps(party.provider.requests[-1])
    for word in {"anthropic": ["signed-a"], "responses": ["hidden-r-2", "rs_r_1"]}.get(kind, []):
        assert word in told


@pytest.mark.parametrize("pair", PAIRS[1:], ids="-".join)
def test_without_it_the_other_provider_refuses(
    httpserver: HTTPServer, pair: tuple[str, str]
) -> None:
    """The stand-ins do say 400 to what LangChain's own converters let through."""
    first, second = (Party(httpserver, kind, None) for kind in pair)
    history: list[BaseMessage] = [HumanMessage("Weather?")]
    said = first.ask(history)
    history += [said, *results(said, plain=True)]
    with pytest.raises(ModelInvalidRequestError):
        second.bound.invoke(history)
    assert second.provider.refused


@pytest.mark.parametrize("reader", ["anthropic", "chat", "responses"])
def test_an_answer_without_text_is_left_out(httpserver: HTTPServer, reader: str) -> None:
    """Only thinking, only a search: there is nothing in it for another provider."""
    party = Party(httpserver, reader, None)
    thinking = {"type": "thinking", "thinking": "Hm.", "signature": "s"}
    search = {"type": "web_search_call", "id": "ws_1", "status": "completed"}
    writer, block = ("openai", search) if reader == "anthropic" else ("anthropic", thinking)
    empty = AIMessage([block], response_metadata={"model_provider": writer})
    history: list[BaseMessage] = [HumanMessage("One."), empty, HumanMessage("Two.")]
    party.ask(history)
    assert party.provider.refused == []


@pytest.mark.parametrize("reader", ["chat", "responses"])
def test_a_call_that_was_not_valid_json_is_paired_too(httpserver: HTTPServer, reader: str) -> None:
    """Its id is as long as any other, and its result says what was wrong."""
    party = Party(httpserver, reader, None)
    broken = invalid_tool_call(name="weather", args="{}", id=LONG_ID, error="no")
    asked = AIMessage(
        "", invalid_tool_calls=[broken], response_metadata={"model_provider": "anthropic"}
    )
    told = ToolMessage("That was no JSON.", tool_call_id=LONG_ID, status="error")
    party.ask([HumanMessage("Weather?"), asked, told])
    assert party.provider.refused == []
