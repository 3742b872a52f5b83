"""What came of a simulation, in figures; made from the records of its calls."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from math import ceil
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from honcho_fallback import CallRecord
    from honcho_fallback.testing.simulate._scenario import Scenario
    from honcho_fallback.testing.simulate._world import World

WINDOWS = 60


@dataclass(frozen=True, slots=True)
class Window:
    """Say how the calls fared that began within a stretch of time.

    Args:
        starts: Seconds after the scenario's start.
        calls: How many began.
        success_rate: The share of them that was answered, or None without any.
        p50: Half of them took no longer, in seconds, or None.
        p95: 95 of 100 took no longer.
    """

    starts: float
    calls: int
    success_rate: float | None
    p50: float | None
    p95: float | None


@dataclass(frozen=True, slots=True)
class Report:
    """Say how one policy fared in one incident.

    Args:
        name: The policy's.
        scenario: The incident's.
        seconds: How long calls were begun.
        seed: What it was played with.
        calls: Calls made.
        answered: Those that were answered.
        success_rate: Their share; 0 without calls.
        p50: Half of the calls took no longer, in seconds: answered or not, waits included.
        p95: 95 of 100 took no longer.
        p99: 99 of 100 took no longer.
        requests: Requests that each target saw.
        wasted: Requests that failed, or whose answer came when nobody waited any more.
        money: What all answers cost, or None where no target has a price.
        wasted_money: What answers cost that nobody got, or None.
        windows: The same over time.
        records: One for each call, in the order in which they began.
        assumptions: What the scenario takes for granted.
    """

    name: str
    scenario: str
    seconds: float
    seed: int
    calls: int
    answered: int
    success_rate: float
    p50: float
    p95: float
    p99: float
    requests: Mapping[str, int]
    wasted: int
    money: float | None
    wasted_money: float | None
    windows: tuple[Window, ...] = field(repr=False)
    records: tuple[CallRecord, ...] = field(repr=False)
    assumptions: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return the figures as plain values, ready for ``json.dumps``; the records left out."""
        told = {name: getattr(self, name) for name in self.__slots__ if name not in _NOT_PLAIN}
        told["requests"] = dict(self.requests)
        told["windows"] = [asdict(window) for window in self.windows]
        told["assumptions"] = list(self.assumptions)
        return told

    def _alone(self) -> Comparison:
        return Comparison(self.scenario, "", self.seconds, (self,))

    def __rich__(self) -> Any:
        return _view(self._alone())

    def _repr_html_(self) -> str:
        return _fragment(self._alone())


_NOT_PLAIN = frozenset({"records", "requests", "windows", "assumptions"})


@dataclass(frozen=True, slots=True)
class Comparison:
    """Hold the reports of several policies in the same incident.

    Args:
        scenario: The incident's name.
        summary: What happens in it.
        seconds: How long calls are begun.
        reports: One for each policy, in the order given.
    """

    scenario: str
    summary: str
    seconds: float
    reports: tuple[Report, ...]

    def __getitem__(self, name: str) -> Report:
        """Return a policy's report."""
        for report in self.reports:
            if report.name == name:
                return report
        raise KeyError(name)

    def to_dict(self) -> dict[str, Any]:
        """Return all figures as plain values, ready for ``json.dumps``."""
        return {
            "scenario": self.scenario,
            "summary": self.summary,
            "seconds": self.seconds,
            "reports": [report.to_dict() for report in self.reports],
        }

    def __rich__(self) -> Any:
        return _view(self)

    def _repr_html_(self) -> str:
        return _fragment(self)


def _view(comparison: Comparison) -> Any:
    from honcho_fallback.testing.simulate._text import View  # noqa: PLC0415 # needs rich

    return View(comparison)


def _fragment(comparison: Comparison) -> str:
    from honcho_fallback.testing.simulate._html import fragment  # noqa: PLC0415 # on demand

    return fragment(comparison)


def report(name: str, world: World, seed: int, records: Sequence[CallRecord]) -> Report:
    """Count."""
    scenario, meters = world.scenario, world.meters
    took = sorted(record.seconds for record in records)
    answered = sum(record.outcome == "success" for record in records)
    priced = any(target.price is not None for target in scenario.targets)
    return Report(
        name=name,
        scenario=scenario.name,
        seconds=scenario.seconds,
        seed=seed,
        calls=len(records),
        answered=answered,
        success_rate=answered / len(records) if records else 0.0,
        p50=percentile(took, 0.50),
        p95=percentile(took, 0.95),
        p99=percentile(took, 0.99),
        requests=MappingProxyType({name: meter.requests for name, meter in meters.items()}),
        wasted=sum(meter.wasted for meter in meters.values()),
        money=sum(meter.money for meter in meters.values()) if priced else None,
        wasted_money=sum(meter.wasted_money for meter in meters.values()) if priced else None,
        windows=_windows(scenario, records),
        records=tuple(records),
        assumptions=scenario.assumptions,
    )


def percentile(ordered: Sequence[float], share: float) -> float:
    """Return the nearest-rank percentile, 0 of nothing."""
    return ordered[max(0, ceil(share * len(ordered)) - 1)] if ordered else 0.0


def _windows(scenario: Scenario, records: Sequence[CallRecord]) -> tuple[Window, ...]:
    width = scenario.seconds / WINDOWS
    held: list[list[CallRecord]] = [[] for _ in range(WINDOWS)]
    for record in records:
        number = int((record.started_at - scenario.started_at) / width)
        # The iterations of a late turn begin after the last turn did.
        held[min(number, WINDOWS - 1)].append(record)
    return tuple(_window(number * width, calls) for number, calls in enumerate(held))


def _window(starts: float, records: Sequence[CallRecord]) -> Window:
    if not records:
        return Window(starts, 0, None, None, None)
    took = sorted(record.seconds for record in records)
    answered = sum(record.outcome == "success" for record in records)
    return Window(
        starts,
        len(records),
        answered / len(records),
        percentile(took, 0.50),
        percentile(took, 0.95),
    )
