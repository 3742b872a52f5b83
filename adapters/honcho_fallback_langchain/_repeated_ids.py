"""One id for each tool call: some providers refuse a history in which two calls have the same.

Servers that number the calls of each answer anew, and histories written by hand, repeat their
ids; the results follow their calls in order.
"""

from __future__ import annotations

import hashlib
from collections import Counter, deque
from typing import TYPE_CHECKING, Any, Final

from langchain_core.messages import AIMessage, BaseMessage, ToolMessage

from honcho_fallback_langchain._providers import is_block, is_list

if TYPE_CHECKING:
    from collections.abc import Mapping

_CALLS: Final = ("tool_calls", "invalid_tool_calls")
_CALL_BLOCKS: Final = {"tool_use": "id", "function_call": "call_id"}
_RESULT_BLOCKS: Final = {"tool_result": "tool_use_id"}


def with_distinct_ids(messages: list[BaseMessage], length: int) -> list[BaseMessage]:
    """Return messages without a repeated tool-call id, the same list where there is none.

    The first call keeps its id, and so does its result.
    """
    counts = Counter(call_id for message in messages for call_id in _call_ids(message))
    repeated = {call_id for call_id, count in counts.items() if count > 1}
    if not repeated:
        return messages
    calls: Counter[str] = Counter()
    names: dict[str, list[str]] = {}  # of the latest answer's calls
    results: dict[str, deque[str]] = {}  # of those that have no result yet
    distinct: list[BaseMessage] = []
    for message in messages:
        answered = [call_id for call_id in _call_ids(message) if call_id in repeated]
        for call_id in dict.fromkeys(answered):
            names[call_id] = []
        for call_id in answered:
            names[call_id].append(_name(call_id, calls[call_id], length))
            calls[call_id] += 1
        results |= {call_id: deque(names[call_id]) for call_id in answered}
        distinct.append(_renamed(message, names, results))
    return distinct


def _call_ids(message: BaseMessage) -> list[str]:
    if not isinstance(message, AIMessage):
        return []
    listed = [call["id"] for call in (*message.tool_calls, *message.invalid_tool_calls)]
    block_ids = [
        block.get(_CALL_BLOCKS[block["type"]]) for block in _blocks(message, _CALL_BLOCKS)
    ]
    # A block of a call that is listed is the same call once more.
    return [call_id for call_id in listed or block_ids if call_id]


def _blocks(message: BaseMessage, kinds: Mapping[str, str]) -> list[dict[str, Any]]:
    content: Any = message.content
    blocks = content if is_list(content) else []
    return [block for block in blocks if is_block(block) and block.get("type") in kinds]


def _name(call_id: str, number: int, length: int) -> str:
    if number == 0:
        return call_id
    return hashlib.sha256(f"{call_id} {number}".encode()).hexdigest()[:length]


def _renamed(
    message: BaseMessage, names: Mapping[str, list[str]], results: dict[str, deque[str]]
) -> BaseMessage:
    changes: dict[str, Any] = {}
    if isinstance(message, AIMessage):
        listed = {call_id: deque(ids) for call_id, ids in names.items()}
        for field in _CALLS:
            calls = getattr(message, field)
            changes[field] = [call | {"id": _next(listed, call["id"])} for call in calls]
        in_blocks = {call_id: deque(ids) for call_id, ids in names.items()}
        changes["content"] = _content(message, _CALL_BLOCKS, in_blocks)
    else:
        changes["content"] = _content(message, _RESULT_BLOCKS, results)
    if isinstance(message, ToolMessage):
        changes["tool_call_id"] = _next(results, message.tool_call_id)
    if all(value == getattr(message, name) for name, value in changes.items()):
        return message
    return message.model_copy(update=changes)


def _content(message: BaseMessage, kinds: Mapping[str, str], names: dict[str, deque[str]]) -> Any:
    content: Any = message.content
    if not is_list(content):
        return content
    blocks: list[Any] = []
    for block in content:
        key = kinds.get(block.get("type", "")) if is_block(block) else None
        blocks.append(block if key is None else block | {key: _next(names, block.get(key))})
    return blocks


def _next(names: dict[str, deque[str]], call_id: Any) -> Any:
    ids = names.get(call_id)
    if not ids:
        return call_id
    return ids.popleft() if len(ids) > 1 else ids[0]
