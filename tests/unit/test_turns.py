"""How long a switch lasts: an iteration, or a turn."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import threading
import weakref
from typing import Any

import pytest

from honcho_fallback import (
    FallbackConfig,
    FallbackConfigError,
    FallbackExhausted,
    FallbackPolicy,
    Target,
)
from honcho_fallback.testing import StatusError
from tests.helpers.observers import Listener
from tests.helpers.scripted import repeating

# Calls between the turns of these tests are meant to stand alone.
pytestmark = pytest.mark.filterwarnings("ignore:.*has no effect outside of a turn:UserWarning")

DOWN = StatusError(503)


def pair(reset: Any) -> FallbackPolicy:
    return FallbackPolicy(
        [Target("primary"), Target("fallback")], FallbackConfig(wait=0, reset=reset)
    )


@pytest.mark.parametrize(
    ("reset", "asked"),
    [
        ("iteration", ["primary", "fallback"] * 3),
        ("turn", ["primary", "fallback", "fallback", "fallback"]),
    ],
)
def test_a_switch_lasts_for_its_iteration_or_its_turn(reset: str, asked: list[str]) -> None:
    """HON-014, HON-015, HRS-010: whatever it is, the next turn has the whole chain again."""
    policy, script = pair(reset), repeating(primary=[DOWN], fallback=["hello"])
    for _ in range(2):
        with policy.turn():
            for _ in range(3):
                policy.call(script.ask)
    assert script.asked == asked * 2


def test_a_turn_that_exhausted_the_chain_leaves_the_next_one_whole() -> None:
    """An index that is never reset leaves a service without its fallback."""
    policy = pair("turn")
    with policy.turn(), pytest.raises(FallbackExhausted):
        policy.call(repeating(primary=[DOWN], fallback=[DOWN]).ask)
    script = repeating(primary=[DOWN], fallback=["hello"])
    with policy.turn():
        assert policy.call(script.ask) == "hello"
    assert script.asked == ["primary", "fallback"]


def test_without_a_turn_each_call_is_one() -> None:
    """reset="turn" outside of policy.turn() remembers nothing, and says so once."""
    policy, script = pair("turn"), repeating(primary=[DOWN], fallback=["hello"])
    with pytest.warns(UserWarning, match="open one with policy.turn") as warned:  # noqa: PT031 # of several calls one warns
        policy.call(script.ask)
        policy.call(script.ask)
        policy.start()
    assert len(warned) == 1
    assert warned[0].filename == __file__
    assert script.asked == ["primary", "fallback"] * 2


def test_what_a_turn_left_behind_is_told() -> None:
    """The record says why the primary was never asked."""
    policy, script = pair("turn"), repeating(primary=[DOWN], fallback=["hello"])
    with policy.turn():
        policy.call(script.ask)
        run = policy.start()
        policy.call(script.ask, run=run)
    assert run.record.untried == (("primary", "the turn had already left it"),)
    assert run.record.is_fallback


def test_nested_turns_and_other_policies_are_isolated() -> None:
    """HON-048: the inner turn starts fresh, and the outer one goes on where it was."""
    outer, other = pair("turn"), pair("turn")
    script = repeating(primary=[DOWN], fallback=["hello"])
    with outer.turn() as turn:
        outer.call(script.ask)
        with other.turn() as foreign:
            assert foreign.position == 0
            outer.call(script.ask)
        with outer.turn() as inner:
            assert inner.position == 0
        assert turn.position == 1
    assert script.asked == ["primary", "fallback", "fallback"]


async def test_a_turn_reaches_the_tasks_and_threads_it_is_passed_to() -> None:
    """A switch inside a task is seen by its siblings, and a thread may be handed the turn."""
    policy, script = pair("turn"), repeating(primary=[DOWN], fallback=["hello"])
    async with policy.turn() as turn:
        await asyncio.create_task(policy.acall(script.aask))
        await asyncio.create_task(policy.acall(script.aask))
        thread = threading.Thread(target=lambda: policy.call(script.ask, turn=turn))
        thread.start()
        await asyncio.to_thread(thread.join)
    assert script.asked == ["primary", "fallback", "fallback", "fallback"]


@pytest.mark.parametrize("has_turn", [False, True])
def test_a_turn_may_end_in_a_foreign_context(has_turn: bool) -> None:
    """HON-048, HON-050: closing a generator there raises nothing, and ends no other's turn."""
    policy = pair("turn")

    def agent() -> Any:
        with policy.turn():
            yield 1

    def close() -> int:
        if not has_turn:
            steps.close()
            return policy.start().attempt.position
        with policy.turn():
            policy.call(repeating(primary=[DOWN], fallback=["hello"]).ask)
            steps.close()
            return policy.start().attempt.position

    steps = agent()
    contextvars.copy_context().run(next, steps)
    assert contextvars.Context().run(close) == has_turn


async def test_who_outlives_a_turn_starts_on_the_primary() -> None:
    """A turn that has ended is over also where a task carries it, or a worker was handed it."""
    policy, over = pair("turn"), asyncio.Event()

    async def straggle() -> int:
        await over.wait()
        return policy.start().attempt.position

    with policy.turn() as turn:
        policy.call(repeating(primary=[DOWN], fallback=["hello"]).ask)
        task = asyncio.create_task(straggle())
    over.set()
    assert await task == 0
    assert policy.start(turn=turn).attempt.position == 0


