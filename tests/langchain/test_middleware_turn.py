"""How long a switch lasts in an agent, and that it is nobody else's business."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest
from langchain.agents.middleware import AgentMiddleware, AgentState, SummarizationMiddleware
from langchain.agents.structured_output import ToolStrategy
from langchain_core.messages import AIMessage, HumanMessage, RemoveMessage, ToolMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph.message import REMOVE_ALL_MESSAGES
from langgraph.types import Command, interrupt
from pydantic import BaseModel

from honcho_fallback import FallbackConfigError, FallbackExhausted
from honcho_fallback.testing import StatusError
from honcho_fallback_langchain import FallbackMiddleware
from honcho_fallback_langchain._middleware import TURN, TURN_IN_RUN, FallbackState
from tests.helpers.agents import ROUNDS, agent, calls, last, run
from tests.helpers.chat_models import Asked, ScriptedChat, alive, chat, dead, look_up
from tests.helpers.observers import Listener

if TYPE_CHECKING:
    from langchain_core.messages import BaseMessage

VERBS = pytest.mark.parametrize("verb", ["invoke", "ainvoke"])


def thread(name: str) -> dict[str, Any]:
    return {"configurable": {"thread_id": name}}


def position(made: Any) -> int:
    """Return where the turn stands in the checkpoint."""
    kept = made.get_state(thread("t")).values.get(TURN, {})
    return int(kept.get("position", 0))


@tool
def break_down() -> str:
    """Break down."""
    raise RuntimeError("a bug")


@tool
def ask_user(what: str) -> str:
    """Ask the user."""
    return str(interrupt(what))


@VERBS
async def test_a_turn_asks_the_dead_primary_once(verb: str) -> None:
    """With `reset="turn"` the switch holds to the turn's end, and no longer."""
    primary, backup = dead(), chat("backup", *ROUNDS, *ROUNDS)
    made = agent(primary, FallbackMiddleware(backup, reset="turn"), checkpointer=InMemorySaver())
    for turn in (1, 2):
        assert last(await run(verb, made, config=thread("t"))).text == "done"
        assert (len(primary.asked), len(backup.asked)) == (turn, 3 * turn)


@VERBS
async def test_a_turn_goes_down_the_chain_step_by_step(verb: str) -> None:
    """The second fallback holds as the first did; the next turn has the whole chain again."""
    primary = dead()
    first = chat("first", ROUNDS[0], StatusError(503), "first again")
    second = chat("second", *ROUNDS[1:])
    middleware = FallbackMiddleware(first, second, reset="turn")
    made = agent(primary, middleware, checkpointer=InMemorySaver())
    assert last(await run(verb, made, config=thread("t"))).text == "done"
    assert [len(model.asked) for model in (primary, first, second)] == [1, 2, 2]

    assert last(await run(verb, made, config=thread("t"))).text == "first again"
    assert [len(model.asked) for model in (primary, first, second)] == [2, 3, 2]


@VERBS
async def test_a_turn_after_an_exhausted_one_has_the_whole_chain(verb: str) -> None:
    """Nobody answered once; the next turn starts on the primary all the same."""
    primary = chat("primary", StatusError(503), "recovered")
    first = chat("first", ROUNDS[0], StatusError(503))
    second = dead("second")
    middleware = FallbackMiddleware(first, second, reset="turn", max_attempts=2)
    made = agent(primary, middleware, checkpointer=InMemorySaver())
    with pytest.raises(FallbackExhausted):
        await run(verb, made, config=thread("t"))
    assert [len(model.asked) for model in (primary, first, second)] == [1, 2, 1]
    assert position(made) == 1

    assert last(await run(verb, made, config=thread("t"))).text == "recovered"
    assert [len(model.asked) for model in (primary, first, second)] == [2, 2, 1]


@VERBS
async def test_a_switch_survives_an_interrupt(verb: str) -> None:
    """A run that is resumed goes on where the turn was; the next one starts anew."""
    primary = dead()
    backup = chat("backup", calls("ask_user", 1, what="sure?"), "done", "next")
    middleware = FallbackMiddleware(backup, reset="turn")
    # another agent, as after a restart: nothing but the checkpoint is shared
    saver = InMemorySaver()
    before = agent(primary, middleware, tools=[ask_user], checkpointer=saver)
    paused = await run(verb, before, config=thread("t"))
    assert paused["__interrupt__"][0].value == "sure?"
    assert position(before) == 1
    assert len(primary.asked) == 1

    after = agent(primary, middleware.with_fallback_config(), tools=[ask_user], checkpointer=saver)
    assert last(await run(verb, after, Command(resume="yes"), thread("t"))).text == "done"
    assert (len(primary.asked), len(backup.asked)) == (1, 2)

    assert last(await run(verb, after, config=thread("t"))).text == "next"
    assert (len(primary.asked), len(backup.asked)) == (2, 3)


