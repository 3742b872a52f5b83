"""From the facts of one exception to what they mean.

First what nobody else can say better: a class that is sure of itself, another service's operation,
the provider's own code. Then what the message means under the status; a status, a code, a class
that a gateway wrapped into it comes before the gateway's own status. Then the status, the class,
the errno. A text without status or class counts only where the program would not write it itself.
"""

from __future__ import annotations

import builtins
import re
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from honcho_fallback._classify._origin import (
    may_speak,
    of_errno,
    reads_answer,
    speaks_of_models,
)
from honcho_fallback._classify._read import frames_of, plain
from honcho_fallback._classify._tables import (
    CODES,
    GENERIC,
    NAMES,
    STATUS_OF,
    STATUSES,
    WORDS,
    Row,
)
from honcho_fallback._classify._texts import LIBRARY, NO_STATUS, PROGRAM, RULES, meaning
from honcho_fallback._values.failure import FailureKind as Kind

if TYPE_CHECKING:
    from collections.abc import Sequence

    from honcho_fallback._classify._facts import Facts

# What a bug in the program raises: no provider wrote these texts, so they are not read.
_BUGS: tuple[type[Exception], ...] = tuple(getattr(builtins, name) for name in WORDS["bugs"])
_PARTS, _LISTS = WORDS["parts"], WORDS["lists"]
# Who finds a request bad says why; a gateway that lost its upstream does not.
_WORDLESS = Row(Kind.SERVER_ERROR, "a refusal without a word, or with a page")
_UNREAD = Row(Kind.MALFORMED_RESPONSE, "a library could not read the answer")
_OTHER_SERVICE = Row(Kind.LOCAL, "an operation of another service than a model's")
# Statuses of a server in between that lost its way, where it has nothing to say of the request.
_GATEWAYS_OWN = frozenset({400, 405, 406, 418, 421, 426})
_PAGE = re.compile(r"\s*<(?:!doctype|html|head|body)\b", re.IGNORECASE)
# A text that only says that something failed.
_WORDS_OF_NO_REASON = re.compile(rf"(?:\W|{'|'.join(WORDS['no_reason'])})+", re.IGNORECASE)
_OF_THE_CALLER = frozenset({Kind.INVALID_REQUEST, Kind.CONTENT_POLICY})
# What a class that is only named in a text does not settle.
_VAGUE = frozenset({Kind.SERVER_ERROR, Kind.LOCAL, Kind.MALFORMED_RESPONSE})
_NAMED = [re.escape(status.phrase.lower()) for status in HTTPStatus if status >= 400]
_NUMBER = re.compile(r"(?<!\d)[45]\d\d(?!\d)")
# A status that a gateway or a wrapper wrote into a text; before its phrase, too.
_STATED = re.compile("|".join(WORDS["stated_statuses"]).replace("PHRASE", "|".join(_NAMED)))
# The codes of an error document that a wrapper made part of its text, and AWS's in its sentence.
_QUOTED = re.compile("|".join(WORDS["quoted_codes"]))
# The code of an error that a library raises as a text: before a colon, or as pydantic shows it.
_LEADING = re.compile(r"^([a-z][a-z\d_]{2,60}): |\bcode='([a-z\d_]{3,60})'")
_CALLING = re.compile(r"\((\w+)\) when calling the (\w+) operation")
_CLASS = re.compile(r"\b([A-Z]\w*(?:Error|Exception|Timeout))\b")


def decide(
    exc: BaseException, facts: Facts, *, named: bool, of_model: bool
) -> tuple[Row | None, int | None]:
    """Find the row that the facts lead to, or None when they decide nothing, and the status.

    ``named``: a rule of the user's says that a provider raises its class. ``of_model``: nobody but
    a model fails here, as it is all that was asked, or the error is an SDK's.
    """
    row = facts.row
    if row is not None and row.strong and not row.wraps:
        return row, facts.status
    call = _CALLING.search(facts.message) if "when calling" in facts.message else None
    is_aws = type(exc).__module__.startswith("botocore")
    operation = call[2] if call else is_aws and plain(exc, "operation_name")
    if isinstance(operation, str) and operation not in WORDS["operations"]:
        return (None if named else _OTHER_SERVICE), facts.status
    if call:  # the words of the operation's name are no message
        facts = facts._replace(text=_CALLING.sub(r"(\1)", facts.text))
    reads = type(exc).__module__.startswith(("builtins", "pydantic_core")) and reads_answer(exc)
    if (reads or of_model) and (code := _LEADING.search(facts.message)):
        facts = facts._replace(codes=[*facts.codes, code[1] or code[2]])
    stated = facts.error or next(filter(None, map(GENERIC.get, facts.codes)), None)
    found_row = _coded(facts.codes, stated or 200)
    # A library's own cause says more than its text, but not Python's: that is what was wrapped.
    cause: Any = type(exc.__cause__)
    if found_row is None and row is not None and cause.__module__ == "builtins":
        found_row = _of_library(row, facts)
    if found_row is not None:
        return found_row, facts.error or facts.status
    number = stated if stated or row is None else 500 if row.strong else STATUS_OF.get(row.kind)
    if number is not None:
        return _under_status(facts, number, stated)
    if row is not None:
        if row.kind is Kind.LOCAL and (named or reads):
            row = _UNREAD if reads else None
        return row, facts.status
    cls: Any = type(exc)
    may_be_read = of_model or may_speak(cls)
    judged = _without_status(exc, facts, may_be_read=may_be_read, is_providers=bool(call) or reads)
    return (_UNREAD, None) if reads and judged[0] is None else judged


