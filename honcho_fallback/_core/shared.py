"""What calls share, under a lock: who is down (a circuit breaker), and how much is repeated.

A fork copies the memory and the calling thread alone. A lock that another thread had at that
moment (gunicorn with preload, Celery, a pool of processes) is never released in the child, so
each child makes its own.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Collection, Mapping
from secrets import token_hex
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, runtime_checkable
from weakref import WeakMethod

from honcho_fallback._core.target import is_local
from honcho_fallback._values.errors import FallbackConfigError, require_number, shown
from honcho_fallback._values.failure import FailureKind

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from honcho_fallback._values.failure import Health


class CooldownReport(NamedTuple):
    """Say what a call learned about a target, or about whoever shares its key or its host.

    Args:
        identity: The target's, or what names its key or host: one of a target's keys.
        health: Whether it is down, up, or nothing was learned.
        seconds: How long the provider asked to be left alone, or None.
        permit: Of the call that asked a target in or after its rest, or None.
        kind: What went wrong, where something did.
        lasting: Whether that does not pass by itself: an empty quota, a dead key.
    """

    identity: str
    health: Health
    seconds: float | None = None
    permit: str | None = None
    kind: FailureKind | None = None
    lasting: bool = False


class CooldownChoice(NamedTuple):
    """Say which of some targets to ask.

    Args:
        place: Its place among those that were offered.
        permit: Given where the call probes it, or asks it in its rest; it comes back with the
            reports of that attempt.
        passed: Who was passed over: the place and the seconds left, 0 where another call probes.
        forced: Whether all of them rest and this one is due first.
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

        A target is free if nothing that its keys name is down. Where none is, the one due first
        is chosen: a memory orders, it never forbids.

        Args:
            reports: What was learned.
            offered: The keys of each target, the best first; perhaps none.
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


# What renews the locks of objects, by its id, as long as they live.
_RENEWALS: dict[int, WeakMethod[Any]] = {}


def renew_after_fork(renew: Callable[[], None]) -> None:
    """Let an object make its locks anew, now and in every child that is forked while it lives.

    Args:
        renew: Its method that sets them, and drops what belongs to calls of the parent.
    """
    renew()
    reference = WeakMethod(renew, lambda one: _RENEWALS.pop(id(one), None))
    _RENEWALS[id(reference)] = reference


def _renew_all() -> None:
    for reference in list(_RENEWALS.values()):
        renew = reference()
        if renew is not None:
            renew()


if hasattr(os, "register_at_fork"):  # Windows forks nothing
    os.register_at_fork(after_in_child=_renew_all)


class _Entry(NamedTuple):
    """A target that is down: the breaker is open until ``until``, then half-open."""

    until: float
    failures: int = 0  # probes that failed
    permit: str | None = None  # of the probe under way
    leased: float = 0.0  # until when that probe keeps the others away


