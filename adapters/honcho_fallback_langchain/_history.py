"""History that any provider accepts: what one wrote or was sent, as another may read it.

An answer carries more than text: signed thinking, encrypted reasoning, calls of a provider's own
tools, ids under which it is kept on a server. Another provider refuses them, and a switch in the
middle of a tool loop would end in a 400. Text and tool calls are what all of them share.
"""

from __future__ import annotations

import hashlib
from collections import deque
from typing import TYPE_CHECKING, Any, Final, cast

from langchain_core.messages import AIMessage, BaseMessage, ToolMessage

from honcho_fallback_langchain._metadata import KEY
from honcho_fallback_langchain._providers import (
    BLOCK_WRITERS,
    KNOWN,
    RESPONSES,
    TOOL_CALL_IDS,
    Reader,
    family_of,
    is_block,
    is_list,
    markers_unknown_to,
    without_markers,
)
from honcho_fallback_langchain._sdk import differ

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from honcho_fallback import Target

Block = str | dict[str, Any]


def for_provider(
    messages: list[BaseMessage], to: Target | str, chain: Sequence[Target] = ()
) -> list[BaseMessage]:
    """Return the messages as a provider accepts them.

    An answer of another provider keeps its text and its tool calls, and is left out where it has
    neither; consecutive messages of a user are what every provider accepts. Cache markers go
    where they are known, and tool-call ids are made valid and distinct in calls and results alike.
    What users and tools send is left as it is: LangChain's integrations translate its standard
    blocks, and a provider refuses what it cannot take; then the next one is asked.
    """
    if not any(isinstance(one, AIMessage) or type(one.content) is list for one in messages):
        return messages  # plain words are the same to everybody
    reader = Reader.of(to, chain)
    known = reader.family in KNOWN or not reader.is_primarys
    markers = markers_unknown_to(reader.family) if known else frozenset[str]()
    converted: list[BaseMessage] = []
    for message in _with_valid_ids(messages, reader):
        changes = _changes(message, reader, markers)
        copy = message.model_copy(update=changes) if changes else message
        if not changes or not _says_nothing(copy):
            converted.append(copy)
    same = len(converted) == len(messages) and not differ(converted, messages)
    return messages if same else converted


def _changes(message: BaseMessage, reader: Reader, markers: frozenset[str]) -> dict[str, Any]:
    if isinstance(message, AIMessage) and _is_foreign(message, reader):
        return _shared_by_all(message, reader)
    if not is_list(message.content):
        return {}
    return _changed(message, {"content": _without_markers(_blocks(message), markers)})


# What AI wrote.


def _says_nothing(message: BaseMessage) -> bool:
    """Tell an answer of which nothing is left: an empty one is refused by some."""
    return isinstance(message, AIMessage) and not (
        message.content or message.tool_calls or message.invalid_tool_calls
    )


def _is_foreign(message: AIMessage, reader: Reader) -> bool:
    writer = message.response_metadata.get("model_provider")
    if isinstance(writer, str):
        return not reader.may_read(writer, _author_of(message))
    families = {reader.family, family_of(reader.format)}
    if reader.is_primarys and KNOWN.isdisjoint(families):
        return False
    types = (block.get("type") for block in _dicts(_blocks(message)))
    return any(families.isdisjoint(BLOCK_WRITERS.get(str(kind), families)) for kind in types)


def _author_of(message: AIMessage) -> str | None:
    """Name the target that gave an answer, if a chain of ours asked it."""
    described = message.response_metadata.get(KEY)
    attempts = described.get("attempts") if is_block(described) else None
    return str(attempts[-1].get("target")) if attempts else None


def _shared_by_all(message: AIMessage, reader: Reader) -> dict[str, Any]:
    """Return what has to change for only text and tool calls to remain.

    Calls that have a block of their own stay in it where the reader speaks the same wire: their
    results answer that block.
    """
    fields: dict[str, Any] = {}
    text: Any = message.content
    calls: list[dict[str, Any]] = []
    if is_list(text) and not all(map(_is_plain_text, _blocks(message))):
        text = "".join(map(_text_of, _blocks(message)))
        if reader.format == RESPONSES:
            calls = list(_client_calls(message))
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
    if calls:
        text = [*([{"type": "text", "text": text}] if text else []), *calls]
    return _changed(message, {"content": text, **fields})