def test_a_slower_call_does_not_move_its_turn_back() -> None:
    """Calls of one turn may switch in any order; the turn only goes down the chain."""
    chain = [Target("primary"), Target("second"), Target("third")]
    policy = FallbackPolicy(chain, FallbackConfig(reset="turn"))
    with policy.turn() as turn:
        quick, slow = policy.start(), policy.start()
        quick.fail(DOWN)
        quick.fail(DOWN)
        slow.fail(DOWN)
        assert turn.position == 2


def test_a_turn_is_entered_once_and_belongs_to_one_policy() -> None:
    """Wrong use is said clearly."""
    policy = pair("turn")
    with policy.turn() as turn, pytest.raises(RuntimeError, match="entered once"):
        turn.__enter__()
    with pytest.raises(FallbackConfigError, match="turn: it belongs to another policy"):
        pair("turn").start(turn=turn)


def test_the_end_of_a_turn_tells_that_the_primary_is_back() -> None:
    """HRS-003, HRS-004, G-43: on_restore once for a turn that had left it, never otherwise."""
    heard, chain = Listener(), [Target("primary"), Target("fallback")]
    policy = FallbackPolicy(chain, FallbackConfig(reset="turn"), observers=[heard])
    with policy.turn():
        policy.call(repeating(primary=["hello"]).ask)
    assert heard.restores == []
    with policy.turn() as turn:
        policy.call(repeating(primary=[DOWN], fallback=["hello"]).ask)
        policy.call(repeating(fallback=["hello"]).ask)
        assert (len(heard.switches), heard.restores) == (1, [])
    turn.end()
    (restore,) = heard.restores
    assert (restore.agent, restore.primary, restore.after) == ("unknown", chain[0], "turn")


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (None, "completed"),
        (ValueError(), "failed"),
        (asyncio.CancelledError(), "cancelled"),
        (KeyboardInterrupt(), "cancelled"),
        (type("GraphInterrupt", (Exception,), {"__module__": "langgraph.errors"})(), "cancelled"),
    ],
)
def test_a_turn_says_how_it_ended(error: BaseException | None, outcome: str) -> None:
    """HON-047, AN-009: it is over on every way out; cancelled and interrupted are no failure."""
    turn = pair("turn").turn()
    assert turn.outcome == "open"
    if error is None:
        with turn:
            pass
    else:
        with pytest.raises(type(error)), turn:
            raise error
    assert turn.outcome == outcome


def test_failed_never_overwrites_cancelled() -> None:
    """AN-007, AN-022: the first ending of a turn stays, whatever comes late."""
    with pytest.raises(ValueError, match="late"), pair("turn").turn() as turn:
        turn.end("cancelled")
        raise ValueError("late")
    assert turn.outcome == "cancelled"


def test_a_turn_lasts_over_an_interrupt_and_its_resumption() -> None:
    """One that is passed on and never entered goes on where it was until it is ended."""
    policy, script = pair("turn"), repeating(primary=[DOWN], fallback=["hello"])
    turn = policy.turn()
    interrupt = type("GraphInterrupt", (Exception,), {"__module__": "langgraph.errors"})
    policy.call(script.ask, turn=turn)
    with pytest.raises(interrupt):
        policy.call(repeating(fallback=[interrupt()]).ask, turn=turn)
    policy.call(script.ask, turn=turn)
    assert script.asked == ["primary", "fallback", "fallback"]
    turn.end()
    policy.call(script.ask, turn=turn)
    assert script.asked[3:] == ["primary", "fallback"]


async def test_concurrent_turns_on_one_policy_are_isolated() -> None:
    """AN-001: fifty turns interleave, half of them with a dead primary; none sees another's."""
    policy = pair("turn")

    async def turn(number: int) -> list[str]:
        script = repeating(primary=[DOWN if number % 2 else "hello"], fallback=["hello"])
        async with policy.turn():
            for _ in range(3):
                await policy.acall(script.aask)
        return script.asked

    sequences = await asyncio.gather(*(turn(number) for number in range(50)))
    alive, dead = ["primary"] * 3, ["primary", "fallback", "fallback", "fallback"]
    assert sequences == [dead if number % 2 else alive for number in range(50)]


def test_a_policy_under_another_label_is_the_same_but_for_it() -> None:
    """Its calls and turns carry the label; a turn of either is a turn of both."""
    heard = Listener()
    policy = FallbackPolicy(
        [Target("primary"), Target("fallback")], reset="turn", observers=[heard]
    )
    labelled = policy.labelled("deriver")
    script = repeating(primary=[DOWN], fallback=["hello"])
    with labelled.turn():
        for one in (labelled, policy):
            assert one.call(script.ask) == "hello"
    assert script.asked == ["primary", "fallback", "fallback"]
    assert [start.agent for start in heard.starts] == ["deriver", "unknown"]
    assert [restore.agent for restore in heard.restores] == ["deriver"]
    assert (policy.agent, labelled.agent) == ("unknown", "deriver")
    assert (labelled.targets, labelled.config) == (policy.targets, policy.config)
    with pytest.raises(FallbackConfigError, match="agent: got ''"):
        policy.labelled("")


def test_a_turn_that_is_over_keeps_no_policy_alive() -> None:
    """Who remembers turns to know them again does not hold the clients of their policies."""
    owner, observer = pair("turn"), Listener()
    policy = FallbackPolicy(owner.targets, owner.config, observers=[observer], turns_of=owner)
    turn = policy.turn()
    turn.end()
    alive = weakref.ref(observer)
    del policy, observer
    gc.collect()
    assert alive() is None
    assert turn.outcome == "completed"
