"""What a script's entries may be, beside answers, exceptions and lists of chunks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NoReturn

from honcho_fallback.testing._status_error import StatusError


@dataclass(frozen=True, slots=True)
class Status:
    """Reply with an HTTP error; see ``Scripted.status``.

    Args:
        status: HTTP status.
        retry_after: Seconds, or None.
        code: The provider's, or None.
    """

    status: int
    retry_after: float | None = None
    code: str | None = None


@dataclass(frozen=True, slots=True)
class After:
    """Reply late, or not at all; see ``Scripted.after`` and ``Scripted.hang``.

    Args:
        seconds: How late; infinite for never.
        reply: An answer, an exception or a ``Status``.
    """

    seconds: float
    reply: Any = None


@dataclass(frozen=True, slots=True)
class Always:
    """Reply the same again and again; see ``Scripted.always``.

    Args:
        reply: An answer, an exception or a ``Status``.
    """

    reply: Any


def play(reply: Any) -> Any:
    """Return a reply, or raise it where it is an error."""
    if isinstance(reply, Status):
        raise StatusError(reply.status, retry_after=reply.retry_after, code=reply.code)
    if isinstance(reply, BaseException):
        raise reply
    kind: Any = reply
    if isinstance(reply, type) and issubclass(kind, BaseException):
        raise kind
    return reply


def fail(message: str) -> NoReturn:
    """Fail the test, past everything that handles a provider's failures."""
    # No policy takes pytest's own failure for a provider's, whatever it falls back on: it is no
    # Exception, and so goes through drivers, frameworks and the service's own handlers.
    import pytest  # noqa: PLC0415 # scripts are pytest's; the rest of the kit is not

    pytest.fail(message, pytrace=False)
