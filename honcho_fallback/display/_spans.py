"""Where an attempt lies on its call's time line, as fractions of it."""

from __future__ import annotations

from math import isfinite
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from honcho_fallback import AttemptRecord, CallRecord

_SHORTEST, _LONGEST = 1e-12, 1e15  # seconds; beyond them sums lose their meaning


class Span(NamedTuple):
    """Say where an attempt lies; 0 is the call's start, 1 its end.

    Args:
        attempt: Whose span it is.
        start: Where it starts.
        length: How long it is.
        waited: How long the wait before it is, which ends where it starts.
    """

    attempt: AttemptRecord
    start: float
    length: float
    waited: float


def spans(record: CallRecord) -> tuple[float, list[Span]]:
    """Return the time line's length in seconds, and every attempt's place on it.

    Whatever the figures are, all lies between 0 and 1.
    """
    ends = [_sane(each.started) + _sane(each.seconds) for each in record.attempts]
    whole = max([_sane(record.seconds), *ends])
    scale = 1 / whole if whole > _SHORTEST else 0.0
    found: list[Span] = []
    for each in record.attempts:
        start = min(_sane(each.started) * scale, 1.0)
        length = min(_sane(each.seconds) * scale, 1 - start)
        found.append(Span(each, start, length, min(_sane(each.wait) * scale, start)))
    return whole, found


def _sane(seconds: float) -> float:
    return min(max(seconds, 0.0), _LONGEST) if isfinite(seconds) else 0.0
