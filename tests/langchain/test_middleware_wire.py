"""Agents over the real SDKs: one request at the dead primary, and histories both sides accept."""

from __future__ import annotations

import json
from itertools import count
from typing import TYPE_CHECKING, Any, Literal

import pytest
from agent_fakes import agent, last, run
from chat_fakes import Runs
from langchain.agents.middleware import AgentMiddleware
from langchain.agents.middleware.types import ModelRequest
from langchain_anthropic import ChatAnthropic
from langchain_anthropic.middleware import AnthropicPromptCachingMiddleware
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage
from langchain_openai import ChatOpenAI
from loopback import Provider
from strict_providers import (
    StrictAnthropic,
    StrictOpenAIChat,
    StrictProvider,
    anthropic_answer,
    chat_answer,
)
from werkzeug import Response

from honcho_fallback import FallbackExhausted
from honcho_fallback_langchain import FallbackMiddleware
from honcho_fallback.testing import StatusError

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_httpserver import HTTPServer

    Json = dict[str, Any]

# Single calls outside of turns are meant to stand alone here.
pytestmark = pytest.mark.filterwarnings("ignore:.*has no effect outside of a turn:UserWarning")

VERBS = pytest.mark.parametrize("verb", ["invoke", "ainvoke"])


@VERBS
@pytest.mark.parametrize("name", ["openai", "anthropic"])
async def test_the_agents_own_model_asks_once(
    httpserver: HTTPServer, name: str, verb: str
) -> None:
    """Its SDK would ask three times: it is used through a copy, and stays as it was."""
    dead = Provider(httpserver, name, status=503)
    alive = Provider(httpserver, "anthropic" if name == "openai" else "openai", "hello")
    primary, backup = dead.model(), alive.model()
    fields = dict(vars(primary))
    for reset in ("iteration", "turn"):
        dead.bodies.clear()
        made = agent(primary, FallbackMiddleware(backup, reset=reset))
        assert last(await run(verb, made)).text == "hello"
        assert dead.requests == 1
    assert {name: vars(primary)[name] for name in fields} == fields


@VERBS
async def test_sdk_retries_are_kept_where_that_is_asked_for(
    httpserver: HTTPServer, verb: str
) -> None:
    """`sdk_retries="keep"` leaves the SDK its own retries: three requests."""
    dead = Provider(httpserver, "openai", status=503)
    alive = Provider(httpserver, "anthropic", "hello")
    middleware = FallbackMiddleware(alive.model(), sdk_retries="keep")
    assert last(await run(verb, agent(dead.model(), middleware))).text == "hello"
    assert dead.requests == 3


