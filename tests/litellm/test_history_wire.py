"""A loop of tools that changes its provider in the middle, behind a Router: strict providers.

Each provider refuses, as its API does, what others wrote; so a 400 is a history that did not move.
"""

from __future__ import annotations

import json
import re
from itertools import permutations
from typing import TYPE_CHECKING, Any

import pytest

from tests.helpers import wire
from tests.helpers.litellm_runs import ask_in, text_of
from tests.helpers.provider import Reply
from tests.helpers.strict import AnthropicRules, ChatRules, GoogleRules, ResponsesRules

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.helpers.provider import Provider, SeenRequest
    from tests.litellm.conftest import Bench

Json = dict[str, Any]

SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}}
FUNCTION = {"name": "thermometer", "parameters": SCHEMA}
CHAT_TOOL = {"type": "function", "function": FUNCTION}
CITIES = ("Lima", "Oslo")  # two calls at once
QUESTION = {"role": "user", "content": "Where is it warm?"}
SECRETS = ("secret", "c2VjcmV0", "__thought__")


def anthropic_calls() -> Json:
    """Signed thinking before a text and two calls."""
    calls = [
        wire.tool_use(f"toolu_{n}", "thermometer", {"city": city}) for n, city in enumerate(CITIES)
    ]
    thought = {"type": "thinking", "thinking": "hm", "signature": "secret"}
    return wire.message_answer(thought, wire.text_block("Let me see."), *calls)


def chat_calls() -> Json:
    """A text and two calls, whose ids Anthropic would refuse."""
    calls = [
        wire.chat_call(f"call:{n}", "thermometer", {"city": city}) for n, city in enumerate(CITIES)
    ]
    return wire.chat_answer("Let me see.", *calls)


def google_calls() -> Json:
    """A thought, a text and two calls, the first of them signed."""
    calls = [wire.function_call("thermometer", {"city": city}) for city in CITIES]
    calls[0]["thoughtSignature"] = "c2VjcmV0"
    return wire.gemini_answer({"text": "hm", "thought": True}, {"text": "Let me see."}, *calls)


def responses_calls() -> Json:
    """Reasoning that only the account can read, a text and two calls."""
    thought = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "secret"}
    calls = [
        wire.response_call(f"fc_{n}", f"call_{n}", "thermometer", {"city": city})
        for n, city in enumerate(CITIES)
    ]
    return wire.responses_answer(thought, wire.response_text("Let me see."), *calls)


CHATS: dict[str, tuple[str, Any, Callable[[], Json]]] = {
    "anthropic": ("anthropic/claude-sonnet-4-5", AnthropicRules, anthropic_calls),
    "gemini": ("gemini/gemini-3-pro-preview", GoogleRules, google_calls),
    "openai": ("openai/gpt-5.5", ChatRules, chat_calls),
}


def calls_until_answered(calls: Json) -> Callable[[SeenRequest], Reply]:
    """Answer with calls, and with a text once their results are there."""

    def standing(request: SeenRequest) -> Reply:
        answered = "Lima: 21" in json.dumps(request.body)
        return Reply(text="In Lima.") if answered else Reply(body=calls)

    return standing


def member(
    bench: Bench, rank: int, model: str, rules: Any, calls: Json
) -> tuple[Provider, dict[str, Any]]:
    """Start a strict provider that calls tools, and describe it as a deployment."""
    server = bench.providers.new(f"rank{rank}", rules=rules)
    server.standing = calls_until_answered(calls)
    return server, bench.deployment(server.name, rank, model=model, api_base=server.url)


def results_of(message: Any) -> list[Json]:
    """Answer the calls of a chat's message."""
    return [
        {"role": "tool", "tool_call_id": call.id, "content": f"{city}: 21"}
        for call, city in zip(message.tool_calls, CITIES, strict=True)
    ]


