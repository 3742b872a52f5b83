"""How the demo is shown: its calls' time lines, and what is to be said of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.panel import Panel
from rich.text import Text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from honcho_fallback.cli._played import Call, Check, Played

_LONGEST_SAID = 60


def show(console: Console, played: Played) -> None:
    """Print what became of one scenario."""
    console.print()
    scenario = played.scenario
    title = f"{scenario.title}: {scenario.fault}" if played.simulated else scenario.title
    console.print(Text(title, style="bold"))
    for call in played.calls:
        console.print(call.record)
    _show_requests(console, played.calls)
    _show_said(console, played.calls)
    if played.log:
        _line(console, "log", f"{len(played.log)} x, first: {played.log[0]}")
    _show_checks(console, played.checks)


def show_end(console: Console, played: Sequence[Played]) -> None:
    """Print the last call's own explanation, and whether all went as it should."""
    console.print()
    last = played[-1].calls[-1].record
    console.print(Panel(Text(last.explain()), title="record.explain()", title_align="left"))
    wrong = [one.scenario.name for one in played if not one.ok]
    if wrong:
        console.print(Text(f"Did not end as it should: {', '.join(wrong)}", style="bold red"))
    else:
        calls = sum(len(one.calls) for one in played)
        console.print(Text(f"All {calls} calls ended as they should.", style="bold green"))


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
