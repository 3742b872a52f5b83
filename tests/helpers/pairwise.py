"""Fewer cases than a product has: each pair of values stands in one of them."""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable


def pairwise(rows: Iterable[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Return some of the rows, in which each pair of values is that is in any of them."""
    pairs = {row: {*combinations(enumerate(row), 2)} for row in rows}
    missing = set[Any]().union(*pairs.values())
    kept: list[tuple[Any, ...]] = []
    while missing:
        best = max(pairs, key=lambda row: len(pairs[row] & missing))
        kept.append(best)
        missing -= pairs.pop(best)
    return kept
