"""Whatever a Redis, or what stands in its place, replies: every call that can be answered is."""

from __future__ import annotations

import asyncio
from itertools import product, repeat
from typing import TYPE_CHECKING, Any

import pytest

from honcho_fallback import ApiKey, FallbackPolicy, Target
from honcho_fallback.redis import RedisCooldown
from honcho_fallback.testing import StatusError

if TYPE_CHECKING:
    from collections.abc import Iterator

VALUES: list[Any] = [
    0, 1, -1, 10**9, 10**18, 10**300, 10**400, -(10**400), 10**5000, 1.5, float("nan"),
    float("inf"), "1", "-1", b"1", b"x", b"\xff", "", "\u0661", "1e9", "9" * 5000, None, True, [],
    {}, object(), ValueError("MOVED"), MemoryError(),
]  # fmt: skip
KEYS = 6  # of two targets: each its model's, its credential's and its host's


class Server:
    """A client of redis-py that replies with anything."""

    def __init__(self, reply: Any) -> None:
        self._reply = reply

    def eval(self, *_: Any) -> Any:
        if isinstance(self._reply, Exception):
            raise self._reply
        return self._reply


class AsyncServer(Server):
    """An async one."""

    async def execute_command(self, *_: Any) -> Any:
        """Tell that it is one."""

    async def eval(self, *args: Any) -> Any:
        return super().eval(*args)


def replies() -> Iterator[Any]:
    """Yield each value as the reply, as an entry, and as each of an entry's four fields."""
    for value in VALUES:
        yield value
        yield [value] * KEYS
        yield [[value] * 4] * KEYS
        for place, usual in product(range(4), ([1000, 1, 0, "0"], [0, 1, 1000, "1"])):
            yield [[*usual[:place], value, *usual[place + 1 :]]] * KEYS
    for length in range(KEYS + 3):
        yield [[]] * length
        yield [[1, 1, 0, "0"]] * length
        yield [[1] * length] * KEYS
    yield iter([])
    yield repeat([])


def ask(attempt: Any) -> str:
    """Answer as the fallback; the primary is down."""
    if attempt.target.name == "primary":
        raise StatusError(503)
    return "hello"


async def aask(attempt: Any) -> str:
    return ask(attempt)


def policy_with(server: Server) -> FallbackPolicy:
    key = ApiKey("k")
    chain = [
        Target(name, "p", endpoint="http://x", credential=key, name=name)
        for name in ("primary", "fallback")
    ]
    return FallbackPolicy(chain, cooldown=RedisCooldown(server, after=1, base=1), wait=0)


@pytest.mark.parametrize("in_task", [False, True])
def test_no_reply_costs_an_answer(caplog: pytest.LogCaptureFixture, *, in_task: bool) -> None:
    """Calls go on with what the process remembers."""
    caplog.set_level("CRITICAL", "honcho_fallback")

    async def calls(policy: FallbackPolicy) -> list[str]:
        return [await policy.acall(aask) for _ in range(3)]

    for reply in replies():
        policy = policy_with((AsyncServer if in_task else Server)(reply))
        try:
            answers = (
                asyncio.run(calls(policy)) if in_task else [policy.call(ask) for _ in range(3)]
            )
        except Exception as error:  # noqa: BLE001 # to say which reply it was
            pytest.fail(f"{error!r} after a reply of {str(reply)[:99]}")
        assert answers == ["hello"] * 3
