"""History that any provider accepts: what one wrote or was sent, as another may read it.

An answer carries more than text: signed thinking, encrypted reasoning, calls of a provider's own
tools, ids under which it is kept on a server. Another provider refuses them, and a switch in the
middle of a tool loop would end in a 400. Text and tool calls are what all of them share. What
users and tools send is translated into LangChain's standard blocks where it stands in the form of
one provider, and what cannot be translated is refused before a request.
"""

from __future__ import annotations

import hashlib
from collections import deque
from typing import TYPE_CHECKING, Any, Final, cast

from langchain_core.exceptions import ModelInvalidRequestError
from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
)

from honcho_fallback_langchain._metadata import KEY
from honcho_fallback_langchain._providers import (
    BLOCK_WRITERS,
    KNOWN,
    MARKERS,
    RESPONSES,
    TOOL_CALL_IDS,
    Reader,
    family_of,
    is_block,
    is_list,
    markers_unknown_to,
    only,
    without_markers,
)
from honcho_fallback_langchain._sdk import differ

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from honcho_fallback import Target

Block = str | dict[str, Any]


def for_provider(
    messages: list[BaseMessage], to: Target | str, chain: Sequence[Target] = ()
) -> list[BaseMessage]:
    """Return the messages as a provider accepts them.

    An answer of another provider keeps its text and its tool calls, and is left out where it has
    neither; consecutive messages of a user are what every provider accepts. Cache markers go
    where they are known, and tool-call ids are made valid and distinct in calls and results alike.
    What the caller sends is left as it is for the primary's provider, and translated for others.
    A ModelInvalidRequestError, where that cannot be done, is to the chain what a 400 of that
    provider would be: the next one is asked.
    """
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


def unsendable(
    messages: Iterable[BaseMessage], to: Target | str, chain: Sequence[Target] = ()
) -> str | None:
    """Say why a provider cannot be sent these messages, without anything of their content."""
    reader = Reader.of(to, chain)
    for message in () if reader.is_primarys else messages:
        for block in () if isinstance(message, AIMessage) else _dicts(_blocks(message)):
            if _as_taken(block, message, reader) is None:
                return _refusal(block, message)
    return None


def _changes(message: BaseMessage, reader: Reader, markers: frozenset[str]) -> dict[str, Any]:
    if isinstance(message, AIMessage) and _is_foreign(message, reader):
        return _shared_by_all(message, reader)
    if not is_list(message.content):
        return {}
    blocks = _blocks(message)
    if not (isinstance(message, AIMessage) or reader.is_primarys):
        blocks = [_taken(block, message, reader) for block in blocks]
    return _changed(message, {"content": _without_markers(blocks, markers)})


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


# What users and tools send.


def _taken(block: Block, message: BaseMessage, reader: Reader) -> Block:
    if isinstance(block, str):
        return block
    taken = _as_taken(block, message, reader)
    if taken is None:
        reason = _refusal(block, message)
        raise ModelInvalidRequestError(f"This request cannot be sent to {reader.family}: {reason}")
    return taken


def _as_taken(
    block: dict[str, Any], message: BaseMessage, reader: Reader
) -> dict[str, Any] | None:
    """Return a block as a reader's format takes it, the same one where it does, or None."""
    if block.keys() <= MARKERS.keys() or _is_taken(block, message, reader):
        return block
    standard = _standard(block) or block
    if _is_taken(standard, message, reader):
        return standard
    text = _plain_text(standard)
    return None if text is None else {"type": "text", "text": text}


def _is_taken(block: dict[str, Any], message: BaseMessage, reader: Reader) -> bool:
    kind = kind_of(block)
    if kind == "text":
        return True
    if reader.is_on_primarys_wire and kind not in TAKEN_BY and not kind.endswith(" id"):
        return True
    if isinstance(message, SystemMessage) or (
        isinstance(message, ToolMessage) and reader.format not in MEDIA_IN_RESULTS
    ):
        return False
    return kind in TAKEN_BY_ALL or reader.format in TAKEN_BY.get(kind, ())


def kind_of(block: dict[str, Any]) -> str:
    """Name a block's kind as `TAKEN_BY` does: its type, where its data are, whose form it is."""
    kind = block.get("type")
    if not isinstance(kind, str):
        return f"{next(iter(block))} (Bedrock)" if len(block) == 1 else ""
    how, source, file = (block.get(name) for name in ("source_type", "source", "file"))
    places = [place for place in (block, source, file) if is_block(place)]
    if how == "id" or any(_FILE_IDS & place.keys() for place in places):
        detail = "id"
    elif kind == "image":
        detail = "(Anthropic)" if is_block(source) else ""
    elif kind == "file" and is_block(file):
        detail = "(OpenAI)"
    elif kind in _PLACED:
        detail = "url" if "url" in block else how or "base64"
    else:
        detail = f"({_OWNERS[kind]})" if kind in _OWNERS else ""
    return f"{kind} {detail}".rstrip()


