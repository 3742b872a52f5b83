"""Read objects by their shape: SDK objects have attributes, JSON has keys."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeGuard

if TYPE_CHECKING:
    from collections.abc import Iterable


def is_mapping(value: object) -> TypeGuard[Mapping[Any, Any]]:
    """Tell whether a value has keys.

    Args:
        value: Anything.
    """
    # Asking the abstract class costs ten times as much as looking at the type.
    return type(value) is dict or isinstance(value, Mapping)


def is_sequence(value: object) -> TypeGuard[list[Any] | tuple[Any, ...]]:
    """Tell whether a value is a list or a tuple.

    Args:
        value: Anything.
    """
    return isinstance(value, list | tuple)


def part(value: Any, name: str) -> Any:
    """Return an attribute or a key, or None.

    Args:
        value: An SDK's object or a mapping.
        name: Which part.
    """
    if is_mapping(value):
        return value.get(name)
    return getattr(value, name, None)


def parts(value: Any, name: str) -> list[Any]:
    """Return a part that is a list, or an empty one.

    Args:
        value: An SDK's object or a mapping.
        name: Which part.
    """
    found = part(value, name)
    return list(found) if is_sequence(found) else []


def text(value: Any, name: str) -> str:
    """Return a part that is a string, or an empty one.

    Args:
        value: An SDK's object or a mapping.
        name: Which part.
    """
    found = part(value, name)
    return found if isinstance(found, str) else ""


def pieces(output: Any) -> tuple[Any, ...]:
    """Return a stream's chunks, or the one answer.

    Args:
        output: As an observer is told it.
    """
    return tuple(output) if is_sequence(output) and isinstance(output, tuple) else (output,)


def at(value: Any, path: Iterable[str]) -> Any:
    """Return what lies at the end of a path, or None.

    Args:
        value: An SDK's object or a mapping.
        path: Such as ``["prompt_tokens_details", "cached_tokens"]``; an empty one ends here.
    """
    for name in path:
        if value is None:
            return None
        value = part(value, name)
    return value
