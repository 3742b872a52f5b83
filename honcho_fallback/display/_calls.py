"""Several calls as one thing to look at, and what they come to."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from honcho_fallback.display._shown import Shown

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from honcho_fallback import CallRecord


@dataclass(frozen=True, slots=True)
class Summary(Shown):
    """Say what a number of calls came to.

    Args:
        calls: How many.
        requests: Attempts, all together.
        switches: How often the next target was asked.
        answered_by: How many calls each target answered, the busiest first.
        outcomes: How many calls ended in which way, the commonest first.
    """

    calls: int
    requests: int
    switches: int
    answered_by: Mapping[str, int]
    outcomes: Mapping[str, int]

    @classmethod
    def of(cls, records: Iterable[CallRecord]) -> Summary:
        """Count; every record is looked at once and let go.

        Args:
            records: The calls.
        """
        calls = requests = switches = 0
        answered_by, outcomes = Counter[str](), Counter[str]()
        for record in records:
            calls += 1
            requests += len(record.attempts)
            places = (attempt.position for attempt in record.attempts)
            switches += sum(one != other for one, other in pairwise(places))
            outcomes[record.outcome] += 1
            if record.answered_by is not None:
                answered_by[record.answered_by] += 1
        ordered = (dict(counted.most_common()) for counted in (answered_by, outcomes))
        return cls(calls, requests, switches, *ordered)


class Calls(Shown):
    """Draw the attempts of several calls, each call to its own scale.

    Args:
        records: The calls, in the order in which they are drawn.
    """

    __slots__ = ("records",)

    def __init__(self, records: Iterable[CallRecord]) -> None:
        self.records = tuple(records)

    def __repr__(self) -> str:
        return f"<Calls: {len(self.records)}>"

    @property
    def summary(self) -> Summary:
        """Say what they came to."""
        return Summary.of(self.records)
