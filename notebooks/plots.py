"""How the notebooks draw: readable on light and dark pages, the same figures in the same way."""

from __future__ import annotations

from typing import TYPE_CHECKING

import matplotlib.pyplot as plt

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from honcho_fallback import AttemptRecord, CallRecord

GREY, ORANGE, BLUE, GREEN = "#808080", "#d55e00", "#0072b2", "#009e73"  # Okabe and Ito's
FAILED, PRIMARY, FALLBACK = (ORANGE, "x"), (BLUE, "o"), (GREEN, "s")
LABELS = {FAILED: "failed", PRIMARY: "primary answered", FALLBACK: "fallback answered"}
plt.rc("axes", edgecolor=GREY, labelcolor=GREY, facecolor="none")
plt.rc("text", color=GREY)
plt.rc("xtick", color=GREY)
plt.rc("ytick", color=GREY)
plt.rc("figure", facecolor="none")
plt.rc("legend", frameon=False)
plt.rc("svg", fonttype="none", hashsalt="honcho_fallback")


def mark(attempt: AttemptRecord) -> tuple[str, str]:
    """Return the colour and the marker of an attempt."""
    return FAILED if attempt.kind else FALLBACK if attempt.is_fallback else PRIMARY


def bars(title: str, figures: Mapping[str, float], unit: str) -> None:
    """Draw a bar with its number for each figure."""
    _, axes = plt.subplots(figsize=(7, 0.8 + 0.4 * len(figures)))
    axes.bar_label(axes.barh(list(figures), list(figures.values()), color=BLUE), padding=4)
    axes.set(title=title, xlabel=unit, xlim=(0, 1.1 * max(figures.values())))
    axes.invert_yaxis()


def rounds(title: str, loops: Mapping[str, Sequence[CallRecord]], down: int) -> None:
    """Draw the attempts of each loop, call by call; the primary is down for the first few."""
    _, axes = plt.subplots(figsize=(7, 1.2 + 0.4 * len(loops)))
    axes.axvspan(0.7, down + 0.7, color=GREY, alpha=0.2, linewidth=0, label="primary down")
    labels = dict(LABELS)  # each stands in the legend once
    for loop, records in loops.items():
        for number, record in enumerate(records, start=1):
            for place, attempt in enumerate(record.attempts):
                colour, marker = mark(attempt)
                label, at = labels.pop((colour, marker), None), number + 0.3 * place
                axes.scatter(at, loop, color=colour, marker=marker, label=label)
        axes.set_xticks(range(1, len(records) + 1))
    axes.set(title=title, xlabel="call", ylim=(len(loops) - 0.5, -0.5))
    axes.legend(ncols=4, loc="upper center", bbox_to_anchor=(0.5, -0.4), fontsize="small")


def timeline(record: CallRecord) -> None:
    """Draw when each target of a call was asked, and for how long."""
    _, axes = plt.subplots(figsize=(7, 0.8 + 0.4 * len(record.attempts)))
    for attempt in record.attempts:
        name, length = f"{attempt.number}. {attempt.target}", 1000 * attempt.seconds
        bar = axes.barh(name, length, left=1000 * attempt.started, color=mark(attempt)[0])
        axes.bar_label(bar, [f"{attempt.kind or 'answered'}, {length:.0f} ms"], padding=4)
    axes.set(xlabel="ms after the call's start", xlim=(0, 1400 * record.seconds))
    axes.invert_yaxis()
