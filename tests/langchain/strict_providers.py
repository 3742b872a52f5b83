"""Providers that refuse what the real ones refuse, on loopback.

A `StrictProvider` checks each request against its API's rules, says 400 with the reasons when one
is broken, and else gives the next of its answers. It remembers what it wrote (signatures, item
ids, encrypted data), because only that may come back to it.
"""

from __future__ import annotations

import json
import re
from itertools import pairwise
from typing import TYPE_CHECKING, Any, ClassVar

from werkzeug import Request, Response

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pytest_httpserver import HTTPServer

Json = dict[str, Any]

NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
ANTHROPIC_ID = re.compile(r"[a-zA-Z0-9_-]+")


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


class StrictProvider:
    """One provider's endpoint: its rules, its answers, its memory."""

    path: ClassVar[str]
    """Where requests go, below the base URL."""

    knows: ClassVar[frozenset[str]]
    """The request's top-level fields."""

    remembered: ClassVar[frozenset[str]]
    """The fields of what it wrote that only it can have written."""

    def __init__(self, server: HTTPServer, place: str, *answers: Json) -> None:
        self.url = server.url_for(place)
        self.answers = list(answers)
        self.requests: list[Json] = []
        self.refused: list[str] = []
        self.wrote: set[str] = set()
        handler = server.expect_request(f"{place}{self.path}", method="POST")
        handler.respond_with_handler(self._answer)

    def _answer(self, request: Request) -> Response:
        body: Json = request.get_json()
        self.requests.append(body)
        reasons = [f"{name}: unknown parameter" for name in body.keys() - self.knows]
        reasons += self.faults(body)
        if reasons:
            self.refused += reasons
            return _json({"error": self.error("; ".join(reasons))}, 400)
        answer = self.answers.pop(0)
        self.remember(answer)
        if body.get("stream"):
            return Response(self.events(answer), mimetype="text/event-stream")
        return _json(answer, 200)

    def remember(self, written: Any) -> None:
        """Note what of an answer may come back to this provider alone."""
        if isinstance(written, dict):
            for name, value in written.items():
                if name in self.remembered and isinstance(value, str):
                    self.wrote.add(value)
                self.remember(value)
        elif isinstance(written, list):
            for part in written:
                self.remember(part)

    def faults(self, body: Json) -> list[str]:
        """Name every rule that a request breaks."""
        raise NotImplementedError

    def error(self, message: str) -> Json:
        """Return the error as this provider words it."""
        return {"type": "invalid_request_error", "message": message, "code": None, "param": None}

    def events(self, answer: Json) -> Iterator[str]:
        """Stream an answer."""
        raise NotImplementedError


def _json(body: Json, status: int) -> Response:
    return Response(json.dumps(body), status, mimetype="application/json")


def _event(data: Json, name: str | None = None) -> str:
    return (f"event: {name}\n" if name else "") + f"data: {json.dumps(data)}\n\n"


def _unknown_fields(where: str, part: Json, known: Sequence[str]) -> list[str]:
    return [f"{where}.{name}: extra inputs are not permitted" for name in part.keys() - {*known}]


