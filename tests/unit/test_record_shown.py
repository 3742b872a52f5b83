"""How a record is shown: in a notebook, in a terminal, and in words."""

from __future__ import annotations

import io
import re
from dataclasses import replace
from html import unescape
from typing import TYPE_CHECKING

import pytest
from hypothesis import strategies as st
from rich.console import Console

from honcho_fallback.cli._show import Call, show_in_detail
from tests.helpers.records import (
    EVERY_OUTCOME,
    HOSTILE,
    HOSTILE_CALL,
    WAITED,
    of_many_attempts,
    with_attempts,
)

if TYPE_CHECKING:
    from honcho_fallback import CallRecord

FIGURES = st.floats()


def printed(record: CallRecord, width: int = 80, *, colour: bool = False) -> str:
    """Return what ``honcho-fallback show --call`` prints below the line with number and time."""
    out = io.StringIO()
    console = Console(file=out, width=width, force_terminal=colour)
    show_in_detail([Call(1, record)], console)
    return out.getvalue().partition("\n")[2]


@pytest.mark.parametrize("outcome", EVERY_OUTCOME)
def test_a_notebook_shows_the_words(outcome: str) -> None:
    """It shows what explain says, and no name becomes an element."""
    record = replace(EVERY_OUTCOME[outcome], agent=HOSTILE, untried=((HOSTILE, HOSTILE),))
    html = record._repr_html_()
    assert (
        unescape(html.removeprefix('<pre dir="ltr">').removesuffix("</pre>")) == record.explain()
    )
    assert html.count("<") == 2
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


@pytest.mark.parametrize("width", [12, 40, 80])
def test_a_narrow_terminal_breaks_nothing(width: int) -> None:
    """No line is longer than the terminal is wide, and no attempt is left out."""
    text = printed(of_many_attempts(50), width)
    assert all(len(line) <= width for line in text.splitlines())
    assert len(re.findall(r"^  \d+\. ", text, re.MULTILINE)) == 50


def test_a_call_without_attempts_is_shown() -> None:
    """In words, and without colours: nothing but the words is there."""
    record = replace(WAITED, attempts=(), untried=(), answered_by=None, outcome="cancelled")
    assert printed(record, 100).strip() == record.explain()
