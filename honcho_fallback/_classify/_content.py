"""The shapes of answers, where their parts are, and what these say: a text, or calls beside it."""

from __future__ import annotations

from contextlib import suppress
from copy import deepcopy
from functools import lru_cache, reduce
from operator import add
from typing import TYPE_CHECKING, Any, NamedTuple

from honcho_fallback._classify._read import fields_of, find, first
from honcho_fallback._classify._tables import frozen, read

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


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

    def parts_of(self, item: Any) -> list[Any]:
        """Return all that stands beside the part that this shape names: all choices."""
        if self.at.endswith(".0"):
            values = find(item, self.at[:-2])
            return values if isinstance(values, list) else []
        value = find(item, self.at)
        return [] if value is None else [value]


TABLES = read("responses")
# Where a block of content has its kind and its text.
KIND, TEXT = tuple(TABLES["kind"]), tuple(TABLES["text"])
_MODULES, _CLASSES = frozenset(TABLES["modules"]), frozenset(TABLES["classes"])
SHAPES = tuple(Shape(**frozen(row)) for row in TABLES["shape"])
_BY_VALUE = {value: shape for shape in SHAPES for value in shape.values}
_BY_FIELD = {field: shape for shape in SHAPES for field in shape.fields}
_FRAME, _SILENT, THOUGHTS = (frozenset(TABLES[key]) for key in ("frame", "silent", "thoughts"))
_INDEX, _NAME, _ARGUMENTS = (tuple(TABLES["call"][key]) for key in ("index", "name", "arguments"))
_SPOKEN = (*TEXT, "refusal")


@lru_cache(maxsize=512)
def is_known(cls: Any) -> bool:
    return any(
        base.__module__.partition(".")[0] in _MODULES or base.__name__ in _CLASSES
        for base in cls.__mro__
    )


def shape_of(item: Any) -> Shape | None:
    plain = isinstance(item, dict)
    fields: dict[str, Any] = item if plain else item.__dict__
    for kind in (fields.get("type"), fields.get("object")):
        if isinstance(kind, str):
            shape = _BY_VALUE.get(kind) or _BY_VALUE.get(f"{kind.partition('.')[0]}.")
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


def joined(chunks: Iterable[Any]) -> Any:
    """Return what all chunks of a stream say together, or None where one is not known."""
    pieces, before = _Pieces(), None
    for chunk in chunks:
        if isinstance(chunk, str):
            pieces.texts.append(chunk)
            continue
        shape, part = opened(chunk)
        if shape is None:
            return None
        if not (shape.repeats and repeats(chunk, before)):
            pieces.add(part, shape)
        before = chunk
    return pieces.message()


def repeats(chunk: Any, before: Any) -> bool:
    """Tell whether an SDK's helper says once more what the chunk before it said."""
    with suppress(Exception):  # what cannot be read repeats nothing
        is_helpers, was = (getattr(opened(one)[0], "repeats", False) for one in (chunk, before))
        return is_helpers and not was and joined([chunk]) == joined([before])
    return False


def put_together(chunks: Sequence[Any]) -> Any:
    """Return what chunks make, for a validator: LangChain's add up, others are their content."""
    if hasattr(chunks[0], "__add__") and not isinstance(chunks[0], str | bytes):
        with suppress(TypeError):
            return reduce(add, chunks)
    whole = joined(chunks)
    return chunks if whole is None else whole


def characters(chunks: Iterable[Any]) -> int:
    """Count the characters of what chunks hold: text, and the arguments of tool calls."""
    whole = None
    with suppress(Exception):  # what cannot be read is not counted
        whole = joined(chunks)
    if not isinstance(whole, dict):
        return len(whole or "")
    arguments = [str(call["arguments"]) for call in whole["tool_calls"]]
    return len(whole["content"]) + sum(map(len, arguments))


