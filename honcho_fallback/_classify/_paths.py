"""Follow paths through answers: dicts by their keys, objects by what they hold."""

from __future__ import annotations

from functools import lru_cache
from typing import Any


@lru_cache(maxsize=512)
def _steps(path: str) -> tuple[str, ...]:
    return tuple(path.split(".")) if path else ()


def find(part: Any, path: str) -> Any:
    """Return what a path leads to, or None; raise AttributeError for what has no fields.

    Properties never run: an object is read through its dictionary and pydantic's own two.
    """
    for step in _steps(path):
        if isinstance(part, dict):
            part = part.get(step)
        elif step == "0":
            part = part[0] if isinstance(part, list) and part else None
        elif part is not None:
            fields = part.__dict__
            if step in fields:
                part = fields[step]
            else:
                # What a class does not name; of LiteLLM's chunks everything.
                more = getattr(part, _private if step[0] == "_" else _extra, None)
                part = more.get(step) if more else None
    return part


def first(part: Any, paths: tuple[str, ...]) -> Any:
    """Return what the first path that leads anywhere leads to, or None."""
    for path in paths:
        value = find(part, path)
        if value is not None:
            return value
    return None


def fields_of(part: Any) -> dict[str, Any]:
    """Return all that a dict or an object holds, by name."""
    if isinstance(part, dict):
        return part
    fields: dict[str, Any] = part.__dict__
    more = getattr(part, _extra, None)
    return {**fields, **more} if more else fields


_extra, _private = "__pydantic_extra__", "__pydantic_private__"
