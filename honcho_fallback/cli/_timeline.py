"""How the demo is shown: a line per attempt, to scale."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.panel import Panel
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from honcho_fallback import AttemptRecord, CallRecord
    from honcho_fallback.cli._played import Call, Check, Played

_BAR = 12
_LONGEST_SAID = 60
_HEADS = ("call", "asked", "said", "waited", "ms", "")


def show(console: Console, played: Played) -> None:
    """Print what became of one scenario.

    Args:
        console: Where to.
        played: What became of it.
    """
    console.print()
    scenario = played.scenario
    title = f"{scenario.title}: {scenario.fault}" if played.simulated else scenario.title
    console.print(Text(title, style="bold"))
    table = Table(box=None, padding=(0, 1), pad_edge=True)
    for head in _HEADS:
        table.add_column(
            head, justify="right" if head in {"call", "ms", "waited"} else "left", style="dim"
        )
    for number, call in enumerate(played.calls, start=1):
        for attempt in call.record.attempts:
            table.add_row(*_cells(number, call.record, attempt))
    console.print(table)
    _show_requests(console, played.calls)
    _show_said(console, played.calls)
    if played.log:
        _line(console, "log", f"{len(played.log)} x, first: {played.log[0]}")
    _show_checks(console, played.checks)


def show_end(console: Console, played: Sequence[Played]) -> None:
    """Print the last call's own explanation, and whether all went as it should.

    Args:
        console: Where to.
        played: Everything.
    """
    console.print()
    last = played[-1].calls[-1].record
    console.print(Panel(Text(last.explain()), title="record.explain()", title_align="left"))
    wrong = [one.scenario.name for one in played if not one.ok]
    if wrong:
        console.print(Text(f"Did not end as it should: {', '.join(wrong)}", style="bold red"))
    else:
        calls = sum(len(one.calls) for one in played)
        console.print(Text(f"All {calls} calls ended as they should.", style="bold green"))


def _cells(number: int, record: CallRecord, attempt: AttemptRecord) -> list[Text]:
    answered = attempt.kind is None
    said = "answered" if answered else _failure(attempt)
    said += f", {attempt.note}" if attempt.note else ""
    return [
        Text(str(number) if attempt.number == 1 else ""),
        Text(attempt.target),
        Text(said, style="green" if answered else "red"),
        Text(f"{attempt.wait:.2f} s" if attempt.wait else "0 s"),
        Text(f"{attempt.seconds * 1000:.0f}"),
        Text(_bar(record, attempt), style="green" if answered else "red"),
    ]


def _failure(attempt: AttemptRecord) -> str:
    told = " ".join(str(fact) for fact in (attempt.status, attempt.kind) if fact)
    asked = attempt.retry_after
    return told if asked is None else f"{told}, wait {asked:g} s"


def _bar(record: CallRecord, attempt: AttemptRecord) -> str:
    # Plain characters: a terminal without UTF-8 shows them too.
    scale = _BAR / (record.seconds or 1.0)
    start = min(int(attempt.started * scale), _BAR - 1)
    length = max(1, min(round(attempt.seconds * scale), _BAR - start))
    return " " * start + "=" * length


def _show_requests(console: Console, calls: Sequence[Call]) -> None:
    seen = [call.seen for call in calls if call.seen is not None]
    if seen:
        each = f" ({' + '.join(map(str, seen))})" if len(seen) > 1 else ""
        _line(console, "requests that the dead primary saw", f"{sum(seen)}{each}")


def _show_said(console: Console, calls: Sequence[Call]) -> None:
    last = calls[-1]
    if last.error:
        _line(console, "the caller got", last.error)
    else:
        said = " ".join(last.said.split())
        cut = said if len(said) <= _LONGEST_SAID else said[:_LONGEST_SAID] + "..."
        _line(console, "the answer", cut)


def _show_checks(console: Console, checks: Sequence[Check]) -> None:
    fine = [check.what for check in checks if check.ok]
    if fine:
        console.print(Text(f"  as it should: {', '.join(fine)}", style="green"))
    for check in checks:
        if not check.ok:
            told = f"  FAILED {check.what}: expected {check.expected!r}, found {check.found!r}"
            console.print(Text(told, style="bold red"))


def _line(console: Console, what: str, told: str) -> None:
    console.print(Text.assemble("  ", (f"{what}: ", "dim"), told))
