"""Prompts and answers as plain values: bounded, without what breaks on the wire."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeGuard

# Larger texts cost milliseconds each and are read by nobody.
MOST_CHARACTERS = 1_000_000
_DEEPEST = 20
_MOST_ITEMS = 10_000
_SCALARS = frozenset({bool, int, float, type(None)})

# LangChain names who speaks otherwise than everybody else.
_ROLES = {"human": "user", "ai": "assistant", "AIMessageChunk": "assistant"}


def is_mapping(value: object) -> TypeGuard[Mapping[Any, Any]]:
    """Tell whether a value has keys."""
    # Asking the abstract class costs ten times as much as looking at the type.
    return type(value) is dict or isinstance(value, Mapping)


def is_sequence(value: object) -> TypeGuard[list[Any] | tuple[Any, ...]]:
    """Tell whether a value is a list or a tuple."""
    return isinstance(value, list | tuple)


class _Budget:
    """Say what is left of the characters and items one value may have."""

    __slots__ = ("characters", "items")

    def __init__(self, characters: int) -> None:
        self.characters = characters
        self.items = _MOST_ITEMS

    def text(self, value: str) -> str:
        """Return a text that UTF-8 can carry, cut to what is left."""
        length = len(value)
        if type(value) is str and length <= self.characters and value.isascii():
            self.characters -= length
            return value
        # Inline media is cut out and uploaded by the SDK; half of it would be neither.
        if length > self.characters and not value.startswith("data:"):
            left, self.characters = self.characters, 0
            return f"{clean(value[:left])}... ({length - left} characters more)"
        self.characters -= min(length, self.characters)
        return clean(value)


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


def plain(value: Any, most: int = MOST_CHARACTERS) -> Any:
    """Return a value of dicts, lists and scalars, cut where it is too large."""
    return _plain(value, _Budget(most), 0)


def _plain(value: Any, budget: _Budget, depth: int) -> Any:
    if isinstance(value, str):
        return budget.text(value)
    if type(value) in _SCALARS:
        return value
    budget.items -= 1
    if depth > _DEEPEST or budget.items < 0:
        return f"<{type(value).__name__}>"
    if is_mapping(value):
        return {_key(key): _plain(one, budget, depth + 1) for key, one in value.items()}
    if is_sequence(value):
        return _items(value, budget, depth)
    opened = _opened(value)
    # What is left the SDK's serializer knows: dates, paths, dataclasses and the like.
    return value if opened is None else _plain(opened, budget, depth + 1)


def _items(value: list[Any] | tuple[Any, ...], budget: _Budget, depth: int) -> list[Any]:
    items = [_plain(one, budget, depth + 1) for one in value[:_MOST_ITEMS]]
    if len(value) > _MOST_ITEMS:
        items.append(f"... ({len(value) - _MOST_ITEMS} items more)")
    return items


def _opened(value: Any) -> Any:
    if isinstance(value, bytes | bytearray):
        return f"<{type(value).__name__}, {len(value)} bytes>"
    message = as_message(value)
    if message is not None:
        return message
    dump = getattr(value, "model_dump", None)  # the SDKs' objects
    if callable(dump):
        return dump(exclude_none=True, warnings=False)
    to_messages = getattr(value, "to_messages", None)  # LangChain's prompt values
    return to_messages() if callable(to_messages) else None


def _key(key: Any) -> str:
    return clean(key) if isinstance(key, str) else str(key)


def as_message(value: Any) -> dict[str, Any] | None:
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
