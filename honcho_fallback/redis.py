"""The cooldown in Redis: one probe among all processes, and the server's clock for all of them."""

# redis-py types its from_url in part only.
# pyright: reportUnknownMemberType=false

from __future__ import annotations

import asyncio
import inspect
import logging
import math
from collections import Counter
from functools import partial
from itertools import chain
from pathlib import Path
from secrets import token_hex
from time import monotonic
from typing import TYPE_CHECKING, Any, NamedTuple

from honcho_fallback import Cooldown, FallbackConfigError

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
    from collections.abc import Callable, Mapping, Sequence

    from honcho_fallback import FailureKind
    from honcho_fallback.stores import CooldownReport, Keys

logger = logging.getLogger("honcho_fallback")

_SCRIPT = Path(__file__).with_suffix(".lua").read_text(encoding="utf-8")
_PREFIX = "{honcho_fallback:cooldown}:"  # braces: in a cluster all keys share a slot
_PAUSE = 1.0  # seconds without Redis after it failed, so that not every call waits for it
# A connection from before Redis restarted is opened once more; an exchange may then run twice.
_STALE = (redis.ConnectionError,)
_ELSEWHERE = "elsewhere"
_MOST = 2**53  # milliseconds, or failures


class _News(NamedTuple):
    """What others have to hear of one identity."""

    health: str
    until: float  # the end of its rest, on the process's own clock
    failures: int
    is_probe: bool


class _Letter(NamedTuple):
    """One exchange: what is sent, and in which order it was."""

    number: int
    news: Mapping[str, _News]
    identities: list[str]  # that the reply tells of
    arguments: list[Any]  # of eval


