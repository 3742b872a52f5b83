"""Keys that stay as they are, and refreshes that calls share."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

from honcho_fallback import ApiKey, Credential, CredentialError, FallbackPolicy, Target
from honcho_fallback.testing import StatusError
from tests.helpers.scripted import DRIVERS, repeating

if TYPE_CHECKING:
    from honcho_fallback import Attempt

DENIED = StatusError(401)


def test_a_static_key_is_told_apart_and_never_shown() -> None:
    """Its fingerprint stands for it; it is a credential like any other, without a refresh."""
    key = ApiKey("sk-secret")
    assert isinstance(key, Credential)
    assert key.get() == "sk-secret"
    assert ApiKey("sk-secret").fingerprint == key.fingerprint != ApiKey("other").fingerprint
    with pytest.raises(CredentialError, match="a static key has no refresh; replace it"):
        key.refresh()
    assert "sk-secret" not in f"{key!r} {Target('m', credential=key)!r}"


@pytest.mark.parametrize("driver", DRIVERS)
def test_a_refused_static_key_is_no_reason_for_a_refresh(driver: str) -> None:
    """HON-079: a 401 switches at once; that a refresh failed would be news about nothing."""

    class Watched(ApiKey):
        refreshes = 0

        def refresh(self) -> None:
            self.refreshes += 1

    key = Watched("sk-secret")
    policy = FallbackPolicy([Target("primary", credential=key), Target("fallback")])
    script, run = repeating(primary=[DENIED], fallback=["hello"]), policy.start()
    assert DRIVERS[driver](policy, script, run) == "hello"
    assert (script.asked, key.refreshes) == (["primary", "fallback"], 0)
    assert [attempt.note for attempt in run.record.attempts] == [None, None]


class Gated:
    """An async credential whose refreshes wait for a gate."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()
        self.gate = asyncio.Event()
        self.refreshes = 0

    def get(self) -> int:
        return self.refreshes

    async def refresh(self) -> None:
        self.begun.set()
        await self.gate.wait()
        self.refreshes += 1


async def test_where_the_leader_of_a_refresh_is_cancelled_the_next_one_leads() -> None:
    """AN-021: a cancelled refresh cancels nobody else, and leaves nothing behind."""
    credential = Gated()
    policy = FallbackPolicy([Target("primary", credential=credential)])

    async def ask(_: Attempt) -> int:
        if not credential.refreshes:
            raise DENIED
        return credential.refreshes

    tasks = [asyncio.create_task(policy.acall(ask)) for _ in range(3)]
    await credential.begun.wait()
    tasks[0].cancel()
    with pytest.raises(asyncio.CancelledError, match=r"^$"):
        await tasks[0]
    credential.gate.set()
    assert await asyncio.gather(*tasks[1:]) == [1, 1]
    assert credential.refreshes == 1


class Queue(ThreadPoolExecutor):
    """One thread, which is busy; it tells when something waits for it."""

    def __init__(self) -> None:
        super().__init__(1)
        self.free, self.waits = threading.Event(), asyncio.Event()
        super().submit(self.free.wait)

    def submit(self, *args: Any, **kwargs: Any) -> Any:
        job = super().submit(*args, **kwargs)
        self.waits.set()
        return job


class Renewed:
    """A credential whose refresh is no coroutine."""

    refreshes = 0

    def get(self) -> int:
        return self.refreshes

    def refresh(self) -> None:
        self.refreshes += 1


async def test_a_refresh_that_was_given_up_before_a_thread_was_free_blocks_nobody() -> None:
    """It never began: the next call leads, in a task and in a thread."""
    credential, queue = Renewed(), Queue()
    asyncio.get_running_loop().set_default_executor(queue)
    policy = FallbackPolicy([Target("primary", credential=credential)])

    async def ask(attempt: Attempt) -> int:
        return ask_in_thread(attempt)

    def ask_in_thread(_: Attempt) -> int:
        if not credential.refreshes:
            raise DENIED
        return credential.refreshes

    given_up = asyncio.create_task(policy.acall(ask))
    await queue.waits.wait()
    given_up.cancel()
    with pytest.raises(asyncio.CancelledError):
        await given_up
    queue.free.set()
    async with asyncio.timeout(10):  # it would wait for ever
        assert await policy.acall(ask) == 1
    assert policy.call(ask_in_thread) == 1
    assert credential.refreshes == 1
