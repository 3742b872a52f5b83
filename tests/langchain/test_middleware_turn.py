"""How long a switch lasts in an agent, and that it is nobody else's business."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest
from langchain.agents.middleware import AgentState, SummarizationMiddleware
from langchain.agents.structured_output import ToolStrategy
from langchain_core.messages import AIMessage, HumanMessage, RemoveMessage, ToolMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph.message import REMOVE_ALL_MESSAGES
from langgraph.types import Command, interrupt

from honcho_fallback import FallbackConfigError, FallbackExhausted, TurnEnd
from honcho_fallback.testing import StatusError
from honcho_fallback.tools import ToolLoopLimits
from honcho_fallback_langchain import FallbackMiddleware, ToolLoopGuardMiddleware
from honcho_fallback_langchain._middleware import TURN, TURN_IN_RUN, FallbackState
from honcho_fallback_langchain._tool_guard import TOOL_LOOP, TOOL_LOOP_IN_RUN
from tests.helpers.agents import (
    ROUNDS,
    VERBS,
    Around,
    BeforeModel,
    agent,
    as_a_person,
    ask_user,
    calls,
    last,
    raising,
    run,
    thread,
)
from tests.helpers.chat_models import Asked, Joke, ScriptedChat, alive, chat, dead, gpt, look_up
from tests.helpers.observers import Listener

if TYPE_CHECKING:
    from langchain_core.messages import BaseMessage

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


def position(made: Any) -> int:
    """Return where the turn stands in the checkpoint."""
    kept = made.get_state(thread()).values.get(TURN, {})
    return int(kept.get("position", 0))


BREAKS = raising(RuntimeError("a bug")).made


@VERBS
async def test_a_turn_goes_down_the_chain_step_by_step(verb: str) -> None:
    """The second fallback holds as the first did; the next turn has the whole chain again.

    So has the one after a turn in which nobody answered.
    """
    down = StatusError(503)
    primary = chat("primary", down, down, "recovered")
    first = chat("first", ROUNDS[0], down, ROUNDS[0], down)
    second = chat("second", *ROUNDS[1:], down)
    middleware = FallbackMiddleware(first, second, reset="turn", max_attempts=2)
    made = agent(primary, middleware, checkpointer=InMemorySaver())
    assert last(await run(verb, made, config=thread())).text == "done"
    assert [len(model.asked) for model in (primary, first, second)] == [1, 2, 2]

    with pytest.raises(FallbackExhausted):
        await run(verb, made, config=thread())
    assert [len(model.asked) for model in (primary, first, second)] == [2, 4, 3]
    assert position(made) == 1

    assert last(await run(verb, made, config=thread())).text == "recovered"
    assert [len(model.asked) for model in (primary, first, second)] == [3, 4, 3]


@VERBS
async def test_a_checkpoint_of_a_longer_chain_is_read(verb: str) -> None:
    """An agent that lost a fallback meanwhile goes on with the last that it has."""
    saver, primary = InMemorySaver(), dead()
    asking = chat("second", calls("ask_user", 1, what="sure?"))
    longer = FallbackMiddleware(dead("first"), asking, reset="turn")
    await run(verb, agent(primary, longer, tools=[ask_user], checkpointer=saver), config=thread())
    backup = chat("backup", "done")
    shorter = FallbackMiddleware(backup, reset="turn")
    made = agent(primary, shorter, tools=[ask_user], checkpointer=saver)
    assert last(await run(verb, made, Command(resume="yes"), thread())).text == "done"
    assert len(primary.asked) == 1


async def test_what_the_graph_keeps_is_private() -> None:
    """Place and counts are in no schema and no answer, and nobody passes them in."""
    primary = dead()
    backup = chat("backup", ROUNDS[0], calls("ask_user", 2, what="sure?"), "done")
    made = agent(
        primary,
        ToolLoopGuardMiddleware(ToolLoopLimits(max_iterations=2)),
        FallbackMiddleware(backup, reset="turn"),
        tools=[look_up, ask_user],
        checkpointer=InMemorySaver(),
    )
    for schema in (made.get_input_jsonschema(), made.get_output_jsonschema()):
        assert "messages" in str(schema)
        assert "honcho_fallback" not in str(schema)
    counted = {"counts": {"iterations": 2}, "counted": "x"}
    given = {"messages": [("user", "hi")], TURN: {"position": 1}, TOOL_LOOP: counted}
    in_run = {TURN_IN_RUN: True, TOOL_LOOP_IN_RUN: True}
    paused = await run("invoke", made, {**given, **in_run}, thread())
    assert (len(primary.asked), position(made)) == (1, 1)
    answered = await run("invoke", made, Command(resume="yes"), thread())
    assert (len(primary.asked), position(made), last(answered).text) == (1, 0, "done")
    assert "honcho_fallback" not in str([*paused, *answered])


@VERBS
async def test_a_subclass_needs_a_place_for_its_turns(verb: str) -> None:
    """A state of its own without one is refused, or has no turns; derived from ours it is fine."""

    class Mine(FallbackMiddleware):
        mine = True

    class Bare(FallbackMiddleware):
        state_schema = AgentState

    class Own(FallbackState):
        own: str

    class Derived(FallbackMiddleware):
        state_schema = Own

    assert FallbackMiddleware.state_schema is FallbackState  # as the error calls it
    for kind in (Mine, Derived):
        primary, backup = dead(), chat("backup", *ROUNDS)
        copy = kind(backup).with_fallback_config(reset="turn")
        assert type(copy) is kind
        assert last(await run(verb, agent(primary, copy))).text == "done"
        assert (len(primary.asked), len(backup.asked)) == (1, 3)
    with pytest.raises(FallbackConfigError, match="state_schema: that of Bare has no place"):
        Bare(alive(), reset="turn")
    observer = Turns()
    await run(verb, agent(dead(), Bare(chat("backup", *ROUNDS), observers=[observer])))
    assert (observer.ids, observer.ends) == ([None] * 3, [])


async def test_an_answer_in_a_schema_ends_a_turn() -> None:
    """It may be a call of a tool, and is the end of the run all the same."""
    heard, backup = Listener(), chat("backup", ROUNDS[0], calls("Joke", 2, setup="Why?"))
    middleware = FallbackMiddleware(backup, reset="turn", observers=[heard])
    made = agent(
        dead(), middleware, response_format=ToolStrategy(Joke), checkpointer=InMemorySaver()
    )
    answered = await run("invoke", made, config=thread())
    assert answered["structured_response"] == Joke(setup="Why?")
    assert (len(heard.restores), position(made)) == (1, 0)


def without_person(messages: list[BaseMessage]) -> list[Any]:
    """Take the person's messages out once the model has spoken."""
    kept = [one for one in messages if one.type != "human"]
    return [RemoveMessage(REMOVE_ALL_MESSAGES), *kept] if kept else []


