"""The facts one exception carries: status, codes, message, waits. No network, no SDK, no raise."""

# What is read here has whatever shape a stranger gave it; what comes out is typed.
# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from honcho_fallback._classify._body import TEXT_CAP, add_code, parsed, walk
from honcho_fallback._classify._safe import called, plain, quiet
from honcho_fallback._classify._types import ClassFacts, class_facts

if TYPE_CHECKING:
    from collections.abc import Mapping


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
    cls = class_facts(exc)
    reader = _Reader(exc, cls)
    get = reader.get
    response = get("response")
    status = reader.status(response)
    body = _body(get, response)
    codes: list[str] = []
    texts: list[str] = []
    if isinstance(body, (dict, list)):
        walk(body, codes, texts, 0)
    elif isinstance(body, str):
        texts.append(body)
    for name in ("code", "type", "status", "error_code"):
        add_code(get(name), codes)
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
    return Facts(status, body_status, tuple(words), shown, message[:TEXT_CAP], headers, body, cls)


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
            return quiet(self._exc, name)
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
        return as_status(plain(response, "status_code")) or as_status(plain(response, "status"))


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


def _body(get: Any, response: Any) -> Any:
    for name in ("body", "details", "error"):
        value = get(name)
        if isinstance(value, (dict, list)):
            if value:
                return value
        elif isinstance(value, (str, bytes)) and value:
            return parsed(value)
    if isinstance(response, dict):
        return response
    if response is not None:
        try:
            # Already read by httpx or requests; asking .text or .json() could start reading.
            content = response.__dict__.get("_content")
        except Exception:  # noqa: BLE001  an odd response has no body
            return None
        if isinstance(content, bytes) and content:
            return parsed(content)
    return None


def _grpc(exc: BaseException, codes: list[str], texts: list[str]) -> None:
    code = called(exc, "code")
    name = plain(code, "name")
    if isinstance(name, str):
        codes.append(name)
    details = called(exc, "details")
    if isinstance(details, str) and details:
        texts.append(details[:TEXT_CAP])


def _spoken(exc: BaseException) -> str:
    with_args = plain(exc, "args")
    if isinstance(with_args, tuple) and len(with_args) == 1 and type(with_args[0]) is str:
        return with_args[0][:TEXT_CAP]
    try:
        return str(exc)[:TEXT_CAP]
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
    return plain(response, "headers")