def _of_library(row: Row, facts: Facts) -> Row | None:
    """Read what the class of a library leaves to its text: whose fault it is, what it wraps."""
    of_answer = row.kind is Kind.MALFORMED_RESPONSE
    says = meaning(facts.text, LIBRARY) if of_answer or row.wraps else None
    if says is None and of_answer and row.opaque:
        says, _ = _specific(facts, NO_STATUS)
    return None if says and of_answer and says.kind is Kind.LOCAL else says


def _under_status(facts: Facts, number: int, stated: int | None) -> tuple[Row, int | None]:
    """Judge a failed response: by its text, what that wraps, and then its status or its class."""
    row = facts.row
    catch_all = row is not None and row.strong  # a connection class, which hides anything
    specific, inner = _specific(facts, number)
    is_page = _PAGE.match(facts.message) is not None
    if is_page and specific is not None and specific.kind in _OF_THE_CALLER:
        specific = None  # what a proxy says in a page is about itself
    lost = specific is not None and specific.kind is Kind.CONNECTION and specific.scope is None
    if specific is not None and not (catch_all and lost):
        return specific, facts.error or inner or facts.status
    if row is not None and (catch_all or stated is None):
        return row, facts.status
    judges = facts.document.is_providers or not facts.has_body
    is_wordless = not judges and _WORDS_OF_NO_REASON.fullmatch(facts.message)
    if number in _GATEWAYS_OWN and (is_page or is_wordless or facts.has_body is False):
        return _WORDLESS, facts.status
    return _of_status(number), facts.error or facts.status


def _without_status(
    exc: BaseException, facts: Facts, *, may_be_read: bool, is_providers: bool
) -> tuple[Row | None, int | None]:
    """Judge an exception of a class that no table names, which carries no error status."""
    if isinstance(exc, OSError):
        return of_errno(exc, facts.message), None
    if isinstance(exc, _BUGS) or (type(exc) is TypeError and "NoneType" in facts.message):
        return _missing_part(exc), None
    # Whoever raises these may be the program itself, which also writes of limits and numbers.
    builtin = type(exc).__module__ == "builtins" and isinstance(exc, ValueError | TypeError)
    if builtin and not is_providers:
        return meaning(facts.text, PROGRAM), facts.status
    row, inner = _specific(facts, NO_STATUS)
    if row and inner is None and not (may_be_read or speaks_of_models(facts.text)):
        return None, facts.status  # the words of a tool's class, or of the program's own
    if row is None and facts.status is not None:
        row = Row(Kind.MALFORMED_RESPONSE, f"an error under status {facts.status}")
    return row, inner or facts.status


def _specific(facts: Facts, number: int) -> tuple[Row | None, int | None]:
    """Find what says more than a status does, and the status that a text states, if any.

    What a gateway wraps is nearer to the cause than the gateway's own status.
    """
    if number in STATUSES and STATUSES[number].strong:  # it means what it says
        return meaning(facts.text, number) if number in RULES else None, None
    codes, inner = _wrapped(facts)
    row = _coded(codes, inner or number or 200)
    if row is None and inner is not None:
        says_it = inner in STATUSES and STATUSES[inner].strong and inner not in RULES
        row = _of_status(inner) if says_it else meaning(facts.text, inner)
    row = row or meaning(facts.text, number)
    if row is None and inner is not None and inner != number:
        row = _of_status(inner)
    if row is None:
        classes = map(NAMES.get, reversed(_CLASS.findall(facts.message)))
        vague = {*_VAGUE, *([Kind.INVALID_REQUEST] if 400 < number < 500 else [])}
        row = next((row for row in classes if row and row.kind not in vague), None)
    if row is None and number >= 500:
        # What the provider called it, beside a gateway's number; many call anything a bad request.
        called = map(GENERIC.get, facts.codes)
        inner = next((status for status in called if status and 400 < status < 500), inner)
        row = _of_status(inner) if inner is not None and inner != number else None
    return row, inner


def _wrapped(facts: Facts) -> tuple[list[str], int | None]:
    """Find the codes that stand in a text, and the status that it or the body states."""
    codes: list[str] = []
    status = None
    text = facts.message.lower()
    if "{" in text:
        codes += [code.strip() for code in _QUOTED.findall(text)]
    if "when calling" in text:
        codes += [code.lower() for code, _ in _CALLING.findall(facts.message)]
    if _NUMBER.search(text):
        stated = _STATED.findall(text)
        status = int("".join(stated[-1])) if stated else None
    for code in codes:
        status = GENERIC.get(code) or (int(code) if _NUMBER.fullmatch(code) else status)
    return codes, status or facts.inner


def _of_status(status: int) -> Row:
    return STATUSES.get(status) or STATUSES[status // 100 * 100]


def _coded(codes: Sequence[str], status: int) -> Row | None:
    rows = (CODES[code] for code in codes if code in CODES)
    return next((row for row in rows if not row.statuses or status in row.statuses), None)


def _missing_part(exc: BaseException) -> Row | None:
    frames = frames_of(exc)
    names = frames[-1][0].f_code.co_names if frames else ()
    reads_list = not _LISTS.keys().isdisjoint(names)  # does the function that raised?
    match exc:
        case KeyError(args=(str(part),)) | AttributeError(name=str(part)) if part in _PARTS:
            return Row(Kind.MALFORMED_RESPONSE, f"the answer has no {part}")
        case AttributeError(obj=str(page)) if page.lstrip().startswith("<"):
            return Row(Kind.MALFORMED_RESPONSE, "a page came where an answer was expected")
        case AttributeError(name=str(), obj=None) | IndexError() | TypeError() if reads_list:
            return Row(Kind.MALFORMED_RESPONSE, "a part of the answer is not there")
        case _:
            return None
