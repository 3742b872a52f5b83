"""Draw as HTML: everything escaped, nothing fetched, no script, no colour of text of its own."""

from __future__ import annotations

from functools import singledispatch
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

from honcho_fallback import CallRecord, Failure, FallbackPolicy
from honcho_fallback.display._calls import Calls, Summary
from honcho_fallback.display._facts import (
    ATTEMPT_HEADS,
    FIGURES,
    TARGET_HEADS,
    failure_facts,
    option_facts,
    summary_facts,
    target_facts,
)
from honcho_fallback.display._marks import OUTCOMES, mark_of
from honcho_fallback.display._spans import spans
from honcho_fallback.display._words import (
    duration,
    headline,
    plain,
    said,
    undrawable,
    what_to_do,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from honcho_fallback.display._facts import Facts
    from honcho_fallback.display._marks import Mark
    from honcho_fallback.display._spans import Span

STYLE = Path(__file__).with_name("display.css").read_text(encoding="utf-8")

_FIGURE = ' class="hf-figure"'


def html_of(value: object) -> str:
    """Return an HTML fragment that draws a record, a failure, a policy, or several calls.

    Args:
        value: A CallRecord, Failure, FallbackPolicy, Calls or Summary.

    Raises:
        TypeError: It is something else.
    """
    return f"<style>{STYLE}</style>{unstyled(value)}"


@singledispatch
def unstyled(value: object) -> str:
    """Return the fragment without its style sheet, for a page that has it."""
    raise undrawable(value)


@unstyled.register(CallRecord)
def _record(record: CallRecord) -> str:
    whole, found = spans(record)
    rows = [
        *map(_attempt, found),
        *(
            f'<tr><td></td><th scope="row">{_name(name)}</th>'
            f'<td colspan="4">never asked: {_text(why)}</td></tr>'
            for name, why in record.untried
        ),
    ]
    ends = (
        '<th scope="col" class="hf-time"><span class="hf-ends">'
        f"<span>0</span><span>{duration(whole)}</span></span></th>"
    )
    table = _table(_marked(OUTCOMES[record.outcome], headline(record)), ATTEMPT_HEADS, rows, ends)
    todo = "".join(f"<li>{_text(each)}</li>" for each in what_to_do(record))
    return _section("call", table + (f"<p>What to do:</p><ul>{todo}</ul>" if todo else ""))


@unstyled.register(Calls)
def _calls(calls: Calls) -> str:
    return "\n".join(map(unstyled, calls.records)) or _section("calls", "<p>No calls.</p>")


@unstyled.register(Summary)
def _summary(summary: Summary) -> str:
    return _section("summary", _pairs("All calls", summary_facts(summary)))


@unstyled.register(Failure)
def _failure(failure: Failure) -> str:
    return _section("failure", _pairs("Failure", failure_facts(failure)))


@unstyled.register(FallbackPolicy)
def _policy(policy: FallbackPolicy) -> str:
    chain = [
        _row(*target_facts(position, target)) for position, target in enumerate(policy.targets)
    ]
    caption = _text(f"Policy of agent {plain(policy.agent)}")
    options = option_facts(policy)
    told = _pairs("Options", options) if options else "<p>All options have their defaults.</p>"
    return _section("policy", _table(caption, TARGET_HEADS, chain) + told)


def _attempt(span: Span) -> str:
    each = span.attempt
    mark = mark_of(each)
    took, waited = duration(each.seconds), duration(each.wait)
    cells = [
        f"<td>{each.number}</td>",
        f'<th scope="row">{_name(each.target)}</th>',
        f"<td>{_marked(mark, said(each))}</td>",
        f"<td{_FIGURE}>{waited}</td>",
        f"<td{_FIGURE}>{took}</td>",
    ]
    told = f"starts at {duration(each.started)}, takes {took}"
    bar = _piece(f"hf-bar hf-{mark.name}", min(span.start, 0.99), span.length)
    wait = _piece("hf-wait", span.start - span.waited, span.waited) if span.waited else ""
    track = f'<span class="hf-track" role="img" aria-label="{told}">{wait}{bar}</span>'
    return f'<tr>{"".join(cells)}<td class="hf-time">{track}</td></tr>'


def _piece(classes: str, start: float, length: float) -> str:
    return f'<span class="{classes}" style="left:{start:.2%};width:{length:.2%}"></span>'


def _pairs(caption: str, facts: Facts) -> str:
    rows = [
        f'<tr><th scope="row">{_text(label)}</th><td>{_name(words)}</td></tr>'
        for label, words in facts
    ]
    return f'<table class="hf-table hf-narrow"><caption>{caption}</caption>{"".join(rows)}</table>'


def _table(caption: str, heads: Iterable[str], rows: Iterable[str], last: str = "") -> str:
    columns = "".join(
        f'<th scope="col"{_FIGURE if head in FIGURES else ""}>{head}</th>' for head in heads
    )
    return (
        f'<table class="hf-table"><caption>{caption}</caption>'
        f"<thead><tr>{columns}{last}</tr></thead><tbody>{''.join(rows)}</tbody></table>"
    )


def _row(first: str, *cells: str) -> str:
    return f"<tr><td>{first}</td>{''.join(f'<td>{_name(cell)}</td>' for cell in cells)}</tr>"


def _section(what: str, inside: str) -> str:
    return f'<div class="hf" role="group" aria-label="{what}" dir="ltr">{inside}</div>'


def _marked(mark: Mark, words: str) -> str:
    return f'<span aria-hidden="true">{mark.sign}</span> {_text(words)}'


def _name(words: str) -> str:
    # A name that is written from right to left leaves what stands beside it alone.
    return f"<bdi>{_text(words)}</bdi>"


def _text(words: str) -> str:
    return escape(plain(words))
