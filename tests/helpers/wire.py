"""Bodies and events in the form in which providers write them.

An answer is built as a whole; ``*_events`` turn it into what the provider streams for it, one
event for each word. Tokens are the same in every form, so that one figure is looked for.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

Json = dict[str, Any]

MESSAGE = "in our own words"  # what errors say; no provider's text is copied

CHAT_USAGE: Json = {
    "prompt_tokens": 12,
    "completion_tokens": 7,
    "total_tokens": 19,
    "prompt_tokens_details": {"cached_tokens": 4, "audio_tokens": 0},
    "completion_tokens_details": {"reasoning_tokens": 2},
}
RESPONSES_USAGE: Json = {
    "input_tokens": 12,
    "output_tokens": 7,
    "total_tokens": 19,
    "input_tokens_details": {"cached_tokens": 4, "cache_write_tokens": 0},
    "output_tokens_details": {"reasoning_tokens": 2},
}
MESSAGE_USAGE: Json = {
    "input_tokens": 8,
    "cache_read_input_tokens": 4,
    "cache_creation_input_tokens": 3,
    "output_tokens": 7,
}
GEMINI_WIRE_USAGE: Json = {
    "promptTokenCount": 12,
    "cachedContentTokenCount": 4,
    "candidatesTokenCount": 5,
    "thoughtsTokenCount": 2,
    "totalTokenCount": 19,
}

# What this package's records say of them: OpenAI's and Gemini's, and Anthropic's.
COUNTS: Json = {
    "input_tokens": 12,
    "output_tokens": 7,
    "total_tokens": 19,
    "cache_read_tokens": 4,
    "reasoning_tokens": 2,
}
MESSAGE_COUNTS: Json = {
    "input_tokens": 15,
    "output_tokens": 7,
    "total_tokens": 22,
    "cache_read_tokens": 4,
    "cache_write_tokens": 3,
}


def event(data: Json, name: str | None = None) -> str:
    """Write one server-sent event, without the empty line that ends it."""
    return (f"event: {name}\n" if name else "") + f"data: {json.dumps(data)}"


def named_event(kind: str, **fields: Any) -> str:
    """Write an event that carries its name in its data as well, as Anthropic and Responses do."""
    return event({"type": kind, **fields}, kind)


def words_of(text: str) -> list[str]:
    return re.findall(r"\S+\s*|\s+", text)


# OpenAI's Chat Completions.


def chat_call(call_id: str, name: str, arguments: Mapping[str, Any]) -> Json:
    function = {"name": name, "arguments": json.dumps(arguments)}
    return {"id": call_id, "type": "function", "function": function}


def chat_answer(
    text: str | None = None,
    *calls: Json,
    model: str = "gpt-5.5",
    usage: Json | None = CHAT_USAGE,
    finish: str | None = None,
    **fields: Any,
) -> Json:
    """Build a completion that says a text and calls tools.

    Args:
        text: What the assistant says, or None.
        *calls: From ``chat_call``.
        model: The model's name.
        usage: The tokens, or None for no report.
        finish: The finish reason; by default it follows from the calls.
        **fields: Further fields of the message.
    """
    message: Json = {"role": "assistant", "content": text, **fields}
    if calls:
        message["tool_calls"] = list(calls)
    choice = {
        "index": 0,
        "finish_reason": finish or ("tool_calls" if calls else "stop"),
        "message": message,
    }
    document: Json = {"id": "chatcmpl-1", "object": "chat.completion", "created": 1}
    return {**document, "model": model, "choices": [choice], "usage": usage}


def chat_chunk(delta: Json | None, finish: str | None = None, **fields: Any) -> Json:
    """Build one chunk of a streamed completion; without a delta it has no choice."""
    document: Json = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1}
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    choices = [] if delta is None else [choice]
    return {**document, "model": "gpt-5.5", "choices": choices, **fields}


def part(finish: Any = None, **delta: Any) -> Json:
    """Build the chunk of a streamed completion that carries these parts of its message."""
    return chat_chunk(delta, finish, model="m")


def chat_word(text: str) -> str:
    """Write an event that adds a word; with an empty text it is the one that comes first."""
    return event(chat_chunk({"role": "assistant", "content": text}))


def chat_events(
    answer: Json, request: Json | None = None, error: Json | None = None, *, usage: bool = False
) -> list[str]:
    """Write the events of a completion: an empty chunk with the role comes first.

    Args:
        answer: From ``chat_answer``.
        request: The last chunk reports the tokens where its ``include_usage`` asks for them.
        error: What comes in place of the end, or None.
        usage: Whether they are reported in any case.
    """
    (choice,) = answer["choices"]
    message, model = choice["message"], answer["model"]
    deltas: list[Json] = [{"role": "assistant", "content": ""}]
    deltas += [{"content": word} for word in words_of(message["content"] or "")]
    if "tool_calls" in message:
        calls = [{**call, "index": index} for index, call in enumerate(message["tool_calls"])]
        deltas.append({"tool_calls": calls})
    events = [event(chat_chunk(delta, model=model)) for delta in deltas]
    if error is not None:
        return [*events, event(error)]
    events.append(event(chat_chunk({}, choice["finish_reason"], model=model)))
    options = (request or {}).get("stream_options") or {}
    if (usage or options.get("include_usage")) and answer["usage"]:
        events.append(event(chat_chunk(None, model=model, usage=answer["usage"])))
    return [*events, "data: [DONE]"]


def openai_error(
    message: str = MESSAGE, kind: str | None = "server_error", code: str | None = None
) -> Json:
    return {"error": {"message": message, "type": kind, "param": None, "code": code}}


# OpenAI's Responses.


def response_text(text: str, item: str = "msg_1", **part: Any) -> Json:
    content = {"type": "output_text", "text": text, "annotations": [], **part}
    fields = {"id": item, "role": "assistant", "status": "completed", "content": [content]}
    return {"type": "message", **fields}


def response_call(
    item: str, call_id: str, name: str, arguments: Mapping[str, Any], **fields: Any
) -> Json:
    call = {"id": item, "call_id": call_id, "name": name, "arguments": json.dumps(arguments)}
    return {"type": "function_call", **call, **fields}


def responses_answer(
    *items: Json, model: str = "gpt-5.5", usage: Json | None = RESPONSES_USAGE
) -> Json:
    return {
        "id": "resp_1",
        "object": "response",
        "created_at": 1,
        "model": model,
        "status": "completed",
        "output": list(items),
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "error": None,
        "usage": usage,
    }


def responses_events(answer: Json, _: Json | None = None, error: Json | None = None) -> list[str]:
    """Write the events of a response, each text word by word; an error takes the end's place."""
    numbers = iter(range(10_000))

    def write(kind: str, **fields: Any) -> str:
        return named_event(kind, sequence_number=next(numbers), **fields)

    begun = {**answer, "status": "in_progress", "output": [], "usage": None}
    events = [write("response.created", response=begun)]
    for index, item in enumerate(answer["output"]):
        empty = {**item, "content": []} if item["type"] == "message" else item
        events.append(write("response.output_item.added", output_index=index, item=empty))
        for at, part in enumerate(item["content"] if item["type"] == "message" else ()):
            place = {"item_id": item["id"], "output_index": index, "content_index": at}
            whole = {**place, "text": part["text"], "logprobs": []}
            start = {**part, "text": ""}
            events.append(write("response.content_part.added", **place, part=start))
            events += [
                write("response.output_text.delta", **place, delta=word, logprobs=[])
                for word in words_of(part["text"])
            ]
            events.append(write("response.output_text.done", **whole))
        events.append(write("response.output_item.done", output_index=index, item=item))
    if error is not None:
        fields = error["error"]
        error_fields = {"code": fields["type"], "message": fields["message"], "param": None}
        return [*events, write("error", **error_fields)]
    return [*events, write("response.completed", response=answer)]


