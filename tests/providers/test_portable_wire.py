"""A loop of tools that changes its provider in the middle: real SDKs, strict providers, loopback.

Each provider remembers what it wrote and refuses, as its API does, whatever else stands in a
history; so a 400 is a history that could not move.
"""

from __future__ import annotations

import json
from itertools import permutations
from typing import TYPE_CHECKING, Any, ClassVar

import anthropic
import openai
import pytest
from google import genai
from google.genai.types import HttpOptions

from honcho_fallback import FallbackConfigError, FallbackPolicy, Target
from honcho_fallback.providers import can_think, portable
from tests.helpers import wire
from tests.helpers.provider import Reply
from tests.helpers.strict import AnthropicRules, ChatRules, GoogleRules, ResponsesRules

if TYPE_CHECKING:
    from honcho_fallback import Attempt
    from tests.helpers.provider import ProviderServer, SeenRequest

Json = dict[str, Any]

SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}}
CITIES = ("Lima", "Oslo")  # two calls at once
QUESTION = "Where is it warm?"


class OpenAIChat:
    """Chat Completions."""

    name, rules = "openai", ChatRules
    question: ClassVar[Json] = {"role": "user", "content": QUESTION}

    def ask(self, url: str, history: list[Any]) -> Any:
        function: Any = {"name": "thermometer", "parameters": SCHEMA}
        client = openai.OpenAI(base_url=url, api_key="k", max_retries=0)
        return client.chat.completions.create(
            model="m", messages=history, tools=[{"type": "function", "function": function}]
        )

    def history(self, answer: Any) -> list[Any]:
        message = answer.choices[0].message
        results = [
            {"role": "tool", "tool_call_id": call.id, "content": f"{city}: 21"}
            for call, city in zip(message.tool_calls, CITIES, strict=True)
        ]
        return [message, *results]

    def calls(self) -> Json:
        calls = [
            wire.chat_call(f"call:{n}", "thermometer", {"city": c}) for n, c in enumerate(CITIES)
        ]
        return wire.chat_answer("Let me see.", *calls)


class Responses:
    """Responses, with reasoning that only the account can read."""

    name, rules = "openai-responses", ResponsesRules
    question: ClassVar[Json] = {"role": "user", "content": QUESTION}

    def ask(self, url: str, history: list[Any]) -> Any:
        client = openai.OpenAI(base_url=url, api_key="k", max_retries=0)
        tool: Any = {"type": "function", "name": "thermometer", "parameters": SCHEMA}
        return client.responses.create(model="m", input=history, tools=[tool], store=False)

    def history(self, answer: Any) -> list[Any]:
        calls = [item for item in answer.output if item.type == "function_call"]
        results = [
            {"type": "function_call_output", "call_id": call.call_id, "output": f"{city}: 21"}
            for call, city in zip(calls, CITIES, strict=True)
        ]
        return [*answer.output, *results]

    def calls(self) -> Json:
        thought = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "secret"}
        calls = [
            wire.response_call(f"fc_{n}", f"call_{n}", "thermometer", {"city": city})
            for n, city in enumerate(CITIES)
        ]
        return wire.responses_answer(thought, wire.response_text("Let me see."), *calls)


class Anthropic:
    """Messages, with signed thinking and a cache marker."""

    name, rules = "anthropic", AnthropicRules
    question: ClassVar[Json] = {
        "role": "user",
        "content": [{"type": "text", "text": QUESTION, "cache_control": {"type": "ephemeral"}}],
    }

    def ask(self, url: str, history: list[Any]) -> Any:
        client = anthropic.Anthropic(base_url=url, api_key="k", max_retries=0)
        tool: Any = {"name": "thermometer", "input_schema": SCHEMA}
        thinking: Any = {"type": "enabled", "budget_tokens": 1024}
        if not can_think(history):
            history = portable(history, made_by="anthropic", for_="anthropic")
            thinking = {"type": "disabled"}
        return client.messages.create(
            model="m",
            max_tokens=2048,
            messages=history,
            tools=[tool],
            thinking=thinking,
        )

    def history(self, answer: Any) -> list[Any]:
        calls = [block for block in answer.content if block.type == "tool_use"]
        results = [
            {"type": "tool_result", "tool_use_id": call.id, "content": f"{city}: 21"}
            for call, city in zip(calls, CITIES, strict=True)
        ]
        said = {"role": "assistant", "content": answer.content}
        return [said, {"role": "user", "content": results}]

    def calls(self) -> Json:
        thought = {"type": "thinking", "thinking": "hm", "signature": "secret"}
        calls = [
            wire.tool_use(f"toolu_{n}", "thermometer", {"city": c}) for n, c in enumerate(CITIES)
        ]
        return wire.message_answer(thought, wire.text_block("Let me see."), *calls)


