"""Where bars lie, and how durations are said."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from honcho_fallback.display._spans import spans
from honcho_fallback.display._words import duration, plain
from tests.helpers.records import EVERY_OUTCOME, WAITED, with_attempts

if TYPE_CHECKING:
    from honcho_fallback import CallRecord


def told(record: CallRecord) -> list[tuple[float, float, float]]:
    """Return start, length and wait of every attempt as parts of the call."""
    return [(span.start, span.length, span.waited) for span in spans(record)[1]]


def test_an_attempt_lies_where_it_was() -> None:
    """A bar starts with its attempt, is as long, and has its wait before it."""
    assert spans(WAITED)[0] == pytest.approx(8)
    assert told(WAITED) == [
        pytest.approx((0, 1 / 8, 0)),
        pytest.approx((3 / 8, 1 / 8, 2 / 8)),
        pytest.approx((4 / 8, 4 / 8, 0)),
    ]


@given(
    whole=st.floats(),
    figures=st.lists(st.tuples(st.floats(), st.floats(), st.floats()), max_size=4),
)
def test_nothing_lies_outside(whole: float, figures: list[tuple[float, float, float]]) -> None:
    """Whatever a record says, no bar and no wait leaves the line, and bars keep their order."""
    first = WAITED.attempts[0]
    attempts = tuple(
        replace(first, started=started, seconds=seconds, wait=wait)
        for started, seconds, wait in figures
    )
    found = told(replace(WAITED, seconds=whole, attempts=attempts))
    assert len(found) == len(figures)
    for start, length, waited in found:
        assert 0 <= start - waited <= start <= start + length <= 1.0000001


def test_a_call_without_length_has_bars_at_its_start() -> None:
    """Zero seconds divide nothing."""
    record = with_attempts(replace(WAITED, seconds=0.0), started=0.0, seconds=0.0, wait=0.0)
    assert spans(record)[0] == 0
    assert told(record) == [(0, 0, 0)] * 3
    assert told(replace(record, attempts=())) == []


def test_a_running_call_is_as_long_as_its_last_attempt() -> None:
    """Attempts may end after what the record calls its end; they set the scale then."""
    assert spans(replace(EVERY_OUTCOME["running"], seconds=0.5))[0] == pytest.approx(1)


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0, "0 s"),
        (4e-7, "0.0004 ms"),
        (0.00123, "1.23 ms"),
        (0.0126, "13 ms"),
        (0.9994, "999 ms"),
        (0.9996, "1 s"),
        (1.234, "1.23 s"),
        (59.94, "59.9 s"),
        (59.96, "1 min 0 s"),
        (125, "2 min 5 s"),
        (3_599.6, "1 h 0 min"),
        (7_384, "2 h 3 min"),
        (100_000, "1.2 d"),
        (1e12, "1e+12 s"),
        (-1, "-"),
        (float("nan"), "-"),
        (float("inf"), "-"),
    ],
)
def test_durations_are_said_in_three_figures(seconds: float, words: str) -> None:
    """The unit goes with the size, and what is no time is missing."""
    assert duration(seconds) == words


@given(st.text(st.characters()))
def test_a_name_cannot_act_on_a_terminal(text: str) -> None:
    """No control character, no lone surrogate and no turning of the direction is left."""
    safe = plain(text)
    assert safe == "".join(safe.split("\x1b"))
    assert len(safe) == len(text)
    safe.encode()
    assert not {*safe} & {chr(code) for code in (*range(32), *range(127, 160))}
    assert not {*safe} & {*"\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u2028\u2029"}


def test_names_in_any_script_stay() -> None:
    """What is only text is left as it is."""
    name = "\u6a21\u578b-\u05de\u05d5\u05d3\u05dc-\u00fcber \U0001f642 [bold]"
    assert plain(name) == name
