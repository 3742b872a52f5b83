"""One budget of time per call, and what is kept of it for the targets behind."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from honcho_fallback import (
    DeadlineExceeded,
    FallbackConfig,
    FallbackExhausted,
    FallbackPolicy,
    Target,
)
from honcho_fallback.testing import StatusError
from tests.helpers.idle_loop import IdleLoop
from tests.helpers.scripted import awaited, repeating
from tests.helpers.wire import part

if TYPE_CHECKING:
    from honcho_fallback import Attempt, CallRecord
    from honcho_fallback.testing import Clock

DOWN = StatusError(503)


def chain(length: int, **options: Any) -> FallbackPolicy:
    config = FallbackConfig(**{"wait": 0, "timeout": None, **options})
    return FallbackPolicy([Target(f"t{n}") for n in range(length)], config)


@pytest.mark.parametrize(
    ("length", "options", "expected"),
    [
        (1, {"deadline": 30}, [30]),
        (2, {"deadline": 30}, [20, 30]),
        (3, {"deadline": 30}, [10, 20, 30]),
        (4, {"deadline": 40}, [10, 40 / 3, 80 / 3, 40]),  # a third each is more than there is
        (2, {"deadline": 1}, [0.5, 1]),  # and so is a second
        (2, {"deadline": 2}, [1, 2]),
        (3, {"deadline": 1.5}, [0.5, 0.75, 1.5]),
        (3, {"deadline": 2.4}, [0.8, 1.4, 2.4]),
        (3, {"deadline": 30, "timeout": 12}, [10, 12, 12]),
        (2, {"deadline": 30, "timeout": 4}, [4, 4]),
        (2, {"deadline": None, "timeout": 4}, [4, 4]),
        (3, {"deadline": 30, "must_not_degrade": True}, [30]),  # nobody else may be asked
    ],
)
def test_a_reserve_is_kept_for_the_targets_behind(
    clock: Clock, length: int, options: dict[str, Any], expected: list[float]
) -> None:
    """A third of the deadline per fallback, at least 1 s; the last target gets what is left."""
    run = chain(length, **options).start()
    attempts = [run.attempt]
    attempts += [run.fail(DOWN) for _ in expected[1:]]  # each failed at once
    assert [attempt.timeout for attempt in attempts] == pytest.approx(expected)


def test_what_was_used_is_gone(clock: Clock) -> None:
    """The primary used up its share: the fallback gets the rest, and no more."""
    run = chain(2, deadline=30).start()
    clock.now += 20
    assert run.fail(TimeoutError()).timeout == pytest.approx(10)
    clock.now += 10
    with pytest.raises(DeadlineExceeded) as caught:
        run.fail(TimeoutError())
    error = caught.value
    assert isinstance(error, TimeoutError)
    assert [attempt.kind for attempt in error.record.attempts] == ["timeout", "timeout"]
    assert len(error.errors) == 2
    assert error.record.outcome == "exhausted"
    assert "the deadline of 30 s left no time for more" in error.record.explain()
    assert error.record.limit == "deadline"


def test_a_wait_that_would_outlive_the_deadline_ends_the_call(clock: Clock) -> None:
    """A Retry-After longer than what is left is not slept through: nobody is asked again."""
    policy = chain(1, deadline=5)
    run = policy.start()
    clock.now += 1
    with pytest.raises(DeadlineExceeded):
        run.fail(StatusError(429, retry_after=4))
    script = repeating(t0=[StatusError(429, retry_after=4), "hello"])
    assert chain(1, deadline=5).call(script.ask) == "hello"
    assert clock.slept == [4]
    assert script.requests[1].attempt.timeout == pytest.approx(1)


def test_a_wait_that_would_eat_the_reserve_switches(clock: Clock) -> None:
    """With switch_after a backoff that leaves nothing of the primary's share is not waited."""
    for wait, asked, slept in ((7, ["t0", "t1"], []), (5, ["t0", "t0", "t1"], [5])):
        script = repeating(t0=[DOWN], t1=["hello"])
        policy = chain(2, deadline=9, wait=wait, switch_after=2)
        assert policy.call(script.ask) == "hello"
        assert (script.asked, clock.slept) == (asked, slept)


def test_other_endings_stay_what_they_are(clock: Clock) -> None:
    """In time, exhaustion and a caller's bug end a call as they do without a deadline.

    An answer that comes late, as in a thread that nobody can interrupt, is one all the same.
    """
    with pytest.raises(FallbackExhausted):
        chain(2, deadline=30).call(repeating(t0=[DOWN], t1=[DOWN]).ask)
    run = chain(2, deadline=30).start()
    clock.now += 31
    with pytest.raises(StatusError):
        run.fail(StatusError(400))
    assert run.record.outcome == "rejected"

    def ask(_: Attempt) -> str:
        clock.now += 100
        return "late"

    assert chain(2, deadline=30).call(ask) == "late"


