"""Four formats of a history, each read into the same messages and written from them.

What all providers share is text, what users attach, tool calls and their results; a reader keeps
just that, and whatever else stands in an answer (signed thinking, encrypted reasoning, calls of
hosted tools, ids of what a server keeps) is for the provider that wrote it. What a *user* sent is
another matter: a part that a format cannot express is an error, not a loss.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from mimetypes import guess_type
from typing import Any, Final, Literal, NamedTuple, Protocol, TypeAlias

from honcho_fallback import FallbackConfigError

Json: TypeAlias = dict[str, Any]


class Text(NamedTuple):
    """A text."""

    text: str


class Media(NamedTuple):
    """An image, a sound or a document.

    Args:
        mime: Its type, such as ``image/png``.
        data: Its bytes in base64, or None where it has an address.
        url: Its address, or None.
        name: Its file's name, or None.
    """

    mime: str
    data: str | None
    url: str | None = None
    name: str | None = None

    @property
    def address(self) -> str:
        """Return its address; bytes are one, too."""
        return self.url or f"data:{self.mime};base64,{self.data}"


class Foreign(NamedTuple):
    """A part that stands for itself: it can be written in the format that it came in alone."""

    block: Json


class Call(NamedTuple):
    """A call of a client's tool; of a custom one, ``arguments`` is its text."""

    id: str
    name: str
    arguments: Mapping[str, Any] | str


class Result(NamedTuple):
    """What a client's tool returned."""

    call_id: str
    parts: tuple[Part, ...]
    is_error: bool = False


Part: TypeAlias = "Text | Media | Foreign | Call | Result"
Role: TypeAlias = Literal["system", "user", "assistant", "tool"]


class Message(NamedTuple):
    """What one side said; results of tools stand in messages of their own."""

    role: Role
    parts: tuple[Part, ...]


class Format(Protocol):
    """Read and write one format."""

    family: str

    def read(self, messages: Sequence[Json]) -> Iterator[Message]:
        """Yield what is shared of each message."""

    def write(self, messages: Sequence[Message]) -> list[Json]:
        """Return messages as the format has them."""


def unknown(place: str, what: object, fix: str = "leave it out of the history") -> Exception:
    """Return the error for a part of which nothing is known."""
    return FallbackConfigError.about(place, f"{what} is not known in this format", fix)


def cannot_say(part: Foreign | Media, family: str) -> Exception:
    """Return the error for what a user sent and a format has no words for."""
    what = part.mime if isinstance(part, Media) else f"a part {part.block.get('type')!r}"
    problem = f"{what} cannot be written for {family}"
    return FallbackConfigError.about("messages", problem, 'pass unfit={position: "why"} for it')


def text_of(parts: Iterable[Part], between: str = "") -> str:
    """Join the texts; an answer's are pieces of one, a result's stand by themselves."""
    return between.join(part.text for part in parts if isinstance(part, Text))


def _blocks(content: Any) -> list[Json]:
    """Return content as blocks; a text is one."""
    if content is None:
        return []
    if isinstance(content, str):
        return [{"type": "text", "text": content}] if content.strip() else []
    return [{"type": "text", "text": one} if isinstance(one, str) else one for one in content]


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


def _as_text(arguments: Mapping[str, Any] | str) -> str:
    return arguments if isinstance(arguments, str) else json.dumps(arguments)


def _as_object(arguments: Mapping[str, Any] | str) -> Json:
    return {"input": arguments} if isinstance(arguments, str) else {**arguments}


def _joined(messages: Iterable[Message], roles: Mapping[Role, str]) -> Iterator[tuple[str, list[Part]]]:
    """Give neighbours of one role one message, in the names that a format has for roles."""
    role, parts = "", list[Part]()
    for message in messages:
        if parts and roles[message.role] != role:
            yield role, parts
            parts = []
        role = roles[message.role]
        parts += message.parts
    if parts:
        yield role, parts


