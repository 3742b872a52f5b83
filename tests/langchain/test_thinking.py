"""Loops of tools over the real SDKs: a model that thinks behind another's calls, and agents.

Claude refuses to think there, and without thinking it refuses the thoughts of that turn
(`tests.helpers.strict`); so a 400 here is a loop that could not move.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Literal

import pytest
from langchain_anthropic.middleware import AnthropicPromptCachingMiddleware
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage

from honcho_fallback_langchain import FallbackChatModel, FallbackMiddleware
from tests.helpers import speakers, wire
from tests.helpers.agents import VERBS, WAYS, Around, agent, by, last, run
from tests.helpers.chat_models import Joke, claude, gemini, gpt, look_up, model_at, serve
from tests.helpers.pairwise import in_pairs
from tests.helpers.provider import Reply
from tests.helpers.speakers import (
    ENABLED,
    MODES,
    OTHERS,
    OUTAGES,
    ROUNDS,
    Claude,
    Gemini,
    Responses,
    serve_both,
    thought_in,
)
from tests.helpers.strict import AnthropicRules, ChatRules

if TYPE_CHECKING:
    from tests.helpers.provider import Provider, ProviderServer
    from tests.helpers.wire import Json

# Single calls outside of turns are meant to stand alone here.
pytestmark = [
    pytest.mark.filterwarnings("ignore:.*has no effect outside of a turn:UserWarning"),
    pytest.mark.filterwarnings("ignore:Inheritance class AiohttpClientSession:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:You are attempting to use structured output:UserWarning"),
]


def model_of(speaker: Any, url: str, version: str | None = None) -> Any:
    """Return LangChain's model of a speaker."""
    given: Any = {"base_url": url, "output_version": version}
    match speaker:
        case Claude():
            name = f"claude-{speaker.mode}"
            return claude(max_tokens=2048, model=name, thinking=speaker.thinking, **given)
        case Gemini():
            return gemini(model="gemini-3-pro", max_retries=1, **given)
        case _:
            return gpt(use_responses_api=isinstance(speaker, Responses), **given)


@in_pairs(
    mode=[*MODES],
    other=[*OTHERS],
    is_primary=[True, False],
    down=OUTAGES,
    version=[None, "v1"],
    way=WAYS,
    verb=["invoke", "ainvoke"],
)
async def test_a_tool_loop_moves_between_a_model_that_thinks_and_others(
    providers: ProviderServer,
    mode: str,
    other: str,
    is_primary: bool,
    down: tuple[int, ...],
    version: str | None,
    way: str,
    verb: str,
) -> None:
    """HOM-046 to HOM-049: each call starts on the primary and is answered, whoever called before.

    AN-011: also where their messages are in LangChain's standard form.
    """
    speaking, served = serve_both(providers, mode, other, down, is_primary=is_primary)
    pairs = zip(speaking, served, strict=True)
    models = [model_of(one, at.url, version) for one, at in pairs]
    answered = await run(verb, agent(*by(way, *models)))
    assert last(answered).text == "It rains."
    assert [one.refused for one in served] == [[], []]
    assert [len(one.requests) for one in served] == [ROUNDS, sum(down)]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("mode", ["interleaved", "once"])
async def test_it_thinks_wherever_it_may(providers: ProviderServer, mode: str, way: str) -> None:
    """In its own loop, and again in the next turn, but not behind the calls of another."""
    own = speakers.serve(providers, "own", Claude(mode))
    thinking = Claude(mode)
    await run("invoke", agent(*by(way, model_of(thinking, own.url), gpt())))
    assert thought_in(own) == [True] * ROUNDS

    mixed = speakers.serve(providers, "mixed", thinking, (0, 1))
    backup = speakers.serve(providers, "backup", OTHERS["chat"])
    models = model_of(thinking, mixed.url), model_of(OTHERS["chat"], backup.url)
    made = agent(*by(way, *models))
    state = await run("invoke", made)
    await run("invoke", made, {"messages": [*state["messages"], ("user", "Thanks.")]})
    assert thought_in(mixed) == [True, True, False, True]
    # The thoughts of the turn that was answered without them are not lost.
    assert "signed-0" not in json.dumps(mixed.bodies[2])
    assert "signed-0" in json.dumps(mixed.bodies[3])
    assert not mixed.refused


HISTORY = [
    HumanMessage("Weather?"),
    AIMessage("", tool_calls=[{"name": "look_up", "args": {"city": "Oslo"}, "id": "call_1"}]),
    ToolMessage("rain in Oslo", tool_call_id="call_1"),
]


@pytest.mark.parametrize("where", ["call", "binding", "field", "structured"])
def test_wherever_thinking_was_switched_on(providers: ProviderServer, where: str) -> None:
    """As a field, bound, or with the call, it is off where it would be refused; the text stays."""
    provider = providers.new("anthropic", rules=AnthropicRules(thinks_by_default=False))
    field = {"thinking": ENABLED} if where in {"field", "structured"} else {}
    given: Any = claude(base_url=provider.url, max_tokens=2048, **field)
    provider.standing = Reply(text="It rains.")
    tools = given.bind_tools([look_up])
    if where == "binding":
        tools = tools.bind(thinking=ENABLED)
    kwargs = {"thinking": ENABLED} if where == "call" else {}
    model: Any = FallbackChatModel(tools, gpt())
    if where == "structured":
        joke = wire.tool_use("toolu_1", "Joke", {"setup": "Why?"})
        provider.standing = Reply(body=wire.message_answer(joke))
        model = FallbackChatModel(given, gpt()).with_structured_output(Joke)
    answer = model.invoke(HISTORY, **kwargs)
    assert not provider.refused
    assert thought_in(provider) == [False]
    assert answer == Joke(setup="Why?") or answer.text == "It rains."
    assert getattr(given, "thinking", None) == field.get("thinking")


# Agents over the real SDKs: one request at the dead primary, and histories both sides accept.


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
        call = wire.chat_call(f"functions.look_up:{number}", "look_up", given)
        return Reply(body=wire.chat_answer(None, call))
    thinking = {"type": "thinking", "thinking": "Let me see.", "signature": f"signed-{number}"}
    call = wire.tool_use(f"toolu_{'x' * 60}{number}", "look_up", given)
    return Reply(body=wire.message_answer(thinking, call))


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
    marks = [one.response_metadata.get("fallback") for one in answered["messages"]]
    assert [mark["is_fallback"] for mark in marks if mark] == [False, True, False]

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
