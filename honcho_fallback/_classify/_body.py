"""Error documents: where each provider keeps its codes, its texts and its waits."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

from honcho_fallback._classify._tables import WORDS

TEXT_CAP = 4000  # a message longer than this is an echo of the input or a page
_BODY_CAP = 65536
_CODE_CAP = 100
_DEPTH = 3
_ITEMS = 8
# Tests of a key, to filter the keys of a document with.
_is_inner, _is_code, _is_text, _is_wait, _is_limit, _is_nested = (
    WORDS[f"body_{name}"].__contains__
    for name in ("inner", "codes", "texts", "waits", "limits", "nested")
)


class Document:
    """Collect codes, texts, waits and limits of an error document, the innermost first."""

    __slots__ = ("codes", "is_shaped", "limits", "texts", "waits")

    def __init__(self) -> None:
        self.codes: list[str] = []
        self.texts: list[str] = []
        self.waits: list[Any] = []
        self.limits: list[Any] = []  # those that were used up, with their names
        # OpenAI's shape, which names a parameter also where there is none, or Anthropic's.
        self.is_shaped = False

    def read(self, body: Any, depth: int = 0) -> None:
        """Read a document, parsed or not, or a part of one."""
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
            self.add_code(body.get("code"))
            for key in filter(_is_code, body):
                self.add_code(body[key])
            error = body.get("error")  # OAuth's way: a code where others have a document
            if isinstance(error, str) and error.isidentifier():
                self.add_code(error)
            for key in filter(_is_text, body):
                self.add_text(body[key], depth + 1)
            self.waits += map(body.get, filter(_is_wait, body))
            self.limits += map(body.get, filter(_is_limit, body))
            for key in filter(_is_nested, body):
                self.read(body[key], depth + 1)

    def add_code(self, code: Any) -> None:
        """Keep a code if it is one: a short string or a number, never a bool."""
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