def carries(value: Any, without: frozenset[str] = frozenset()) -> bool:
    """Tell whether a value is more than the frame around what the model will write.

    Blocks and fields of some names do not count: of ``THOUGHTS`` those of what the model thinks.
    """
    if isinstance(value, list):
        return any(carries(one, without) for one in value)
    if isinstance(value, dict) or hasattr(value, "__dict__"):
        is_left_out = without and is_thought(value)
        return not is_left_out and any(
            carries(written, without) if name == "content" else written
            for name, written in fields_of(value).items()
            if name not in _FRAME and name not in without
        )
    return bool(value)


def is_thought(block: Any) -> bool:
    kind = first(block, KIND)
    return kind in _SILENT or (kind is None and find(block, "thought") is True)


def without_start(chunks: Sequence[Any], count: int) -> list[Any]:
    """Return chunks without so many characters of the text that they begin with."""
    kept: list[Any] = []
    dropped = 0
    for before, chunk in zip((None, *chunks), chunks, strict=False):
        if not repeats(chunk, before):
            dropped = min(count, len(joined([chunk]) if count else ""))
            count -= dropped
        kept.append(_shortened(chunk, dropped) if dropped else chunk)
    return kept


def _shortened(chunk: Any, count: int) -> Any:
    if isinstance(chunk, str):
        return chunk[count:]
    copy = deepcopy(chunk)
    shape, part = opened(copy)
    at = find(part, shape.at) if shape else None
    for path in shape.texts if shape else ():
        text: Any = find(at, path)
        if isinstance(text, list):
            for block in text:  # pyright: ignore[reportUnknownVariableType] # anybody's
                name = next((one for one in TEXT if isinstance(first(block, (one,)), str)), None)
                if name is not None:
                    text_here = first(block, (name,))
                    _write(block, name, text_here[count:])
                    count = max(0, count - len(text_here))
        elif text:
            where, _, name = path.rpartition(".")
            _write(find(at, where), name, text[count:])
            break
    return copy


def _write(holder: Any, name: str, text: str) -> None:
    (holder if isinstance(holder, dict) else vars(holder))[name] = text


class _Pieces:
    """Put a message together from what a stream's chunks, or an answer's parts, bring."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.calls: dict[Any, dict[str, Any]] = {}
        self.last: Any = None  # where a piece that names no place belongs

    def add(self, part: Any, shape: Shape) -> None:
        at = find(part, shape.at)
        text = next(filter(None, (find(at, path) for path in shape.texts)), None)
        calls = next(filter(None, (find(at, path) for path in shape.calls)), None)
        for block in text if isinstance(text, list) else (text,):
            self.add_block(block, may_call=not calls)
        if calls:
            index = first(part, _INDEX)
            for call in calls if isinstance(calls, list) else (calls,):
                self.add_call(call, index)

    def add_block(self, block: Any, *, may_call: bool) -> None:
        """Take a block of content: its text, or a call where these stand nowhere else."""
        if not block or isinstance(block, str):
            self.texts += filter(None, (block,))
            return
        text, inner = first(block, _SPOKEN), find(block, "content")
        if isinstance(text, str):
            self.texts += () if is_thought(block) else (text,)
        elif isinstance(inner, list):
            for one in inner:
                self.add_block(one, may_call=may_call)
        elif may_call:
            self.add_call(first(block, ("function_call", "functionCall")) or block, None)

    def add_call(self, call: Any, index: Any) -> None:
        name, arguments = first(call, _NAME), first(call, _ARGUMENTS)
        if name is None and arguments is None:
            return
        places = first(call, _INDEX), index, self.last if name is None else len(self.calls)
        self.last = place = next((one for one in places if one is not None), None)
        whole = self.calls.setdefault(place, {"name": "", "arguments": ""})
        whole["name"] += name if isinstance(name, str) else ""
        if isinstance(arguments, str):
            whole["arguments"] += arguments
        elif arguments:
            whole["arguments"] = arguments

    def message(self) -> Any:
        text = "".join(self.texts)
        if not self.calls:
            return text
        return {"role": "assistant", "content": text, "tool_calls": [*self.calls.values()]}
