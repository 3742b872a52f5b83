"""Pictures for notebooks: what they draw, they also say."""

from __future__ import annotations

from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

from honcho_fallback import FallbackPolicy, Target
from honcho_fallback.testing import StatusError, attempts_chart, bar_chart
from tests.helpers.scripted import repeating

if TYPE_CHECKING:
    from honcho_fallback import CallRecord
    from honcho_fallback.testing import Chart

SVG = "{http://www.w3.org/2000/svg}"


def drawing(chart: Chart) -> ET.Element:
    """Read a picture; it is well-formed."""
    return ET.fromstring(chart.svg)  # noqa: S314 # we have just written it


def shapes(chart: Chart, kind: str) -> list[ET.Element]:
    """Return what is drawn of one kind, the ground left out."""
    return [shape for shape in drawing(chart).iter(f"{SVG}{kind}") if not shape.get("rx")]


def record_of(*of_primary: object) -> CallRecord:
    """Make one call on a chain of two whose fallback answers."""
    script = repeating(a=of_primary, b=["there"])
    policy = FallbackPolicy([Target("a"), Target("b")])
    run = policy.start()
    policy.call(script.ask, run=run)
    return run.record


def test_a_bar_is_as_long_as_its_figure() -> None:
    """The largest figure fills the width, the others take their share."""
    chart = bar_chart("Requests", {"a": 10, "b": 2.5, "c": 0}, unit="s")
    widths = [int(bar.get("width", "")) for bar in shapes(chart, "rect")]
    assert widths[0] == 4 * widths[1] > 0
    assert widths[2] == 0
    assert repr(chart) == "Requests: a 10 s, b 2.5 s, c 0 s"


def test_bars_of_nothing_are_drawn() -> None:
    """Figures that are all zero, and no figures at all, are a picture, too."""
    assert [bar.get("width") for bar in shapes(bar_chart("t", {"a": 0}), "rect")] == ["0"]
    assert not shapes(bar_chart("t", {}), "rect")


def test_each_request_is_a_mark() -> None:
    """A cross for a failure, a circle for the primary's answer, a square for a fallback's."""
    down, up = record_of(StatusError(503)), record_of("here")
    chart = attempts_chart("Loops", {"one": [down, up], "two": [up]})
    legend = 1
    assert len(shapes(chart, "path")) == 1 + legend
    assert len(shapes(chart, "circle")) == 2 + legend
    assert len(shapes(chart, "rect")) == 1 + legend
    assert repr(chart).endswith("one: xF P; two: P")


def test_a_long_loop_stays_in_the_picture() -> None:
    """The picture is as wide as its longest loop."""
    chart = attempts_chart("Loops", {"one": [record_of("here")] * 40})
    width = float(drawing(chart).get("width", ""))
    assert all(float(mark.get("cx", "")) < width for mark in shapes(chart, "circle"))


def test_a_notebook_shows_the_picture() -> None:
    """IPython looks for this method; labels cannot become markup."""
    chart = bar_chart("<script>", {"<b>": 1})
    assert chart._repr_svg_() == chart.svg
    assert "<script>" not in chart.svg
    assert "<b>" not in chart.svg
