"""HTTP clients whose pools can be looked into."""

from __future__ import annotations

from typing import Any

import httpx

from soak.provider import TIMEOUT

# More than calls at a time, so that none waits for another's connection.
_LIMITS = httpx.Limits(max_connections=1000, max_keepalive_connections=400)


class Clients:
    """Hold a sync and an async client, without proxies of the environment."""

    def __init__(self) -> None:
        self.sync = httpx.Client(limits=_LIMITS, timeout=TIMEOUT, trust_env=False)
        self.asynchronous = httpx.AsyncClient(limits=_LIMITS, timeout=TIMEOUT, trust_env=False)

    def unfinished(self) -> list[str]:
        """Describe the connections that wait for an answer's end."""
        return [*_busy(self.sync), *_busy(self.asynchronous)]

    async def close(self) -> None:
        self.sync.close()
        await self.asynchronous.aclose()


def _busy(client: Any) -> list[str]:
    connections = client._transport._pool.connections  # noqa: SLF001 # httpx shows it nowhere else
    return [repr(one) for one in connections if not (one.is_idle() or one.is_closed())]
