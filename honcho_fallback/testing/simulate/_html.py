"""A comparison as HTML: a table and two plots in SVG, escaped, with nothing from elsewhere."""

from __future__ import annotations

from html import escape
from math import log
from typing import TYPE_CHECKING, NamedTuple

from honcho_fallback.testing.simulate._figures import heads, rows

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from honcho_fallback.testing.simulate._report import Comparison

# Okabe and Ito's palette, which colour-blind people can tell apart and which reads on light and
# dark; each with a pattern of dashes of its own.
_LINES = (
    ("#0072b2", ""),
    ("#d55e00", "7 3"),
    ("#009e73", "2 3"),
    ("#cc79a7", "9 3 2 3"),
    ("#e69f00", "4 2"),
    ("#56b4e9", "1 2"),
)
_WIDTH, _HEIGHT, _LEFT, _TOP = 720, 150, 52, 10


class _Point(NamedTuple):
    """Stand at a place of a plot, both between 0 and 1."""

    x: float
    y: float


def fragment(comparison: Comparison) -> str:
    """Return a part of a page, for a notebook.

    Args:
        comparison: What is shown.
    """
    lowest, highest = comparison.span()
    scale = log(highest / lowest) or 1.0
    success = [
        [None if one.success_rate is None else one.success_rate for one in report.windows]
        for report in comparison.reports
    ]
    slow = [
        [None if one.p95 is None else log(max(one.p95, lowest) / lowest) / scale
         for one in report.windows]
        for report in comparison.reports
    ]
    names = [report.name for report in comparison.reports]
    return "".join(
        (
            '<div style="font-family:system-ui,sans-serif;font-size:14px">',
            f"<h3>{escape(comparison.scenario)}</h3><p>{escape(comparison.summary)}</p>",
            _table(comparison),
            _plot("answered", names, success, ("0 %", "100 %")),
            _plot("p95 in seconds, log scale", names, slow, (f"{lowest:.1f}", f"{highest:.1f}")),
            *_assumed(comparison),
            "</div>",
        )
    )


def page(comparison: Comparison) -> str:
    """Return a page that stands alone.

    Args:
        comparison: What is shown.
    """
    return (
        '<!DOCTYPE html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="color-scheme" content="light dark">'
        '<meta name="viewport" content="width=device-width">'
        f"<title>{escape(comparison.scenario)}</title></head>"
        f"<body>{fragment(comparison)}</body></html>\n"
    )


def _table(comparison: Comparison) -> str:
    cell = '<td style="text-align:{};padding:2px 10px 2px 0">{}</td>'
    head = "".join(
        f'<th scope="col" style="text-align:{_side(number)};padding-right:10px">{escape(name)}</th>'
        for number, name in enumerate(heads(comparison))
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


def _plot(
    title: str,
    names: Sequence[str],
    lines: Sequence[Sequence[float | None]],
    ends: tuple[str, str],
) -> str:
    label = escape(f"{title} over time: {', '.join(names)}", quote=True)
    drawn = "".join(
        _curve(name, shares, number) for number, (name, shares) in enumerate(zip(names, lines, strict=True))
    )
    bottom, full = _TOP + _HEIGHT, _LEFT + _WIDTH
    return (
        f'<p style="margin:12px 0 2px"><b>{escape(title)}</b> {_legend(names)}</p>'
        f'<svg role="img" aria-label="{label}" viewBox="0 0 {full + 10} {bottom + 10}"'
        f' width="100%" style="max-width:{full}px" fill="none" stroke="currentColor">'
        f'<path d="M{_LEFT} {_TOP}V{bottom}H{full}" stroke-opacity="0.5"/>'
        f'<g stroke="none" fill="currentColor" font-size="11" text-anchor="end">'
        f'<text x="{_LEFT - 5}" y="{bottom}">{escape(ends[0])}</text>'
        f'<text x="{_LEFT - 5}" y="{_TOP + 8}">{escape(ends[1])}</text></g>'
        f"{drawn}</svg>"
    )


def _curve(name: str, shares: Sequence[float | None], number: int) -> str:
    colour, dashes = _LINES[number % len(_LINES)]
    step = _WIDTH / max(1, len(shares) - 1)
    path = " ".join(_moves(shares, step))
    return (
        f'<path d="{path}" stroke="{colour}" stroke-width="2" stroke-dasharray="{dashes}"'
        f' stroke-linejoin="round"><title>{escape(name)}</title></path>'
    )


def _moves(shares: Sequence[float | None], step: float) -> Iterator[str]:
    drawing = False
    for number, share in enumerate(shares):
        if share is not None:
            x, y = _LEFT + number * step, _TOP + (1 - share) * _HEIGHT
            yield f"{'L' if drawing else 'M'}{x:.1f} {y:.1f}"
        drawing = share is not None


def _legend(names: Sequence[str]) -> str:
    return " ".join(
        f'<span style="white-space:nowrap"><svg width="28" height="8" aria-hidden="true">'
        f'<path d="M0 4H28" stroke="{colour}" stroke-width="2" stroke-dasharray="{dashes}"/></svg>'
        f" {escape(name)}</span>"
        for name, (colour, dashes) in zip(
            names, (_LINES[at % len(_LINES)] for at in range(len(names))), strict=True
        )
    )


def _assumed(comparison: Comparison) -> Iterator[str]:
    told = dict.fromkeys(line for one in comparison.reports for line in one.assumptions)
    for line in told:
        yield f"<p>taken for granted: {escape(line)}</p>"
