"""The same tool-call id twice in one history (AN-011)."""

from __future__ import annotations

import re
from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.messages.tool import invalid_tool_call, tool_call

from honcho_fallback_langchain import FallbackChatModel
from tests.helpers.chat_models import model_at
from tests.helpers.histories import sent_to
from tests.helpers.strict import AnthropicRules, ChatRules

READERS = ["anthropic", "amazon_bedrock", "mistral", "openai"]


def calls(*ids: str) -> AIMessage:
    return AIMessage("", tool_calls=[tool_call(name="f", args={}, id=one) for one in ids])


def result(call_id: str, text: str = "R.") -> ToolMessage:
    return ToolMessage(text, tool_call_id=call_id)


def test_a_result_belongs_to_the_latest_call() -> None:
    """A call without a result, such as of a turn that was cancelled, takes nobody else's."""
    history = [calls("a"), HumanMessage("Never mind."), calls("a"), result("a")]
    sent = sent_to("anthropic", history)
    again, answer = sent[2:]
    assert isinstance(again, AIMessage)
    assert isinstance(answer, ToolMessage)
    assert again.tool_calls[0]["id"] == answer.tool_call_id != "a"


def test_blocks_and_invalid_calls_are_renamed_alike() -> None:
    """What stands in the content is the call that is listed, and goes where it has a new id."""
    block = {"type": "tool_use", "id": "a", "name": "f", "input": {}}
    listed = [tool_call(name="f", args={}, id="a")]
    broken = [invalid_tool_call(name="f", args="{", id="a", error=None)]
    answer = {"type": "tool_result", "tool_use_id": "a", "content": "R."}
    history: list[BaseMessage] = [
        AIMessage([block], tool_calls=listed),
        HumanMessage([answer]),
        AIMessage([block], tool_calls=listed),
        HumanMessage([answer]),
        AIMessage([block], tool_calls=listed),
        result("a"),
        AIMessage("", invalid_tool_calls=broken),
    ]
    sent: list[Any] = sent_to("anthropic", history)
    first, second, third, fourth = (sent[place] for place in (0, 2, 4, 6))
    assert first.content == [block]
    assert second.content == third.content == ""
    assert second.tool_calls[0]["id"] == sent[3].content[0]["tool_use_id"]
    assert third.tool_calls[0]["id"] == sent[5].tool_call_id
    names = {
        "a",
        second.tool_calls[0]["id"],
        third.tool_calls[0]["id"],
        fourth.invalid_tool_calls[0]["id"],
    }
    assert len(names) == 4


def test_a_result_and_its_block_are_one_result() -> None:
    """Parallel calls under one id: a result that says its id twice takes one of theirs."""
    told = [
        ToolMessage([{"type": "tool_result", "tool_use_id": "a"}], tool_call_id="a")
        for _ in range(2)
    ]
    sent: list[Any] = sent_to("anthropic", [calls("a", "a"), *told])
    ids = [call["id"] for call in sent[0].tool_calls]
    assert [one.tool_call_id for one in sent[1:]] == ids
    assert [one.content[0]["tool_use_id"] for one in sent[1:]] == ids


def test_a_block_of_another_call_is_left_alone() -> None:
    """What a tool's message says of a call that is not its own keeps its id."""
    told = ToolMessage([{"type": "tool_result", "tool_use_id": "b"}], tool_call_id="a")
    sent: list[Any] = sent_to("anthropic", [calls("a"), result("a"), calls("a"), told])
    assert sent[3].tool_call_id == sent[2].tool_calls[0]["id"] != "a"
    assert sent[3].content[0]["tool_use_id"] == "b"


PATTERNS = {
    "anthropic": r"[a-zA-Z0-9_-]+",
    "amazon_bedrock": r"[a-zA-Z0-9_-]{1,64}",
    "mistral": r"[a-zA-Z0-9]{9}",
    "openai": r"(?s).{1,40}",
}
ROUNDS = st.lists(  # the ids of each answer's calls, and how many of these were not valid JSON
    st.tuples(
        st.lists(st.sampled_from(["a", "b", "a.b:0", "step00000", "x" * 70]), max_size=4),
        st.integers(0, 4),
    ),
    max_size=5,
)


@settings(deadline=None)  # speed is not the point
@given(ROUNDS, st.sampled_from(READERS))
def test_ids_are_valid_and_distinct_in_every_history(
    rounds: list[tuple[list[str], int]], reader: str
) -> None:
    """Across turns, with parallel and broken calls: each result keeps its call, once is enough."""
    history: list[BaseMessage] = []
    for ids, broken in rounds:
        valid, invalid = ids[broken:], ids[:broken]
        answer = calls(*valid)
        answer.invalid_tool_calls = [
            invalid_tool_call(name="f", args="{", id=one, error=None) for one in invalid
        ]
        results = [result(one, str(at)) for at, one in enumerate([*valid, *invalid])]
        history += [HumanMessage("Q."), answer, *results]
    before = deepcopy(history)

    sent = sent_to(reader, history)

    assert history == before
    assert sent_to(reader, sent) is sent
    answers = [one for one in sent if isinstance(one, AIMessage)]
    ids_of = [
        [call["id"] for call in (*one.tool_calls, *one.invalid_tool_calls)] for one in answers
    ]
    every = [one or "" for ids in ids_of for one in ids]
    assert len({*every}) == len(every)
    assert all(re.fullmatch(PATTERNS[reader], one) for one in every)
    told = [one for one in sent if isinstance(one, ToolMessage)]
    assert [one.tool_call_id for one in told] == every
    assert [one.content for one in told] == [
        one.content for one in history if isinstance(one, ToolMessage)
    ]


@pytest.mark.parametrize("reader", ["google_genai", "house"])
def test_who_does_not_look_at_ids_gets_them_as_they_are(reader: str) -> None:
    """Gemini goes by names, and of a server that is not known nothing is assumed."""
    history = [calls("a"), result("a"), calls("a"), result("a")]
    assert sent_to(reader, history) is history


@pytest.mark.parametrize(("name", "rules"), [("openai", ChatRules), ("anthropic", AnthropicRules)])
def test_strict_providers_accept_the_history(name: str, rules: Any, providers: Any) -> None:
    """AN-011 on the wire: two rounds under one id, asked of whoever did not write them."""
    provider = providers.new(name, rules=rules())
    dead = providers.new("openai-dead")
    dead.fail(503)
    model = FallbackChatModel(model_at(dead), model_at(provider))
    history = [HumanMessage("Q."), calls("a", "a"), result("a", "1"), result("a", "2")]
    model.bind_tools(
        [{"name": "f", "description": "F.", "parameters": {"type": "object"}}]
    ).invoke([*history, calls("a"), result("a", "3")])
    assert not provider.refused
    assert len(provider.requests) == 1