class StrictAnthropic(StrictProvider):
    """The Messages API."""

    path = "/v1/messages"
    knows = _words(
        "cache_control container context_management max_tokens mcp_servers messages metadata "
        "model output_config service_tier stop_sequences stream system temperature thinking "
        "tool_choice tools top_k top_p"
    )
    remembered = frozenset({"signature", "data", "id", "encrypted_content"})

    blocks: ClassVar[dict[str, dict[str, Sequence[str]]]] = {
        "user": {
            "document": ("source", "title", "context", "citations"),
            "image": ("source",),
            "text": ("text", "citations"),
            "tool_result": ("tool_use_id", "content", "is_error"),
        },
        "assistant": {
            "redacted_thinking": ("data",),
            "server_tool_use": ("id", "name", "input"),
            "text": ("text", "citations"),
            "thinking": ("thinking", "signature"),
            "tool_use": ("id", "name", "input"),
            "web_search_tool_result": ("tool_use_id", "content"),
        },
    }

    def faults(self, body: Json) -> list[str]:
        """Name every rule that a request breaks."""
        messages = body["messages"]
        roles = [message["role"] for message in messages]
        found = []
        if roles[:1] != ["user"]:
            found.append("messages: first message must use the user role")
        if any(one == two for one, two in pairwise(roles)):
            found.append("messages: roles must alternate")
        for at, message in enumerate(messages):
            found += self._message(f"messages.{at}", message)
        found += self._pairs(messages)
        system = body.get("system")
        for at, block in enumerate(system if isinstance(system, list) else []):
            found += self._block(f"system.{at}", block, {"text": ("text",)})
        for at, tool in enumerate(body.get("tools", [])):
            if not {"name", "input_schema"} <= tool.keys():
                found.append(f"tools.{at}: name and input_schema are required")
        return found

    def _message(self, where: str, message: Json) -> list[str]:
        content = message["content"]
        if not content:
            return [f"{where}: all messages must have non-empty content"]
        if isinstance(content, str):
            return [] if content.strip() else [f"{where}: text must be non-whitespace"]
        known = self.blocks.get(message["role"], {})
        return [
            fault
            for at, block in enumerate(content)
            for fault in self._block(f"{where}.content.{at}", block, known)
        ]

    def _block(self, where: str, block: Json, known: dict[str, Sequence[str]]) -> list[str]:
        kind = block.get("type")
        if kind not in known:
            return [f"{where}: unexpected block type {kind!r}"]
        found = _unknown_fields(where, block, ("type", "cache_control", *known[kind]))
        if kind == "text" and not str(block.get("text", "")).strip():
            found.append(f"{where}: text must be non-whitespace")
        for name in ("id", "tool_use_id"):
            if name in block and not ANTHROPIC_ID.fullmatch(block[name]):
                found.append(f"{where}.{name}: must match {ANTHROPIC_ID.pattern}")
        written = {
            "thinking": "signature",
            "redacted_thinking": "data",
            "server_tool_use": "id",
            "web_search_tool_result": "tool_use_id",
        }
        if kind in written and block.get(written[kind]) not in self.wrote:
            found.append(f"{where}: invalid `{written[kind]}` in `{kind}` block")
        return found

    @staticmethod
    def _pairs(messages: list[Json]) -> list[str]:
        found = []
        asked: list[str] = []
        for at, message in enumerate(messages):
            results = _values(message, "tool_result", "tool_use_id")
            if sorted(results) != sorted(asked):
                found.append(f"messages.{at}: tool_use {asked} but tool_result {results}")
            asked = _values(message, "tool_use", "id")
            if len(set(asked)) != len(asked):
                found.append(f"messages.{at}: tool_use ids must be unique")
        return [*found, *(f"tool_use {name} without a tool_result" for name in asked)]

    def error(self, message: str) -> Json:
        """Return the error as this provider words it."""
        return {"type": "invalid_request_error", "message": message}

    def events(self, answer: Json) -> Iterator[str]:
        """Stream an answer, each block in one piece."""
        start = {**answer, "content": [], "stop_reason": None}
        yield _event({"type": "message_start", "message": start}, "message_start")
        for index, block in enumerate(answer["content"]):
            empty, delta = _streamed(block)
            for name, part in (("start", {"content_block": empty}), ("delta", {"delta": delta})):
                if part.get("delta", True):
                    kind = f"content_block_{name}"
                    yield _event({"type": kind, "index": index, **part}, kind)
            stop = "content_block_stop"
            yield _event({"type": stop, "index": index}, stop)
        done = {"stop_reason": answer["stop_reason"], "stop_sequence": None}
        usage = {"output_tokens": 1}
        yield _event({"type": "message_delta", "delta": done, "usage": usage}, "message_delta")
        yield _event({"type": "message_stop"}, "message_stop")


def _values(message: Json, kind: str, field: str) -> list[str]:
    content = message["content"]
    if isinstance(content, str):
        return []
    return [block[field] for block in content if block.get("type") == kind]


def _streamed(block: Json) -> tuple[Json, Json | None]:
    if block["type"] == "text":
        return {**block, "text": ""}, {"type": "text_delta", "text": block["text"]}
    if block["type"] == "tool_use":
        text = json.dumps(block["input"])
        return {**block, "input": {}}, {"type": "input_json_delta", "partial_json": text}
    return block, None


