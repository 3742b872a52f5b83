"""What an answer holds for whoever shows it: a text, or the message around it."""

from __future__ import annotations

from contextlib import suppress
from copy import deepcopy
from functools import reduce
from operator import add
from typing import TYPE_CHECKING, Any

from honcho_fallback._classify._read import fields_of, find, first
from honcho_fallback._classify._shapes import KIND, TABLES, TEXT, Shape, opened, shape_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_TEXTS, _FRAME = frozenset(TABLES["texts"]), frozenset(TABLES["frame"])
_SILENT, THOUGHTS = frozenset(TABLES["silent"]), frozenset(TABLES["thoughts"])
_INDEX, _NAME, _ARGUMENTS = (tuple(TABLES["call"][key]) for key in ("index", "name", "arguments"))
_ASSISTANT = "assistant"


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
    """Return the whole answer that a stream's chunks make, for a validator.

    Chunks that add up, as LangChain's messages, are added up; of others it is their content. Where
    neither is known, it is the chunks.
    """
    if hasattr(chunks[0], "__add__") and not isinstance(chunks[0], str | bytes):
        with suppress(TypeError):
            return reduce(add, chunks)
    whole = joined(chunks)
    return chunks if whole is None else whole


def characters(chunks: Iterable[Any]) -> int:
    """Count the characters of what chunks hold: text, and the arguments of tool calls."""
    try:
        whole = joined(chunks)
    except Exception:  # noqa: BLE001 # what cannot be read is not counted
        return 0
    if not isinstance(whole, dict):
        return len(whole or "")
    arguments = [str(call["arguments"]) for call in whole["tool_calls"]]
    return len(whole["content"]) + sum(map(len, arguments))


def content_of(item: Any) -> Any:
    """Return the content of one answer, or None; a list where it has several messages."""
    shape = shape_of(item)
    if shape is None:
        return None
    for path in shape.inside:
        messages = shape.parts_of(item, path)
        if len(messages) == 1:
            return content_of(messages[0])
        if messages:  # among them what has no shape, a tool's message
            pairs = zip(map(content_of, messages), messages, strict=True)
            return [message if content is None else content for content, message in pairs]
    contents = [_message(item, part, shape) for part in shape.parts_of(item)]
    return contents[0] if len(contents) == 1 else contents or None


def _message(item: Any, part: Any, shape: Shape) -> Any:
    """Return a part's text where it is nothing but one, else the message around it."""
    values = [value for path in shape.content if carries(value := find(part, path))]
    beside = any(
        carries(find(part, path)) for path in shape.refusal + shape.partial + shape.thinking
    )
    if not values and not beside:
        return "" if first(part, shape.content) is not None else None
    text = _text(values[0]) if len(values) == 1 and not beside else None
    if text is not None:
        return text
    if not shape.message:
        pieces = _Pieces()
        pieces.add(item, shape)
        return pieces.message()
    message = first(part, shape.message)
    return {"role": _ASSISTANT, "content": message} if isinstance(message, list) else message


def _text(content: Any) -> str | None:
    """Return content as a text, or None where it is more than that."""
    if isinstance(content, str):
        return content
    texts: list[str] = []
    for block in content if isinstance(content, list) else ():
        text = block if isinstance(block, str) else _text_of(block)
        if text is None:
            return None
        texts.append(text)
    return "".join(texts) if texts else None


def _text_of(block: Any) -> str | None:
    kind = first(block, KIND)
    if kind == "message":
        return _text(find(block, "content"))
    if kind == "reasoning" or (kind is None and find(block, "thought") is True):
        return ""
    text = first(block, TEXT)
    known = isinstance(text, str) and (kind is None or kind in _TEXTS)
    return text if known and sum(bool(value) for _, value in _written(block)) <= 1 else None


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
            for name, written in _written(value)
            if name not in without
        )
    return bool(value)


def is_thought(block: Any) -> bool:
    """Tell whether a block of content is thinking, which is no answer."""
    kind = first(block, KIND)
    return kind in _SILENT or (kind is None and find(block, "thought") is True)


def _written(block: Any) -> Iterable[tuple[str, Any]]:
    return ((name, value) for name, value in fields_of(block).items() if name not in _FRAME)


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
    at = shape.at_of(part) if shape else None
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
            _write(find(at, where) if where else at, name, text[count:])
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
        """Take what a chunk brings."""
        at = shape.at_of(part)
        text = next(filter(None, (find(at, path) for path in shape.texts)), None)
        for block in text if isinstance(text, list) else (text,):
            if isinstance(block, str):
                self.texts.append(block)
            elif block:
                self.add_block(block)
        calls = next(filter(None, (find(at, path) for path in shape.calls)), None)
        if calls:
            index = first(part, _INDEX)
            for call in calls if isinstance(calls, list) else (calls,):
                self.add_call(call, index)

    def add_block(self, block: Any) -> None:
        """Take a block of content: its text, or Gemini's call."""
        text, call = first(block, TEXT), first(block, ("function_call", "functionCall"))
        if isinstance(text, str) and not is_thought(block):
            self.texts.append(text)
        if call is not None:
            self.add_call(call, None)

    def add_call(self, call: Any, index: Any) -> None:
        """Take a piece of a tool call."""
        name, arguments = first(call, _NAME), first(call, _ARGUMENTS)
        if name is None and arguments is None:
            return
        place = first(call, _INDEX)
        place = index if place is None else place
        if place is None:
            place = self.last if name is None else len(self.calls)
        self.last = place
        whole = self.calls.setdefault(place, {"name": "", "arguments": ""})
        whole["name"] += name if isinstance(name, str) else ""
        if isinstance(arguments, str):
            whole["arguments"] += arguments
        elif arguments:
            whole["arguments"] = arguments

    def message(self) -> Any:
        """Return all of it: a text, or a message with its calls."""
        text = "".join(self.texts)
        if not self.calls:
            return text
        return {"role": _ASSISTANT, "content": text, "tool_calls": [*self.calls.values()]}
