"""Whose a cancellation is: the caller's ends the call, one from below is a lost connection."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from honcho_fallback import (
    FallbackConfig,
    FallbackExhausted,
    FallbackPolicy,
    StreamInterrupted,
    Target,
)
from honcho_fallback.testing import StatusError
from tests.helpers.scripted import DRIVERS, awaited, pair, repeating

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from honcho_fallback import Attempt, Failure, FallbackRun

P, F = "primary", "fallback"


async def fails_from_below() -> None:
    """Await what a neighbour cancels, as a DNS look-up that two calls share."""
    shared = asyncio.get_running_loop().create_future()
    asyncio.get_running_loop().call_soon(shared.cancel)
    await shared


async def takes_it_for_an_answer() -> None:
    """Gather with exceptions and read a field of one: an AttributeError, as in LangChain."""
    answer: Any = (await asyncio.gather(fails_from_below(), return_exceptions=True))[0]
    _ = answer.generations


async def raising() -> None:
    await asyncio.sleep(0)
    raise StatusError(503)


async def raises_the_group(*, inner: bool = False) -> None:
    async with asyncio.TaskGroup() as group:
        if inner:
            await raises_the_group()
        group.create_task(raising())


async def raises_within_a_group() -> None:
    await raises_the_group(inner=True)


async def raises_for_a_group() -> None:
    try:
        await raises_the_group()
    except ExceptionGroup as group:
        raise StatusError(503) from group


LOST = ["connection", "ConnectionAbortedError", "client"]


@pytest.mark.parametrize("config", [FallbackConfig(), FallbackConfig.honcho()])
@pytest.mark.parametrize("verb", ["acall", "astream"])
@pytest.mark.parametrize(
    ("fails", "times", "facts"),
    [
        (fails_from_below, 2, LOST),
        (takes_it_for_an_answer, 2, LOST),
        (raises_the_group, 1, ["overloaded", "ExceptionGroup", "model"]),
        (raises_within_a_group, 1, ["overloaded", "ExceptionGroup", "model"]),
        (raises_for_a_group, 1, ["overloaded", "StatusError", "model"]),
    ],
)
async def test_a_cancellation_that_nobody_sent_to_this_task_switches(
    config: FallbackConfig, verb: str, fails: Any, times: int, facts: list[str]
) -> None:
    """The task was not cancelled: to the call it is a lost connection, for which nobody rests.

    It blames neither the model nor its host, which is asked once more. A task group whose member
    failed wakes its task with a cancellation, which Python before 3.13 leaves in the count: the
    failure is its member's, and the count is what it was, as timeouts around the call go by it.
    """
    scopes: list[str] = []

    def refine(failure: Failure, _: BaseException) -> Failure:
        scopes.append(failure.scope)
        return failure

    async def ask(attempt: Attempt) -> str:
        if attempt.target.name != F:
            await fails()
        return "hello"

    task = asyncio.current_task()
    assert task is not None
    policy = FallbackPolicy([Target("first"), Target(P), Target(F)], config, refine=refine)
    run = policy.start()
    assert await awaited(verb, policy, ask, run=run) == "hello"
    failed = run.record.attempts[:-1]
    assert {one.reached for one in failed} == {"unknown"}
    shown = [[one.kind, one.error, scope] for one, scope in zip(failed, scopes, strict=True)]
    assert shown == [facts] * times * 2
    assert task.cancelling() == 0


async def test_a_mistake_that_no_cancellation_explains_is_one() -> None:
    """A field that is missing elsewhere is the program's own error."""

    async def mistakes(_: Attempt) -> str:
        return str(F.generations)  # type: ignore[attr-defined] # the point

    with pytest.raises(AttributeError):
        await pair().acall(mistakes)


async def test_a_cancellation_beside_a_failing_member_stays_one() -> None:
    """A task group's own is taken back, its caller's is not."""
    asked, entered = list[str](), asyncio.Event()

    async def ask(attempt: Attempt) -> str:
        asked.append(attempt.target.name)
        async with asyncio.TaskGroup() as group:
            group.create_task(fails_as_it_is_left(entered))
            group.create_task(raising())
        return "never"

    with pytest.raises(asyncio.CancelledError):
        await cancelled_task(lambda: pair().acall(ask), entered)
    assert asked == [P]


