"""From the facts of one exception to what they mean: codes, status and its text, name, errno."""

from __future__ import annotations

import builtins
import re
from typing import TYPE_CHECKING

from honcho_fallback._classify._tables import CODES, ERRNOS, GENERIC, STATUSES, WORDS, Row, by_text
from honcho_fallback._core.failure import FailureKind as Kind

if TYPE_CHECKING:
    from honcho_fallback._classify._facts import Facts

# What a bug in the program raises: no provider wrote these texts, so they are not read.
_BUGS: tuple[type[Exception], ...] = tuple(getattr(builtins, name) for name in WORDS["bugs"])
_PARTS = WORDS["parts"]
_MACHINE = Row(Kind.LOCAL, "an OSError of the machine itself")
# A status written into a message by a wrapper that keeps no number.
_STATED = re.compile(
    r"(?:error code|status code|status_code|http status|status|http|code)"
    r"['\"]?\s*[:=]?\s*[\"']?(?<!\d)([45]\d\d)(?![\d.])"
    r"|^\W{0,2}([45]\d\d)(?!\d)[ :,]"
    r"|\berror[ :(]{1,3}([45]\d\d)\b(?!\.)"
)
# The codes of an error document that a wrapper made part of its text.
_QUOTED = re.compile(
    r"\\*[\"'](?:code|type|status|reason|__type)\\*[\"']\s*:\s*"
    r"\\*[\"']?([\w.\- ]{3,60}?)\\*[\"',}]"
)


def decide(exc: BaseException, facts: Facts, *, named: bool) -> tuple[Row | None, int | None]:
    """Find the row that the facts lead to, or None when they decide nothing, and the status."""
    row, status, error, text = facts.row, facts.status, facts.error, facts.message.lower()
    if row is not None and row.strong:
        text_row = by_text(text, 0) if row.wraps else None
        decided = row if text_row is None or text_row.kind is Kind.CONNECTION else text_row
        return decided, status
    number = error or next(filter(None, map(GENERIC.get, facts.codes)), None)
    code_row = _coded(facts.codes, error or 200) or (number and _numbered(number, text))
    if code_row:
        return code_row, error or status
    if row is not None and row.kind is not Kind.SERVER_ERROR:
        return (None if named and row.kind is Kind.LOCAL else row), status
    if row is None and isinstance(exc, OSError):
        return ERRNOS.get(exc.errno, _MACHINE), None
    if isinstance(exc, _BUGS):
        return _missing_part(exc), None
    # Where the class has a row, the text is a provider's, as under a 500.
    text_row = by_text(text, 0) or (by_text(text, 500) if row else None)
    stated = None if text_row else _STATED.search(text)
    if stated is not None:
        status = int(next(filter(None, stated.groups())))
        text_row = _numbered(status, text)
    if not (text_row or row) and status is not None:
        row = Row(Kind.MALFORMED_RESPONSE, f"an error under status {status}")
    return text_row or row, status


def _coded(codes: list[str], status: int) -> Row | None:
    for code in codes:
        row = CODES.get(code)
        if row is not None and (not row.statuses or status in row.statuses):
            return row
    return None


def _numbered(error: int, text: str) -> Row:
    quoted = [code.strip() for code in _QUOTED.findall(text)] if "{" in text else []
    row = _coded(quoted, error) or by_text(text, error) or STATUSES.get(error)
    return row or STATUSES[error // 100 * 100]


def _missing_part(exc: BaseException) -> Row | None:
    match exc:
        case KeyError(args=(str(part),)) | AttributeError(name=str(part)) if part in _PARTS:
            return Row(Kind.MALFORMED_RESPONSE, f"the answer has no {part}")
        case _:
            return None
