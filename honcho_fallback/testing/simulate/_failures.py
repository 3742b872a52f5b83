"""The exceptions that simulated providers raise: nothing but facts, as ``classify`` reads them."""

from __future__ import annotations

from functools import cache
from json import JSONDecodeError
from math import ceil
from typing import TYPE_CHECKING

from honcho_fallback import FailureKind, classify

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


class SimulatedError(Exception):
    """Carry what an SDK's exception would: a status, a code, headers.

    Args:
        status: HTTP status.
        code: The provider's own, or None.
        retry_after: Seconds it asks to be left alone, or None; whole seconds, as on the wire.
    """

    def __init__(
        self, status: int, code: str | None = None, retry_after: float | None = None
    ) -> None:
        super().__init__(f"simulated HTTP {status}")
        self.status_code = status
        self.body = {"error": {"code": code}} if code else None
        self.headers = {} if retry_after is None else {"retry-after": str(ceil(retry_after))}


class ConnectTimeoutError(TimeoutError):
    """Stand for a timeout before there was a connection."""


def dropped() -> Exception:
    """Return what a caller sees when the connection breaks."""
    return ConnectionResetError("simulated: the connection was reset")


def unreadable() -> Exception:
    """Return what a caller sees when the answer is no JSON."""
    return JSONDecodeError("simulated: the answer was no JSON", "", 0)


def late(target: str, seconds: float, *, connected: bool = True) -> Exception:
    """Return what a caller sees when its own time runs out."""
    if not connected:
        return ConnectTimeoutError(f"{target} made no connection within {seconds:g} s")
    return TimeoutError(f"{target} gave no answer within {seconds:g} s")


def again(
    kind: FailureKind, status: int | None, code: str | None, retry_after: float | None
) -> Exception | None:
    """Return an exception that ``classify`` reads as the kind on record."""
    if kind in _BARE and status is None:
        return _BARE[kind]()
    told = _told(kind, status, code)
    if told is None:
        bare = _BARE.get(kind)
        return bare() if bare else None
    return SimulatedError(*told, retry_after)


@cache  # a few kinds, each with the statuses and codes that providers give it
def _told(
    kind: FailureKind, status: int | None, code: str | None
) -> tuple[int, str | None] | None:
    """Find what says the kind: the record's own facts where they do, otherwise plainer ones."""
    candidates: list[tuple[int, str | None]] = []
    if status is not None and status >= 400:
        candidates += [(status, code), (status, None)]
    if kind in _TELLING:
        candidates.append(_TELLING[kind])
    for facts in candidates:
        if classify(SimulatedError(*facts)).kind is kind:
            return facts
    return None


_BARE: Mapping[FailureKind, Callable[[], Exception]] = {
    FailureKind.TIMEOUT: TimeoutError,
    FailureKind.CONNECTION: dropped,
    FailureKind.MALFORMED_RESPONSE: unreadable,
}

_TELLING: Mapping[FailureKind, tuple[int, str | None]] = {
    FailureKind.RATE_LIMIT: (429, None),
    FailureKind.OVERLOADED: (503, None),
    FailureKind.SERVER_ERROR: (500, None),
    FailureKind.TIMEOUT: (504, None),
    FailureKind.QUOTA: (429, "insufficient_quota"),
    FailureKind.AUTHENTICATION: (401, None),
    FailureKind.PERMISSION: (403, None),
    FailureKind.MODEL_UNAVAILABLE: (404, "model_not_found"),
    FailureKind.CONTEXT_OVERFLOW: (400, "context_length_exceeded"),
    FailureKind.PAYLOAD_TOO_LARGE: (413, None),
    FailureKind.CONTENT_POLICY: (400, "content_filter"),
    FailureKind.INVALID_REQUEST: (400, None),
}
