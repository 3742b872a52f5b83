"""Time stands still until somebody waits or the test moves it."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

import pytest

from honcho_fallback import FallbackConfig, FallbackPolicy, Target
from honcho_fallback.testing import Clock, StatusError
from tests.helpers.scripted import DRIVERS, repeating

if TYPE_CHECKING:
    from honcho_fallback.testing import Scripted


@pytest.mark.parametrize("driver", DRIVERS)
def test_the_policys_waits_move_the_clock_and_take_no_time(
    fallback_clock: Clock, driver: str
) -> None:
    """Retry-After is waited for by every driver, on the clock; the record counts it."""
    policy = FallbackPolicy([Target("only")])
    script = repeating(only=[StatusError(429, retry_after=20), "hello"])
    run = policy.start()
    before = fallback_clock.now
    assert DRIVERS[driver](policy, script, run) == "hello"
    assert fallback_clock.slept == [20.0]
    assert fallback_clock.now == before + 20
    assert run.record.seconds == 20


def test_it_stands_still_until_it_is_moved(fallback_clock: Clock) -> None:
    """Only the test moves it; records start where it stands."""
    policy = FallbackPolicy([Target("only")])
    first, second = policy.start(), policy.start()
    assert first.record.started_at == second.record.started_at == fallback_clock.time()
    assert first.record.seconds == 0
    fallback_clock.advance(3600)
    assert first.record.seconds == 3600
    assert policy.start().record.started_at == second.record.started_at + 3600


def test_time_is_given_back() -> None:
    """After the block policies wait and read the real time again, also after an error."""
    policy = FallbackPolicy([Target("only")])
    with pytest.raises(ZeroDivisionError), Clock().installed():
        raise ZeroDivisionError
    before = time.monotonic()
    script = repeating(only=[StatusError(500), "hello"])
    run = policy.start(wait=0.01)
    assert policy.call(script.ask, run=run) == "hello"
    assert time.monotonic() - before >= 0.01
    assert abs(run.record.started_at - time.time()) < 60


def test_tasks_wait_through_the_same_time() -> None:
    """Waits at once overlap: they end in order, and the clock stands where the last one ends."""
    clock, woke = Clock(now=0.0), list[tuple[str, float]]()

    async def wait(name: str, *seconds: float) -> None:
        for pause in seconds:
            await clock.asleep(pause)
            woke.append((name, clock.now))

    async def main() -> None:
        await asyncio.gather(wait("long", 10), wait("short", 1, 2, 3), wait("middle", 5))

    asyncio.run(main())
    assert woke == [
        ("short", 1),
        ("short", 3),
        ("middle", 5),
        ("short", 6),
        ("long", 10),
    ]
    assert clock.now == 10


def test_a_cancelled_wait_holds_nobody_up() -> None:
    """Who is cancelled while waiting leaves the queue, and moves no clock."""
    clock = Clock(now=0.0)

    async def main() -> None:
        waiting = asyncio.create_task(clock.asleep(1))
        await asyncio.sleep(0)
        waiting.cancel()
        await clock.asleep(5)

    asyncio.run(main())
    assert clock.now == 5


def test_concurrent_calls_share_the_time(fallback_clock: Clock, scripted: Scripted) -> None:
    """Twenty calls that each wait 8 s take 8 s."""
    script = scripted(only=[scripted.status(503, retry_after=8)] * 20 + ["hello"] * 20)
    policy = FallbackPolicy(script.targets, FallbackConfig(retry_after_cap=8))

    async def main() -> list[str]:
        return [*await asyncio.gather(*(policy.acall(script.aask) for _ in range(20)))]

    before = fallback_clock.now
    assert asyncio.run(main()) == ["hello"] * 20
    assert fallback_clock.now == before + 8
    assert fallback_clock.slept == [8.0] * 20
