"""The table and the plots of a comparison: the same in a terminal and in a page."""

from __future__ import annotations

from math import log
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from honcho_fallback.testing.simulate._report import Comparison, Report

_HEADS = ("policy", "calls", "answered", "p50 s", "p95 s", "p99 s", "requests", "wasted")
_MONEY = ("money", "lost")


def heads(comparison: Comparison) -> tuple[str, ...]:
    """Name the columns."""
    return _HEADS + (_MONEY if _priced(comparison) else ())


def rows(comparison: Comparison) -> Iterator[tuple[str, ...]]:
    """Yield a row for each policy."""
    for one in comparison.reports:
        money = _amounts(one) if _priced(comparison) else ()
        requests = "+".join(str(one.requests.get(name, 0)) for name in _targets(comparison))
        took = (f"{seconds:.2f}" for seconds in (one.p50, one.p95, one.p99))
        answered = _percent(one.success_rate)
        yield one.name, f"{one.calls}", answered, *took, requests, f"{one.wasted}", *money


def note(comparison: Comparison) -> str:
    """Say what the columns of requests and money hold."""
    told = f"requests: {' + '.join(_targets(comparison))}; wasted: failed, or answered too late"
    money = "; money: of all that was written; lost: of what nobody got"
    return told + (money if _priced(comparison) else "")


class Plot(NamedTuple):
    """Hold a plot over time.

    Args:
        title: What it shows.
        bottom: What the value 0 stands for.
        top: What the value 1 stands for.
        end: Where the last window ends.
        lines: For each policy its name and a value for each window, None where nothing was asked.
    """

    title: str
    bottom: str
    top: str
    end: str
    lines: tuple[tuple[str, Sequence[float | None]], ...]


def plots(comparison: Comparison) -> tuple[Plot, Plot]:
    """Return the share of answered calls, and how long calls took."""
    windows = {one.name: one.windows for one in comparison.reports}
    took = [one.p95 for held in windows.values() for one in held if one.p95]
    least, most = (min(took), max(took)) if took else (1.0, 1.0)
    span = log(most / least) or 1.0
    end = f"{comparison.seconds:g} s"
    answered = ((name, [one.success_rate for one in held]) for name, held in windows.items())
    slow = (
        (
            name,
            [None if one.p95 is None else log(max(one.p95, least) / least) / span for one in held],
        )
        for name, held in windows.items()
    )
    return (
        Plot("answered", "0 %", "100 %", end, tuple(answered)),
        Plot("p95, log scale", f"{least:.1f} s", f"{most:.1f} s", end, tuple(slow)),
    )


def assumptions(comparison: Comparison) -> tuple[str, ...]:
    """Return what the scenario takes for granted, once."""
    return tuple(dict.fromkeys(line for one in comparison.reports for line in one.assumptions))


def _percent(share: float) -> str:
    # Never rounded up to a hundred: one lost call in a million is one.
    return "100%" if share == 1.0 else f"{min(share * 100, 99.99):.2f}%"


def _amounts(one: Report) -> tuple[str, ...]:
    return tuple("-" if sum_ is None else f"{sum_:.2f}" for sum_ in (one.money, one.wasted_money))


def _targets(comparison: Comparison) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for one in comparison.reports for name in one.requests))


def _priced(comparison: Comparison) -> bool:
    return any(one.money is not None for one in comparison.reports)
