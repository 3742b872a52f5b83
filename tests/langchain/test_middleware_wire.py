"""Agents over the real SDKs: one request at the dead primary, and histories both sides accept."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Literal

import pytest
from langchain_anthropic.middleware import AnthropicPromptCachingMiddleware
from langchain_core.messages import HumanMessage, SystemMessage

from honcho_fallback_langchain import FallbackMiddleware
from tests.helpers.agents import VERBS, Around, agent, last, run
from tests.helpers.chat_models import look_up, model_at, serve
from tests.helpers.provider import Reply
from tests.helpers.strict import AnthropicRules, ChatRules
from tests.helpers.wire import chat_answer, chat_call, message_answer, text_block, tool_use

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.helpers.provider import ProviderServer
    from tests.helpers.wire import Json


# Single calls outside of turns are meant to stand alone here.
pytestmark = pytest.mark.filterwarnings("ignore:.*has no effect outside of a turn:UserWarning")


@VERBS
async def test_a_name_stands_for_a_model(
    providers: ProviderServer, verb: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fallbacks may be named as for `init_chat_model`, and ask once like any other."""
    dead, alive = serve(providers, "openai", status=503), serve(providers, "openai", "hi")
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    monkeypatch.setenv("OPENAI_API_BASE", alive.url)
    middleware = FallbackMiddleware("openai:gpt-5.5")
    assert last(await run(verb, agent(model_at(dead), middleware))).text == "hi"
    assert (len(dead.requests), len(alive.requests)) == (1, 1)


HOSTED: dict[str, Json] = {
    "openai": {"type": "web_search"},
    "anthropic": {"type": "web_search_20250305", "name": "web_search"},
}


@pytest.mark.parametrize(
    ("name", "choice", "translated"),
    [
        ("openai", "required", {"type": "any"}),
        ("openai", {"type": "web_search"}, None),
        ("anthropic", {"type": "any"}, "required"),
        ("anthropic", {"type": "tool", "name": "web_search"}, None),
    ],
)
def test_tools_of_the_agents_provider_stay_there(
    providers: ProviderServer, name: str, choice: Any, translated: Any
) -> None:
    """Another provider is given the functions alone, and the choice among them in its words."""
    down = serve(providers, name, status=503)
    backup = serve(providers, "anthropic" if name == "openai" else "openai", "hi")
    choosing = Around(lambda request: request.override(tool_choice=choice))
    middlewares = [choosing, FallbackMiddleware(model_at(backup))]
    made = agent(model_at(down), *middlewares, tools=[HOSTED[name], look_up])
    assert last(made.invoke({"messages": [("user", "hi")]})).text == "hi"
    (body,) = backup.bodies
    assert len(body["tools"]) == 1
    assert "look_up" in str(body["tools"])
    assert body.get("tool_choice") == translated


class Party:
    """A strict provider with its model, down at one of its requests."""

    def __init__(
        self, providers: ProviderServer, kind: str, answers: list[Json], down: int = 0
    ) -> None:
        rules = AnthropicRules() if kind == "anthropic" else ChatRules()
        self.provider = providers.new(kind, rules=rules)
        replies = [Reply(body=answer) for answer in answers]
        if down:
            replies.insert(down - 1, Reply(status=503))
        self.provider.reply(*replies)
        self.model: Any
        self.model = model_at(self.provider, **({"max_tokens": 9} if kind == "anthropic" else {}))


def anthropic_calls(number: int, city: str) -> Json:
    thinking = {"type": "thinking", "thinking": "Let me see.", "signature": f"signed-{number}"}
    call = tool_use(f"toolu_{'x' * 60}{number}", "look_up", {"city": city})
    return message_answer(thinking, call)


def openai_calls(number: int, city: str) -> Json:
    return chat_answer(None, chat_call(f"functions.look_up:{number}", "look_up", {"city": city}))


ENDS: dict[str, Json] = {
    "anthropic": message_answer(text_block("It rains.")),
    "openai": chat_answer("It rains."),
}
CALLS: dict[str, Callable[[int, str], Json]] = {
    "anthropic": anthropic_calls,
    "openai": openai_calls,
}
OTHER = {"anthropic": "openai", "openai": "anthropic"}
MARK = {"type": "ephemeral", "ttl": "5m"}


