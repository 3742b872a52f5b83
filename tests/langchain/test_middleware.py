"""The middleware for `create_agent`: what switches, what does not, and what is told of it."""

from __future__ import annotations

from contextlib import nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from langchain.agents.middleware import (
    HumanInTheLoopMiddleware,
    LLMToolSelectorMiddleware,
    ModelCallLimitMiddleware,
    ModelFallbackMiddleware,
    ModelRetryMiddleware,
    SummarizationMiddleware,
    ToolCallLimitMiddleware,
)
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
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.errors import GraphBubbleUp, GraphInterrupt
from langgraph.types import Command

from honcho_fallback import FailureKind, FallbackConfig, FallbackExhausted
from honcho_fallback.testing import StatusError
from honcho_fallback_langchain import (
    FallbackChatModel,
    FallbackMiddleware,
    FallbackRunnable,
    ToolLoopGuardMiddleware,
)
from tests.helpers.agents import (
    ROUNDS,
    VERBS,
    WAYS,
    Around,
    agent,
    by,
    calls,
    last,
    run,
    stream,
    thread,
)
from tests.helpers.chat_models import Joke, alive, chat, dead, look_up
from tests.helpers.observers import Listener

if TYPE_CHECKING:
    from collections.abc import Sequence

SWITCHABLE = frozenset(FailureKind) - {FailureKind.CANCELLED}


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
@pytest.mark.parametrize("strategy", [ToolStrategy(Joke), AutoStrategy(Joke), Joke])
@pytest.mark.parametrize("way", WAYS)
async def test_structured_output_by_tool(verb: str, strategy: Any, way: str) -> None:
    """The fallback answers in the schema by a tool, also behind a FallbackChatModel."""
    answers = chat("backup", ROUNDS[0], calls("Joke", 2, setup="Why?"))
    answered = await run(verb, agent(*by(way, dead(), answers), response_format=strategy))
    assert answered["structured_response"] == Joke(setup="Why?")
    assert answered["messages"][-2].response_metadata["fallback"]["is_fallback"]
    assert answers.bindings[0]["tool_choice"] == "any"
    tools = [one["function"]["name"] for one in answers.asked[0].kwargs["tools"]]
    assert tools == ["look_up", "Joke"]


@VERBS
async def test_structured_output_by_provider_follows_the_model_asked(verb: str) -> None:
    """The strategy is chosen anew for the fallback: a tool here, the provider's own way there."""
    native = chat("backup", '{"setup": "Why?"}', profile={"structured_output": True})
    for strategy in (Joke, ProviderStrategy(Joke)):
        primary = dead()
        made = agent(primary, FallbackMiddleware(native), response_format=strategy)
        answered = await run(verb, made)
        assert answered["structured_response"] == Joke(setup="Why?")
        assert ("tool_choice" in primary.bindings[0]) == (strategy is Joke)
        assert "response_format" in native.bindings[0]


@VERBS
async def test_an_answer_that_does_not_fit_the_programs_schema_is_the_programs(
    verb: str,
) -> None:
    """It comes out as LangChain's, as without the middleware; nobody is asked to do it better.

    Nor of what a middleware inside could not read.
    """
    primary, backup = chat("primary", calls("Joke", 1, ground="wet")), alive()
    strategy = ToolStrategy(Joke, handle_errors=False)
    made = agent(primary, FallbackMiddleware(backup), response_format=strategy)
    with pytest.raises(StructuredOutputValidationError):
        await run(verb, made)
    parsing = Around(response=lambda it: JsonOutputParser().invoke(it.result[0]))
    with pytest.raises(OutputParserException):
        await run(verb, agent(primary, FallbackMiddleware(backup), parsing))
    assert (len(primary.asked), len(backup.asked)) == (2, 0)


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


# LangChain's own middlewares around and inside ours: the order, and what follows from it.
#
# | beside ours | outside of it | inside of it |
# |---|---|---|
# | ModelRetryMiddleware | tries the whole chain again | tries each model; its error switches |
# | one that picks the model at run time | picks the primary | stands for the agent's own alone |
# | ModelFallbackMiddleware | asks its models when our chain is exhausted | asks its models first |
# | LLMToolSelectorMiddleware | selects once, with no fallback | selects in each attempt |
# | ModelCallLimit, ToolCallLimit | count rounds, not attempts | the same |
# | SummarizationMiddleware | its own call is not ours | the same |
# | HumanInTheLoopMiddleware | a pause is no failure, and the turn goes on after it | the same |
# | ToolRetryMiddleware | a tool's failure is no model's | the same |

