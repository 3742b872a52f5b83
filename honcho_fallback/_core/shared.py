"""What calls share, under a lock: who is down (a circuit breaker), and how much is repeated."""

from __future__ import annotations

import logging
import threading
from collections.abc import Collection
from secrets import token_hex
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, runtime_checkable

from honcho_fallback._core.target import is_local
from honcho_fallback._values.errors import require_number

if TYPE_CHECKING:
    from collections.abc import Sequence

    from honcho_fallback._values.failure import Health


class CooldownReport(NamedTuple):
    """Say what a call learned about a target, or about whoever shares its key or its host.

    Args:
        identity: The target's, or what names its key or host: one of a target's keys.
        health: Whether it is down, up, or nothing was learned.
        seconds: How long the provider asked to be left alone, or None.
        permit: The probe that this call was, or None.
    """

    identity: str
    health: Health
    seconds: float | None = None
    permit: str | None = None


class CooldownChoice(NamedTuple):
    """Say which of some targets to ask.

    Args:
        place: Its place among those that were offered.
        permit: Given where the call is the one that probes it, or None.
        passed: Who was passed over: the place and the seconds left, 0 where another call probes.
        forced: Whether all were cooling down and this one is due first.
    """

    place: int = 0
    permit: str | None = None
    passed: tuple[tuple[int, float], ...] = ()
    forced: bool = False


@runtime_checkable
class CooldownStore(Protocol):
    """Keep what calls learn of targets, and choose by it; ``Cooldown`` is one in memory."""

    @property
    def shared(self) -> SharedCooldown | None:
        """Return what exchanges it with other processes, or None."""

    def update_and_select(
        self,
        reports: Sequence[CooldownReport],
        offered: Sequence[Keys],
        now: float,
        lease: float | None,
        /,
    ) -> CooldownChoice:
        """Take in what was learned, then choose the first of the offered targets that is free.

        A target is free if nothing that its keys name is down.

        Args:
            reports: What was learned.
            offered: The keys of each target, in the order of the chain; perhaps none.
            now: The time on a monotonic scale, in seconds.
            lease: Seconds that the attempt may take, for which a probe keeps others away; None
                where nothing bounds it.
        """
        ...


class SharedCooldown(Protocol):
    """Exchange what a process knows with others; bound in time, and never raises.

    ``pull`` runs before a call and, where something was learned, ``push`` after it.
    """

    def pull(self, offered: Sequence[Keys], lease: float | None = None, /) -> None:
        """Fetch what others know of some targets; arguments as for ``update_and_select``."""

    async def apull(self, offered: Sequence[Keys], lease: float | None = None, /) -> None:
        """Do so without blocking the loop."""

    def push(self) -> None:
        """Tell others what was learned."""

    async def apush(self) -> None:
        """Do so without blocking the loop."""


Keys = Collection[str]  # what a target needs: the names of its model, its key and its host

logger = logging.getLogger("honcho_fallback")

# So many targets nobody has in one process; a policy that is made for each request makes them.
_MANY = 64


class _Entry(NamedTuple):
    """A target that is down: the breaker is open until ``until``, then half-open."""

    until: float
    failures: int = 0  # probes that failed
    permit: str | None = None  # of the probe under way
    leased: float = 0.0  # until when that probe keeps the others away


