"""What looks beyond one call, in an agent: cooldowns, deadlines, gates, and how a turn ends."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from honcho_fallback import (
    Cooldown,
    FallbackConfig,
    FallbackExhausted,
)
from honcho_fallback_langchain import FallbackMiddleware
from tests.helpers.agents import ROUNDS, agent, last, run
from tests.helpers.chat_models import alive, chat, dead, model_at, serve, silent
from tests.helpers.observers import Listener

if TYPE_CHECKING:
    from tests.helpers.provider import ProviderServer

# Single calls outside of turns are meant to stand alone here.
pytestmark = pytest.mark.filterwarnings("ignore:.*has no effect outside of a turn:UserWarning")


VERBS = pytest.mark.parametrize("verb", ["invoke", "ainvoke"])


def thread(name: str, **more: Any) -> dict[str, Any]:
    return {"configurable": {"thread_id": name, **more}}


@VERBS
@pytest.mark.parametrize("reset", ["iteration", "turn"])
async def test_a_cooldown_outlives_iterations_and_runs(verb: str, reset: Any) -> None:
    """One request to the dead primary in three runs of three rounds."""
    primary, backup = dead(), chat("backup", *ROUNDS * 3)
    cooldown = Cooldown(after=1, base=60)
    made = agent(primary, FallbackMiddleware(backup, reset=reset, cooldown=cooldown))
    for _ in range(3):
        assert last(await run(verb, made)).text == "done"
    assert (len(primary.asked), len(backup.asked)) == (1, 9)


@VERBS
async def test_a_model_made_for_each_run_is_known_by_its_facts(
    providers: ProviderServer, verb: str
) -> None:
    """Agents that are made per request find what the last one learned."""
    dead, backup = serve(providers, "openai", status=503), serve(providers, "anthropic", "hello")
    shared = Cooldown(after=1, base=60)
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


# How a turn ends, and who hears of it.


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
