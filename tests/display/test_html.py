"""The HTML that notebooks get."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from honcho_fallback import (
    Failure,
    FailureKind,
    FallbackConfig,
    FallbackPolicy,
    Target,
    classify,
)
from honcho_fallback.display import Calls, html_of
from honcho_fallback.display._marks import OUTCOMES
from honcho_fallback.testing import StatusError
from tests.helpers.records import (
    CHAIN,
    EVERY_OUTCOME,
    HOSTILE,
    HOSTILE_CALL,
    POLICY,
    WAITED,
    of_many_attempts,
    with_attempts,
)

SECRET = "sk-secret-0123456789"
TAGS = {
    *("bdi", "caption", "div", "li", "p", "span", "style", "table", "tbody", "td", "th"),
    *("thead", "tr", "ul"),
}
ATTRIBUTES = {"aria-hidden", "aria-label", "class", "colspan", "dir", "role", "scope", "style"}


class Read(HTMLParser):
    """The elements, and the text of each cell and of everything."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.rows: list[list[str]] = []
        self.text = ""
        self.feed(html)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.open.append(tag)
        self.elements.append((tag, dict(attrs)))
        if tag == "tr":
            self.rows.append([])
        if tag in {"td", "th"}:
            self.rows[-1].append("")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "style" in self.open:
            return
        self.text += data
        if {"td", "th"} & {*self.open}:
            self.rows[-1][-1] += data


def bars(html: str) -> list[str]:
    """List the classes of the bars."""
    return re.findall(r'class="hf-bar hf-(\w+)"', html)


@pytest.mark.parametrize("outcome", EVERY_OUTCOME)
def test_a_call_of_any_outcome_is_told_in_full(outcome: str) -> None:
    """One bar for each attempt; who was asked, what each said, who was not and why."""
    record = EVERY_OUTCOME[outcome]
    assert record.outcome == outcome
    html = html_of(record)
    read = Read(html)
    assert len(bars(html)) == len(record.attempts) > 0
    assert OUTCOMES[outcome].sign in read.text
    assert replace(record, attempts=(), untried=()).explain() in read.text
    for attempt, row in zip(record.attempts, read.rows[1:], strict=False):
        assert row[:2] == [str(attempt.number), attempt.target]
        assert (attempt.kind.value if attempt.kind else "answered") in row[2]
        assert str(attempt.status or "") in row[2]
    asked = len(record.attempts)
    assert [row[1:] for row in read.rows[1 + asked :]] == [
        [name, f"never asked: {why}"] for name, why in record.untried
    ]


def test_every_figure_of_an_attempt_is_there() -> None:
    """Number, target, what it said, the wait, the length: in words, not by the bar alone."""
    read = Read(html_of(WAITED))
    assert read.rows[1:4] == [
        ["1", "openai/gpt-5.5", "✗ 503 overloaded", "0 s", "1 s", ""],
        ["2", "openai/gpt-5.5", "✗ 503 overloaded", "2 s", "1 s", ""],
        ["3", "anthropic/claude-sonnet-5", "✓ answered", "0 s", "4 s", ""],
    ]
    labels = [given["aria-label"] for _, given in read.elements if given.get("role") == "img"]
    assert labels == [
        "starts at 0 s, takes 1 s",
        "starts at 3 s, takes 1 s",
        "starts at 4 s, takes 4 s",
    ]


def test_a_bar_lies_where_its_attempt_was() -> None:
    """Bars are placed by start and length, a wait by where it began."""
    places = re.findall(r'class="(hf-bar|hf-wait)[^"]*" style="([^"]*)"', html_of(WAITED))
    assert places == [
        ("hf-bar", "left:0.00%;width:12.50%"),
        ("hf-wait", "left:12.50%;width:25.00%"),
        ("hf-bar", "left:37.50%;width:12.50%"),
        ("hf-bar", "left:50.00%;width:50.00%"),
    ]


