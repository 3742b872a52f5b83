"""The statistics, with scripted clocks: nothing here takes or needs time."""

from __future__ import annotations

import asyncio
import random
from itertools import count
from math import inf
from typing import TYPE_CHECKING

import pytest

from benchmarks.measure import (
    NO_DIFFERENCE,
    Figure,
    Interval,
    Job,
    Plan,
    added_ratio,
    measure,
    number,
    ratio,
    series,
)
from benchmarks.overhead import BARE, _figures

if TYPE_CHECKING:
    from collections.abc import Callable


def scripted(*values: float) -> Callable[[], float]:
    """Return what gives one value after another."""
    return iter(values).__next__


@pytest.mark.parametrize(
    ("rounds", "low", "high"),
    # Tables of the sign test: the ranks of the median's 95 % interval, counted from 1.
    [(6, 1, 6), (8, 1, 8), (9, 2, 8), (10, 2, 9), (15, 4, 12), (20, 6, 15), (30, 10, 21)],
)
def test_an_interval_is_that_of_the_order_statistics(rounds: int, low: int, high: int) -> None:
    """The ranks are those of the published tables, whatever order the values come in."""
    values = [float(value) for value in range(1, rounds + 1)]
    random.Random(7).shuffle(values)  # noqa: S311 # no secrets
    interval = Interval.of(values)
    assert (interval.median, interval.low, interval.high) == ((rounds + 1) / 2, low, high)
    assert interval.rounds == rounds


def test_an_interval_holds_the_median_as_often_as_it_says() -> None:
    """Of 2,000 samples of a skewed distribution at least 95 in 100, and not all."""
    draw = random.Random(7)  # noqa: S311 # no secrets
    hits = 0
    for _ in range(2000):
        interval = Interval.of([draw.expovariate(1) for _ in range(15)])
        hits += interval.low <= 0.6931 <= interval.high
    assert 0.95 <= hits / 2000 < 0.99


def test_too_few_values_have_no_interval() -> None:
    """Five values could hold the median in 94 of 100 cases only: that is an error."""
    with pytest.raises(ValueError, match="5 values have no interval; pass 6 or more"):
        Interval.of([1.0] * 5)


@pytest.mark.parametrize(
    ("low", "high", "text"),
    [
        (0.8, 1.2, NO_DIFFERENCE),
        (1.0, 1.4, NO_DIFFERENCE),
        (0.6, 1.0, NO_DIFFERENCE),
        (0.2, 0.4, "0.300 (0.200 to 0.400)"),
        (1.1, 1.3, "1.20 (1.10 to 1.30)"),
    ],
)
def test_a_difference_is_told_only_where_the_interval_shows_it(
    low: float, high: float, text: str
) -> None:
    """A ratio whose interval contains 1, its ends included, is no difference."""
    assert Interval((low + high) / 2, low, high, 15).as_ratio() == text


@pytest.mark.parametrize(
    ("low", "high", "text"),
    [(-1, 3, NO_DIFFERENCE), (0, 2, NO_DIFFERENCE), (1, 3, "2.00 (1.00 to 3.00)")],
)
def test_an_amount_is_told_only_where_the_interval_shows_it(
    low: float, high: float, text: str
) -> None:
    """What a layer adds is nothing that was measured while its interval contains 0."""
    assert Interval((low + high) / 2, low, high, 15).as_difference() == text


@pytest.mark.parametrize(("most", "text"), [(3, "kept"), (2.9, "undecided"), (0.9, "**missed**")])
def test_a_limit_within_an_interval_is_undecided(most: float, text: str) -> None:
    """Kept and missed are said of a whole interval."""
    assert Interval(2, 1, 3, 15).verdict(most) == text


@pytest.mark.parametrize(
    ("subject", "peer", "expected"),
    [(1, 4, 0.25), (-1, 4, -0.25), (1, 0, inf), (1, -1, inf), (-1, -2, 1), (inf, inf, 1)],
)
def test_a_ratio_stays_in_order_where_a_peer_spends_nothing(
    subject: float, peer: float, expected: float
) -> None:
    """No round is left out, and none divides by nothing."""
    assert ratio(subject, peer) == expected


def test_a_ratio_with_an_interval_without_end_is_no_difference() -> None:
    """A peer that adds nothing in most rounds proves nothing, and the figure is marked wide."""
    rounds = [added_ratio(1.1, peer, 1.0) for peer in (0.9, 1.0, 1.0, 1.2, 1.3, 0.8)]
    interval = Interval.of(rounds)
    assert interval.high == interval.width == inf
    assert interval.as_ratio() == NO_DIFFERENCE


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.01234, "0.0123"), (1.5, "1.50"), (1234.5, "1230"), (0, "0"), (-2, "-2.00"), (inf, "inf")],
)
def test_three_digits_count(value: float, text: str) -> None:
    """Neither an exponent nor digits that nobody measured."""
    assert number(value) == text


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