async def fails_as_it_is_left(entered: asyncio.Event) -> None:
    try:
        await asyncio.Event().wait()
    finally:
        entered.set()
        await asyncio.sleep(0)


async def test_where_everybody_fails_so_the_errors_are_ordinary_ones() -> None:
    """Nothing that comes out looks like a cancellation; what came from below is the cause."""

    async def nobody(_: Attempt) -> str:
        await fails_from_below()
        return "never"

    with pytest.raises(FallbackExhausted) as exhausted:
        await pair(max_attempts=2).acall(nobody)
    for error in exhausted.value.exceptions:
        assert isinstance(error, ConnectionAbortedError)
        assert isinstance(error.__cause__, asyncio.CancelledError)
        assert error.__traceback__ is not None
    single = FallbackPolicy([Target(P)], wait=0, max_attempts=1)
    with pytest.raises(ConnectionAbortedError, match="the call was not"):
        await single.acall(nobody)


async def test_a_stream_that_has_begun_is_interrupted_by_it() -> None:
    """Its content is final, as after any lost connection."""

    async def breaks(_: Attempt) -> AsyncGenerator[str, None]:
        yield "hel"
        await fails_from_below()

    with pytest.raises(StreamInterrupted) as interrupted:
        _ = [one async for one in pair().astream(breaks)]
    assert interrupted.value.partial == ("hel",)


# The caller's own, in every form that a caller has.

Call = Callable[[], Coroutine[Any, Any, object]]


async def cancelled_task(call: Call, entered: asyncio.Event) -> None:
    task = asyncio.create_task(call())
    await entered.wait()
    task.cancel()
    await task


async def waited_for(call: Call, _: asyncio.Event) -> None:
    await asyncio.wait_for(call(), 0.02)


async def timed_out(call: Call, _: asyncio.Event) -> None:
    async with asyncio.timeout(0.02):
        await call()


async def fail(entered: asyncio.Event) -> None:
    await entered.wait()
    raise StatusError(500)


async def in_a_failing_group(call: Call, entered: asyncio.Event) -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(fail(entered))
        group.create_task(call())


async def in_the_body_of_a_failing_group(call: Call, entered: asyncio.Event) -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(fail(entered))
        await call()


async def gathered(call: Call, entered: asyncio.Event) -> None:
    both = asyncio.gather(call(), asyncio.Event().wait())
    await entered.wait()
    both.cancel()
    await both


async def left_by_a_scope(call: Call, _: asyncio.Event) -> None:
    anyio = pytest.importorskip("anyio")
    with anyio.fail_after(0.02):
        await call()


async def left_by_a_cancelled_scope(call: Call, _: asyncio.Event) -> None:
    anyio = pytest.importorskip("anyio")
    with anyio.CancelScope() as scope:
        scope.cancel()
        await call()
    assert scope.cancelled_caught
    raise TimeoutError


async def in_a_group_that_is_left(call: Call, entered: asyncio.Event) -> None:
    anyio = pytest.importorskip("anyio")
    async with anyio.create_task_group() as group:
        group.start_soon(call)
        await entered.wait()
        group.cancel_scope.cancel()
    raise TimeoutError


async def cancelled_by_itself_before(call: Call, _: asyncio.Event) -> None:
    async def cancel_and_call() -> object:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()  # it arrives with the first await, which is within the call
        return await call()

    await asyncio.create_task(cancel_and_call())


LEAVING = [
    cancelled_task,
    waited_for,
    timed_out,
    in_a_failing_group,
    in_the_body_of_a_failing_group,
    gathered,
    left_by_a_scope,
    left_by_a_cancelled_scope,
    in_a_group_that_is_left,
    cancelled_by_itself_before,
]