# Sums all up but the last messages, before each call of the model.
SUMMING = SummarizationMiddleware(alive("writer"), trigger=("messages", 2), keep=("messages", 1))


@VERBS
@pytest.mark.parametrize(
    "beside", [BeforeModel(without_person), BeforeModel(as_a_person), SUMMING]
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
    await run(verb, made, config=thread())
    answered = await run(verb, made, Command(resume="yes"), thread())
    assert last(answered).text == "done"
    assert (len(primary.asked), len(backup.asked)) == (1, 4)


@VERBS
@pytest.mark.parametrize("checkpointer", [None, True])
async def test_a_history_given_anew_is_a_new_turn(verb: str, checkpointer: Any) -> None:
    """Who sends the whole history with each call has a turn for each of a person's messages."""
    primary = dead()
    backup = chat("backup", calls("work", 1), *ROUNDS)
    middleware = FallbackMiddleware(backup, reset="turn")
    tools = [look_up, BREAKS]
    saver = checkpointer and InMemorySaver()
    made = agent(primary, middleware, tools=tools, checkpointer=saver)
    earlier = [HumanMessage("a"), ROUNDS[0], ToolMessage("rain", tool_call_id="call_1")]
    config = thread() if checkpointer else None
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
@pytest.mark.parametrize("kind", ["tasks", "threads"])
async def test_runs_share_nothing(kind: str) -> None:
    """Of 100 concurrent runs on one middleware half fail, and no other touches the backup."""
    primary, backup = Looping(model="primary", fails_on="fail"), Looping(model="backup")
    made = agent(primary, FallbackMiddleware(backup, reset="turn"))
    questions = ["fail", "fine"] * 50
    if kind == "tasks":
        answers = await asyncio.gather(*(run("ainvoke", made, one) for one in questions))
    else:
        with ThreadPoolExecutor(20) as pool:
            answers = list(
                pool.map(lambda one: made.invoke({"messages": [("user", one)]}), questions)
            )
    for question, answered in zip(questions, answers, strict=True):
        marks = [one.response_metadata.get("fallback") for one in answered["messages"]]
        told = [mark["is_fallback"] for mark in marks if mark]
        assert told == [question == "fail"] * 3
    assert [one.messages[0].content for one in backup.asked] == ["fail"] * 150
    assert sum(one.messages[0].content == "fail" for one in primary.asked) == 50


async def test_a_middleware_keeps_few_chains() -> None:
    """An agent whose model is made anew for every call does not fill the memory.

    All ask the same quiet copies of the fallbacks; the user's objects are untouched.
    """
    given = gpt()
    middleware = FallbackMiddleware(given)
    primaries = [alive("primary") for _ in range(50)]
    made = [middleware._chain_of(primary) for primary in primaries]
    assert len(middleware._chains) == 32
    assert middleware._chain_of(primaries[-1]) is made[-1]
    assert len({chain.targets[0].identity for chain in made}) == 50
    (asked,) = {id(chain.targets[1].client): chain.targets[1] for chain in made}.values()
    assert asked.client is not given
    assert middleware.fallbacks == [given]


# An agent's run is one turn: its calls share a name, and observers hear its end once.


@VERBS
@RESETS
@pytest.mark.parametrize("guarded", [False, True])
@pytest.mark.parametrize("primary", ["dead", "alive"])
async def test_the_calls_of_a_run_are_one_turn(
    verb: str, reset: Any, guarded: bool, primary: str
) -> None:
    """Three rounds have one name and one end; the next run has another, with memory or without."""
    observer = Turns()
    script = [*ROUNDS, *ROUNDS]
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
    """A run that is resumed goes on where the turn was, under its name; the next starts anew.

    It is another agent, as after a restart: nothing but the checkpoint is shared.
    """
    observer, saver, primary = Turns(), InMemorySaver(), dead()
    backup = chat("backup", calls("ask_user", 1, what="sure?"), "done", "next")
    agents: list[Any] = []  # each is still there when the next goes on
    resume: Command[Any] = Command(resume="yes")
    for given, ends in (("hi", 0), (resume, 1), ("again", 2)):
        middleware = FallbackMiddleware(backup, reset=reset, observers=[observer])
        made = agent(primary, middleware, tools=[ask_user], checkpointer=saver)
        agents.append(made)
        state = await run(verb, made, given, thread())
        assert len(observer.ends) == ends
        assert ("__interrupt__" in state) == (ends == 0)
        assert "__interrupt__" in state or last(state).text == ("done" if ends == 1 else "next")
        if reset == "turn":
            assert position(made) == (ends == 0)
    assert (len(primary.asked), len(backup.asked)) == (2 if reset == "turn" else 3, 3)
    first, resumed, other = observer.ids
    assert observer.outcome_of(first, resumed) == observer.outcome_of(other) == "completed"


def pause(request: Any) -> Any:
    """Ask a person before the model is asked a second time."""
    if request.messages[-1].type == "tool":
        interrupt("sure?")
    return request


@VERBS
@RESETS
async def test_a_call_that_pauses_ends_no_turn(verb: str, reset: Any) -> None:
    """An interrupt inside a model's call is no failure, and the call after it is in the turn."""
    observer = Turns()
    primary = chat("primary", calls("look_up", 1, city="Oslo"), "done")
    middleware = FallbackMiddleware(alive(), reset=reset, observers=[observer])
    made = agent(primary, middleware, Around(pause), checkpointer=InMemorySaver())
    assert "__interrupt__" in await run(verb, made, config=thread())
    assert observer.ends == []
    assert last(await run(verb, made, Command(resume="yes"), thread())).text == "done"
    assert len(observer.ids) == 3
    assert observer.outcome_of(*observer.ids) == "completed"


@VERBS
@RESETS
async def test_a_failed_run_s_turn_has_failed(verb: str, reset: Any) -> None:
    """Nobody answers in the second round; who asks once more has another turn.

    Of one that a tool broke off no middleware hears before the next: then it was cancelled.
    """
    observer = Turns()
    script = [ROUNDS[0], StatusError(503), "done", calls("work", 1), "done"]
    middleware = FallbackMiddleware(dead("backup"), reset=reset, observers=[observer])
    made = agent(
        chat("primary", *script),
        middleware,
        tools=[look_up, BREAKS],
        checkpointer=InMemorySaver(),
    )
    with pytest.raises(FallbackExhausted):
        await run(verb, made, config=thread())
    assert observer.outcome_of(*observer.ids) == "failed"
    await run(verb, made, "again", thread())
    with pytest.raises(RuntimeError, match="a bug"):
        await run(verb, made, "and again", thread())
    assert len(observer.ends) == 2
    await run(verb, made, "once more", thread())
    *_, answered, broken, other = observer.ids
    outcomes = [observer.outcome_of(one) for one in (answered, broken, other)]
    assert outcomes == ["completed", "cancelled", "completed"]


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
    made = agent(Waiting(model="primary", script=[[ROUNDS[0]]]), middleware)
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
    primary = chat("primary", *[calls("work", number) for number in range(9)])
    guard = ToolLoopGuardMiddleware(ToolLoopLimits(**limits))
    middleware = FallbackMiddleware(alive(), observers=[observer])
    answered = await run(verb, agent(primary, guard, middleware, tools=[BREAKS]))
    assert last(answered).response_metadata["tool_loop"]["action"] == "halt"
    assert observer.outcome_of(*observer.ids) == "failed"


@VERBS
@RESETS
@pytest.mark.parametrize("through", ["context", "config"])
async def test_a_turn_around_the_run_wins(verb: str, reset: Any, through: str) -> None:
    """Two runs in it have its name, and its end is its own; nothing of it is in the graph.

    With `reset="turn"` the dead primary is asked once in all of it, and again after it.
    """
    observer = Turns()
    primary, backup = dead(), chat("backup", *ROUNDS, *ROUNDS)
    middleware = FallbackMiddleware(backup, reset=reset, observers=[observer])
    made = agent(primary, middleware, checkpointer=InMemorySaver())
    config = thread()
    turn = middleware.turn()
    if through == "config":
        config["configurable"]["fallback_turn"] = turn
        for _ in range(2):
            await run(verb, made, config=config)
        assert observer.restores == []
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
    asked, lasts = len(primary.asked), reset == "turn"
    assert (asked, turn.position, len(observer.restores)) == ((1, 1, 1) if lasts else (6, 0, 0))
    await run(verb, made, config=thread("u"))
    assert len(primary.asked) > asked
