"""How long a switch lasts: an iteration, or a turn."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from typing import Any

import pytest
from scripted import ProviderError, Script

from honcho_fallback import (
    FallbackConfig,
    FallbackConfigError,
    FallbackExhausted,
    FallbackPolicy,
    Target,
)

DOWN = ProviderError(503)


def pair(reset: Any) -> FallbackPolicy:
    return FallbackPolicy(
        [Target("primary"), Target("fallback")], FallbackConfig(wait=0, reset=reset)
    )


def test_each_iteration_starts_on_the_primary() -> None:
    """HON-014, HON-015: with reset="iteration" nothing is remembered, inside a turn or not."""
    policy, script = pair("iteration"), Script(primary=[DOWN], fallback=["hello"])
    with policy.turn():
        for _ in range(3):
            policy.call(script.ask)
    assert script.asked == ["primary", "fallback"] * 3


def test_a_turn_stays_where_it_works_and_the_next_one_starts_on_the_primary() -> None:
    """HRS-010: a switch holds for its turn, a new turn has the whole chain."""
    policy, script = pair("turn"), Script(primary=[DOWN], fallback=["hello"])
    for _ in range(2):
        with policy.turn():
            for _ in range(3):
                policy.call(script.ask)
    assert script.asked == ["primary", "fallback", "fallback", "fallback"] * 2


def test_a_turn_that_exhausted_the_chain_leaves_the_next_one_whole() -> None:
    """An index that is never reset leaves a service without its fallback."""
    policy = pair("turn")
    with policy.turn(), pytest.raises(FallbackExhausted):
        policy.call(Script(primary=[DOWN], fallback=[DOWN]).ask)
    script = Script(primary=[DOWN], fallback=["hello"])
    with policy.turn():
        assert policy.call(script.ask) == "hello"
    assert script.asked == ["primary", "fallback"]


def test_without_a_turn_each_call_is_one() -> None:
    """reset="turn" outside of policy.turn() remembers nothing."""
    policy, script = pair("turn"), Script(primary=[DOWN], fallback=["hello"])
    policy.call(script.ask)
    policy.call(script.ask)
    assert script.asked == ["primary", "fallback"] * 2


def test_what_a_turn_left_behind_is_told() -> None:
    """The record says why the primary was never asked."""
    policy, script = pair("turn"), Script(primary=[DOWN], fallback=["hello"])
    with policy.turn():
        policy.call(script.ask)
        run = policy.start()
        policy.call(script.ask, run=run)
    assert run.record.untried == (("primary", "the turn had already left it"),)
    assert run.record.is_fallback


def test_nested_turns_and_other_policies_are_isolated() -> None:
    """HON-048: the inner turn starts fresh, and the outer one goes on where it was."""
    outer, other = pair("turn"), pair("turn")
    script = Script(primary=[DOWN], fallback=["hello"])
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
    policy, script = pair("turn"), Script(primary=[DOWN], fallback=["hello"])
    async with policy.turn() as turn:
        await asyncio.create_task(policy.acall(script.aask))
        await asyncio.create_task(policy.acall(script.aask))
        thread = threading.Thread(target=lambda: policy.call(script.ask, turn=turn))
        thread.start()
        await asyncio.to_thread(thread.join)
    assert script.asked == ["primary", "fallback", "fallback", "fallback"]


def test_a_turn_ends_also_in_a_foreign_context() -> None:
    """HON-050: closing a generator that holds a turn in another context raises nothing."""
    policy = pair("turn")

    def agent() -> Any:
        with policy.turn():
            yield 1

    steps = agent()
    contextvars.copy_context().run(next, steps)
    contextvars.Context().run(steps.close)
    assert policy.start().attempt.position == 0


def test_a_turn_that_ends_in_a_foreign_context_leaves_its_turn_alone() -> None:
    """HON-048, HON-050: what another context is in the middle of is not ended with it."""
    policy = pair("turn")

    def agent() -> Any:
        with policy.turn():
            yield 1

    steps = agent()
    contextvars.copy_context().run(next, steps)
    with policy.turn():
        policy.call(Script(primary=[DOWN], fallback=["hello"]).ask)
        steps.close()
        assert policy.start().attempt.position == 1


async def test_a_task_that_outlives_its_turn_starts_on_the_primary() -> None:
    """A turn that has ended is over also where a task still carries it in its context."""
    policy, over = pair("turn"), asyncio.Event()

    async def straggle() -> int:
        await over.wait()
        return policy.start().attempt.position

    with policy.turn():
        policy.call(Script(primary=[DOWN], fallback=["hello"]).ask)
        task = asyncio.create_task(straggle())
    over.set()
    assert await task == 0


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


def test_a_turn_ends_when_its_body_raises() -> None:
    """HON-047: the turn is over on every way out."""
    policy, script = pair("turn"), Script(primary=[DOWN], fallback=["hello"])
    with pytest.raises(KeyError), policy.turn():
        policy.call(script.ask)
        raise KeyError
    policy.call(script.ask)
    assert script.asked == ["primary", "fallback"] * 2


def test_a_turn_is_entered_once_and_belongs_to_one_policy() -> None:
    """Wrong use is said clearly."""
    policy = pair("turn")
    with policy.turn() as turn, pytest.raises(RuntimeError, match="entered once"):
        turn.__enter__()
    with pytest.raises(FallbackConfigError, match="turn: it belongs to another policy"):
        pair("turn").start(turn=turn)
