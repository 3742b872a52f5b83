"""Tokens as providers count them, in one form that includes what others leave out.

``input_tokens`` hold what a cache gave or took, ``output_tokens`` what was spent on reasoning.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from honcho_fallback._classify._read import fields_of, find
from honcho_fallback._classify._tables import read

if TYPE_CHECKING:
    from collections.abc import Sequence

_Counts = dict[str, int]
_Dialect = dict[str, Any]  # where a family of providers puts its counts

# Usage comes with a stream's first or last chunks; looking into thousands in between would take
# milliseconds. LangChain's chunks are all looked at: each may carry a share.
_FIRST, _LAST = 8, 16

SCALARS = frozenset({str, bytes, int, float, bool, type(None)})
_TABLE = read("usage")
_DIALECTS: list[_Dialect] = _TABLE["dialect"]
_HIDDEN = "_hidden_params"  # where pydantic keeps what a class declares as private
_PLACES = tuple((place.partition(".")[0], place) for place in _TABLE["places"])
_COSTS = tuple(_TABLE["costs"])
_SIDES = ("input", "output", "total")  # of a dialect, and with an ending of our own form
_SHARES, _UNASKED = frozenset(_TABLE["shares"]), frozenset(_TABLE["unasked"])


def usage_of(answer: Any) -> dict[str, int] | None:
    """Read what an answer or all chunks of a stream cost, or None; never raise."""
    cls = type(answer)
    try:
        counts = _merged(answer) if cls is tuple or cls is list else _one(answer)[1]
        return _normalised(counts) if counts else None
    except Exception:  # noqa: BLE001  what cannot be read is not known
        return None


def cost_of(answer: Any) -> float | None:
    """Read the US dollars that an answer names, or None; never raise."""
    stream = type(answer) in {list, tuple}
    for item in reversed(ends(answer)) if stream else (answer,):
        for path in _COSTS if type(item) not in SCALARS else ():
            with suppress(Exception):
                cost = find(item, path)
                if type(cost) in {int, float} and 0 < cost < float("inf"):
                    return float(cost)
    return None


def ends(chunks: Sequence[Any]) -> Sequence[Any]:
    """Return those chunks of a stream that may say what holds for all of it."""
    if len(chunks) <= _FIRST + _LAST:
        return chunks
    return (*chunks[:_FIRST], *chunks[-_LAST:])


def _merged(chunks: Sequence[Any]) -> _Counts:
    spoken: _Dialect | None = None
    merged: _Counts = {}
    comes_in_shares = False
    with suppress(AttributeError, IndexError):
        message = find(chunks[0], "message") or chunks[0]
        comes_in_shares = find(message, "additional_kwargs") is not None
    for chunk in chunks if comes_in_shares else ends(chunks):
        dialect, counts, place = (None, {}, "") if type(chunk) in SCALARS else _one(chunk)
        if dialect is None or spoken not in (None, dialect):
            continue
        spoken = dialect
        if place in _SHARES and dialect["input"] == "input_tokens":
            counts = {name: merged.get(name, 0) + count for name, count in counts.items()}
        merged.update(counts)
    return merged


def _one(item: Any) -> tuple[_Dialect | None, _Counts, str]:
    """Find the counts of one answer, chunk or event, in whose dialect and where."""
    fields = fields_of(item)
    for step, place in _PLACES:
        # Most of the steps lead nowhere, and most chunks have no usage.
        if step not in fields and step != _HIDDEN:
            continue
        with suppress(AttributeError):
            dialect, counts = _read(find(item, place))
            if dialect and (place not in _UNASKED or counts.get("total_tokens")):
                return dialect, counts, place
    return (*_read(fields), "")


def _read(value: Any) -> tuple[_Dialect | None, _Counts]:
    if value is None:
        return None, {}
    fields = fields_of(value)
    if fields.get(_TABLE["repeated"]) == 0:
        return None, {}
    for dialect in _DIALECTS:
        if dialect["input"] in fields or dialect["output"] in fields:
            counts = _counts(fields, dialect)
            if counts:
                return dialect, counts
    return None, {}


def _counts(fields: dict[str, Any], dialect: _Dialect) -> _Counts:
    counts: _Counts = {}
    for side in _SIDES:
        count = _count(fields.get(dialect.get(side, "")))
        if count is not None:
            counts[f"{side}_tokens"] = count
    if not counts or counts.keys() == {"total_tokens"}:
        return {}
    for place, leaves in dialect.get("details", {}).items():
        part = fields.get(place) if place else fields
        known = isinstance(part, dict) or hasattr(part, "__dict__")
        part_fields = fields_of(part) if known else {}
        for leaf, name in leaves.items() if part_fields else ():
            count = _count(part_fields.get(leaf))
            if count is not None:
                counts[name] = counts.get(name, 0) + count
    return counts


def _count(value: Any) -> int | None:
    return value if type(value) is int and value >= 0 else None


def _normalised(counts: _Counts) -> dict[str, int]:
    """Add what stands outside to what it belongs to, and the total where nobody did."""
    usage: dict[str, int] = {}
    for name, count in counts.items():
        plain = name.removeprefix("+")
        if plain != name:
            side = "output_tokens" if plain == "reasoning_tokens" else "input_tokens"
            if count or side in usage:
                usage[side] = usage.get(side, 0) + count
        if plain != "tool_tokens":
            usage[plain] = usage.get(plain, 0) + count
    entered, written = usage.get("input_tokens"), usage.get("output_tokens")
    total, reasoning = usage.get("total_tokens"), counts.get("reasoning_tokens")
    if written is not None:
        # Some servers that speak OpenAI's protocol leave reasoning out of completion_tokens: the
        # total tells.
        if reasoning and total == (entered or 0) + written + reasoning:
            usage["output_tokens"] = written = written + reasoning
        if total is None and entered is not None:
            usage["total_tokens"] = entered + written
    return usage
