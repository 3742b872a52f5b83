"""Small pictures for notebooks, drawn as SVG without a library.

Colours are Okabe and Ito's, which colour-blind people can tell apart; shapes say the same again.
Each picture brings its own light ground, so it reads on a dark page as well.
"""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from honcho_fallback import AttemptRecord, CallRecord

_WIDTH, _LABELS, _ROW, _BAR = 720, 170, 30, 340
_CALL, _ATTEMPT, _HALF = 40, 14, 6
_PRIMARY, _FALLBACK = "P", "F"
_BLUE, _GREEN, _ORANGE, _INK, _GROUND = "#0072b2", "#009e73", "#d55e00", "#222222", "#ffffff"


@dataclass(frozen=True, slots=True)
class Chart:
    """Hold a picture that a notebook shows by itself.

    Args:
        svg: The picture.
        text: The same in words, for readers who cannot see the picture.
    """

    svg: str
    text: str

    def __repr__(self) -> str:
        return self.text

    def _repr_svg_(self) -> str:
        return self.svg


def bar_chart(title: str, bars: Mapping[str, float], unit: str = "") -> Chart:
    """Draw one bar for each figure, the largest over the whole width.

    Args:
        title: What the figures are.
        bars: The figures, by label.
        unit: What stands behind each figure, such as ``s``.
    """
    most = max(bars.values(), default=0) or 1
    figures = {label: f"{figure:g} {unit}".strip() for label, figure in bars.items()}
    drawn: list[str] = []
    for row, (label, figure) in enumerate(bars.items()):
        top = _ROW * (row + 1) + 10
        width = _BAR * figure / most
        drawn += [
            _text(_LABELS - 10, top + 14, label, anchor="end"),
            f'<rect x="{_LABELS}" y="{top}" width="{width:.0f}" height="20" fill="{_BLUE}"/>',
            _text(_LABELS + width + 8, top + 14, figures[label]),
        ]
    words = ", ".join(f"{label} {figure}" for label, figure in figures.items())
    return _chart(title, drawn, len(bars), words)


def attempts_chart(title: str, loops: Mapping[str, Sequence[CallRecord]]) -> Chart:
    """Draw a line for each loop and a column for each call, with failures and the answer.

    Args:
        title: What is compared.
        loops: The records of each loop's calls in order, by label.
    """
    drawn: list[str] = []
    for row, (label, records) in enumerate(loops.items()):
        y = _ROW * (row + 1) + 19
        drawn.append(_text(_LABELS - 10, y + 5, label, anchor="end"))
        drawn += [
            _mark(_LABELS + 12 + _CALL * column + _ATTEMPT * depth, y, attempt)
            for column, record in enumerate(records)
            for depth, attempt in enumerate(record.attempts)
        ]
    x, y = _LABELS + 12, _ROW * (len(loops) + 1) + 19
    for words, shape in (
        ("failed", None),
        ("primary answered", _PRIMARY),
        ("fallback answered", _FALLBACK),
    ):
        drawn += [_shape(x, y, shape), _text(x + 14, y + 5, words)]
        x += 50 + 7 * len(words)
    rows = "; ".join(
        f"{label}: " + " ".join(_letters(record.attempts) for record in records)
        for label, records in loops.items()
    )
    words = f"x failed, P primary, F fallback. {rows}"
    width = _LABELS + 12 + _CALL * max(map(len, loops.values()), default=0)
    return _chart(title, drawn, len(loops) + 1, words, max(_WIDTH, width))


def _letters(attempts: Iterable[AttemptRecord]) -> str:
    return "".join(
        "x" if one.kind else _FALLBACK if one.is_fallback else _PRIMARY for one in attempts
    )


def _mark(x: float, y: float, attempt: AttemptRecord) -> str:
    role = _FALLBACK if attempt.is_fallback else _PRIMARY
    return _shape(x, y, None if attempt.kind else role)


def _shape(x: float, y: float, answered_by: str | None) -> str:
    left, top, right, bottom = x - _HALF, y - _HALF, x + _HALF, y + _HALF
    if answered_by is None:
        cross = f"M{left} {top}L{right} {bottom}M{left} {bottom}L{right} {top}"
        return f'<path d="{cross}" stroke="{_ORANGE}" stroke-width="3"/>'
    if answered_by == _PRIMARY:
        return f'<circle cx="{x}" cy="{y}" r="{_HALF}" fill="{_BLUE}"/>'
    side = 2 * _HALF
    place = f'x="{left}" y="{top}" width="{side}" height="{side}"'
    return f'<rect {place} fill="{_GREEN}"/>'


def _text(x: float, y: float, text: str, *, anchor: str = "start", weight: str = "normal") -> str:
    place = f'x="{x:.0f}" y="{y:.0f}" text-anchor="{anchor}" font-weight="{weight}"'
    return f'<text {place} fill="{_INK}">{escape(text)}</text>'


def _chart(title: str, drawn: Sequence[str], rows: int, words: str, width: int = _WIDTH) -> Chart:
    height = _ROW * (rows + 1) + 20
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="14" role="img">'
    )
    lines = [
        head,
        f"<title>{escape(title)}: {escape(words)}</title>",
        f'<rect width="{width}" height="{height}" rx="6" fill="{_GROUND}"/>',
        _text(12, 24, title, weight="bold"),
        *drawn,
        "</svg>",
    ]
    return Chart("\n".join(lines), f"{title}: {words}")
