"""Error documents: where each provider keeps its codes and its words."""

# What is read here has whatever shape a stranger gave it; what comes out is typed.
# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false

from __future__ import annotations

import json
from typing import Any

from honcho_fallback._classify._tables import WORDS

TEXT_CAP = 4000  # a message longer than this is an echo of the input or a page
_BODY_CAP = 65536
_CODE_CAP = 100
_DEPTH = 3
_INNER = frozenset(WORDS["document_inner"])
_NESTED = frozenset(WORDS["document_nested"])
_CODES = frozenset(WORDS["document_codes"])
_TEXTS = frozenset(WORDS["document_texts"])


def parsed(raw: str | bytes) -> Any:
    """Parse a JSON document, or keep the text.

    Args:
        raw: What the provider sent.
    """
    text = raw.decode("utf-8", "replace") if isinstance(raw, bytes) else raw
    start = text[:1]
    if (start in "{[" or text[:20].lstrip()[:1] in ("{", "[")) and len(text) <= _BODY_CAP:
        try:
            return json.loads(text)
        except (ValueError, RecursionError):
            pass
    return text[:TEXT_CAP]


def walk(  # noqa: C901  one pass over one document; split, it would cost a call per key
    body: Any, codes: list[str], texts: list[str], depth: int
) -> None:
    """Collect codes and texts, the innermost error first: it is the one that knows.

    Args:
        body: A parsed document or a part of one.
        codes: Grows.
        texts: Grows.
        depth: How deep this part lies.
    """
    if depth > _DEPTH:
        return
    if isinstance(body, list):
        for item in body[:3]:
            walk(item, codes, texts, depth + 1)
    elif isinstance(body, dict):
        later: list[Any] = []
        words: list[str] = []
        said: list[str] = []
        for key, value in body.items():
            if not isinstance(value, (dict, list)):
                if key in _CODES:
                    add_code(value, words, first=key == "code")
                if key in _TEXTS and isinstance(value, str):
                    said.append(value)
            elif key in _INNER:
                walk(value, codes, texts, depth + 1)
            elif key in _NESTED:
                later.append(value)
        codes += words
        for text in said:
            _add_text(text, codes, texts, depth)
        for value in later:
            walk(value, codes, texts, depth + 1)


def add_code(value: Any, codes: list[str], *, first: bool = False) -> None:
    """Note a code if it is one: a short string or a number, never a bool.

    Args:
        value: Whatever the key held.
        codes: Grows.
        first: Is it the most telling one?
    """
    if isinstance(value, int) and not isinstance(value, bool):
        value = str(int(value))
    if isinstance(value, str) and 0 < len(value) <= _CODE_CAP and value != "None":
        codes.insert(0 if first else len(codes), value)


def _add_text(value: str, codes: list[str], texts: list[str], depth: int) -> None:
    if not value or value in texts:
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
            walk(inner, codes, texts, depth + 1)
            if len(texts) > before and start == 0:
                return
    texts.append(value[:TEXT_CAP])
