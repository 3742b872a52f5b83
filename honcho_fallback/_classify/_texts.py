"""Text patterns: read only where no code decides. A row names the statuses it may refine."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from honcho_fallback._classify._tables import read, values

if TYPE_CHECKING:
    from honcho_fallback._failure import FailureKind


class TextRow(NamedTuple):
    """Say what a message means.

    Args:
        kind: What it means.
        reason: One line for ``Failure.reason``.
        statuses: The statuses it refines; 0 stands for no status at all.
        needles: Any of these, lower case.
        also: And, where given, any of these.
        unless: And none of these.
        transient: Overrides the kind's answer.
    """

    kind: FailureKind
    reason: str
    statuses: frozenset[int]
    needles: tuple[str, ...]
    also: tuple[str, ...] = ()
    unless: tuple[str, ...] = ()
    transient: bool | None = None

    def refuses(self, text: str) -> bool:
        """Say whether a message that has one of the needles still does not fit.

        Args:
            text: Lower case.
        """
        return (bool(self.also) and not any(word in text for word in self.also)) or any(
            word in text for word in self.unless
        )


ROWS = tuple(TextRow(**values(row)) for row in read("texts")["text"])

# Split by status once, each needle with its rows in order: a filter over plain strings is what
# keeps a search cheap.
NEEDLES: dict[int, dict[str, tuple[TextRow, ...]]] = {
    status: {
        needle: tuple(r for r in ROWS if status in r.statuses and needle in r.needles)
        for row in ROWS
        if status in row.statuses
        for needle in row.needles
    }
    for status in sorted({status for row in ROWS for status in row.statuses})
}


def match(text: str, status: int) -> TextRow | None:
    """Find the first row that a message fits, or None.

    Args:
        text: Lower case.
        status: The status it may refine; 0 for none.
    """
    table = NEEDLES.get(status)
    if table is None:
        return None
    for needle in filter(text.__contains__, table):
        for row in table[needle]:
            if not row.refuses(text):
                return row
    return None


# A status written into a message by a wrapper that keeps no number.
STATED = re.compile(
    r"(?:error code|status code|status_code|http status|status|http|code)"
    r"['\"]?\s*[:=]?\s*[\"']?(?<!\d)([45]\d\d)(?![\d.])"
    r"|^\W{0,2}([45]\d\d)(?!\d)[ :,]"
    r"|\berror[ :(]{1,3}([45]\d\d)\b(?!\.)"
)
# The codes of an error document that a wrapper made part of its text.
QUOTED = re.compile(
    r"\\*[\"'](?:code|type|status|reason|__type)\\*[\"']\s*:\s*"
    r"\\*[\"']?([\w.\- ]{3,60}?)\\*[\"',}]"
)
