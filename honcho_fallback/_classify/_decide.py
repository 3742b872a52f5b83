"""From the facts of one exception to what they mean: codes, status, text, class name, errno."""

from __future__ import annotations

import builtins
import re
from http import HTTPStatus
from typing import TYPE_CHECKING

from honcho_fallback._classify._tables import CODES, ERRNOS, GENERIC, NAMES, STATUSES, WORDS, Row
from honcho_fallback._classify._texts import NO_STATUS, PROGRAM, RULES, meaning
from honcho_fallback._core.failure import FailureKind as Kind

if TYPE_CHECKING:
    from honcho_fallback._classify._facts import Facts

# What a bug in the program raises: no provider wrote these texts, so they are not read.
_BUGS: tuple[type[Exception], ...] = tuple(getattr(builtins, name) for name in WORDS["bugs"])
_PARTS = WORDS["parts"]
_OPERATIONS = WORDS["operations"]
_MACHINE = Row(Kind.LOCAL, "an OSError of the machine itself")
_OTHER_SERVICE = Row(Kind.LOCAL, "an operation of another service than a model's")
# What a class that is only named in a text does not settle.
_VAGUE = frozenset({Kind.SERVER_ERROR, Kind.LOCAL, Kind.MALFORMED_RESPONSE})
# The status that a class stands for where its instance states none.
_STATUS_OF = {
    Kind.RATE_LIMIT: 429,
    Kind.OVERLOADED: 503,
    Kind.SERVER_ERROR: 500,
    Kind.PERMISSION: 403,
    Kind.MODEL_UNAVAILABLE: 404,
    Kind.INVALID_REQUEST: 400,
}
# Statuses that mean what they say, whatever they wrap.
_PLAIN = frozenset({401, 402, 407, 408, 413, 429, 504, 524, 529})
_PHRASES = "|".join(
    ("client error", "server error", *(re.escape(s.phrase.lower()) for s in HTTPStatus if s >= 400))
)
_NUMBER = re.compile(r"(?<!\d)[45]\d\d(?!\d)")
# A status that a gateway or a wrapper wrote into a text.
_STATED = re.compile(
    r"(?<!expected )(?:error code|status code|status_code|http status|status|http|code|error)"
    r"['\"]?(?: ?[:=(] ?|[ (])['\"]?([45]\d\d)(?![\d.]\d|\d)"
    r"|\[([45]\d\d)[\] ]"
    rf"|(?<![\d.])([45]\d\d)[: ]{{1,2}}(?:{_PHRASES})"
    r"|^\W{0,2}([45]\d\d)(?=[:,])"
    r"|(?:failed|returned|replied|responded|answered|received|got)(?: with)?[,:]? ([45]\d\d)(?![\d.]\d|\d)(?! [a-z]+s\b)"
)
# The codes of an error document that a wrapper made part of its text, and AWS's in its sentence.
_QUOTED = re.compile(
    r"[\"'](?:code|type|status|reason|__type|:exception-type)\\{0,4}[\"']\s{0,4}:\s{0,4}"
    r"\\{0,4}[\"']?([\w.\- ]{3,60}?)\\{0,4}[\"',}]"
)
_CALLING = re.compile(r"\((\w+)\) when calling the (\w+) operation")
_CLASS = re.compile(r"\b([A-Z]\w*(?:Error|Exception|Timeout))\b")


def decide(exc: BaseException, facts: Facts, *, named: bool) -> tuple[Row | None, int | None]:
    """Find the row that the facts lead to, or None when they decide nothing, and the status."""
    row, status = facts.row, facts.status
    if row is not None and row.strong and not row.wraps:
        return row, status
    operation = _CALLING.search(facts.message)
    if operation is not None and operation[2] not in _OPERATIONS:
        return (None if named else _OTHER_SERVICE), status
    stated = facts.error or next(filter(None, map(GENERIC.get, facts.codes)), None)
    code_row = _coded(facts.codes, stated or 200)
    if code_row is not None:
        return code_row, facts.error or status
    catch_all = row is not None and row.strong
    number = stated or (row and (500 if catch_all else _STATUS_OF.get(row.kind)))
    if number:
        decided, inner = _specific(facts, number)
        if decided is not None and not (catch_all and decided.kind is Kind.CONNECTION):
            return decided, facts.error or inner or status
        if row is not None and (catch_all or not stated):
            return row, status
        return STATUSES.get(number) or STATUSES[number // 100 * 100], facts.error or status
    if row is not None:
        return (None if named and row.kind is Kind.LOCAL else row), status
    if isinstance(exc, OSError):
        return ERRNOS.get(exc.errno, _MACHINE), None
    if isinstance(exc, _BUGS):
        return _missing_part(exc), None
    own = type(exc).__module__ == "builtins" and isinstance(exc, ValueError | TypeError)
    if own and operation is None:
        return meaning(facts.text, PROGRAM), status
    decided, inner = _specific(facts, NO_STATUS)
    if decided is None and status is not None:
        decided = Row(Kind.MALFORMED_RESPONSE, f"an error under status {status}")
    return decided, inner or status


def _specific(facts: Facts, number: int) -> tuple[Row | None, int | None]:
    """Find what says more than a status does, and the status that a text states, if any.

    What a gateway wraps is nearer to the cause than the gateway's own status.
    """
    if number in _PLAIN:
        return meaning(facts.text, number) if number in RULES else None, None
    text = facts.message
    lower = text.lower()
    quoted = [code.strip() for code in _QUOTED.findall(lower)] if "{" in text else []
    quoted += [match[1].lower() for match in _CALLING.finditer(text)]
    stated = _STATED.findall(lower) if _NUMBER.search(text) else None
    inner = int("".join(stated[-1])) if stated else None
    for code in quoted:
        inner = GENERIC.get(code) or (int(code) if _NUMBER.fullmatch(code) else inner)
    inner = inner or facts.inner
    row = _coded(quoted, inner or number or 200) or (inner and meaning(facts.text, inner))
    if not row or (row.kind is Kind.SERVER_ERROR and number >= 500):  # the gateway's own words
        row = meaning(facts.text, number)
    if row is not None:
        return row, inner
    for name in reversed(_CLASS.findall(text)):
        named = NAMES.get(name)
        if named is not None and named.kind not in _VAGUE:
            return named, inner
    if inner is None and number >= 500:  # a gateway's own number beside what the provider called it
        inner = next((code for code in map(GENERIC.get, facts.codes) if code and code < 500), None)
    if inner is not None and inner != number:
        row = STATUSES.get(inner) or STATUSES[inner // 100 * 100]
    return row, inner


def _coded(codes: list[str], status: int) -> Row | None:
    for code in codes:
        row = CODES.get(code)
        if row is not None and (not row.statuses or status in row.statuses):
            return row
    return None


def _missing_part(exc: BaseException) -> Row | None:
    match exc:
        case KeyError(args=(str(part),)) | AttributeError(name=str(part)) if part in _PARTS:
            return Row(Kind.MALFORMED_RESPONSE, f"the answer has no {part}")
        case _:
            return None
