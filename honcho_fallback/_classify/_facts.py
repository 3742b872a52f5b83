"""The facts one exception carries: status, codes, message, waits. No network, no SDK, no raise."""

from __future__ import annotations

import json
import threading
import warnings
from typing import TYPE_CHECKING, Any, NamedTuple

from honcho_fallback._classify._types import ClassFacts, class_facts

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_TEXT_CAP = 4000  # a message longer than this is an echo of the input or a page
_BODY_CAP = 65536
_DEPTH = 3
_INNER = ("error", "detail", "errors", "response", "innererror", "inner_error", "base_resp")
_CODES = ("code", "type", "status", "reason", "error_code", "error_type", "__type", "errorCode")
_CODES_LOW = ("status_code", "http_code")
_TEXTS = (
    "message", "msg", "error_msg", "errorMessage", "detail", "title", "status_msg", "Message",
    "error", "raw", "moreInfo",
)
_NESTED = ("metadata", "details", "innererror", "inner_error")

_lock = threading.RLock()


class Facts(NamedTuple):
    """Hold what one exception carries.

    Args:
        status: HTTP status as the exception states it, success included, or None.
        body_status: A status stated inside the body, 400 to 599, or None.
        codes: The provider's codes and types, lower case, the most telling first.
        code: The code to show: as the provider wrote it.
        message: What the provider said.
        headers: The answer's headers, unread.
        body: The parsed body, for waits.
        cls: What the class says.
    """

    status: int | None
    body_status: int | None
    codes: tuple[str, ...]
    code: str | None
    message: str
    headers: Any
    body: Any
    cls: ClassFacts


def read_facts(exc: BaseException) -> Facts:
    """Read what an exception carries; what cannot be read counts as absent.

    Args:
        exc: The exception.
    """
    cls = class_facts(type(exc))
    reader = _Reader(exc, cls)
    get = reader.get
    response = get("response")
    status = reader.status(response)
    body = _body(get, response)
    codes: list[str] = []
    texts: list[str] = []
    if isinstance(body, (dict, list)):
        _walk(body, codes, texts, 0)
    elif isinstance(body, str):
        texts.append(body)
    for name in ("code", "type", "status", "error_code"):
        _add_code(get(name), codes)
    if cls.grpc:
        _grpc(exc, codes, texts)
    message = " ".join(texts) if texts else ""
    if not message:
        message = _spoken(exc)
    body_status = None
    shown = None
    words: list[str] = []
    for code in codes:
        number = as_status(code)
        if number is None:
            words.append(code.lower())
            if shown is None or shown == "error":
                shown = code
        elif body_status is None and number >= 400:
            body_status = number
    headers = _headers(get, response)
    return Facts(
        status, body_status, tuple(words), shown, message[:_TEXT_CAP], headers, body, cls
    )


class _Reader:
    """Read attributes of an exception that may be hostile."""

    __slots__ = ("_cls", "_exc", "_own")

    def __init__(self, exc: BaseException, cls: ClassFacts) -> None:
        self._exc = exc
        self._cls = cls
        try:
            self._own: Mapping[str, Any] = exc.__dict__
        except Exception:  # noqa: BLE001  a hostile exception has no facts
            self._own = {}

    def get(self, name: str) -> Any:
        if name in self._own:
            return self._own[name]
        if name in self._cls.lazy:
            return _careful(self._exc, name)
        return self._cls.constants.get(name)

    def status(self, response: Any) -> int | None:
        for name in ("status_code", "http_status", "status", "statusCode", "code"):
            found = as_status(self.get(name))
            if found is not None:
                return found
        if response is None:
            return None
        if isinstance(response, dict):  # botocore
            meta = response.get("ResponseMetadata")
            return as_status(meta.get("HTTPStatusCode")) if isinstance(meta, dict) else None
        return as_status(_plain(response, "status_code")) or as_status(_plain(response, "status"))


def as_status(value: Any) -> int | None:
    """Read a status from an int or a digit string of 100 to 599; a bool is none.

    Args:
        value: Whatever the attribute held.
    """
    if isinstance(value, bool):
        return None
    if isinstance(value, str):
        value = value.strip()
        if len(value) != 3 or not (value.isascii() and value.isdigit()):
            return None
        value = int(value)
    elif not isinstance(value, int):
        return None
    return int(value) if 100 <= value <= 599 else None


def _careful(exc: BaseException, name: str) -> Any:
    # The lock keeps two classifications from undoing each other's warning filters.
    with _lock, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return getattr(exc, name, None)
        except Exception:  # noqa: BLE001  a property that raises counts as absent
            return None


def _plain(obj: Any, name: str) -> Any:
    try:
        return getattr(obj, name, None)
    except Exception:  # noqa: BLE001  a property that raises counts as absent
        return None


def _body(get: Any, response: Any) -> Any:
    for name in ("body", "details", "error"):
        value = get(name)
        if isinstance(value, (dict, list)):
            if value:
                return value
        elif isinstance(value, (str, bytes)) and value:
            return _parsed(value)
    if isinstance(response, dict):
        return response
    if response is not None:
        try:
            # Already read by httpx or requests; asking .text or .json() could start reading.
            content = response.__dict__.get("_content")
        except Exception:  # noqa: BLE001  an odd response has no body
            return None
        if isinstance(content, bytes) and content:
            return _parsed(content)
    return None


