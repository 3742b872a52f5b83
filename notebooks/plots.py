"""What the notebooks draw: for light and dark pages, the same figures in the same way."""

from __future__ import annotations

from typing import TYPE_CHECKING

import matplotlib as mpl
from matplotlib.figure import Figure
from matplotlib.rcsetup import cycler
from matplotlib_inline.backend_inline import set_matplotlib_formats

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from matplotlib.axes import Axes

    from honcho_fallback import AttemptRecord, CallRecord

GREY, ORANGE, BLUE, GREEN = "#808080", "#d55e00", "#1f88d0", "#009e73"  # near Okabe and Ito's
PINK = "#cc79a7"
FAILED, PRIMARY, FALLBACK = (ORANGE, "x"), (BLUE, "o"), (GREEN, "s")
LABELS = {FAILED: "failed", PRIMARY: "primary answered", FALLBACK: "fallback answered"}

# A picture without a background, in colours that stand out from white and from black alike.
# Jupyter shows PNG also in a notebook that was not run here, SVG only in one that was.
set_matplotlib_formats("retina")  # type: ignore[no-untyped-call] # it has no annotations
mpl.rcParams.update(
    {
        "axes.edgecolor": GREY,
        "axes.facecolor": "none",
        "axes.labelcolor": GREY,
        "axes.prop_cycle": cycler(
            color=[BLUE, GREEN, ORANGE, PINK], linestyle=["-", "--", "-.", ":"]
        ),
        "figure.facecolor": "none",
        "legend.fontsize": "small",
        "legend.frameon": False,
        "text.color": GREY,
        "xtick.color": GREY,
        "ytick.color": GREY,
    }
)


def axes(height: float = 3.0) -> Axes:
    """Return axes in a figure of their own, which a cell shows by its last line.

    Figures made through pyplot would be shown with a background of the notebook's choice.

    Args:
        height: Of the figure, in inches.
    """
    return Figure(figsize=(7.5, height)).subplots()


def shade(drawing: Axes, start: float, end: float, label: str, alpha: float = 0.3) -> None:
    """Mark from where to where something is wrong."""
    drawing.axvspan(start, end, color=GREY, alpha=alpha, linewidth=0, label=label)


def shown(drawing: Axes) -> Figure | None:
    """Return the figure, with the legend beside the data if anything has a label."""
    if drawing.get_legend_handles_labels()[0]:
        drawing.legend(loc="upper left", bbox_to_anchor=(1, 1))
    return drawing.get_figure(root=True)


def mark(attempt: AttemptRecord) -> tuple[str, str]:
    """Return the colour and the marker of an attempt."""
    return FAILED if attempt.kind else FALLBACK if attempt.is_fallback else PRIMARY


def bars(title: str, figures: Mapping[str, float], unit: str, spec: str = "%g") -> Figure | None:
    """Draw a bar with its number for each figure."""
    drawing = axes(0.8 + 0.4 * len(figures))
    drawing.bar_label(drawing.barh(list(figures), list(figures.values())), fmt=spec, padding=4)
    drawing.set(title=title, xlabel=unit, xlim=(0, 1.1 * max(figures.values())))
    drawing.invert_yaxis()
    return shown(drawing)


def rounds(title: str, loops: Mapping[str, Sequence[CallRecord]], down: int) -> Figure | None:
    """Draw the attempts of each loop, call by call; the primary is down for the first few."""
    drawing = axes(1.2 + 0.4 * len(loops))
    shade(drawing, 0.7, down + 0.7, "primary down")
    labels = dict(LABELS)  # each stands in the legend once
    for loop, records in loops.items():
        for number, record in enumerate(records, start=1):
            for place, attempt in enumerate(record.attempts):
                colour, marker = mark(attempt)
                label, at = labels.pop((colour, marker), None), number + 0.3 * place
                drawing.scatter(at, loop, color=colour, marker=marker, label=label)
        drawing.set_xticks(range(1, len(records) + 1))
    drawing.set(title=title, xlabel="call", ylim=(len(loops) - 0.5, -0.5))
    return shown(drawing)


def timeline(record: CallRecord) -> Figure | None:
    """Draw when each target of a call was asked, and for how long."""
    drawing = axes(0.8 + 0.4 * len(record.attempts))
    for attempt in record.attempts:
        name, length = f"{attempt.number}. {attempt.target}", 1000 * attempt.seconds
        bar = drawing.barh(name, length, left=1000 * attempt.started, color=mark(attempt)[0])
        drawing.bar_label(bar, [f"{attempt.kind or 'answered'}, {length:.0f} ms"], padding=4)
    drawing.set(xlabel="ms after the call's start", xlim=(0, 1400 * record.seconds))
    drawing.invert_yaxis()
    return shown(drawing)