class OpenAIChat:
    """Chat Completions; what many servers speak."""

    family = "openai"
    roles: Final[Mapping[str, Role]] = {
        "assistant": "assistant",
        "developer": "system",
        "system": "system",
        "tool": "tool",
        "user": "user",
    }

    def read(self, messages: Sequence[Json]) -> Iterator[Message]:
        """Yield what is shared of each message."""
        for at, message in enumerate(messages):
            role = self.roles.get(str(message.get("role")))
            if role is None:
                raise unknown(f"messages[{at}].role", repr(message.get("role")))
            content = _blocks(message.get("content"))
            if role == "tool":
                parts = tuple(self._part(block, at) for block in content)
                yield Message("tool", (Result(str(message["tool_call_id"]), parts),))
            elif role == "assistant":
                texts = (block.get("text") or block.get("refusal") for block in content)
                spoken = [Text(text) for text in (*texts, message.get("refusal")) if text]
                yield Message(role, (*spoken, *map(self._call, message.get("tool_calls") or ())))
            else:
                yield Message(role, tuple(self._part(block, at) for block in content))

    @staticmethod
    def _call(call: Json) -> Call:
        if "custom" in call:
            return Call(call["id"], call["custom"]["name"], call["custom"]["input"])
        function = call["function"]
        return Call(call["id"], function["name"], _arguments(function["arguments"]))

    @staticmethod
    def _part(block: Json, at: int) -> Part:
        match block:
            case {"type": "text", "text": text}:
                return Text(text)
            case {"type": "image_url", "image_url": {"url": url}} | {
                "type": "image_url",
                "image_url": str(url),
            }:
                return _media(url, "image/jpeg")
            case {"type": "file", "file": {"file_data": data, **file}}:
                return _media(data, "application/pdf", file.get("filename"))
            case {"type": "input_audio", "input_audio": {"data": data, "format": kind}}:
                return Media(f"audio/{kind}", data)
            case {"type": str()}:
                return Foreign(block)
        raise unknown(f"messages[{at}].content", "a part without a type")

    def write(self, messages: Sequence[Message]) -> list[Json]:
        """Return messages as the format has them."""
        written: list[Json] = []
        for message in messages:
            match message.role:
                case "tool":
                    written += self._results(message)
                case "assistant":
                    written.append(self._answer(message))
                case role:
                    content: Any = [self._written(part) for part in message.parts]
                    if len(content) == 1 and isinstance(message.parts[0], Text):
                        content = message.parts[0].text
                    written.append({"role": role, "content": content})
        return written

    def _results(self, message: Message) -> Iterator[Json]:
        """Write results as text, and what else they have as the user's: the format has no other."""
        attached: list[Part] = []
        for result in message.parts:
            assert isinstance(result, Result)  # noqa: S101 # what messages of tools hold
            attached += (part for part in result.parts if not isinstance(part, Text))
            content = text_of(result.parts, "\n")
            yield {"role": "tool", "tool_call_id": result.call_id, "content": content}
        if attached:
            yield {"role": "user", "content": [self._written(part) for part in attached]}

    @staticmethod
    def _answer(message: Message) -> Json:
        answer: Json = {"role": "assistant", "content": text_of(message.parts) or None}
        calls = [part for part in message.parts if isinstance(part, Call)]
        if calls:
            answer["tool_calls"] = [
                {"id": call.id, "type": "custom", "custom": {"name": call.name, "input": text}}
                if isinstance(text := call.arguments, str)
                else {
                    "id": call.id,
                    "type": "function",
                    "function": {"name": call.name, "arguments": _as_text(call.arguments)},
                }
                for call in calls
            ]
        return answer

    def _written(self, part: Part) -> Json:
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
                file = {"file_data": part.address, "filename": part.name or "document"}
                return {"type": "file", "file": file}
            case Media():
                raise cannot_say(part, self.family)
        raise AssertionError(part)


