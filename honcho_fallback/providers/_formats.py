"""Four formats of a history, each read into the same messages and written from them.

What all providers share is text, what users attach, tool calls and their results; a reader keeps
just that. Whatever else stands in an answer (signed thinking, encrypted reasoning, calls of hosted
tools, ids of what a server keeps) is for the provider that wrote it. What a *user* sent is another
matter: a part that a format cannot express is an error, not a loss.
"""

from __future__ import annotations

import json
from base64 import b64encode
from mimetypes import guess_type
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeAlias

from honcho_fallback import FallbackConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

Json: TypeAlias = dict[str, Any]
Role: TypeAlias = Literal["system", "user", "assistant", "tool"]
Part: TypeAlias = "Text | Media | Foreign | Call | Result"


class Text(NamedTuple):
    text: str


class Media(NamedTuple):
    mime: str  # of an image, a sound or a document
    data: str | None  # in base64
    url: str | None = None
    name: str | None = None

    @property
    def address(self) -> str:
        return self.url or f"data:{self.mime};base64,{self.data}"


class Foreign(NamedTuple):
    block: Json  # that only the format that it came in can express


class Call(NamedTuple):
    id: str
    name: str
    arguments: Mapping[str, Any] | str  # a custom tool's are a text

    @property
    def fields(self) -> Json:
        arguments = self.arguments
        return {"input": arguments} if isinstance(arguments, str) else {**arguments}


class Result(NamedTuple):
    call_id: str
    parts: tuple[Part, ...]
    is_error: bool = False


class Message(NamedTuple):
    role: Role
    parts: tuple[Part, ...]  # results of tools stand in messages of their own


class Format(NamedTuple):
    read: Callable[[Sequence[Json]], Iterator[Message]]
    write: Callable[[Sequence[Message]], list[Json]]


def cannot_write(part: Part, format_name: str) -> FallbackConfigError:
    """Return the error for what a user sent and a format has no words for."""
    what = f"a part {part.block.get('type')!r}" if isinstance(part, Foreign) else part[0]
    problem = f"{what} cannot be written for {format_name}"
    return FallbackConfigError.about("messages", problem, 'pass unfit={position: "why"} for it')


def blocks_of(content: Any) -> list[Json]:
    """Return content as blocks; a text is one, and a blank one none: some refuse it."""
    if isinstance(content, str):
        return [{"type": "text", "text": content}] if content.strip() else []
    return [
        {"type": "text", "text": one} if isinstance(one, str) else one for one in content or ()
    ]


def _spoken(message: Json) -> Iterator[Text]:
    """Yield an answer's texts in either format of OpenAI's; a refusal is one."""
    for block in (*blocks_of(message.get("content")), *blocks_of(message.get("refusal"))):
        text = block.get("text") or block.get("refusal")
        if text:
            yield Text(text)


def _role_of(message: Json, roles: Mapping[str, Role]) -> Role:
    role = roles.get(str(message.get("role")))
    if role is None:
        problem = f"{message.get('role')!r} is not known in this format"
        raise FallbackConfigError.about("messages[].role", problem, f"use {', '.join(roles)}")
    return role


def _media(address: str, mime: str, name: str | None = None) -> Media:
    """Read an address, or bytes that stand in one; ``mime`` is for those that do not tell it."""
    if address.startswith("data:"):
        head, _, data = address.partition(",")
        return Media(head[5:].partition(";")[0] or mime, data, None, name)
    return Media(guess_type(address)[0] or mime, None, address, name)


def _arguments(text: str) -> Mapping[str, Any]:
    """Read a call's arguments; what is no object of JSON is kept as a text."""
    try:
        arguments = json.loads(text or "{}")
    except ValueError:
        arguments = None
    return arguments if isinstance(arguments, dict) else {"input": text}


def _text(parts: Iterable[Part], between: str = "") -> str:
    """Join the texts: an answer's are pieces of one, a result's stand by themselves."""
    return between.join(part.text for part in parts if isinstance(part, Text))


def _taking_turns(
    messages: Iterable[Message], answers: str, write: Callable[[Part], list[Json]], content: str
) -> list[Json]:
    """Write messages of two roles that take turns, neighbours of one role as one message."""
    written: list[Json] = []
    for message in messages:
        role = answers if message.role == "assistant" else "user"
        if not written or written[-1]["role"] != role:
            written.append({"role": role, content: []})
        for part in message.parts:
            written[-1][content] += write(part)
    return written