def _without(entries: Mapping[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in entries.items() if name not in names}


def _is_plain_text(block: Block) -> bool:
    return isinstance(block, str) or (
        block.get("type") == "text" and block.keys() == {"type", "text"}
    )


def _text_of(block: Block) -> str:
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


def _client_calls(message: AIMessage) -> Iterator[dict[str, Any]]:
    """Find the calls that a client answers, without what only the account knows."""
    for block in _dicts(_blocks(message)):
        # LangChain's version 1 wraps what it has no block for.
        call = block.get("value") if block.get("type") == "non_standard" else block
        if is_block(call) and call.get("type") in _CLIENT_CALLS:
            yield _without(call, *_CLIENT_CALLS[call["type"]])


def _without_markers(content: list[Block], markers: frozenset[str]) -> list[Block]:
    cleaned = [
        block if isinstance(block, str) else without_markers(block, markers) for block in content
    ]
    # A block that was nothing but a marker is gone with it.
    return [new for new, old in zip(cleaned, content, strict=True) if new or new is old]


# Tool-call ids: valid for the reader, and distinct over the whole history. Servers that number
# the calls of each answer anew, and histories written by hand, repeat them.


def _with_valid_ids(messages: list[BaseMessage], reader: Reader) -> list[BaseMessage]:
    """Return messages with ids that the reader takes.

    The first call keeps a valid id, and the results follow their calls in order.
    """
    family = family_of(reader.format)
    if family not in TOOL_CALL_IDS:
        return messages
    pattern, length = TOOL_CALL_IDS[family]
    counts: dict[str, int] = {}
    results: dict[str, deque[str]] = {}  # the new ids of renamed calls that have no result yet
    renamed: list[BaseMessage] = []
    for message in messages:
        changes: dict[str, Any] = {}
        if not isinstance(message, AIMessage):
            changes = _results_renamed(message, results) if results else {}
        elif call_ids := _call_ids(message):
            writer = message.response_metadata.get("model_provider")
            own = isinstance(writer, str) and reader.may_read(writer, _author_of(message))
            names: dict[str, list[str]] = {}
            for call_id in call_ids:
                number = counts[call_id] = counts.get(call_id, -1) + 1
                new_id = call_id
                if number or not (own or pattern.fullmatch(call_id)):
                    numbered = f"{call_id} {number}" if number else call_id
                    new_id = hashlib.sha256(numbered.encode()).hexdigest()[:length]
                names.setdefault(call_id, []).append(new_id)
            changes = _calls_renamed(message, names)
            if changes:
                results |= {call_id: deque(new_ids) for call_id, new_ids in names.items()}
        renamed.append(message.model_copy(update=changes) if changes else message)
    return renamed


def _call_ids(message: AIMessage) -> list[str]:
    listed = [call["id"] for call in (*message.tool_calls, *message.invalid_tool_calls)]
    in_blocks = [
        block.get(_CALL_BLOCKS[block["type"]])
        for block in _dicts(_blocks(message))
        if block.get("type") in _CALL_BLOCKS
    ]
    # A block of a call that is listed is the same call once more.
    return [one for one in (*listed, *(one for one in in_blocks if one not in listed)) if one]


def _calls_renamed(message: AIMessage, names: Mapping[str, list[str]]) -> dict[str, Any]:
    if all(new_ids == [call_id] for call_id, new_ids in names.items()):
        return {}
    listed = {call_id: deque(new_ids) for call_id, new_ids in names.items()}
    in_blocks = {call_id: deque(new_ids) for call_id, new_ids in names.items()}
    fields: dict[str, Any] = {
        name: [{**call, "id": _next(listed, call["id"])} for call in getattr(message, name)]
        for name in ("tool_calls", "invalid_tool_calls")
    }
    return _changed(message, fields | {"content": _ids_renamed(message, _CALL_BLOCKS, in_blocks)})


def _results_renamed(message: BaseMessage, results: dict[str, deque[str]]) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    if isinstance(message, ToolMessage):
        fields["tool_call_id"] = new_id = _next(results, message.tool_call_id)
        results = {message.tool_call_id: deque([new_id])}  # a block of it is the same result
    return _changed(message, fields | {"content": _ids_renamed(message, _RESULT_BLOCKS, results)})


def _ids_renamed(
    message: BaseMessage, fields: Mapping[str, str], names: dict[str, deque[str]]
) -> Any:
    if not is_list(message.content):
        return message.content
    blocks = [dict(block) if isinstance(block, dict) else block for block in _blocks(message)]
    for block in _dicts(blocks):
        field = fields.get(str(block.get("type")))
        if field in block:
            block[field] = _next(names, block[field])
    return blocks


def _next(names: dict[str, deque[str]], call_id: Any) -> Any:
    new_ids = names.get(call_id)
    if new_ids is None:
        return call_id
    return new_ids.popleft() if len(new_ids) > 1 else new_ids[0]


def _changed(message: BaseMessage, fields: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value != getattr(message, name)}


def _blocks(message: BaseMessage) -> list[Block]:
    content = cast("str | list[Block]", message.content)
    return content if isinstance(content, list) else []


def _dicts(blocks: Iterable[Block]) -> Iterable[dict[str, Any]]:
    return (block for block in blocks if isinstance(block, dict))


# The only additional keyword that is not specific to a provider.
_SHARED_KWARGS: Final = frozenset({"name"})
_SERVER_IDS: Final = ("msg_", "resp_")  # OpenAI looks for what such an id names
_TEXT_IN: Final = {"text": "text", "output_text": "text", "refusal": "refusal"}
_CALL_BLOCKS: Final = {
    "apply_patch_call": "call_id",
    "custom_tool_call": "call_id",
    "function_call": "call_id",
    "tool_call": "id",
    "tool_use": "id",
}
_RESULT_BLOCKS: Final = {"apply_patch_call_output": "call_id", "tool_result": "tool_use_id"}
# Blocks that a client answers, and the fields of theirs that name what the account keeps. The
# answer to a request for approval names it.
_CLIENT_CALLS: Final[Mapping[str, tuple[str, ...]]] = {
    "apply_patch_call": ("id",),
    "custom_tool_call": ("id",),
    "mcp_approval_request": (),
}
