"""Something healthy that fails on schedule: when, and what goes wrong then."""

from __future__ import annotations

from threading import Lock
from typing import TYPE_CHECKING, Generic, NamedTuple, Self, TypeVar, Unpack

from honcho_fallback import FallbackConfigError
from honcho_fallback.testing._wire import Fault, FaultOptions

if TYPE_CHECKING:
    from collections.abc import Callable

    from honcho_fallback.testing._clock import Clock

SubjectT = TypeVar("SubjectT")


class _Rule(NamedTuple):
    applies: Callable[[int], bool]
    fault: Fault


class Failing(Generic[SubjectT]):
    """Schedule the faults of a chat model, a client or a deployment; made by ``fault(...)``.

    Requests are numbered from 1; of several rules that apply the first counts. A request
    to which no rule applies goes out as usual.

    Args:
        clock: What ``for_seconds`` reads.
        streams: Whether streams can be broken off.

    Attributes:
        subject: What to use in the test: a copy that fails, or the Router itself.
        requests: How many requests came, those that failed included.
        failed: How many of them failed.
    """

    subject: SubjectT

    def __init__(self, clock: Clock, *, streams: bool) -> None:
        self._clock = clock
        self._streams = streams
        self._rules: list[_Rule] = []
        self._lock = Lock()
        self.requests = self.failed = 0

    def __repr__(self) -> str:
        return f"<Failing: {self.failed} of {self.requests} requests failed>"

    def on(self, *numbers: int, **what: Unpack[FaultOptions]) -> Self:
        """Fail certain requests.

        Args:
            *numbers: Which, from 1.
            **what: What goes wrong: see FaultOptions.

        Raises:
            FallbackConfigError: No number, one below 1, or an option out of range.
        """
        if not numbers or min(numbers) < 1:
            raise FallbackConfigError.about("numbers", f"got {numbers}", "count requests from 1")
        return self._add(lambda number: number in numbers, what)

    def every(self, nth: int, **what: Unpack[FaultOptions]) -> Self:
        """Fail every so many-th request.

        Args:
            nth: 1 for all, 3 for the third, the sixth and so on.
            **what: What goes wrong: see FaultOptions.

        Raises:
            FallbackConfigError: The number is below 1, or an option out of range.
        """
        if nth < 1:
            raise FallbackConfigError.about("nth", f"got {nth}", "pass 1 or more")
        return self._add(lambda number: number % nth == 0, what)

    def for_seconds(self, seconds: float, **what: Unpack[FaultOptions]) -> Self:
        """Fail every request from now on, until the clock has moved so far.

        Args:
            seconds: How far, on ``fallback_clock``.
            **what: What goes wrong: see FaultOptions.

        Raises:
            FallbackConfigError: An option is out of range.
        """
        until = self._clock() + seconds
        return self._add(lambda _: self._clock() < until, what)

    def next(self) -> Fault | None:
        """Count a request, and tell what goes wrong with it."""
        with self._lock:
            self.requests += 1
            for rule in self._rules:
                if rule.applies(self.requests):
                    self.failed += 1
                    return rule.fault
        return None

    def _add(self, applies: Callable[[int], bool], what: FaultOptions) -> Self:
        fault = Fault.of(what)
        if fault.after_chunks and not self._streams:
            raise FallbackConfigError.about(
                "after_chunks", "this is no chat model", "leave it out, or fail a chat model"
            )
        self._rules.append(_Rule(applies, fault))
        return self