class RedisCooldown(Cooldown):
    """Share a cooldown between processes: what one learns the others know with their next call.

    Before a call one request to Redis fetches what is known of the chain and, where a rest is
    over, takes the probe for this process; where a rest began or ended, one after it tells the
    others. Both are atomic and go by the server's clock; failures in a row are counted by each
    process for itself. Where Redis is down, slower than ``timeout`` or refuses to write, this is a
    ``Cooldown`` in memory; that is logged once, until Redis takes what this process knows.

    Targets are known to other processes by their ``identity``; those whose provider, endpoint or
    credential's fingerprint is unknown stay this process's own.

    Args:
        server: An address such as ``redis://localhost:6379/0``, or a client of redis-py or valkey,
            sync or async: of a Sentinel's master, of a cluster, or with a login of its own. A
            client's own timeouts bound it in threads. Calls in threads pass over an async one, and
            tasks use a sync one in a thread.
        after: As for Cooldown.
        base: As for Cooldown.
        cap: As for Cooldown.
        stated_cap: As for Cooldown.
        aclient: For tasks, beside a sync client: an async one, or a function that makes one for
            each event loop, where there are several.
        timeout: Seconds that a call gives Redis. In a task those count, too, for which something
            else holds up the loop.

    Raises:
        FallbackConfigError: An argument is out of range, or ``server`` is no address or client.
    """

    def __init__(  # noqa: PLR0913 # those of Cooldown, and whom it is shared through
        self,
        server: Any,
        after: int | Mapping[FailureKind, int] | Mapping[str, int] = 3,
        base: float = 2.0,
        cap: float = 300.0,
        stated_cap: float = 14400.0,
        *,
        aclient: Any = None,
        timeout: float = 0.05,
    ) -> None:
        super().__init__(after, base, cap, stated_cap)
        self._server, self._given_aclient, self._timeout = server, aclient, timeout
        self._outbox: dict[str, _News] = {}  # until Redis has taken it
        self._letters = 0
        # By identity, the letter up to which replies are older than what is known here.
        self._known_after = Counter[str]()
        self._resting_until = 0.0
        self._reported = False
        self._client, self._make_aclient = _clients(server, aclient, timeout)
        self._aclients: dict[asyncio.AbstractEventLoop, Any] = {}

    def _renew(self) -> None:
        super()._renew()
        self._owner = token_hex(8)  # whose probes they are: a child's are not its parent's

    def __reduce__(self) -> tuple[Any, ...]:
        options = {"aclient": self._given_aclient, "timeout": self._timeout}
        arguments = (self._server, self.after, self.base, self.cap, self.stated_cap)
        return partial(RedisCooldown, **options), arguments

    @property
    def shared(self) -> RedisCooldown:  # type: ignore[override] # what is shared is itself
        """Return what exchanges it with other processes."""
        return self

    def pull(self, offered: Sequence[Keys], lease: float | None = None, /) -> None:
        """Fetch what others know of some targets, and tell them what was learned.

        Args:
            offered: The keys of each, in the order of the chain.
            lease: Seconds for which a probe keeps others away.
        """
        if self._client is not None and (letter := self._letter(offered, lease)) is not None:
            try:
                self._absorb(letter, self._client.eval(*letter.arguments))
            except Exception as error:  # noqa: BLE001 # of whatever client it is: no call fails for it
                self._go_without(error)

    async def apull(self, offered: Sequence[Keys], lease: float | None = None, /) -> None:
        """Do so without blocking the loop."""
        letter = self._letter(offered, lease)
        if letter is not None:
            try:
                async with asyncio.timeout(self._timeout):
                    if (aclient := self._aclient()) is not None:
                        reply: Any = await aclient.eval(*letter.arguments)
                    else:
                        reply = await asyncio.to_thread(self._client.eval, *letter.arguments)
                    self._absorb(letter, reply)
            except Exception as error:  # noqa: BLE001 # as above
                self._go_without(error)

    def push(self) -> None:
        """Tell others what was learned."""
        self.pull(())

    async def apush(self) -> None:
        """Do so without blocking the loop."""
        await self.apull(())

    def close(self) -> None:
        """Close the connection of threads, where it was made here; the next use opens another."""
        if isinstance(self._server, str):
            self._client.close()

    async def aclose(self) -> None:
        """Close the connections of this loop and of threads, where they were made here."""
        client = self._aclients.pop(asyncio.get_running_loop(), None)
        if client is not None and isinstance(self._server, str):
            await client.aclose()
        self.close()

    def _aclient(self) -> Any:
        loop = asyncio.get_running_loop()
        if loop not in self._aclients:  # each loop in its own thread
            # A client refers to its loop: both would outlive it.
            for over in [one for one in [*self._aclients] if one.is_closed()]:
                self._aclients.pop(over, None)
            self._aclients[loop] = self._make_aclient()
        return self._aclients[loop]

    def _learn(self, report: CooldownReport, now: float) -> bool:
        identity = report.identity
        is_probe = report.permit is not None and self._permit(identity) == report.permit
        is_news = super()._learn(report, now)
        if is_news and not _local(identity):
            entry = self._entries.get(identity)
            rest, failures = (entry.until - now, entry.failures) if entry else (0.0, 0)
            until = monotonic() + rest
            self._outbox[identity] = _News(report.health, until, failures, is_probe)
        return is_news

    def _letter(self, offered: Sequence[Keys], lease: float | None) -> _Letter | None:
        """Write what others have to hear, and what is asked; None where nobody has to wait."""
        shared = ([key for key in keys if not _local(key)] for keys in offered)
        groups, now = [group for group in shared if group], monotonic()
        if now < self._resting_until or not (groups or self._outbox):
            return None
        if self._reported:
            self._resting_until = now + _PAUSE  # one call looks for Redis, the others do not wait
        with self._lock:
            # A rest that is over by now is no news any more.
            for identity, one in [*self._outbox.items()]:
                if one.health == "down" and one.until <= now:
                    del self._outbox[identity]
            news = dict(self._outbox)
            self._letters = number = self._letters + 1
        identities = [*chain.from_iterable(groups)]
        keys = [_PREFIX + one for one in ("writable", *news, *identities)]
        # Once Redis has failed it has to show that it takes what is written, too: one that only
        # answers reads would hide what this process knows.
        seconds = (max(self.cap, self.stated_cap), self.base if lease is None else lease)
        counts = str(int(self._reported)), str(len(news))
        values = [self._owner, *map(_milliseconds, seconds), *counts]
        for one in news.values():
            rest = _milliseconds(max(0.0, one.until - now))
            values += [one.health, rest, str(one.failures), str(int(one.is_probe))]
        values += (str(len(group)) for group in groups)
        return _Letter(number, news, identities, [_SCRIPT, len(keys), *keys, *values])

    def _absorb(self, letter: _Letter, reply: Any) -> None:
        now = monotonic()
        with self._lock:
            for identity, sent in letter.news.items():
                if self._outbox.get(identity) is sent:
                    del self._outbox[identity]
                # Other letters that are under way may have been read before this one.
                self._known_after[identity] = max(self._known_after[identity], self._letters - 1)
            for identity, entry in zip(letter.identities, reply, strict=True):
                is_older = letter.number <= self._known_after[identity]
                if identity in self._outbox or (is_older and identity not in letter.news):
                    # It would hide what Redis has not taken yet, or, over several connections,
                    # what came first: a report, or a later letter's reply.
                    continue
                self._known_after[identity] = max(self._known_after[identity], letter.number)
                if entry:
                    self._adopt(identity, entry, now)
                else:
                    self._entries.pop(identity, None)
        if self._reported:
            self._reported, self._resting_until = False, 0.0
            logger.info("the cooldown in Redis is shared again")

    def _adopt(self, identity: str, entry: Sequence[Any], now: float) -> None:
        # What is not from our script may be any number, and is reckoned with later on.
        left, failures, lease, ours = (min(max(0, int(value)), _MOST) for value in entry)
        until, leased = now + left / 1000, now + lease / 1000
        # A probe that is ours is under way here, or free for the call that fetched this.
        permit = self._permit(identity) if ours else _ELSEWHERE
        self._rest_until(identity, until, failures, permit if lease else None, leased)

    def _go_without(self, error: Exception) -> None:
        self._resting_until = monotonic() + _PAUSE
        if not self._reported:
            self._reported = True
            logger.warning(
                "the cooldown in Redis cannot be shared (%s); this process goes by its memory",
                type(error).__name__,
            )


