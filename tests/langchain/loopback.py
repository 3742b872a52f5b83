"""Providers on a loopback socket, in OpenAI's and Anthropic's own form."""

from __future__ import annotations

import json
from itertools import count
from typing import TYPE_CHECKING, Any

from langchain_anthropic import ChatAnthropic
from langchain_openai import ChatOpenAI
from werkzeug import Response

if TYPE_CHECKING:
    from collections.abc import Iterable

    from langchain_core.language_models import BaseChatModel
    from pytest_httpserver import HTTPServer
    from werkzeug import Request

OVERLOADED = "overloaded"
BAD_REQUEST = "bad request"


def _openai_event(delta: dict[str, Any], finish: str | None = None) -> str:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    chunk = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "gpt-5.5"}
    return f"data: {json.dumps({**chunk, 'choices': [choice]})}\n\n"


def _openai_error(what: str) -> str:
    told: dict[str, Any] = {"message": "in our own words", "type": "server_error", "code": "503"}
    if what == BAD_REQUEST:
        told |= {"type": "invalid_request_error", "code": "invalid_value"}
    return f"data: {json.dumps({'error': told})}\n\n"


def openai_stream(parts: Iterable[str]) -> Iterable[str]:
    """Say parts as OpenAI does: an empty chunk first, errors as events of a good response."""
    yield _openai_event({"role": "assistant", "content": ""})
    for part in parts:
        if part in {OVERLOADED, BAD_REQUEST}:
            yield _openai_error(part)
            return
        yield _openai_event({"content": part})
    yield _openai_event({}, "stop")
    yield "data: [DONE]\n\n"


def _anthropic_event(kind: str, **told: Any) -> str:
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **told})}\n\n"


def anthropic_stream(parts: Iterable[str]) -> Iterable[str]:
    """Say parts as Anthropic does: frames without content first, errors as events."""
    usage = {"input_tokens": 1, "output_tokens": 1}
    message: dict[str, Any] = {"id": "m", "type": "message", "role": "assistant", "usage": usage}
    message |= {
        "model": "claude-sonnet-5",
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
    }
    yield _anthropic_event("message_start", message=message)
    block = {"type": "text", "text": ""}
    yield _anthropic_event("content_block_start", index=0, content_block=block)
    for part in parts:
        if part in {OVERLOADED, BAD_REQUEST}:
            kind = "overloaded_error" if part == OVERLOADED else "invalid_request_error"
            yield _anthropic_event("error", error={"type": kind, "message": "in our own words"})
            return
        delta = {"type": "text_delta", "text": part}
        yield _anthropic_event("content_block_delta", index=0, delta=delta)
    yield _anthropic_event("content_block_stop", index=0)
    ended = {"stop_reason": "end_turn", "stop_sequence": None}
    yield _anthropic_event("message_delta", delta=ended, usage={"output_tokens": 2})
    yield _anthropic_event("message_stop")


def _openai_answer(text: str) -> dict[str, Any]:
    message = {"role": "assistant", "content": text}
    return {
        "id": "c",
        "object": "chat.completion",
        "created": 1,
        "model": "gpt-5.5",
        "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3},
    }


def _anthropic_answer(text: str) -> dict[str, Any]:
    return {
        "id": "m",
        "type": "message",
        "role": "assistant",
        "model": "claude-sonnet-5",
        "content": [{"type": "text", "text": text}],
        "stop_reason": "end_turn",
        "stop_sequence": None,
        "usage": {"input_tokens": 1, "output_tokens": 2},
    }


NOWHERE = "http://127.0.0.1:1"


def gpt(**fields: Any) -> ChatOpenAI:
    """Make OpenAI's chat model, which nobody answers unless a test says where to ask."""
    return ChatOpenAI(**{"model": "gpt-5.5", "api_key": "k", "base_url": NOWHERE, **fields})


def claude(**fields: Any) -> ChatAnthropic:
    """Make Anthropic's chat model, likewise."""
    given = {"model": "claude-sonnet-5", "api_key": "k", "base_url": NOWHERE}
    return ChatAnthropic(**{**given, **fields})


class Provider:
    """Answer as one provider, in whole or in parts, or with a status; count who asked.

    Args:
        server: Of pytest-httpserver.
        name: ``openai`` or ``anthropic``.
        parts: What it says.
        status: Said instead, if it is an error.
        key: The one that it takes, or None for any.
        rest: For how many milliseconds it asks to be left alone where it fails, or None.
    """

    _places = count()

    def __init__(
        self,
        server: HTTPServer,
        name: str,
        *parts: str,
        status: int = 200,
        key: str | None = None,
        rest: int | None = 1,
    ) -> None:
        place = f"/{name}{next(self._places)}"  # integrations cache HTTP clients by their URL
        self.name = name
        self.url = server.url_for(place)
        self.parts = parts
        self.status = status
        self.key = key
        self.asks_for = {} if rest is None else {"retry-after-ms": str(rest)}
        self.bodies: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        path = f"{place}/chat/completions" if name == "openai" else f"{place}/v1/messages"
        server.expect_request(path, method="POST").respond_with_handler(self._answer)

    @property
    def requests(self) -> int:
        """Return how many requests came."""
        return len(self.bodies)

    @property
    def keys(self) -> list[str]:
        """Return the keys that it was asked with, in order."""
        return [
            headers.get("x-api-key") or headers.get("authorization", "").removeprefix("Bearer ")
            for headers in self.headers
        ]

    @property
    def patience(self) -> list[float | None]:
        """Return for how many seconds each request was ready to wait, in order."""
        told = [headers.get("x-stainless-read-timeout") for headers in self.headers]
        return [None if seconds in {None, "None"} else float(seconds) for seconds in told]

    def model(self, **fields: Any) -> BaseChatModel:
        """Make the provider's own chat model that asks here."""
        make = gpt if self.name == "openai" else claude
        return make(**{"base_url": self.url, **fields})

    def _answer(self, request: Request) -> Response:
        body = request.get_json()
        self.bodies.append(body)
        self.headers.append({name.lower(): value for name, value in request.headers.items()})
        status = self.status
        if self.key is not None and self.keys[-1] != self.key:
            status = 401
        if status != 200:
            error = {"type": "some_error", "message": "in our own words"}
            told = json.dumps({"type": "error", "error": error})
            return Response(told, status, self.asks_for, "application/json")
        if body.get("stream"):
            said = openai_stream if self.name == "openai" else anthropic_stream
            return Response(said(self.parts), mimetype="text/event-stream")
        answer = _openai_answer if self.name == "openai" else _anthropic_answer
        return Response(json.dumps(answer("".join(self.parts))), mimetype="application/json")


def dead_provider(server: HTTPServer, name: str) -> Provider:
    """Make one that is down and does not say for how long."""
    return Provider(server, name, status=503, rest=None)


def silent(name: str, url: str) -> Any:
    """Make a model that waits for 30 s where nobody tells it otherwise."""
    return (gpt if name == "openai" else claude)(base_url=url, timeout=30)