# OpenAI's Chat Completions, which many servers speak.

_OPENAI_ROLES: Final[Mapping[str, Role]] = {
    "assistant": "assistant",
    "developer": "system",
    "system": "system",
    "tool": "tool",
    "user": "user",
}


def _read_chat(messages: Sequence[Json]) -> Iterator[Message]:
    for message in messages:
        role = _role_of(message, _OPENAI_ROLES)
        if role == "assistant":
            calls = map(_chat_call, message.get("tool_calls") or ())
            yield Message(role, (*_spoken(message), *calls))
            continue
        parts = tuple(map(_openai_part, blocks_of(message.get("content"))))
        if role == "tool":
            parts = (Result(message["tool_call_id"], parts),)
        yield Message(role, parts)


def _chat_call(call: Json) -> Call:
    if "custom" in call:
        return Call(call["id"], call["custom"]["name"], call["custom"]["input"])
    function = call["function"]
    return Call(call["id"], function["name"], _arguments(function["arguments"]))


def _openai_part(block: Json) -> Part:
    match block:
        case {"type": "text" | "input_text" | "output_text", "text": text}:
            return Text(text)
        case {"type": "image_url", "image_url": {"url": url}} | {
            "type": "input_image",
            "image_url": str(url),
        }:
            return _media(url, "image/jpeg")
        case {"type": "file", "file": {"file_data": str(url), **file}}:
            return _media(url, "application/pdf", str(file.get("filename", "")) or None)
        case {"type": "input_file", "file_data": str(url)} | {
            "type": "input_file",
            "file_url": str(url),
        }:
            return _media(url, "application/pdf", block.get("filename"))
        case {"type": "input_audio", "input_audio": {"data": data, "format": kind}}:
            return Media(f"audio/{kind}", data)
        case _:
            return Foreign(block)


def _write_chat(messages: Sequence[Message]) -> list[Json]:
    written: list[Json] = []
    for role, parts in messages:
        if role == "assistant":
            calls = [_written_chat_call(part) for part in parts if isinstance(part, Call)]
            answer = {"role": role, "content": _text(parts) or None}
            written.append({**answer, "tool_calls": calls} if calls else answer)
            continue
        attached = parts
        if role == "tool":  # takes text alone; what else a tool returned is said by the user
            results = [part for part in parts if isinstance(part, Result)]
            for call_id, inner, _ in results:
                text = _text(inner, "\n")
                written.append({"role": role, "tool_call_id": call_id, "content": text})
            attached = tuple(p for one in results for p in one.parts if not isinstance(p, Text))
        content: Any = [_written_chat(part) for part in attached]
        if len(content) == 1 and content[0]["type"] == "text":
            content = content[0]["text"]
        if content:
            written.append({"role": "user" if role == "tool" else role, "content": content})
    return written


def _written_chat_call(call: Call) -> Json:
    if isinstance(call.arguments, str):
        custom = {"name": call.name, "input": call.arguments}
        return {"id": call.id, "type": "custom", "custom": custom}
    function = {"name": call.name, "arguments": json.dumps(call.arguments)}
    return {"id": call.id, "type": "function", "function": function}


def _written_chat(part: Part) -> Json:
    match part:
        case Text(text):
            return {"type": "text", "text": text}
        case Foreign(block):
            return block
        case Media(mime) if mime.startswith("image/"):
            return {"type": "image_url", "image_url": {"url": part.address}}
        case Media("audio/wav" | "audio/mp3" as mime, str(data)):
            return {"type": "input_audio", "input_audio": {"data": data, "format": mime[6:]}}
        case Media(_, str()):
            file = {"filename": part.name or "document", "file_data": part.address}
            return {"type": "file", "file": file}
        case _:
            raise cannot_write(part, "openai")


# OpenAI's Responses: items, of which one answer may have many.


def _read_responses(items: Sequence[Json]) -> Iterator[Message]:
    answer: tuple[Part, ...] = ()
    for message in map(_read_item, items):
        if message.role == "assistant":
            answer += message.parts
            continue
        yield from (Message("assistant", answer), message) if answer else (message,)
        answer = ()
    if answer:
        yield Message("assistant", answer)