def _clients(server: Any, aclient: Any, timeout: float) -> tuple[Any, Callable[[], Any]]:
    """Return the client of threads, or None, and what makes that of an event loop."""
    if isinstance(server, str):
        # A connection costs two steps, each bounded by half of what a call gives. Those of a loop
        # have no timeouts of their own, which would measure the loop: apull bounds them.
        client: Any = redis.Redis.from_url(
            server,
            socket_timeout=timeout / 2,
            socket_connect_timeout=timeout / 2,
            retry=Retry(NoBackoff(), 1, _STALE),
        )
        make = partial(
            redis.asyncio.Redis.from_url,
            server,
            socket_timeout=None,
            socket_connect_timeout=None,
            retry=AsyncRetry(NoBackoff(), 1, _STALE),
        )
        return client, make
    if not callable(getattr(server, "eval", None)):
        fix = "pass an address such as 'redis://localhost:6379/0', or a client of redis-py"
        raise FallbackConfigError.about("server", f"got a {type(server).__name__}", fix)
    if inspect.iscoroutinefunction(getattr(server, "execute_command", None)):
        return None, lambda: server
    if aclient is None or hasattr(aclient, "eval"):
        return server, lambda: aclient
    return server, aclient


def _local(identity: str) -> bool:
    return identity.startswith("here:")


def _milliseconds(seconds: float) -> str:
    return str(math.ceil(seconds * 1000))
