"""A loop of tools that changes its provider in the middle, behind a Router: strict providers.

Each provider refuses, as its API does, what others wrote; so a 400 is a history that did not move.
"""

from __future__ import annotations

import json
import re
from itertools import permutations
from typing import TYPE_CHECKING, Any, TypeAlias

import pytest

from tests.helpers import wire
from tests.helpers.litellm_runs import ask_in
from tests.helpers.provider import Reply
from tests.helpers.speakers import (
    CITIES,
    ENABLED,
    ROUNDS,
    Chat,
    Claude,
    Gemini,
    Responses,
    look_up,
    serve,
)
from tests.helpers.strict import ChatRules

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.helpers.provider import Provider
    from tests.litellm.conftest import Bench

Json = dict[str, Any]
Made: TypeAlias = tuple[str, Any, Json]
Ask: TypeAlias = "Callable[[list[Any]], Any]"
Answered: TypeAlias = "Callable[[Any], list[Any]]"

SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}}
FUNCTION = {"name": "look_up", "parameters": SCHEMA}
QUESTION = {"role": "user", "content": "Where is it warm?"}
SAYS = "Let me see."
SECRETS = ("signed-", "hidden-", "c2lnbmVk", "__thought__")
THINKING = {"thinking": ENABLED, "max_tokens": 4096}
# Of each provider: its model, what it writes, and what else a deployment says.
CLAUDE: Made = ("anthropic/claude-sonnet-4-5", Claude("interleaved"), {})
GPT: Made = ("openai/gpt-5.5", Chat("call:"), {})  # which Anthropic would refuse
CHATS: dict[str, Made] = {
    "anthropic": (*CLAUDE[:2], THINKING),
    "gemini": ("gemini/gemini-3-pro-preview", Gemini(), {}),
    "openai": GPT,
}


def members(
    bench: Bench, *made: Made, down: tuple[int, ...] = (0, 1, 0)
) -> tuple[list[Provider], list[Json]]:
    """Start strict providers that call tools, and describe them as deployments of a chain.

    By default the primary is down in the second call of three.
    """
    servers: list[Provider] = []
    models: list[Json] = []
    for rank, (model, speaks, params) in enumerate(made):
        name, outage = f"rank{rank}", () if rank else down
        servers.append(serve(bench.providers, name, speaks, outage, says=SAYS))
        url = servers[-1].url
        models.append(bench.deployment(name, rank, model=model, api_base=url, **params))
    return servers, models


def go_through(ask: Ask, answered: Answered, rounds: int = ROUNDS) -> str:
    """Ask, and ask again with the results of the calls, which changes no history of the caller's.

    Args:
        ask: Asks the chain, and returns an answer.
        answered: Makes of an answer what goes into the history, with the results of its calls.
        rounds: How often the model is asked.

    Returns:
        The last answer.
    """
    history: list[Any] = [QUESTION]
    answer: Any = None
    for _ in range(rounds):
        before = str(history)
        answer = ask(history)
        assert str(history) == before
        history += answered(answer)
    return str(answer)


def goes_there_and_back(servers: list[Provider], ask: Ask, answered: Answered) -> None:
    """Go through three calls of the model, of which the second is the fallback's."""
    primary, fallback = servers
    assert "It rains." in go_through(ask, answered)
    sent = json.dumps(fallback.bodies)
    assert all(text in sent for text in (SAYS, *map(look_up, CITIES)))
    assert not [secret for secret in SECRETS if secret in sent]
    assert not primary.refused + fallback.refused
    assert len(fallback.requests) == 1


def chat_of(router: Any, asks: str = "sync") -> Ask:
    tools = [{"type": "function", "function": FUNCTION}]

    def ask(history: list[Any]) -> Any:
        return ask_in(asks, router, messages=history, tools=tools).choices[0].message

    return ask


def chat_results(message: Any) -> list[Any]:
    """Return a chat's message with the results of its calls."""
    results = [
        {"role": "tool", "tool_call_id": call.id, "content": look_up(city)}
        for call, city in zip(message.tool_calls or (), CITIES, strict=False)
    ]
    return [message, *results]


@pytest.mark.parametrize("asks", ["sync", "async"])
@pytest.mark.parametrize(("here", "there"), [*permutations(CHATS, 2)])
def test_a_chat_goes_on_at_another_provider_and_comes_back(
    bench: Bench, here: str, there: str, asks: str
) -> None:
    """Each answers the other's calls, and gets nothing that the other alone can read."""
    servers, models = members(bench, CHATS[here], CHATS[there])
    router, _ = bench.managed(models=models)
    goes_there_and_back(servers, chat_of(router, asks), chat_results)


@pytest.mark.parametrize("message", ["hello", None])
def test_what_is_no_message_is_litellms_to_refuse(bench: Bench, message: Any) -> None:
    """A mistake in a request gets the words that it has without a chain of several providers."""
    _, models = members(bench, CLAUDE, GPT)
    complaints: list[str] = []
    for some in (models[:1], models):
        router, _ = bench.managed(models=some)
        with pytest.raises(Exception) as caught:  # LiteLLM has many
            router.completion(model="deriver", messages=[message])
        complaints.append(str(caught.value).partition("\n")[0])
    assert complaints[0] == complaints[1]


def go_on_at_the_fallback(bench: Bench, models: list[Json]) -> str:
    """Have the primary call both tools and then be down for their results."""
    router, _ = bench.managed(models=models)
    return go_through(chat_of(router), chat_results, rounds=2)


