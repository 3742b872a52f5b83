"""Values as plain ones: bounded, without what breaks on the wire, and labels without credentials.

What was asked and answered is the user's: it keeps its addresses, for a trace that rewrites a
prompt lies about it, and a mask is there for whoever wants that. Everything else is a label.
"""

# What is read here has whatever shape a stranger gave it; what comes out is typed.
# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false

from __future__ import annotations

import re
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from typing import Any, TypeGuard
from urllib.parse import unquote

# Larger texts cost milliseconds each and are read by nobody.
MOST_CHARACTERS = 1_000_000
_DEEPEST = 20
_MOST_ITEMS = 10_000
_SCALARS = frozenset({bool, int, float, type(None)})

# LangChain names who speaks otherwise than everybody else.
_ROLES = {"human": "user", "ai": "assistant", "AIMessageChunk": "assistant"}

_REDACTED = "[redacted]"
# Who logs in stands between the slashes and the last @ before the path, wherever a password has
# another; a parameter is known by its name, in an address and in a connection string.
_LOGIN = re.compile(r"(?<=[:/]/)[^\s/?#]*@")  # a path object keeps one slash of two
_PARAMETER = re.compile(r"(?<![\w%.-])([\w%.-]+)=([^\s&;#\"'<>]+)")
_SECRET_NAME = re.compile(
    r"auth(?!or)|code$|credential|hmac|jwt|key|pass|pwd|secret|\bsas$|\bsig$|signature|token(?!s)",
    re.IGNORECASE,
)


def is_mapping(value: object) -> TypeGuard[Mapping[Any, Any]]:
    """Tell whether a value has keys."""
    # Asking the abstract class costs ten times as much as looking at the type.
    return type(value) is dict or isinstance(value, Mapping)


def is_sequence(value: object) -> TypeGuard[list[Any] | tuple[Any, ...]]:
    """Tell whether a value is a list or a tuple."""
    return isinstance(value, list | tuple)


def clean(value: str) -> str:
    """Return an exact str that UTF-8 can carry: one lone surrogate would cost the whole field."""
    exact = str.__str__(value)
    if exact.isascii():
        return exact
    try:
        exact.encode()
    except UnicodeEncodeError:
        return exact.encode("utf-8", "replace").decode()
    return exact


def label(value: str) -> str:
    """Return an exact str that UTF-8 can carry, without credentials in addresses."""
    if type(value) is str and value.isascii() and "@" not in value and "=" not in value:
        return value
    text = clean(value)
    if "@" in text:
        text = _LOGIN.sub(f"{_REDACTED}@", text)
    return _PARAMETER.sub(_parameter, text) if "=" in text else text


def _parameter(pair: re.Match[str]) -> str:
    is_secret = _SECRET_NAME.search(unquote(pair[1]))
    return f"{pair[1]}={_REDACTED}" if is_secret else pair[0]


def plain(value: Any, most: int = MOST_CHARACTERS) -> Any:
    """Return content as dicts, lists and scalars, cut where it is too large."""
    return _Walk(most, is_label=False).value(value, 0)


def plain_label(value: Any) -> Any:
    """Return a value as ``plain`` does, every text in it as a label."""
    return _Walk(MOST_CHARACTERS, is_label=True).value(value, 0)


class _Walk:
    """Copy one value, and know what is left of the characters and items that it may have."""

    __slots__ = ("_characters", "_is_label", "_items")

    def __init__(self, characters: int, *, is_label: bool) -> None:
        self._characters = characters
        self._items = _MOST_ITEMS
        self._is_label = is_label

    def value(self, value: Any, depth: int) -> Any:
        cls = type(value)
        if cls is str or isinstance(value, str):
            return self._text(value)
        if cls in _SCALARS:
            return value if cls is not int or not self._is_label else _integer(value)
        self._items -= 1
        if depth > _DEEPEST or self._items < 0:
            return f"<{cls.__name__}>"
        if is_mapping(value):
            return {self._key(key): self.value(one, depth + 1) for key, one in value.items()}
        if is_sequence(value):
            return self._sequence(value, depth)
        opened = _opened(value)
        if opened is None and self._is_label:
            opened = _told(value)
        # What is left the SDK's serializer knows: dates, paths, dataclasses and the like.
        return value if opened is None else self.value(opened, depth + 1)

    def _text(self, value: str) -> str:
        # A label is cut after its credentials are out: half an address hides where they stand.
        text = label(value) if self._is_label else value
        length = len(text)
        # Inline media is cut out and uploaded by the SDK; half of it would be neither.
        if length > self._characters and not text.startswith("data:"):
            left, self._characters = self._characters, 0
            return f"{clean(text[:left])}... ({length - left} characters more)"
        self._characters -= min(length, self._characters)
        return text if type(text) is str and text.isascii() else clean(text)

    def _key(self, key: Any) -> str:
        text = key if isinstance(key, str) else str(key)
        return label(text) if self._is_label else clean(text)

    def _sequence(self, value: list[Any] | tuple[Any, ...], depth: int) -> list[Any]:
        items = [self.value(one, depth + 1) for one in value[:_MOST_ITEMS]]
        if len(value) > _MOST_ITEMS:
            items.append(f"... ({len(value) - _MOST_ITEMS} items more)")
        return items


def _opened(value: Any) -> Any:
    if isinstance(value, bytes | bytearray):
        return f"<{type(value).__name__}, {len(value)} bytes>"
    message = _message(value)
    if message is not None:
        return message
    dump = getattr(value, "model_dump", None)  # the SDKs' objects
    if callable(dump):
        return dump(exclude_none=True, warnings=False)
    to_messages = getattr(value, "to_messages", None)  # LangChain's prompt values
    return to_messages() if callable(to_messages) else None


def _told(value: Any) -> Any:
    """Return what the SDK's serializer would write, where credentials can be looked for in it."""
    if isinstance(value, AbstractSet):
        return [*value]
    if isinstance(value, int | float):
        return value.conjugate()  # of an enum's own class
    isoformat = getattr(value, "isoformat", None)
    return isoformat() if callable(isoformat) else str(value)


def _integer(value: int) -> int | str:
    # The wire's are of 64 bits: the 4.x SDK loses the entry of a larger one.
    return value if -(2**63) <= value < 2**63 else str(value)


def _message(value: Any) -> dict[str, Any] | None:
    """Return LangChain's message as everybody else writes it, or None for anything else."""
    kind, content = getattr(value, "type", None), getattr(value, "content", None)
    more = getattr(value, "additional_kwargs", None)
    if not isinstance(kind, str) or content is None or not isinstance(more, dict):
        return None
    message: dict[str, Any] = {"role": _ROLES.get(kind, kind), "content": content}
    for name in ("tool_calls", "tool_call_id", "name"):
        detail = getattr(value, name, None)
        if detail:
            message[name] = detail
    return message
