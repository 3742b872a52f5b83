"""How a record shows itself: in a notebook, in a terminal through rich, and in words."""

from __future__ import annotations

import io
import re
import subprocess
import sys
from dataclasses import replace
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from tests.helpers.records import (
    EVERY_OUTCOME,
    HOSTILE,
    HOSTILE_CALL,
    WAITED,
    of_many_attempts,
    with_attempts,
)

FIGURES = st.floats()


class Read(HTMLParser):
    """The elements and the text of a fragment; each element that is opened is closed."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.elements: list[str] = []
        self.attributes: set[str] = set()
        self.text = ""
        self.feed(html)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.open.append(tag)
        self.elements.append(tag)
        self.attributes |= {name for name, _ in attrs}

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def printed(value: object, width: int = 80, *, colour: bool = False) -> str:
    """Return what rich prints."""
    out = io.StringIO()
    Console(file=out, width=width, force_terminal=colour).print(value)
    return out.getvalue()


def places(html: str) -> list[tuple[float, float]]:
    """Return left and width of each piece of the time line, in percent."""
    pieces = re.findall(r"left:([\d.]+)%;width:([\d.]+)%", html)
    return [(float(left), float(width)) for left, width in pieces]


@pytest.mark.parametrize("outcome", EVERY_OUTCOME)
def test_a_notebook_shows_all_of_a_call(outcome: str) -> None:
    """Its end, who was asked with which result, who was not and why, and what to do."""
    record = EVERY_OUTCOME[outcome]
    html = record._repr_html_()
    text = Read(html).text
    assert record.explain().split("\n")[0] in text
    assert html.count('role="img"') == len(record.attempts)
    for attempt in record.attempts:
        assert f"{attempt.number}{attempt.target}{attempt.result()}" in text
        assert (f"What to do: {attempt.next_action}" in text) == (
            attempt.next_action is not None and record.answered_by is None
        )
    for name, why in record.untried:
        assert f"{name}never asked: {why}" in text


def test_advice_is_given_once() -> None:
    """Two targets that are overloaded need the same thing."""
    html = EVERY_OUTCOME["exhausted"]._repr_html_()
    assert html.count("Wait, it passes") == html.count("Check that the key") == 1


def test_a_bar_lies_where_its_attempt_was() -> None:
    """Each attempt has its wait, which ends where it starts, and a bar of its length."""
    assert places(WAITED._repr_html_()) == [
        (0, 0),
        (0, 12.5),
        (12.5, 25),
        (37.5, 12.5),
        (50, 0),
        (50, 50),
    ]


@given(whole=FIGURES, figures=st.lists(st.tuples(FIGURES, FIGURES, FIGURES), max_size=4))
def test_no_figure_breaks_the_time_line(
    whole: float, figures: list[tuple[float, float, float]]
) -> None:
    """Whatever a record says, every piece lies on the line, and rich prints a bar for each."""
    first = WAITED.attempts[0]
    attempts = tuple(
        replace(first, started=started, seconds=seconds, wait=wait)
        for started, seconds, wait in figures
    )
    record = replace(WAITED, seconds=whole, attempts=attempts)
    pieces = places(record._repr_html_())
    assert len(pieces) == 2 * len(figures)
    assert all(left + width <= 100.1 for left, width in pieces)
    assert len(re.findall(r"^   1 [ .]*x+$", printed(record), re.MULTILINE)) == len(figures)


def test_names_are_text_in_a_notebook() -> None:
    """No name becomes an element or an attribute; nothing is fetched, no colour is set."""
    record = replace(HOSTILE_CALL, untried=((HOSTILE, HOSTILE),), why=HOSTILE, call_id=HOSTILE)
    html = record._repr_html_()
    read = Read(html)
    assert {*read.elements} <= {"bdi", "div", "span", "table", "td", "tr"}
    assert read.attributes <= {"aria-label", "colspan", "dir", "role", "style"}
    assert read.text.count(HOSTILE) == 6
    assert not re.search(r"url\(|#[0-9a-f]{3}|rgb", html)
    assert {*re.findall(r"(?:color|background):(\w+)", html)} == {"inherit", "currentColor"}
    html.encode()


def test_names_cannot_act_on_a_terminal() -> None:
    """Escape sequences, turned text, line ends, markup and emoji codes are printed as text."""
    name = "\x1b[31m\u202e[red]x[/red] :warning:\n2. forged"
    record = replace(with_attempts(WAITED, target=name), agent=name, untried=((name, "busy"),))
    for text in (record.explain(), printed(record, 200)):
        assert text.count("\ufffd[31m\ufffd[red]x[/red] :warning: 2. forged") == 5
        assert not {"\x1b", "\u202e"} & {*text}
    assert "\u05de\u05d5\u05d3\u05dc \ufffdgnihton\ufffd" in HOSTILE_CALL.explain()
    assert "\x1b[31m\ufffd" not in printed(record, colour=True)


def test_names_in_any_script_stay_what_they_are() -> None:
    """Letters, the joiners between them, and emoji are no danger."""
    name = "\u6a21\u578b-\u05de\u05d5\u05d3\u05dc-\u00fcber \u0645\u06cc\u200c\u062e \U0001f642"
    record = replace(WAITED, agent=name)
    assert name in record.explain()
    assert name in Read(record._repr_html_()).text


def test_rich_prints_the_words_and_a_time_line() -> None:
    """60 columns for 8 seconds: failed, waited, failed, answered; the colours say it again."""
    lines = printed(WAITED, 120).splitlines()
    assert "\n".join(lines[:-4]) == WAITED.explain()
    assert lines[-4:] == [
        "   1 xxxxxxxx",
        f"   2 {'':8}..............xxxxxxxx",
        f"   3 {'':30}{'=' * 30}",
        f"{'8000 ms':>65}",
    ]
    coloured = printed(WAITED, 100, colour=True)
    assert coloured.count("\x1b[31m") == 2
    assert coloured.count("\x1b[32m") == 1


@pytest.mark.parametrize("width", [12, 40, 80])
def test_a_narrow_terminal_breaks_nothing(width: int) -> None:
    """No line is longer than the terminal is wide, and no attempt is left out."""
    text = printed(of_many_attempts(50), width)
    assert all(len(line) <= width for line in text.splitlines())
    assert len(re.findall(r"^ +\d+ +x+$", text, re.MULTILINE)) == 50


def test_a_call_without_attempts_is_shown() -> None:
    """There is no time line, and the words are there."""
    record = replace(WAITED, attempts=(), untried=(), answered_by=None, outcome="cancelled")
    assert printed(record, 100).strip() == record.explain()
    assert "The caller cancelled the call." in Read(record._repr_html_()).text


def test_nothing_is_imported_for_it() -> None:
    """The record's own module knows no rich: whoever prints with it has it."""
    code = "import sys, honcho_fallback._core.record; print('rich' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