async def test_a_hanging_chain_ends_and_leaves_no_task() -> None:
    """HON-051: in a task every target is cut at its share, the call ends, and nothing runs on.

    Where nobody else is left the error says who was silent for how long.
    """
    asked: list[str] = []

    async def ask(attempt: Attempt) -> None:
        asked.append(attempt.target.name)
        await asyncio.Event().wait()

    with pytest.raises(DeadlineExceeded) as caught:
        await chain(3, deadline=0.3).acall(ask)
    assert asked == ["t0", "t1", "t2"]
    assert [attempt.kind for attempt in caught.value.record.attempts] == ["timeout"] * 3
    with pytest.raises(TimeoutError, match=r"t0 gave no answer within 0\.01 s"):
        await chain(1, timeout=0.01, max_attempts=1).acall(ask)
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def wraps_its_cancellation() -> None:
    try:
        await asyncio.Event().wait()
    except BaseException as error:
        raise ValueError("the call failed") from error


async def fails_as_it_is_cut() -> None:
    try:
        await asyncio.Event().wait()
    finally:
        raise KeyError("session")


@pytest.mark.parametrize("verb", ["acall", "astream"])
@pytest.mark.parametrize("client", [wraps_its_cancellation, fails_as_it_is_cut])
async def test_what_a_client_makes_of_an_attempts_end_is_its_timeout(
    client: Any, verb: str
) -> None:
    """Whatever comes out of it then: the next target is asked, and the error stays the cause."""

    async def ask(attempt: Attempt) -> str:
        if attempt.target.name == "t0":
            await client()
        return "hello"

    policy = chain(2, timeout=0.01)
    run = policy.start()
    assert await awaited(verb, policy, ask, run=run) == "hello"
    assert [one.kind for one in run.record.attempts] == ["timeout", None]
    with pytest.raises(TimeoutError, match="t0 gave no answer") as caught:
        await chain(1, timeout=0.01, max_attempts=1).acall(ask)
    assert isinstance(caught.value.__cause__, ValueError | KeyError)


def thinking_for(seconds: list[float], **options: Any) -> tuple[CallRecord, list[str], float]:
    """Read a stream that thinks after each of these waits, then answers; in a time of its own.

    Returns:
        The record, whose streams were closed, and when.
    """
    closed: list[str] = []

    async def ask(attempt: Attempt) -> Any:
        try:
            yield part(content="")
            for wait in seconds if not attempt.is_fallback else ():
                await asyncio.sleep(wait)
                yield part(reasoning_content="hm")
            yield part(content="hello")
            await asyncio.sleep(50)
            yield part("stop")
        finally:
            closed.append(attempt.target.name)

    async def read() -> tuple[CallRecord, list[str], float]:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, IdleLoop)
        config, targets = FallbackConfig(**options), [Target("primary"), Target("fallback")]
        policy = FallbackPolicy(targets, config, runtime=await loop.runtime())
        run = policy.start()
        async for _ in policy.astream(ask, run=run):
            pass
        return run.record, closed, loop.time()

    with asyncio.Runner(loop_factory=IdleLoop) as runner:
        return runner.run(read())


@pytest.mark.parametrize(
    ("waits", "limits", "answered_by", "seconds"),
    [
        ([200], {"timeout": 10.0}, "fallback", 60),
        ([200], {"deadline": 30.0}, "fallback", 70),
        # The first token may be one of thinking; after it no silence is longer than idle_timeout.
        ([9, 50, 50], {"first_token_timeout": 10.0, "idle_timeout": 60.0}, "primary", 159),
        ([11], {"first_token_timeout": 10.0, "idle_timeout": 60.0}, "fallback", 60),
        ([9, 61], {"first_token_timeout": 10.0, "idle_timeout": 60.0}, "fallback", 119),
        # It is no content: up to that an attempt has its timeout, however much it thinks.
        ([9, 50, 50, 50], {"first_token_timeout": 10.0, "timeout": 100.0}, "fallback", 150),
    ],
)
def test_a_limit_of_time_is_for_the_first_content(
    waits: list[float], limits: dict[str, float], answered_by: str, seconds: float
) -> None:
    """AN-019, hermes#22277: a silent stream is closed and left; one that has begun is not cut.

    A model's thoughts count as a first token, and as nothing else.
    """
    record, closed, took = thinking_for(waits, **limits)
    assert (record.answered_by, took) == (answered_by, seconds)
    assert closed == [attempt.target for attempt in record.attempts]
    assert record.attempts[0].kind == (None if answered_by == "primary" else "timeout")


@pytest.mark.parametrize(
    ("options", "handed"),
    [({}, 180), ({"first_token_timeout": 7}, 7), ({"first_token_timeout": 7, "timeout": 3}, 3)],
)
def test_a_sync_stream_hands_the_limit_to_ask(options: dict[str, Any], handed: float) -> None:
    """`stream` cannot interrupt a read; the client that reads can."""
    script = repeating(t0=["hello"])
    list(chain(1, **{"timeout": 180, **options}).stream(script.stream))
    assert script.requests[0].attempt.timeout == handed
