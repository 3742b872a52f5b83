"""Say what an exception means for the policy."""

from __future__ import annotations

import asyncio

from honcho_fallback._failure import Failure, FailureKind

__all__ = ["classify"]

_STATUS = {
    400: FailureKind.INVALID_REQUEST,
    401: FailureKind.AUTHENTICATION,
    402: FailureKind.QUOTA,
    403: FailureKind.PERMISSION,
    404: FailureKind.MODEL_UNAVAILABLE,
    408: FailureKind.TIMEOUT,
    413: FailureKind.PAYLOAD_TOO_LARGE,
    422: FailureKind.INVALID_REQUEST,
    429: FailureKind.RATE_LIMIT,
    503: FailureKind.OVERLOADED,
    504: FailureKind.TIMEOUT,
    529: FailureKind.OVERLOADED,
}


def classify(
    exc: BaseException,
    *,
    local_errors: tuple[type[BaseException], ...] = (),
    provider_errors: tuple[type[BaseException], ...] = (),
) -> Failure:
    """Say what an exception means; never raise.

    Args:
        exc: The exception.
        local_errors: Classes that are the program's own whatever they carry.
        provider_errors: Classes that a provider raises, for instances that say no more.
    """
    error = type(exc).__name__
    if not isinstance(exc, Exception) or isinstance(exc, asyncio.CancelledError):
        return Failure.of(FailureKind.CANCELLED, error=error)
    if local_errors and isinstance(exc, local_errors):
        return Failure.of(FailureKind.LOCAL, error=error)
    for name in ("status_code", "code", "status"):
        value = getattr(exc, name, None)
        if isinstance(value, int) and not isinstance(value, bool) and 400 <= value <= 599:
            fallback = FailureKind.SERVER_ERROR if value >= 500 else FailureKind.INVALID_REQUEST
            return Failure.of(_STATUS.get(value, fallback), status=value, error=error)
    if isinstance(exc, TimeoutError) or "Timeout" in error:
        return Failure.of(FailureKind.TIMEOUT, error=error)
    if isinstance(exc, ConnectionError) or "Connect" in error:
        return Failure.of(FailureKind.CONNECTION, error=error)
    if provider_errors and isinstance(exc, provider_errors):
        return Failure.of(FailureKind.SERVER_ERROR, error=error)
    return Failure.of(FailureKind.LOCAL, error=error)
