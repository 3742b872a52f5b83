"""A process of a service in an outage: calls a dead primary, and counts who was asked in Redis."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING

import redis

from honcho_fallback import ApiKey, FallbackConfig, FallbackPolicy, Target
from honcho_fallback.redis import RedisCooldown
from honcho_fallback.testing import StatusError

if TYPE_CHECKING:
    from honcho_fallback import Attempt


def chain() -> list[Target]:
    """Name targets that every process knows as the same."""
    return [
        Target(name, provider="p", endpoint="http://x", credential=ApiKey("k"), name=name)
        for name in ("primary", "fallback")
    ]


def main(url: str, calls: int, how: str) -> None:
    """Make some calls at the same time as the other processes."""
    # A bound that a loaded machine keeps: here it is about who asks, not about how fast.
    cooldown = RedisCooldown(url, after=1, base=60, timeout=5.0)
    policy = FallbackPolicy(chain(), FallbackConfig(wait=0, cooldown=cooldown))
    client = redis.Redis.from_url(url)

    def ask(attempt: Attempt) -> str:
        client.incr(f"asked:{attempt.target.name}")
        if not attempt.is_fallback:
            raise StatusError(503)
        return "hello"

    async def aask(attempt: Attempt) -> str:
        await asyncio.sleep(0)
        return ask(attempt)

    async def acalls() -> None:
        for _ in range(calls):
            await policy.acall(aask)
        await cooldown.aclose()

    client.incr("ready")
    client.blpop(["go"])
    if how == "acall":
        asyncio.run(acalls())
    else:
        for _ in range(calls):
            policy.call(ask)
    client.close()
    cooldown.close()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3])
