"""The facts one exception carries: status, codes, message, waits. No network, no SDK, no raise."""

from __future__ import annotations

import re
from functools import lru_cache
from http import HTTPStatus
from typing import Any, NamedTuple

from honcho_fallback._classify._body import TEXT_CAP, Document
from honcho_fallback._classify._origin import class_row
from honcho_fallback._classify._read import called, fields, plain
from honcho_fallback._classify._tables import GENERIC, WORDS, Row
from honcho_fallback.redaction import CODE

ATTRIBUTES = frozenset(WORDS["attributes"])
_OF_AN_ANSWER = frozenset({"status_code", "status", "headers"})
_STATUSES = ("status_code", "http_status", "status", "statusCode", "code")
# Classes that LiteLLM and others write before a text: ``litellm.APIError: XException - ``.
_PREFIX = re.compile(r"(?:[\w.]{1,80}(?:Error|Exception)(?:: | - ))+")
# What LiteLLM adds to a text: lines of code, whose words are no message.
_FRAMES = re.compile(r"Traceback \(most recent call last\):\n(?:[ \t].*\n?)+")
_STATUS = re.compile(r"\s*[1-5][0-9]{2}\s*")


class Facts(NamedTuple):
    """Hold what one exception carries.

    Args:
        row: The row of the nearest class in the MRO that a table names, or None.
        status: HTTP status as the exception states it, success included, or None.
        error: The status that decides: that one, or one in the body, 400 to 599, or None.
        inner: The status that the body states, innermost first, where it is another one, or None.
        codes: The provider's codes and types, lower case, the most telling first.
        code: The code to show: the first that looks like one, as the provider wrote it.
        message: The provider's own text.
        text: Codes and texts as they were written, one a line, to be read by their words.
        headers: The answer's headers, unread.
        waits: How long to wait, as the body says it.
        limits: Those that were used up, as the body names them.
        has_body: Whether an error document came, or a text in its place; None where nothing is
            known of the answer's body.
        is_shaped: Whether that document has a shape that only models' providers give it.
    """

    row: Row | None
    status: int | None
    error: int | None
    inner: int | None
    codes: list[str]
    code: str | None
    message: str
    text: str
    headers: Any
    waits: list[Any]
    limits: list[Any]
    has_body: bool | None
    is_shaped: bool = False


def read_facts(exc: BaseException) -> Facts:
    """Read what an exception carries; what cannot be read counts as absent."""
    cls: Any = type(exc)
    own = _with_close(fields(exc, ATTRIBUTES))
    answer = _answer(own.get("response"))
    document = Document()
    bodies = (own.get("body"), own.get("details"), own.get("error"), answer.get("_content"))
    for body in (*bodies, _raised_document(exc)):
        if isinstance(body, (dict, list, str, bytes)) and body:
            document.read(body)
            break
    has_body = _has_body(document, answer)
    for name in filter(own.__contains__, ("code", "type", "status", "error_code")):
        document.add_code(own[name])
    if callable(own.get("code")):  # gRPC
        document.add_code(plain(called(exc, "code"), "name"))
        document.add_text(called(exc, "details"))
    message = "" if document.texts else _message(exc)
    if message.startswith("{") and not document.codes:
        document.add_text(message)
    message = " ".join(document.texts) or message
    stated = (*map(own.get, _STATUSES), answer.get("status_code"), answer.get("status"))
    numbers = (as_status(value) for value in stated if value is not None)
    status = next(filter(None, numbers), None)
    error = status if status is not None and status >= 400 else None
    code = inner = None
    codes: list[str] = []
    for word in document.codes:
        number = as_status(word)
        if number is None:
            codes.append(word.lower())
            code = word if code in (None, "error") and CODE.fullmatch(word) else code
        elif number >= 400 and number != error:
            inner = inner or number
    if error is None:
        error, inner = inner, None
    headers = own.get("litellm_response_headers") or own.get("headers") or answer.get("headers")
    row = class_row(cls)
    names = () if status or row else _names(cls)
    texts = [
        text[prefix.end() :] if (prefix := _PREFIX.match(text)) else text
        for text in document.texts or (message[:TEXT_CAP],)
    ]
    text = "\n".join((*names, *dict.fromkeys(filter(_tells, document.codes)), *texts))
    text = _FRAMES.sub("Traceback\n", text) if "Traceback" in text else text
    message, text = message[:TEXT_CAP], text[:TEXT_CAP]
    words = (codes, code, message, text)
    body = (document.waits, document.limits, has_body, document.is_shaped)
    return Facts(row, status, error, inner, *words, headers, *body)


def _has_body(document: Document, answer: dict[str, Any]) -> bool | None:
    has_body = bool(document.texts or document.codes)
    return has_body if has_body or answer.get("_content") is not None else None


def _with_close(own: dict[str, Any]) -> dict[str, Any]:
    """Read a websocket's close frame as a body, and its number as a status where it is one."""
    number, reason = own.get("code"), own.get("details")  # as Google's SDK keeps it
    if "rcvd" in own:
        number, reason = plain(own["rcvd"], "code"), plain(own["rcvd"], "reason")
    if not (reason and isinstance(reason, str) and isinstance(number, int) and number >= 1000):
        return own
    status = as_status(number - 4000)
    return own | {"code": status or f"close_{min(number, 4000)}", "body": {"message": reason}}


def _tells(code: str) -> bool:
    """Tell whether a code says more than that a request is bad, which any sentence does."""
    return GENERIC.get(code.lower()) != HTTPStatus.BAD_REQUEST


def _answer(response: Any) -> dict[str, Any]:
    """Return status, headers and content; to ask for .text or .json() could start reading."""
    if not isinstance(response, dict):
        return {} if response is None else fields(response, _OF_AN_ANSWER)
    meta = response.get("ResponseMetadata")  # botocore
    meta = meta if isinstance(meta, dict) else {}
    headers = meta.get("HTTPHeaders")
    return {"status": meta.get("HTTPStatusCode"), "headers": headers, "_content": response}


def _raised_document(exc: BaseException) -> dict[str, Any] | None:
    """Return the error document that LangChain's OpenAI model raises as it is, or its object."""
    args = plain(exc, "args") if type(exc) is ValueError else None
    document = args[0] if isinstance(args, tuple) and len(args) == 1 else None
    fields = document if isinstance(document, dict) else plain(document, "__dict__")
    return fields if isinstance(fields, dict) and "message" in fields else None


def as_status(value: Any) -> int | None:
    """Read a status from an int or a digit string of 100 to 599; a bool is none."""
    if isinstance(value, str) and _STATUS.fullmatch(value):
        value = int(value)
    known = isinstance(value, int) and not isinstance(value, bool) and 100 <= value <= 599
    return int(value) if known else None


def _message(exc: BaseException) -> str:
    try:
        args = exc.args
        return args[0] if len(args) == 1 and type(args[0]) is str else str(exc)
    except Exception:  # noqa: BLE001  a hostile __str__ says nothing
        return ""


@lru_cache(maxsize=512)
def _names(cls: type) -> tuple[str, ...]:
    """Name the classes of an SDK: they say what happened where nothing else does."""
    return tuple(c.__name__ for c in cls.__mro__ if c.__module__ != "builtins")
