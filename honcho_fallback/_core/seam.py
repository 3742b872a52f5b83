"""Where a text that broke off and the text that goes on with it meet.

A model that is given the beginning of its answer writes what follows. Some say the last words
once more, some begin at the beginning, and a provider may want the beginning without the white
space at its end, which then comes again. What came twice is dropped where it is certain that it
did: all of the beginning, white space, or ``_CERTAIN`` characters that do not repeat themselves,
as the cells of a table do. In doubt nothing is: a word twice can be read, a missing one cannot.
"""

from __future__ import annotations

_CERTAIN = 20
_SHORTEST = 4  # of a beginning that is said again in whole


def repeated(before: str, after: str, *, is_whole: bool) -> int | None:
    """Count the characters that a text repeats of the one before; None where more will tell."""
    if not is_whole:
        at = before.find(after)
        may_be_certain = at == 0 or (at > 0 and len(before) - at >= _CERTAIN)
        if not after.strip() or may_be_certain:
            return None
    for length in range(min(len(before), len(after)), 0, -1):
        again = after[:length]
        if not before.endswith(again):
            continue
        is_all = length == len(before) >= _SHORTEST
        if is_all or again.isspace() or (length >= _CERTAIN and not _repeats_itself(again)):
            return length
    return 0


def _repeats_itself(text: str) -> bool:
    return any(text[length:] == text[:-length] for length in range(1, len(text) // 2 + 1))
