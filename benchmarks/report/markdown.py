"""Tables and blocks of a Markdown page."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Write a table whose first column is text and whose others are figures.

    Raises:
        ValueError: A row is shorter or longer than the head.
    """
    lines = [_row(head), _row(["---", *["---:"] * (len(head) - 1)])]
    for row in rows:
        if len(row) != len(head):
            raise ValueError(f"{len(row)} cells under {len(head)} columns: {row}")
        lines.append(_row(row))
    return "\n".join(lines)


def block(text: str) -> str:
    """Show what a program printed as it was printed."""
    return f"```text\n{text.strip()}\n```"


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