@VERBS
async def test_a_name_stands_for_a_model(
    httpserver: HTTPServer, verb: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fallbacks may be named as for `init_chat_model`, and ask once like any other."""
    dead, alive = Provider(httpserver, "openai", status=503), Provider(httpserver, "openai", "hi")
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    monkeypatch.setenv("OPENAI_API_BASE", alive.url)
    middleware = FallbackMiddleware("openai:gpt-5.5")
    assert last(await run(verb, agent(dead.model(), middleware))).text == "hi"
    assert (dead.requests, alive.requests) == (1, 1)


@VERBS
async def test_the_last_fallback_asks_once_too(httpserver: HTTPServer, verb: str) -> None:
    """Nobody's SDK retries; G-22: a fallback's 400 comes out inside the group, as it is."""
    dead = Provider(httpserver, "openai", status=503)
    refusing = Provider(httpserver, "anthropic", status=400)
    with pytest.raises(FallbackExhausted) as caught:
        await run(verb, agent(dead.model(), FallbackMiddleware(refusing.model())))
    assert type(caught.value.exceptions[1]).__name__ == "AnthropicInvalidRequestError"
    assert (dead.requests, refusing.requests) == (1, 1)


def test_fallbacks_are_prepared_once(httpserver: HTTPServer) -> None:
    """Agents with other models ask the same quiet copies; the user's objects are untouched."""
    given = Provider(httpserver, "openai", "hi").model()
    middleware = FallbackMiddleware(given)
    primaries = [Provider(httpserver, "anthropic", "hi").model() for _ in range(2)]
    asked = [middleware._policy_of(primary).targets[1].client for primary in primaries * 2]
    assert {id(one) for one in asked} == {id(asked[0])}
    assert asked[0] is not given
    assert middleware.fallbacks == [given]


async def test_attempts_run_under_one_trace(httpserver: HTTPServer) -> None:
    """Real models' copies keep what tracers read of them: their name and provider."""
    runs = Runs()
    dead = Provider(httpserver, "openai", status=503)
    alive = Provider(httpserver, "anthropic", "hello")
    made = agent(dead.model(), FallbackMiddleware(alive.model()))
    await run("ainvoke", made, config={"callbacks": [runs]})
    runs.check()
    assert [one.metadata["ls_provider"] for one in runs.models] == ["openai", "anthropic"]


class Party:
    """A strict provider with its model, down at one of its requests."""

    places = count()

    def __init__(self, server: HTTPServer, kind: str, answers: list[Json], down: int = 0) -> None:
        strict: type[StrictProvider] = {
            "anthropic": StrictAnthropic,
            "openai": StrictOpenAIChat,
        }[kind]
        self.headers = headers = list[str]()

        class Failing(strict):  # type: ignore[misc, valid-type] # one of two
            def _answer(self, request: Any) -> Response:
                headers.append(str(request.headers))
                if len(self.requests) + 1 != down:
                    answer: Response = super()._answer(request)
                    return answer
                body = request.get_json()
                self.requests.append(body)
                self.refused += self.faults(body)
                return Response('{"error": {"message": "down"}}', 503, mimetype="application/json")

        self.provider = Failing(server, f"/agent-{kind}{next(self.places)}", *answers)
        self.model: Any
        if kind == "anthropic":
            self.model = ChatAnthropic(
                model="claude-sonnet-5", base_url=self.provider.url, max_tokens=9, api_key="k"
            )
        else:
            self.model = ChatOpenAI(model="gpt-5.5", base_url=self.provider.url, api_key="k")


def anthropic_calls(number: int, city: str) -> Json:
    thinking = {"type": "thinking", "thinking": "Let me see.", "signature": f"signed-{number}"}
    call = {
        "type": "tool_use",
        "id": f"toolu_{'x' * 60}{number}",
        "name": "look_up",
        "input": {"city": city},
    }
    return anthropic_answer(thinking, call)


def openai_calls(number: int, city: str) -> Json:
    return chat_answer(None, (f"functions.look_up:{number}", "look_up", {"city": city}))


ENDS: dict[str, Json] = {
    "anthropic": anthropic_answer({"type": "text", "text": "It rains."}),
    "openai": chat_answer("It rains."),
}
CALLS: dict[str, Callable[[int, str], Json]] = {
    "anthropic": anthropic_calls,
    "openai": openai_calls,
}
OTHER = {"anthropic": "openai", "openai": "anthropic"}
MARK = {"type": "ephemeral", "ttl": "5m"}


class Settings(AgentMiddleware[Any, Any, Any]):
    """Set what only the agent's own provider knows, as users' middleware does."""

    def __init__(self, provider: str) -> None:
        super().__init__()
        special: dict[str, Json] = {
            "anthropic": {
                "betas": ["a-beta"],
                "extra_headers": {"anthropic-x": "a-beta"},
                "output_config": {"effort": "low"},
            },
            "openai": {"prompt_cache_key": "k", "store": False, "logit_bias": {"1": 1}},
        }
        self.given = {**special[provider], "temperature": 1.0}

    def wrap_model_call(self, request: Any, handler: Any) -> Any:
        return handler(request.override(model_settings={**request.model_settings, **self.given}))

    async def awrap_model_call(self, request: Any, handler: Any) -> Any:
        return await handler(
            request.override(model_settings={**request.model_settings, **self.given})
        )


def caching() -> AnthropicPromptCachingMiddleware:
    return AnthropicPromptCachingMiddleware(unsupported_model_behavior="ignore")


@VERBS
@pytest.mark.parametrize("order", ["caching outside", "caching inside"])
@pytest.mark.parametrize("name", ["openai", "anthropic"])
async def test_a_tool_loop_that_switches_in_its_second_round(
    httpserver: HTTPServer,
    name: str,
    order: Literal["caching outside", "caching inside"],
    verb: str,
) -> None:
    """The primary gets its cache markers, the other none; round 3 reads what the other wrote."""
    other = OTHER[name]
    primary = Party(httpserver, name, [CALLS[name](1, "Oslo"), ENDS[name]], down=2)
    backup = Party(httpserver, other, [CALLS[other](2, "Rome")])
    fallback = FallbackMiddleware(backup.model)
    stack = (
        [caching(), Settings(name), fallback]
        if order == "caching outside"
        else [fallback, caching()]
    )
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

    (sent,) = backup.provider.requests
    marked = {"cache_control" in json.dumps(body) for body in primary.provider.requests}
    assert marked == {name == "anthropic"}
    inside = order == "caching inside" and other == "anthropic"
    assert ("cache_control" in json.dumps(sent)) is inside
    if order == "caching outside":
        assert sent["temperature"] == 1.0
        special = {"logit_bias", "output_config", "prompt_cache_key", "store"}
        assert special.isdisjoint(sent)
        assert all(special & body.keys() for body in primary.provider.requests)
        assert "a-beta" not in "".join(backup.headers)
        assert name == "openai" or all("a-beta" in headers for headers in primary.headers)
    assert "signed-1" in json.dumps(primary.provider.requests[2]) or name == "openai"


@VERBS
async def test_a_turn_goes_on_at_the_other_provider(httpserver: HTTPServer, verb: str) -> None:
    """With `reset="turn"` the fallback gets no marker either where it is the first asked."""
    primary = Party(httpserver, "anthropic", [], down=1)
    backup = Party(httpserver, "openai", [openai_calls(1, "Oslo"), ENDS["openai"]])
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
    assert "cache_control" not in json.dumps(backup.provider.requests)
    assert answered["messages"][0].content == question.content


@pytest.mark.parametrize("name", ["openai", "anthropic"])
def test_what_was_made_for_a_provider_stays_with_it(httpserver: HTTPServer, name: str) -> None:
    """Marked tools and an account's settings reach a fallback of the same provider alone."""
    primary = Provider(httpserver, "anthropic").model()
    backup = Provider(httpserver, name).model()
    given: Json = {"name": "find", "input_schema": {}, "cache_control": MARK}
    settings = {"extra_body": {"mine": 1}, "temperature": 1.0}
    request: Any = ModelRequest(model=primary, messages=[], tools=[given], model_settings=settings)
    sent: list[Any] = []

    def handle(asked: Any) -> Any:
        sent.append(asked)
        if len(sent) == 1:
            raise StatusError(503)
        return AIMessage("hi")

    FallbackMiddleware(backup).wrap_model_call(request, handle)
    kept = name == "anthropic"
    assert ["cache_control" in one.tools[0] for one in sent] == [True, kept]
    assert ["extra_body" in one.model_settings for one in sent] == [True, kept]
    assert sent[1].model_settings["temperature"] == 1.0
    assert given["cache_control"] is MARK
