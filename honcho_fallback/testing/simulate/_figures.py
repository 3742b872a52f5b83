"""The table of a comparison, as text: the same in a terminal and in a page."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from honcho_fallback.testing.simulate._report import Comparison, Report

_HEADS = ("policy", "calls", "answered", "p50 s", "p95 s", "p99 s")
_MONEY = ("money", "of it wasted")


def heads(comparison: Comparison) -> tuple[str, ...]:
    """Name the columns.

    Args:
        comparison: What is shown.
    """
    targets = tuple(f"to {name.rpartition('/')[2]}" for name in _targets(comparison))
    return (*_HEADS, *targets, "wasted", *(_MONEY if _priced(comparison) else ()))


def rows(comparison: Comparison) -> Iterator[tuple[str, ...]]:
    """Yield a row for each policy.

    Args:
        comparison: What is shown.
    """
    for one in comparison.reports:
        money = _amounts(one) if _priced(comparison) else ()
        requests = (f"{one.requests.get(name, 0)}" for name in _targets(comparison))
        took = (f"{seconds:.2f}" for seconds in (one.p50, one.p95, one.p99))
        answered = _percent(one.success_rate)
        yield one.name, f"{one.calls}", answered, *took, *requests, f"{one.wasted}", *money


def _percent(share: float) -> str:
    # Never rounded up to a hundred: one lost call in a million is one.
    return "100 %" if share == 1.0 else f"{min(share * 100, 99.99):.2f} %"


def _amounts(one: Report) -> tuple[str, ...]:
    return tuple("-" if sum_ is None else f"{sum_:.2f}" for sum_ in (one.money, one.wasted_money))


def _targets(comparison: Comparison) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for one in comparison.reports for name in one.requests))


def _priced(comparison: Comparison) -> bool:
    return any(one.money is not None for one in comparison.reports)
