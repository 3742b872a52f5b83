"""What a provider can be made to say while a cassette is recorded.

A test names its replies in order, ``@pytest.mark.upstream("openai_rate_limit",
"anthropic_message")``; the plugin sees to it that each host gives the one named.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from llmock.scenarios import Fail, Reply, ToolCall


@dataclass(frozen=True)
class Host:
    """Name a host as clients know it, and what answers for it.

    Args:
        address: Host and, where it is not the scheme's own, port.
        key: Environment variable of the key to the real provider, or None.
        llmock_path: Where llmock keeps this provider.
    """

    address: str
    key: str | None = None
    llmock_path: str = ""


HOSTS = {
    "openai": Host("api.openai.com", "OPENAI_API_KEY"),
    "anthropic": Host("api.anthropic.com", "ANTHROPIC_API_KEY", "/anthropic"),
    "local": Host("localhost:1234"),
}


@dataclass(frozen=True)
class Simulated:
    """Let llmock say it.

    Args:
        behavior: What it does with the next request to this provider.
        live: Whether the real provider says the same on demand, given a key.
    """

    behavior: Fail | Reply
    live: bool = False


@dataclass(frozen=True)
class Canned:
    """Say what llmock cannot, in the shape that the provider documents.

    Args:
        status: HTTP status.
        body: JSON value, or the text of an event stream.
        headers: Beyond the content type.
        live: Whether the real provider says the same on demand, given a key.
    """

    status: int
    body: Any
    headers: tuple[tuple[str, str], ...] = ()
    live: bool = False

    @property
    def content_type(self) -> str:
        """Tell JSON from an event stream."""
        return "text/event-stream" if isinstance(self.body, str) else "application/json"

    @property
    def text(self) -> str:
        """Return the body as it goes over the wire."""
        return self.body if isinstance(self.body, str) else json.dumps(self.body)


@dataclass(frozen=True)
class LocalModel:
    """Let the real model server on this machine say it."""

    live: bool = False


def _openai_error(message: str, kind: str, code: str | None, param: str | None = None) -> Any:
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}


def _anthropic_error(kind: str, message: str) -> Any:
    return {"type": "error", "error": {"type": kind, "message": message}}


def _anthropic_events(*events: Any) -> str:
    return "".join(f"event: {one['type']}\ndata: {json.dumps(one)}\n\n" for one in events)


def _openai_chat(model: str, content: str) -> Any:
    message = {"role": "assistant", "content": content}
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1,
        "model": model,
        "choices": [{"index": 0, "finish_reason": "stop", "message": message}],
        "usage": {"prompt_tokens": 12, "completion_tokens": 5, "total_tokens": 17},
    }


_HARBOR = Reply(text="harbor")
_WEATHER = Reply(tool_calls=(ToolCall("get_weather", {"city": "Oslo"}),))
_SCHEMA = {"city": "Oslo"}
_ANTHROPIC_START = {
    "type": "message_start",
    "message": {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "claude-sonnet-5",
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {"input_tokens": 12, "output_tokens": 1},
    },
}

REPLIES: dict[str, Simulated | Canned | LocalModel] = {
    "openai_chat": Simulated(_HARBOR, live=True),
    "openai_stream": Simulated(_HARBOR, live=True),
    "openai_responses": Simulated(_HARBOR, live=True),
    "openai_tool_call": Simulated(_WEATHER, live=True),
    "openai_structured": Simulated(Reply(text=json.dumps(_SCHEMA)), live=True),
    "openai_rate_limit": Simulated(Fail(429, retry_after=20, code="rate_limit_exceeded")),
    "openai_overloaded": Simulated(Fail(503, message="The engine is overloaded for now.")),
    "openai_quota": Canned(
        429,
        _openai_error(
            "This account has used up its quota; look at its plan and billing.",
            "insufficient_quota",
            "insufficient_quota",
        ),
    ),
    "openai_bad_key": Canned(
        401,
        _openai_error("The API key is not valid.", "invalid_request_error", "invalid_api_key"),
        live=True,
    ),
    "openai_no_model": Canned(
        404,
        _openai_error(
            "There is no such model, or this key may not use it.",
            "invalid_request_error",
            "model_not_found",
        ),
        live=True,
    ),
    "openai_too_long": Canned(
        400,
        _openai_error(
            "The model takes 8192 tokens at most; the messages came to 9001.",
            "invalid_request_error",
            "context_length_exceeded",
            "messages",
        ),
    ),
    "openai_bad_request": Canned(
        400,
        _openai_error(
            "max_completion_tokens must be at least 1.",
            "invalid_request_error",
            "integer_below_min_value",
            "max_completion_tokens",
        ),
        live=True,
    ),
    "anthropic_message": Simulated(_HARBOR, live=True),
    "anthropic_stream": Simulated(_HARBOR, live=True),
    "anthropic_tool_use": Simulated(_WEATHER, live=True),
    # Where it has no mode for JSON, a schema is a tool that must be called.
    "anthropic_structured": Simulated(
        Reply(tool_calls=(ToolCall("Weather", _SCHEMA),)), live=True
    ),
    "anthropic_rate_limit": Simulated(Fail(429, retry_after=30)),
    "anthropic_overloaded": Simulated(Fail(529, message="Overloaded")),
    "anthropic_unavailable": Simulated(Fail(503, message="The service is not available.")),
    "anthropic_bad_key": Canned(
        401, _anthropic_error("authentication_error", "The API key is not valid."), live=True
    ),
    "anthropic_bad_request": Canned(
        400,
        _anthropic_error("invalid_request_error", "max_tokens: must be at least 1"),
        live=True,
    ),
    # The status is sent before the trouble begins: the error is an event in a good response.
    "anthropic_stream_error": Canned(
        200, _anthropic_events(_anthropic_error("overloaded_error", "Overloaded"))
    ),
    "anthropic_late_stream_error": Canned(
        200,
        _anthropic_events(_ANTHROPIC_START, _anthropic_error("overloaded_error", "Overloaded")),
    ),
    "local_chat": LocalModel(),
    "local_stream": LocalModel(),
    # The tiny model's tokens are too few for a grammar of plain JSON.
    "local_structured": Canned(200, _openai_chat("tiny-local", json.dumps(_SCHEMA))),
    "local_tool_call": LocalModel(),
}


def host_of(reply: str) -> str:
    """Name the host that gives a reply."""
    return reply.partition("_")[0]