@pytest.mark.parametrize("leave", LEAVING)
@pytest.mark.parametrize("verb", ["acall", "astream", "astream, begun"])
@pytest.mark.parametrize("within", [False, True])
async def test_a_callers_cancellation_asks_nobody_else(
    leave: Any, verb: str, *, within: bool
) -> None:
    """HON-031: whoever cancels, the call is cancelled; also within a scope of its client's own.

    Its stream is closed, before its first chunk and after it.
    """
    policy, entered, asked, closed = pair(), asyncio.Event(), list[str](), list[str]()
    runs: list[FallbackRun] = []

    async def hang() -> None:
        entered.set()
        if within:
            anyio = pytest.importorskip("anyio")
            with anyio.fail_after(30):
                await anyio.sleep(20)
        await asyncio.Event().wait()

    async def never(attempt: Attempt) -> str:
        asked.append(attempt.target.name)
        await hang()
        return "never"

    async def never_any(attempt: Attempt) -> AsyncGenerator[str, None]:
        try:
            if verb == "astream, begun":
                yield "hello"
            yield await never(attempt)
        finally:
            closed.append(attempt.target.name)

    async def call() -> object:
        runs.append(policy.start())
        if verb == "acall":
            return await policy.acall(never, run=runs[0])
        return [one async for one in policy.astream(never_any, run=runs[0])]

    with pytest.raises((asyncio.CancelledError, TimeoutError, ExceptionGroup)):
        await leave(call, entered)
    assert runs[0].outcome == "cancelled"
    assert asked in ([P], [])
    assert verb == "acall" or closed == asked


async def test_a_cancellation_in_the_loop_turn_of_an_answer_is_one() -> None:
    """The answer is there and the task is cancelled before it wakes: nobody else is asked."""
    ready = asyncio.get_running_loop().create_future()
    asked: list[str] = []

    async def waits(attempt: Attempt) -> str:
        asked.append(attempt.target.name)
        return str(await ready)

    task = asyncio.create_task(pair().acall(waits))
    await asyncio.sleep(0)
    ready.set_result("hello")
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert asked == [P]


# Where the call is when it is cancelled.


def place_of(name: str, reached: asyncio.Event) -> tuple[FallbackPolicy, Any]:
    """Return a policy and an ask that come to a place and stay there."""
    hello, refused = repeating(primary=["hello"]), repeating(primary=[StatusError(401)])

    async def hang(_: object = None) -> None:
        reached.set()
        await asyncio.Event().wait()

    async def makes_an_error_of_it(_: object) -> None:
        try:
            await hang()
        except asyncio.CancelledError:
            raise StatusError(500) from None

    async def fails(_: object) -> None:
        reached.set()
        raise StatusError(503)

    key = SimpleNamespace(get=lambda: "key", refresh=hang)
    places: dict[str, tuple[FallbackPolicy, Any]] = {
        "an SDK": (pair(), makes_an_error_of_it),
        "a wait": (FallbackPolicy([Target(P)], FallbackConfig(wait=3600)), fails),
        "a refresh": (FallbackPolicy([Target(P, credential=key), Target(F)]), refused.aask),
        "a validator": (pair(validate=hang), hello.aask),
    }
    return places[name]


@pytest.mark.parametrize("place", ["an SDK", "a wait", "a refresh", "a validator"])
async def test_a_cancellation_goes_out_from_wherever_the_call_is(place: str) -> None:
    """HON-031: the record closes as cancelled, nobody else is asked, no attempt is invented.

    Also in an SDK that makes an error of it.
    """
    reached = asyncio.Event()
    policy, asks = place_of(place, reached)
    run = policy.start()
    with pytest.raises(asyncio.CancelledError):
        await cancelled_task(lambda: policy.acall(asks, run=run), reached)
    assert run.record.outcome == "cancelled"
    attempts = [P, P] if place == "a refresh" else [P]  # it belongs to the one that it is for
    assert [attempt.target for attempt in run.record.attempts] == attempts


def interrupted(*_: Any) -> Any:
    raise KeyboardInterrupt


INTERRUPTED: list[tuple[list[str], dict[str, Any], Any]] = [
    ([*DRIVERS], {}, KeyboardInterrupt()),
    ([*DRIVERS], {"refine": interrupted}, StatusError(503)),
    (["call", "acall"], {"validate": interrupted}, "hello"),
]


@pytest.mark.parametrize(
    ("driver", "options", "reply"),
    [(one, options, reply) for drivers, options, reply in INTERRUPTED for one in drivers],
)
def test_ctrl_c_goes_out_and_closes_the_record(driver: str, options: Any, reply: Any) -> None:
    """An interrupt is no rejection of an answer, asks nobody else and leaves no call open."""
    policy, script = pair(**options), repeating(primary=[reply], fallback=["no"])
    run = policy.start()
    with pytest.raises(KeyboardInterrupt):
        DRIVERS[driver](policy, script, run)
    assert (run.record.outcome, script.asked) == ("cancelled", [P])