def _standard(block: dict[str, Any]) -> dict[str, Any] | None:
    """Translate a block that one provider alone takes into LangChain's standard block."""
    kind = kind_of(block)
    if kind.endswith(" id"):
        return None  # what it names is not here
    rewrite = _REWRITES.get(kind)
    try:
        (standard,) = HumanMessage([rewrite(block) if rewrite else block]).content_blocks
    except (AttributeError, LookupError, TypeError, ValueError):
        return None  # not well formed
    # Its id is new each time, and no cache would know the request again.
    return None if standard["type"] == "non_standard" else _without(dict(standard), "id")


def _from_media(block: dict[str, Any]) -> dict[str, Any]:
    kind = block["mime_type"].partition("/")[0]
    kind = kind if kind in {"audio", "image", "video"} else "file"
    return {"type": kind, "base64": block["data"], "mime_type": block["mime_type"]}


def _from_input_file(block: dict[str, Any]) -> dict[str, Any]:
    if "file_url" in block:
        return {"type": "file", "url": block["file_url"]}
    return {"type": "file", "file": _without(block, "type")}


def _plain_text(block: dict[str, Any]) -> str | None:
    """Return a block's text where it has nothing else."""
    kind = kind_of(block)
    lines: list[Any] = []
    if kind == "text-plain":
        lines = [(block.get("extras") or block).get("title"), block.get("text")]
    elif kind == "search_result (Anthropic)" and is_list(block.get("content")):
        parts = [part.get("text") for part in block["content"] if is_block(part)]
        lines = [block.get("title"), block.get("source"), *parts]
    elif kind == "guardContent (Bedrock)" and is_block(block["guardContent"].get("text")):
        lines = [block["guardContent"]["text"].get("text")]
    texts = [line for line in lines if isinstance(line, str) and line]
    return "\n".join(texts) if texts else None


def _refusal(block: dict[str, Any], message: BaseMessage) -> str:
    kind, _, detail = kind_of(block).partition(" ")
    word = str(
        block.get("type", next(iter(block), ""))
    )  # whatever a caller wrote there is shown as a name only
    shown = f"a block of type {kind!r}" if word.replace("-", "_").isidentifier() else "a block"
    if detail == "id":
        return f"{shown} names a file that another provider keeps"
    if detail.startswith("("):
        return f"{shown} is {detail[1:-1]}'s own"
    where = {"system": " in a system message", "tool": " in a tool's result"}
    return f"{shown}{where.get(message.type, '')} is not known to be taken"


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

# Who takes which block of a user's as LangChain's integration for its format sends it. A block
# that is not taken is translated into a standard one, or into text; else it is refused.
TAKEN_BY_ALL: Final = frozenset({"text", "image", "image_url"})
TAKEN_BY: Final[Mapping[str, frozenset[str]]] = {
    # LangChain's standard blocks, of version 0 and 1; all know an image
    "audio base64": only("google", "litellm", "openai"),
    "audio url": only("google"),
    "file base64": only("anthropic", "bedrock", "google", "litellm", "openai", RESPONSES),
    "file text": only("anthropic"),
    "file url": only("anthropic", "google", RESPONSES),
    "text-plain": only("anthropic"),
    "video base64": only("bedrock", "google"),
    "video url": only("google"),
    # a provider's own; one by an id is taken where the provider is the primary's
    "document (Anthropic)": only("anthropic"),
    "image (Anthropic)": only("anthropic"),
    "search_result (Anthropic)": only("anthropic"),
    "tool_result (Anthropic)": only("anthropic", "bedrock"),
    "file (OpenAI)": only("litellm", "openai", RESPONSES),
    "input_audio (OpenAI)": only("litellm", "openai"),
    "input_file (OpenAI)": only(RESPONSES),
    "input_image (OpenAI)": only(RESPONSES),
    "input_text (OpenAI)": only(RESPONSES),
    "media (Google)": only("google"),
    "document (Bedrock)": only("bedrock"),
    "guardContent (Bedrock)": only("bedrock"),
    "image (Bedrock)": only("bedrock"),
    "text (Bedrock)": only("bedrock"),
    "video (Bedrock)": only("bedrock"),
}
# A tool's result is text to all others, and a system message to everybody.
MEDIA_IN_RESULTS: Final = only("anthropic", "bedrock", "google", RESPONSES)
# Whose form a block of a type is; Bedrock's have no type.
_OWNERS: Final = {
    **dict.fromkeys(("document", "search_result", "tool_result"), "Anthropic"),
    **dict.fromkeys(("input_audio", "input_file", "input_image", "input_text"), "OpenAI"),
    "media": "Google",
}
_PLACED: Final = frozenset({"audio", "file", "video"})
_FILE_IDS: Final = frozenset({"file_id", "file_uri"})
# What langchain-core's own translation does not know.
_REWRITES: Final[Mapping[str, Callable[[dict[str, Any]], dict[str, Any]]]] = {
    "file text": lambda block: {"type": "text-plain", "text": block["text"]},
    "input_file (OpenAI)": _from_input_file,
    "input_image (OpenAI)": lambda block: {
        "type": "image_url",
        "image_url": {"url": block["image_url"]},
    },
    "input_text (OpenAI)": lambda block: {"type": "text", "text": block["text"]},
    "media (Google)": _from_media,
}