@VERBS
async def test_a_checkpoint_of_a_longer_chain_is_read(verb: str) -> None:
    """An agent that lost a fallback meanwhile goes on with the last that it has."""
    saver, primary = InMemorySaver(), dead()
    asking = chat("second", calls("ask_user", 1, what="sure?"))
    longer = FallbackMiddleware(dead("first"), asking, reset="turn")
    await run(
        verb, agent(primary, longer, tools=[ask_user], checkpointer=saver), config=thread("t")
    )
    backup = chat("backup", "done")
    shorter = FallbackMiddleware(backup, reset="turn")
    made = agent(primary, shorter, tools=[ask_user], checkpointer=saver)
    assert last(await run(verb, made, Command(resume="yes"), thread("t"))).text == "done"
    assert len(primary.asked) == 1


async def test_the_place_in_the_chain_is_private() -> None:
    """It is in no schema of input or output and in no answer, and cannot be passed in."""
    primary = dead()
    backup = chat("backup", ROUNDS[0], calls("ask_user", 2, what="sure?"))
    made = agent(
        primary,
        FallbackMiddleware(backup, reset="turn"),
        tools=[look_up, ask_user],
        checkpointer=InMemorySaver(),
    )
    for schema in (made.get_input_jsonschema(), made.get_output_jsonschema()):
        assert "messages" in str(schema)
        assert TURN not in str(schema)
    given = {"messages": [("user", "hi")], TURN: {"position": 1}, TURN_IN_RUN: True}
    answered = await run("invoke", made, given, thread("t"))
    assert not {TURN, TURN_IN_RUN} & {*answered}
    assert len(primary.asked) == 1
    assert position(made) == 1


@VERBS
async def test_a_subclass_may_have_turns(verb: str) -> None:
    """A copy with other options keeps the class, and a switch holds in it."""

    class Mine(FallbackMiddleware):
        mine = True

    primary, backup = dead(), chat("backup", *ROUNDS)
    copy = Mine(backup).with_fallback_config(reset="turn")
    assert copy.mine
    assert last(await run(verb, agent(primary, copy))).text == "done"
    assert (len(primary.asked), len(backup.asked)) == (1, 3)


async def test_an_answer_in_a_schema_ends_a_turn() -> None:
    """It may be a call of a tool, and is the end of the run all the same."""

    class Sky(BaseModel):
        """The sky."""

        colour: str

    heard, backup = Listener(), chat("backup", ROUNDS[0], calls("Sky", 2, colour="grey"))
    middleware = FallbackMiddleware(backup, reset="turn", observers=[heard])
    made = agent(
        dead(), middleware, response_format=ToolStrategy(Sky), checkpointer=InMemorySaver()
    )
    answered = await run("invoke", made, config=thread("t"))
    assert answered["structured_response"] == Sky(colour="grey")
    assert (len(heard.restores), position(made)) == (1, 0)


def test_a_subclass_needs_a_place_for_its_turns() -> None:
    """A state of its own without one is refused; derived from ours it is fine."""

    class Bare(FallbackMiddleware):
        state_schema = AgentState

    class Own(FallbackState):
        mine: str

    class Derived(FallbackMiddleware):
        state_schema = Own

    assert FallbackMiddleware.state_schema is FallbackState  # as the error calls it
    assert Bare(alive()).options.config.reset == "iteration"
    assert Derived(alive(), reset="turn").options.config.reset == "turn"
    with pytest.raises(FallbackConfigError, match="state_schema: that of Bare has no place"):
        Bare(alive(), reset="turn")


class BeforeModel(AgentMiddleware[Any, Any, Any]):
    """Change the messages before the agent's model is asked."""

    def __init__(self, change: Any) -> None:
        super().__init__()
        self.change = change

    def before_model(self, state: Any, runtime: Any) -> Any:
        return {"messages": self.change(state["messages"])}


def without_person(messages: list[BaseMessage]) -> list[Any]:
    """Take the person's messages out once the model has spoken."""
    kept = [one for one in messages if one.type != "human"]
    return [RemoveMessage(REMOVE_ALL_MESSAGES), *kept] if kept else []


def as_a_person(messages: list[BaseMessage]) -> list[Any]:
    """Say something in a person's place after each round of the one tool."""
    return [HumanMessage("go on")] if messages[-1].name == "look_up" else []


def summarized() -> SummarizationMiddleware:
    """Sum all up but the last messages, before each call of the model."""
    return SummarizationMiddleware(alive("writer"), trigger=("messages", 2), keep=("messages", 1))


