"""The page and the fragments as a browser draws them, down to the pixels."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from shutil import which
from typing import TYPE_CHECKING

import pytest
from chromium import Box, Chromium, Picture, near

from honcho_fallback import Failure, FailureKind
from honcho_fallback.display import html_of, write_page
from honcho_fallback.display._marks import ANSWERED, MARKS, STOPPED, mark_of
from tests.helpers.records import (
    EVERY_OUTCOME,
    HOSTILE,
    HOSTILE_CALL,
    POLICY,
    WAITED,
    of_many_attempts,
    with_attempts,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from chromium import Colour, Page

    from honcho_fallback import CallRecord

SCHEMES = ("light", "dark")
RECORDS = [*EVERY_OUTCOME.values(), WAITED, HOSTILE_CALL]
NOTEBOOK = "<!doctype html><meta charset=utf-8><body style='background:#1e1e1e;color:#d4d4d4'>"


@pytest.fixture(scope="module")
def browser() -> Iterator[Chromium]:
    """One Chromium for all tests: Debian's package, for which nothing else is fetched."""
    program = which("chromium")
    if program is None:
        pytest.skip("needs chromium (apt-get install chromium)")
    with Chromium.started(program) as started:
        yield started


def rgb(colour: str) -> Colour:
    """Read #rrggbb."""
    red, green, blue = bytes.fromhex(colour.removeprefix("#"))
    return red, green, blue


def luminance(colour: Colour) -> float:
    """Relative luminance (WCAG 2.2)."""
    parts = [part / 255 for part in colour]
    linear = [
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    ]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: Colour, other: Colour) -> float:
    """Contrast ratio (WCAG 2.2)."""
    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def tracks(page: Page) -> list[Picture]:
    """Photograph every attempt's time line, from pixel to pixel."""
    boxes = page.boxes(".hf-track")
    return [Picture(page.picture(Box(*(round(figure) for figure in box)))) for box in boxes]


def opened(browser: Chromium, tmp_path: Path, records: list[CallRecord], scheme: str) -> Page:
    """Write a page and open it."""
    write_page(records, tmp_path / "calls.html")
    return browser.page(tmp_path / "calls.html", prefers_color_scheme=scheme)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_every_bar_is_seen_where_its_attempt_was(
    browser: Chromium, tmp_path: Path, scheme: str
) -> None:
    """In the picture the bar's colour begins and ends where the record says, to two pixels."""
    page = opened(browser, tmp_path, RECORDS, scheme)
    attempts = [(record, attempt) for record in RECORDS for attempt in record.attempts]
    pictures = tracks(page)
    assert len(pictures) == len(attempts) == 17
    for picture, (record, attempt) in zip(pictures, attempts, strict=True):
        seen = picture.columns_of(rgb(mark_of(attempt).colour))
        whole = max(record.seconds, *(each.started + each.seconds for each in record.attempts))
        begins = attempt.started / whole * picture.width
        ends = (attempt.started + attempt.seconds) / whole * picture.width
        assert abs(seen[0] - begins) <= 2
        assert abs(seen[-1] + 1 - ends) <= 2
        for other in MARKS:
            if other is not mark_of(attempt):
                assert not picture.columns_of(rgb(other.colour))


@pytest.mark.parametrize("scheme", SCHEMES)
def test_bars_and_text_stand_out_from_the_ground(
    browser: Chromium, tmp_path: Path, scheme: str
) -> None:
    """The ground is the scheme's; bars have 3:1, text 4.5:1 (WCAG 2.2, 1.4.11 and 1.4.3)."""
    page = opened(browser, tmp_path, RECORDS, scheme)
    ground = Picture(page.picture(Box(0, 0, 4, 4)))[0, 0]
    assert luminance(ground) > 0.9 if scheme == "light" else luminance(ground) < 0.02
    for mark in MARKS:
        assert contrast(rgb(mark.colour), ground) >= 3
    for selector in (".hf caption", ".hf td", ".hf thead th", ".hf li"):
        box = page.boxes(selector)[0]
        picture = Picture(page.picture(Box(round(box.x), round(box.y), 60, round(box.height))))
        colours = [colour for y in range(picture.height) for colour in picture.row(y)]
        assert max(contrast(colour, ground) for colour in colours) >= 4.5


