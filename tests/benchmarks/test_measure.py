"""The statistics, with scripted clocks: nothing here takes or needs time."""

from __future__ import annotations

from itertools import count
from math import inf
from typing import TYPE_CHECKING

import pytest

from benchmarks.measure import (
    NO_DIFFERENCE,
    Figure,
    Interval,
    Plan,
    added_ratio,
    measure,
    ratio,
    series,
)

if TYPE_CHECKING:
    from collections.abc import Callable


def scripted(*values: float) -> Callable[[], float]:
    """Return what gives one value after another."""
    return iter(values).__next__


@pytest.mark.parametrize(
    ("rounds", "low", "high"),
    # Tables of the sign test: the ranks of the median's 95 % interval, counted from 1.
    [(6, 1, 6), (9, 2, 8), (15, 4, 12), (30, 10, 21)],
)
def test_an_interval_is_that_of_the_order_statistics(rounds: int, low: int, high: int) -> None:
    """The ranks are those of the published tables; fewer than six values have no interval."""
    interval = Interval.of([float(value) for value in range(rounds, 0, -1)])
    assert (interval.median, interval.low, interval.high) == ((rounds + 1) / 2, low, high)
    with pytest.raises(ValueError, match="5 values have no interval; pass 6 or more"):
        Interval.of([1.0] * 5)


def test_what_is_told_is_what_the_whole_interval_shows() -> None:
    """A ratio around 1 and an amount around 0 are no difference; a limit within is undecided."""
    assert Interval(1.0, 0.8, 1.2, 15).as_ratio() == NO_DIFFERENCE
    assert Interval(1.2, 1.1, 1.3, 15).as_ratio() == "1.20 (1.10 to 1.30)"
    assert Interval(1.0, -1, 3, 15).as_difference() == NO_DIFFERENCE
    assert Interval(2.0, 1, 3, 15).as_difference() == "2.00 (1.00 to 3.00)"
    verdicts = [Interval(2, 1, 3, 15).verdict(most) for most in (3, 2.9, 0.9)]
    assert verdicts == ["kept", "undecided", "**missed**"]


def test_a_peer_that_adds_nothing_proves_nothing() -> None:
    """No round is left out, and the figure is marked wide."""
    rounds = [added_ratio(1.1, peer, 1.0) for peer in (0.9, 1.0, 1.0, 1.2, 1.3, 0.8)]
    interval = Interval.of(rounds)
    assert interval.high == interval.width == inf
    assert interval.as_ratio() == NO_DIFFERENCE


def test_every_round_asks_everybody_and_every_other_one_in_reverse_order() -> None:
    """Nobody always comes first, and what is compared lies beside each other."""
    order: list[str] = []

    def job(name: str) -> Callable[[], None]:
        return lambda: order.append(name)

    series({name: job(name) for name in "abc"}, rounds=4)
    assert "".join(order) == "abccbaabccba"


def test_a_ratio_is_taken_within_a_round() -> None:
    """A machine that slows down all the time does not change the ratio of two jobs."""
    drift = [2.0**turn for turn in range(6)]
    jobs = {"subject": scripted(*drift), "peer": scripted(*(4 * value for value in drift))}
    figures = {"ratio": Figure(("subject", "peer"), ratio), "alone": Figure(("peer",), float)}
    intervals = measure(jobs, figures, Plan(6, series=1))
    assert intervals["ratio"] == Interval(0.25, 0.25, 0.25, 6)
    assert (intervals["alone"].low, intervals["alone"].high) == (4.0, 128.0)


def test_what_stays_too_wide_is_said_to_be() -> None:
    """The repeats have an end, after which the figure stands with a mark."""
    values = (float(value % 2) + 1 for value in count())
    intervals = measure({"job": values.__next__}, {"it": Figure(("job",), float)}, Plan(6, 2))
    assert intervals["it"] == Interval(1.5, 1.0, 2.0, 12, series=2, is_wide=True)
    assert str(intervals["it"]) == "1.50 (1.00 to 2.00, wide)"
