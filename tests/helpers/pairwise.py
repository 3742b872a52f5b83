"""Fewer cases than a product has: each value, or each pair of values, stands in one of them."""

from __future__ import annotations

from itertools import combinations, product
from typing import TYPE_CHECKING, Any

import pytest

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


def in_turn(**dimensions: Iterable[Any]) -> pytest.MarkDecorator:
    """Return a mark for as many cases as it takes for each value to stand in one of them."""
    values = [[*dimension] for dimension in dimensions.values()]
    length = max(map(len, values))
    rows = [tuple(one[number % len(one)] for one in values) for number in range(length)]
    return pytest.mark.parametrize(tuple(dimensions), rows)


def in_pairs(**dimensions: Iterable[Any]) -> pytest.MarkDecorator:
    """Return a mark for as many cases as it takes for each pair of values to stand in one."""
    return pytest.mark.parametrize(tuple(dimensions), pairwise(product(*dimensions.values())))
