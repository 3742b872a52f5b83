"""The middleware for `create_agent`: what switches, what does not, and what is told of it."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from langchain.agents.middleware.types import ExtendedModelResponse, ModelResponse
from langchain.agents.structured_output import (
    AutoStrategy,
    ProviderStrategy,
    StructuredOutputValidationError,
    ToolStrategy,
)
from langchain_core.exceptions import OutputParserException
from langchain_core.language_models.fake_chat_models import FakeListChatModel
from langchain_core.messages import AIMessage
from langchain_core.output_parsers import JsonOutputParser
from langchain_core.runnables import RunnableLambda
from langchain_core.tools import tool
from langgraph.errors import GraphBubbleUp, GraphInterrupt
from langgraph.types import Command
from pydantic import BaseModel

from honcho_fallback import FailureKind, FallbackConfig
from honcho_fallback.testing import StatusError
from honcho_fallback_langchain import (
    FallbackChatModel,
    FallbackMiddleware,
    FallbackRunnable,
    ToolLoopGuardMiddleware,
)
from tests.helpers.agents import ROUNDS, VERBS, Around, agent, calls, last, run, stream
from tests.helpers.chat_models import alive, chat, dead
from tests.helpers.chat_runs import Runs
from tests.helpers.observers import Listener

SWITCHABLE = frozenset(FailureKind) - {FailureKind.CANCELLED}


class Weather(BaseModel):
    """The weather."""

    sky: str


@VERBS
@pytest.mark.parametrize("error", [GraphInterrupt(), GraphBubbleUp(), StopIteration()])
async def test_control_flow_is_no_failure(verb: str, error: Exception) -> None:
    """A graph's interrupts and StopIteration pass, whatever may switch."""
    if verb == "ainvoke" and isinstance(error, StopIteration):
        error = GraphInterrupt()  # Python itself lets no StopIteration out of a coroutine
    primary, backup, told = alive("primary"), alive(), Listener()

    def fail(_response: Any) -> Any:
        raise error

    middleware = FallbackMiddleware(backup, fallback_on=SWITCHABLE, observers=[told])
    made = agent(primary, middleware, Around(response=fail))
    with suppress(GraphBubbleUp, RuntimeError):  # as LangGraph and Python turn them into
        await run(verb, made)
    assert (len(primary.asked), len(backup.asked)) == (1, 0)
    assert [record.outcome for record in told.records] == ["cancelled"]


@VERBS
async def test_an_inner_command_is_kept_and_a_failed_ones_is_not(verb: str) -> None:
    """State that an inner middleware writes comes from the attempt that answered."""

    def note(response: Any) -> Any:
        (message,) = response.result
        update = {"structured_response": message.text}
        return ExtendedModelResponse(response, Command(update=update))

    for reset in ("iteration", "turn"):
        made = agent(dead(), FallbackMiddleware(alive(), reset=reset), Around(response=note))
        answered = await run(verb, made)
        assert answered["structured_response"] == "from backup"
        assert last(answered).response_metadata["fallback"]["is_fallback"]


@VERBS
async def test_an_inner_message_is_an_answer(verb: str) -> None:
    """Middleware may return a bare message; an answer of a cache stays what it was."""
    cached = AIMessage("from a cache")
    held = ModelResponse(result=[cached])
    answers = [cached, held]
    inner = Around(response=lambda _: answers.pop())
    made = agent(alive("primary"), FallbackMiddleware(alive()), inner)
    for _ in range(2):
        answered = await run(verb, made)
        assert last(answered).text == "from a cache"
        assert "fallback" in last(answered).response_metadata
        assert "fallback" not in cached.response_metadata
        assert held.result == [cached]


