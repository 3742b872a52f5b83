"""What a script's entries may be, beside answers, exceptions and lists of chunks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NoReturn

from honcho_fallback.testing._status_error import StatusError


@dataclass(frozen=True, slots=True)
class Status:
    """Say an HTTP error; see ``Scripted.status``.

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
    """Say something late, or nothing at all; see ``Scripted.after`` and ``Scripted.hang``.

    Args:
        seconds: How late; infinite for never.
        said: What.
    """

    seconds: float
    said: Any = None


@dataclass(frozen=True, slots=True)
class Always:
    """Say something again and again; see ``Scripted.always``.

    Args:
        said: What.
    """

    said: Any


def say(said: Any) -> Any:
    """Return what a step says, or raise it."""
    if isinstance(said, Status):
        raise StatusError(said.status, retry_after=said.retry_after, code=said.code)
    if isinstance(said, BaseException):
        raise said
    kind: Any = said
    if isinstance(said, type) and issubclass(kind, BaseException):
        raise kind
    return said


def fail(message: str) -> NoReturn:
    """Fail the test, past everything that handles a provider's failures."""
    # No policy takes pytest's own failure for a provider's, whatever it falls back on: it is no
    # Exception, and so goes through drivers, frameworks and the service's own handlers.
    import pytest  # noqa: PLC0415 # scripts are pytest's; the rest of the kit is not

    pytest.fail(message, pytrace=False)