class OpenAIResponses:
    """Responses: items in place of messages."""

    family = "openai"

    def read(self, messages: Sequence[Json]) -> Iterator[Message]:
        """Yield what is shared of each item; one answer's items are one message."""
        answer: tuple[Part, ...] = ()
        for message in self._items(messages):
            if message.role == "assistant":
                answer += message.parts
                continue
            if answer:
                yield Message("assistant", answer)
            answer = ()
            yield message
        if answer:
            yield Message("assistant", answer)

    def _items(self, items: Sequence[Json]) -> Iterator[Message]:
        for at, item in enumerate(items):
            match item:
                case {"type": "function_call"}:
                    arguments = _arguments(item["arguments"])
                    yield Message("assistant", (Call(item["call_id"], item["name"], arguments),))
                case {"type": "custom_tool_call"}:
                    call = Call(item["call_id"], item["name"], item["input"])
                    yield Message("assistant", (call,))
                case {"type": "function_call_output" | "custom_tool_call_output"}:
                    parts = tuple(self._part(block, at) for block in _blocks(item["output"]))
                    yield Message("tool", (Result(item["call_id"], parts),))
                case {"role": "assistant"}:
                    blocks = _blocks(item.get("content"))
                    texts = (block.get("text") or block.get("refusal") for block in blocks)
                    yield Message("assistant", tuple(Text(text) for text in texts if text))
                case {"role": role} if role in OpenAIChat.roles:
                    blocks = _blocks(item.get("content"))
                    parts = tuple(self._part(block, at) for block in blocks)
                    yield Message(OpenAIChat.roles[role], parts)
                case {"type": str()}:
                    continue  # reasoning, and what hosted tools did
                case _:
                    raise unknown(f"messages[{at}]", "an item without a type and a role")

    @staticmethod
    def _part(block: Json, at: int) -> Part:
        match block:
            case {"type": "text" | "input_text" | "output_text", "text": text}:
                return Text(text)
            case {"type": "input_image", "image_url": str(url)}:
                return _media(url, "image/jpeg")
            case {"type": "input_file", "file_data": str(data)}:
                return _media(data, "application/pdf", block.get("filename"))
            case {"type": "input_file", "file_url": str(url)}:
                return _media(url, "application/pdf", block.get("filename"))
            case {"type": str()}:
                return Foreign(block)
        raise unknown(f"messages[{at}].content", "a part without a type")

    def write(self, messages: Sequence[Message]) -> list[Json]:
        """Return items as the format has them."""
        return [item for message in messages for item in self._written_items(message)]

    def _written_items(self, message: Message) -> Iterator[Json]:
        content: list[Json] = []
        for part in message.parts:
            match part:
                case Result(call_id, parts):
                    plain = all(isinstance(one, Text) for one in parts)
                    output = text_of(parts, "\n") if plain else [self._written(one) for one in parts]
                    kind = "function_call_output"
                    yield {"type": kind, "call_id": call_id, "output": output}
                case Call(call_id, name, str(text)):
                    call = {"call_id": call_id, "name": name, "input": text}
                    yield {"type": "custom_tool_call", **call}
                case Call(call_id, name, arguments):
                    call = {"call_id": call_id, "name": name, "arguments": _as_text(arguments)}
                    yield {"type": "function_call", **call}
                case _ if message.role == "assistant":
                    yield {"role": "assistant", "content": text_of([part])}
                case _:
                    content.append(self._written(part))
        if content:
            yield {"role": message.role, "content": content}

    def _written(self, part: Part) -> Json:
        match part:
            case Text(text):
                return {"type": "input_text", "text": text}
            case Foreign(block):
                return block
            case Media(mime) if mime.startswith("image/"):
                return {"type": "input_image", "image_url": part.address, "detail": "auto"}
            case Media(mime, data, url) if not mime.startswith("audio/"):
                file = {"filename": part.name or "document", "file_data": part.address}
                return {"type": "input_file", **(file if data else {"file_url": url})}
            case Media():
                raise cannot_say(part, self.family)
        raise AssertionError(part)


