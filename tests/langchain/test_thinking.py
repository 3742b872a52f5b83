"""A model that thinks, in the middle of a tool loop that another one has begun.

Claude refuses to think there, and without thinking it refuses the thoughts of that turn
(`tests.helpers.strict`); so a 400 here is a loop that could not move.
"""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_google_genai import ChatGoogleGenerativeAI

from honcho_fallback_langchain import FallbackChatModel, FallbackMiddleware
from tests.helpers import wire
from tests.helpers.agents import agent, last, run
from tests.helpers.chat_models import Joke, claude, gpt, look_up
from tests.helpers.pairwise import in_pairs
from tests.helpers.provider import Reply
from tests.helpers.strict import AnthropicRules, ChatRules, GoogleRules, ResponsesRules

if TYPE_CHECKING:
    from tests.helpers.provider import Provider, ProviderServer, SeenRequest
    from tests.helpers.wire import Json

# Single calls outside of turns are meant to stand alone here.
pytestmark = [
    pytest.mark.filterwarnings("ignore:.*has no effect outside of a turn:UserWarning"),
    pytest.mark.filterwarnings("ignore:Inheritance class AiohttpClientSession:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:You are attempting to use structured output:UserWarning"),
]

CITIES = ("Oslo", "Rome")  # two calls at once
ROUNDS = 3
SIGNED = {f"signed-{number}" for number in range(ROUNDS)}  # Claude reads it, whoever asked for it
ENABLED = {"type": "enabled", "budget_tokens": 1024}
# How Claude is asked to think, and whether it does so before each of its calls.
MODES: dict[str, Json | None] = {
    "adaptive": {"type": "adaptive"},
    "interleaved": ENABLED,
    "off": None,
    "once": ENABLED,
}


def rounds_of(body: Json) -> int:
    """Count the rounds of tools in a request: each of their results is in it once."""
    return json.dumps(body).count("rain in Oslo")


class Claude:
    """Messages, with a signed thought where it thinks, and at once or before each call."""

    rules = staticmethod(partial(AnthropicRules, thinks_by_default=False))

    def __init__(self, mode: str) -> None:
        self.mode = mode

    def model(self, url: str) -> Any:
        fields = {"model": f"claude-{self.mode}", "thinking": MODES[self.mode]}
        return claude(base_url=url, max_tokens=2048, max_retries=0, **fields)

    def calls(self, body: Json) -> Json:
        number = rounds_of(body)
        calls = [
            wire.tool_use(f"toolu_{number}_{at}", "look_up", {"city": city})
            for at, city in enumerate(CITIES)
        ]
        thinks = "thinking" in body and not (number and self.mode == "once")
        thought = {"type": "thinking", "thinking": "Hm.", "signature": f"signed-{number}"}
        return wire.message_answer(*[thought] * thinks, *calls)


class Chat:
    """Chat Completions."""

    rules = ChatRules

    def model(self, url: str) -> Any:
        return gpt(base_url=url, max_retries=0)

    def calls(self, body: Json) -> Json:
        number = rounds_of(body)
        calls = [
            wire.chat_call(f"call_{number}_{at}", "look_up", {"city": city})
            for at, city in enumerate(CITIES)
        ]
        return wire.chat_answer(None, *calls)


class Responses:
    """Responses, with reasoning that only the account can read."""

    rules = ResponsesRules

    def model(self, url: str) -> Any:
        return gpt(base_url=url, max_retries=0, use_responses_api=True)

    def calls(self, body: Json) -> Json:
        number = rounds_of(body)
        thought = {
            "type": "reasoning",
            "id": f"rs_{number}",
            "summary": [],
            "encrypted_content": f"hidden-{number}",
        }
        calls = [
            wire.response_call(f"fc_{number}_{at}", f"call_{number}_{at}", "look_up", {"city": c})
            for at, c in enumerate(CITIES)
        ]
        return wire.responses_answer(thought, *calls)


class Gemini:
    """generateContent, whose first call of a turn has a signature."""

    rules = GoogleRules

    def model(self, url: str) -> Any:
        return ChatGoogleGenerativeAI(
            model="gemini-3-pro", api_key="k", base_url=url, max_retries=1
        )

    def calls(self, body: Json) -> Json:
        calls = [wire.function_call("look_up", {"city": city}) for city in CITIES]
        calls[0]["thoughtSignature"] = "c2lnbmVk"
        return wire.gemini_answer(*calls)


OTHERS: dict[str, Any] = {
    "chat": Chat(),
    "claude without": Claude("off"),
    "gemini": Gemini(),
    "responses": Responses(),
}


def serve(
    providers: ProviderServer, name: str, speaks: Any, down: tuple[int, ...] = ()
) -> Provider:
    """Serve a strict provider that calls tools for some rounds, down where it is told so."""
    rules = speaks.rules()
    rules.wrote |= SIGNED
    provider = providers.new(name, rules=rules)
    left = [*down]

    def answer(request: SeenRequest) -> Reply:
        if left and left.pop(0):
            return Reply(status=503)
        if rounds_of(request.body) < ROUNDS - 1:
            return Reply(body=speaks.calls(request.body))
        return Reply(text="It rains.")

    provider.standing = answer
    return provider


def looping(way: str, primary: Any, backup: Any) -> Any:
    """Make an agent over two models."""
    if way == "middleware":
        return agent(primary, FallbackMiddleware(backup))
    return agent(FallbackChatModel(primary, backup))


@in_pairs(
    mode=[*MODES],
    other=[*OTHERS],
    is_primary=[True, False],
    down=[(1,), (0, 1), (0, 0, 1), (1, 0, 1), (0, 1, 0)],
    way=["middleware", "model"],
    verb=["invoke", "ainvoke"],
)
async def test_a_tool_loop_moves_between_a_model_that_thinks_and_others(
    providers: ProviderServer,
    mode: str,
    other: str,
    is_primary: bool,
    down: tuple[int, ...],
    way: str,
    verb: str,
) -> None:
    """Each call of the model starts on the primary and is answered, whoever called the tools."""
    thinking = Claude(mode)
    speakers = [thinking, OTHERS[other]] if is_primary else [OTHERS[other], thinking]
    served = [
        serve(providers, f"{place}-{at}", one, down if at == 0 else ())
        for at, (place, one) in enumerate(zip(("primary", "backup"), speakers, strict=True))
    ]
    models = [one.model(at.url) for one, at in zip(speakers, served, strict=True)]
    answered = await run(verb, looping(way, *models))
    assert last(answered).text == "It rains."
    assert [one.refused for one in served] == [[], []]
    assert [len(one.requests) for one in served] == [ROUNDS, sum(down)]


def thought_in(provider: Provider) -> list[bool]:
    return ["thinking" in body for body in provider.bodies]


@pytest.mark.parametrize("way", ["middleware", "model"])
@pytest.mark.parametrize("mode", ["interleaved", "once"])
async def test_it_thinks_wherever_it_may(providers: ProviderServer, mode: str, way: str) -> None:
    """In its own loop, and again in the next turn, but not behind the calls of another."""
    own = serve(providers, "own", Claude(mode))
    thinking = Claude(mode)
    await run("invoke", looping(way, thinking.model(own.url), gpt()))
    assert thought_in(own) == [True] * ROUNDS

    mixed = serve(providers, "mixed", thinking, (0, 1))
    backup = serve(providers, "backup", OTHERS["chat"])
    made = looping(way, thinking.model(mixed.url), OTHERS["chat"].model(backup.url))
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
