"""A model that thinks, in the middle of a tool loop that another one has begun.

Claude refuses to think there, and without thinking it refuses the thoughts of that turn
(`tests.helpers.strict`); so a 400 here is a loop that could not move.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage

from honcho_fallback_langchain import FallbackChatModel, FallbackMiddleware
from tests.helpers import wire
from tests.helpers.agents import agent, last, run
from tests.helpers.chat_models import Joke, claude, gemini, gpt, look_up
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
    serve,
    serve_both,
    thought_in,
)
from tests.helpers.strict import AnthropicRules

if TYPE_CHECKING:
    from tests.helpers.provider import ProviderServer

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


def looping(way: str, primary: Any, backup: Any) -> Any:
    """Make an agent over two models."""
    if way == "middleware":
        return agent(primary, FallbackMiddleware(backup))
    return agent(FallbackChatModel(primary, backup))


@in_pairs(
    mode=[*MODES],
    other=[*OTHERS],
    is_primary=[True, False],
    down=OUTAGES,
    version=[None, "v1"],
    way=["middleware", "model"],
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
    speakers, served = serve_both(providers, mode, other, down, is_primary=is_primary)
    pairs = zip(speakers, served, strict=True)
    models = [model_of(one, at.url, version) for one, at in pairs]
    answered = await run(verb, looping(way, *models))
    assert last(answered).text == "It rains."
    assert [one.refused for one in served] == [[], []]
    assert [len(one.requests) for one in served] == [ROUNDS, sum(down)]


@pytest.mark.parametrize("way", ["middleware", "model"])
@pytest.mark.parametrize("mode", ["interleaved", "once"])
async def test_it_thinks_wherever_it_may(providers: ProviderServer, mode: str, way: str) -> None:
    """In its own loop, and again in the next turn, but not behind the calls of another."""
    own = serve(providers, "own", Claude(mode))
    thinking = Claude(mode)
    await run("invoke", looping(way, model_of(thinking, own.url), gpt()))
    assert thought_in(own) == [True] * ROUNDS

    mixed = serve(providers, "mixed", thinking, (0, 1))
    backup = serve(providers, "backup", OTHERS["chat"])
    made = looping(way, model_of(thinking, mixed.url), model_of(OTHERS["chat"], backup.url))
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
