"""Say what a tool's failure means; structured facts first, then its text, never raise.

A command that ran and exited with a code failed in its own way: its code is a fact, and what it
printed is read for nothing. "connection refused" in the output of a test run is a failed test.
"""

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
    exit_code_of,
    kind_of_exit,
    kind_of_text,
    lowered,
    marked,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

_DEPTH = 5
# Where exceptions keep the exit code of a command: subprocess, Docker, asyncssh, plumbum, sh.
_EXIT_CODES = ("returncode", "exit_code", "exit_status", "retcode")
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


def classify_tool_failure(
    error: BaseException | str,
    timed_out: bool = False,  # noqa: FBT001, FBT002 # a fixed signature
    *,
    exit_code: int | None = None,
) -> ToolFailure:
    """Say what a tool's failure means; never raise.

    Args:
        error: What the tool raised, or the text that it returned instead of a result.
        timed_out: Whether the host stopped the tool for taking too long; only a verdict of the
            host's own policy or of its user counts for more.
        exit_code: What the command exited with that the tool ran, or None. An exception's own
            code (``CalledProcessError``) and one that a text states ("Exit code: 1") are found
            without it. The output of such a command says nothing about the failure.
    """
    chain = [] if isinstance(error, str) else list(_chain(error, 0))
    texts = (
        [lowered(error)] if isinstance(error, str) else [lowered(text_of(one)) for one in chain]
    )
    kind = next(filter(None, _verdicts(chain, texts, exit_code, timed_out=timed_out)), None)
    return ToolFailure(kind or _first_known(texts))


def _verdicts(
    chain: list[BaseException], texts: list[str], exit_code: int | None, *, timed_out: bool
) -> Iterator[Kind | None]:
    yield from map(_declared, chain)
    if exit_code:  # what has exited was not refused, whatever it printed
        yield Kind.TIMEOUT if timed_out else kind_of_exit(exit_code)
    yield from map(marked, texts)
    if timed_out:
        yield Kind.TIMEOUT
    yield from map(_structured, chain)


def exit_code_in(error: BaseException | str) -> int | None:
    """Return the code that a command exited with, by what a tool raised or returned, or None."""
    if isinstance(error, str):
        return exit_code_of(lowered(error))
    codes = map(_own_exit_code, _chain(error, 0))
    return next(filter(None, codes), None) or exit_code_of(lowered(text_of(error)))


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
    # Most tools raise a ValueError or the like, which holds nothing but its words.
    is_built_in = type(error).__module__ == "builtins" and not isinstance(error, OSError)
    if is_built_in and not vars(error):
        return None
    if isinstance(error, subprocess.TimeoutExpired):
        return Kind.TIMEOUT
    if isinstance(error, FallbackError):  # a model's failure inside a delegated call
        return Kind.MODEL_CONNECTION
    code = _own_exit_code(error)
    if code is not None:
        return kind_of_exit(code)
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
    return None


def _own_exit_code(error: BaseException) -> int | None:
    own = vars(error)
    codes = (own.get(name) for name in _EXIT_CODES)
    return next((code for code in codes if type(code) is int and code), None)


def _from_subprocess(error: BaseException) -> bool:
    # A missing program and a missing file are the same exception; only the former comes from here.
    frame = error.__traceback__
    while frame is not None:
        if frame.tb_frame.f_globals.get("__name__") == "subprocess":
            return True
        frame = frame.tb_next
    return False
