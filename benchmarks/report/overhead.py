"""The table of what a fallback layer adds to a call, all peers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from report.markdown import table

if TYPE_CHECKING:
    from collections.abc import Iterable

_HEAD = ("", "bare call, us", "happy path, added us", "first failover, added us")


def overhead_table(figures: Iterable[dict[str, Any]]) -> str:
    """Write the added medians, a row per subject in the order in which they came."""
    rows = [
        [
            f"**{one['subject']}**" if one["ours"] else one["subject"],
            f"{one['floor']:.1f}",
            f"{one['happy']:.1f}",
            f"{one['failover']:.1f}",
        ]
        for one in figures
    ]
    return table(_HEAD, rows)
