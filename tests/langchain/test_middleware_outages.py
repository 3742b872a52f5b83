"""What looks beyond one call, in an agent: cooldowns, deadlines, gates, and how a turn ends."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command, interrupt

from honcho_fallback import (
    Cooldown,
    FallbackConfig,
    FallbackConfigError,
    FallbackExhausted,
    Turn,
)
from honcho_fallback.testing import StatusError
from honcho_fallback_langchain import FallbackChatModel, FallbackMiddleware
from tests.helpers.agents import ROUNDS, agent, calls, last, run
from tests.helpers.chat_models import alive, chat, dead, model_at, serve, silent
from tests.helpers.observers import Listener

if TYPE_CHECKING:
    from tests.helpers.provider import ProviderServer

# Single calls outside of turns are meant to stand alone here.
pytestmark = pytest.mark.filterwarnings("ignore:.*has no effect outside of a turn:UserWarning")


VERBS = pytest.mark.parametrize("verb", ["invoke", "ainvoke"])


def thread(name: str, **more: Any) -> dict[str, Any]:
    return {"configurable": {"thread_id": name, **more}}


@tool
def ask_user(what: str) -> str:
    """Ask the user."""
    return str(interrupt(what))


@tool
def break_down(what: str) -> str:
    """Break."""
    raise RuntimeError(what)


@VERBS
@pytest.mark.parametrize("reset", ["iteration", "turn"])
async def test_a_cooldown_outlives_iterations_and_runs(verb: str, reset: Any) -> None:
    """One request to the dead primary in three runs of three rounds."""
    primary, backup = dead(), chat("backup", *ROUNDS * 3)
    made = agent(primary, FallbackMiddleware(backup, reset=reset, cooldown=Cooldown()))
    for _ in range(3):
        assert last(await run(verb, made)).text == "done"
    assert (len(primary.asked), len(backup.asked)) == (1, 9)


@VERBS
async def test_agents_that_share_a_middleware_share_what_it_learned(verb: str) -> None:
    """Each has a primary of its own; of either and of the fallback it is known who is down."""
    models = [dead("one"), dead("two")]
    first, second = dead("first"), alive("second")
    middleware = FallbackMiddleware(first, second, cooldown=Cooldown())
    agents = [agent(model, middleware) for model in models]
    for made in [*agents, *agents, *agents]:
        assert last(await run(verb, made)).text == "from second"
    assert [len(model.asked) for model in (*models, first)] == [1, 1, 1]

    copy = middleware.with_fallback_config(agent="copy")
    assert last(await run(verb, agent(models[0], copy))).text == "from second"
    assert len(first.asked) == 1


@VERBS
async def test_a_model_made_for_each_run_is_known_by_its_facts(
    providers: ProviderServer, verb: str
) -> None:
    """Agents that are made per request find what the last one learned."""
    dead, backup = serve(providers, "openai", status=503), serve(providers, "anthropic", "hello")
    shared = Cooldown()
    for _ in range(3):
        middleware = FallbackMiddleware(model_at(backup), cooldown=shared)
        assert last(await run(verb, agent(model_at(dead), middleware))).text == "hello"
    assert (len(dead.requests), len(backup.requests)) == (1, 3)


async def test_a_middleware_keeps_few_chains() -> None:
    """An agent whose model is made anew for every call does not fill the memory."""
    middleware = FallbackMiddleware(alive())
    primaries = [alive("primary") for _ in range(50)]
    made = [middleware._chain_of(primary) for primary in primaries]
    assert len(middleware._chains) == 32
    assert middleware._chain_of(primaries[-1]) is made[-1]
    assert len({chain.targets[0].identity for chain in made}) == 50
    assert len({chain.targets[1].identity for chain in made}) == 1


@VERBS
@pytest.mark.parametrize("name", ["openai", "anthropic"])
async def test_a_deadline_leaves_time_for_the_fallback(
    providers: ProviderServer, silent_url: str, name: str, verb: str
) -> None:
    """A primary that hangs is left in time, in a thread through its SDK."""
    told, backup = Listener(), serve(providers, "openai", "hello")
    middleware = FallbackMiddleware(model_at(backup), deadline=2.4, observers=[told])
    assert last(await run(verb, agent(silent(name, silent_url), middleware))).text == "hello"
    (record,) = told.records
    assert [one.kind and one.kind.value for one in record.attempts] == ["timeout", None]


@VERBS
@pytest.mark.parametrize("way", ["with_fallback_config", "constructor", "configurable"])
async def test_a_gate_is_never_degraded(verb: str, way: str) -> None:
    """`must_not_degrade` fails closed, whoever says so."""
    primary, backup = dead(), alive()
    options: Any = {"must_not_degrade": True, "max_attempts": 1}
    middleware, config = FallbackMiddleware(backup), None
    if way == "with_fallback_config":
        middleware = middleware.with_fallback_config(**options)
    elif way == "constructor":
        middleware = FallbackMiddleware(backup, **options)
    else:
        config = {"configurable": {"fallback_config": FallbackConfig(**options)}}
    with pytest.raises(FallbackExhausted):
        await run(verb, agent(primary, middleware), config=config)
    assert backup.asked == []


@VERBS
@pytest.mark.parametrize("sent", [{"must_not_degrade": True}, "x", None, 1])
async def test_what_a_remote_caller_sends_is_ignored(verb: str, sent: Any) -> None:
    """Only a FallbackConfig is one, and only a Turn is one."""
    config = {"configurable": {"fallback_config": sent, "fallback_turn": sent}}
    answered = await run(verb, agent(dead(), FallbackMiddleware(alive())), config=config)
    assert last(answered).text == "from backup"


@VERBS
async def test_the_preset_for_production(providers: ProviderServer, verb: str) -> None:
    """`resilient()` as a whole: the dead primary is asked once, by the first of two runs."""
    dead, alive = serve(providers, "openai", status=503), serve(providers, "anthropic", "hello")
    middleware = FallbackMiddleware(model_at(alive), fallback_config=FallbackConfig.resilient())
    for _ in range(2):
        assert last(await run(verb, agent(model_at(dead), middleware))).text == "hello"
    assert (len(dead.requests), len(alive.requests)) == (1, 2)


@VERBS
async def test_the_preset_that_waits_before_it_switches(verb: str) -> None:
    """`hermes()`: three tries in the turn's first round, none after it."""
    primary, backup = dead(), chat("backup", *ROUNDS)
    middleware = FallbackMiddleware(backup, fallback_config=FallbackConfig.hermes(wait=0))
    assert last(await run(verb, agent(primary, middleware))).text == "done"
    assert (len(primary.asked), len(backup.asked)) == (3, 3)