def goes_there_and_back(
    primary: Provider,
    fallback: Provider,
    ask: Callable[[list[Any]], Any],
    answered: Callable[[Any], list[Any]],
) -> None:
    """Ask the one that calls both tools, and then, with the results, the other; both ways round.

    Args:
        primary: Asked first; it is down when the results of its calls are there.
        fallback: Answers then, and calls both tools the second time.
        ask: Asks the chain, and returns an answer.
        answered: Makes of an answer what goes into the history, with the results of its calls.
    """
    history = [QUESTION, *answered(ask([QUESTION]))]
    before = str(history)
    primary.fail(503, times=1)
    assert "In Lima." in str(ask(history))  # the fallback's
    assert str(history) == before
    sent = json.dumps(fallback.bodies)
    assert all(text in sent for text in ("Let me see.", "Lima: 21", "Oslo: 21"))
    assert not [secret for secret in SECRETS if secret in sent]

    primary.fail(503, times=1)
    history = [QUESTION, *answered(ask([QUESTION]))]  # the fallback calls both tools
    assert "In Lima." in str(ask(history))  # the primary's
    assert not primary.refused + fallback.refused
    assert len(fallback.requests) == 2


@pytest.mark.parametrize("asks", ["sync", "async"])
@pytest.mark.parametrize(("here", "there"), [*permutations(CHATS, 2)])
def test_a_chat_goes_on_at_another_provider_and_comes_back(
    bench: Bench, here: str, there: str, asks: str
) -> None:
    """Each answers the other's calls, and gets nothing that the other alone can read."""
    servers: list[Provider] = []
    models: list[Json] = []
    for rank, name in enumerate((here, there)):
        model, rules, calls = CHATS[name]
        server, deployment = member(bench, rank, model, rules(), calls())
        if name == "anthropic":
            thinking = {"type": "enabled", "budget_tokens": 1024}
            deployment["litellm_params"].update(thinking=thinking, max_tokens=4096)
        servers.append(server)
        models.append(deployment)
    router, _ = bench.managed(models=models)

    def ask(history: list[Any]) -> Any:
        return ask_in(asks, router, messages=history, tools=[CHAT_TOOL]).choices[0].message

    primary, fallback = servers
    goes_there_and_back(primary, fallback, ask, lambda message: [message, *results_of(message)])


def goes_on_at_the_fallback(bench: Bench, primary: Provider, models: list[Json]) -> None:
    """Have the primary call both tools and then be down for their results."""
    router, _ = bench.managed(models=models)
    history: list[Any] = [QUESTION]
    message = ask_in("sync", router, messages=history, tools=[CHAT_TOOL]).choices[0].message
    history += [message, *results_of(message)]
    primary.fail(503, times=1)
    assert text_of(ask_in("sync", router, messages=history, tools=[CHAT_TOOL])) == "In Lima."


@pytest.mark.parametrize("message", ["hello", None])
def test_what_is_no_message_is_litellms_to_refuse(bench: Bench, message: Any) -> None:
    """A mistake in a request gets the words that it has without a chain of several providers."""
    _, first = member(bench, 0, CHATS["anthropic"][0], None, anthropic_calls())
    _, second = member(bench, 1, "openai/gpt-5.5", None, chat_calls())
    complaints: list[str] = []
    for models in ([first], [first, second]):
        router, _ = bench.managed(models=models)
        with pytest.raises(Exception) as caught:  # LiteLLM has many
            router.completion(model="deriver", messages=[message])
        complaints.append(str(caught.value).partition("\n")[0])
    assert complaints[0] == complaints[1]


def test_thinking_stays_with_claude_whoever_serves_it(bench: Bench) -> None:
    """The same model on another cloud reads the signatures of the first."""
    primary, first = member(bench, 0, CHATS["anthropic"][0], None, anthropic_calls())
    fallback, second = member(bench, 1, "bedrock/anthropic.claude-sonnet-4-5", None, {})
    region = {"aws_region_name": "us-east-1", "aws_bedrock_runtime_endpoint": fallback.url}
    second["litellm_params"].update(region)
    fallback.standing = Reply(body=wire.message_answer(wire.text_block("In Lima.")))
    goes_on_at_the_fallback(bench, primary, [first, second])
    assert "secret" in json.dumps(fallback.bodies)


def test_a_gateway_gets_its_own_reasoning_back(bench: Bench) -> None:
    """What OpenRouter wrote, signed by nobody, goes back to it and to nobody else."""
    calls = chat_calls()
    details = [{"type": "reasoning.encrypted", "data": "secret"}]
    calls["choices"][0]["message"]["reasoning_details"] = details
    primary, first = member(bench, 0, "openrouter/google/gemini-3-pro", None, calls)
    fallback, second = member(bench, 1, "openai/gpt-5.5", ChatRules(), chat_calls())
    goes_on_at_the_fallback(bench, primary, [first, second])
    assert "secret" in json.dumps(primary.bodies[-1])
    assert not fallback.refused


