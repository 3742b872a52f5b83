"""What came of a simulation, in figures."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from html import escape
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from honcho_fallback import CallRecord

_HEADS = ("policy", "calls", "answered", "p50 s", "p95 s", "requests", "wasted", "money", "lost")


@dataclass(frozen=True, slots=True)
class Report:
    """Say how one policy fared in one incident.

    Args:
        name: The policy's.
        calls: Calls made.
        answered: Those that were answered.
        success_rate: Their share; 0 without calls.
        p50: Half of the calls took no longer, in seconds: answered or not, waits included.
        p95: 95 of 100 took no longer.
        requests: Requests that each target saw.
        wasted: Requests that failed, or whose answer came when nobody waited any more.
        money: What all answers cost, or None where no target has a price.
        lost: What answers cost that nobody got, or None.
        records: One for each call, in the order in which they began.
    """

    name: str
    calls: int
    answered: int
    success_rate: float
    p50: float
    p95: float
    requests: Mapping[str, int]
    wasted: int
    money: float | None
    lost: float | None
    records: tuple[CallRecord, ...] = field(repr=False)

    def to_dict(self) -> dict[str, Any]:
        """Return the figures as plain values, without the records."""
        return {one.name: getattr(self, one.name) for one in fields(self) if one.repr}


@dataclass(frozen=True, slots=True)
class Comparison:
    """Hold the reports of several policies in the same incident; ``print`` shows a table.

    Args:
        scenario: The incident's name.
        summary: What happens in it.
        assumptions: What it takes for granted, in sentences.
        reports: One for each policy, in the order given.
    """

    scenario: str
    summary: str
    assumptions: tuple[str, ...]
    reports: tuple[Report, ...]

    def __getitem__(self, name: str) -> Report:
        """Return a policy's report."""
        return {one.name: one for one in self.reports}[name]

    def __str__(self) -> str:
        rows = [_HEADS, *map(_cells, self.reports)]
        if all(one.money is None for one in self.reports):
            rows = [row[:-2] for row in rows]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = [f"{self.scenario}: {self.summary}"]
        for name, *figures in rows:
            lines.append("  ".join([name.ljust(widths[0]), *map(str.rjust, figures, widths[1:])]))
        targets = " + ".join(dict.fromkeys(name for one in self.reports for name in one.requests))
        lines.append(f"requests: {targets}; wasted: failed, or answered too late")
        return "\n".join([*lines, *(f"assumed: {one}" for one in self.assumptions)])

    def _repr_html_(self) -> str:
        return f"<pre>{escape(str(self))}</pre>"

    def to_dict(self) -> dict[str, Any]:
        """Return all figures as plain values, ready for ``json.dumps``."""
        return {
            "scenario": self.scenario,
            "summary": self.summary,
            "assumptions": list(self.assumptions),
            "reports": [one.to_dict() for one in self.reports],
        }


def _cells(one: Report) -> tuple[str, ...]:
    # Never rounded up to a hundred: one lost call in a million is one.
    share = 100.0 if one.success_rate == 1 else min(one.success_rate * 100, 99.99)
    figures = f"{one.calls}", f"{share:.2f}%", f"{one.p50:.2f}", f"{one.p95:.2f}"
    requests = "+".join(map(str, one.requests.values()))
    money = ("-" if amount is None else f"{amount:.2f}" for amount in (one.money, one.lost))
    return one.name, *figures, requests, f"{one.wasted}", *money
