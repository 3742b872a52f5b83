"""The shapes of answers: which one an answer has, and where its parts are."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

from honcho_fallback._classify._read import find, first
from honcho_fallback._classify._tables import frozen, read


class Shape(NamedTuple):
    """Say where answers of one shape keep what they say; the file says what the fields mean."""

    values: tuple[str, ...] = ()
    fields: tuple[str, ...] = ()
    marks: tuple[str, ...] = ()
    at: str = ""
    inside: tuple[str, ...] = ()
    error: tuple[str, ...] = ()
    finish: tuple[str, ...] = ()
    blocked: tuple[str, ...] = ()
    content: tuple[str, ...] = ()
    refusal: tuple[str, ...] = ()
    partial: tuple[str, ...] = ()
    thinking: tuple[str, ...] = ()
    texts: tuple[str, ...] = ()
    calls: tuple[str, ...] = ()
    required: tuple[str, ...] = ()
    ending: tuple[str, ...] = ()
    ends: bool = False
    repeats: bool = False

    def at_of(self, item: Any) -> Any:
        """Return the part of an answer that holds what this shape names."""
        return find(item, self.at) if self.at else item

    def parts_of(self, item: Any) -> list[Any]:
        """Return all that stands beside the part that this shape names: all choices."""
        if self.at.endswith(".0"):
            values = find(item, self.at[:-2])
            return values if isinstance(values, list) else []
        value = self.at_of(item)
        return [] if value is None else [value]


TABLES = read("responses")
# Where a block of content has its kind and its text.
KIND, TEXT = tuple(TABLES["kind"]), tuple(TABLES["text"])
_MODULES, _CLASSES = frozenset(TABLES["modules"]), frozenset(TABLES["classes"])
SHAPES = tuple(Shape(**frozen(row)) for row in TABLES["shape"])
_BY_VALUE = {value: shape for shape in SHAPES for value in shape.values}
_BY_FIELD = {field: shape for shape in SHAPES for field in shape.fields}


@lru_cache(maxsize=512)
def is_known(cls: Any) -> bool:
    return any(
        base.__module__.partition(".")[0] in _MODULES or base.__name__ in _CLASSES
        for base in cls.__mro__
    )


def shape_of(item: Any) -> Shape | None:
    plain = isinstance(item, dict)
    fields: dict[str, Any] = item if plain else item.__dict__
    for word in (fields.get("type"), fields.get("object")):
        if isinstance(word, str):
            shape = _BY_VALUE.get(word) or _BY_VALUE.get(f"{word.partition('.')[0]}.")
            if shape is not None and (
                not plain or not shape.marks or not fields.keys().isdisjoint(shape.marks)
            ):
                return shape
    sure = not plain or len(fields) == 1
    for name, shape in _BY_FIELD.items():
        if name in fields and (sure or not fields.keys().isdisjoint(shape.marks)):
            return shape
    # OpenAI's SDK makes its class of whatever came, also of a document that says nothing of it.
    is_response = type(item).__name__ == "Response" and type(item).__module__.startswith("openai.")
    return _BY_VALUE["response"] if is_response else None


def opened(item: Any) -> tuple[Shape | None, Any]:
    """Return the shape of what an answer, chunk or event holds in the end, and that."""
    shape = shape_of(item)
    within = first(item, shape.inside) if shape and shape.inside else None
    return (shape, item) if within is None else opened(within)


def word(value: Any) -> str:
    # Google's are enums, and strings, too.
    known = isinstance(value, str) and not value.endswith("UNSPECIFIED")
    return str.lower(value) if known else ""
