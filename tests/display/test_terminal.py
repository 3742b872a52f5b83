"""What a terminal shows."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from rich.console import Console

from honcho_fallback import Failure, FailureKind, FallbackPolicy, Target
from honcho_fallback.display import Calls, rich_of
from tests.helpers.records import (
    EVERY_OUTCOME,
    HOSTILE_CALL,
    POLICY,
    WAITED,
    of_many_attempts,
    with_attempts,
)


def told(value: object, width: int = 120, *, colour: bool = False) -> str:
    """What rich prints of a value."""
    console = Console(
        file=io.StringIO(),
        width=width,
        force_terminal=colour,
        color_system="truecolor" if colour else None,
    )
    console.print(rich_of(value))
    shown: str = console.file.getvalue()  # type: ignore[attr-defined] # a StringIO
    return shown


@pytest.mark.parametrize("outcome", EVERY_OUTCOME)
def test_a_call_of_any_outcome_is_told_in_full(outcome: str) -> None:
    """Who was asked, what each said, how long it took, who was not asked and why."""
    record = EVERY_OUTCOME[outcome]
    shown = told(record, 160)
    assert shown.startswith(replace(record, attempts=(), untried=()).explain())
    for attempt in record.attempts:
        said = attempt.kind.value if attempt.kind else "answered"
        assert any(attempt.target in line and said in line for line in shown.splitlines())
    for name, why in record.untried:
        assert any(name in line and f"never asked: {why}" in line for line in shown.splitlines())


def test_bars_are_to_scale_and_differ_in_their_characters() -> None:
    """20 columns for 8 seconds: failed, waited, failed, answered."""
    lines = told(WAITED).splitlines()
    assert lines[1].rstrip().endswith("waited  took  0 to 8 s")
    begin = lines[1].index("0 to 8 s")
    assert [line[begin:].rstrip() for line in lines[2:5]] == [
        "xx",
        "  ......xx",
        "          ==========",
    ]
    cancelled = told(EVERY_OUTCOME["cancelled"])
    assert "ooooooooooooo" in cancelled


def test_colours_are_those_of_the_page() -> None:
    """Okabe and Ito's, in words and bars alike."""
    shown = told(WAITED, colour=True)
    assert shown.count("\x1b[38;2;213;94;0m") == 4
    assert shown.count("\x1b[38;2;0;158;115m") == 3


def test_no_name_acts_on_the_terminal_or_on_rich() -> None:
    """Markup is text, and an escape sequence in a name is not one."""
    record = replace(HOSTILE_CALL, agent="[bold red]agent[/nonsense]")
    shown = told(record, 200)
    assert "[bold red]agent[/nonsense]" in shown
    assert "\x1b" not in shown
    assert '<script>alert("x")</script>' in shown
    assert "\x1b[31m" not in told(record, colour=True)


def test_all_is_ascii_where_names_are() -> None:
    """A terminal without UTF-8 shows all of it."""
    everything = [WAITED, POLICY, Failure.of(FailureKind.QUOTA), Calls(EVERY_OUTCOME.values())]
    for value in everything:
        assert told(value).isascii()


@pytest.mark.parametrize("seconds", [0.0, 1e-9, 1e300, float("nan"), float("inf"), -1.0])
def test_odd_lengths_have_a_bar_each(seconds: float) -> None:
    """Calls of no length, of ages, and with figures that cannot be."""
    record = with_attempts(replace(WAITED, seconds=seconds), seconds=seconds)
    lines = told(record).splitlines()[-4:-1]
    assert [line.strip()[-1] for line in lines] == ["x", "x", "="]


@pytest.mark.parametrize("width", [20, 40, 80])
def test_a_narrow_terminal_breaks_nothing(width: int) -> None:
    """Nothing is raised and no line is longer than the terminal is wide."""
    for value in (WAITED, POLICY, HOSTILE_CALL, Failure.of(FailureKind.QUOTA)):
        assert all(len(line) <= width for line in told(value, width).splitlines())


def test_hundreds_of_attempts_have_a_line_each() -> None:
    """Nothing is left out, whatever the number."""
    assert told(of_many_attempts(500)).count("503 overloaded") == 500


def test_several_calls_are_one_table() -> None:
    """Each call is numbered once, in the line of its first attempt."""
    lines = told(Calls([WAITED, EVERY_OUTCOME["success"]])).splitlines()
    assert [line[:6].strip() for line in lines] == ["call", "1", "", "", "2", ""]


def test_a_summary_counts() -> None:
    """Calls, requests, switches, who answered, how it ended."""
    calls = Calls([*EVERY_OUTCOME.values(), WAITED, WAITED])
    assert calls.summary == type(calls.summary)(
        calls=9,
        requests=18,
        switches=7,
        answered_by={"anthropic/claude-sonnet-5": 3, "openai/gpt-5.5": 1},
        outcomes={"success": 3, **dict.fromkeys([*EVERY_OUTCOME][1:], 1)},
    )
    shown = {
        tuple(part.strip() for part in line.split("  ", 1))
        for line in told(calls.summary).splitlines()
    }
    assert ("answered by anthropic/claude-sonnet-5", "3 (33.3%)") in shown
    assert ("switches", "7") in shown
    assert "calls" in told(Calls([]).summary)


def test_a_failure_and_a_policy_say_what_the_page_says() -> None:
    """The same facts, in two columns."""
    assert "no other than" not in told(POLICY)
    assert "All options have their defaults." in told(POLICY)
    assert "next action" in told(Failure.of(FailureKind.QUOTA))
    assert "2 s" in told(FallbackPolicy([Target("m")], POLICY.config.replace(wait=2)))
