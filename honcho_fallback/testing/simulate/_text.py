"""A comparison in the terminal: a table, and two lines over time for each policy."""

from __future__ import annotations

from math import log
from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from honcho_fallback.testing.simulate._figures import heads, rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console, ConsoleOptions, RenderResult

    from honcho_fallback.testing.simulate._report import Comparison

_BLOCKS = "▁▂▃▄▅▆▇█"
_PLAIN = "_.-=+*#@"  # for a terminal without UTF-8


class View:
    """Draw a comparison with rich.

    Args:
        comparison: What is drawn.
    """

    def __init__(self, comparison: Comparison) -> None:
        self._comparison = comparison

    def __rich_console__(self, _: Console, options: ConsoleOptions) -> RenderResult:
        comparison = self._comparison
        yield Text.assemble((comparison.scenario, "bold"), "  ", comparison.summary)
        yield _table(comparison)
        yield from _plots(comparison, _PLAIN if options.ascii_only else _BLOCKS)
        told = dict.fromkeys(line for one in comparison.reports for line in one.assumptions)
        for line in told:
            yield Text(f"taken for granted: {line}", style="dim")


def _table(comparison: Comparison) -> Table:
    table = Table(box=None, padding=(0, 1), pad_edge=False)
    for number, head in enumerate(heads(comparison)):
        table.add_column(Text(head), justify="right" if number else "left", overflow="fold")
    for row in rows(comparison):
        # Escaped by Text: a policy's name may look like markup.
        table.add_row(*map(Text, row))
    return table


def _plots(comparison: Comparison, levels: str) -> RenderResult:
    lowest, highest = comparison.span()
    scale = log(highest / lowest) or 1.0
    for title, of in (
        ("answered, over time (a full bar is all of them)", _success),
        (f"p95 over time, {lowest:.1f} to {highest:.1f} s on a log scale", _slowness),
    ):
        yield Text(f"\n{title}", style="bold")
        table = Table.grid(padding=(0, 1))
        table.add_column()
        table.add_column(no_wrap=True)
        for one in comparison.reports:
            told = [of(window.success_rate, window.p95, lowest, scale) for window in one.windows]
            table.add_row(Text(one.name), _line(told, levels))
        yield table


def _success(rate: float | None, _p95: float | None, _lowest: float, _scale: float) -> float | None:
    return rate


def _slowness(_rate: float | None, p95: float | None, lowest: float, scale: float) -> float | None:
    return None if p95 is None else log(max(p95, lowest) / lowest) / scale


def _line(shares: Sequence[float | None], levels: str) -> Text:
    top = len(levels) - 1
    # Rounded down: only what is complete reaches the top.
    return Text("".join(" " if one is None else levels[int(one * top)] for one in shares))