def test_what_is_too_wide_is_measured_anew_and_longer() -> None:
    """Only the noisy figure and what it needs, twice as long each time; the last series counts."""
    calls = {"calm": 0, "noisy": 0, "peer": 0}
    noise = scripted(*[1.0, 9.0] * 3, *[4.0] * 12)

    def job(name: str, value: Callable[[], float]) -> Callable[[], float]:
        def call() -> float:
            calls[name] += 1
            return value()

        return call

    jobs = {
        "calm": job("calm", lambda: 1.0),
        "noisy": job("noisy", noise),
        "peer": job("peer", lambda: 2.0),
    }
    figures = {"calm": Figure(("calm",), float), "ratio": Figure(("noisy", "peer"), ratio)}
    intervals = measure(jobs, figures, Plan(6, series=3))
    assert calls == {"calm": 6, "noisy": 18, "peer": 18}
    assert intervals["calm"] == Interval(1.0, 1.0, 1.0, 6)
    assert intervals["ratio"] == Interval(2.0, 2.0, 2.0, 12, series=2)


def test_what_stays_too_wide_is_said_to_be() -> None:
    """The repeats have an end, after which the figure stands with a mark."""
    values = (float(value % 2) + 1 for value in count())
    intervals = measure({"job": values.__next__}, {"it": Figure(("job",), float)}, Plan(6, 3))
    assert intervals["it"] == Interval(1.5, 1.0, 2.0, 24, series=3, is_wide=True)
    assert str(intervals["it"]) == "1.50 (1.00 to 2.00, wide)"


def test_a_bound_decides_what_is_too_wide() -> None:
    """The width is a share of the median."""
    jobs = {"job": scripted(*[9.0, 10.0, 10.0, 10.0, 10.0, 11.0])}
    (interval,) = measure(jobs, {"": Figure(("job",), float)}, Plan(6, 1, widest=0.2)).values()
    assert not interval.is_wide
    jobs = {"job": scripted(*[9.0, 10.0, 10.0, 10.0, 10.0, 11.1])}
    (interval,) = measure(jobs, {"": Figure(("job",), float)}, Plan(6, 1, widest=0.2)).values()
    assert interval.is_wide


def test_a_slow_job_is_asked_less_often_and_still_has_an_interval() -> None:
    """By a scripted clock: past its seconds a job is left out, but never before six rounds."""
    now = 0.0

    def slow() -> float:
        nonlocal now
        now += 5.0
        return 1.0

    samples = series({"slow": slow, "fast": lambda: 1.0}, 10, seconds=20, clock=lambda: now)
    assert {name: len(values) for name, values in samples.items()} == {"slow": 6, "fast": 10}
    figures = {"ratio": Figure(("fast", "slow"), ratio)}
    jobs = {"slow": slow, "fast": lambda: 1.0}
    plan = Plan(10, series=1, seconds=20)
    assert measure(jobs, figures, plan, clock=lambda: now)["ratio"].rounds == 6


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_a_job_is_timed_by_the_clock_that_it_is_given(kind: str) -> None:
    """Ten microseconds of a scripted clock for each call are ten microseconds, either way."""
    ticks = 0

    def call() -> object:
        nonlocal ticks
        ticks += 10_000
        return answer() if kind == "async" else None

    async def answer() -> None:
        """Answer at once."""

    with asyncio.Runner() as runner:
        timed = Job("row", kind, "happy", call).timer(runner, 1e-3, lambda: ticks)
        before = ticks
        assert timed() == pytest.approx(10.0)
        assert ticks - before == 100 * 10_000  # as many calls as fill the time


def test_a_peer_is_no_subject_and_everybody_stands_beside_it() -> None:
    """Each row's overhead is beyond the bare call of the same round, and so is its peer's."""
    figures = _figures([BARE, "policy", "tenacity", "other"], frozenset({"tenacity"}))
    shares = {name: figure.jobs for (kind, name), figure in figures.items() if kind == "share"}
    assert shares == {
        "policy": ("policy", "tenacity", BARE),
        "other": ("other", "tenacity", BARE),
    }
    assert figures["share", "policy"].of(3.0, 9.0, 1.0) == 0.25
    assert figures["added", "policy"].of(3.0, 1.0) == 2.0
