"""The facts one exception carries: status, codes, message, waits. No network, no SDK, no raise.

Most of them stand in its error document, where each provider keeps them elsewhere.
"""

from __future__ import annotations

import json
import re
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from honcho_fallback._classify._origin import class_row
from honcho_fallback._classify._read import called, fields, plain
from honcho_fallback._classify._tables import GENERIC, WORDS, Row
from honcho_fallback.redaction import CODE

if TYPE_CHECKING:
    from collections.abc import Sequence

TEXT_CAP = 4000  # a message longer than this is an echo of the input or a page
_BODY_CAP = 65536
_CODE_CAP = 100
_WORD = re.compile(r"[^\W\d][\w.:/-]*")  # a code; a status's own phrase has several
_DEPTH = 3
_ITEMS = 8
# Tests of a key, to filter the keys of a document with.
_is_inner, _is_code, _is_text, _is_wait, _is_subject, _is_nested = (
    WORDS[f"body_{name}"].__contains__
    for name in ("inner", "codes", "texts", "waits", "subjects", "nested")
)

ATTRIBUTES = frozenset(WORDS["attributes"])
_OF_AN_ANSWER = frozenset({"status_code", "status", "headers"})
_STATUSES = ("status_code", "http_status", "status", "statusCode", "code")
# Classes that LiteLLM and others write before a text: ``litellm.APIError: XException - ``.
_PREFIX = re.compile(r"^(?:[\w.]{1,80}(?:Error|Exception)(?:: | - ))+")
# A limit's text, or what a body says of its subject, that names one model.
_OF_ONE_MODEL = re.compile(
    "|".join(WORDS["of_one_model"]).replace("FAMILY", "|".join(WORDS["families"])),
    re.IGNORECASE | re.MULTILINE,
)
# What LiteLLM adds to a text: lines of code, whose words are no message.
_FRAMES = re.compile(r"Traceback \(most recent call last\):\n(?:[ \t].*\n?)+")
_STATUS = re.compile(r"\s*[1-5][0-9]{2}\s*")


@dataclass(slots=True)
class Document:
    """Collect what an error document holds, the innermost first."""

    codes: list[str] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    waits: list[Any] = field(default_factory=list)
    subjects: list[str] = field(default_factory=list)  # a parameter, a limit; each with its key
    # Has it a word for a code beside a message, as those who judge a request write?
    is_providers: bool = False
    # Has it OpenAI's shape, which names a parameter also where there is none, or Anthropic's?
    is_shaped: bool = False

    def read(self, body: Any, depth: int = 0) -> None:
        if isinstance(body, (str, bytes)) and not depth:
            self.add_text(body if isinstance(body, str) else body.decode("utf-8", "replace"))
        elif isinstance(body, list) and depth <= _DEPTH:
            for item in body[:_ITEMS]:
                self.read(item, depth + 1)
        elif isinstance(body, dict) and depth <= _DEPTH:
            is_openais = "param" in body and "message" in body and "type" in body
            self.is_shaped |= is_openais or body.get("type") == "error"
            for key in filter(_is_inner, body):
                self.read(body[key], depth + 1)
            before = len(self.codes)
            for key in ("code", *filter(_is_code, body)):
                self.add_code(body.get(key))
            has_message = "message" in body or "Message" in body
            self.is_providers |= has_message and any(map(_WORD.fullmatch, self.codes[before:]))
            error = body.get("error")  # OAuth's way: a code where others have a document
            self.add_code(error if str(error).isidentifier() else None)
            for key in filter(_is_text, body):
                self.add_text(body[key], depth + 1)
            self.waits += map(body.get, filter(_is_wait, body))
            self.subjects += (f"{key}: {body[key]}" for key in filter(_is_subject, body))
            for key in filter(_is_nested, body):
                self.read(body[key], depth + 1)

    def add_code(self, code: Any) -> None:
        # A short string or a number, never a bool.
        if isinstance(code, int) and not isinstance(code, bool):
            code = str(int(code))
        if isinstance(code, str) and 0 < len(code) <= _CODE_CAP and code != "None":
            self.codes.append(code)

    def add_text(self, text: Any, depth: int = 0) -> None:
        """Add a text; a text that is nothing but documents adds their contents instead."""
        if not isinstance(text, str) or not text or text in self.texts:
            return
        before, start, documents = len(self.texts), text.find("{"), None
        if start >= 0 and len(text) <= _BODY_CAP:
            with suppress(ValueError, RecursionError):
                documents = json.loads(f"[{text[start : text.rfind('}') + 1]}]")
            self.read(documents, depth - 1)
        # A whole body that is a document without texts adds none: then the exception's own
        # message counts.
        has_text = len(self.texts) > before or not depth
        if documents is None or not has_text or text[:start].strip("[ \t\r\n"):
            self.texts.append(text[:TEXT_CAP])