class Google:
    """generateContent, whose calls have a signature and no id."""

    name, rules = "google", GoogleRules
    question: ClassVar[Json] = {"role": "user", "parts": [{"text": QUESTION}]}

    def ask(self, url: str, history: list[Any]) -> Any:
        client = genai.Client(api_key="k", http_options=HttpOptions(base_url=url))
        function = {"name": "thermometer", "parameters_json_schema": SCHEMA}
        config: Any = {"tools": [{"function_declarations": [function]}]}
        return client.models.generate_content(model="m", contents=history, config=config)

    def history(self, answer: Any) -> list[Any]:
        results = [
            {"function_response": {"name": "thermometer", "response": {"result": f"{city}: 21"}}}
            for city in CITIES
        ]
        return [answer.candidates[0].content, {"role": "user", "parts": results}]

    def calls(self) -> Json:
        calls = [wire.function_call("thermometer", {"city": city}) for city in CITIES]
        calls[0]["thoughtSignature"] = "c2VjcmV0"
        thought = {"text": "hm", "thought": True}
        return wire.gemini_answer(thought, {"text": "Let me see."}, *calls)


SDKS = {one.name: one for one in (OpenAIChat(), Responses(), Anthropic(), Google())}
SECRETS = ("secret", "c2VjcmV0", "cache_control", "rs_1", "fc_0")


def once(reply: Json) -> Any:
    """Answer with calls first, and with a text once their results are there."""

    def standing(request: SeenRequest) -> Reply:
        asked = json.dumps(request.body)
        return Reply(text="In Lima.") if "Lima: 21" in asked else Reply(body=reply)

    return standing


@pytest.mark.parametrize(
    ("primary", "fallback"),
    [*permutations(SDKS, 2), *((name, name) for name in SDKS)],
)
def test_a_loop_of_tools_goes_on_at_another_provider_and_comes_back(
    providers: ProviderServer, primary: str, fallback: str
) -> None:
    """The fallback takes the primary's history, the primary what the fallback answered."""
    here, there = SDKS[primary], SDKS[fallback]
    one = providers.new("primary", rules=here.rules())
    other = providers.new("fallback", rules=there.rules())
    one.standing, other.standing = once(here.calls()), Reply(text="In Lima.")
    policy = FallbackPolicy([Target("m", "one", client=here), Target("m", "two", client=there)])

    def ask(attempt: Attempt) -> Any:
        if not attempt.is_fallback:
            return here.ask(one.url, history)
        return there.ask(other.url, portable(history, made_by=primary, for_=fallback))

    history: list[Any] = [here.question]
    history += here.history(policy.call(ask))  # the primary calls both tools
    one.fail(503, times=1)
    answer = policy.call(ask)  # and is down for their results
    assert "In Lima." in answer.model_dump_json()
    sent = json.dumps(other.bodies)
    assert all(word in sent for word in (QUESTION, "Let me see.", "Lima: 21", "Oslo: 21"))
    assert not [secret for secret in SECRETS if secret in sent]

    # What the fallback said goes into the primary's history.
    said = [{"role": "assistant", "content": "In Lima."}]
    history += portable(said, made_by="openai", for_=primary)
    history += portable([{"role": "user", "content": "Why?"}], made_by="openai", for_=primary)
    assert "In Lima." in policy.call(ask).model_dump_json()
    assert not one.refused + other.refused
    assert len(one.requests) == 3


@pytest.mark.parametrize(("primary", "fallback"), [*permutations(SDKS, 2)])
def test_calls_of_the_fallback_are_answered_at_the_primary(
    providers: ProviderServer, primary: str, fallback: str
) -> None:
    """Tools in flight in the other direction: the fallback called them, the primary is back."""
    here, there = SDKS[primary], SDKS[fallback]
    one = providers.new("primary", rules=here.rules())
    other = providers.new("fallback", rules=there.rules())
    other.standing = Reply(body=there.calls())
    first = there.ask(other.url, portable([here.question], made_by=primary, for_=fallback))
    history = [here.question]
    history += portable(there.history(first), made_by=fallback, for_=primary)
    answer = here.ask(one.url, history)
    assert f"hello from {one.name}" in answer.model_dump_json()
    assert not one.refused + other.refused
    assert not [secret for secret in SECRETS[:2] if secret in json.dumps(one.bodies)]


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
