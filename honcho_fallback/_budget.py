"""A bound on repeats over all calls: an outage must not double the load that caused it."""

from __future__ import annotations

import threading
from typing import Any

from honcho_fallback._checks import require_number


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
            now: The time on a monotonic scale.
        """
        with self._lock:
            self._at(identity, now)[0] += 1

    def repeat(self, identity: str, now: float) -> bool:
        """Tell whether one more repeat is allowed, and count it if so.

        Args:
            identity: The target's.
            now: The time on a monotonic scale.
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