@VERBS
@pytest.mark.parametrize(
    "strategy", [ToolStrategy(Weather), AutoStrategy(Weather), Weather, "chat model"]
)
async def test_structured_output_by_tool(verb: str, strategy: Any) -> None:
    """The fallback answers in the schema by a tool, also behind a FallbackChatModel."""
    answers = chat("backup", ROUNDS[0], calls("Weather", 2, sky="grey"))
    if strategy == "chat model":
        made = agent(FallbackChatModel(dead(), answers), response_format=Weather)
    else:
        made = agent(dead(), FallbackMiddleware(answers), response_format=strategy)
    answered = await run(verb, made)
    assert answered["structured_response"] == Weather(sky="grey")
    assert answered["messages"][-2].response_metadata["fallback"]["is_fallback"]
    assert answers.bindings[0]["tool_choice"] == "any"
    tools = [one["function"]["name"] for one in answers.asked[0].kwargs["tools"]]
    assert tools == ["look_up", "Weather"]


@VERBS
async def test_structured_output_by_provider_follows_the_model_asked(verb: str) -> None:
    """The strategy is chosen anew for the fallback: a tool here, the provider's own way there."""
    native = chat("backup", '{"sky": "grey"}', profile={"structured_output": True})
    for strategy in (Weather, ProviderStrategy(Weather)):
        primary = dead()
        made = agent(primary, FallbackMiddleware(native), response_format=strategy)
        answered = await run(verb, made)
        assert answered["structured_response"] == Weather(sky="grey")
        assert ("tool_choice" in primary.bindings[0]) == (strategy is Weather)
        assert "response_format" in native.bindings[0]


@VERBS
async def test_an_answer_that_does_not_fit_the_programs_schema_is_the_programs(
    verb: str,
) -> None:
    """It comes out as LangChain's, as without the middleware; nobody is asked to do it better.

    Nor of what a middleware inside could not read.
    """
    primary, backup = chat("primary", calls("Weather", 1, ground="wet")), alive()
    strategy = ToolStrategy(Weather, handle_errors=False)
    made = agent(primary, FallbackMiddleware(backup), response_format=strategy)
    with pytest.raises(StructuredOutputValidationError):
        await run(verb, made)
    parsing = Around(response=lambda it: JsonOutputParser().invoke(it.result[0]))
    with pytest.raises(OutputParserException):
        await run(verb, agent(primary, FallbackMiddleware(backup), parsing))
    assert (len(primary.asked), len(backup.asked)) == (2, 0)


@VERBS
async def test_a_later_attempt_says_so_at_its_start(verb: str) -> None:
    """Tracers see metadata on attempt 2 alone, beside the model's own."""
    runs = Runs()
    fields: dict[str, Any] = {"metadata": {"mine": 1}, "tags": ["mine"]}
    backup = chat("backup", "answer", **fields)
    primary = chat("primary", StatusError(503), **fields)
    await run(verb, agent(primary, FallbackMiddleware(backup)), config={"callbacks": [runs]})
    runs.check()
    first, second = runs.models
    assert "fallback_attempt" not in first.metadata
    assert second.metadata["fallback_attempt"] == 2
    assert second.metadata["is_fallback"] is True
    assert second.metadata["fallback_primary"] == "scripted/primary"
    assert [one["status"] for one in second.metadata["fallback_attempts"]] == [503]
    for one in (first, second):
        assert one.metadata["mine"] == 1
        assert "mine" in one.tags
    assert backup.tags == ["mine"]
    assert "fallback_attempt" not in (backup.metadata or {})


@VERBS
@pytest.mark.parametrize("reset", ["iteration", "turn"])
@pytest.mark.parametrize("observed", [False, True])
async def test_an_agents_updates_are_the_models_and_the_tools(
    verb: str, reset: Any, observed: bool
) -> None:
    """With `stream_mode="updates"` a reader of each update's messages reads as ever.

    LangGraph shows a private key that a node wrote in the node's update, beside the messages.
    """

    def shape(parts: list[Any]) -> list[Any]:
        nodes = [node for part in parts for node in part.items()]
        return [(name, [one.type for one in update["messages"]]) for name, update in nodes]

    expected = shape(await stream(verb, agent(chat("m", *ROUNDS)), "updates"))
    options: Any = {"reset": reset, "observers": [Listener()] if observed else []}
    guard = ToolLoopGuardMiddleware()
    for outer, inner in (([guard], []), ([], [guard]), ([], [])):
        for primary, backup in ((dead(), chat("b", *ROUNDS)), (chat("m", *ROUNDS), alive())):
            ours = FallbackMiddleware(backup, **options)
            parts = await stream(verb, agent(primary, *outer, ours, *inner), "updates")
            assert shape(parts) == expected
            keys = {key for part in parts for update in part.values() for key in update}
            # A switch lasts, and who observes calls has to recognise their turn.
            lasts = reset == "turn" and (primary.model == "primary" or observed)
            assert (keys == {"messages"}) == (not (outer or inner or lasts))
            assert all(key.startswith("honcho_fallback_") for key in keys - {"messages"})


