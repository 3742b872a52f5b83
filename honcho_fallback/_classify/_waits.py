"""How long the provider asks to wait: headers, and the bodies that say it instead."""

# What is read here has whatever shape a stranger gave it; what comes out is typed.
# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false

from __future__ import annotations

import math
import re
import time
from datetime import datetime
from email.utils import parsedate_to_datetime
from typing import Any, NamedTuple

from honcho_fallback._classify._tables import WORDS

_LEADS = WORDS["wait_leads"]
_DURATION = re.compile(
    r"(?: about)?((?:[ ,]{0,2}\d+(?:\.\d+)? ?"
    r"(?:ms|milliseconds?|d(?:ays?)?|h(?:ours?|rs?)?|m(?:in(?:ute)?s?)?|s(?:ec(?:ond)?s?)?)"
    r"(?![a-z]))+)"
)
_PART = re.compile(r"(\d+(?:\.\d+)?) ?(ms|mi?l?|d|h|m|s)")
_UNIT = {"ms": 0.001, "mil": 0.001, "d": 86400.0, "h": 3600.0, "mi": 60.0, "m": 60.0, "s": 1.0}
_WANTED = frozenset({"retry-after", "retry-after-ms", "x-should-retry"})
_LENGTHS = frozenset(len(name) for name in _WANTED)
_RESETS = WORDS["reset_headers"]
_LIMITS = frozenset((*_RESETS, *(name.replace("reset", "remaining") for name in _RESETS)))
_SAID = {"true": True, "false": False}
_HOLDERS = frozenset(WORDS["wait_holders"])
_FIELDS = frozenset(WORDS["wait_fields"])


class Waits(NamedTuple):
    """Hold what the provider said about asking again.

    Args:
        seconds: How long to wait, or None.
        retry: What ``x-should-retry`` says, or None.
    """

    seconds: float | None
    retry: bool | None


def read_waits(headers: Any, body: Any) -> Waits:
    """Read when and whether to ask again: headers first, then the body.

    Args:
        headers: The answer's headers, in whatever mapping.
        body: The parsed body.
    """
    found = _wanted(headers) if headers else {}
    seconds = _number(found.get("retry-after-ms"))
    if seconds is not None:
        seconds /= 1000
    elif stated := found.get("retry-after"):
        seconds = _number(stated)
        if seconds is None:
            seconds = _date(stated)
    if seconds is None and isinstance(body, (dict, list)):
        seconds = _in_body(body, 0)
    if seconds is None and headers:
        seconds = _reset(_wanted(headers, _LIMITS))
    return Waits(seconds, _SAID.get(found.get("x-should-retry", "").strip().lower()))


def _reset(found: dict[str, str]) -> float | None:
    """Tell when the limits that are used up are filled again; the longest of them counts."""
    waits = (
        _until(found[name])
        for name in _RESETS
        if name in found and found.get(name.replace("reset", "remaining")) == "0"
    )
    return max((wait for wait in waits if wait is not None), default=None)


def _until(value: str) -> float | None:
    parts = _PART.findall(value)
    number = _number(value)
    if number is not None:  # seconds, or a time since the epoch
        return number if number < 1e9 else max(0.0, number - time.time())
    if parts and value[0].isdigit() and "T" not in value:  # 6m0s
        return sum(float(amount) * _UNIT[unit] for amount, unit in parts)
    try:
        return max(0.0, datetime.fromisoformat(value).timestamp() - time.time())
    except (ValueError, OverflowError):
        return None


def _wanted(headers: Any, wanted: frozenset[str] = _WANTED) -> dict[str, str]:
    """Pick some headers in one pass; a lookup in httpx's own mapping costs more."""
    lengths = _LENGTHS if wanted is _WANTED else frozenset(map(len, wanted))
    found: dict[str, str] = {}
    try:
        raw = getattr(headers, "raw", None)
        pairs = raw if isinstance(raw, list) else headers.items()
        for key, value in pairs:
            if len(key) in lengths:
                name = _text(key).lower()
                if name in wanted:
                    found.setdefault(name, _text(value))
    except Exception:  # noqa: BLE001  an odd mapping has no headers
        return {}
    return found


def _text(value: Any) -> str:
    return value.decode("latin-1") if isinstance(value, bytes) else str(value)


def in_text(text: str) -> float | None:
    """Read "try again in 9m38.5s" and its like, in seconds, or None.

    Args:
        text: Lower case.
    """
    for lead in _LEADS:
        at = text.find(lead)
        if at < 0:
            continue
        found = _DURATION.match(text, at + len(lead))
        if found is not None:
            return sum(float(amount) * _UNIT[unit] for amount, unit in _PART.findall(found[1]))
    return None


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) and number >= 0 else None


def _date(value: str) -> float | None:
    try:
        return max(0.0, parsedate_to_datetime(value).timestamp() - time.time())
    except (ValueError, TypeError, OverflowError, IndexError):
        return None


def _in_body(body: Any, depth: int) -> float | None:
    if depth > 3:
        return None
    if isinstance(body, list):
        found = (_in_body(item, depth + 1) for item in body[:8])
        return next((f for f in found if f is not None), None)
    if not isinstance(body, dict):
        return None
    holders: list[Any] = []
    for key, value in body.items():
        if key in _FIELDS:
            number = _number(value.removesuffix("s") if isinstance(value, str) else value)
            if number is not None:
                return number
        elif key in _HOLDERS and isinstance(value, (dict, list)):
            holders.append(value)
    found = (_in_body(value, depth + 1) for value in holders)
    return next((f for f in found if f is not None), None)