def anthropic_answer(*blocks: Json) -> Json:
    """Return a message with these blocks."""
    asks = any(block["type"] == "tool_use" for block in blocks)
    return {
        "id": "msg_01anthropic",
        "type": "message",
        "role": "assistant",
        "model": "claude-sonnet-5",
        "content": list(blocks),
        "stop_reason": "tool_use" if asks else "end_turn",
        "stop_sequence": None,
        "usage": {"input_tokens": 1, "output_tokens": 1},
    }


class StrictOpenAIChat(StrictProvider):
    """The Chat Completions API."""

    path = "/chat/completions"
    knows = _words(
        "frequency_penalty logit_bias logprobs max_completion_tokens max_tokens messages metadata "
        "model n parallel_tool_calls presence_penalty prompt_cache_key reasoning_effort "
        "response_format safety_identifier seed service_tier stop store stream stream_options "
        "temperature tool_choice tools top_p user verbosity"
    )
    remembered = frozenset()

    fields: ClassVar[dict[str, Sequence[str]]] = {
        "assistant": ("content", "name", "refusal", "tool_calls"),
        "developer": ("content", "name"),
        "system": ("content", "name"),
        "tool": ("content", "tool_call_id"),
        "user": ("content", "name"),
    }
    parts: ClassVar[dict[str, Sequence[str]]] = {
        "assistant": ("refusal", "text"),
        "user": ("file", "image_url", "input_audio", "text"),
    }

    def faults(self, body: Json) -> list[str]:
        """Name every rule that a request breaks."""
        found = []
        asked: list[str] = []
        for at, message in enumerate(body["messages"]):
            where, role = f"messages[{at}]", message["role"]
            found += _unknown_fields(where, message, ("role", *self.fields[role]))
            found += self._content(where, message)
            if role == "tool":
                if message["tool_call_id"] in asked:
                    asked.remove(message["tool_call_id"])
                else:
                    found.append(f"{where}: role 'tool' must follow its 'tool_calls'")
                continue
            found += [f"{where}: no tool message for {name}" for name in asked]
            calls = message.get("tool_calls") or []
            asked = [call["id"] for call in calls]
            found += self._calls(where, calls)
        found += [f"no tool message for {name}" for name in asked]
        for at, tool in enumerate(body.get("tools", [])):
            found += _unknown_fields(f"tools[{at}]", tool, ("type", "function"))
        return found

    def _content(self, where: str, message: Json) -> list[str]:
        content = message.get("content")
        if content is None:
            asks = message.get("tool_calls")
            return [] if asks else [f"{where}.content: expected a string, got null"]
        if isinstance(content, str):
            return []
        found = [] if content else [f"{where}.content: empty array"]
        for at, part in enumerate(content):
            place = f"{where}.content[{at}]"
            kind = part.get("type")
            if kind not in self.parts.get(message["role"], ("text",)):
                found.append(f"{place}: invalid value {kind!r}")
            else:
                found += _unknown_fields(place, part, ("type", kind))
        return found

    @staticmethod
    def _calls(where: str, calls: list[Json]) -> list[str]:
        found = []
        for at, call in enumerate(calls):
            place = f"{where}.tool_calls[{at}]"
            found += _unknown_fields(place, call, ("id", "type", "function"))
            if not 1 <= len(call["id"]) <= 40:
                found.append(f"{place}.id: expected a string with maximum length 40")
            if not NAME.fullmatch(call["function"]["name"]):
                found.append(f"{place}.function.name: must match {NAME.pattern}")
            if not isinstance(json.loads(call["function"]["arguments"]), dict):
                found.append(f"{place}.function.arguments: must be an object")
        return found

    def events(self, answer: Json) -> Iterator[str]:
        """Stream an answer in one chunk, after the empty one that always comes first."""
        message = answer["choices"][0]["message"]
        calls = [
            {**call, "index": index} for index, call in enumerate(message.get("tool_calls") or [])
        ]
        head = {**answer, "object": "chat.completion.chunk"}
        delta = {"content": message["content"], **({"tool_calls": calls} if calls else {})}
        end = answer["choices"][0]["finish_reason"]
        for part, finish in (
            ({"role": "assistant", "content": ""}, None),
            (delta, None),
            ({}, end),
        ):
            choice = {"index": 0, "delta": part, "finish_reason": finish}
            yield _event({**head, "choices": [choice], "usage": None})
        yield "data: [DONE]\n\n"