# OpenAI's embeddings.


EMBEDDING_USAGE: Json = {"prompt_tokens": 12, "total_tokens": 12}


def embedding_answer(vector: Json, *, model: str, usage: Json | None) -> Json:
    return {"object": "list", "data": [vector], "model": model, "usage": usage or EMBEDDING_USAGE}


# Anthropic's Messages.


def text_block(text: str) -> Json:
    return {"type": "text", "text": text}


def tool_use(call_id: str, name: str, arguments: Mapping[str, Any]) -> Json:
    return {"type": "tool_use", "id": call_id, "name": name, "input": dict(arguments)}


def message_answer(
    *blocks: Json,
    model: str = "claude-sonnet-5",
    usage: Json | None = MESSAGE_USAGE,
    stop: str | None = None,
) -> Json:
    """Build a message of these blocks.

    Args:
        *blocks: From ``text_block`` and ``tool_use``, or any other.
        model: The model's name.
        usage: The tokens, or None for a report of nothing.
        stop: The stop reason; by default it follows from the blocks.
    """
    calls = any(block["type"] == "tool_use" for block in blocks)
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": list(blocks),
        "stop_reason": stop or ("tool_use" if calls else "end_turn"),
        "stop_sequence": None,
        "usage": usage or {"input_tokens": 0, "output_tokens": 0},
    }


