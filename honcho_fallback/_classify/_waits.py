"""How long the provider asks to wait: in headers, in bodies, or in the message's text."""

from __future__ import annotations

import math
import re
import time
from contextlib import suppress
from datetime import datetime
from email.utils import parsedate_to_datetime
from typing import Any

from honcho_fallback._classify._tables import WORDS

_DURATION = re.compile(
    rf"(?: about)?((?:[ ,]{{0,2}}\d+(?:\.\d+)? ?(?:{'|'.join(WORDS['units'])})(?![a-z]))+)"
)
_PART = re.compile(r"(\d+(?:\.\d+)?) ?(ms|mi?l?|d|h|m|s)")
_UNIT = {"ms": 0.001, "mil": 0.001, "d": 86400.0, "h": 3600.0, "mi": 60.0, "m": 60.0, "s": 1.0}
_RESETS = {name: name.replace("reset", "remaining") for name in WORDS["reset_headers"]}
_HEADERS = {"retry-after", "retry-after-ms", "x-should-retry", *_RESETS, *_RESETS.values()}
_EPOCH = 1e9  # no wait lasts that long: a larger number is a time since the epoch


def read_waits(headers: Any, body_waits: list[Any]) -> tuple[float | None, bool]:
    """Read how long to wait and whether to retry at all: headers first, then the body."""
    if not headers and not body_waits:
        return None, True
    values = _wait_headers(headers) if headers else {}
    exact = values.get("retry-after-ms")
    stated = (f"{exact}ms" if exact else None, values.get("retry-after"), *body_waits)
    wait = next((wait for wait in map(seconds, stated) if wait is not None), None)
    if wait is None and values:
        # The resets of the limits that are used up; the longest of them counts.
        resets = [values.get(name) for name, rest in _RESETS.items() if values.get(rest) == "0"]
        wait = max((wait for wait in map(seconds, resets) if wait is not None), default=None)
    return wait, values.get("x-should-retry", "").strip().lower() != "false"


def in_text(text: str) -> float | None:
    """Read "try again in 9m38.5s" and its like, in seconds, or None."""
    for lead in WORDS["wait_leads"]:
        at = text.find(lead)
        match = _DURATION.match(text, at + len(lead)) if at >= 0 else None
        if match is not None:
            return _sum(match[1])
    return None


def seconds(value: Any) -> float | None:
    """Read a wait: seconds, a duration such as 6m0s, a time since the epoch, or a date."""
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        return None
    with suppress(ValueError, OverflowError):
        number = float(value)
        wait = number if number < _EPOCH else number - time.time()
        return max(0.0, wait) if math.isfinite(number) and number >= 0 else None
    text = value if isinstance(value, str) else ""
    if match := _DURATION.fullmatch(text):
        return _sum(match[1])
    for parse in (datetime.fromisoformat, parsedate_to_datetime):
        with suppress(ValueError, TypeError, OverflowError, IndexError):
            return max(0.0, parse(text).timestamp() - time.time())
    return None


def _sum(text: str) -> float:
    return sum(float(amount) * _UNIT[unit] for amount, unit in _PART.findall(text))


def _wait_headers(headers: Any) -> dict[str, str]:
    values: dict[str, str] = {}
    with suppress(Exception):  # an odd mapping has no headers
        # A lookup in httpx's own mapping costs more than one pass over its raw pairs.
        raw = getattr(headers, "raw", None)
        for key, value in raw if isinstance(raw, list) else headers.items():
            name = _text(key).lower()
            if name in _HEADERS:
                values.setdefault(name, _text(value))
    return values


def _text(value: Any) -> str:
    return value.decode("latin-1") if isinstance(value, bytes) else str(value)
