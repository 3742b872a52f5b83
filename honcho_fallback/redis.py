"""The cooldown in Redis: one probe among all processes, and the server's clock for all of them."""

# redis-py types its from_url in part only.
# pyright: reportUnknownMemberType=false

from __future__ import annotations

import asyncio
import logging
import math
import threading
from itertools import chain
from pathlib import Path
from secrets import token_hex
from time import monotonic
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from honcho_fallback import Cooldown

try:
    import redis
    import redis.asyncio
    from redis.asyncio.retry import Retry as AsyncRetry
    from redis.backoff import NoBackoff
    from redis.retry import Retry
except ImportError as error:
    raise ImportError(
        "honcho_fallback.redis needs redis-py: pip install 'honcho-fallback[redis]', "
        "in a checkout pip install '.[redis]'"
    ) from error

if TYPE_CHECKING:
    from collections.abc import Sequence

    from honcho_fallback.stores import CooldownChoice, CooldownReport, Keys

logger = logging.getLogger("honcho_fallback")

_SCRIPT = Path(__file__).with_suffix(".lua").read_text(encoding="utf-8")
_PREFIX = "{honcho_fallback:cooldown}:"  # braces: in a cluster all keys share a slot
_PAUSE = 1.0  # seconds without Redis after it failed, so that not every call waits for it
# A connection from before Redis restarted is opened once more; an exchange may then run twice.
_STALE = (redis.ConnectionError,)
_ELSEWHERE = "elsewhere"


