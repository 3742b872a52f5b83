"""From the facts of one exception to what they mean: codes, status and its text, name, errno."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from honcho_fallback._classify._rules import (
    CODES,
    GENERIC,
    NETWORK_ERRNO,
    OTHER_4XX,
    OTHER_5XX,
    STATUSES,
    TIMEOUT_ERRNO,
)
from honcho_fallback._classify._texts import NEEDLES, QUOTED, STATED, match
from honcho_fallback._failure import FailureKind as Kind

if TYPE_CHECKING:
    from honcho_fallback._classify._facts import Facts
    from honcho_fallback._classify._rules import CodeRow

# Parts that every answer has: their absence is the answer's fault, not the reader's.
_PARTS = frozenset({"choices", "candidates", "message", "content", "output", "parts"})


class Verdict(NamedTuple):
    """Hold what one exception means before anything below it is asked."""

    kind: Kind
    reason: str
    status: int | None = None
    transient: bool | None = None
    wraps: bool = False


def decide(exc: BaseException, facts: Facts, *, named: bool) -> Verdict | None:
    """Say what the facts mean, or None when they decide nothing.

    Args:
        exc: The exception, for what only its class offers.
        facts: What it carries.
        named: Is its class one of ``provider_errors``?
    """
    status = facts.status
    row = facts.cls.row
    if row is not None and row.strong:
        if row.wraps and facts.message:
            refined = _text(facts.message.lower(), 0, status)
            if refined is not None and refined.kind is not Kind.CONNECTION:
                return refined
        return Verdict(row.kind, row.reason, status, row.transient, row.wraps)
    error = status if status is not None and status >= 400 else facts.body_status
    shown = error or status
    codes = facts.codes
    if codes:
        found = _code(codes, error or 200)
        if found is not None:
            return Verdict(found.kind, found.reason, shown, found.transient)
        if error is None:
            error = next((GENERIC[code] for code in codes if code in GENERIC), None)
    if error is not None:
        return _status(error, shown, facts.message)
    return _unnumbered(exc, facts, named=named)


def _code(codes: tuple[str, ...], status: int) -> CodeRow | None:
    for code in codes:
        row = CODES.get(code)
        if row is not None and (not row.statuses or status in row.statuses):
            return row
    return None


def _status(error: int, shown: int | None, message: str) -> Verdict:
    if message and error in NEEDLES:
        text = message.lower()
        if "{" in text:
            found = _code(tuple(c.strip() for c in QUOTED.findall(text)), error)
            if found is not None:
                return Verdict(found.kind, found.reason, shown, found.transient)
        refined = _text(text, error, shown)
        if refined is not None:
            return refined
    row = STATUSES.get(error) or (OTHER_5XX if error >= 500 else OTHER_4XX)
    return Verdict(row.kind, row.reason, shown)


def _text(text: str, group: int, status: int | None) -> Verdict | None:
    row = match(text, group)
    return None if row is None else Verdict(row.kind, row.reason, status, row.transient)


def _unnumbered(exc: BaseException, facts: Facts, *, named: bool) -> Verdict | None:
    row = facts.cls.row
    verdict: Verdict | None = None
    if row is not None and row.kind is not Kind.SERVER_ERROR:
        if row.kind is not Kind.LOCAL or not named:
            verdict = Verdict(row.kind, row.reason, facts.status, row.transient, row.wraps)
    elif facts.cls.os_error and row is None:
        verdict = _os_error(exc)
    elif facts.cls.bug:
        verdict = _missing_part(exc)
    else:
        verdict = _spoken(facts)
    return verdict


def _spoken(facts: Facts) -> Verdict | None:
    text = facts.message.lower()
    status = facts.status
    row = facts.cls.row
    refined = _text(text, 0, status)
    if refined is None and row is not None:  # surely a provider's words, as behind a 500
        refined = _text(text, 500, status)
    if refined is not None:
        return refined
    stated = STATED.search(text)
    if stated is not None:
        number = int(next(group for group in stated.groups() if group))
        return _status(number, number, facts.message)
    if row is not None:
        return Verdict(row.kind, row.reason, status, row.transient, row.wraps)
    if status is not None:
        return Verdict(Kind.MALFORMED_RESPONSE, f"an error under status {status}", status)
    return None


def _os_error(exc: BaseException) -> Verdict:
    number = exc.errno if isinstance(exc, OSError) else None
    if number in NETWORK_ERRNO:
        return Verdict(Kind.CONNECTION, "a network errno")
    if number in TIMEOUT_ERRNO:
        return Verdict(Kind.TIMEOUT, "errno ETIMEDOUT")
    return Verdict(Kind.LOCAL, "an OSError of the machine itself")


def _missing_part(exc: BaseException) -> Verdict | None:
    if isinstance(exc, KeyError) and len(exc.args) == 1:
        part = exc.args[0]
    elif isinstance(exc, AttributeError):
        part = exc.name
    else:
        return None
    if isinstance(part, str) and part in _PARTS:
        return Verdict(Kind.MALFORMED_RESPONSE, f"the answer has no {part}")
    return None
