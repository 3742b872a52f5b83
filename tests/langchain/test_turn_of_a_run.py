"""An agent's run is one turn: its calls share a name, and observers hear its end once."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from langchain.agents.middleware import AgentMiddleware, AgentState
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command, interrupt

from honcho_fallback import FallbackExhausted, TurnEnd
from honcho_fallback.testing import StatusError
from honcho_fallback.tools import ToolLoopLimits
from honcho_fallback_langchain import (
    FallbackMiddleware,
    ToolLoopGuardMiddleware,
)
from tests.helpers.agents import agent, calls, last, run, stream
from tests.helpers.chat_models import ScriptedChat, alive, chat, dead, look_up
from tests.helpers.observers import Listener


# Streams give the messages of a script ids, so each test has its own.
def rounds() -> list[Any]:
    """Return what a model says in a loop of three rounds."""
    return [calls("look_up", 1, city="Oslo"), calls("look_up", 2, city="Rome"), "done"]


VERBS = pytest.mark.parametrize("verb", ["invoke", "ainvoke"])
RESETS = pytest.mark.parametrize("reset", ["iteration", "turn"])


class Turns(Listener):
    """Keep what is said of turns, too."""

    def __init__(self) -> None:
        super().__init__()
        self.ends: list[TurnEnd] = []

    def on_turn_end(self, turn: TurnEnd) -> None:
        self.ends.append(turn)

    @property
    def ids(self) -> list[str | None]:
        """Return the turn of each call."""
        # Calls that run together end in any order.
        ended = {one.call_id: one.turn_id for one in self.records}
        assert ended == {one.call_id: one.turn_id for one in self.starts}
        return [one.turn_id for one in self.starts]

    def outcome_of(self, *turn_ids: str | None) -> str:
        """Return how the one turn of some calls ended."""
        (turn_id,) = {*turn_ids}
        (end,) = [one for one in self.ends if one.turn_id == turn_id]
        return end.outcome


def thread(name: str = "t") -> dict[str, Any]:
    return {"configurable": {"thread_id": name}}


@tool
def ask_user(what: str) -> str:
    """Ask the user."""
    return str(interrupt(what))


@tool
def break_down() -> str:
    """Break down."""
    raise RuntimeError("a bug")


GUARDED = pytest.mark.parametrize("guarded", [False, True])


@VERBS
@RESETS
@GUARDED
@pytest.mark.parametrize("primary", ["dead", "alive"])
async def test_the_calls_of_a_run_are_one_turn(
    verb: str, reset: Any, guarded: bool, primary: str
) -> None:
    """Three rounds have one name and one end; the next run has another, with memory or without."""
    observer = Turns()
    script = [*rounds(), *rounds()]
    model = dead() if primary == "dead" else chat("primary", *script)
    middleware = FallbackMiddleware(chat("backup", *script), reset=reset, observers=[observer])
    guard = [ToolLoopGuardMiddleware()] if guarded else []
    made = agent(model, *guard, middleware, checkpointer=InMemorySaver())
    for _ in range(2):
        assert last(await run(verb, made, config=thread())).text == "done"
    assert len(observer.ids) == 6
    assert observer.outcome_of(*observer.ids[:3]) == "completed"
    assert observer.outcome_of(*observer.ids[3:]) == "completed"
    assert len(observer.ends) == 2


@VERBS
@RESETS
async def test_an_interrupt_and_what_resumes_it_are_one_turn(verb: str, reset: Any) -> None:
    """The checkpoint keeps the name: a middleware that was made anew goes on with it."""
    observer, saver = Turns(), InMemorySaver()
    primary = chat("primary", rounds()[0], calls("ask_user", 2, what="sure?"), "done")
    steps: list[Any] = ["hi", Command(resume="yes")]
    agents: list[Any] = []  # each is still there when the next goes on
    for given in steps:
        middleware = FallbackMiddleware(alive(), reset=reset, observers=[observer])
        made = agent(primary, middleware, tools=[look_up, ask_user], checkpointer=saver)
        agents.append(made)
        state = await run(verb, made, given, thread())
        assert bool(observer.ends) == ("__interrupt__" not in state)
    assert len(observer.ids) == 3
    assert observer.outcome_of(*observer.ids) == "completed"


class Pausing(AgentMiddleware[Any, Any, Any]):
    """Ask a person before the model is asked a second time."""

    def wrap_model_call(self, request: Any, handler: Any) -> Any:
        if request.messages[-1].type == "tool":
            interrupt("sure?")
        return handler(request)

    async def awrap_model_call(self, request: Any, handler: Any) -> Any:
        if request.messages[-1].type == "tool":
            interrupt("sure?")
        return await handler(request)


@VERBS
@RESETS
async def test_a_call_that_pauses_ends_no_turn(verb: str, reset: Any) -> None:
    """An interrupt inside a model's call is no failure, and the call after it is in the turn."""
    observer = Turns()
    primary = chat("primary", calls("look_up", 1, city="Oslo"), "done")
    middleware = FallbackMiddleware(alive(), reset=reset, observers=[observer])
    made = agent(primary, middleware, Pausing(), checkpointer=InMemorySaver())
    assert "__interrupt__" in await run(verb, made, config=thread())
    assert observer.ends == []
    assert last(await run(verb, made, Command(resume="yes"), thread())).text == "done"
    assert len(observer.ids) == 3
    assert observer.outcome_of(*observer.ids) == "completed"