class MistralRules(ChatRules):
    """Mistral's chat API, as far as it differs."""

    def _faults(self, body: Json) -> list[str]:
        calls = [call for one in body["messages"] for call in one.get("tool_calls") or ()]
        ids = [call["id"] for call in calls if not re.fullmatch("[a-zA-Z0-9]{9}", call["id"])]
        return [*super()._faults(body), *(f"tool call id was {one}" for one in ids)]


def test_ids_of_calls_are_made_valid(bench: Bench) -> None:
    """Mistral takes ids of nine letters and digits, in calls and results alike."""
    primary, first = member(bench, 0, "openai/gpt-5.5", ChatRules(), chat_calls())
    fallback, second = member(bench, 1, "mistral/large", MistralRules(), chat_calls())
    goes_on_at_the_fallback(bench, primary, [first, second])
    assert not fallback.refused


@pytest.mark.parametrize("here", ["openai", "anthropic"])
def test_a_history_of_responses_goes_on_at_another_provider_and_comes_back(
    bench: Bench, here: str
) -> None:
    """Items of OpenAI's go to Anthropic without their reasoning, and LiteLLM's to OpenAI.

    Claude is asked to reason by LiteLLM, and refuses it behind calls of another.
    """
    kinds: dict[str, tuple[str, Any, Json]] = {
        "openai": ("openai/gpt-5.5", ResponsesRules(), responses_calls()),
        "anthropic": ("anthropic/claude-sonnet-4-5", AnthropicRules(), anthropic_calls()),
    }
    order = sorted(kinds, key=lambda name: name != here)
    members = [member(bench, rank, *kinds[name]) for rank, name in enumerate(order)]
    (primary, fallback), models = zip(*members, strict=True)
    router, _ = bench.managed(models=[*models])
    tool = {"type": "function", **FUNCTION}
    options: Json = {"tools": [tool], "reasoning": {"effort": "low"}, "max_output_tokens": 2048}

    def ask(history: list[Any]) -> Any:
        return ask_in("async", router, "responses", input=history, **options).output

    def answered(output: Any) -> list[Any]:
        calls = [item.call_id for item in output if item.type == "function_call"]
        results = [
            {"type": "function_call_output", "call_id": call_id, "output": f"{city}: 21"}
            for call_id, city in zip(calls, CITIES, strict=True)
        ]
        # LiteLLM turns dicts alone into messages.
        return [*(item.model_dump(exclude_none=True) for item in output), *results]

    # Who wrote it may have its reasoning back.
    assert "In Lima." in str(ask([QUESTION, *answered(ask([QUESTION]))]))
    assert "secret" in json.dumps(primary.bodies)
    goes_there_and_back(primary, fallback, ask, answered)
    claude = primary if here == "anthropic" else fallback
    others_calls = ["call_0" in json.dumps(body) for body in claude.bodies]
    assert ["thinking" not in body for body in claude.bodies] == others_calls


def test_a_history_of_messages_goes_on_at_another_provider_and_comes_back(bench: Bench) -> None:
    """Signed thinking in Anthropic's own format stays there; it is off for another's calls."""
    primary, first = member(bench, 0, CHATS["anthropic"][0], AnthropicRules(), anthropic_calls())
    fallback, second = member(bench, 1, "openai/gpt-5.5", ResponsesRules(), responses_calls())
    router, _ = bench.managed(models=[first, second])
    tool = {"name": "thermometer", "input_schema": SCHEMA}
    thinking = {"type": "enabled", "budget_tokens": 1024}
    options: Json = {"max_tokens": 2048, "tools": [tool], "thinking": thinking}

    def ask(history: list[Any]) -> Any:
        return ask_in("async", router, "anthropic_messages", messages=history, **options)[
            "content"
        ]

    def answered(content: list[Json]) -> list[Json]:
        calls = [block["id"] for block in content if block["type"] == "tool_use"]
        results = [
            {"type": "tool_result", "tool_use_id": call_id, "content": f"{city}: 21"}
            for call_id, city in zip(calls, CITIES, strict=True)
        ]
        return [{"role": "assistant", "content": content}, {"role": "user", "content": results}]

    goes_there_and_back(primary, fallback, ask, answered)
    assert [body.get("thinking") is None for body in primary.bodies] == [False] * 3 + [True]
