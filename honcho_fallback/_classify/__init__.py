"""Say what an exception means for the policy; import no SDK, never raise."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from honcho_fallback._classify._decide import decide
from honcho_fallback._classify._facts import Facts, read_facts
from honcho_fallback._classify._origin import is_sdk, origin, other_service
from honcho_fallback._classify._reached import of_group, outcome
from honcho_fallback._classify._read import children
from honcho_fallback._classify._rules import first_fitting, require_loaded
from honcho_fallback._classify._tables import Row
from honcho_fallback._classify._waits import in_text, read_waits
from honcho_fallback._values.errors import AnswerRejected, ErrorStandIn
from honcho_fallback._values.failure import KINDS, SEVERITY, Failure
from honcho_fallback._values.failure import FailureKind as Kind
from honcho_fallback.redaction import redact

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from honcho_fallback._classify._rules import Rule

_DEPTH = 5
# A window of this many seconds is a used-up quota, not a rate that passes.
_LONG_WAIT = 3600.0
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
    exc: BaseException, *, rules: tuple[Rule, ...] = (), only_models: bool = False
) -> Failure:
    """Say what an exception means; never raise.

    Args:
        exc: The exception.
        rules: The user's own, as a config holds them: ``FallbackConfig(rules=...).rules``.
        only_models: Whether nobody but a model was asked: then a general client's error is the
            model's, whatever its address, and so are the words of any class.

    Raises:
        FallbackConfigError: ``rules`` are something else, such as a path.
    """
    if rules:
        require_loaded(rules)
    walk = _CauseWalk(exc, type(exc).__name__, rules, set(), only_models)
    try:
        return walk.classify(exc) or walk.plain()
    except Exception:  # noqa: BLE001  a classifier that raises would hide the error that it got
        return walk.plain(reason="the exception could not be read")


class _CauseWalk(NamedTuple):
    """Classify one exception, and its causes where its own class does not decide."""

    outermost: BaseException  # that was raised for the request
    error: str
    rules: tuple[Rule, ...]
    seen: set[int]
    of_model: bool  # was nobody but a model asked?
    depth: int = 0

    def classify(self, exc: BaseException) -> Failure | None:
        self.seen.add(id(exc))
        if isinstance(exc, AnswerRejected | ErrorStandIn) and exc.failure is not None:
            return self._rejudged(exc, exc.failure._replace(error=self.error))
        cls: Any = type(exc)
        by_origin = origin(cls)
        if by_origin is not None and (by_origin.kind is Kind.CANCELLED or not self.rules):
            return self.plain(by_origin.kind, by_origin.reason)
        if isinstance(exc, BaseExceptionGroup):
            walk = self._replace(depth=self.depth + 1)  # each member had a request of its own
            members = self._unseen(exc.exceptions)
            failures = [walk._replace(outermost=e).classify(e) or self.plain() for e in members]
            failure = min(failures, key=lambda one: SEVERITY[one.kind], default=None)
            return failure and of_group(exc, failure, failures)
        return self._facts_failure(exc, by_origin)

    def _facts_failure(self, exc: BaseException, by_origin: Row | None) -> Failure | None:
        facts = read_facts(exc)
        default = first_fitting(self.rules, exc, facts, facts.error, default=True)
        named = default is not None
        row, status = decide(exc, facts, named=named, of_model=self.of_model)
        is_providers = row is not None and row.kind is not Kind.LOCAL
        if is_providers and not (named or self.of_model or facts.document.is_shaped):
            has_status = facts.error is not None
            other = other_service(exc, facts.message, facts.text, has_status=has_status)
            row = other or row
        rule = first_fitting(self.rules, exc, facts, status)
        failure = None
        if by_origin is not None:
            failure = self.plain(by_origin.kind, by_origin.reason)
        elif row is None or row.wraps:
            failure = self._cause_failure(exc, row)
        failure = failure or (row and self._failure(row, status, facts))
        if failure is None and rule is None and default is not None:
            known = self._failure(Row(default.kind, ""), status, facts)
            return self._renamed(default, status, facts, known)._replace(by_rule=False)
        return failure if rule is None else self._renamed(rule, status, facts, failure)

    def _cause_failure(self, exc: BaseException, row: Row | None) -> Failure | None:
        opaque = row is None or row.opaque
        counts = _UNDER_ANOTHER if opaque else _UNDER_A_CONNECTION
        if row is not None and row.kind is Kind.MALFORMED_RESPONSE:
            counts = _UNDER_AN_ANSWER
        cls: Any = type(exc)
        walk = self._replace(depth=self.depth + 1, of_model=self.of_model or is_sdk(cls))
        for child in self._unseen(children(exc, follow_context=row is not None)):
            failure = walk.classify(child)
            if failure is None and not opaque and isinstance(child, _PROGRAM):
                return self.plain(reason="a connection class that hides a mistake of the program")
            if failure is not None and (failure.by_rule or failure.kind in counts):
                return failure
        return None

    def _unseen(self, errors: Iterable[BaseException]) -> Iterator[BaseException]:
        return (e for e in errors if self.depth < _DEPTH and id(e) not in self.seen)

    def _failure(
        self, row: Row, status: int | None, facts: Facts, *, by_rule: bool = False
    ) -> Failure:
        kind, reason, reached, scope = row.kind, row.reason, row.reached, row.scope
        wait, again = None, True
        if KINDS[kind].states_wait:
            wait, again = read_waits(facts.headers, facts.document.waits)
        if kind is Kind.RATE_LIMIT and wait is None:
            wait = in_text(facts.message.lower())
        if not by_rule:
            if kind is Kind.QUOTA and facts.is_per_minute:  # Google says "quota" of either
                kind, reason = Kind.RATE_LIMIT, "a quota per minute"
            if kind is Kind.RATE_LIMIT and wait is not None and wait >= _LONG_WAIT:
                kind, reason = Kind.QUOTA, "a rate limit that lasts for hours"
            reached, scope = outcome(self.outermost, row, facts)
            if KINDS[kind].scope == "credential" and facts.is_models:
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
            by_rule=by_rule,
        )

    def _renamed(
        self, rule: Rule, status: int | None, facts: Facts, known: Failure | None
    ) -> Failure:
        """Call a failure what a user's rule calls it; what the facts say of it stays."""
        known = known or self.plain()
        scope = None if known.scope == KINDS[known.kind].scope else known.scope
        reason = f"{rule.source}: {rule.reason}" if rule.reason else rule.source
        row = Row(rule.kind, reason, reached=known.reached, scope=scope)
        failure = self._failure(row, status or facts.error, facts, by_rule=True)
        own: dict[str, Any] = {"transient": rule.transient, "retry_after": rule.retry_after}
        return failure._replace(**{name: fact for name, fact in own.items() if fact is not None})

    def _rejudged(self, exc: BaseException, failure: Failure) -> Failure:
        """Ask the rules about an answer that was refused without them; its failure has facts."""
        status, code, message = failure.status, failure.code, failure.provider_message
        codes = [code.lower()] if code else []
        facts = Facts(error=status, codes=codes, code=code, message=message, text=message)
        rule = None if failure.by_rule else first_fitting(self.rules, exc, facts, status)
        return failure if rule is None else self._renamed(rule, status, facts, failure)

    def plain(self, kind: Kind = Kind.LOCAL, reason: str = "nothing says more") -> Failure:
        return Failure.of(kind, reason=reason, error=self.error)
