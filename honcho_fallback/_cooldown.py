"""Remember across calls who is down: leave a failed target alone, then let one call probe it."""

from __future__ import annotations

import threading
from secrets import token_hex
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, runtime_checkable

from honcho_fallback._checks import require_number

if TYPE_CHECKING:
    from collections.abc import Sequence

    from honcho_fallback._failure import Health


class Report(NamedTuple):
    """Say what a call learned about a target.

    Args:
        identity: The target's.
        health: Whether it is down, up, or nothing was learned.
        seconds: How long the provider asked to be left alone, or None.
        permit: The probe that this call was, or None.
    """

    identity: str
    health: Health
    seconds: float | None = None
    permit: str | None = None


class Choice(NamedTuple):
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
    """Keep what calls learn of targets, and choose by it."""

    @property
    def shared(self) -> SharedState | None:
        """Return what exchanges it with other processes, or None."""

    def exchange(self, reports: Sequence[Report], offered: Sequence[str], now: float, /) -> Choice:
        """Take in what was learned, then choose the first of the offered targets that is free."""
        ...


class SharedState(Protocol):
    """Exchange what a process knows with others; bound in time, and never raises.

    The machine asks for ``pull`` before a call and, where something was learned, ``push`` after.
    """

    def pull(self, identities: Sequence[str], /) -> None:
        """Fetch what others know of some targets."""

    async def apull(self, identities: Sequence[str], /) -> None:
        """Do so without blocking the loop."""

    def push(self) -> None:
        """Tell others what was learned."""

    async def apush(self) -> None:
        """Do so without blocking the loop."""


class Entry(NamedTuple):
    """Hold a target that is down.

    Args:
        until: When it may be probed.
        failures: Probes that failed.
        permit: Of the probe under way, or None.
        leased: Until when that probe keeps the others away.
    """

    until: float
    failures: int = 0
    permit: str | None = None
    leased: float = 0.0


class Cooldown:
    """Keep it in this process; shared by whatever policies are given the same object.

    A target that failed is left alone until the time its provider named, otherwise for ``base``
    seconds, doubled with every probe that fails. Then one call probes it, and the others stay
    where they are until the answer is there. Where all targets cool down, the one due first is
    asked. Only a failure that says something about the target counts: not a bad request, a
    refusal or a cancellation.

    Args:
        base: Seconds of the first rest, and how long a probe keeps others away (Hermes: 60).
        cap: The longest rest in seconds, also where the provider asks for more (Hermes: 4 hours).

    Raises:
        FallbackConfigError: An argument is not a positive number of seconds.
    """

    shared: SharedState | None = None

    def __init__(self, base: float = 60.0, cap: float = 14400.0) -> None:
        self.base = require_number("base", base, 0.001)
        self.cap = require_number("cap", cap, 0.001)
        self._entries: dict[str, Entry] = {}
        # Reentrant: the garbage collector may end a forgotten stream in the middle of an exchange.
        self._lock = threading.RLock()

    def __repr__(self) -> str:
        return f"{type(self).__name__}(base={self.base:g}, cap={self.cap:g})"

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.base, self.cap)  # a copy remembers nothing

    def exchange(self, reports: Sequence[Report], offered: Sequence[str], now: float, /) -> Choice:
        """Take in what was learned, then choose the first of the offered targets that is free.

        Args:
            reports: What was learned.
            offered: Identities, in the order of the chain.
            now: The time on a monotonic scale.
        """
        if not self._entries and not reports:
            return _FIRST
        with self._lock:
            for report in reports:
                self._learn(report, now)
            return self._choose(offered, now)

    def rest(self, failures: int, asked: float | None) -> float:
        """Tell for how many seconds a target is left alone.

        Args:
            failures: Probes that failed.
            asked: What the provider asked for, or None.
        """
        return min(self.base * 2.0 ** min(failures, 60) if asked is None else asked, self.cap)

    def _learn(self, report: Report, now: float) -> None:
        identity, health, seconds, permit = report
        entry = self._entries.get(identity)
        mine = entry is not None and permit is not None and entry.permit == permit
        if health == "down":
            failures = 0 if entry is None else entry.failures + mine
            until = now + self.rest(failures, seconds)
            if entry is None or mine:
                self._entries[identity] = Entry(until, failures)
            elif seconds is not None:
                # Asked before the rest began: it neither ends nor doubles it.
                self._entries[identity] = entry._replace(until=max(entry.until, until))
        elif entry is not None and mine:
            if health == "up":
                del self._entries[identity]
            else:
                self._entries[identity] = entry._replace(permit=None)

    def _choose(self, offered: Sequence[str], now: float) -> Choice:
        passed: list[tuple[int, float]] = []
        for index, identity in enumerate(offered):
            entry = self._entries.get(identity)
            if entry is not None and entry.until + self.cap <= now:
                del self._entries[identity]  # nobody came back for it; that was long ago
                entry = None
            if entry is None:
                return Choice(index, None, tuple(passed))
            if entry.until <= now and (entry.permit is None or entry.leased <= now):
                permit = token_hex(8)
                self._entries[identity] = entry._replace(permit=permit, leased=now + self.base)
                return Choice(index, permit, tuple(passed))
            passed.append((index, max(0.0, entry.until - now)))
        first = min(passed, key=lambda one: one[1], default=(0, 0.0))
        return Choice(first[0], None, tuple(one for one in passed if one != first), forced=True)


_FIRST = Choice()
