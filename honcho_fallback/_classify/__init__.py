"""Say what an exception means for the policy; import no SDK, never raise."""

# What is read here has whatever shape a stranger gave it; what comes out is typed.
# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false

from __future__ import annotations

from typing import TYPE_CHECKING

from honcho_fallback._classify._causes import children
from honcho_fallback._classify._decide import Verdict, decide
from honcho_fallback._classify._facts import Facts, read_facts
from honcho_fallback._classify._redact import redact
from honcho_fallback._classify._rules import LONG_WAIT
from honcho_fallback._classify._types import class_facts
from honcho_fallback._classify._waits import in_text, read_waits
from honcho_fallback._errors import AnswerRejected
from honcho_fallback._failure import KINDS, Failure, FailureKind

if TYPE_CHECKING:
    from honcho_fallback._classify._names import NameRow

__all__ = ["classify"]

_Errors = tuple[type[BaseException], ...]
_DEPTH = 5
# Raised by a bug under a library's connection wrapper: no connection was even tried.
_PROGRAM = (RuntimeError, TypeError, ValueError, ArithmeticError, AttributeError, LookupError)
# What a connection class may hide; a status below it is a parser's own number.
_UNDER_A_CONNECTION = frozenset(
    {FailureKind.CONNECTION, FailureKind.TIMEOUT, FailureKind.LOCAL, FailureKind.RATE_LIMIT}
)


def classify(
    exc: BaseException, *, local_errors: _Errors = (), provider_errors: _Errors = ()
) -> Failure:
    """Say what an exception means; never raise.

    Args:
        exc: The exception.
        local_errors: Classes that are the program's own, whatever they carry.
        provider_errors: Classes that a provider raises: an instance that says no more is a
            server_error.
    """
    error = type(exc).__name__
    try:
        failure = _Walk(error, local_errors, provider_errors).judge(exc, 0)
    except Exception:  # noqa: BLE001  a classifier that raises would hide the error it was asked
        return Failure.of(FailureKind.LOCAL, reason="the exception could not be read", error=error)
    return failure or Failure.of(FailureKind.LOCAL, reason="nothing says more", error=error)


class _Walk:
    """Judge one exception and what it was raised for."""

    __slots__ = ("_error", "_local", "_provider", "_seen")

    def __init__(self, error: str, local_errors: _Errors, provider_errors: _Errors) -> None:
        self._error = error
        self._local = local_errors
        self._provider = provider_errors
        self._seen: set[int] = set()

    def judge(self, exc: BaseException, depth: int) -> Failure | None:
        self._seen.add(id(exc))
        if self._local and isinstance(exc, self._local):
            return self._bare(FailureKind.LOCAL, "named in local_errors")
        if isinstance(exc, AnswerRejected) and exc.failure is not None:
            return exc.failure._replace(error=self._error)
        ended = exc.__cause__  # where a coroutine or a generator let one out (PEP 479)
        if type(exc) is RuntimeError and isinstance(ended, StopIteration | StopAsyncIteration):
            return self.judge(ended, depth)
        settled = class_facts(exc).settled
        if settled is not None:
            return self._bare(settled.kind, settled.reason)
        if isinstance(exc, BaseExceptionGroup):
            return self._group(exc, depth)
        return self._single(exc, depth)

    def _single(self, exc: BaseException, depth: int) -> Failure | None:
        facts = read_facts(exc)
        named = bool(self._provider) and isinstance(exc, self._provider)
        verdict = decide(exc, facts, named=named)
        if depth < _DEPTH and (verdict is None or verdict.wraps):
            inner = self._below(exc, verdict, facts.cls.row, depth)
            if inner is not None:
                return inner
        if verdict is None and named:
            verdict = Verdict(FailureKind.SERVER_ERROR, "named in provider_errors", facts.status)
        return None if verdict is None else self._told(verdict, facts)

    def _group(self, group: BaseExceptionGroup[BaseException], depth: int) -> Failure | None:
        worst: Failure | None = None
        for member in group.exceptions:
            if depth >= _DEPTH or id(member) in self._seen:
                continue
            told = self.judge(member, depth + 1) or self._bare(
                FailureKind.LOCAL, "nothing says more"
            )
            if worst is None or KINDS[told.kind].severity < KINDS[worst.kind].severity:
                worst = told
        return worst

    def _below(
        self, exc: BaseException, verdict: Verdict | None, row: NameRow | None, depth: int
    ) -> Failure | None:
        opaque = verdict is None or (row is not None and row.opaque)
        for child in children(exc, follow_context=verdict is not None):
            if id(child) in self._seen:
                continue
            told = self.judge(child, depth + 1)
            if told is not None:
                counts = opaque or told.kind in _UNDER_A_CONNECTION
                if counts and told.kind is not FailureKind.CANCELLED:
                    return told
            elif not opaque and isinstance(child, _PROGRAM):
                return self._bare(
                    FailureKind.LOCAL, "a connection class that hides a mistake of the program"
                )
        return None

    def _told(self, verdict: Verdict, facts: Facts) -> Failure:
        kind = verdict.kind
        transient = verdict.transient
        reason = verdict.reason
        wait = None
        if KINDS[kind].states_wait:
            wait, again = read_waits(facts.headers, facts.body)
            if kind is FailureKind.RATE_LIMIT:
                if wait is None and facts.message:
                    wait = in_text(facts.message.lower())
                if wait is not None and wait >= LONG_WAIT:
                    kind = FailureKind.QUOTA
                    reason = "a rate limit that lasts for hours"
            if again is False:
                transient = False
        return Failure.of(
            kind,
            status=verdict.status,
            code=facts.code,
            retry_after=wait,
            provider_message=redact(facts.message) if facts.message else "",
            reason=reason,
            error=self._error,
            transient=transient,
        )

    def _bare(self, kind: FailureKind, reason: str) -> Failure:
        return Failure.of(kind, reason=reason, error=self._error)
