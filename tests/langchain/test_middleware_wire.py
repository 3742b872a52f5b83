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
from tests.helpers.wire import chat_answer, chat_call, message_answer, tool_use

if TYPE_CHECKING:
    from tests.helpers.provider import Provider, ProviderServer
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


DOWN = Reply(status=503)


def strict(providers: ProviderServer, kind: str, *answers: Reply) -> tuple[Provider, Any]:
    """Return a strict provider that answers in turn, and its model."""
    provider = providers.new(kind, rules=AnthropicRules() if kind == "anthropic" else ChatRules())
    provider.reply(*answers)
    return provider, model_at(provider, **({"max_tokens": 9} if kind == "anthropic" else {}))


def calling(kind: str, number: int, city: str) -> Reply:
    """Call the tool, under an id that the other provider does not take."""
    given = {"city": city}
    if kind == "openai":
        call = chat_call(f"functions.look_up:{number}", "look_up", given)
        return Reply(body=chat_answer(None, call))
    thinking = {"type": "thinking", "thinking": "Let me see.", "signature": f"signed-{number}"}
    call = tool_use(f"toolu_{'x' * 60}{number}", "look_up", given)
    return Reply(body=message_answer(thinking, call))


END = Reply(text="It rains.")
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
    primary, model = strict(providers, name, calling(name, 1, "Oslo"), DOWN, END)
    backup, spare = strict(providers, other, calling(other, 2, "Rome"))
    fallback = FallbackMiddleware(spare)
    given = {**SETTINGS[name], "temperature": 1.0}
    setting = Around(
        lambda request: request.override(model_settings={**request.model_settings, **given})
    )
    stack = [caching(), setting, fallback] if order == "caching outside" else [fallback, caching()]
    made = agent(model, *stack, system_prompt="Be brief.")
    answered = await run(verb, made)

    assert last(answered).text == "It rains."
    assert (primary.refused, backup.refused) == ([], [])
    assert [len(one.requests) for one in (primary, backup)] == [3, 1]
    told = [
        message.response_metadata["fallback"]["is_fallback"]
        for message in answered["messages"]
        if message.type == "ai"
    ]
    assert told == [False, True, False]

    (sent,) = backup.bodies
    marked = {"cache_control" in json.dumps(body) for body in primary.bodies}
    assert marked == {name == "anthropic"}
    inside = order == "caching inside" and other == "anthropic"
    assert ("cache_control" in json.dumps(sent)) is inside
    if order == "caching outside":
        assert sent["temperature"] == 1.0
        special = {"logit_bias", "output_config", "prompt_cache_key", "store"}
        assert special.isdisjoint(sent)
        assert all(special & body.keys() for body in primary.bodies)
        assert "a-beta" not in json.dumps([one.headers for one in backup.requests])
        sent_by_primary = [str(one.headers) for one in primary.requests]
        assert name == "openai" or all("a-beta" in headers for headers in sent_by_primary)
    assert "signed-1" in json.dumps(primary.bodies[2]) or name == "openai"


@VERBS
async def test_a_turn_goes_on_at_the_other_provider(providers: ProviderServer, verb: str) -> None:
    """With `reset="turn"` the fallback gets no marker either where it is the first asked."""
    primary, model = strict(providers, "anthropic", DOWN)
    backup, spare = strict(providers, "openai", calling("openai", 1, "Oslo"), END)
    marked: Any = [{"type": "text", "text": "Be brief.", "cache_control": MARK}]
    made = agent(
        model,
        caching(),
        FallbackMiddleware(spare, reset="turn"),
        system_prompt=SystemMessage(marked),
    )
    question = HumanMessage([{"type": "text", "text": "Weather?", "cache_control": MARK}])
    answered = await run(verb, made, {"messages": [question]})
    assert last(answered).text == "It rains."
    assert (primary.refused, backup.refused) == ([], [])
    assert [len(one.requests) for one in (primary, backup)] == [1, 2]
    assert "cache_control" not in json.dumps(backup.bodies)
    assert answered["messages"][0].content == question.content