class RedisCooldown(Cooldown):
    """Share a cooldown between processes: what one learns the others know with their next call.

    Before a call one request to Redis fetches what is known of the chain and, where a rest is
    over, takes the probe for this process; where a call learned something, one after it tells the
    others. Both are atomic and go by the server's clock. Where Redis is down or slower than
    ``timeout``, this is a ``Cooldown`` in memory; that is logged once, until Redis is back.

    Targets are known to other processes by their ``identity``; those whose provider, endpoint or
    credential's fingerprint is unknown stay this process's own.

    Args:
        url: Such as ``redis://localhost:6379/0``.
        base: As for Cooldown.
        cap: As for Cooldown.
        timeout: Seconds that a call gives Redis. In a task those count, too, for which something
            else holds up the loop.

    Raises:
        FallbackConfigError: An argument is out of range.
    """

    def __init__(
        self, url: str, base: float = 60.0, cap: float = 14400.0, *, timeout: float = 0.05
    ) -> None:
        super().__init__(base, cap)
        self._url = url
        self._timeout = timeout
        self._owner = token_hex(8)
        self._outbox: list[CooldownReport] = []
        self._letters = 0
        # By identity, the letter up to which replies are older than what is known here.
        self._known_after: dict[str, int] = {}
        self._resting_until = 0.0
        self._reported = False
        # A connection costs two steps, each bounded by half of what a call gives.
        self._client = redis.Redis.from_url(
            url,
            socket_timeout=timeout / 2,
            socket_connect_timeout=timeout / 2,
            retry=Retry(NoBackoff(), 1, _STALE),
        )
        self._clients: WeakKeyDictionary[asyncio.AbstractEventLoop, redis.asyncio.Redis] = (
            WeakKeyDictionary()
        )
        self._making = threading.Lock()

    def __repr__(self) -> str:
        # The url may hold a password.
        return f"RedisCooldown(base={self.base:g}, cap={self.cap:g})"

    def __reduce__(self) -> tuple[Any, ...]:
        return RedisCooldown, (self._url, self.base, self.cap)

    @property
    def shared(self) -> RedisCooldown:  # type: ignore[override] # what is shared is itself
        """Return what exchanges it with other processes."""
        return self

    def update_and_select(
        self,
        reports: Sequence[CooldownReport],
        offered: Sequence[Keys],
        now: float,
        lease: float | None = None,
        /,
    ) -> CooldownChoice:
        """Take in what was learned, then choose the first of the offered targets that is free.

        Args:
            reports: What was learned; sent to the others with the next ``push``.
            offered: The keys of each target, in the order of the chain.
            now: The time on a monotonic scale.
            lease: As for Cooldown.
        """
        if not reports:
            return super().update_and_select(reports, offered, now, lease)
        with self._lock:
            for report in reports:
                if not _local(report.identity):
                    self._outbox.append(report)
                    self._known_after[report.identity] = self._letters
            return super().update_and_select(reports, offered, now, lease)

    def pull(self, offered: Sequence[Keys], lease: float | None = None, /) -> None:
        """Fetch what others know of some targets.

        Args:
            offered: The keys of each, in the order of the chain.
            lease: Seconds for which a probe keeps others away.
        """
        groups = _shared(offered)
        if self._worth_it(groups):
            number, keys, values = self._letter(groups, lease)
            try:
                self._absorb(number, groups, self._client.eval(_SCRIPT, len(keys), *keys, *values))
            except (redis.RedisError, OSError) as error:
                self._go_without(error)

    async def apull(self, offered: Sequence[Keys], lease: float | None = None, /) -> None:
        """Do so without blocking the loop.

        Args:
            offered: The keys of each, in the order of the chain.
            lease: Seconds for which a probe keeps others away.
        """
        groups = _shared(offered)
        if self._worth_it(groups):
            number, keys, values = self._letter(groups, lease)
            try:
                async with asyncio.timeout(self._timeout):
                    reply: Any = self._aclient().eval(_SCRIPT, len(keys), *keys, *values)
                    self._absorb(number, groups, await reply)
            except (redis.RedisError, OSError) as error:  # TimeoutError is an OSError
                self._go_without(error)

    def push(self) -> None:
        """Tell others what was learned."""
        if self._outbox:
            self.pull(())

    async def apush(self) -> None:
        """Do so without blocking the loop."""
        if self._outbox:
            await self.apull(())

    def close(self) -> None:
        """Close the connection of threads; the next use opens another."""
        self._client.close()

    async def aclose(self) -> None:
        """Close the connections of this loop and of threads."""
        client = self._clients.pop(asyncio.get_running_loop(), None)
        if client is not None:
            await client.aclose()
        self.close()

    def _aclient(self) -> redis.asyncio.Redis:
        loop = asyncio.get_running_loop()
        with self._making:
            if loop not in self._clients:
                # Without timeouts of its own, which would measure the loop: apull bounds it.
                self._clients[loop] = redis.asyncio.Redis.from_url(
                    self._url,
                    socket_timeout=None,
                    socket_connect_timeout=None,
                    retry=AsyncRetry(NoBackoff(), 1, _STALE),
                )
            return self._clients[loop]

    def _worth_it(self, groups: Sequence[Sequence[str]]) -> bool:
        now = monotonic()
        if now < self._resting_until or not (groups or self._outbox):
            return False
        if self._reported:
            self._resting_until = now + _PAUSE  # one call looks for Redis, the others do not wait
        return True

    def _letter(
        self, groups: Sequence[Sequence[str]], lease: float | None
    ) -> tuple[int, list[str], list[str]]:
        with self._lock:
            reports, self._outbox = self._outbox, []
            self._letters += 1
            number = self._letters
        identities = [*(report.identity for report in reports), *chain.from_iterable(groups)]
        keys = [_PREFIX + identity for identity in identities]
        leased = self.base if lease is None else lease
        values = [self._owner, *map(_milliseconds, (self.base, self.cap, leased))]
        values.append(str(len(reports)))
        for report in reports:
            stated = "" if report.seconds is None else _milliseconds(report.seconds)
            values += [report.health, stated, str(int(report.permit is not None))]
        return number, keys, [*values, *(str(len(group)) for group in groups)]

    def _absorb(self, number: int, groups: Sequence[Sequence[str]], reply: Any) -> None:
        known = chain.from_iterable(groups)
        now = monotonic()
        with self._lock:
            for identity, entry in zip(known, reply, strict=True):
                if self._known_after.get(identity, 0) >= number:
                    # A report or a later letter's reply came first: over several connections they
                    # overtake each other, and this one would hide a probe that is under way.
                    continue
                self._known_after[identity] = number
                if entry:
                    self._adopt(identity, entry, now)
                else:
                    self._drop(identity)
        if self._reported:
            self._reported, self._resting_until = False, 0.0
            logger.info("the cooldown in Redis is shared again")

    def _adopt(self, identity: str, entry: Sequence[Any], now: float) -> None:
        left, failures, lease, ours = (int(value) for value in entry)
        until, leased = now + left / 1000, now + lease / 1000
        # A probe that is ours is under way here, or free for the call that fetched this.
        permit = self._permit(identity) if ours else _ELSEWHERE
        self._overwrite(identity, until, failures, permit if lease else None, leased)

    def _go_without(self, error: Exception) -> None:
        # What could not be told is not kept: once Redis is back it is no news any more.
        self._resting_until = monotonic() + _PAUSE
        if not self._reported:
            self._reported = True
            logger.warning(
                "the cooldown in Redis cannot be reached (%s); this process goes by its memory",
                type(error).__name__,
            )


def _shared(offered: Sequence[Keys]) -> list[list[str]]:
    """Return the keys of targets that other processes know, too."""
    groups = ([key for key in keys if not _local(key)] for keys in offered)
    return [group for group in groups if group]


def _local(identity: str) -> bool:
    return identity.startswith("here:")


def _milliseconds(seconds: float) -> str:
    return str(math.ceil(seconds * 1000))
