"""A comparison as HTML: a table and two plots in SVG, escaped, with nothing from elsewhere."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from honcho_fallback.testing.simulate._figures import assumptions, heads, note, plots, rows

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from honcho_fallback.testing.simulate._figures import Plot
    from honcho_fallback.testing.simulate._report import Comparison

# Colours that keep a contrast of 3 to 1 on white and on dark grey: four of Okabe and Ito's, which
# colour-blind people can tell apart, and two more; each has a pattern of dashes of its own.
_LINES = (
    ("#0072b2", ""),
    ("#d55e00", "7 3"),
    ("#009e73", "2 3"),
    ("#cc79a7", "9 3 2 3"),
    ("#8a6d00", "4 2"),
    ("#7f7f7f", "1 2"),
)
_WIDTH, _HEIGHT, _LEFT, _TOP = 720, 150, 52, 10


def fragment(comparison: Comparison) -> str:
    """Return a part of a page, for a notebook."""
    return "".join(
        (
            '<div style="font-family:system-ui,sans-serif;font-size:14px">',
            f"<h3>{escape(comparison.scenario)}</h3><p>{escape(comparison.summary)}</p>",
            _table(comparison),
            f"<p>{escape(note(comparison))}</p>",
            *map(_plot, plots(comparison)),
            *(f"<p>taken for granted: {escape(line)}</p>" for line in assumptions(comparison)),
            "</div>",
        )
    )


def page(comparison: Comparison) -> str:
    """Return a page that stands alone."""
    return (
        '<!DOCTYPE html><html lang="en"><head><meta charset="utf-8"/>'
        '<meta name="color-scheme" content="light dark"/>'
        '<meta name="viewport" content="width=device-width"/>'
        f"<title>{escape(comparison.scenario)}</title></head>"
        f"<body>{fragment(comparison)}</body></html>\n"
    )


def _table(comparison: Comparison) -> str:
    cell = '<td style="text-align:{};padding:2px 10px 2px 0">{}</td>'
    title = '<th scope="col" style="text-align:{};padding-right:10px">{}</th>'
    head = "".join(
        title.format(_side(at), escape(name)) for at, name in enumerate(heads(comparison))
    )
    body = "".join(
        "<tr>"
        + "".join(cell.format(_side(at), escape(told)) for at, told in enumerate(row))
        + "</tr>"
        for row in rows(comparison)
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _side(column: int) -> str:
    return "right" if column else "left"


def _plot(plot: Plot) -> str:
    names = [name for name, _ in plot.lines]
    label = escape(f"{plot.title}, over time: {', '.join(names)}", quote=True)
    drawn = "".join(
        _curve(name, values, _LINES[number % len(_LINES)])
        for number, (name, values) in enumerate(plot.lines)
    )
    bottom, right = _TOP + _HEIGHT, _LEFT + _WIDTH
    return (
        f'<p style="margin:12px 0 2px"><b>{escape(plot.title)}</b> {_legend(names)}</p>'
        f'<svg role="img" aria-label="{label}" viewBox="0 0 {right + 10} {bottom + 18}"'
        f' width="100%" style="max-width:{right}px" fill="none" stroke="currentColor">'
        f'<path d="M{_LEFT} {_TOP}V{bottom}H{right}" stroke-opacity="0.5"/>'
        '<g stroke="none" fill="currentColor" font-size="11" text-anchor="end">'
        f'<text x="{_LEFT - 5}" y="{bottom}">{escape(plot.bottom)}</text>'
        f'<text x="{_LEFT - 5}" y="{_TOP + 8}">{escape(plot.top)}</text>'
        f'<text x="{right}" y="{bottom + 13}">{escape(plot.end)}</text></g>'
        f"{drawn}</svg>"
    )


def _curve(name: str, values: Sequence[float | None], pen: tuple[str, str]) -> str:
    return (
        f'<path d="{" ".join(_moves(values))}" {_stroke(*pen)} stroke-linejoin="round">'
        f"<title>{escape(name)}</title></path>"
    )


def _stroke(colour: str, dashes: str) -> str:
    dashed = f' stroke-dasharray="{dashes}"' if dashes else ""
    return f'stroke="{colour}" stroke-width="2" fill="none"{dashed}'


def _moves(values: Sequence[float | None]) -> Iterator[str]:
    step = _WIDTH / max(1, len(values) - 1)
    drawing = False
    for number, value in enumerate(values):
        if value is not None:
            x, y = _LEFT + number * step, _TOP + (1 - value) * _HEIGHT
            yield f"{'L' if drawing else 'M'}{x:.1f} {y:.1f}"
        drawing = value is not None


def _legend(names: Sequence[str]) -> str:
    return " ".join(
        '<span style="white-space:nowrap"><svg width="28" height="8" aria-hidden="true">'
        f'<path d="M0 4H28" {_stroke(*_LINES[number % len(_LINES)])}/></svg> {escape(name)}</span>'
        for number, name in enumerate(names)
    )