def _read_item(item: Json) -> Message:
    match item:
        case {"type": "function_call", "call_id": call_id, "name": name}:
            return Message("assistant", (Call(call_id, name, _arguments(item["arguments"])),))
        case {"type": "custom_tool_call", "call_id": call_id, "name": name}:
            return Message("assistant", (Call(call_id, name, item["input"]),))
        case {"type": "function_call_output" | "custom_tool_call_output", "call_id": call_id}:
            parts = tuple(map(_openai_part, blocks_of(item["output"])))
            return Message("tool", (Result(call_id, parts),))
        case {"type": str(kind)} if kind != "message":
            return Message("assistant", ())  # reasoning, and what hosted tools did
        case _:
            role, content = _role_of(item, _OPENAI_ROLES), blocks_of(item.get("content"))
            is_answer = role == "assistant"
            return Message(role, tuple(_spoken(item) if is_answer else map(_openai_part, content)))


def _write_responses(messages: Sequence[Message]) -> list[Json]:
    items: list[Json] = []
    custom_calls: set[str] = set()
    for role, parts in messages:
        if role in {"user", "system"}:
            items.append({"role": role, "content": [_written_input(part) for part in parts]})
            continue
        for part in parts:
            match part:
                case Text(text):
                    items.append({"role": role, "content": text})
                case Call(call_id, name, str(text)):
                    call = {"call_id": call_id, "name": name, "input": text}
                    items.append({"type": "custom_tool_call", **call})
                    custom_calls.add(call_id)
                case Call(call_id, name, arguments):
                    call = {"call_id": call_id, "name": name, "arguments": json.dumps(arguments)}
                    items.append({"type": "function_call", **call})
                case Result(call_id, inner):
                    output: Any = [_written_input(one) for one in inner]
                    if all(isinstance(one, Text) for one in inner):
                        output = _text(inner, "\n")
                    kind = "custom_tool_call" if call_id in custom_calls else "function_call"
                    result = {"type": f"{kind}_output", "call_id": call_id, "output": output}
                    items.append(result)
                case _:
                    raise cannot_write(part, "openai-responses")
    return items


def _written_input(part: Part) -> Json:
    match part:
        case Text(text):
            return {"type": "input_text", "text": text}
        case Foreign(block):
            return block
        case Media(mime) if mime.startswith("image/"):
            return {"type": "input_image", "image_url": part.address, "detail": "auto"}
        case Media(mime, None, url) if not mime.startswith("audio/"):
            return {"type": "input_file", "file_url": url}
        case Media(mime) if not mime.startswith("audio/"):
            file = {"filename": part.name or "document", "file_data": part.address}
            return {"type": "input_file", **file}
        case _:
            raise cannot_write(part, "openai-responses")


# Anthropic's Messages; their API has the system prompt beside them.


def _read_anthropic(messages: Sequence[Json]) -> Iterator[Message]:
    for message in messages:
        role = _role_of(message, {"user": "user", "assistant": "assistant", "system": "system"})
        blocks = blocks_of(message.get("content"))
        if role == "assistant":
            blocks = [block for block in blocks if block.get("type") in {"text", "tool_use"}]
        parts = tuple(part for part in map(_anthropic_part, blocks) if part != Text(""))
        results = tuple(part for part in parts if isinstance(part, Result))
        yield Message("tool", results)
        yield Message(role, tuple(part for part in parts if part not in results))


def _anthropic_part(block: Json) -> Part:  # noqa: PLR0911 # one per kind of block
    match block:
        case {"type": "text", "text": text}:
            return Text(text if text.strip() else "")
        case {"type": "tool_use"}:
            return Call(block["id"], block["name"], block["input"])
        case {"type": "tool_result"}:
            parts = tuple(map(_anthropic_part, blocks_of(block.get("content"))))
            return Result(block["tool_use_id"], parts, block.get("is_error") is True)
        case {"type": "document", "source": {"type": "text", "data": data}}:
            return Text(data)
        case {"source": {"type": "base64", "media_type": mime, "data": data}}:
            return Media(mime, data, None, block.get("title"))
        case {"type": kind, "source": {"type": "url", "url": url}}:
            mime = "image/jpeg" if kind == "image" else "application/pdf"
            return _media(url, mime, block.get("title"))
        case _:
            return Foreign(block)


def _write_anthropic(messages: Sequence[Message]) -> list[Json]:
    return _taking_turns(messages, "assistant", lambda part: [_written_block(part)], "content")