@VERBS
@pytest.mark.parametrize(
    "beside", [BeforeModel(without_person), BeforeModel(as_a_person), summarized()]
)
async def test_messages_may_change_within_a_turn(verb: str, beside: Any) -> None:
    """Who sums up, takes away or adds messages begins no turn, and who resumes a run neither."""
    primary = dead()
    backup = chat("backup", ROUNDS[0], calls("ask_user", 7, what="sure?"), ROUNDS[1], "done")
    made = agent(
        primary,
        beside,
        FallbackMiddleware(backup, reset="turn"),
        tools=[look_up, ask_user],
        checkpointer=InMemorySaver(),
    )
    await run(verb, made, config=thread("t"))
    answered = await run(verb, made, Command(resume="yes"), thread("t"))
    assert last(answered).text == "done"
    assert (len(primary.asked), len(backup.asked)) == (1, 4)


@VERBS
@pytest.mark.parametrize("checkpointer", [None, True])
async def test_a_history_given_anew_is_a_new_turn(verb: str, checkpointer: Any) -> None:
    """Who sends the whole history with each call has a turn for each of a person's messages."""
    primary = dead()
    backup = chat("backup", calls("break_down", 1), *ROUNDS)
    middleware = FallbackMiddleware(backup, reset="turn")
    tools = [look_up, break_down]
    saver = checkpointer and InMemorySaver()
    made = agent(primary, middleware, tools=tools, checkpointer=saver)
    earlier = [HumanMessage("a"), ROUNDS[0], ToolMessage("rain", tool_call_id="call_1")]
    config = thread("t") if checkpointer else None
    with pytest.raises(RuntimeError):
        await run(verb, made, {"messages": [HumanMessage("a")]}, config)
    anew = [RemoveMessage(REMOVE_ALL_MESSAGES), *earlier, AIMessage("b"), HumanMessage("c")]
    assert last(await run(verb, made, {"messages": anew}, config)).text == "done"
    assert len(primary.asked) == 2


class Looping(ScriptedChat):
    """Look up two cities, then end: by what was said before, not by how often it was asked."""

    fails_on: str = ""

    def _parts(self, messages: list[BaseMessage], kwargs: dict[str, Any]) -> list[Any]:
        self.asked.append(Asked(messages, kwargs))
        if messages[0].content == self.fails_on:
            raise StatusError(503)
        return [ROUNDS[sum(message.type == "ai" for message in messages)]]


# LangChain silences its own warning in a way that threads undo for each other.
@pytest.mark.filterwarnings("ignore:Direct attribute assignment to ModelRequest")
@pytest.mark.parametrize("reset", ["iteration", "turn"])
@pytest.mark.parametrize("kind", ["tasks", "threads"])
async def test_runs_share_nothing(kind: str, reset: Any) -> None:
    """Of 100 concurrent runs on one middleware half fail, and no other touches the backup."""
    primary, backup = Looping(model="primary", fails_on="fail"), Looping(model="backup")
    made = agent(primary, FallbackMiddleware(backup, reset=reset))
    questions = ["fail", "fine"] * 50
    if kind == "tasks":
        answers = await asyncio.gather(*(run("ainvoke", made, one) for one in questions))
    else:
        with ThreadPoolExecutor(20) as pool:
            answers = list(
                pool.map(lambda one: made.invoke({"messages": [("user", one)]}), questions)
            )
    for question, answered in zip(questions, answers, strict=True):
        failed = question == "fail"
        told = [
            message.response_metadata["fallback"]["is_fallback"]
            for message in answered["messages"]
            if message.type == "ai"
        ]
        assert told == [failed] * 3
    assert [one.messages[0].content for one in backup.asked] == ["fail"] * 150
    dead_asked = sum(one.messages[0].content == "fail" for one in primary.asked)
    assert dead_asked == (150 if reset == "iteration" else 50)


@VERBS
@pytest.mark.parametrize("way", ["with", "configurable"])
async def test_a_turn_of_the_users_holds_for_all_runs_in_it(verb: str, way: str) -> None:
    """Two agents' runs, one request to each dead primary's place; then it is over."""
    told = Listener()
    primary, backup = dead(), alive()
    middleware = FallbackMiddleware(backup, reset="turn", observers=[told])
    made = agent(primary, middleware)
    turn = middleware.turn()
    if way == "with":
        with turn:
            for _ in range(2):
                await run(verb, made)
    else:
        for _ in range(2):
            await run(verb, made, config={"configurable": {"fallback_turn": turn}})
        assert told.restores == []
        turn.end()
    assert (len(primary.asked), len(backup.asked)) == (1, 2)
    assert (turn.outcome, turn.position, len(told.restores)) == ("completed", 1, 1)
    await run(verb, made)
    assert len(primary.asked) == 2


async def test_a_middleware_keeps_few_chains() -> None:
    """An agent whose model is made anew for every call does not fill the memory."""
    middleware = FallbackMiddleware(alive())
    primaries = [alive("primary") for _ in range(50)]
    made = [middleware._chain_of(primary) for primary in primaries]
    assert len(middleware._chains) == 32
    assert middleware._chain_of(primaries[-1]) is made[-1]
    assert len({chain.targets[0].identity for chain in made}) == 50
    assert len({chain.targets[1].identity for chain in made}) == 1