def chat_answer(text: str | None, *calls: tuple[str, str, Json]) -> Json:
    """Return a completion with a text and calls, each an id, a tool's name and its arguments."""
    asked = [
        {
            "id": name,
            "type": "function",
            "function": {"name": tool, "arguments": json.dumps(arguments)},
        }
        for name, tool, arguments in calls
    ]
    message: Json = {"role": "assistant", "content": text, "refusal": None}
    if asked:
        message["tool_calls"] = asked
    finish = "tool_calls" if asked else "stop"
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1,
        "model": "gpt-5.5",
        "choices": [{"index": 0, "message": message, "finish_reason": finish}],
        "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
    }


class StrictOpenAIResponses(StrictProvider):
    """The Responses API; its answers are not streamed."""

    path = "/responses"
    knows = _words(
        "include input instructions max_output_tokens metadata model parallel_tool_calls "
        "previous_response_id prompt_cache_key reasoning service_tier store stream temperature "
        "text tool_choice tools top_p truncation user"
    )
    remembered = frozenset({"id", "encrypted_content"})

    items: ClassVar[dict[str, Sequence[str]]] = {
        "function_call": ("arguments", "call_id", "id", "name", "status", "namespace", "caller"),
        "function_call_output": ("call_id", "id", "output", "status"),
        "message": ("content", "id", "phase", "role", "status"),
        "reasoning": ("content", "encrypted_content", "id", "status", "summary"),
        "web_search_call": ("action", "id", "status"),
    }
    parts: ClassVar[dict[str, dict[str, Sequence[str]]]] = {
        "assistant": {
            "output_text": ("annotations", "logprobs", "text"),
            "refusal": ("refusal",),
        },
    }
    heard: ClassVar[dict[str, Sequence[str]]] = {
        "input_file": ("file_data", "file_id", "file_url", "filename"),
        "input_image": ("detail", "file_id", "image_url"),
        "input_text": ("text",),
    }

    def faults(self, body: Json) -> list[str]:
        """Name every rule that a request breaks."""
        found = []
        asked: list[str] = []
        answered: list[str] = []
        for at, item in enumerate(body["input"]):
            where, kind = f"input[{at}]", item.get("type", "message")
            if kind not in self.items:
                found.append(f"{where}: invalid item type {kind!r}")
                continue
            found += _unknown_fields(where, item, ("type", *self.items[kind]))
            found += [
                f"{where}.{name}: {item[name]!r} not found"
                for name in ("id", "encrypted_content")
                if item.get(name) is not None and item[name] not in self.wrote
            ]
            if kind == "message":
                found += self._content(where, item)
            if kind == "function_call":
                asked.append(item["call_id"])
            if kind == "function_call_output":
                answered.append(item["call_id"])
                if item["call_id"] not in asked:
                    found.append(f"{where}: no tool call found for {item['call_id']}")
        found += [f"no tool output found for {name}" for name in asked if name not in answered]
        found += [f"call_id {name!r}: maximum length 64" for name in asked if len(name) > 64]
        previous = body.get("previous_response_id")
        if previous is not None and previous not in self.wrote:
            found.append(f"previous response {previous!r} not found")
        return found

    def _content(self, where: str, item: Json) -> list[str]:
        if isinstance(item["content"], str):
            return []
        known = self.parts.get(item["role"], self.heard)
        found = []
        for at, part in enumerate(item["content"]):
            place, kind = f"{where}.content[{at}]", part.get("type")
            if kind not in known:
                found.append(f"{place}: invalid value {kind!r}")
            else:
                found += _unknown_fields(place, part, ("type", *known[kind]))
        return found


def responses_answer(*items: Json) -> Json:
    """Return a response with these output items."""
    return {
        "id": "resp_1",
        "object": "response",
        "created_at": 1,
        "model": "gpt-5.5",
        "status": "completed",
        "output": list(items),
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "error": None,
        "usage": {
            "input_tokens": 1,
            "output_tokens": 1,
            "total_tokens": 2,
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens_details": {"reasoning_tokens": 0},
        },
    }