# How a turn ends, and who hears of it.


@VERBS
async def test_observers_hear_when_a_turn_ends(verb: str) -> None:
    """Each run that had left the primary ends with its return, and one that had not with none."""
    told = Listener()
    primary = chat("primary", *[StatusError(503)] * 2, "hello")
    backup = chat("backup", *ROUNDS * 2)
    made = agent(primary, FallbackMiddleware(backup, reset="turn", observers=[told], agent="me"))
    for expected in (1, 2, 2):
        await run(verb, made)
        assert len(told.restores) == expected
    assert {(one.agent, one.primary.name, one.after) for one in told.restores} == {
        ("me", "scripted/primary", "turn")
    }


@VERBS
async def test_a_turn_that_failed_is_over_when_the_next_begins(verb: str) -> None:
    """No hook runs where an agent fails: the next turn tells that the primary is back."""
    told = Listener()
    primary, backup = dead(), chat("backup", calls("break_down", 1, what="x"), "done")
    middleware = FallbackMiddleware(backup, reset="turn", observers=[told])
    made = agent(primary, middleware, tools=[break_down], checkpointer=InMemorySaver())
    with pytest.raises(RuntimeError):
        await run(verb, made, config=thread("t"))
    assert told.restores == []
    await run(verb, made, {"messages": [("user", "again")]}, thread("t"))
    assert [one.after for one in told.restores] == [
        "turn",
        "turn",
    ]  # the failed one's, and its own


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


@VERBS
async def test_a_run_that_fails_fails_its_turn(verb: str) -> None:
    """Whatever it was that failed: a model or a tool."""
    middleware = FallbackMiddleware(dead("backup"), reset="turn", max_attempts=2)
    with pytest.raises(FallbackExhausted), middleware.turn() as turn:
        await run(verb, agent(dead(), middleware))
    assert turn.outcome == "failed"

    backup = chat("backup", calls("break_down", 1, what="x"))
    middleware = FallbackMiddleware(backup, reset="turn")
    with pytest.raises(RuntimeError), middleware.turn() as turn:
        await run(verb, agent(dead(), middleware, tools=[break_down]))
    assert (turn.outcome, turn.position) == ("failed", 1)


async def test_a_run_that_is_cancelled_cancels_its_turn() -> None:
    """And a late end does not change that; the record is closed as cancelled."""
    told, began = Listener(), asyncio.Event()

    class Hanging(FallbackChatModel):
        async def ainvoke(self, *args: Any, **kwargs: Any) -> Any:
            began.set()
            await asyncio.sleep(60)

    middleware = FallbackMiddleware(alive(), reset="turn", observers=[told])
    turn = middleware.turn()

    async def ask() -> None:
        async with turn:
            await run(
                "ainvoke", agent(Hanging(candidates=[alive("primary")]), middleware, tools=[])
            )

    task = asyncio.create_task(ask())
    await began.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    turn.end("failed")
    assert turn.outcome == "cancelled"
    assert [record.outcome for record in told.records] == ["cancelled"]


@VERBS
@pytest.mark.parametrize("kept", ["by the graph", "by the user"])
async def test_a_turn_goes_on_over_an_interrupt(verb: str, kept: str) -> None:
    """It is open while the user is asked; the primary is not asked again, and back in the end."""
    told = Listener()
    primary = dead()
    backup = chat("backup", calls("ask_user", 1, what="sure?"), "done")
    middleware = FallbackMiddleware(backup, reset="turn", observers=[told])
    made = agent(primary, middleware, tools=[ask_user], checkpointer=InMemorySaver())
    turn = middleware.turn()
    config = thread("t", fallback_turn=turn) if kept == "by the user" else thread("t")
    paused = await run(verb, made, config=config)
    assert paused["__interrupt__"][0].value == "sure?"
    assert (turn.outcome, told.restores) == ("open", [])
    assert last(await run(verb, made, Command(resume="yes"), config)).text == "done"
    turn.end()
    assert (len(primary.asked), len(backup.asked), len(told.restores)) == (1, 2, 1)


async def test_a_turn_of_another_chain_is_refused() -> None:
    """Its position means nothing here."""
    other: Turn = FallbackMiddleware(alive(), reset="turn").turn()
    made = agent(dead(), FallbackMiddleware(alive(), reset="turn"))
    with pytest.raises(FallbackConfigError, match="another policy"):
        await run("ainvoke", made, config={"configurable": {"fallback_turn": other}})