class Cooldown:
    """Be a circuit breaker for each target, shared by the policies that are given this object.

    One blip is no outage: a target rests after ``after`` failures in a row that may pass, for
    ``base`` seconds, doubled with every probe that fails. Then one call probes it, and the others
    stay where they are until the answer is there. What its provider stated, an empty quota and a
    dead key make it rest at once. Where all targets rest they are asked all the same, those that
    are due first before the others; an answer ends a rest. Only a failure that says something
    about the target counts: not a bad request, a refusal or a cancellation.

    Args:
        after: Failures in a row, counted in this process, after which a rest begins: a number for
            all kinds but a timeout, which costs its caller so much that one is enough; or a number
            per kind, such as ``{"rate_limit": 5, "timeout": 2}``, and 3 for kinds not named.
        base: Seconds of the first rest, and how long a probe keeps others away whose attempt has
            no timeout.
        cap: The longest rest in seconds.
        stated_cap: The longest rest in seconds where the provider stated one, the quota is empty
            or the key dead.

    Raises:
        FallbackConfigError: An argument is no positive number, or names no kind of failure.
    """

    shared: SharedCooldown | None = None

    def __init__(
        self,
        after: int | Mapping[FailureKind, int] | Mapping[str, int] = 3,
        base: float = 2.0,
        cap: float = 300.0,
        stated_cap: float = 14400.0,
    ) -> None:
        self.after, self._after = after, _failures_by_kind(after)
        self.base = require_number("base", base, 0.001)
        self.cap = require_number("cap", cap, 0.001)
        self.stated_cap = require_number("stated_cap", stated_cap, 0.001)
        self._entries: dict[str, _Entry] = {}
        self._in_a_row: dict[str, int] = {}  # failures of targets that do not rest yet
        self._sweep_at = _MANY
        renew_after_fork(self._renew)

    def _renew(self) -> None:
        # Reentrant: the garbage collector may end a forgotten stream in the middle of an update.
        self._lock = threading.RLock()
        # The probes under way are the parent's: their answers never come here.
        self._entries = {key: one._replace(permit=None) for key, one in self._entries.items()}

    def __repr__(self) -> str:
        limits = f"base={self.base:g}, cap={self.cap:g}, stated_cap={self.stated_cap:g}"
        return f"{type(self).__name__}(after={self.after!r}, {limits})"

    def __reduce__(self) -> tuple[Any, ...]:
        # A copy remembers nothing.
        return type(self), (self.after, self.base, self.cap, self.stated_cap)

    def update_and_select(
        self,
        reports: Sequence[CooldownReport],
        offered: Sequence[Keys],
        now: float,
        lease: float | None = None,
        /,
    ) -> CooldownChoice:
        """Do as CooldownStore says; without a ``lease`` a probe keeps others away for ``base``."""
        if not (self._entries or self._in_a_row) and all(one.health != "down" for one in reports):
            return _FIRST
        with self._lock:
            for report in reports:
                self._learn(report, now)
            if len(self._entries) + len(self._in_a_row) > self._sweep_at:
                self._sweep(now)
            return self._choose(offered, now, self.base if lease is None else lease)

    def _learn(self, report: CooldownReport, now: float) -> bool:
        """Take in a report; tell whether a rest began, ended or changed by it."""
        identity, health, stated, permit, *_ = report
        entry = self._entries.get(identity)
        if health == "down" and entry is None:
            if not self._begins_rest(report):
                return False
            self._entries[identity] = _Entry(now + self._rest_seconds(0, report))
        elif health == "down" and entry is not None:
            if permit is None and stated is None:
                return False  # asked before the rest began: it neither ends nor doubles it
            failures = entry.failures + (permit is not None and permit == entry.permit)
            until = now + self._rest_seconds(failures, report)
            if failures > entry.failures:
                self._entries[identity] = _Entry(until, failures)
            else:
                self._entries[identity] = entry._replace(until=max(entry.until, until))
        elif health == "up":
            self._in_a_row.pop(identity, None)
            # Without a permit it was asked before the rest began, when it still answered.
            if entry is None or permit is None:
                return False
            del self._entries[identity]
        else:
            if entry is None or permit is None or entry.permit != permit:
                return False
            self._entries[identity] = entry._replace(permit=None)
        return True

    def _begins_rest(self, report: CooldownReport) -> bool:
        identity, _, stated, _, kind, lasting = report
        failures = self._in_a_row.get(identity, 0) + 1
        # What a store's own user reports without a kind counts as most kinds do.
        enough = self._after[FailureKind.SERVER_ERROR if kind is None else kind]
        if stated is None and not lasting and failures < enough:
            self._in_a_row[identity] = failures
            return False
        self._in_a_row.pop(identity, None)
        return True

    def _rest_seconds(self, failures: int, report: CooldownReport) -> float:
        if report.seconds is not None:
            return min(report.seconds, self.stated_cap)
        seconds = self.base * 2.0 ** min(failures, 60)
        return min(seconds, self.stated_cap if report.lasting else self.cap)

    def _choose(self, offered: Sequence[Keys], now: float, lease: float) -> CooldownChoice:
        passed: list[tuple[int, float]] = []
        for index, keys in enumerate(offered):
            down = self._resting(keys, now)
            if not down:
                return CooldownChoice(index, None, tuple(passed))
            left = max(0.0, *(one.until - now for one in down.values()))
            is_probed = any(one.permit is not None and one.leased > now for one in down.values())
            if left <= 0 and not is_probed:
                permit = token_hex(8)
                for key, entry in down.items():
                    self._entries[key] = entry._replace(permit=permit, leased=now + lease)
                return CooldownChoice(index, permit, tuple(passed))
            passed.append((index, left))
        if not passed:
            return _FIRST
        # The permit is nobody's lease: the others need not wait for this attempt. Its failure
        # begins the rest anew, which puts the target behind those that failed longer ago.
        first = min(passed, key=lambda one: one[1])
        others = tuple(one for one in passed if one != first)
        return CooldownChoice(first[0], token_hex(8), others, forced=True)

    def _resting(self, keys: Keys, now: float) -> dict[str, _Entry]:
        """Return what of a target's model, key and host is down; what is forgotten is up."""
        down = {key: self._entries[key] for key in keys if key in self._entries}
        for key, entry in [*down.items()]:
            if self._is_forgotten(entry, now):
                del self._entries[key], down[key]
        return down

    def _is_forgotten(self, entry: _Entry, now: float) -> bool:
        """Tell whether nobody came back for a target, and that was long ago."""
        return entry.until + max(self.cap, self.stated_cap) <= now

    def _sweep(self, now: float) -> None:
        """Drop what nobody comes back for: targets of policies that are made per request."""
        nameless = [one for one in (*self._entries, *self._in_a_row) if is_local(one)]
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
        self._in_a_row = {one: n for one, n in self._in_a_row.items() if not is_local(one)}
        self._sweep_at = max(_MANY + 1, 2 * (len(self._entries) + len(self._in_a_row)))

    # What a subclass that shares its entries with other processes reads and writes them with.

    def _permit(self, identity: str) -> str | None:
        entry = self._entries.get(identity)
        return entry.permit if entry else None

    def _rest_until(
        self, identity: str, until: float, failures: int, permit: str | None, leased: float
    ) -> None:
        self._entries[identity] = _Entry(until, failures, permit, leased)