def test_nothing_is_complained_of_and_nothing_is_fetched(
    browser: Chromium, tmp_path: Path
) -> None:
    """No console message, one request (the page), no script, no picture, with any name."""
    page = opened(browser, tmp_path, RECORDS, "light")
    assert page.complaints() == []
    assert page.requests() == [(tmp_path / "calls.html").as_uri()]
    assert page.run("document.scripts.length + document.images.length") == 0
    assert HOSTILE in page.run("document.body.innerText")


def test_a_page_that_fetches_or_complains_would_be_noticed(
    browser: Chromium, tmp_path: Path
) -> None:
    """The two tests above can fail: here a name was not escaped."""
    (tmp_path / "bad.html").write_text(f"<!doctype html>{HOSTILE.replace('alert', 'console.log')}")
    page = browser.page(tmp_path / "bad.html")
    assert any('"x"' in complaint for complaint in page.complaints())
    assert "http://127.0.0.1:9/x" in page.requests()


def test_the_patterns_differ_without_any_colour(browser: Chromium, tmp_path: Path) -> None:
    """To somebody who sees no colours: answered is solid, failed striped, stopped hollow."""
    write_page([EVERY_OUTCOME["success"], EVERY_OUTCOME["cancelled"]], tmp_path / "calls.html")
    page = browser.page(tmp_path / "calls.html", deficiency="achromatopsia")
    found = []
    for box in page.boxes(".hf-bar"):
        inside = Box(round(box.x) + 3, round(box.y) + round(box.height / 2), 60, 1)
        row = Picture(page.picture(inside)).row(0)
        assert all(max(colour) - min(colour) <= 3 for colour in row)
        ground = [luminance(colour) > 0.9 for colour in row]
        changes = sum(one != other for one, other in pairwise(ground))
        found.append("striped" if changes > 8 else "hollow" if ground[0] else "solid")
    assert found == ["striped", "solid", "striped", "hollow"]


@pytest.mark.parametrize("deficiency", ["protanopia", "deuteranopia", "tritanopia"])
def test_the_colours_differ_to_the_colour_blind(
    browser: Chromium, tmp_path: Path, deficiency: str
) -> None:
    """Chromium's simulation keeps the colours well apart, a failure's from every other.

    Few see blue and green alike; to them solid and hollow differ.
    """
    write_page([EVERY_OUTCOME["success"], EVERY_OUTCOME["cancelled"]], tmp_path / "calls.html")
    page = browser.page(tmp_path / "calls.html", deficiency=deficiency)
    edges = [Box(round(box.x) + 4, round(box.y), 1, 1) for box in page.boxes(".hf-bar")]
    failed, answered, _, stopped = (Picture(page.picture(edge))[0, 0] for edge in edges)
    pairs = [(failed, answered), (failed, stopped), (answered, stopped)]
    for one, other in pairs[: 2 if deficiency == "tritanopia" else 3]:
        assert sum((a - b) ** 2 for a, b in zip(one, other, strict=True)) ** 0.5 >= 60