@VERBS
@RESETS
async def test_a_failed_run_s_turn_has_failed(verb: str, reset: Any) -> None:
    """Nobody answers in the second round; who asks once more has another turn."""
    observer = Turns()
    primary = chat("primary", rounds()[0], StatusError(503), "done")
    middleware = FallbackMiddleware(dead("backup"), reset=reset, observers=[observer])
    made = agent(primary, middleware, checkpointer=InMemorySaver())
    with pytest.raises(FallbackExhausted):
        await run(verb, made, config=thread())
    assert observer.outcome_of(*observer.ids) == "failed"
    await run(verb, made, "again", thread())
    assert observer.outcome_of(observer.ids[-1]) == "completed"
    assert len(observer.ends) == 2


@VERBS
async def test_a_turn_that_a_tool_broke_off_ends_with_the_next(verb: str) -> None:
    """No middleware hears of it before; then it was cancelled."""
    observer = Turns()
    primary = chat("primary", calls("break_down", 1), "done")
    middleware = FallbackMiddleware(alive(), observers=[observer])
    made = agent(primary, middleware, tools=[break_down], checkpointer=InMemorySaver())
    with pytest.raises(RuntimeError, match="a bug"):
        await run(verb, made, config=thread())
    assert observer.ends == []
    await run(verb, made, "again", thread())
    broken, other = observer.ids
    assert observer.outcome_of(broken) == "cancelled"
    assert observer.outcome_of(other) == "completed"


async def test_a_cancelled_run_s_turn_was_cancelled() -> None:
    """A task that is cancelled in the second round's request says so."""
    observer, is_asked = Turns(), asyncio.Event()

    class Waiting(ScriptedChat):
        async def _agenerate(self, *args: Any, **kwargs: Any) -> Any:
            if self.asked:
                is_asked.set()
                await asyncio.Event().wait()
            return await super()._agenerate(*args, **kwargs)

    middleware = FallbackMiddleware(alive(), observers=[observer])
    made = agent(Waiting(model="primary", script=[[rounds()[0]]]), middleware)
    task = asyncio.create_task(run("ainvoke", made))
    await is_asked.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert len(observer.ids) == 2
    assert observer.outcome_of(*observer.ids) == "cancelled"


@VERBS
@pytest.mark.parametrize("limits", [{"max_iterations": 1}, {"identical_failures": 3}], ids=str)
async def test_a_guard_that_halts_ends_the_turn(verb: str, limits: dict[str, int]) -> None:
    """No model gives the last answer, and the turn has failed all the same."""
    observer = Turns()
    primary = chat("primary", *[calls("break_down", number) for number in range(9)])
    guard = ToolLoopGuardMiddleware(ToolLoopLimits(**limits))
    middleware = FallbackMiddleware(alive(), observers=[observer])
    answered = await run(verb, agent(primary, guard, middleware, tools=[break_down]))
    assert last(answered).response_metadata["tool_loop"]["action"] == "halt"
    assert observer.outcome_of(*observer.ids) == "failed"


@VERBS
@RESETS
@pytest.mark.parametrize("through", ["context", "config"])
async def test_a_turn_around_the_run_wins(verb: str, reset: Any, through: str) -> None:
    """Two runs in it have its name, and its end is its own; nothing of it is in the graph."""
    observer = Turns()
    backup = chat("backup", *rounds(), *rounds())
    middleware = FallbackMiddleware(backup, reset=reset, observers=[observer])
    made = agent(dead(), middleware, checkpointer=InMemorySaver())
    config = thread()
    turn = middleware.turn()
    if through == "config":
        config["configurable"]["fallback_turn"] = turn
        for _ in range(2):
            await run(verb, made, config=config)
        turn.end()
    else:
        with turn:
            for _ in range(2):
                await run(verb, made, config=config)
    assert {*observer.ids} == {turn.turn_id}
    assert len(observer.ids) == 6
    assert observer.outcome_of(turn.turn_id) == "completed"
    assert len(observer.ends) == 1
    assert "honcho_fallback_turn" not in made.get_state(thread()).values


@VERBS
async def test_who_observes_no_turns_costs_an_agent_no_state(verb: str) -> None:
    """With `reset="iteration"` and an observer of calls alone nothing is written, and named."""
    observer = Listener()
    made = agent(
        dead(), FallbackMiddleware(chat("backup", *rounds()), observers=[observer]), name="a"
    )
    parts = await stream(verb, made, "updates")
    assert {key for part in parts for update in part.values() for key in update} == {"messages"}
    assert {one.turn_id for one in observer.starts} == {None}


async def test_a_state_without_a_place_has_no_turns() -> None:
    """A subclass with a state of its own works as ever, and its calls are in no turn."""

    class Bare(FallbackMiddleware):
        state_schema = AgentState

    observer = Turns()
    await run("invoke", agent(dead(), Bare(chat("backup", *rounds()), observers=[observer])))
    assert observer.ids == [None] * 3
    assert observer.ends == []
