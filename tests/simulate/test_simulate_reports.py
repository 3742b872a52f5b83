"""What is told of a simulation: figures, plots in a terminal, a page."""

from __future__ import annotations

import io
import json
import xml.etree.ElementTree as ET
from dataclasses import FrozenInstanceError

import pytest
from hypothesis import given
from hypothesis import strategies as st
from incidents import FALLBACK, PRIMARY, failing, incident
from rich.console import Console

from honcho_fallback import FallbackConfig
from honcho_fallback.testing.simulate import Comparison, compare, contenders, load_scenario
from honcho_fallback.testing.simulate._html import page
from honcho_fallback.testing.simulate._report import percentile

NASTY = '<script>"[red]'


def compared(**more: object) -> Comparison:
    """Two policies in an outage of both: one keeps failing, one retries long enough."""
    scenario = incident(
        failing(starts=3),
        {"kind": "up", "starts": 6},
        fallback=(failing(starts=0),),
        price={"per_call": 0.5},
    )
    once = FallbackConfig(max_attempts=1)
    return compare(scenario, {NASTY: once, "default": FallbackConfig(wait=3, max_attempts=4)})


def printed(comparison: object, *, ascii_only: bool = False) -> str:
    out = io.TextIOWrapper(io.BytesIO(), encoding="ascii" if ascii_only else "utf-8")
    Console(file=out, width=100, force_terminal=False).print(comparison)
    out.flush()
    out.seek(0)
    return out.read()


@given(st.lists(st.integers(1, 50), min_size=1), st.sampled_from([0.5, 0.95, 0.99]))
def test_a_percentile_is_a_value_that_so_many_do_not_exceed(
    values: list[int], share: float
) -> None:
    """The smallest of the values that at least that share is not above."""
    found = percentile(sorted(values), share)
    assert found in values
    assert sum(value <= found for value in values) >= share * len(values)
    assert sum(value < found for value in values) < share * len(values)


def test_windows_tell_the_same_over_time() -> None:
    """Sixty of them; a call belongs to the one in which it began."""
    report = compared()[NASTY]
    assert len(report.windows) == 60
    told = [(window.starts, window.success_rate) for window in report.windows if window.calls]
    assert [round(starts, 2) for starts, _ in told] == [float(second) for second in range(10)]
    assert [rate for _, rate in told] == [1.0] * 3 + [0.0] * 3 + [1.0] * 4
    assert report.success_rate == 0.7
    empty = next(window for window in report.windows if not window.calls)
    assert (empty.success_rate, empty.p50, empty.p95) == (None, None, None)


def test_values_are_plain_frozen_and_found_by_name() -> None:
    """A report is data; its dict goes through JSON unchanged, without the records."""
    comparison = compared()
    told = json.loads(json.dumps(comparison.to_dict()))
    assert told == comparison.to_dict()
    assert [one["name"] for one in told["reports"]] == [NASTY, "default"]
    assert told["reports"][0]["requests"] == {PRIMARY: 10, FALLBACK: 0}
    assert "records" not in told["reports"][0]
    assert len(told["reports"][0]["windows"]) == 60
    with pytest.raises(KeyError):
        comparison["nobody"]
    with pytest.raises(FrozenInstanceError):
        comparison.reports[0].calls = 3  # type: ignore[misc] # the point


def test_the_terminal_shows_a_table_and_two_lines_for_each() -> None:
    """Bars in blocks, or in plain characters where the terminal has no others."""
    text = printed(compared())
    rows = [line.split() for line in text.splitlines()]
    assert [
        "policy",
        "calls",
        "answered",
        "p50",
        "s",
        "p95",
        "s",
        "p99",
        "s",
        "requests",
        "wasted",
        "money",
        "lost",
    ] in rows
    assert [NASTY, "10", "70.00%", "1.00", "1.00", "1.00", "10+0", "3", "3.50", "0.00"] in rows
    bars = [line for line in text.splitlines() if line.startswith(NASTY) and "█" in line]
    assert bars[0].removeprefix(NASTY).replace(" ", "") == "███▁▁▁████"
    plain = printed(compared(), ascii_only=True)
    assert plain.isascii()
    assert "@@@___@@@@" in plain.replace(" ", "")
    assert "10+0" in printed(compared()[NASTY])


def test_the_page_stands_alone_and_is_escaped() -> None:
    """No script, no address, well-formed; a line for each policy in both plots."""
    html = page(compared())
    assert "<script" not in html
    assert "http" not in html
    tree = ET.fromstring(html.removeprefix("<!DOCTYPE html>"))  # noqa: S314 # our own
    plots = [svg for svg in tree.iter("svg") if svg.get("role") == "img"]
    assert len(plots) == 2
    for plot in plots:
        titles = [title.text for title in plot.iter("title")]
        assert titles == [NASTY, "default"]
        assert NASTY in str(plot.get("aria-label"))
    strokes = {
        path.get("stroke-dasharray") for path in plots[0].iter("path") if path.get("stroke")
    }
    assert len(strokes) == 2
    cells = [cell.text for cell in tree.iter("td")]
    assert cells[:3] == [NASTY, "10", "70.00%"]


def test_notebooks_show_the_same() -> None:
    """Both a comparison and a single report render, as a part of a page."""
    comparison = compared()
    assert comparison._repr_html_() in page(comparison)
    assert comparison.reports[1]._repr_html_().count('role="img"') == 2


def test_the_default_contenders() -> None:
    """This package's presets and the two peers; in an outage one wastes least."""
    comparison = compare(load_scenario("outage"), calls=600)
    assert [report.name for report in comparison.reports] == [*contenders()]
    wasted = {report.name: report.wasted for report in comparison.reports}
    assert min(wasted, key=wasted.__getitem__) == "resilient"
    assert wasted["litellm-like"] > 2 * wasted["default"]


def test_nothing_was_called() -> None:
    """A scenario without a single call has a report, too."""
    scenario = incident(traffic={"kind": "poisson", "per_second": 1e-9})
    comparison = compare(scenario, {"none": FallbackConfig()})
    report = comparison["none"]
    assert (report.calls, report.success_rate, report.p99) == (0, 0.0, 0.0)
    assert "none" in printed(comparison)
    assert "none" in page(comparison)
