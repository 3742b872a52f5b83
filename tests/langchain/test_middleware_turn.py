"""How long a switch lasts in an agent, and that it is nobody else's business."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command, interrupt

from honcho_fallback import FallbackExhausted
from honcho_fallback.testing import StatusError
from honcho_fallback_langchain import FallbackMiddleware
from honcho_fallback_langchain._middleware import POSITION
from tests.helpers.agents import ROUNDS, agent, calls, last, run
from tests.helpers.chat_models import Asked, ScriptedChat, alive, chat, dead

if TYPE_CHECKING:
    from langchain_core.messages import BaseMessage

VERBS = pytest.mark.parametrize("verb", ["invoke", "ainvoke"])


def thread(name: str) -> dict[str, Any]:
    return {"configurable": {"thread_id": name}}


@tool
def ask_user(what: str) -> str:
    """Ask the user."""
    return str(interrupt(what))


@VERBS
async def test_each_iteration_starts_on_the_agents_model(verb: str) -> None:
    """With `reset="iteration"` a loop of three rounds asks the dead primary three times."""
    primary, backup = dead(), chat("backup", *ROUNDS)
    answered = await run(verb, agent(primary, FallbackMiddleware(backup)))
    assert last(answered).text == "done"
    assert (len(primary.asked), len(backup.asked)) == (3, 3)


@VERBS
async def test_an_iteration_returns_to_a_primary_that_recovered(verb: str) -> None:
    """Only the round that failed is answered by the backup."""
    primary = chat("primary", ROUNDS[0], StatusError(529), "done by primary")
    backup = chat("backup", ROUNDS[1])
    answered = await run(verb, agent(primary, FallbackMiddleware(backup)))
    assert last(answered).text == "done by primary"
    assert (len(primary.asked), len(backup.asked)) == (3, 1)


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
    assert made.get_state(thread("t")).values[POSITION] == 1

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
    assert before.get_state(thread("t")).values[POSITION] == 1
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
    made = agent(
        primary,
        FallbackMiddleware(chat("backup", *ROUNDS), reset="turn"),
        checkpointer=InMemorySaver(),
    )
    for schema in (made.get_input_jsonschema(), made.get_output_jsonschema()):
        assert "messages" in str(schema)
        assert POSITION not in str(schema)
    given = {"messages": [("user", "hi")], POSITION: 1}
    answered = await run("invoke", made, given, thread("t"))
    assert POSITION not in answered
    assert len(primary.asked) == 1
    assert made.get_state(thread("t")).values[POSITION] == 1


def test_iterations_cost_no_node() -> None:
    """Only turns add a node to the graph, and a key to its state."""
    plain, turns = (
        agent(alive(), FallbackMiddleware(alive(), reset=reset)) for reset in ("iteration", "turn")
    )
    assert set(turns.get_graph().nodes) - set(plain.get_graph().nodes) == {
        "FallbackMiddleware.before_agent"
    }
    assert POSITION not in plain.channels
    assert POSITION in turns.channels


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


async def test_two_agents_share_a_middleware() -> None:
    """Each starts on its own model, whichever was asked before."""
    one, other = Looping(model="one"), Looping(model="other")
    backup = alive()
    middleware = FallbackMiddleware(backup)
    agents = {model.model: agent(model, middleware) for model in (one, other)}
    names = ["one", "other"] * 20
    answers = await asyncio.gather(*(run("ainvoke", agents[name]) for name in names))
    for name, answered in zip(names, answers, strict=True):
        told = [m.response_metadata for m in answered["messages"] if m.type == "ai"]
        assert {entry["model_name"] for entry in told} == {name}
        assert {entry["fallback"]["model"] for entry in told} == {name}
    assert backup.asked == []