class Cooldown:
    """Be a circuit breaker for each target, shared by the policies that are given this object.

    A target that failed is left alone until the time its provider named, otherwise for ``base``
    seconds, doubled with every probe that fails. Then one call probes it, and the others stay
    where they are until the answer is there. Where all targets cool down, the one due first is
    asked. Only a failure that says something about the target counts: not a bad request, a
    refusal or a cancellation.

    Args:
        base: Seconds of the first rest, and how long a probe keeps others away whose attempt has
            no timeout.
        cap: The longest rest in seconds, also where the provider asks for more.

    Raises:
        FallbackConfigError: An argument is not a positive number of seconds.
    """

    shared: SharedCooldown | None = None

    def __init__(self, base: float = 60.0, cap: float = 14400.0) -> None:
        self.base = require_number("base", base, 0.001)
        self.cap = require_number("cap", cap, 0.001)
        self._entries: dict[str, _Entry] = {}
        self._sweep_at = _MANY
        # Reentrant: the garbage collector may end a forgotten stream in the middle of an update.
        self._lock = threading.RLock()

    def __repr__(self) -> str:
        return f"{type(self).__name__}(base={self.base:g}, cap={self.cap:g})"

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.base, self.cap)  # a copy remembers nothing

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
            reports: What was learned.
            offered: The keys of each target, in the order of the chain; perhaps none.
            now: The time on a monotonic scale, in seconds.
            lease: Seconds for which a probe keeps others away; None: as many as ``base``.
        """
        if not self._entries and not reports:
            return _FIRST
        with self._lock:
            for report in reports:
                self._learn(report, now)
            if len(self._entries) > self._sweep_at:
                self._sweep(now)
            return self._choose(offered, now, self.base if lease is None else lease)

    def open_seconds(self, failures: int, stated: float | None) -> float:
        """Tell for how many seconds a target is left alone.

        Args:
            failures: Probes that failed.
            stated: Seconds that the provider asked for, or None.
        """
        seconds = self.base * 2.0 ** min(failures, 60) if stated is None else stated
        return min(seconds, self.cap)

    def _learn(self, report: CooldownReport, now: float) -> None:
        identity, health, seconds, permit = report
        entry = self._entries.get(identity)
        mine = entry is not None and permit is not None and entry.permit == permit
        if health == "down":
            failures = 0 if entry is None else entry.failures + mine
            until = now + self.open_seconds(failures, seconds)
            if entry is None or mine:
                self._entries[identity] = _Entry(until, failures)
            elif seconds is not None:
                # Asked before the rest began: it neither ends nor doubles it.
                self._entries[identity] = entry._replace(until=max(entry.until, until))
        elif entry is not None and mine:
            if health == "up":
                del self._entries[identity]
            else:
                self._entries[identity] = entry._replace(permit=None)

    def _choose(self, offered: Sequence[Keys], now: float, lease: float) -> CooldownChoice:
        passed: list[tuple[int, float]] = []
        for index, keys in enumerate(offered):
            if self._entries.keys().isdisjoint(keys):
                return CooldownChoice(index, None, tuple(passed))
            down, left, is_probed = self._rest(keys, now)
            if not down:
                return CooldownChoice(index, None, tuple(passed))
            if left <= 0 and not is_probed:
                permit = token_hex(8)
                for key, entry in down:
                    self._entries[key] = entry._replace(permit=permit, leased=now + lease)
                return CooldownChoice(index, permit, tuple(passed))
            passed.append((index, left))
        first = min(passed, key=lambda one: one[1], default=(0, 0.0))
        others = tuple(one for one in passed if one != first)
        return CooldownChoice(first[0], None, others, forced=True)

    def _rest(self, keys: Keys, now: float) -> tuple[list[tuple[str, _Entry]], float, bool]:
        """Say what of a target's model, key and host is down, how long, and whether probed."""
        down: list[tuple[str, _Entry]] = []
        left, is_probed = 0.0, False
        for key in keys:
            entry = self._entries.get(key)
            if entry is None:
                continue
            if self._is_forgotten(entry, now):
                del self._entries[key]
                continue
            down.append((key, entry))
            left = max(left, entry.until - now)
            is_probed = is_probed or (entry.permit is not None and entry.leased > now)
        return down, left, is_probed

    def _is_forgotten(self, entry: _Entry, now: float) -> bool:
        """Tell whether nobody came back for a target, and that was long ago."""
        return entry.until + self.cap <= now

    def _sweep(self, now: float) -> None:
        """Drop what nobody comes back for: targets of policies that are made per request."""
        nameless = [identity for identity in self._entries if is_local(identity)]
        if self._sweep_at == _MANY and len(nameless) > _MANY // 2:
            logger.warning(
                "a cooldown remembers %d targets that no other policy can share; make the policy "
                "once, or give its targets provider=, endpoint= and credential=, or identity=",
                len(nameless),
            )
        for identity, entry in list(self._entries.items()):
            is_over = is_local(identity) and entry.until <= now
            if is_over or self._is_forgotten(entry, now):
                del self._entries[identity]
        self._sweep_at = max(_MANY + 1, 2 * len(self._entries))

    # What a subclass that shares its entries with other processes writes and reads them with.

    def _permit(self, identity: str) -> str | None:
        entry = self._entries.get(identity)
        return entry.permit if entry else None

    def _overwrite(
        self, identity: str, until: float, failures: int, permit: str | None, leased: float
    ) -> None:
        self._entries[identity] = _Entry(until, failures, permit, leased)

    def _drop(self, identity: str) -> None:
        self._entries.pop(identity, None)


_FIRST = CooldownChoice()


class RetryBudget:
    """Let a target see only so many repeats: second and later requests of one call to it.

    Over a sliding window they may not exceed ``ratio`` of its first requests (Google's SRE book,
    "Handling Overload": 10 % turns a load of three times the normal into 1.1 times). A switch is
    no repeat and never refused. Shared by whatever policies are given the same object.

    Args:
        ratio: Repeats per first request.
        min_per_second: Repeats that are always allowed, so that a quiet service may repeat too.
        window: Seconds looked back.

    Raises:
        FallbackConfigError: An argument is negative or not a number.
    """

    def __init__(
        self, ratio: float = 0.1, min_per_second: float = 1.0, window: float = 10.0
    ) -> None:
        self.ratio = require_number("ratio", ratio, 0.0, "a number")
        self.min_per_second = require_number("min_per_second", min_per_second, 0.0, "a number")
        self.window = require_number("window", window, 0.001)
        # Per second of the window and per target: first requests, repeats.
        self._seen: dict[int, dict[str, list[int]]] = {}
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return f"RetryBudget(ratio={self.ratio:g}, min_per_second={self.min_per_second:g})"

    def __reduce__(self) -> tuple[Any, ...]:
        return RetryBudget, (self.ratio, self.min_per_second, self.window)

    def first(self, identity: str, now: float) -> None:
        """Count a call's first request to a target.

        Args:
            identity: The target's.
            now: The time on a monotonic scale, in seconds.
        """
        with self._lock:
            self._at(identity, now)[0] += 1

    def repeat(self, identity: str, now: float) -> bool:
        """Tell whether one more repeat is allowed, and count it if so.

        Args:
            identity: The target's.
            now: The time on a monotonic scale, in seconds.
        """
        with self._lock:
            current = self._at(identity, now)
            counts = [second[identity] for second in self._seen.values() if identity in second]
            firsts, repeats = map(sum, zip(*counts, strict=True))
            if repeats + 1 > max(self.ratio * firsts, self.min_per_second * self.window):
                return False
            current[1] += 1
            return True

    def _at(self, identity: str, now: float) -> list[int]:
        second = int(now)
        if second not in self._seen:
            self._seen = {at: kept for at, kept in self._seen.items() if at > now - self.window}
            self._seen[second] = {}
        return self._seen[second].setdefault(identity, [0, 0])
