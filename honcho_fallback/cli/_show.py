"""Saved calls, drawn in the terminal or on a page."""

from __future__ import annotations

import sys
from collections import deque
from typing import TYPE_CHECKING, Any, get_args

import typer
from rich.text import Text

from honcho_fallback import Outcome
from honcho_fallback.display import Summary, rich_of, write_page
from honcho_fallback.records import read_records

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator
    from pathlib import Path

    from rich.console import Console

    from honcho_fallback import CallRecord
    from honcho_fallback.records import RecordError


class ShowError(ValueError):
    """Refuse an option that the records cannot have."""


def show(
    source: str,
    console: Console,
    *,
    html: Path | None,
    outcomes: Collection[str],
    last: int | None,
) -> int:
    """Read the calls, draw them, and return the exit status."""
    known: tuple[str, ...] = get_args(Outcome)
    for outcome in outcomes:
        if outcome not in known:
            raise ShowError(f"--outcome: got {outcome!r}; pass one of {', '.join(known)}")
    name = "standard input" if source == "-" else source
    broken: list[RecordError] = []

    def complain(error: RecordError) -> None:
        broken.append(error)
        typer.echo(f"honcho-fallback: {name}: {error}", err=True)

    lines = sys.stdin.buffer if source == "-" else source
    records = read_records(lines, broken=complain)
    chosen = (record for record in records if not outcomes or record.outcome in outcomes)
    kept = chosen if last is None else deque(chosen, last)
    if html is None:
        out: Any = sys.stdout
        if hasattr(out, "reconfigure"):
            out.reconfigure(errors="backslashreplace")  # a name may be in any script
        summary = Summary.of(_printed(kept, console))
        console.print(summary if summary.calls else Text(f"No calls in {name}."))
    else:
        calls = len(write_page(kept, html).records)
        console.print(Text(f"{html}: {calls} calls from {name}"), soft_wrap=True)
    return 1 if broken else 0


def _printed(records: Iterable[CallRecord], console: Console) -> Iterator[CallRecord]:
    for record in records:
        console.print(rich_of(record))
        console.print()
        yield record
