"""One policy, many callers: each sees only its own attempts, and none leaves anything behind."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import threading
import warnings
import weakref
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

from honcho_fallback import FallbackConfig, FallbackExhausted, FallbackPolicy, Target
from honcho_fallback.testing import StatusError

if TYPE_CHECKING:
    from collections.abc import Iterator

POLICY = FallbackPolicy([Target("primary"), Target("fallback")], FallbackConfig(wait=0))


def own_answer(caller: int, attempt: Any) -> str:
    if caller % 2 and not attempt.is_fallback:
        raise StatusError(500 + caller % 90)
    return f"{caller} by {attempt.target.name}"


def test_thirty_two_threads_share_nothing() -> None:
    """HON-049: half of them fail; each has its own attempts, with names that never repeat."""
    barrier = threading.Barrier(32)

    def one(caller: int) -> set[str]:
        barrier.wait()
        names = set()
        for _ in range(20):
            run = POLICY.start()
            answer = POLICY.call(lambda attempt: own_answer(caller, attempt), run=run)
            first, *others = run.record.attempts
            assert answer == f"{caller} by {'fallback' if caller % 2 else 'primary'}"
            assert first.status == (500 + caller % 90 if caller % 2 else None)
            assert len(others) == caller % 2
            names.add(run.record.call_id)
        return names

    with ThreadPoolExecutor(32) as pool:
        names = list(pool.map(one, range(32)))
    assert len(set().union(*names)) == 32 * 20


def test_a_nested_call_does_not_touch_the_outer_one() -> None:
    """HON-048: a call inside `ask` (a tool, a delegate) has its own run."""
    inner_runs: list[Any] = []

    def ask(attempt: Any) -> str:
        inner = POLICY.start()
        inner_runs.append(inner)
        answer = POLICY.call(lambda attempt: own_answer(1, attempt), run=inner)
        if not attempt.is_fallback:
            raise StatusError(503)
        return f"outer after {answer}"

    run = POLICY.start()
    assert POLICY.call(ask, run=run) == "outer after 1 by fallback"
    assert [attempt.status for attempt in run.record.attempts] == [503, None]
    assert [attempt.status for attempt in inner_runs[0].record.attempts] == [501, None]


ALIVE = weakref.WeakSet[StatusError]()


def watched() -> StatusError:
    """Make an error that can be seen to be freed."""
    error = StatusError(503)
    ALIVE.add(error)
    return error


@pytest.fixture
def no_collector() -> Iterator[None]:
    """Show that memory is given back by reference counts alone."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # of what other tests have left
        gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("no_collector")
async def test_nothing_of_a_finished_call_stays_behind() -> None:
    """No task is left after a switch, and the error of the primary is freed at once."""

    async def ask(attempt: Any) -> str:
        if not attempt.is_fallback:
            raise watched()
        return "hello"

    await POLICY.acall(ask)
    assert not ALIVE
    assert asyncio.all_tasks() == {asyncio.current_task()}


@pytest.mark.usefixtures("no_collector")
@pytest.mark.parametrize("targets", [1, 2])
def test_a_failed_call_frees_its_errors_with_what_it_raised(targets: int) -> None:
    """What is raised is not part of a reference cycle, alone or in a group."""

    def ask(_: Any) -> str:
        raise watched()

    policy = FallbackPolicy(POLICY.targets[:targets], FallbackConfig(wait=0))
    with contextlib.suppress(FallbackExhausted, StatusError):
        policy.call(ask)
    assert not ALIVE