def test_thinking_stays_with_claude_whoever_serves_it(bench: Bench) -> None:
    """The same model on another cloud reads the signatures of the first."""
    bedrock = ("bedrock/anthropic.claude-sonnet-4-5", Claude(), THINKING)
    (_, fallback), models = members(bench, CHATS["anthropic"], bedrock)
    region = {"aws_region_name": "us-east-1", "aws_bedrock_runtime_endpoint": fallback.url}
    models[1]["litellm_params"].update(region)
    fallback.standing = Reply(body=wire.message_answer(wire.text_block("It rains.")))
    fallback.rules = None
    assert "It rains." in go_on_at_the_fallback(bench, models)
    assert "signed-0" in json.dumps(fallback.bodies)


class Gateway(Chat):
    """OpenRouter, with reasoning that nobody has signed."""

    def calls(self, body: Json, says: str = "") -> Json:
        calls = super().calls(body, says)
        details = [{"type": "reasoning.encrypted", "data": "hidden-there"}]
        calls["choices"][0]["message"]["reasoning_details"] = details
        return calls


def test_a_gateway_gets_its_own_reasoning_back(bench: Bench) -> None:
    """What OpenRouter wrote, signed by nobody, goes back to it and to nobody else."""
    gateway: Made = ("openrouter/google/gemini-3-pro", Gateway(), {})
    (primary, fallback), models = members(bench, gateway, GPT)
    primary.rules = None
    go_on_at_the_fallback(bench, models)
    assert "hidden-there" in json.dumps(primary.bodies[-1])
    assert len(fallback.requests) == 1
    assert not fallback.refused


class MistralRules(ChatRules):
    """Mistral's chat API, as far as it differs."""

    def _faults(self, body: Json) -> list[str]:
        calls = [call for one in body["messages"] for call in one.get("tool_calls") or ()]
        ids = [call["id"] for call in calls if not re.fullmatch("[a-zA-Z0-9]{9}", call["id"])]
        return [*super()._faults(body), *(f"tool call id was {one}" for one in ids)]


def test_ids_of_calls_are_made_valid(bench: Bench) -> None:
    """Mistral takes ids of nine letters and digits, in calls and results alike."""
    (_, fallback), models = members(bench, GPT, ("mistral/large", Chat(), {}))
    fallback.rules = MistralRules()
    go_on_at_the_fallback(bench, models)
    assert len(fallback.requests) == 1
    assert not fallback.refused


@pytest.mark.parametrize("here", ["openai", "anthropic"])
def test_a_history_of_responses_goes_on_at_another_provider_and_comes_back(
    bench: Bench, here: str
) -> None:
    """Items of OpenAI's go to Anthropic without their reasoning, and LiteLLM's to OpenAI.

    Claude is asked to reason by LiteLLM, and refuses it behind calls of another.
    """
    made: dict[str, Made] = {"openai": (GPT[0], Responses(), {}), "anthropic": CLAUDE}
    order = sorted(made, key=lambda name: name != here)
    down = (*(0,) * ROUNDS, 0, 1, 0)
    servers, models = members(bench, *map(made.__getitem__, order), down=down)
    router, _ = bench.managed(models=models)
    tool = {"type": "function", **FUNCTION}
    options: Json = {"tools": [tool], "reasoning": {"effort": "low"}, "max_output_tokens": 2048}

    def ask(history: list[Any]) -> Any:
        return ask_in("async", router, "responses", input=history, **options).output

    def answered(output: Any) -> list[Any]:
        calls = [item.call_id for item in output if item.type == "function_call"]
        results = [
            {"type": "function_call_output", "call_id": call_id, "output": look_up(city)}
            for call_id, city in zip(calls, CITIES, strict=False)
        ]
        # LiteLLM turns dicts alone into messages.
        return [*(item.model_dump(exclude_none=True) for item in output), *results]

    # Who wrote it may have its reasoning back.
    assert "It rains." in go_through(ask, answered)
    assert any(secret in json.dumps(servers[0].bodies) for secret in SECRETS)
    goes_there_and_back(servers, ask, answered)
    claude = servers[order.index("anthropic")]
    others_calls = ["call_" in json.dumps(body) for body in claude.bodies]
    assert ["thinking" not in body for body in claude.bodies] == others_calls


def test_a_history_of_messages_goes_on_at_another_provider_and_comes_back(bench: Bench) -> None:
    """Signed thinking in Anthropic's own format stays there; it is off for another's calls."""
    servers, models = members(bench, CLAUDE, (GPT[0], Responses(), {}))
    router, _ = bench.managed(models=models)
    tool = {"name": "look_up", "input_schema": SCHEMA}
    options: Json = {"max_tokens": 2048, "tools": [tool], "thinking": ENABLED}

    def ask(history: list[Any]) -> Any:
        return ask_in("async", router, "anthropic_messages", messages=history, **options)[
            "content"
        ]

    def answered(content: list[Json]) -> list[Json]:
        calls = [block["id"] for block in content if block["type"] == "tool_use"]
        results = [
            {"type": "tool_result", "tool_use_id": call_id, "content": look_up(city)}
            for call_id, city in zip(calls, CITIES, strict=False)
        ]
        return [{"role": "assistant", "content": content}, {"role": "user", "content": results}]

    goes_there_and_back(servers, ask, answered)
    thinks = [body.get("thinking") is not None for body in servers[0].bodies]
    assert thinks == [True, True, False]
