"""Virtual time: sleeping costs nothing, and the order of events is always the same."""

from __future__ import annotations

from typing import TYPE_CHECKING

from honcho_fallback.testing.simulate._clock import VirtualClock

if TYPE_CHECKING:
    from collections.abc import Generator


def sleeper(
    clock: VirtualClock, seen: list[tuple[str, float]], name: str, *pauses: float
) -> Generator[float, None, None]:
    for pause in pauses:
        yield pause
        seen.append((name, clock.now))


def test_processes_overlap_in_the_order_of_time() -> None:
    """Each goes on when its own sleep is over, whatever the others do."""
    clock = VirtualClock()
    seen: list[tuple[str, float]] = []
    clock.spawn(sleeper(clock, seen, "slow", 3.0, 3.0))
    clock.spawn(sleeper(clock, seen, "fast", 1.0, 1.0, 2.5))
    clock.run()
    assert seen == [("fast", 1.0), ("fast", 2.0), ("slow", 3.0), ("fast", 4.5), ("slow", 6.0)]
    assert clock() == 6.0


def test_those_due_at_the_same_moment_run_in_the_order_of_falling_asleep() -> None:
    """A tie is never settled by chance."""
    clock = VirtualClock()
    seen: list[tuple[str, float]] = []
    for name in "abc":
        clock.spawn(sleeper(clock, seen, name, 1.0, 0.0))
    clock.run()
    assert [name for name, _ in seen] == list("abcabc")