def _written_block(part: Part) -> Json:
    match part:
        case Text(text):
            return {"type": "text", "text": text}
        case Foreign(block):
            return block
        case Call(call_id, name):
            return {"type": "tool_use", "id": call_id, "name": name, "input": part.fields}
        case Result(call_id, parts, is_error):
            result: Json = {"type": "tool_result", "tool_use_id": call_id}
            if parts:
                result["content"] = [_written_block(one) for one in parts]
            return {**result, "is_error": True} if is_error else result
        case Media(mime, data, url) if not mime.startswith("audio/"):
            source = {"type": "base64", "media_type": mime, "data": data}
            source = source if data else {"type": "url", "url": url}
            return {"type": "image" if mime.startswith("image/") else "document", "source": source}
        case _:
            raise cannot_write(part, "anthropic")


# Google's contents; their API has the system instruction beside them.

# Gemini 3 refuses a call of the turn at hand without the signature that it would have written;
# these words of Google's documentation stand for one where another model made the call.
_UNSIGNED: Final = b64encode(b"skip_thought_signature_validator").decode()


def _camel(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(map(str.title, others))


def _read_google(messages: Sequence[Json]) -> Iterator[Message]:
    open_calls: list[tuple[str, str]] = []  # names with ids; calls without one get one
    count = 0
    for message in messages:
        role = _role_of({"role": "user", **message}, {"user": "user", "model": "assistant"})
        parts: list[Part] = []
        if "content" in message:  # another format's
            raise KeyError("parts")
        for one in message.get("parts") or ():
            part = {_camel(name): value for name, value in one.items()}
            match part:
                case {"functionCall": {"name": name} as call}:
                    count += 1
                    open_calls.append((name, call.get("id") or f"call_{count}"))
                    parts.append(Call(open_calls[-1][1], name, call.get("args") or {}))
                case {"functionResponse": response}:
                    parts.append(_google_result(response, open_calls))
                case {"text": str(text)} if role == "user" or not part.get("thought"):
                    parts += [Text(text)] if text.strip() else []
                case {"inlineData": media} | {"fileData": media} if role == "user":
                    fields = {_camel(name): value for name, value in media.items()}
                    mime = fields.get("mimeType") or "application/octet-stream"
                    parts.append(Media(mime, fields.get("data"), fields.get("fileUri")))
                case _:
                    parts += [Foreign(one)] if role == "user" else []
        results = tuple(part for part in parts if isinstance(part, Result))
        yield Message("tool", results)
        yield Message(role, tuple(part for part in parts if part not in results))


def _google_result(response: Json, open_calls: list[tuple[str, str]]) -> Result:
    """Read a result; without an id it answers the first open call of its name."""
    name, fields = response["name"], response.get("response") or {}
    call_id = response.get("id") or next((one for named, one in open_calls if named == name), name)
    if (name, call_id) in open_calls:
        open_calls.remove((name, call_id))
    value = next(iter(fields.values())) if len(fields) == 1 else None
    text = value if isinstance(value, str) else json.dumps(fields)
    return Result(call_id, (Text(text),), is_error=fields.keys() == {"error"})


def _write_google(messages: Sequence[Message]) -> list[Json]:
    calls = (part for message in messages for part in message.parts if isinstance(part, Call))
    names = {call.id: call.name for call in calls}

    def write(part: Part) -> list[Json]:
        match part:
            case Text(text):
                return [{"text": text}]
            case Foreign(block):
                return [block]
            case Call(_, name):
                call = {"name": name, "args": part.fields}
                return [{"functionCall": call, "thoughtSignature": _UNSIGNED}]
            case Result(call_id, parts, is_error):
                response = {"error" if is_error else "result": _text(parts, "\n")}
                attached = (
                    one for inner in parts if not isinstance(inner, Text) for one in write(inner)
                )
                name = names.get(call_id, call_id)
                return [{"functionResponse": {"name": name, "response": response}}, *attached]
            case Media(mime, str(data)):
                return [{"inlineData": {"mimeType": mime, "data": data}}]
            case Media(mime, _, url):
                return [{"fileData": {"mimeType": mime, "fileUri": url}}]

    return _taking_turns(messages, "model", write, "parts")


FORMATS: Final[Mapping[str, Format]] = {
    "anthropic": Format(_read_anthropic, _write_anthropic),
    "google": Format(_read_google, _write_google),
    "openai": Format(_read_chat, _write_chat),
    "openai-responses": Format(_read_responses, _write_responses),
}
