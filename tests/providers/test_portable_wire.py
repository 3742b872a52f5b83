"""A loop of tools that changes its provider in the middle: real SDKs, strict providers, loopback.

Each provider remembers what it wrote and refuses, as its API does, whatever else stands in a
history; so a 400 is a history that could not move.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, ClassVar

import anthropic
import openai
import pytest
from google import genai
from google.genai.types import HttpOptions

from honcho_fallback import FallbackConfigError, FallbackPolicy, Target
from honcho_fallback.providers import can_think, portable
from tests.helpers import speakers, wire
from tests.helpers.speakers import CITIES, ROUNDS, look_up, serve
from tests.helpers.strict import AnthropicRules

if TYPE_CHECKING:
    from honcho_fallback import Attempt
    from tests.helpers.provider import ProviderServer

Json = dict[str, Any]

SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}}
QUESTION, SAYS = "Where is it warm?", "Let me see."


class OpenAIChat:
    """Chat Completions."""

    name, speaks = "openai", speakers.Chat()
    secrets: tuple[str, ...] = ()
    question: ClassVar[Json] = {"role": "user", "content": QUESTION}

    def ask(self, url: str, history: list[Any]) -> Any:
        function: Any = {"name": "look_up", "parameters": SCHEMA}
        client = openai.OpenAI(base_url=url, api_key="k", max_retries=0)
        return client.chat.completions.create(
            model="m", messages=history, tools=[{"type": "function", "function": function}]
        )

    def history(self, answer: Any) -> list[Any]:
        message = answer.choices[0].message
        results = [
            {"role": "tool", "tool_call_id": call.id, "content": look_up(city)}
            for call, city in zip(message.tool_calls or [], CITIES, strict=False)
        ]
        return [message, *results]


class Responses:
    """Responses, with reasoning that only the account can read."""

    name, speaks = "openai-responses", speakers.Responses()
    secrets = ("hidden-", '"rs_', '"fc_')
    question: ClassVar[Json] = {"role": "user", "content": QUESTION}

    def ask(self, url: str, history: list[Any]) -> Any:
        client = openai.OpenAI(base_url=url, api_key="k", max_retries=0)
        tool: Any = {"type": "function", "name": "look_up", "parameters": SCHEMA}
        return client.responses.create(model="m", input=history, tools=[tool], store=False)

    def history(self, answer: Any) -> list[Any]:
        calls = [item for item in answer.output if item.type == "function_call"]
        results = [
            {"type": "function_call_output", "call_id": call.call_id, "output": look_up(city)}
            for call, city in zip(calls, CITIES, strict=False)
        ]
        return [*answer.output, *results]


class Anthropic:
    """Messages, with signed thinking and a cache marker."""

    name, speaks = "anthropic", speakers.Claude("interleaved")
    secrets = ("signed-", "cache_control")
    question: ClassVar[Json] = {
        "role": "user",
        "content": [{"type": "text", "text": QUESTION, "cache_control": {"type": "ephemeral"}}],
    }

    def ask(self, url: str, history: list[Any]) -> Any:
        client = anthropic.Anthropic(base_url=url, api_key="k", max_retries=0)
        tool: Any = {"name": "look_up", "input_schema": SCHEMA}
        thinking: Any = self.speaks.thinking
        if not can_think(history):
            history = portable(history, made_by="anthropic", for_="anthropic")
            thinking = {"type": "disabled"}
        return client.messages.create(
            model="m", max_tokens=2048, messages=history, tools=[tool], thinking=thinking
        )

    def history(self, answer: Any) -> list[Any]:
        calls = [block for block in answer.content if block.type == "tool_use"]
        results = [
            {"type": "tool_result", "tool_use_id": call.id, "content": look_up(city)}
            for call, city in zip(calls, CITIES, strict=False)
        ]
        said = {"role": "assistant", "content": answer.content}
        return [said, *[{"role": "user", "content": results}] * bool(results)]


class Google:
    """generateContent, whose calls have a signature and no id."""

    name, speaks = "google", speakers.Gemini()
    secrets = ("c2lnbmVk",)
    question: ClassVar[Json] = {"role": "user", "parts": [{"text": QUESTION}]}

    def ask(self, url: str, history: list[Any]) -> Any:
        client = genai.Client(api_key="k", http_options=HttpOptions(base_url=url))
        function = {"name": "look_up", "parameters_json_schema": SCHEMA}
        config: Any = {"tools": [{"function_declarations": [function]}]}
        return client.models.generate_content(model="m", contents=history, config=config)

    def history(self, answer: Any) -> list[Any]:
        results = [
            {"function_response": {"name": "look_up", "response": {"result": look_up(city)}}}
            for city in CITIES[: len(answer.function_calls or [])]
        ]
        said = answer.candidates[0].content
        return [said, *[{"role": "user", "parts": results}] * bool(results)]


SDKS: dict[str, Any] = {
    one.name: one for one in (OpenAIChat(), Responses(), Anthropic(), Google())
}


@pytest.mark.parametrize("fallback", SDKS)
@pytest.mark.parametrize("primary", SDKS)
@pytest.mark.parametrize("down", [(1,), (0, 1), (0, 0, 1)])
def test_a_loop_of_tools_goes_on_at_another_provider_and_comes_back(
    providers: ProviderServer, primary: str, fallback: str, down: tuple[int, ...]
) -> None:
    """The fallback takes the primary's history, the primary what the fallback called and said."""
    here, there = SDKS[primary], SDKS[fallback]
    one = serve(providers, "primary", here.speaks, down, says=SAYS)
    other = serve(providers, "fallback", there.speaks, says=SAYS)
    policy = FallbackPolicy([Target("m", "one"), Target("m", "two")])

    def ask(attempt: Attempt) -> Any:
        if not attempt.is_fallback:
            return here.ask(one.url, history)
        return there.ask(other.url, portable(history, made_by=primary, for_=fallback))

    history, answer = [here.question], None
    for _ in range(ROUNDS):
        run = policy.start()
        answer = policy.call(ask, run=run)
        if run.record.is_fallback:
            history += portable(there.history(answer), made_by=fallback, for_=primary)
        else:
            history += here.history(answer)
    assert answer is not None
    assert "It rains." in answer.model_dump_json()
    sent = json.dumps(other.bodies)
    assert all(word in sent for word in (QUESTION, *[SAYS, *map(look_up, CITIES)] * (not down[0])))
    assert not [secret for secret in here.secrets + there.secrets if secret in sent]

    # What the fallback said is in the primary's history, and nothing that only it can read.
    history += portable([{"role": "user", "content": "Why?"}], made_by="openai", for_=primary)
    assert "It rains." in policy.call(ask).model_dump_json()
    assert not one.refused + other.refused
    back = json.dumps(one.bodies[-1])
    assert all(back.count(word) == ROUNDS - 1 for word in (SAYS, *map(look_up, CITIES)))
    assert not [secret for secret in {*there.secrets} - {*here.secrets} if secret in back]


