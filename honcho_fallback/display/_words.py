"""The words that page and terminal share."""

from __future__ import annotations

import unicodedata
from dataclasses import replace
from math import isfinite
from typing import TYPE_CHECKING

from honcho_fallback.display._marks import FAILED, mark_of

if TYPE_CHECKING:
    from honcho_fallback import AttemptRecord, CallRecord

MISSING = "-"
# A name that turns the rest of a line round, or tells a terminal what to do, is only shown.
_UNSAFE = {"Cc", "Cs"}
_TURNING = {"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"}


def undrawable(value: object) -> TypeError:
    """Return what is raised for a value that cannot be drawn."""
    return TypeError(
        f"cannot draw {type(value).__name__}: "
        "pass a CallRecord, Failure, FallbackPolicy, Calls or Summary"
    )


def plain(text: str) -> str:
    """Return a text on one line, without what could act on a terminal or on its surroundings."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(map(_safe, text))


def _safe(character: str) -> str:
    if character.isspace():
        return " "
    unsafe = unicodedata.category(character) in _UNSAFE
    return "\ufffd" if unsafe or unicodedata.bidirectional(character) in _TURNING else character


def duration(seconds: float) -> str:
    """Say how long something took, to three figures at most."""
    if not isfinite(seconds) or seconds < 0:
        return MISSING
    if not seconds:
        return "0 s"
    if seconds < 0.9995:
        return f"{seconds * 1000:.3g} ms" if seconds < 0.01 else f"{seconds * 1000:.0f} ms"
    if seconds < 59.95:
        return f"{seconds:.3g} s"
    if seconds < 86_400:
        minutes, rest = divmod(round(seconds), 60)
        hours, minutes = divmod(minutes, 60)
        return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"
    return f"{seconds / 86_400:,.1f} d" if seconds < 1e9 else f"{seconds:.3g} s"


def said(attempt: AttemptRecord) -> str:
    """Say in a few words what a target said."""
    told = [" ".join(str(fact) for fact in (attempt.status, attempt.kind or "answered") if fact)]
    if attempt.retry_after is not None:
        told.append(f"wait {attempt.retry_after:g} s")
    return plain(", ".join([*told, attempt.note] if attempt.note else told))


def headline(record: CallRecord) -> str:
    """Say how a call ended, in the record's own words."""
    return plain(replace(record, attempts=(), untried=()).explain())


def what_to_do(record: CallRecord) -> list[str]:
    """List what a person should do about a call that nobody answered, each thing once."""
    if record.answered_by is not None:
        return []
    failed = (each for each in record.attempts if mark_of(each) is FAILED)
    return list(dict.fromkeys(plain(each.next_action) for each in failed if each.next_action))
