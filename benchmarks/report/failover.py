"""The tables of what reached a dead primary, and when the fallback was asked."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING, Any

from failover.measure import TIMEOUT
from failover.provider import HANG, MODES, OK
from report.markdown import table

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

MOST_REQUESTS = 1
MOST_MILLISECONDS = 10.0
NOTHING = "-"


def duration(milliseconds: float) -> str:
    """Write milliseconds below a second, seconds above."""
    if milliseconds < 1000:
        return f"{milliseconds:.1f} ms"
    return f"{milliseconds / 1000:.3f} s"


def spread(milliseconds: Sequence[float | None]) -> str:
    """Write the median and the worst of what there is."""
    told = [one for one in milliseconds if one is not None]
    if not told:
        return NOTHING
    return f"{duration(statistics.median(told))} ({duration(max(told))})"


def most(cell: dict[str, Any]) -> float:
    """Return how many milliseconds a row of ours may take."""
    return MOST_MILLISECONDS + (TIMEOUT * 1000 if cell["mode"] == HANG else 0)


def misses(cell: dict[str, Any]) -> bool:
    """Tell whether a cell of ours is beyond what is to be reached, by its median."""
    gaps = [one for one in cell["gap"] if one is not None]
    return bool(
        cell["errors"]
        or not gaps
        or max(cell["requests"]) > MOST_REQUESTS
        or statistics.median(gaps) > most(cell)
    )


def gap_table(cells: Iterable[dict[str, Any]]) -> str:
    """Requests at the dead primary, and the time since its first failing answer."""
    by_place = {(cell["subject"], cell["mode"]): cell for cell in cells}
    rows = [
        [_name(by_place, subject), *(_gap_cell(by_place.get((subject, mode))) for mode in MODES)]
        for subject in _subjects(by_place)
    ]
    return table(["", *MODES], rows)


def whole_table(cells: Iterable[dict[str, Any]]) -> str:
    """The time since the call's start, and where the primary is healthy until its own request."""
    by_place = {(cell["subject"], cell["mode"]): cell for cell in cells}
    rows = [
        [
            _name(by_place, subject),
            *(
                spread(found["whole"]) if (found := by_place.get((subject, mode))) else NOTHING
                for mode in (OK, *MODES)
            ),
        ]
        for subject in _subjects(by_place)
    ]
    return table(["", "healthy", *MODES], rows)


def missed(cells: Iterable[dict[str, Any]]) -> list[str]:
    """Name the cells of ours that are beyond what is to be reached."""
    return [
        f"{cell['subject']}, {cell['mode']}: {max(cell['requests'])} requests, "
        f"{spread(cell['gap'])}"
        for cell in cells
        if cell["ours"] and cell["mode"] != OK and misses(cell)
    ]


def _subjects(by_place: dict[tuple[str, str], dict[str, Any]]) -> list[str]:
    return [*dict.fromkeys(subject for subject, _ in by_place)]


def _name(by_place: dict[tuple[str, str], dict[str, Any]], subject: str) -> str:
    ours = any(cell["ours"] for (name, _), cell in by_place.items() if name == subject)
    return f"**{subject}**" if ours else subject


def _gap_cell(cell: dict[str, Any] | None) -> str:
    if cell is None:
        return NOTHING
    requests = "-".join(str(one) for one in sorted({min(cell["requests"]), max(cell["requests"])}))
    said = f"{requests}: {spread(cell['gap'])}"
    return f"{said} {', '.join(cell['errors'])}".strip()
