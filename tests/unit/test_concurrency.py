"""One policy, many callers, and a process that forks: none meets what is another's."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import threading
import warnings
import weakref
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

from honcho_fallback import (
    Cooldown,
    FallbackConfig,
    FallbackExhausted,
    FallbackPolicy,
    RetryBudget,
    Sessions,
    Target,
)
from honcho_fallback.stores import CooldownReport, renew_after_fork
from honcho_fallback.testing import StatusError
from tests.helpers.forked import in_child

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

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
@pytest.mark.parametrize(("targets", "failing"), [(2, 1), (1, 1), (2, 2)])
async def test_nothing_of_a_finished_call_stays_behind(targets: int, failing: int) -> None:
    """Errors are freed at once: passed over, or with what was raised, alone or in a group.

    They are part of no reference cycle, and no task is left.
    """

    def ask(attempt: Any) -> str:
        if attempt.position < failing:
            raise watched()
        return "hello"

    async def aask(attempt: Any) -> str:
        return ask(attempt)

    policy = FallbackPolicy(POLICY.targets[:targets], FallbackConfig(wait=0))
    with contextlib.suppress(FallbackExhausted, StatusError):
        policy.call(ask)
    assert not ALIVE
    with contextlib.suppress(FallbackExhausted, StatusError):
        await policy.acall(aask)
    assert not ALIVE
    assert asyncio.all_tasks() == {asyncio.current_task()}


# A fork while another thread is in the middle of something: the child finds nothing taken.


@contextlib.contextmanager
def taken(lock: Any) -> Generator[None, None, None]:
    """Have another thread in the middle of what a lock is for."""
    with ThreadPoolExecutor(1) as other:
        other.submit(lock.acquire).result()
        try:
            yield
        finally:
            other.submit(lock.release).result()


def down(identity: str, seconds: float | None = None) -> CooldownReport:
    return CooldownReport(identity, "down", seconds, lasting=True)


def test_a_child_gets_through_what_a_thread_was_in() -> None:
    """It keeps what is known and has locks of its own: of a cooldown, a budget and sessions."""
    cooldown, budget, sessions = Cooldown(), RetryBudget(), Sessions()
    cooldown.update_and_select([down("a", 60)], [], 0)
    with taken(cooldown._lock), taken(budget._lock), taken(sessions._lock):
        said = in_child(lambda: cooldown.update_and_select([], [["a"], ["b"]], 1, None))
        assert in_child(lambda: budget.repeat("b", 1)) == "True"
        assert in_child(lambda: sessions.answered("b", 1, 0.0, None)) == "None"
    assert said == str(cooldown.update_and_select([], [["a"], ["b"]], 1, None))
    assert "place=1" in said
    assert budget.repeat("a", 1)  # the parent goes on with its own


def test_the_parents_probe_does_not_keep_the_child_away() -> None:
    """Its answer will never come to the child, which would pass the target over for the lease."""
    cooldown = Cooldown()
    cooldown.update_and_select([down("a", 1)], [], 0)
    assert cooldown.update_and_select([], [["a"], ["b"]], 2, 100).permit
    said = in_child(lambda: cooldown.update_and_select([], [["a"], ["b"]], 3, 100).place)
    assert said == "0"
    assert cooldown.update_and_select([], [["a"], ["b"]], 3, 100).place == 1


def test_a_child_does_not_wait_for_its_parents_refresh() -> None:
    """No thread of the child makes it: the child makes one of its own."""
    begun, may_end = threading.Event(), threading.Event()

    class Credential:
        token = "old"

        def get(self) -> str:
            return self.token

        def refresh(self) -> None:
            if os.getpid() == parent:
                begun.set()
                may_end.wait(30)
            self.token = "new"

    parent, credential = os.getpid(), Credential()
    policy = FallbackPolicy([Target("a", credential=credential)])

    def ask(_: Any) -> str:
        if credential.get() == "old":
            raise StatusError(401)
        return "hello"

    with ThreadPoolExecutor(1) as other:
        waiting = other.submit(policy.call, ask)
        assert begun.wait(10)
        said = in_child(lambda: policy.call(ask))
        may_end.set()
        assert (said, waiting.result()) == ("hello", "hello")


def test_a_child_names_its_calls_anew() -> None:
    """AN-010: names of calls do not repeat across processes that share a policy by forking."""
    theirs = in_child(lambda: POLICY.start().attempt.call_id)
    assert theirs.startswith("c")
    assert POLICY.start().attempt.call_id != theirs


def test_a_store_of_ones_own_can_have_the_same() -> None:
    """Its method is called at once and in each child, and keeps nothing alive."""
    renewed: list[int] = []

    class Store:
        def renew(self) -> None:
            renewed.append(os.getpid())

    store = Store()
    renew_after_fork(store.renew)
    assert renewed == [os.getpid()]
    assert in_child(lambda: len(renewed)) == "2"
    del store
    assert in_child(lambda: len(renewed)) == "1"


def test_a_shared_cooldown_has_another_name_in_the_child() -> None:
    """Probes are known by whose they are: the child's are not its parent's."""
    pytest.importorskip("redis")
    module = pytest.importorskip("honcho_fallback.redis")

    class Client:
        def __init__(self) -> None:
            self.letters: list[Any] = []

        def eval(self, _: Any, count: int, *letter: Any) -> Any:
            self.letters.append(letter[count:])
            raise ConnectionError

    client = Client()
    cooldown = module.RedisCooldown(client)
    assert "place=0" in in_child(lambda: cooldown.update_and_select([], [["a"]], 0, None))

    def owner() -> str:
        module.RedisCooldown.pull(cooldown, [["known:a"]])
        return str(client.letters[-1][0])

    said = in_child(owner)
    assert len(said) == len(owner()) == 16
    assert said != owner()