class Facts(NamedTuple):
    row: Row | None = None  # of the nearest class in the MRO that a table names
    status: int | None = None  # HTTP status as the exception states it, success included
    error: int | None = None  # the status that decides: that or one in the body, 400 to 599
    inner: int | None = None  # the innermost that the body states, where it is another one
    codes: Sequence[str] = ()  # the provider's codes and types, lower case, the most telling first
    code: str | None = None  # to show: the first that looks like one, as the provider wrote it
    message: str = ""  # the provider's own text
    text: str = ""  # codes and texts, one a line, to be read by their words
    headers: Any = None  # the answer's, unread
    has_body: bool | None = None  # came a document or a text? None: nobody knows
    document: Document = Document()  # what the body says

    @property
    def is_per_minute(self) -> bool:
        """Tell whether the limits that Google names are those of a minute alone."""
        text = "\n".join(self.document.subjects)
        return "PerMinute" in text and "PerDay" not in text

    @property
    def is_models(self) -> bool:
        """Tell whether a limit or a refused key is that of one model alone.

        It says so, or a gateway wrote whose error it hands on: what is dead then is its own key to
        that provider, not the key that it was asked with.
        """
        text = "\n".join((*self.document.subjects, self.message))
        is_anothers = bool(self.has_body and _PREFIX.match(self.message))
        return is_anothers or _OF_ONE_MODEL.search(text) is not None


def read_facts(exc: BaseException) -> Facts:
    """Read what an exception carries; what cannot be read counts as absent."""
    cls: Any = type(exc)
    own = _with_close(fields(exc, ATTRIBUTES))
    answer = _answer(own.get("response"))
    document = Document()
    bodies = (own.get("body"), own.get("details"), own.get("error"), answer.get("_content"))
    for body in (*bodies, _raised_document(exc)):
        if isinstance(body, (dict, list, str, bytes)) and body:
            # Google's endpoint for OpenAI's protocol puts its document into a list.
            document.read(body[0] if isinstance(body, list) and len(body) == 1 else body)
            break
    # Of an empty body Google's SDK makes a document with the status's phrase.
    came = bool(document.texts) or document.codes not in ([], ["Bad Request"])
    has_body = came if document.codes or came or answer.get("_content") is not None else None
    for name in filter(own.__contains__, ("code", "type", "status", "error_code")):
        document.add_code(own[name])
    if callable(own.get("code")):  # gRPC
        document.add_code(plain(called(exc, "code"), "name"))
        document.add_text(called(exc, "details"))
    message = "" if document.texts else message_of(exc)
    if message.startswith("{") and not document.codes:
        document.add_text(message)
    message = " ".join(document.texts) or message
    stated = (*map(own.get, _STATUSES), answer.get("status_code"), answer.get("status"))
    status = next(filter(None, map(as_status, stated)), None)
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
    # The classes of an SDK say what happened where nothing else does.
    telling = () if status or row else cls.__mro__
    names = (c.__name__ for c in telling if c.__module__ != "builtins")
    texts = [_PREFIX.sub("", text) for text in document.texts or (message[:TEXT_CAP],)]
    # That a request is bad any sentence says, too.
    telling_codes = [one for one in document.codes if GENERIC.get(one.lower()) != 400]
    text = "\n".join((*names, *dict.fromkeys(telling_codes), *texts))
    text = _FRAMES.sub("Traceback\n", text) if "Traceback" in text else text
    message, text = message[:TEXT_CAP], text[:TEXT_CAP]
    words = (codes, code, message, text)
    return Facts(row, status, error, inner, *words, headers, has_body, document)


def _with_close(own: dict[str, Any]) -> dict[str, Any]:
    """Read a websocket's close frame as a body, and its number as a status where it is one."""
    number, reason = own.get("code"), own.get("details")  # as Google's SDK keeps it
    if "rcvd" in own:
        number, reason = plain(own["rcvd"], "code"), plain(own["rcvd"], "reason")
    if not (reason and isinstance(reason, str) and isinstance(number, int) and number >= 1000):
        return own
    status = as_status(number - 4000)
    return own | {"code": status or f"close_{min(number, 4000)}", "body": {"message": reason}}


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
    if isinstance(value, str) and _STATUS.fullmatch(value):
        value = int(value)
    known = isinstance(value, int) and not isinstance(value, bool) and 100 <= value <= 599
    return int(value) if known else None


def message_of(exc: BaseException) -> str:
    try:
        args = exc.args
        return args[0] if len(args) == 1 and type(args[0]) is str else str(exc)
    except Exception:  # noqa: BLE001  a hostile __str__ says nothing
        return ""