def block_start(block: Json, index: int = 0) -> Json:
    return {"type": "content_block_start", "index": index, "content_block": block}


def block_delta(delta: Json, index: int = 0) -> Json:
    return {"type": "content_block_delta", "index": index, "delta": delta}


def message_start(answer: Json) -> Json:
    """Build the event that opens a message: one token so far and no content."""
    usage = {**answer["usage"], "output_tokens": 1}
    begun = {**answer, "content": [], "stop_reason": None, "usage": usage}
    return {"type": "message_start", "message": begun}


def message_delta(answer: Json) -> Json:
    ended = {"stop_reason": answer["stop_reason"], "stop_sequence": None}
    return {"type": "message_delta", "delta": ended, "usage": answer["usage"]}


def message_events(answer: Json, _: Json | None = None, error: Json | None = None) -> list[str]:
    """Write the events of a message, each text word by word; an error takes the end's place."""
    events: list[Json] = [message_start(answer)]
    for index, block in enumerate(answer["content"]):
        empty, deltas = _streamed(block)
        events.append(block_start(empty, index))
        events += [block_delta(delta, index) for delta in deltas]
        events.append({"type": "content_block_stop", "index": index})
    if error is not None:
        events[-1:] = [error]  # in the middle of the last block
    else:
        events += [message_delta(answer), {"type": "message_stop"}]
    return [event(one, one["type"]) for one in events]


def _streamed(block: Json) -> tuple[Json, list[Json]]:
    if block["type"] == "text":
        deltas = [{"type": "text_delta", "text": word} for word in words_of(block["text"])]
        return {**block, "text": ""}, deltas
    if block["type"] == "tool_use":
        written = json.dumps(block["input"])
        return {**block, "input": {}}, [{"type": "input_json_delta", "partial_json": written}]
    if block["type"] == "thinking":
        words = words_of(block["thinking"])
        deltas = [{"type": "thinking_delta", "thinking": word} for word in words]
        signed = {"type": "signature_delta", "signature": block["signature"]}
        return {**block, "thinking": "", "signature": ""}, [*deltas, signed]
    return block, []


def anthropic_error(message: str = MESSAGE, kind: str | None = "api_error") -> Json:
    return {"type": "error", "error": {"type": kind, "message": message}}


# Gemini's generateContent.


def function_call(name: str, arguments: Mapping[str, Any]) -> Json:
    return {"functionCall": {"name": name, "args": dict(arguments)}}


