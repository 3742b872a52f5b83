"""How long a switch lasts: an iteration, a turn, or a session while its prompt cache is warm."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import pickle
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext, suppress
from typing import TYPE_CHECKING, Any

import pytest

from honcho_fallback import (
    FallbackConfig,
    FallbackConfigError,
    FallbackExhausted,
    FallbackPolicy,
    Sessions,
    Target,
)
from honcho_fallback.testing import Clock, StatusError
from tests.helpers.observers import Listener
from tests.helpers.scripted import DRIVERS, repeating
from tests.helpers.wire import message_answer, text_block

if TYPE_CHECKING:
    from honcho_fallback import Attempt

pytestmark = [
    pytest.mark.usefixtures("clock"),
    # Calls between the turns of these tests are meant to stand alone.
    pytest.mark.filterwarnings("ignore:.*has no effect outside of a turn:UserWarning"),
]

DOWN = StatusError(503)


def pair(reset: Any = "session", **options: Any) -> FallbackPolicy:
    config = FallbackConfig(wait=0, reset=reset, **options)
    return FallbackPolicy([Target("primary"), Target("fallback")], config, agent="writer")


def read(tokens: int | None, written: int | None = None) -> dict[str, Any]:
    """Make an answer that says what it read from a cache, or nothing of one."""
    cached = {"cache_read_input_tokens": tokens, "cache_creation_input_tokens": written}
    usage = {"input_tokens": 10, "output_tokens": 1}
    usage |= {name: count for name, count in cached.items() if count is not None}
    return message_answer(text_block("hello"), usage=usage)


def turn(policy: FallbackPolicy, script: Any, session_id: str = "s") -> None:
    with policy.session(session_id):
        policy.call(script.ask)


@pytest.mark.parametrize(
    ("reset", "asked", "untried"),
    [
        ("iteration", ["primary", "fallback"] * 3, {}),
        ("turn", ["primary", *["fallback"] * 3], {"primary": "the turn had already left it"}),
    ],
)
@pytest.mark.parametrize("named", [False, True])
def test_a_switch_lasts_for_its_iteration_or_its_turn(
    reset: str, asked: list[str], untried: dict[str, str], *, named: bool
) -> None:
    """HON-014, HON-015, HRS-010: whatever it is, the next turn has the whole chain again.

    Whoever passes the conversation's name along changes nothing by it: a session is a turn then.
    """
    policy, script = pair(reset), repeating(primary=[DOWN], fallback=["hello"])
    for _ in range(2):
        with policy.session("s") if named else policy.turn():
            policy.call(script.ask)
            policy.call(script.ask)
            policy.call(script.ask, run=(run := policy.start()))
        assert (dict(run.record.untried), run.record.is_fallback) == (untried, True)
    assert script.asked == asked * 2


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
        with policy.turn() if has_turn else nullcontext():
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
    """HRS-003, HRS-004, G-43: on_restore once for a turn that had left it, never otherwise.

    The next turn of a session that stays elsewhere does not begin at the primary.
    """
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
    stays = FallbackPolicy(chain, FallbackConfig(reset="session"), observers=[heard])
    with stays.session("s"):
        stays.call(repeating(primary=[DOWN], fallback=["hello"]).ask)
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
    with pytest.raises(type(error)) if error else nullcontext(), turn:
        if error:
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


# A session is its turns, as long as a cache is warm.


@pytest.mark.parametrize("driver", DRIVERS)
def test_a_session_stays_where_its_cache_is_warm(clock: Clock, driver: str) -> None:
    """Its next turns begin with who answered, and say so; others begin on the primary."""
    policy, script = pair(), repeating(primary=[DOWN, "hello"], fallback=["hello"])
    runs = []
    for session_id in ("s", "s", "s", "another"):
        with policy.session(session_id):
            runs.append(policy.start())
            DRIVERS[driver](policy, script, runs[-1])
        clock.advance(60)
    assert script.asked == ["primary", "fallback", "fallback", "fallback", "primary"]
    why = "the session stays where its prompt cache is warm"
    assert runs[1].record.untried == (("primary", why),)
    assert f"primary: never asked, {why}" in runs[1].record.explain()


# What the primary and the fallback say in turn, the seconds after each turn, and who is asked.
BACK = [DOWN, "hello"]
TURNS: dict[str, tuple[list[Any], list[Any], tuple[float, ...], str]] = {
    "an answer keeps the cache": (BACK, ["hello"], (200, 299), "PFFF"),
    "for so many seconds": (BACK, ["hello"], (200, 300), "PFFP"),
    # The first answer of a target cannot have read anything; the second can.
    "nothing is cached, so that a return is free": (BACK, [read(0), read(0)], (0, 0), "PFFP"),
    "nor is it being written": (BACK, [read(0), read(0, 0)], (0, 0), "PFFP"),
    "the cache is being written": (BACK, [read(0), read(0, 900)], (0, 0), "PFFF"),
    "it was read": (BACK, [read(0), read(900)], (0, 0), "PFFF"),
    "nobody says": (BACK, [read(0), read(None)], (0, 0), "PFFF"),
    "only who answers has a cache": (BACK, [DOWN], (0,), "PFFP"),
    # What the fallback had cached is forgotten: the conversation has gone on elsewhere.
    "a primary that answered has it again": ([*BACK, "hello"], ["hello", DOWN], (0, 0), "PFFPP"),
}


@pytest.mark.parametrize("case", TURNS)
def test_a_session_goes_back_where_its_cache_is_cold(clock: Clock, case: str) -> None:
    """Its age decides, and what usage says of it."""
    primary, fallback, seconds, asked = TURNS[case]
    policy, script = pair(), repeating(primary=primary, fallback=fallback)
    for after in (*seconds, 0):
        with suppress(FallbackExhausted):
            turn(policy, script)
        clock.advance(after)
    assert script.asked == [{"P": "primary", "F": "fallback"}[one] for one in asked]


def test_a_turn_is_not_interrupted(clock: Clock) -> None:
    """Within a turn a switch holds, as with reset="turn", whatever the cache does."""
    policy, script = pair(), repeating(primary=[DOWN, "hello"], fallback=[read(0)])
    with policy.session("s"):
        for _ in range(3):
            policy.call(script.ask)
            clock.advance(400)
    turn(policy, script)
    assert script.asked == ["primary", "fallback", "fallback", "fallback", "primary"]


def test_a_turn_within_a_session_is_one_of_its_turns() -> None:
    """Whatever opens turns by itself, as the adapters do, needs no word of the session."""
    policy, script = pair(), repeating(primary=[DOWN, "hello"], fallback=["hello"])
    for _ in range(2):
        with policy.session("s") as around, policy.turn("named") as inner:
            policy.call(script.ask)
            assert (inner.turn_id, inner is around) == ("named", False)
    assert script.asked == ["primary", "fallback", "fallback"]


def test_agents_share_a_store_and_no_place() -> None:
    """In one conversation each agent has a prompt of its own, and so has each chain."""
    config = FallbackConfig(wait=0, reset=Sessions())
    chain = [Target("primary"), Target("fallback")]
    script = repeating(primary=[DOWN, "hello"], fallback=["hello"])
    for agent in ("writer", "judge", "writer"):
        turn(FallbackPolicy(chain, config, agent=agent), script)
    assert script.asked == ["primary", "fallback", "primary", "fallback"]


@pytest.mark.parametrize(
    ("most", "before", "then", "asked"),
    [
        (2, "abac", "acb", ["fallback", "fallback", "primary", "fallback"]),
        # Those on the primary begin there anyway, and take no room.
        (1, "axy", "a", ["fallback"]),
    ],
)
def test_the_session_quiet_for_longest_is_forgotten(
    most: int, before: str, then: str, asked: list[str]
) -> None:
    """A server that never ends keeps as many as it was told."""
    policy, answered = pair(Sessions(most=most)), repeating(primary=["hello"])
    script = repeating(primary=[DOWN], fallback=["hello"])
    for session_id in before:
        turn(policy, answered if session_id in "xy" else script, session_id)
    script.requests.clear()
    for session_id in then:
        turn(policy, script, session_id)
    assert script.asked == asked


def test_each_fallback_has_a_first_answer() -> None:
    """Whoever takes over from another one has read nothing yet, either."""
    config = FallbackConfig(wait=0, reset="session")
    policy = FallbackPolicy([Target("primary"), Target("second"), Target("third")], config)
    script = repeating(primary=[DOWN, "hello"], second=[read(0), DOWN], third=[read(0)])
    with policy.session("s"):
        policy.call(script.ask)
        policy.call(script.ask)
    turn(policy, script)
    assert script.asked == ["primary", "second", "second", "third", "third"]


def test_a_turn_that_joins_late_stays_where_it_is() -> None:
    """One that was elsewhere before its session was named goes on there."""
    policy, script = pair(), repeating(primary=["hello"], fallback=["hello"])
    begun = policy.turn()
    begun.advance(1)
    policy.call(script.ask, turn=begun, session="s")
    policy.call(script.ask, session="s")
    assert script.asked == ["fallback", "fallback"]


def test_a_hundred_sessions_at_once_keep_apart() -> None:
    """In threads and in tasks: each has its own place."""
    policy = pair()
    script = repeating(primary=[DOWN], fallback=["hello"])

    async def one(session_id: str) -> None:
        async with policy.session(session_id):
            await policy.acall(script.aask)

    async def every() -> None:
        await asyncio.gather(*(one(f"t{n}") for n in range(50)))

    for _ in range(2):
        asyncio.run(every())
        with ThreadPoolExecutor(8) as pool:
            [*pool.map(lambda n: turn(policy, script, f"s{n}"), range(50))]
    assert script.asked.count("primary") == 100
    assert script.asked.count("fallback") == 200


@pytest.mark.parametrize("wrong", ["forever", 3, Sessions])
def test_another_reset_is_refused(wrong: Any) -> None:
    """With what it takes, and the nearest name; a store shows, and is copied by, its limits."""
    with pytest.raises(FallbackConfigError, match=r"reset: .*'session' or Sessions\(\)"):
        FallbackConfig(reset=wrong)
    with pytest.raises(FallbackConfigError, match="ttl"):
        Sessions(ttl=0)
    with pytest.raises(FallbackConfigError, match="session_id"):
        pair().session("")
    assert repr(pickle.loads(pickle.dumps(Sessions(60, 5)))) == "Sessions(ttl=60, most=5)"  # noqa: S301 # our own


def cost_of_a_conversation(reset: Any, minutes: int) -> float:
    """Run 20 turns of three calls, one a minute, with an outage in the middle; tokens to pay.

    A provider keeps a prompt of 1,024 tokens or more for 300 seconds after it was used, and bills
    a tenth of what it reads again.
    """
    clock, kept = Clock(), dict[str, tuple[int, float]]()
    prompt, cost, begins = 0, 0.0, clock() + 540

    def ask(attempt: Attempt) -> dict[str, Any]:
        nonlocal cost
        model, now = attempt.target.model, clock()
        if model == "primary" and begins <= now < begins + 60 * minutes:
            raise DOWN
        prefix, until = kept.get(model, (0, 0.0))
        tokens = prefix if now < until else 0
        cost += prompt - 0.9 * tokens
        if prompt >= 1024:
            kept[model] = prompt, now + 300
        return read(tokens)

    with clock.installed():
        policy = pair(reset)
        for _ in range(20):
            with policy.session("s"):
                for _ in range(3):
                    prompt += 1000
                    policy.call(ask)
            clock.advance(60)
    return cost


@pytest.mark.parametrize("minutes", [2, 6])
def test_a_session_costs_least(minutes: int) -> None:
    """Who goes back pays anew for what the conversation has become: after a longer outage all."""
    turn, iteration = (cost_of_a_conversation(one, minutes) for one in ("turn", "iteration"))
    assert cost_of_a_conversation("session", minutes) < turn <= iteration
    assert Sessions().ttl == 300