def test_a_wait_is_a_line_before_its_bar(browser: Chromium, tmp_path: Path) -> None:
    """Dotted, in the text's colour: dark where it is light, and light where it is dark."""
    for scheme in SCHEMES:
        picture = tracks(opened(browser, tmp_path, [WAITED], scheme))[1]
        ground = picture[2, 2]
        middle = picture.row(picture.height // 2)[: round(picture.width * 3 / 8) - 1]
        drawn = [x for x, colour in enumerate(middle) if contrast(colour, ground) > 4.5]
        assert abs(drawn[0] - picture.width / 8) <= 4
        assert len(drawn) > len(middle) / 4
        assert any(near(colour, ground) for colour in middle[drawn[0] :])


def test_forced_colours_leave_the_bars(browser: Chromium, tmp_path: Path) -> None:
    """A system's high contrast takes away backgrounds; bars keep theirs."""
    write_page([WAITED], tmp_path / "calls.html")
    page = browser.page(tmp_path / "calls.html", forced_colors="active")
    *_, answered = tracks(page)
    assert answered.columns_of(rgb(ANSWERED.colour))


def test_a_fragment_takes_the_colours_of_a_dark_notebook(
    browser: Chromium, tmp_path: Path
) -> None:
    """Whatever the system prefers, text and ground are the notebook's, and bars are seen."""
    values = [WAITED, EVERY_OUTCOME["cancelled"], POLICY, Failure.of(FailureKind.QUOTA)]
    (tmp_path / "notebook.html").write_text(NOTEBOOK + "".join(map(html_of, values)), "utf-8")
    page = browser.page(tmp_path / "notebook.html", prefers_color_scheme="light")
    style = "[...document.querySelectorAll('.hf, .hf *')].map(each => getComputedStyle(each).%s)"
    assert {*page.run(style % "color")} == {"rgb(212, 212, 212)"}
    plain = ".hf, .hf *:not(.hf-bar)"
    ground = (style % "backgroundColor").replace(".hf, .hf *", plain)
    assert {*page.run(ground)} == {"rgba(0, 0, 0, 0)"}
    pictures = tracks(page)
    assert pictures[2].columns_of(rgb(ANSWERED.colour))
    assert pictures[4].columns_of(rgb(STOPPED.colour))
    assert near(pictures[0][pictures[0].width - 3, 3], (0x1E, 0x1E, 0x1E))
    assert page.complaints() == []


def test_several_fragments_side_by_side_do_not_mix(browser: Chromium, tmp_path: Path) -> None:
    """A style sheet that comes with each cell says the same each time and nothing twice."""
    (tmp_path / "notebook.html").write_text(NOTEBOOK + html_of(WAITED) * 3, "utf-8")
    page = browser.page(tmp_path / "notebook.html")
    widths = {box.width for box in page.boxes(".hf-track")}
    assert len(page.boxes(".hf-bar")) == 9
    assert max(widths) - min(widths) < 1


@pytest.mark.parametrize("seconds", [0.0, 1e-9, 1e14])
def test_a_bar_of_any_length_is_seen(browser: Chromium, tmp_path: Path, seconds: float) -> None:
    """Beside a call's length an attempt may be nothing, or all of it."""
    record = with_attempts(WAITED, seconds=seconds)
    late = replace(record.attempts[2], started=record.seconds, seconds=0.0)
    record = replace(record, attempts=(*record.attempts[:2], late))
    for picture, attempt in zip(
        tracks(opened(browser, tmp_path, [record], "light")), record.attempts, strict=True
    ):
        assert len(picture.columns_of(rgb(mark_of(attempt).colour))) >= 2


@pytest.mark.parametrize("width", [360, 1000, 2560])
def test_hundreds_of_attempts_stay_within_the_page(
    browser: Chromium, tmp_path: Path, width: int
) -> None:
    """On a phone, a laptop and a wall: every bar in its line, and no scrolling sideways."""
    write_page([of_many_attempts(300)], tmp_path / "calls.html")
    page = browser.page(tmp_path / "calls.html", width=width)
    bars, lines = page.boxes(".hf-bar"), page.boxes(".hf-track")
    assert len(bars) == len(lines) == 300
    for bar, line in zip(bars, lines, strict=True):
        assert bar.width >= 3
        assert line.x - 0.5 <= bar.x
        assert bar.x + bar.width <= line.x + line.width + 3
    assert page.run("document.documentElement.scrollWidth") <= width


def test_a_screen_reader_is_told_what_the_bars_say(browser: Chromium, tmp_path: Path) -> None:
    """Each line has a name, each call is a group, each table a caption and heads."""
    page = opened(browser, tmp_path, [WAITED], "light")
    assert page.names("image") == [
        "starts at 0 s, takes 1 s",
        "starts at 3 s, takes 1 s",
        "starts at 4 s, takes 4 s",
    ]
    assert page.names("group") == ["summary", "call"]
    assert "openai/gpt-5.5" in page.names("rowheader")
    assert {"asked", "said", "waited", "took"} <= {*page.names("columnheader")}
    assert any(name.endswith("answered after 8000 ms.") for name in page.names("table"))


def test_a_page_of_many_calls_draws_what_is_scrolled_to(browser: Chromium, tmp_path: Path) -> None:
    """What is out of view is left out until it is looked at, and then it is there."""
    page = opened(browser, tmp_path, [WAITED] * 300, "light")
    drawn = (
        "[...document.querySelectorAll('.hf table')].filter(each => each.checkVisibility({%s}))"
    )
    assert page.run(f"{drawn % 'contentVisibilityAuto: true'}.length") < 100
    for _ in range(2):  # what comes into view has another height than was thought
        page.run("document.querySelectorAll('.hf')[300].scrollIntoView()")
        page.settle()
    bar = page.boxes(".hf:last-child .hf-bar")[2]
    inside = Box(round(bar.x) + 5, round(bar.y) + 5, 4, 4)
    assert near(Picture(page.picture(inside))[0, 0], rgb(ANSWERED.colour))