PAGE = Path(__file__).resolve().parents[2] / "docs" / "langchain.md"
OUTSIDE = pytest.mark.parametrize("outside", [True, False])


def ordered(ours: Any, *theirs: Any, outside: bool) -> Sequence[Any]:
    """Put others before ours, which is around it, or after."""
    return (*theirs, ours) if outside else (ours, *theirs)


@VERBS
@pytest.mark.parametrize("on_failure", ["continue", "error"])
async def test_model_retry(verb: str, on_failure: Any) -> None:
    """Inside it must raise its error: as a message, its default, it is an answer.

    Outside it asks the whole chain again, and only where all of it has failed.
    """
    raises = on_failure == "error"
    retry = ModelRetryMiddleware(max_retries=1, initial_delay=0, on_failure=on_failure)
    given_up = "Model call failed after 2 attempts"
    primary, backup = dead(), alive()
    inside = await run(verb, agent(primary, FallbackMiddleware(backup), retry))
    assert last(inside).text.startswith("from backup" if raises else given_up)
    assert (len(primary.asked), len(backup.asked)) == (2, int(raises))

    primary, backup = dead(), dead("backup", 401)
    outside = agent(primary, retry, FallbackMiddleware(backup))
    with pytest.raises(FallbackExhausted) if raises else nullcontext():
        assert last(await run(verb, outside)).text.startswith(given_up)
    assert (len(primary.asked), len(backup.asked)) == (2, 2)

    primary = dead()
    answered = await run(verb, agent(primary, retry, FallbackMiddleware(alive())))
    assert (last(answered).text, len(primary.asked)) == ("from backup", 1)


@VERBS
async def test_model_fallback_inside_and_outside(verb: str) -> None:
    """LangChain's own takes part as any other middleware; each has its own models."""
    primary, theirs, ours = dead(), alive("theirs"), alive("ours")
    inside = agent(primary, FallbackMiddleware(ours), ModelFallbackMiddleware(theirs))
    assert last(await run(verb, inside)).text == "from theirs"
    assert ours.asked == []

    outside = agent(primary, ModelFallbackMiddleware(theirs), FallbackMiddleware(ours))
    assert last(await run(verb, outside)).text == "from ours"
    assert len(theirs.asked) == 1


@VERBS
@OUTSIDE
async def test_a_model_that_is_picked_at_run_time(verb: str, outside: bool) -> None:
    """It is asked once in place of the agent's own, and then the fallbacks are.

    Picked outside it is the primary, by its name; inside nobody knows of it.
    """
    own, picked, backup = alive("own"), dead("picked"), alive("backup")
    listener = Listener()
    fallback = FallbackMiddleware(backup, observers=[listener])
    # As LangChain's page on dynamic models does.
    picking = Around(lambda request: request.override(model=picked))
    stack = ordered(fallback, picking, outside=outside)
    assert last(await run(verb, agent(own, *stack))).text == "from backup"
    assert [len(one.asked) for one in (own, picked, backup)] == [0, 1, 1]
    assert listener.record.attempts[0].target == f"scripted/{'picked' if outside else 'own'}"


@VERBS
@OUTSIDE
async def test_summarization(verb: str, outside: bool) -> None:
    """Its own call is none of ours, and has its own fallback; both models get what is left."""
    heard, primary, backup = Listener(), dead(), alive()
    writer = FallbackChatModel(dead("writer"), alive("second writer", "in short"))
    shorten = SummarizationMiddleware(writer, trigger=("messages", 3), keep=("messages", 1))
    ours = FallbackMiddleware(backup, observers=[heard])
    made = agent(primary, *ordered(ours, shorten, outside=outside))
    history = [("user", "a"), ("assistant", "b"), ("user", "c"), ("user", "d")]
    assert last(await run(verb, made, {"messages": history})).text == "from backup"
    assert len(heard.records) == 1
    assert [one.text.split()[-1] for one in backup.asked[0].messages] == ["short", "d"]
    assert backup.asked[0].messages == primary.asked[0].messages


