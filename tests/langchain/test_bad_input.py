"""What is wrong is said at construction or at bind, never at the first outage."""

from __future__ import annotations

from typing import Any

import pytest
from langchain.chat_models import init_chat_model
from langchain_core.language_models.fake_chat_models import FakeListChatModel
from langchain_core.runnables import ConfigurableField, RunnableLambda

from honcho_fallback import FallbackConfigError
from honcho_fallback_langchain import (
    FallbackChatModel,
    FallbackMiddleware,
    FallbackRunnable,
)
from tests.helpers.agents import agent
from tests.helpers.chat_models import Joke, ScriptedChat, alive, dead, failing_over
from tests.helpers.pairwise import in_turn

# Single calls outside of turns are meant to stand alone here.
pytestmark = pytest.mark.filterwarnings("ignore:.*has no effect outside of a turn:UserWarning")

MODEL: Any = alive()
FIELDS: Any = {"configurable_fields": "any", "api_key": "k"}
UNMADE: Any = init_chat_model(**FIELDS)
DEFAULTED: Any = init_chat_model("openai:gpt-5.5", **FIELDS)
CHAIN: Any = RunnableLambda(str)
# Untyped, as a user's call may be.
CHAT: Any = FallbackChatModel
RUNNABLE: Any = FallbackRunnable
AGENT: Any = FallbackMiddleware

BOUND: Any = alive().bind(stop=["x"])
CANDIDATES: dict[str, tuple[Any, tuple[Any, ...], str]] = {
    "no candidate": (CHAT, (), "candidates: there is none; pass the primary"),
    "no candidate of a chain": (RUNNABLE, (), "candidates: there is none"),
    "no fallback": (AGENT, (), "fallbacks: there is none; pass a chat model"),
    "a name": (CHAT, (MODEL, "gpt"), r"candidates\[1\]: no chat model can be made of 'gpt'"),
    "no such package": (CHAT, ("cohere:x",), r"candidates\[0\]: no chat model"),
    "one made for each call": (CHAT, (UNMADE, MODEL), r"candidates\[0\]: .* for each call"),
    "one beside a model": (CHAT, (MODEL, UNMADE), "pass init_chat_model.name. without"),
    "one with a default": (CHAT, (DEFAULTED,), "made anew for each call"),
    "one behind an agent's": (AGENT, (UNMADE,), r"fallbacks\[0\]: .* each call"),
    "a bound one there": (AGENT, (BOUND,), r"fallbacks\[0\]: got a _ChatModelBinding"),
    "a class": (CHAT, (ScriptedChat, MODEL), r"candidates\[0\]: got ScriptedChat, not a Runnable"),
    "None": (RUNNABLE, (CHAIN, None), r"candidates\[1\]: got NoneType"),
    "a chain in a chat model": (
        CHAT,
        (MODEL, MODEL | CHAIN),
        r"candidates\[1\]: got a RunnableSequence, not a chat model; pass chat models only",
    ),
}


def test_a_model_that_is_made_for_each_call_is_refused_at_an_agents_first() -> None:
    """Its middleware sees the agent's model then; nobody is asked, and the cure is named."""
    backup = alive()
    with pytest.raises(FallbackConfigError, match=r"the agent's model: .* for each call"):
        agent(DEFAULTED, FallbackMiddleware(backup)).invoke({"messages": [("user", "hi")]})
    assert not backup.asked


def test_what_is_configurable_in_a_chat_model_is_configured_per_call() -> None:
    """The cure: the model is known, and a field of it is a matter of the call.

    Around whom a config picks stands what was made for the default.
    """
    field = ConfigurableField("model")
    given = alive("primary").configurable_fields(model=field)
    model = FallbackChatModel(given, dead("backup"))
    answer = model.invoke("hi", {"configurable": {"model": "other"}})
    assert answer.response_metadata["model_name"] == "other"
    chosen = alive().configurable_alternatives(ConfigurableField(id="which"), other=alive("b"))
    model = FallbackChatModel(chosen, alive())
    assert model.bind_tools([Joke]).invoke("hi").text == "from backup"
    assert model.with_retry(stop_after_attempt=1).invoke("hi").text == "from backup"


@pytest.mark.parametrize("case", CANDIDATES)
def test_candidates_are_checked_at_construction(case: str) -> None:
    """The error says which one, what was found, and what to do."""
    make, given, message = CANDIDATES[case]
    with pytest.raises(FallbackConfigError, match=message):
        make(*given)


OPTIONS: dict[str, tuple[dict[str, Any], str]] = {
    "unknown": ({"retries": 3}, "retries: no such option; did you mean sdk_retries"),
    "misspelt": ({"partal": "final"}, "partal: no such option; did you mean partial"),
    "a candidate's": ({"temperature": 0}, "temperature: no such option"),
    "out of range": ({"max_attempts": 0}, "max_attempts: "),
    "sdk_retries": ({"sdk_retries": False}, 'sdk_retries: got False; pass "off" or "keep"'),
    "an observer that is none": ({"observers": [print]}, "observers"),
    "an agent without a name": ({"agent": ""}, "agent"),
    "config": ({"config": {}}, "config: no such option"),
}
PLACES: dict[str, Any] = {
    "chat model": lambda options: FallbackChatModel(dead(), alive(), **options),
    "runnable": lambda options: FallbackRunnable(dead(), alive(), **options),
    "middleware": lambda options: FallbackMiddleware(alive(), **options),
    "copy of a chat model": lambda options: failing_over().with_fallback_config(**options),
    "copy of a runnable": lambda options: FallbackRunnable(CHAIN).with_fallback_config(**options),
    "copy of a middleware": lambda options: FallbackMiddleware(alive()).with_fallback_config(
        **options
    ),
}


@in_turn(place=PLACES, case=OPTIONS)
def test_options_are_checked_wherever_they_are_given(case: str, place: str) -> None:
    """The same error everywhere; the message names the option."""
    options, message = OPTIONS[case]
    with pytest.raises(FallbackConfigError, match=message):
        PLACES[place](options)


NO_TOOLS = FakeListChatModel(responses=["a"])


@pytest.mark.parametrize("position", [0, 1])
@pytest.mark.parametrize("what", ["tools", "structured output"])
def test_a_candidate_that_cannot_take_tools_is_told_at_bind(what: str, position: int) -> None:
    """The error names it by its place, and keeps what it said."""
    given: list[Any] = [alive(), alive()]
    given[position] = NO_TOOLS
    model = FallbackChatModel(*given)
    with pytest.raises(FallbackConfigError, match=rf"candidates\[{position}\]: .*{what}") as error:
        if what == "tools":
            model.bind_tools([Joke])
        else:
            model.with_structured_output(Joke)
    assert isinstance(error.value.__cause__, NotImplementedError)


def test_options_given_at_construction_are_those_given_later() -> None:
    """Both ways end in the same place."""
    early = FallbackChatModel(dead(), alive(), agent="a", max_attempts=2)
    late = failing_over().with_fallback_config(agent="a").with_fallback_config(max_attempts=2)
    assert early.options == late.options


@pytest.mark.parametrize("kind", [FallbackChatModel, FallbackRunnable])
def test_candidates_come_in_one_way(kind: Any) -> None:
    """Candidates by position and by name would lose those by name."""
    with pytest.raises(FallbackConfigError, match="candidates"):
        kind(alive(), candidates=[dead()])
