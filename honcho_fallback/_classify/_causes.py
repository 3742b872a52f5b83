"""What an exception was raised for: causes, wrapped exceptions, retries' last attempts."""

# What is read here has whatever shape a stranger gave it; what comes out is typed.
# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from honcho_fallback._classify._safe import called, plain

if TYPE_CHECKING:
    from collections.abc import Iterator


def children(exc: BaseException, *, follow_context: bool) -> Iterator[BaseException]:
    """Name the exceptions that one exception was raised for, the most certain first.

    Args:
        exc: The exception.
        follow_context: Is it a known wrapper, whose implicit context counts?
    """
    if exc.__cause__ is not None:
        yield exc.__cause__
    elif follow_context and exc.__context__ is not None and not exc.__suppress_context__:
        yield exc.__context__
    try:
        own = exc.__dict__
    except Exception:  # noqa: BLE001  a hostile exception hides nothing
        own = {}
    attempt = own.get("last_attempt")  # tenacity
    if attempt is not None:
        inner = called(attempt, "exception") if _done(attempt) else None
        if isinstance(inner, BaseException):
            yield inner
    for name in ("reason", "original_exception", "os_error"):
        inner = own.get(name)
        if isinstance(inner, BaseException):
            yield inner
    arguments = plain(exc, "args")
    if isinstance(arguments, tuple):
        yield from (a for a in arguments[:2] if isinstance(a, BaseException))


def _done(attempt: Any) -> bool:
    # Asking a pending future for its exception would wait for it.
    return called(attempt, "done") is True