class Anthropic:
    """Messages; their API has the system prompt beside them."""

    family = "anthropic"
    roles: Final[Mapping[Role, str]] = {
        "assistant": "assistant",
        "system": "user",
        "tool": "user",
        "user": "user",
    }

    def read(self, messages: Sequence[Json]) -> Iterator[Message]:
        """Yield what is shared of each message; results before what a user says beside them."""
        for at, message in enumerate(messages):
            role, blocks = message.get("role"), _blocks(message.get("content"))
            if role == "assistant":
                parts = (self._spoken(block) for block in blocks)
                yield Message("assistant", tuple(part for part in parts if part is not None))
                continue
            if role not in {"user", "system"}:
                raise unknown(f"messages[{at}].role", repr(role))
            results = [block for block in blocks if block.get("type") == "tool_result"]
            if results:
                yield Message("tool", tuple(self._result(block, at) for block in results))
            rest = [self._part(block, at) for block in blocks if block not in results]
            if rest:
                yield Message(role, tuple(rest))

    @staticmethod
    def _spoken(block: Json) -> Part | None:
        match block:
            case {"type": "text", "text": str(text)} if text.strip():
                return Text(text)
            case {"type": "tool_use"}:
                return Call(block["id"], block["name"], block["input"])
        return None

    def _result(self, block: Json, at: int) -> Result:
        parts = tuple(self._part(one, at) for one in _blocks(block.get("content")))
        return Result(block["tool_use_id"], parts, block.get("is_error") is True)

    @staticmethod
    def _part(block: Json, at: int) -> Part:
        name = block.get("title")
        match block:
            case {"type": "text", "text": text}:
                return Text(text)
            case {"type": "document", "source": {"type": "text", "data": data}}:
                return Text(data)
            case {"type": "image" | "document", "source": {"type": "base64", **source}}:
                return Media(source["media_type"], source["data"], None, name)
            case {"type": "image" | "document" as kind, "source": {"type": "url", "url": url}}:
                return _media(url, "image/jpeg" if kind == "image" else "application/pdf", name)
            case {"type": str()}:
                return Foreign(block)
        raise unknown(f"messages[{at}].content", "a block without a type")

    def write(self, messages: Sequence[Message]) -> list[Json]:
        """Return messages as the format has them: roles that take turns."""
        return [
            {"role": role, "content": [self._written(part) for part in parts]}
            for role, parts in _joined(messages, self.roles)
        ]

    def _written(self, part: Part) -> Json:
        match part:
            case Text(text):
                return {"type": "text", "text": text}
            case Foreign(block):
                return block
            case Call(call_id, name, arguments):
                call = {"id": call_id, "name": name, "input": _as_object(arguments)}
                return {"type": "tool_use", **call}
            case Result(call_id, parts, is_error):
                result: Json = {"type": "tool_result", "tool_use_id": call_id}
                if parts:
                    result["content"] = [self._written(one) for one in parts]
                return {**result, "is_error": True} if is_error else result
            case Media(mime, data, url, name) if not mime.startswith("audio/"):
                source = {"type": "base64", "media_type": mime, "data": data}
                source = source if data else {"type": "url", "url": url}
                kind = "image" if mime.startswith("image/") else "document"
                titled = {"title": name} if name and kind == "document" else {}
                return {"type": kind, "source": source, **titled}
            case Media():
                raise cannot_say(part, self.family)
        raise AssertionError(part)


