"""Session-wide settings for tests, and the one door that they go through."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from honcho_fallback import (
    FallbackConfigError,
    FallbackExhausted,
    FallbackPolicy,
    Runtime,
    Target,
)
from honcho_fallback.testing import Clock, StatusError, recorded, set_testing

if TYPE_CHECKING:
    from honcho_fallback import Attempt
    from honcho_fallback.testing import Scripted

DOWN = StatusError(503, retry_after=20)


def test_nothing_waits_in_set_testing(scripted: Scripted) -> None:
    """A target that would be asked again after 20 s is asked at once, in no time at all."""
    policy = FallbackPolicy([Target("only")])
    clock = Clock()
    with clock.installed(), set_testing():
        script = scripted(only=[DOWN, DOWN, "hello"])
        assert policy.call(script.ask) == "hello"
        assert [request.attempt.wait for request in script.requests] == [0, 0, 0]
    assert clock.slept == []


async def test_nor_does_it_in_a_task(scripted: Scripted) -> None:
    """The same for `acall`, and for policies that were made before."""
    policy = FallbackPolicy([Target("only")])
    with set_testing():
        script = scripted(only=[DOWN, "hello"])
        assert await policy.acall(script.aask) == "hello"


@pytest.mark.parametrize(
    ("most", "wanted"), [(1, ["one"]), (2, ["one", "two"]), (None, ["one", "two", "two"])]
)
def test_attempts_are_bounded(scripted: Scripted, most: int | None, wanted: list[str]) -> None:
    """`max_attempts` bounds every call of the process, whatever its policy says."""
    policy = FallbackPolicy([Target("one"), Target("two")], max_attempts=3)
    script = scripted(one=[scripted.always(DOWN)], two=[scripted.always(DOWN)])
    with set_testing(max_attempts=most), pytest.raises(FallbackExhausted):
        policy.call(script.ask)
    assert script.asked == wanted


@pytest.mark.parametrize("wrong", [0, -1, True, "1", 1.5])
def test_a_wrong_number_is_refused(wrong: int) -> None:
    """The message says what to pass."""
    with (
        pytest.raises(FallbackConfigError, match=r"max_attempts: got .*; pass a whole number"),
        set_testing(max_attempts=wrong),
    ):
        pass


def test_modes_and_clocks_and_records_go_together(scripted: Scripted) -> None:
    """Each takes what the runtime of the process is and adds its part."""
    policy = FallbackPolicy([Target("only")])
    with Clock().installed() as clock, recorded() as outer, set_testing(), recorded() as inner:
        assert policy.call(scripted(only=[DOWN, "hello"]).ask) == "hello"
    assert outer.one == inner.one
    assert (outer.one.outcome, outer.one.started_at) == ("success", clock.time())


def test_the_mode_ends_with_its_block() -> None:
    """Nested or not, what was before comes back, also where the block raises."""
    before = Runtime.current()
    with pytest.raises(KeyError), set_testing():
        with set_testing(max_attempts=1):
            assert Runtime.current().max_attempts == 1
        assert Runtime.current().max_attempts is None
        raise KeyError
    assert Runtime.current() is before


def test_a_policy_may_have_a_runtime_of_its_own() -> None:
    """`runtime=` gives time to one policy; the others stay with that of the process."""
    waits: list[float] = []
    own = Runtime(monotonic=lambda: 7.0, time=lambda: 100.0, sleep=waits.append)

    def ask(attempt: Attempt) -> str:
        if attempt.number == 1:
            raise DOWN
        return "hello"

    policy = FallbackPolicy([Target("only")], runtime=own)
    run = policy.start()
    assert policy.call(ask, run=run) == "hello"
    assert (waits, run.record.started_at, run.record.seconds) == ([20], 100.0, 0)
    with pytest.raises(FallbackConfigError, match="runtime: got a int; pass a Runtime"):
        FallbackPolicy([Target("only")], runtime=5)  # type: ignore[arg-type] # the point
