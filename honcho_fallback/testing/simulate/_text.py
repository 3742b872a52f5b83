"""A comparison in the terminal: a table, and two lines over time for each policy."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from honcho_fallback.testing.simulate._figures import assumptions, heads, note, plots, rows

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
        yield Text(note(comparison), "dim")
        yield from _plots(comparison, _PLAIN if options.ascii_only else _BLOCKS)
        for line in assumptions(comparison):
            yield Text(f"taken for granted: {line}", style="dim")


def _table(comparison: Comparison) -> Table:
    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False)
    for number, head in enumerate(heads(comparison)):
        table.add_column(Text(head), justify="right" if number else "left", overflow="fold")
    for row in rows(comparison):
        # Escaped by Text: a policy's name may look like markup.
        table.add_row(*map(Text, row))
    return table


def _plots(comparison: Comparison, levels: str) -> RenderResult:
    for plot in plots(comparison):
        scale = f"{levels[0]} {plot.bottom}, {levels[-1]} {plot.top}"
        yield Text(f"\n{plot.title}, from 0 to {plot.end}: {scale}", "bold")
        table = Table.grid(padding=(0, 1))
        table.add_column()
        table.add_column(no_wrap=True)
        for name, values in plot.lines:
            table.add_row(Text(name), _line(values, levels))
        yield table


def _line(values: Sequence[float | None], levels: str) -> Text:
    top = len(levels) - 1
    # Rounded down: only what is complete reaches the top.
    return Text("".join(" " if one is None else levels[int(one * top)] for one in values))