@VERBS
async def test_the_agents_name_is_that_of_its_calls(
    verb: str, caplog: pytest.LogCaptureFixture
) -> None:
    """What `create_agent` was given stands in logs, records and the turn's end; a label wins.

    Whatever is asked within an agent's run is asked by that agent, also by a chain in a tool.
    """
    heard = Listener()
    candidates = RunnableLambda(str.upper), RunnableLambda(str.lower)
    chain: Any = FallbackRunnable(*candidates, observers=[heard])

    @tool
    def shout(word: str) -> str:
        """Shout."""
        return str(chain.invoke(word))

    def configured(reset: Any) -> Any:
        return {"configurable": {"fallback_config": FallbackConfig(reset=reset)}}

    turns: dict[str, Any] = {"reset": "turn", "observers": [heard]}
    plain = agent(dead(), FallbackMiddleware(alive(), **turns), name="greeter")
    model = FallbackChatModel(dead(), alive(), observers=[heard])
    script = chat("m", calls("shout", 1, word="hi"), "done")
    await run(verb, plain)
    await run(verb, plain, config=configured("turn"))
    await run(verb, agent(model, name="greeter"))
    await run(verb, agent(model, name="greeter"), config=configured("iteration"))
    await run(verb, agent(script, tools=[shout], name="greeter"))
    events: list[Any] = [*heard.starts, *heard.records, *heard.restores]
    assert {event.agent for event in events} == {"greeter"}
    assert (len(heard.records), len(heard.restores)) == (5, 2)
    assert caplog.text.count("agent=greeter ") == 4

    heard.starts.clear()
    labelled = FallbackMiddleware(alive(), agent="mine", **turns)
    await run(verb, agent(dead(), labelled, name="greeter"))
    await run(verb, agent(dead(), FallbackMiddleware(alive(), **turns)))
    assert [start.agent for start in heard.starts] == ["mine", "unknown"]


def test_a_copy_has_other_options() -> None:
    """`with_fallback_config` leaves the middleware as it was."""
    plain = FallbackMiddleware(alive(), agent="a", max_attempts=5)
    turns = plain.with_fallback_config(reset="turn")
    back = turns.with_fallback_config(reset="iteration", sdk_retries="keep")
    for made in (plain, turns, back):
        assert made.fallbacks == plain.fallbacks
        assert (made.options.agent, made.options.config.max_attempts) == ("a", 5)
    assert [made.options.sdk_retries for made in (plain, turns, back)] == ["off", "off", "keep"]
    assert [made.options.config.reset for made in (plain, turns)] == ["iteration", "turn"]


@VERBS
async def test_a_chain_of_chains(verb: str) -> None:
    """Around a FallbackChatModel the middleware asks when its whole chain is exhausted."""
    inner = FallbackChatModel(dead("a"), dead("b"), max_attempts=2)
    answered = await run(verb, agent(inner, FallbackMiddleware(chat("backup", *ROUNDS))))
    assert last(answered).text == "done"
    last_model = FakeListChatModel(responses=["unused"])
    nested = FallbackMiddleware(FallbackChatModel(dead("c"), alive("d")), last_model)
    assert last(await run(verb, agent(dead(), nested))).text == "from d"


def test_an_agent_takes_one() -> None:
    """LangChain refuses two by their name, a subclass's too: they would share one turn."""

    class Mine(FallbackMiddleware):
        pass

    for kind in (FallbackMiddleware, Mine):
        with pytest.raises(AssertionError, match="duplicate middleware"):
            agent(alive(), FallbackMiddleware(alive()), kind(alive()))
