"""How long the provider asks to wait: headers, and the bodies that say it instead."""

from __future__ import annotations

import math
import re
import time
from email.utils import parsedate_to_datetime
from typing import Any

_DURATION = re.compile(
    r"(?:(?:re)?try(?:ing)?(?: again)?|wait|resets?|reset after|available)"
    r"(?: again)? (?:in|after|for)(?: about)?((?: ?\d+(?:\.\d+)? ?"
    r"(?:ms|milliseconds?|d(?:ays?)?|h(?:ours?|rs?)?|m(?:in(?:ute)?s?)?|s(?:ec(?:ond)?s?)?)\b,?)+|"
    r" ?(?:\d+(?:\.\d+)?(?:ms|d|h|m|s))+)"
)
_PART = re.compile(r"(\d+(?:\.\d+)?) ?(ms|mi?l?|d|h|m|s)")
_UNIT = {"ms": 0.001, "mil": 0.001, "d": 86400.0, "h": 3600.0, "mi": 60.0, "m": 60.0, "s": 1.0}
_FIELDS = ("retry_after", "resets_in_seconds", "estimated_time", "retryDelay")


def header(headers: Any, name: str) -> str | None:
    """Read one header as text, from whatever mapping holds it.

    Args:
        headers: A mapping, case-insensitive or not.
        name: Lower case.
    """
    try:
        if isinstance(headers, dict):
            for key, value in headers.items():
                if isinstance(key, str) and key.lower() == name:
                    return _text(value)
            return None
        return _text(headers.get(name))
    except Exception:  # noqa: BLE001  an odd mapping has no headers
        return None


def _text(value: Any) -> str | None:
    if isinstance(value, bytes):
        return value.decode("latin-1")
    return str(value) if isinstance(value, (str, int, float)) else None


def retry_after(headers: Any, body: Any) -> float | None:
    """Say how many seconds the provider asked to wait, or None.

    Args:
        headers: The answer's headers.
        body: The parsed body.
    """
    if headers:
        millis = _number(header(headers, "retry-after-ms"))
        if millis is not None:
            return millis / 1000
        stated = header(headers, "retry-after")
        if stated:
            seconds = _number(stated)
            return seconds if seconds is not None else _date(stated)
    return _in_body(body, 0) if isinstance(body, (dict, list)) else None


def should_retry(headers: Any) -> bool | None:
    """Say what ``x-should-retry`` holds, or None.

    Args:
        headers: The answer's headers.
    """
    value = header(headers, "x-should-retry") if headers else None
    return {"true": True, "false": False}.get(value.strip().lower()) if value else None


def in_text(text: str) -> float | None:
    """Read "try again in 9m38.5s" and its like, in seconds, or None.

    Args:
        text: Lower case.
    """
    found = _DURATION.search(text)
    if found is None:
        return None
    total = 0.0
    for amount, unit in _PART.findall(found[1]):
        total += float(amount) * _UNIT[unit]
    return total


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
    for name in _FIELDS:
        value = body.get(name)
        if name == "retryDelay" and isinstance(value, str):
            value = value.removesuffix("s")
        number = _number(value)
        if number is not None:
            return number
    for name in ("error", "details", "detail", "metadata"):
        value = body.get(name)
        if isinstance(value, (dict, list)):
            inner = _in_body(value, depth + 1)
            if inner is not None:
                return inner
    return None
