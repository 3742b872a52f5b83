"""Figures on their way between processes: one JSON document a line, amid other output."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

# What a peer prints meanwhile is no figure.
_MARK = "figure: "


def write_lines(figures: Iterable[dict[str, Any]]) -> str:
    """Write figures, a line each."""
    return "\n".join(_MARK + json.dumps(one, sort_keys=True) for one in figures)


def read_lines(text: str) -> list[dict[str, Any]]:
    """Read what ``write_lines`` wrote; other lines are passed over.

    Raises:
        ValueError: A figure was cut off.
    """
    return [
        json.loads(line.removeprefix(_MARK))
        for line in text.splitlines()
        if line.startswith(_MARK)
    ]