def test_the_three_marks_differ_in_more_than_colour() -> None:
    """Answered, failed and stopped have a sign and a class each."""
    told = html_of(Calls([EVERY_OUTCOME["success"], EVERY_OUTCOME["cancelled"]]))
    assert bars(told) == ["failed", "answered", "failed", "stopped"]
    assert all(f"{sign} " in Read(told).text for sign in "✓✗■")


def test_what_to_do_is_told_where_nobody_answered() -> None:
    """Each piece of advice stands there once, for failures only."""
    exhausted = Read(html_of(EVERY_OUTCOME["exhausted"])).text
    assert exhausted.count("Wait, it passes") == exhausted.count("Check that the key") == 1
    assert "What to do" not in html_of(EVERY_OUTCOME["success"])
    assert "Nothing to do" not in html_of(EVERY_OUTCOME["cancelled"])


@pytest.mark.parametrize(
    "value",
    [
        HOSTILE_CALL,
        Calls([HOSTILE_CALL, *EVERY_OUTCOME.values()]),
        Calls([HOSTILE_CALL]).summary,
        Failure.of(FailureKind.QUOTA, code=HOSTILE, reason=HOSTILE, error=HOSTILE),
        FallbackPolicy([Target(HOSTILE, provider=HOSTILE)], agent=HOSTILE),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_names_hold_is_text(value: object) -> None:
    """No name becomes an element or an attribute; nothing runs, nothing is fetched."""
    html = html_of(value)
    read = Read(html)
    assert {tag for tag, _ in read.elements} <= TAGS
    assert {name for _, given in read.elements for name in given} <= ATTRIBUTES
    assert not re.search(r"url\(|@import|src=[^h]|href|http(?!://127)", html)
    if value.__class__.__name__ != "Summary":
        assert HOSTILE in read.text
    html.encode()


def test_names_from_right_to_left_are_kept_apart() -> None:
    """Each name is isolated, and what could turn the line round is gone."""
    html = html_of(HOSTILE_CALL)
    assert "<bdi>\u05de\u05d5\u05d3\u05dc \ufffdgnihton\ufffd \ufffd[31mred \ufffd " in html
    assert 'dir="ltr"' in html


def test_hundreds_of_attempts_are_all_drawn() -> None:
    """Nothing is left out, whatever the number, and every piece stays on its line."""
    html = html_of(of_many_attempts(500))
    assert len(bars(html)) == 500
    places = re.findall(r"left:([\d.]+)%;width:([\d.]+)%", html)
    assert len(places) == 500
    assert all(0 <= float(left) <= 99 and float(width) <= 100 for left, width in places)


@pytest.mark.parametrize("seconds", [0.0, 1e-9, 1e6, 1e300, float("nan"), float("inf"), -1.0])
def test_odd_lengths_are_drawn(seconds: float) -> None:
    """Calls of no length, of days, and with figures that cannot be."""
    html = html_of(with_attempts(replace(WAITED, seconds=seconds), seconds=seconds))
    assert len(bars(html)) == 3
    drawn = re.findall(r'(?:style|aria-label)="[^"]*"', html)
    assert not re.search(r"\b(nan|inf)\b", "".join(drawn))


def test_a_call_with_nothing_in_it_is_drawn() -> None:
    """No attempts, no answer, no figures."""
    html = html_of(replace(WAITED, attempts=(), untried=(), answered_by=None, outcome="cancelled"))
    assert bars(html) == []
    assert "The caller cancelled the call." in Read(html).text
    assert "No calls" in Read(html_of(Calls([]))).text


def test_a_failure_says_what_it_means() -> None:
    """Kind, the two questions, the rule that decided, cause and what to do."""
    failure = classify(StatusError(429, code="insufficient_quota", retry_after=7))
    facts = dict(Read(html_of(failure)).rows)
    assert facts == {
        "kind": "quota",
        "transient": "no",
        "switchable": "yes",
        "status": "429",
        "code": "insufficient_quota",
        "retry after": facts["retry after"],
        "error": "StatusError",
        "reason": failure.reason,
        "cause": failure.cause,
        "next action": failure.next_action,
    }
    bare = dict(Read(html_of(Failure.of(FailureKind.LOCAL))).rows)
    assert [bare[name] for name in ("status", "code", "retry after", "reason")] == ["-"] * 4


def test_what_the_provider_wrote_is_not_drawn() -> None:
    """Output that is committed with a notebook holds no text of a provider."""
    failure = Failure.of(FailureKind.QUOTA, provider_message="your prompt about cats")
    assert "cats" not in html_of(failure)


def test_a_policy_shows_its_chain_and_what_is_special() -> None:
    """The targets in order, and the options that differ, in words."""
    config = FallbackConfig.honcho_main(timeout=12.5, max_attempts=None, local_errors=(KeyError,))
    read = Read(html_of(FallbackPolicy(CHAIN, config, agent="greeter")))
    assert "Policy of agent greeter" in read.text
    assert read.rows[1:4] == [
        ["primary", "openai/gpt-5.5", "gpt-5.5", "openai", "-"],
        ["fallback 1", "anthropic/claude-sonnet-5", "claude-sonnet-5", "anthropic", "200,000"],
        ["fallback 2", "lmstudio/qwen3-4b", "qwen3-4b", "lmstudio", "-"],
    ]
    assert dict(read.rows[4:]) == {
        "fallback_on": "the default and content_policy, invalid_request, local",
        "switch_after": "2",
        "wait": "wait_exponential",
        "switch_wait": "wait_exponential",
        "timeout": "12.5",
        "local_errors": "KeyError",
        "refine": "_refine_as_honcho_main",
        "max_fallbacks": "1",
    }


def test_other_options_are_said_in_words() -> None:
    """Kinds left out, numbers per kind, none, yes and no, seconds."""
    config = FallbackConfig(
        fallback_on={"rate_limit", "local"},
        switch_after={FailureKind.TIMEOUT: 3, FailureKind.OVERLOADED: 2},
        timeout=None,
        check_responses=False,
        wait=2,
    )
    facts = dict(Read(html_of(FallbackPolicy(CHAIN, config))).rows[4:])
    left_out = "authentication, connection, context_overflow, malformed_response"
    assert facts["fallback_on"].startswith(f"the default and local without {left_out}")
    assert facts["switch_after"] == "overloaded: 2, timeout: 3"
    assert (facts["timeout"], facts["check_responses"], facts["wait"]) == ("none", "no", "2 s")


def test_a_policy_of_defaults_says_so() -> None:
    """Nothing special is a sentence, not an empty table."""
    assert "All options have their defaults." in Read(html_of(POLICY)).text


def test_a_policy_shows_no_secret() -> None:
    """Neither clients nor parameters, and of the user's objects the name only."""

    class Talkative:
        """Says more of itself than it should."""

        def __repr__(self) -> str:
            return SECRET

        def __call__(self, *_: object) -> float:
            return 0.0

    client = Talkative()
    target = Target("m", client=client, params={"api_key": SECRET, "extra_headers": SECRET})
    config = FallbackConfig(wait=client, validate=client, classify=None, switch_wait=client)
    html = html_of(FallbackPolicy([target], config))
    assert SECRET not in html
    assert html.count("Talkative") == 3


def test_no_colour_of_text_or_background_is_set() -> None:
    """Text and ground are those of the surroundings, so that dark themes stay dark."""
    style = html_of(POLICY).partition("</style>")[0]
    assert {*re.findall(r"(?<![\w-])color: ([^;]+);", style)} == {"inherit"}
    plain = re.sub(r"\.hf-(answered|failed|stopped) \{.*?\}", "", style, flags=re.DOTALL)
    assert not re.search(r"#[0-9a-f]{3,6}\b|\brgb", plain)
