"""Say what a tool's failure means; structured facts first, then its text, never raise.

A command that ran and exited with a code failed in its own way: its code is a fact, and what it
printed is read for nothing. "connection refused" in the output of a test run is a failed test.
"""

from __future__ import annotations

import subprocess
from functools import cache
from typing import TYPE_CHECKING, cast

from honcho_fallback import (
    FailureKind,
    FallbackConfig,
    FallbackError,
    FallbackExhausted,
    classify,
)
from honcho_fallback.tools import _reading
from honcho_fallback.tools._failure import ToolBlockedError, ToolDeniedError, ToolFailure
from honcho_fallback.tools._failure import ToolFailureKind as Kind

if TYPE_CHECKING:
    from collections.abc import Iterator

_DEPTH = 5
# Where exceptions keep the exit code of a command: subprocess, Docker, asyncssh, plumbum, sh.
_EXIT_CODES = ("returncode", "exit_code", "exit_status", "retcode")
# What a class says, or its text. A missing permission is left to the tool's own words: it may be
# the system's.
_KINDS = {
    FailureKind.TIMEOUT: Kind.TIMEOUT,
    FailureKind.AUTHENTICATION: Kind.BAD_CREDENTIALS,
    FailureKind.CONNECTION: Kind.SERVICE_UNAVAILABLE,
    FailureKind.RATE_LIMIT: Kind.SERVICE_UNAVAILABLE,
    FailureKind.OVERLOADED: Kind.SERVICE_UNAVAILABLE,
    FailureKind.SERVER_ERROR: Kind.SERVICE_UNAVAILABLE,
}
# What no second try mends: all settings of a request, and the money for it.
_SETTINGS = frozenset(
    {
        FailureKind.AUTHENTICATION,
        FailureKind.PERMISSION,
        FailureKind.MODEL_UNAVAILABLE,
        FailureKind.INVALID_REQUEST,
    }
)


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
    chain = [] if isinstance(error, str) else list(_causes(error))
    texts = [error] if isinstance(error, str) else list(map(text_of, chain))
    kinds = _kinds(chain, list(map(_reading.shortened, texts)), exit_code, timed_out=timed_out)
    return ToolFailure.of(next(filter(None, kinds), Kind.UNKNOWN))


def _kinds(
    chain: list[BaseException], texts: list[str], exit_code: int | None, *, timed_out: bool
) -> Iterator[Kind | None]:
    """Name what each thing says that may decide, the most certain first."""
    yield from map(_declared, chain)
    if exit_code:  # what has exited was not refused, whatever it printed
        yield Kind.TIMEOUT if timed_out else _reading.kind_of_exit(exit_code)
    yield from map(_reading.marked, texts)
    if timed_out:
        yield Kind.TIMEOUT
    yield from map(_own_fact, chain)
    yield from map(_classified, chain)
    yield from map(_reading.kind_of_text, texts)


def exit_code_in(error: BaseException | str) -> int | None:
    """Return the code that a command exited with, by what a tool raised or returned, or None."""
    if isinstance(error, str):
        return _reading.exit_code_of(_reading.shortened(error))
    codes = map(_own_exit_code, _causes(error))
    return next(filter(None, codes), None) or exit_code_in(text_of(error))


def terminal_error(error: BaseException) -> str | None:
    """Say why a call of ours that a tool made cannot succeed, by its record, or None."""
    failed = [one for one in _causes(error) if isinstance(one, FallbackExhausted)]
    kinds = {attempt.kind for one in failed[:1] for attempt in one.attempts}
    if FailureKind.QUOTA in kinds and kinds <= {FailureKind.QUOTA, *_SETTINGS}:
        return "budget_exhausted"
    return "provider_config" if kinds and kinds <= _SETTINGS else None


def text_of(error: BaseException) -> str:
    """Return an exception's text, with a subprocess's standard error."""
    try:
        text = str(error)
        if isinstance(error, subprocess.CalledProcessError) and (stderr := error.stderr):
            text += "\n" + (
                stderr.decode("utf-8", "replace") if isinstance(stderr, bytes) else stderr
            )
    except Exception:  # noqa: BLE001 # a hostile exception says nothing
        return ""
    return text


def _causes(error: BaseException, depth: int = 0) -> Iterator[BaseException]:
    """Name the exception and what it was raised for, outermost first."""
    yield error
    if depth == _DEPTH:
        return
    below: list[BaseException | None] = []
    if isinstance(error, BaseExceptionGroup):
        below.extend(cast("BaseExceptionGroup[BaseException]", error).exceptions)
    below.append(error.__cause__ or (None if error.__suppress_context__ else error.__context__))
    for one in filter(None, below):
        yield from _causes(one, depth + 1)


def _declared(error: BaseException) -> Kind | None:
    if isinstance(error, ToolBlockedError):
        return Kind.BLOCKED_BY_POLICY
    if isinstance(error, ToolDeniedError):
        return Kind.APPROVAL_EXPIRED if error.expired else Kind.DENIED
    return None


def _own_fact(error: BaseException) -> Kind | None:
    if isinstance(error, FallbackError):  # a model's failure inside a delegated call
        return Kind.MODEL_CONNECTION
    code = _own_exit_code(error) or exit_code_in(text_of(error))
    if code is not None:
        return _reading.kind_of_exit(code)
    return Kind.MISSING_PERMISSION if isinstance(error, PermissionError) else None


def _classified(error: BaseException) -> Kind | None:
    # Most tools raise a ValueError or the like, which holds nothing but its words.
    is_built_in = type(error).__module__ == "builtins" and not isinstance(error, OSError)
    if is_built_in and not vars(error):
        return None
    # A tool's service is no model's, which is what its errors are asked about elsewhere.
    failure = classify(error, rules=_of_any_service().rules)
    if failure.status is not None:
        return _reading.STATUSES.get(failure.status)
    # Without a status, that is what classify says where it knows nothing.
    return None if failure.kind is FailureKind.SERVER_ERROR else _KINDS.get(failure.kind)


@cache
def _of_any_service() -> FallbackConfig:
    """Return options under which the words of any class are read."""
    return FallbackConfig(rules={"error": BaseException, "kind": "server_error", "default": True})


def _own_exit_code(error: BaseException) -> int | None:
    codes = map(vars(error).get, _EXIT_CODES)
    return next((code for code in codes if type(code) is int and code), None)