def gemini_answer(
    *parts: Json,
    model: str = "gemini-2.5-flash",
    usage: Json | None = GEMINI_WIRE_USAGE,
    finish: str | None = "STOP",
) -> Json:
    content = {"role": "model", "parts": list(parts)}
    candidate = {"index": 0, "content": content, "finishReason": finish}
    document: Json = {"candidates": [candidate], "modelVersion": model, "responseId": "r1"}
    return document if usage is None else {**document, "usageMetadata": usage}


def gemini_events(answer: Json, _: Json | None = None, error: Json | None = None) -> list[str]:
    """Write the events of an answer, each text word by word; an error takes the end's place."""
    (candidate,) = answer["candidates"]
    pieces = [
        {**part, "text": word}
        for part in candidate["content"]["parts"]
        for word in (words_of(part["text"]) if "text" in part else [None])
    ]
    pieces = [
        {name: value for name, value in part.items() if value is not None} for part in pieces
    ]
    events: list[Json] = [
        {"candidates": [{"index": 0, "content": {"role": "model", "parts": [part]}}]}
        for part in pieces
    ]
    if error is not None:
        return [event(one) for one in [*events, error]]
    events[-1] = {**answer, "candidates": [{**candidate, **events[-1]["candidates"][0]}]}
    return [event(one) for one in events]


def gemini_error(message: str = MESSAGE, kind: str | None = "INTERNAL") -> Json:
    codes = {status: code for code, status in _GEMINI_ERRORS.items()}
    return {"error": {"code": codes.get(kind or "", 500), "message": message, "status": kind}}


# What a server needs of each, to answer whoever asks at its path.


@dataclass(frozen=True, slots=True)
class Form:
    """Write in the form of one endpoint.

    Args:
        says: Builds the part of an answer that says a text.
        build: Builds an answer of it.
        usage: The tokens that it reports.
        events: Writes an answer's events; the request says whether usage is wanted, and an error
            comes in place of the end.
        error: Builds an error of a message and a type.
        errors: The type that the provider writes under a status.
    """

    says: Callable[[str], Any]
    build: Callable[..., Json]
    usage: Json
    events: Callable[[Json, Json, Json | None], list[str]]
    error: Callable[[str, str | None], Json]
    errors: Mapping[int, str]

    def answer(self, text: str, model: str, usage: bool) -> Json:
        return self.build(self.says(text), model=model, usage=self.usage if usage else None)


_OPENAI_ERRORS = {
    400: "invalid_request_error",
    401: "invalid_request_error",
    429: "requests",
    500: "server_error",
}
_ANTHROPIC_ERRORS = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    500: "api_error",
    529: "overloaded_error",
}
_GEMINI_ERRORS = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    429: "RESOURCE_EXHAUSTED",
    500: "INTERNAL",
    503: "UNAVAILABLE",
}


CHAT = Form(str, chat_answer, CHAT_USAGE, chat_events, openai_error, _OPENAI_ERRORS)
RESPONSES = Form(
    response_text,
    responses_answer,
    RESPONSES_USAGE,
    responses_events,
    openai_error,
    _OPENAI_ERRORS,
)
EMBEDDINGS = Form(
    lambda _: {"object": "embedding", "index": 0, "embedding": [0.5, 0.5]},
    embedding_answer,
    EMBEDDING_USAGE,
    lambda answer, _request, _error: [event(answer)],
    openai_error,
    _OPENAI_ERRORS,
)
MESSAGES = Form(
    text_block, message_answer, MESSAGE_USAGE, message_events, anthropic_error, _ANTHROPIC_ERRORS
)
GEMINI = Form(
    lambda text: {"text": text},
    gemini_answer,
    GEMINI_WIRE_USAGE,
    gemini_events,
    gemini_error,
    _GEMINI_ERRORS,
)

_BY_ENDING = {"embeddings": EMBEDDINGS, "messages": MESSAGES, "responses": RESPONSES}


def form_of(path: str) -> Form:
    """Return the form of the endpoint at a path; Chat Completions where none is known."""
    last = path.rpartition("/")[2]
    return GEMINI if ":" in last else _BY_ENDING.get(last, CHAT)