# What only the agent's own provider knows.
SETTINGS: dict[str, Json] = {
    "anthropic": {
        "betas": ["a-beta"],
        "extra_headers": {"anthropic-x": "a-beta"},
        "output_config": {"effort": "low"},
    },
    "openai": {"prompt_cache_key": "k", "store": False, "logit_bias": {"1": 1}},
}


def caching() -> AnthropicPromptCachingMiddleware:
    return AnthropicPromptCachingMiddleware(unsupported_model_behavior="ignore")


@VERBS
@pytest.mark.parametrize("order", ["caching outside", "caching inside"])
@pytest.mark.parametrize("name", ["openai", "anthropic"])
async def test_a_tool_loop_that_switches_in_its_second_round(
    providers: ProviderServer,
    name: str,
    order: Literal["caching outside", "caching inside"],
    verb: str,
) -> None:
    """The primary gets its cache markers, the other none; round 3 reads what the other wrote."""
    other = OTHER[name]
    primary = Party(providers, name, [CALLS[name](1, "Oslo"), ENDS[name]], down=2)
    backup = Party(providers, other, [CALLS[other](2, "Rome")])
    fallback = FallbackMiddleware(backup.model)
    given = {**SETTINGS[name], "temperature": 1.0}
    setting = Around(
        lambda request: request.override(model_settings={**request.model_settings, **given})
    )
    stack = [caching(), setting, fallback] if order == "caching outside" else [fallback, caching()]
    made = agent(primary.model, *stack, system_prompt="Be brief.")
    answered = await run(verb, made)

    assert last(answered).text == "It rains."
    assert (primary.provider.refused, backup.provider.refused) == ([], [])
    assert [len(one.provider.requests) for one in (primary, backup)] == [3, 1]
    told = [
        message.response_metadata["fallback"]["is_fallback"]
        for message in answered["messages"]
        if message.type == "ai"
    ]
    assert told == [False, True, False]

    (sent,) = backup.provider.bodies
    marked = {"cache_control" in json.dumps(body) for body in primary.provider.bodies}
    assert marked == {name == "anthropic"}
    inside = order == "caching inside" and other == "anthropic"
    assert ("cache_control" in json.dumps(sent)) is inside
    if order == "caching outside":
        assert sent["temperature"] == 1.0
        special = {"logit_bias", "output_config", "prompt_cache_key", "store"}
        assert special.isdisjoint(sent)
        assert all(special & body.keys() for body in primary.provider.bodies)
        assert "a-beta" not in json.dumps([one.headers for one in backup.provider.requests])
        sent_by_primary = [str(one.headers) for one in primary.provider.requests]
        assert name == "openai" or all("a-beta" in headers for headers in sent_by_primary)
    assert "signed-1" in json.dumps(primary.provider.bodies[2]) or name == "openai"


@VERBS
async def test_a_turn_goes_on_at_the_other_provider(providers: ProviderServer, verb: str) -> None:
    """With `reset="turn"` the fallback gets no marker either where it is the first asked."""
    primary = Party(providers, "anthropic", [], down=1)
    backup = Party(providers, "openai", [openai_calls(1, "Oslo"), ENDS["openai"]])
    marked: Any = [{"type": "text", "text": "Be brief.", "cache_control": MARK}]
    made = agent(
        primary.model,
        caching(),
        FallbackMiddleware(backup.model, reset="turn"),
        system_prompt=SystemMessage(marked),
    )
    question = HumanMessage([{"type": "text", "text": "Weather?", "cache_control": MARK}])
    answered = await run(verb, made, {"messages": [question]})
    assert last(answered).text == "It rains."
    assert (primary.provider.refused, backup.provider.refused) == ([], [])
    assert [len(one.provider.requests) for one in (primary, backup)] == [1, 2]
    assert "cache_control" not in json.dumps(backup.provider.bodies)
    assert answered["messages"][0].content == question.content
