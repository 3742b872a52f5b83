"""Virtual time: sleeping costs nothing, tasks overlap, and their order is always the same."""

from __future__ import annotations

import asyncio
import threading

from hypothesis import given, settings
from hypothesis import strategies as st

from honcho_fallback.simulate._run import run_in_virtual_time


@settings(deadline=None)
@given(st.lists(st.lists(st.floats(0, 1e5), max_size=4), max_size=6))
def test_tasks_overlap_in_the_order_of_time(pauses: list[list[float]]) -> None:
    """Each goes on when its own sleeps are over, to the nanosecond, whatever the others do."""

    async def main() -> list[tuple[float, float]]:
        loop, seen = asyncio.get_running_loop(), list[tuple[float, float]]()

        async def sleeper(seconds: list[float]) -> None:
            expected = 0.0
            for pause in seconds:
                await asyncio.sleep(pause)
                expected += pause
                seen.append((loop.time(), expected))

        await asyncio.gather(*map(sleeper, pauses))
        return seen

    seen = run_in_virtual_time(main)
    assert [now for now, _ in seen] == sorted(now for now, _ in seen)
    assert all(abs(now - expected) < 1e-6 for now, expected in seen)
    assert run_in_virtual_time(main) == seen


def test_a_thread_can_wake_it() -> None:
    """Without a timer it waits for real: what a thread brings does arrive."""

    async def main() -> int:
        return await asyncio.to_thread(threading.get_ident)

    assert run_in_virtual_time(main) != threading.get_ident()


async def test_it_runs_beside_a_running_loop() -> None:
    """In a notebook a loop is running; the simulation gets a thread, and time of its own."""

    async def main() -> float:
        await asyncio.sleep(3600)
        return asyncio.get_running_loop().time()

    assert 3600 <= run_in_virtual_time(main) < 3600.001
