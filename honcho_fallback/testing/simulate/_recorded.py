"""A phase that does what a target did on record."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from functools import cached_property
from typing import TYPE_CHECKING, Literal, NamedTuple

from honcho_fallback import FailureKind
from honcho_fallback.testing.simulate._exchange import Reply
from honcho_fallback.testing.simulate._failures import again, dropped
from honcho_fallback.testing.simulate._latency import Moment, Part

if TYPE_CHECKING:
    from honcho_fallback.testing.simulate._phases import Request

Taken = Counter[float]

_FOR_EVER = 7200.0  # as Linux: tcp_keepalive_time


def moment(at: float) -> float:
    """Return a time in whole microseconds, so that sums of the same seconds are the same."""
    return round(at, 6)


class Observation(NamedTuple):
    """Say what became of one request on record.

    Args:
        at: When it was made, in seconds of the scenario.
        seconds: How long it took.
        kind: What went wrong, or None for an answer.
        status: HTTP status, or None.
        code: The provider's code, or None.
        retry_after: Seconds it asked to be left alone, or None.
        first: Seconds until a stream's first content, or None.
        connected: Whether a connection was made.
    """

    at: float
    seconds: float
    kind: FailureKind | None = None
    status: int | None = None
    code: str | None = None
    retry_after: float | None = None
    first: float | None = None
    connected: bool = True


class Recorded(Part):
    """Do what was done nearest in time on record.

    Args:
        starts: Seconds after the scenario's start; it lasts until the next phase.
        seen: The observations, in order of time.
    """

    kind: Literal["recorded"] = "recorded"
    starts: Moment = 0.0
    seen: tuple[Observation, ...]

    @cached_property
    def _times(self) -> list[float]:
        return [one.at for one in self.seen]

    def reply(self, request: Request) -> Reply:
        """Repeat what was seen nearest to the request's moment."""
        one = self._nearest(moment(request.at), request.taken)
        first = one.first if request.stream else None
        if one.kind is None:
            return Reply(one.seconds, None, first)
        if one.kind is FailureKind.TIMEOUT and one.status is None:
            # The caller hung up, so what would have come is not known.
            quiet = max(one.seconds, _FOR_EVER)
            return Reply(quiet, dropped(), first, first is not None, one.connected)
        return Reply(one.seconds, again(one.kind, one.status, one.code, one.retry_after), first)

    def _nearest(self, at: float, taken: Taken) -> Observation:
        times = self._times
        after = bisect_left(times, at)
        if after == len(times) or (after and at - times[after - 1] <= times[after] - at):
            after -= 1
        nearest = times[after]
        # Requests of the same moment take turns, so that a burst is repeated as it was.
        first, last = bisect_left(times, nearest), bisect_right(times, nearest)
        number = first + taken[nearest] % (last - first)
        taken[nearest] += 1
        return self.seen[number]