class Google:
    """Contents of generateContent; their API has the system instruction beside them."""

    family = "google"
    roles: Final[Mapping[Role, str]] = {
        "assistant": "model",
        "system": "user",
        "tool": "user",
        "user": "user",
    }
    # Gemini 3 refuses a call of the turn at hand without the signature that it would have written;
    # these words of Google's documentation stand for one where another model made the call.
    unsigned: Final = "skip_thought_signature_validator"

    def read(self, messages: Sequence[Json]) -> Iterator[Message]:
        """Yield what is shared of each content; calls without an id get one."""
        open_calls: list[tuple[str, str]] = []  # names with ids
        count = 0
        for at, content in enumerate(messages):
            role = content.get("role", "user")
            if role not in {"user", "model", "function"}:
                raise unknown(f"messages[{at}].role", repr(role))
            spoken: list[Part] = []
            results: list[Part] = []
            for part in content.get("parts") or ():
                part = _camel(part)  # noqa: PLW2901 # the same part
                match part:
                    case {"functionCall": call}:
                        count += 1
                        call_id = call.get("id") or f"call_{count}"
                        open_calls.append((call["name"], call_id))
                        spoken.append(Call(call_id, call["name"], call.get("args") or {}))
                    case {"functionResponse": response}:
                        results.append(_google_result(response, open_calls))
                    case _ if role == "model":
                        if part.get("text", "").strip() and not part.get("thought"):
                            spoken.append(Text(part["text"]))
                    case _:
                        spoken.append(self._part(part))
            if results:
                yield Message("tool", tuple(results))
            if spoken:
                yield Message("assistant" if role == "model" else "user", tuple(spoken))

    @staticmethod
    def _part(part: Json) -> Part:
        match part:
            case {"text": text}:
                return Text(text)
            case {"inlineData": {"mimeType": mime, "data": str(data)}}:
                return Media(mime, data)
            case {"fileData": {"fileUri": uri, **file}}:
                return Media(file.get("mimeType") or "application/octet-stream", None, uri)
        return Foreign(part)

    def write(self, messages: Sequence[Message]) -> list[Json]:
        """Return contents as the format has them."""
        calls = (part for message in messages for part in message.parts if isinstance(part, Call))
        names = {call.id: call.name for call in calls}
        return [
            {"role": role, "parts": [one for part in parts for one in self._written(part, names)]}
            for role, parts in _joined(messages, self.roles)
        ]

    def _written(self, part: Part, names: Mapping[str, str]) -> Iterator[Json]:
        match part:
            case Text(text):
                yield {"text": text}
            case Foreign(block):
                yield block
            case Call(_, name, arguments):
                call = {"name": name, "args": _as_object(arguments)}
                yield {"functionCall": call, "thoughtSignature": self.unsigned}
            case Result(call_id, parts, is_error):
                response = {"error" if is_error else "result": text_of(parts, "\n")}
                name = names.get(call_id, call_id)
                yield {"functionResponse": {"name": name, "response": response}}
                for one in parts:  # what is no text stands beside the response
                    if not isinstance(one, Text):
                        yield from self._written(one, names)
            case Media(mime, data, url):
                yield (
                    {"inlineData": {"mimeType": mime, "data": data}}
                    if data
                    else {"fileData": {"mimeType": mime, "fileUri": url}}
                )


def _camel(part: Json) -> Json:
    """Return a part in the names of the wire; the SDK's are written with underscores."""
    names = {"functionCall", "functionResponse", "inlineData", "fileData", "mimeType", "fileUri"}
    spelled = {"".join(f"_{sign.lower()}" if sign.isupper() else sign for sign in n): n for n in names}
    return {
        spelled.get(name, name): _camel(value) if name in {"inline_data", "file_data"} else value
        for name, value in part.items()
        if value is not None
    }


def _google_result(response: Json, open_calls: list[tuple[str, str]]) -> Result:
    """Read a result; without an id it answers the first open call of its name."""
    name, fields = response["name"], response.get("response") or {}
    call_id = response.get("id") or next((one for named, one in open_calls if named == name), name)
    if (name, call_id) in open_calls:
        open_calls.remove((name, call_id))
    match fields:
        case {"error": error} if len(fields) == 1:
            return Result(call_id, (Text(error if isinstance(error, str) else json.dumps(error)),), True)
        case {"result": str(text)} | {"output": str(text)} if len(fields) == 1:
            return Result(call_id, (Text(text),))
    return Result(call_id, (Text(json.dumps(fields)),))


FORMATS: Final[Mapping[str, Format]] = {
    "anthropic": Anthropic(),
    "google": Google(),
    "openai": OpenAIChat(),
    "openai-responses": OpenAIResponses(),
}
