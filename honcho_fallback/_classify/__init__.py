"""Say what an exception means for the policy; import no SDK, never raise."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from honcho_fallback._classify._decide import decide, of_errno
from honcho_fallback._classify._facts import Facts, read_facts
from honcho_fallback._classify._origin import class_row, is_sdk, origin, other_service
from honcho_fallback._classify._read import children
from honcho_fallback._classify._rules import find_failure, rejudge, require_loaded
from honcho_fallback._classify._tables import Row
from honcho_fallback._classify._waits import in_text, read_waits
from honcho_fallback._values.errors import AnswerRejected, ErrorStandIn
from honcho_fallback._values.failure import KINDS, Failure
from honcho_fallback._values.failure import FailureKind as Kind
from honcho_fallback.redaction import redact

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from honcho_fallback._classify._rules import Rule
    from honcho_fallback._values.failure import Reached

_Errors = tuple[type[BaseException], ...]
_DEPTH = 5
# A window of this many seconds is a used-up quota, not a rate that passes.
_LONG_WAIT = 3600.0
# Kinds whose error has to be looked at for what became of the request.
_UNCLEAR = frozenset({Kind.CONNECTION, Kind.TIMEOUT, Kind.OVERLOADED})
_CHAIN = 16  # errors that are looked at for it
# Raised by a bug under a library's connection wrapper: no connection was even tried.
_PROGRAM = (RuntimeError, TypeError, ValueError, ArithmeticError, AttributeError, LookupError)
# What a connection class may hide; a status below it is a parser's own number.
_UNDER_A_CONNECTION = frozenset(
    {Kind.CONNECTION, Kind.TIMEOUT, Kind.LOCAL, Kind.RATE_LIMIT, Kind.MALFORMED_RESPONSE}
)
_UNDER_ANOTHER = frozenset(Kind) - {Kind.CANCELLED}
# A validator that said no is what makes an answer one that nobody can use.
_UNDER_AN_ANSWER = _UNDER_ANOTHER - {Kind.LOCAL}


def classify(
    exc: BaseException,
    *,
    local_errors: _Errors = (),
    provider_errors: _Errors = (),
    rules: tuple[Rule, ...] = (),
    only_models: bool = False,
) -> Failure:
    """Say what an exception means; never raise.

    Args:
        exc: The exception.
        local_errors: Classes that are the program's own, whatever they carry.
        provider_errors: Classes that a provider raises: an instance that says no more is a
            server_error.
        rules: The user's own, as a config holds them: ``FallbackConfig(rules=...).rules``.
        only_models: Whether nobody but a model was asked: then a general client's error is the
            model's, whatever its address, and so are the words of any class.

    Raises:
        FallbackConfigError: ``rules`` are something else, such as a path.
    """
    if rules:
        require_loaded(rules)
    error = type(exc).__name__
    reason = "nothing says more"
    try:
        walk = _CauseWalk(exc, error, local_errors, provider_errors, rules, set())
        failure = walk.classify(exc, 0, of_model=only_models)
    except Exception:  # noqa: BLE001  a classifier that raises would hide the error that it got
        failure, reason = None, "the exception could not be read"
    return failure or Failure.of(Kind.LOCAL, reason=reason, error=error)


def _reached(
    outermost: BaseException, kind: Kind, exc: BaseException, facts: Facts
) -> Reached | None:
    """Say what became of a request, as the outermost error that knows it says.

    ``facts`` are those of the error that decided, which mostly is the outermost one.
    """
    if kind is Kind.OVERLOADED:
        if facts.has_body:
            return "refused"
        if facts.error in {503, 529} and not (exc.__cause__ or exc.__context__):
            return "unknown"  # a gateway says so by itself, too
    errors, seen = [outermost], set[int]()
    while errors and len(seen) < _CHAIN:
        error = errors.pop(0)
        seen.add(id(error))
        reached = _reached_by(error, kind, facts if error is exc else None)
        if reached is not None:
            return reached
        errors += [one for one in _inside(error) if id(one) not in seen]
    if kind is Kind.OVERLOADED:
        return "unknown" if facts.error in {503, 529} else None
    # An SDK's timeout may have a status that nobody sent.
    cls: Any = type(outermost)
    row = class_row(cls)
    unsent = row is not None and row.kind in {Kind.CONNECTION, Kind.TIMEOUT}
    return "unknown" if unsent else None


def _inside(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        yield from error.exceptions
    yield from children(error, follow_context=True)


def _reached_by(error: BaseException, kind: Kind, facts: Facts | None) -> Reached | None:
    """Say what one error knows: a provider's own words, or a class or number of a socket's."""
    facts = read_facts(error) if facts is None else facts
    if kind is Kind.OVERLOADED:
        return "refused" if facts.has_body else None
    row = facts.row
    if (row is None or row.reached is None) and isinstance(error, OSError):
        row = of_errno(error, facts)
    return None if row is None else row.reached


class _CauseWalk(NamedTuple):
    """Classify one exception, and its causes where its own class does not decide."""

    outermost: BaseException
    error: str
    local: _Errors
    provider: _Errors
    rules: tuple[Rule, ...]
    seen: set[int]

    def classify(self, exc: BaseException, depth: int, *, of_model: bool) -> Failure | None:
        self.seen.add(id(exc))
        if isinstance(exc, self.local):
            return self._plain_failure(Kind.LOCAL, "named in local_errors")
        if isinstance(exc, AnswerRejected | ErrorStandIn) and exc.failure is not None:
            failure = exc.failure._replace(error=self.error)
            return rejudge(self.rules, exc, failure) if self.rules else failure
        ended = exc.__cause__  # where a coroutine or a generator let one out (PEP 479)
        if type(exc) is RuntimeError and isinstance(ended, StopIteration | StopAsyncIteration):
            return self.classify(ended, depth, of_model=of_model)
        cls: Any = type(exc)
        settled = origin(cls)
        if settled is not None and (settled.kind is Kind.CANCELLED or not self.rules):
            return self._plain_failure(settled.kind, settled.reason)
        if isinstance(exc, BaseExceptionGroup):
            nothing = self._plain_failure(Kind.LOCAL, "nothing says more")
            members = self._unseen(exc.exceptions, depth)
            failures = [
                self.classify(member, depth + 1, of_model=of_model) or nothing
                for member in members
            ]
            return min(failures, key=lambda failure: KINDS[failure.kind].severity, default=None)
        return self._facts_failure(exc, settled, depth, of_model=of_model)

    def _facts_failure(
        self, exc: BaseException, settled: Row | None, depth: int, *, of_model: bool
    ) -> Failure | None:
        facts = read_facts(exc)
        named = isinstance(exc, self.provider)
        row, status = decide(exc, facts, named=named, of_model=of_model)
        is_providers = row is not None and row.kind is not Kind.LOCAL
        if is_providers and not (named or of_model or facts.is_shaped):
            has_status = facts.error is not None
            other = other_service(exc, facts.message, facts.text, has_status=has_status)
            row = other or row
        if self.rules:
            ruled = find_failure(self.rules, exc, facts, status, self.error)
            if ruled is not None or settled is not None:
                return ruled or (settled and self._plain_failure(settled.kind, settled.reason))
        cls: Any = type(exc)
        inner = None
        if row is None or row.wraps:
            inner = self._cause_failure(exc, row, depth, of_model=of_model or is_sdk(cls))
        if row is None and named:
            row = Row(Kind.SERVER_ERROR, "named in provider_errors")
        return inner or (row and self._failure(exc, row, status, facts))

    def _cause_failure(
        self, exc: BaseException, row: Row | None, depth: int, *, of_model: bool
    ) -> Failure | None:
        opaque = row is None or row.opaque
        counts = _UNDER_ANOTHER if opaque else _UNDER_A_CONNECTION
        if row is not None and row.kind is Kind.MALFORMED_RESPONSE:
            counts = _UNDER_AN_ANSWER
        for child in self._unseen(children(exc, follow_context=row is not None), depth):
            failure = self.classify(child, depth + 1, of_model=of_model)
            if failure is None and not opaque and isinstance(child, _PROGRAM):
                reason = "a connection class that hides a mistake of the program"
                return self._plain_failure(Kind.LOCAL, reason)
            if failure is not None and (failure.by_rule or failure.kind in counts):
                return failure
        return None

    def _unseen(self, errors: Iterable[BaseException], depth: int) -> Iterator[BaseException]:
        return (e for e in errors if depth < _DEPTH and id(e) not in self.seen)

    def _failure(self, exc: BaseException, row: Row, status: int | None, facts: Facts) -> Failure:
        kind, reason = row.kind, row.reason
        wait, again = None, True
        if KINDS[kind].states_wait:
            wait, again = read_waits(facts.headers, facts.waits)
        if kind is Kind.RATE_LIMIT:
            wait = in_text(facts.message.lower()) if wait is None else wait
            if wait is not None and wait >= _LONG_WAIT:
                kind, reason = Kind.QUOTA, "a rate limit that lasts for hours"
        reached, scope = row.reached, row.scope
        if scope is None:
            reached = _reached(self.outermost, kind, exc, facts) if kind in _UNCLEAR else None
            # Whoever cannot be reached has no model that can.
            scope = "endpoint" if reached == "no" else None
        # Limits of a key's account are the key's, unless they are counted per model (Google's).
        if facts.limits and any("permodel" in str(one).lower() for one in facts.limits):
            scope = "model"
        return Failure.of(
            kind,
            status=status,
            code=facts.code,
            retry_after=wait,
            provider_message=redact(facts.message) if facts.message else "",
            reason=reason,
            error=self.error,
            transient=row.transient if again else False,
            scope=scope,
            reached=reached,
        )

    def _plain_failure(self, kind: Kind, reason: str) -> Failure:
        return Failure.of(kind, reason=reason, error=self.error)
