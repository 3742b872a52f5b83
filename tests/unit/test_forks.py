"""A fork while another thread is in the middle of something: the child finds nothing taken."""

from __future__ import annotations

import os
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from honcho_fallback import Cooldown, FallbackPolicy, RetryBudget, Target
from honcho_fallback.stores import CooldownReport, renew_after_fork
from honcho_fallback.testing import StatusError
from tests.helpers.forked import FORKS, in_child

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

pytestmark = FORKS


class Gate:
    """Stop whoever passes it once it is shut, until it is opened."""

    def __init__(self) -> None:
        self.is_shut = False
        self.reached, self.opened = threading.Event(), threading.Event()

    def pass_through(self) -> None:
        if self.is_shut:
            self.reached.set()
            self.opened.wait(30)


class SlowName(str):
    """A name whose hash, which is asked for under a lock, waits at a gate."""

    __slots__ = ("gate",)
    gate: Gate

    def __hash__(self) -> int:
        self.gate.pass_through()
        return str.__hash__(self)


def slow(name: str, gate: Gate) -> SlowName:
    made = SlowName(name)
    made.gate = gate
    return made


@contextmanager
def at(gate: Gate, work: Callable[[], object]) -> Generator[None, None, None]:
    """Have a thread in the middle of its work, at a gate."""
    thread = threading.Thread(target=work, daemon=True)
    gate.is_shut = True
    thread.start()
    assert gate.reached.wait(10)
    gate.is_shut = False
    try:
        yield
    finally:
        gate.opened.set()
        thread.join()


def down(identity: str, seconds: float | None = None) -> CooldownReport:
    return CooldownReport(identity, "down", seconds, lasting=True)


def test_a_child_gets_through_a_cooldown_that_a_thread_was_in() -> None:
    """It keeps what is known, and has a lock of its own; the parent goes on with its."""
    cooldown, gate = Cooldown(), Gate()
    cooldown.update_and_select([down("a", 60)], [], 0)
    keys = [slow("other", gate)]
    with at(gate, lambda: cooldown.update_and_select([], [keys], 1, None)):
        said = in_child(lambda: cooldown.update_and_select([], [["a"], ["b"]], 1, None))
    assert said == str(cooldown.update_and_select([], [["a"], ["b"]], 1, None))
    assert "place=1" in said


def test_a_child_gets_through_a_retry_budget_that_a_thread_was_in() -> None:
    """The repeats of all threads are counted under one lock."""
    budget, gate = RetryBudget(), Gate()
    name = slow("a", gate)
    with at(gate, lambda: budget.first(name, 0)):
        assert in_child(lambda: budget.repeat("b", 1)) == "True"
    assert budget.repeat("a", 1)


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
    gate = Gate()

    class Credential:
        token = "old"

        def get(self) -> str:
            return self.token

        def refresh(self) -> None:
            gate.pass_through()
            self.token = "new"

    credential = Credential()
    policy = FallbackPolicy([Target("a", credential=credential)])

    def call() -> str:
        return policy.call(ask)

    def ask(_: Any) -> str:
        if credential.get() == "old":
            raise StatusError(401)
        return "hello"

    with at(gate, call):
        assert in_child(call) == "hello"
    assert call() == "hello"


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
