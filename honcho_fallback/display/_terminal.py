"""Draw with rich, in characters that every terminal has."""

from __future__ import annotations

from functools import singledispatch
from typing import TYPE_CHECKING

from rich.console import Group
from rich.table import Table
from rich.text import Text

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

    from rich.console import RenderableType

    from honcho_fallback.display._facts import Facts
    from honcho_fallback.display._spans import Span

_BAR = 20


@singledispatch
def drawn(value: object) -> RenderableType:
    """Return what rich prints."""
    raise undrawable(value)


@drawn.register(CallRecord)
def _record(record: CallRecord) -> RenderableType:
    whole, found = spans(record)
    table = _table(ATTEMPT_HEADS)
    _add_time(table, f"0 to {duration(whole)}")
    for span in found:
        table.add_row(Text(str(span.attempt.number)), *_cells(span))
    for name, why in record.untried:
        table.add_row("", Text(plain(name)), Text(f"never asked: {plain(why)}"))
    todo = [Text(f"  What to do: {each}") for each in what_to_do(record)]
    title = Text(headline(record), style=OUTCOMES[record.outcome].colour)
    return Group(title, table, *todo)


@drawn.register(Calls)
def _calls(calls: Calls) -> RenderableType:
    table = _table(("call", *ATTEMPT_HEADS[1:]))
    _add_time(table, "")
    for number, record in enumerate(calls.records, start=1):
        for place, span in enumerate(spans(record)[1]):
            table.add_row(Text("" if place else str(number)), *_cells(span))
    return table


@drawn.register(Summary)
def _summary(summary: Summary) -> RenderableType:
    return _pairs(summary_facts(summary))


@drawn.register(Failure)
def _failure(failure: Failure) -> RenderableType:
    return _pairs(failure_facts(failure))


@drawn.register(FallbackPolicy)
def _policy(policy: FallbackPolicy) -> RenderableType:
    chain = _table(TARGET_HEADS)
    for position, target in enumerate(policy.targets):
        chain.add_row(*map(Text, target_facts(position, target)))
    options = option_facts(policy)
    told = _pairs(options) if options else Text("All options have their defaults.", style="dim")
    return Group(Text(f"Policy of agent {plain(policy.agent)}", style="bold"), chain, told)


def _cells(span: Span) -> Iterable[Text]:
    each, mark = span.attempt, mark_of(span.attempt)
    yield Text(plain(each.target))
    yield Text(said(each), style=mark.colour)
    yield Text(duration(each.wait))
    yield Text(duration(each.seconds))
    # Half-open columns, at least one of them the bar's own.
    start = min(round(span.start * _BAR), _BAR - 1)
    end = max(round((span.start + span.length) * _BAR), start + 1)
    waited = min(round((span.start - span.waited) * _BAR), start) if span.waited else start
    yield Text.assemble(
        " " * waited, ("." * (start - waited), "dim"), (mark.fill * (end - start), mark.colour)
    )


def _table(heads: Iterable[str]) -> Table:
    table = Table(box=None, padding=(0, 1), pad_edge=True, header_style="dim")
    for head in heads:
        figure = head in FIGURES
        table.add_column(
            head, justify="right" if figure else "left", no_wrap=figure, overflow="fold"
        )
    return table


def _add_time(table: Table, head: str) -> None:
    table.add_column(head, no_wrap=True, min_width=_BAR)


def _pairs(facts: Facts) -> Table:
    table = Table.grid(padding=(0, 2))
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for label, words in facts:
        # Text: what looks like markup is none.
        table.add_row(Text(label), Text(words))
    return table