def _parsed(raw: str | bytes) -> Any:
    text = raw.decode("utf-8", "replace") if isinstance(raw, bytes) else raw
    start = text[:1]
    if (start in "{[" or text[:20].lstrip()[:1] in ("{", "[")) and len(text) <= _BODY_CAP:
        try:
            return json.loads(text)
        except (ValueError, RecursionError):
            pass
    return text[:_TEXT_CAP]


def _walk(body: Any, codes: list[str], texts: list[str], depth: int) -> None:
    """Collect codes and texts, the innermost error first: it is the one that knows."""
    if depth > _DEPTH:
        return
    if isinstance(body, list):
        for item in body[:3]:
            _walk(item, codes, texts, depth + 1)
        return
    if not isinstance(body, dict):
        return
    for name in _INNER:
        inner = body.get(name)
        if isinstance(inner, (dict, list)):
            _walk(inner, codes, texts, depth + 1)
    error = body.get("Error")  # botocore
    if isinstance(error, dict):
        _add_code(error.get("Code"), codes)
        _add_text(error.get("Message"), codes, texts, depth)
    for name in _CODES:
        _add_code(body.get(name), codes)
    for name in _CODES_LOW:
        _add_code(body.get(name), codes)
    for name in _TEXTS:
        value = body.get(name)
        if isinstance(value, str) and value:
            _add_text(value, codes, texts, depth)
        elif name == "message" and isinstance(value, dict):
            _walk(value, codes, texts, depth + 1)
    for name in _NESTED:
        value = body.get(name)
        if isinstance(value, (dict, list)):
            _walk(value, codes, texts, depth + 1)


def _add_code(value: Any, codes: list[str]) -> None:
    if isinstance(value, str):
        if 0 < len(value) <= 100 and value != "None":
            codes.append(value)
    elif isinstance(value, int) and not isinstance(value, bool):
        codes.append(str(int(value)))


def _add_text(value: Any, codes: list[str], texts: list[str], depth: int) -> None:
    if not isinstance(value, str) or not value or value in texts:
        return
    # Gateways pass the provider's own error on as a document inside the message.
    start = value.find("{") if len(value) <= _BODY_CAP else -1
    if start >= 0:
        end = value.rfind("}")
        try:
            inner = json.loads(value[start : end + 1])
        except (ValueError, RecursionError):
            inner = None
        if isinstance(inner, dict):
            before = len(texts)
            _walk(inner, codes, texts, depth + 1)
            if len(texts) > before and start == 0:
                return
    texts.append(value[:_TEXT_CAP])


def _grpc(exc: BaseException, codes: list[str], texts: list[str]) -> None:
    code = _called(exc, "code")
    name = _plain(code, "name")
    if isinstance(name, str):
        codes.append(name)
    details = _called(exc, "details")
    if isinstance(details, str) and details:
        texts.append(details[:_TEXT_CAP])


def _called(exc: BaseException, name: str) -> Any:
    method = _plain(exc, name)
    try:
        return method() if callable(method) else None
    except Exception:  # noqa: BLE001  a method that raises says nothing
        return None


def _spoken(exc: BaseException) -> str:
    with_args = _plain(exc, "args")
    if isinstance(with_args, tuple) and len(with_args) == 1 and type(with_args[0]) is str:
        return with_args[0][:_TEXT_CAP]
    try:
        return str(exc)[:_TEXT_CAP]
    except Exception:  # noqa: BLE001  a hostile __str__ says nothing
        return ""


def _headers(get: Any, response: Any) -> Any:
    for name in ("litellm_response_headers", "headers"):
        found = get(name)
        if found:
            return found
    if response is None:
        return None
    if isinstance(response, dict):
        meta = response.get("ResponseMetadata")
        return meta.get("HTTPHeaders") if isinstance(meta, dict) else None
    return _plain(response, "headers")


def children(exc: BaseException, *, follow_context: bool) -> Iterator[BaseException]:
    """Name the exceptions that one exception was raised for, the most certain first.

    Args:
        exc: The exception.
        follow_context: Is it a known wrapper, whose implicit context counts?
    """
    if exc.__cause__ is not None:
        yield exc.__cause__
    elif follow_context and exc.__context__ is not None and not exc.__suppress_context__:
        yield exc.__context__
    try:
        own = exc.__dict__
    except Exception:  # noqa: BLE001  a hostile exception hides nothing
        own = {}
    attempt = own.get("last_attempt")  # tenacity
    if attempt is not None:
        inner = _called(attempt, "exception") if _done(attempt) else None
        if isinstance(inner, BaseException):
            yield inner
    for name in ("reason", "original_exception", "os_error"):
        inner = own.get(name)
        if isinstance(inner, BaseException):
            yield inner
    arguments = _plain(exc, "args")
    if isinstance(arguments, tuple):
        yield from (a for a in arguments[:2] if isinstance(a, BaseException))


def _done(attempt: Any) -> bool:
    # Asking a pending future for its exception would wait for it.
    return _called(attempt, "done") is True
