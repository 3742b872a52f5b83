"""History that any provider accepts: what one model wrote, as another may read it.

An answer carries more than text: signed thinking, encrypted reasoning, calls of a provider's own
tools, ids under which it is kept on a server. Another provider refuses them, and a switch in the
middle of a tool loop would end in a 400. Text and tool calls are what all of them share.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any, Final, cast

from langchain_core.messages import AIMessage, BaseMessage, ToolMessage

from honcho_fallback_langchain._provider_tables import BLOCK_WRITERS, KNOWN, TOOL_CALL_IDS
from honcho_fallback_langchain._providers import (
    family_of,
    is_block,
    is_list,
    markers_unknown_to,
    without_markers,
)
from honcho_fallback_langchain._repeated_ids import with_distinct_ids

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

Content = str | list[str | dict[str, Any]]


def for_provider(messages: list[BaseMessage], provider: str) -> list[BaseMessage]:
    """Return the messages as a provider accepts them.

    An answer of another provider keeps its text and its tool calls, and is left out where it has
    neither; consecutive messages of a user are what every provider accepts. Cache markers go
    where they are known, and tool-call ids are made valid and distinct in calls and results alike.
    Answers of an unknown writer are left as they are, and so are the markers for an unknown
    reader.
    """
    reader = family_of(provider)
    if reader in TOOL_CALL_IDS:
        messages = with_distinct_ids(messages, TOOL_CALL_IDS[reader][1])
    ids = _new_ids(messages, reader)
    markers = markers_unknown_to(reader)
    converted: list[BaseMessage] = []
    same = True
    for message in messages:
        changes = _changes(message, reader, ids, markers)
        if not changes:
            converted.append(message)
            continue
        same = False
        copy = message.model_copy(update=changes)
        if not _says_nothing(copy):
            converted.append(copy)
    return messages if same else converted


def _changes(
    message: BaseMessage, reader: str, ids: Mapping[str, str], markers: frozenset[str]
) -> dict[str, Any]:
    changes: dict[str, Any] = {}
    if isinstance(message, AIMessage) and _is_foreign(message, reader):
        changes = _shared_by_all(message)
    elif markers and _has_blocks(message):
        content = _blocks(message)
        changes = _changed(message, {"content": _without_markers(content, markers)})
    if ids:
        changes |= _with_ids(message, changes, ids)
    return changes


def _says_nothing(message: BaseMessage) -> bool:
    """Tell an answer of which nothing is left: an empty one is refused by some."""
    return isinstance(message, AIMessage) and not (
        message.content or message.tool_calls or message.invalid_tool_calls
    )


def _is_foreign(message: AIMessage, reader: str) -> bool:
    writer = message.response_metadata.get("model_provider")
    if isinstance(writer, str):
        return family_of(writer) != reader
    if reader not in KNOWN:
        return False
    types = (block.get("type") for block in _dicts(_blocks(message)))
    return any(reader not in BLOCK_WRITERS.get(str(kind), {reader}) for kind in types)


def _shared_by_all(message: AIMessage) -> dict[str, Any]:
    """Return what has to change for only text and tool calls to remain."""
    fields: dict[str, Any] = {}
    text: Any = message.content
    if _has_blocks(message) and not all(map(_is_plain_text, _blocks(message))):
        text = "".join(map(_text_of, _blocks(message)))
        fields["tool_calls"] = [*message.tool_calls, *_calls_only_in_blocks(message)]
        fields["response_metadata"] = _without(message.response_metadata, "output_version")
    extra = message.additional_kwargs
    if any(extra[name] for name in extra.keys() - _SHARED_KWARGS):
        text = text or extra.get("refusal") or ""
        fields["additional_kwargs"] = _without(extra, *(extra.keys() - _SHARED_KWARGS))
    if (message.id or "").startswith(_SERVER_IDS):
        fields["id"] = None
    if isinstance(text, str) and not text.strip():
        text = ""  # some refuse blank text; none at all is no text block
    return _changed(message, {"content": text, **fields})


def _without(entries: Mapping[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in entries.items() if name not in names}


def _is_plain_text(block: str | dict[str, Any]) -> bool:
    return isinstance(block, str) or (
        block.get("type") == "text" and block.keys() == {"type", "text"}
    )


def _text_of(block: str | dict[str, Any]) -> str:
    if isinstance(block, str):
        return block
    return str(block.get(_TEXT_IN.get(str(block.get("type")), "")) or "")


def _calls_only_in_blocks(message: AIMessage) -> list[dict[str, Any]]:
    """Find calls that a hand-written message has among its blocks alone."""
    listed = {call["id"] for call in (*message.tool_calls, *message.invalid_tool_calls)}
    return [
        {"name": block["name"], "args": block["input"], "id": block["id"], "type": "tool_call"}
        for block in _dicts(_blocks(message))
        if block.get("type") == "tool_use"
        and block.get("id") not in listed
        and isinstance(block.get("input"), dict)
    ]


def _without_markers(
    content: list[str | dict[str, Any]], markers: frozenset[str]
) -> list[str | dict[str, Any]]:
    cleaned = [
        block if isinstance(block, str) else without_markers(block, markers) for block in content
    ]
    # A block that was nothing but a marker is gone with it.
    return [new for new, old in zip(cleaned, content, strict=True) if new or new is old]


def _new_ids(messages: Iterable[BaseMessage], reader: str) -> dict[str, str]:
    """Map the ids of calls that the reader did not make and would refuse."""
    rule = TOOL_CALL_IDS.get(reader)
    if rule is None:
        return {}
    pattern, length = rule
    return {
        old: hashlib.sha256(old.encode()).hexdigest()[:length]
        for message in messages
        if isinstance(message, AIMessage)
        and family_of(str(message.response_metadata.get("model_provider"))) != reader
        for old in _call_ids(message)
        if not pattern.fullmatch(old)
    }


def _call_ids(message: AIMessage) -> list[str]:
    listed_ids = [call.get("id") for call in (*message.tool_calls, *message.invalid_tool_calls)]
    block_ids = [
        block.get("id") for block in _dicts(_blocks(message)) if block.get("type") == "tool_use"
    ]
    return [call_id for call_id in (*listed_ids, *block_ids) if call_id]


def _with_ids(
    message: BaseMessage, changes: Mapping[str, Any], ids: Mapping[str, str]
) -> dict[str, Any]:
    fields = {
        name: _renamed(changes.get(name, getattr(message, name)), ids)
        for name in _CALL_FIELDS & type(message).model_fields.keys()
    }
    if isinstance(message, ToolMessage):
        fields["tool_call_id"] = ids.get(message.tool_call_id, message.tool_call_id)
    return _changed(message, fields, changes)


def _renamed(value: Any, ids: Mapping[str, str]) -> Any:
    return [_block_renamed(part, ids) for part in value] if is_list(value) else value


def _block_renamed(block: Any, ids: Mapping[str, str]) -> Any:
    if not is_block(block):
        return block
    old_ids = {name: str(block[name]) for name in _ID_KEYS & block.keys()}
    return block | {name: ids[old] for name, old in old_ids.items() if old in ids}


def _changed(
    message: BaseMessage, fields: Mapping[str, Any], changes: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    current = changes or {}
    return {
        name: value
        for name, value in fields.items()
        if value != current.get(name, getattr(message, name))
    }


def _has_blocks(message: BaseMessage) -> bool:
    return isinstance(message.content, list)


def _blocks(message: BaseMessage) -> list[str | dict[str, Any]]:
    content = cast("Content", message.content)
    return content if isinstance(content, list) else []


def _dicts(blocks: Iterable[str | dict[str, Any]]) -> Iterable[dict[str, Any]]:
    return (block for block in blocks if isinstance(block, dict))


# The only additional keyword that is not specific to a provider.
_SHARED_KWARGS: Final = frozenset({"name"})
_SERVER_IDS: Final = ("msg_", "resp_")  # OpenAI looks for what such an id names
_TEXT_IN: Final = {"text": "text", "output_text": "text", "refusal": "refusal"}
_CALL_FIELDS: Final = frozenset({"content", "invalid_tool_calls", "tool_calls"})
_ID_KEYS: Final = frozenset({"call_id", "id", "tool_call_id", "tool_use_id"})
