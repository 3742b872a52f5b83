"""Anthropic's messages wire."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from honcho_fallback.settings._messages import Message, ToolCall
from honcho_fallback.settings._wire_ids import wire_id
from honcho_fallback.settings._wire_openai import json_wanted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from honcho_fallback import Attempt
    from honcho_fallback.settings._endpoint import Endpoint
    from honcho_fallback.settings._request import Request

_CHOICES = {"auto": "auto", "none": "none", "any": "any", "required": "any"}
_THOUGHT = frozenset({"thinking", "redacted_thinking"})


def render(request: Request, attempt: Attempt, endpoint: Endpoint) -> dict[str, Any]:
    """Return the keywords for ``messages.create``."""
    asked: dict[str, Any] = {
        "model": attempt.target.model,
        "messages": _turns(request.messages, endpoint.origin),
        **request.params(attempt, endpoint),
    }
    system = [message.text for message in request.messages if message.role == "system"]
    schema = request.schema()
    if schema is not None:
        system.append(json_wanted(schema))
    if system:
        asked["system"] = "\n\n".join(system)
    if request.tools:
        asked["tools"] = [
            {
                "name": tool.name,
                "description": tool.description,
                "input_schema": dict(tool.parameters),
            }
            for tool in request.tools
        ]
        by_name = {"type": "tool", "name": request.tool_choice}
        choice = _CHOICES.get(request.tool_choice)
        asked["tool_choice"] = by_name if choice is None else {"type": choice}
    if not _can_think(request.messages, endpoint.origin):
        asked.pop("thinking", None)
    return asked


def send(client: Any, asked: dict[str, Any], *, stream: bool) -> Any:
    """Send it; with an async client this is an awaitable."""
    return client.messages.create(**asked, **({"stream": True} if stream else {}))


def bound(asked: dict[str, Any], seconds: float) -> None:
    """Bound the time that a request may take."""
    asked["timeout"] = seconds


def read(answer: Any, endpoint: Endpoint) -> tuple[Message, dict[str, int]]:
    """Read an answer into neutral form, with what it cost."""
    text = "".join(block.text for block in answer.content if block.type == "text")
    calls = tuple(
        ToolCall(block.id, block.name, dict(block.input))
        for block in answer.content
        if block.type == "tool_use"
    )
    native = [block.model_dump(exclude_none=True) for block in answer.content]
    cost = {
        "input_tokens": answer.usage.input_tokens,
        "output_tokens": answer.usage.output_tokens,
    }
    return Message("assistant", text, calls, origin=endpoint.origin, native=native), cost


def piece(chunk: Any) -> str:
    """Return the text of an event, perhaps none."""
    return getattr(getattr(chunk, "delta", None), "text", None) or ""


def _turns(messages: Sequence[Message], origin: str) -> list[dict[str, Any]]:
    turns: list[dict[str, Any]] = []
    for message in messages:
        if message.role == "system":
            continue
        role = "assistant" if message.role == "assistant" else "user"
        blocks = message.native_for(origin) or _blocks(message)
        if not blocks:
            continue
        # All results of one round belong into one turn.
        if turns and turns[-1]["role"] == role:
            turns[-1]["content"] += blocks
        else:
            turns.append({"role": role, "content": list(blocks)})
    return turns


def _blocks(message: Message) -> list[dict[str, Any]]:
    if message.role == "tool":
        told: dict[str, Any] = {
            "type": "tool_result",
            "tool_use_id": wire_id(message.call_id),
            "content": message.text,
        }
        return [{**told, "is_error": True} if message.is_error else told]
    # An empty text block is refused.
    text = [{"type": "text", "text": message.text}] if message.text.strip() else []
    calls = [
        {
            "type": "tool_use",
            "id": wire_id(call.id),
            "name": call.name,
            "input": dict(call.arguments),
        }
        for call in message.calls
    ]
    return [*text, *calls]


def _can_think(messages: Sequence[Message], origin: str) -> bool:
    # With thinking on, a turn that called a tool must begin with its thoughts; one that another
    # provider wrote has none to show.
    for message in reversed(messages):
        if message.role == "user":
            return True
        if message.calls:
            native: list[dict[str, Any]] = message.native_for(origin) or [{}]
            if native[0].get("type") not in _THOUGHT:
                return False
    return True