ASKED = {"role": "user", "content": QUESTION}
SAID = {"role": "assistant", "content": "Lima."}


def round_of(call: str, *, thought: bool) -> dict[str, list[Json]]:
    """Return a call and its result in each format, with a thought before it or without.

    Anthropic's own, a chat as LiteLLM writes it, and items of the Responses API.
    """
    function = {"name": "f", "arguments": "{}"}
    thoughts = [{"type": "thinking", "thinking": "hm", "signature": "s"}] * thought
    blocks = [*thoughts, wire.tool_use(call, "thermometer", {"city": "Lima"})]
    result = {"type": "tool_result", "tool_use_id": call, "content": "21"}
    chat = {"tool_calls": [{"id": call, "type": "function", "function": function}]}
    return {
        "anthropic": [
            {"role": "assistant", "content": blocks},
            {"role": "user", "content": [result]},
        ],
        "openai": [
            {"role": "assistant", **chat, **({"thinking_blocks": thoughts} if thought else {})},
            {"role": "tool", "tool_call_id": call, "content": "21"},
        ],
        "openai-responses": [
            *[{"type": "reasoning", "summary": []}] * thought,
            {"type": "function_call", "call_id": call, **function},
            {"type": "function_call_output", "call_id": call, "output": "21"},
        ],
    }


@pytest.mark.parametrize(
    ("calls", "may"),
    [
        ([("toolu_1", True)], True),
        ([("toolu_1", True), ("toolu_2", True)], True),
        # It thinks at the start of a turn alone, unless its thoughts are interleaved with calls.
        ([("toolu_1", True), ("toolu_2", False)], True),
        ([("toolu_1", True), ("toolu_2", False), ("toolu_3", False)], True),
        ([("toolu_1", False)], False),
        ([("call_1", False)], False),
        ([("toolu_1", True), ("call_2", False)], False),
        ([("call_1", False), ("toolu_2", True)], False),
    ],
)
def test_claude_thinks_in_a_turn_that_it_began(
    providers: ProviderServer, calls: list[tuple[str, bool]], may: bool
) -> None:
    """And that nobody else went on with, in each format; in the next turn it thinks again."""
    rounds = [round_of(call, thought=thought) for call, thought in calls]
    for made_by in rounds[0]:
        history = [ASKED, *(one for each in rounds for one in each[made_by])]
        assert can_think(history, made_by=made_by) is may, made_by
        assert can_think([*history, SAID, ASKED], made_by=made_by)

    rules = AnthropicRules()
    rules.wrote |= {"s", "toolu_1", "toolu_2", "toolu_3"}
    said = [one for each in rounds for one in each["anthropic"]]
    Anthropic().ask(providers.new("claude", rules=rules).url, [Anthropic.question, *said])
    assert not providers["claude"].refused


def test_whether_claude_may_think_is_asked_in_a_format_that_it_speaks() -> None:
    """Google's has no thoughts of Claude's; in others' formats a thought is whose it says."""
    with pytest.raises(FallbackConfigError, match="made_by"):
        can_think([], made_by="google")
    for made_by in ("openai", "openai-responses"):
        rounds = [round_of(call, thought=True)[made_by] for call in ("toolu_1", "call_2")]
        assert can_think([ASKED, *rounds[0], *rounds[1]], made_by=made_by)
