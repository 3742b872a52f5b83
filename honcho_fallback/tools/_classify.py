"""Say what a tool's failure means; structured facts first, then its text, never raise."""

# The input is untyped, in whatever shape an SDK or a tool gives it; the output is typed.
# pyright: reportUnknownArgumentType=false, reportUnknownVariableType=false

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

from honcho_fallback import FailureKind, FallbackError
from honcho_fallback._classify._facts import read_facts
from honcho_fallback._classify._read import children
from honcho_fallback.tools._failure import ToolBlockedError, ToolDeniedError, ToolFailure
from honcho_fallback.tools._failure import ToolFailureKind as Kind
from honcho_fallback.tools._text import (
    CREDENTIAL_STATUSES,
    SERVICE_STATUSES,
    TIMEOUT_STATUSES,
    kind_of_text,
    lowered,
    marked,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

_DEPTH = 5
_COMMAND_NOT_FOUND = 127  # POSIX shells
_STATUSES: dict[int, Kind] = {
    **dict.fromkeys(CREDENTIAL_STATUSES, Kind.BAD_CREDENTIALS),  # an external 403 is no policy
    **dict.fromkeys(TIMEOUT_STATUSES, Kind.TIMEOUT),
    **dict.fromkeys(SERVICE_STATUSES, Kind.SERVICE_UNAVAILABLE),
}
_CLASSES = {
    FailureKind.TIMEOUT: Kind.TIMEOUT,
    FailureKind.AUTHENTICATION: Kind.BAD_CREDENTIALS,
    FailureKind.PERMISSION: Kind.BAD_CREDENTIALS,
    FailureKind.CONNECTION: Kind.SERVICE_UNAVAILABLE,
    FailureKind.RATE_LIMIT: Kind.SERVICE_UNAVAILABLE,
    FailureKind.OVERLOADED: Kind.SERVICE_UNAVAILABLE,
    FailureKind.SERVER_ERROR: Kind.SERVICE_UNAVAILABLE,
}


def classify_tool_failure(error: BaseException | str, timed_out: bool = False) -> ToolFailure:  # noqa: FBT001, FBT002 # a fixed signature
    """Say what a tool's failure means; never raise.

    Args:
        error: What the tool raised, or the text that it returned instead of a result.
        timed_out: Whether the host stopped the tool for taking too long; only a verdict of the
            host's own policy or of its user counts for more.
    """
    if isinstance(error, str):
        text = lowered(error)
        kind = marked(text) or (Kind.TIMEOUT if timed_out else kind_of_text(text))
        return ToolFailure(kind)
    chain = list(_chain(error, 0))
    texts = [lowered(text_of(one)) for one in chain]
    stopped = Kind.TIMEOUT if timed_out else None
    verdicts = (*map(_declared, chain), *map(marked, texts), stopped, *map(_structured, chain))
    return ToolFailure(next(filter(None, verdicts), None) or _first_known(texts))


def text_of(error: BaseException) -> str:
    """Return an exception's text, with a subprocess's standard error."""
    try:
        text = str(error)
        if isinstance(error, subprocess.CalledProcessError) and error.stderr:
            stderr = error.stderr
            text += "\n" + (
                stderr.decode("utf-8", "replace") if isinstance(stderr, bytes) else stderr
            )
    except Exception:  # noqa: BLE001 # a hostile exception says nothing
        return ""
    return text


def _first_known(texts: list[str]) -> Kind:
    return next(
        (kind for kind in map(kind_of_text, texts) if kind is not Kind.UNKNOWN), Kind.UNKNOWN
    )


def _chain(error: BaseException, depth: int) -> Iterator[BaseException]:
    """Name the exception and what it was raised for, outermost first."""
    yield error
    if depth >= _DEPTH:
        return
    if isinstance(error, BaseExceptionGroup):
        group: BaseExceptionGroup[BaseException] = error
        for member in group.exceptions:
            yield from _chain(member, depth + 1)
    for child in children(error, follow_context=True):
        yield from _chain(child, depth + 1)


def _declared(error: BaseException) -> Kind | None:
    if isinstance(error, ToolBlockedError):
        return Kind.BLOCKED_BY_POLICY
    if isinstance(error, ToolDeniedError):
        return Kind.APPROVAL_EXPIRED if error.expired else Kind.DENIED
    return None


def _structured(error: BaseException) -> Kind | None:
    if isinstance(error, subprocess.TimeoutExpired):
        return Kind.TIMEOUT
    if isinstance(error, FallbackError):  # a model's failure inside a delegated call
        return Kind.MODEL_CONNECTION
    try:
        facts = read_facts(error)
    except Exception:  # noqa: BLE001 # a hostile exception has no facts
        return None
    kind = None if facts.status is None else _STATUSES.get(facts.status)
    if kind is None and facts.row is not None:
        kind = _CLASSES.get(facts.row.kind)
    return kind or _of_the_machine(error)


def _of_the_machine(error: BaseException) -> Kind | None:
    if isinstance(error, PermissionError):
        return Kind.MISSING_PERMISSION
    if isinstance(error, FileNotFoundError) and _from_subprocess(error):
        return Kind.MISSING_APP
    if isinstance(error, subprocess.CalledProcessError) and error.returncode == _COMMAND_NOT_FOUND:
        return Kind.MISSING_APP
    return None


def _from_subprocess(error: BaseException) -> bool:
    # A missing program and a missing file are the same exception; only the former comes from here.
    frame = error.__traceback__
    while frame is not None:
        if frame.tb_frame.f_globals.get("__name__") == "subprocess":
            return True
        frame = frame.tb_next
    return False