@VERBS
@OUTSIDE
@pytest.mark.parametrize(("reset", "asked"), [("iteration", 2), ("turn", 1)])
async def test_a_person_in_the_loop(verb: str, outside: bool, reset: Any, asked: int) -> None:
    """A pause is no failure; with turns the run that is resumed stays where the switch led."""
    heard, primary, backup = Listener(), dead(), chat("backup", *ROUNDS[1:])
    ours = FallbackMiddleware(backup, reset=reset, observers=[heard])
    guard = ToolLoopGuardMiddleware()
    person = HumanInTheLoopMiddleware({"look_up": True})
    stack = ordered(ours, person, outside=outside)
    made = agent(primary, guard, *stack, checkpointer=InMemorySaver())
    assert "__interrupt__" in await run(verb, made, config=thread())
    approval: Command[Any] = Command(resume={"decisions": [{"type": "approve"}]})
    answered = await run(verb, made, approval, thread())
    assert [one.type for one in answered["messages"]] == ["human", "ai", "tool", "ai"]
    assert (last(answered).text, len(primary.asked)) == ("done", asked)
    assert {record.outcome for record in heard.records} == {"success"}


@VERBS
@OUTSIDE
@pytest.mark.parametrize(
    "limit",
    [
        ModelCallLimitMiddleware(run_limit=2),
        ToolCallLimitMiddleware(run_limit=1, exit_behavior="end"),
    ],
)
async def test_limits_count_rounds(verb: str, outside: bool, limit: Any) -> None:
    """An attempt is no call of the model's: two rounds are two, however many were asked."""
    primary, backup = dead(), chat("backup", *ROUNDS)
    stack = ordered(FallbackMiddleware(backup), limit, outside=outside)
    answered = await run(verb, agent(primary, *stack))
    assert "limit" in last(answered).text
    assert (len(primary.asked), len(backup.asked)) == (2, 2)


CHOOSING = calls("ToolSelectionResponse", 1, tools=["look_up"])  # the selector's answer


@VERBS
@OUTSIDE
async def test_tool_selection(verb: str, outside: bool) -> None:
    """By a model of its own it is made once, or in each attempt; each model gets its tools."""

    @tool
    def unused() -> str:
        """Do nothing."""
        return ""

    selector, primary, backup = chat("selector", CHOOSING), dead(), alive()
    select = LLMToolSelectorMiddleware(model=selector)
    stack = ordered(FallbackMiddleware(backup), select, outside=outside)
    await run(verb, agent(primary, *stack, tools=[look_up, unused]))
    assert len(selector.asked) == (1 if outside else 2)
    for model in (primary, backup):
        (request,) = model.asked
        assert [one["function"]["name"] for one in request.kwargs["tools"]] == ["look_up"]


@VERBS
async def test_tool_selection_by_the_model_that_is_asked(verb: str) -> None:
    """Inside, who answers selects as well; outside, the agent's own model does, or nobody."""
    primary, backup = dead(), chat("backup", CHOOSING, "answer")
    select = LLMToolSelectorMiddleware()
    inside = agent(primary, FallbackMiddleware(backup), select)
    assert last(await run(verb, inside)).text == "answer"
    assert (len(primary.asked), len(backup.asked)) == (1, 2)

    with pytest.raises(StatusError):
        await run(verb, agent(dead(), select, FallbackMiddleware(alive())))


@pytest.mark.parametrize(
    ("options", "requests"),
    [
        ({}, 7),
        ({"reset": "turn"}, 3),
        ({"fallback_config": FallbackConfig.resilient()}, 3),
    ],
)
def test_a_supervisor_of_two(options: dict[str, Any], requests: int) -> None:
    """Once per model call by default, once per agent and run with `reset="turn"`, per the page."""
    primaries: list[Any] = []

    def made(*tools: Any) -> Any:
        primaries.append(dead())
        rounds = [calls(one.name, at) for at, one in enumerate(tools)]
        backup = chat("backup", *rounds, "done")
        return agent(primaries[-1], FallbackMiddleware(backup, **options), tools=tools)

    def worker(name: str) -> Any:
        asked = made(look_up)

        @tool(name)
        def ask() -> str:
            """Ask an agent."""
            return str(last(asked.invoke({"messages": [("user", "go")]})).text)

        return ask

    supervisor = made(worker("first"), worker("second"))
    assert last(supervisor.invoke({"messages": [("user", "go")]})).text == "done"
    assert sum(len(primary.asked) for primary in primaries) == requests
    first_screen = PAGE.read_text("utf-8").partition("On this page:")[0]
    assert "sends a dead primary 3 requests, not 7" in first_screen
