"""What an attempt came to, for the eye: a colour, a sign and a pattern each."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from honcho_fallback import FailureKind

if TYPE_CHECKING:
    from collections.abc import Mapping

    from honcho_fallback import AttemptRecord


class Mark(NamedTuple):
    """Hold the three signals; colour is never the only one.

    The colours are Okabe and Ito's (https://jfly.uni-koeln.de/color/), those of them that stand
    out from white and from black by 3:1 (WCAG 2.2, 1.4.11).

    Args:
        name: The class in the style sheet, which draws the pattern.
        colour: As in the style sheet.
        sign: In front of the words.
        fill: What a terminal draws a bar with: plain, for those without UTF-8.
    """

    name: str
    colour: str
    sign: str
    fill: str


ANSWERED = Mark("answered", "#009e73", "✓", "=")
FAILED = Mark("failed", "#d55e00", "✗", "x")
STOPPED = Mark("stopped", "#0072b2", "■", "o")

MARKS = (ANSWERED, FAILED, STOPPED)

OUTCOMES: Mapping[str, Mark] = {
    "running": STOPPED,
    "success": ANSWERED,
    "exhausted": FAILED,
    "rejected": FAILED,
    "cancelled": STOPPED,
    "interrupted": FAILED,
    "abandoned": STOPPED,
}


def mark_of(attempt: AttemptRecord) -> Mark:
    """Tell how an attempt is marked."""
    if attempt.kind is None:
        return ANSWERED
    return STOPPED if attempt.kind is FailureKind.CANCELLED else FAILED