_FIRST = CooldownChoice()


def _failures_by_kind(after: Any) -> Mapping[FailureKind, int]:
    usual, by_kind = after, dict[Any, Any]()
    if isinstance(usual, Mapping):
        usual, by_kind = 3, {**after}
    counts: dict[Any, Any] = dict.fromkeys(FailureKind, usual) | {FailureKind.TIMEOUT: 1} | by_kind
    if {*counts} == {*FailureKind} and all(type(n) is int and n >= 1 for n in counts.values()):
        return counts
    fix = "pass a whole number, 1 or more, or one per kind, such as {'timeout': 2}"
    raise FallbackConfigError.about("after", f"got {shown(after)}", fix)


class _Warm(NamedTuple):
    """Where a session was answered last, until when that cache is warm, and if it has any."""

    position: int
    until: float
    is_cached: bool


class Sessions:
    """Remember, in this process, with whom conversations are whose prompt cache is warm.

    A provider keeps the beginning of a prompt for minutes and reads it again at a fraction of the
    price; whoever is new to a conversation reads all of it. So a conversation that has switched
    stays with who answered while that cache is warm. It goes back to the primary when it is cold,
    or where usage says that nothing was cached: then a return costs nothing.

    Args:
        ttl: Seconds that a cache is warm after it was used; providers keep it for five minutes.
        most: How many sessions are remembered; the one that was quiet longest is forgotten first.

    Raises:
        FallbackConfigError: An argument is no positive number.
    """

    def __init__(self, ttl: float = 300.0, most: float = 10_000) -> None:
        self.ttl = require_number("ttl", ttl, 0.001)
        self.most = require_number("most", most, 1)
        self._warm: dict[object, _Warm] = {}
        renew_after_fork(self._renew)

    def _renew(self) -> None:
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return f"Sessions(ttl={self.ttl:g}, most={self.most:g})"

    def __reduce__(self) -> tuple[Any, ...]:
        return Sessions, (self.ttl, self.most)

    def position(self, key: object, now: float) -> int:
        """Return where the next turn of a session begins; the key names its chain, too."""
        warm = self._warm.get(key)
        return warm.position if warm and warm.is_cached and now < warm.until else 0

    def answered(
        self, key: object, position: int, now: float, usage: Mapping[str, Any] | None
    ) -> None:
        """Note where a call was answered; where usage says nothing of a cache, there is one."""
        read, written = ((usage or {}).get(f"cache_{what}_tokens") for what in ("read", "write"))
        with self._lock:
            before = self._warm.pop(key, None)
            if position == 0:
                return
            # The first answer of a target can have read nothing.
            is_first = before is None or before.position != position
            is_cached = is_first or read is None or read > 0 or bool(written)
            self._warm[key] = _Warm(position, now + self.ttl, is_cached)
            if len(self._warm) > self.most:
                del self._warm[next(iter(self._warm))]


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
        renew_after_fork(self._renew)

    def _renew(self) -> None:
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return f"RetryBudget(ratio={self.ratio:g}, min_per_second={self.min_per_second:g})"

    def __reduce__(self) -> tuple[Any, ...]:
        return RetryBudget, (self.ratio, self.min_per_second, self.window)

    def first(self, identity: str, now: float) -> None:
        """Count a call's first request to a target; the time is in seconds, on any scale."""
        with self._lock:
            self._at(identity, now)[0] += 1

    def repeat(self, identity: str, now: float) -> bool:
        """Tell whether a target may be asked again, and count it; the time is as for ``first``."""
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
