"""OpenAI's chat wire, which most other servers speak as well."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from honcho_fallback.settings._messages import Message, ToolCall, arguments_of
from honcho_fallback.settings._wire_ids import wire_id

if TYPE_CHECKING:
    from honcho_fallback import Attempt
    from honcho_fallback.settings._endpoint import Endpoint
    from honcho_fallback.settings._request import Request

_CHOICES = {"auto": "auto", "none": "none", "any": "required", "required": "required"}


def render(request: Request, attempt: Attempt, endpoint: Endpoint) -> dict[str, Any]:
    """Return the keywords for ``chat.completions.create``."""
    asked: dict[str, Any] = {
        "model": attempt.target.model,
        "messages": [_message(message) for message in request.messages],
        **request.params(attempt, endpoint),
    }
    if request.tools:
        asked["tools"] = [
            {
                "type": "function",
                "function": {
                    "name": tool.name,
                    "description": tool.description,
                    "parameters": dict(tool.parameters),
                },
            }
            for tool in request.tools
        ]
        by_name = {"type": "function", "function": {"name": request.tool_choice}}
        asked["tool_choice"] = _CHOICES.get(request.tool_choice, by_name)
    schema = request.schema()
    if schema is not None:
        asked["response_format"] = _format(request, endpoint, schema)
        if asked["response_format"]["type"] == "json_object":
            asked["messages"].insert(0, {"role": "system", "content": json_wanted(schema)})
    return asked


def json_wanted(schema: dict[str, Any]) -> str:
    """Ask in words for JSON, where the wire has no other way."""
    return f"Answer with one JSON object and nothing else. Its JSON schema: {json.dumps(schema)}"


def send(client: Any, asked: dict[str, Any], *, stream: bool) -> Any:
    """Send it; with an async client this is an awaitable."""
    return client.chat.completions.create(**asked, **({"stream": True} if stream else {}))


def bound(asked: dict[str, Any], seconds: float) -> None:
    """Bound the time that a request may take."""
    asked["timeout"] = seconds


def read(answer: Any, endpoint: Endpoint) -> tuple[Message, dict[str, int]]:
    """Read an answer into neutral form, with what it cost."""
    message = answer.choices[0].message
    calls = tuple(
        ToolCall(call.id, call.function.name, arguments_of(call.function.arguments))
        for call in message.tool_calls or ()
        if call.type == "function"
    )
    usage = answer.usage
    cost = (
        {}
        if usage is None
        else {"input_tokens": usage.prompt_tokens, "output_tokens": usage.completion_tokens}
    )
    return Message("assistant", message.content or "", calls, origin=endpoint.origin), cost


def piece(chunk: Any) -> str:
    """Return the text of a chunk, perhaps none."""
    return "".join(choice.delta.content or "" for choice in chunk.choices if choice.delta)


def _format(request: Request, endpoint: Endpoint, schema: dict[str, Any]) -> dict[str, Any]:
    if endpoint.structured_output_mode == "json_object" or request.response_model is dict:
        return {"type": "json_object"}
    name = getattr(request.response_model, "__name__", "answer")
    return {"type": "json_schema", "json_schema": {"name": name, "schema": schema}}


def _message(message: Message) -> dict[str, Any]:
    if message.role == "tool":
        call_id = wire_id(message.call_id)
        return {"role": "tool", "tool_call_id": call_id, "content": message.text}
    told: dict[str, Any] = {"role": message.role, "content": message.text}
    if message.calls:
        told["content"] = message.text or None
        told["tool_calls"] = [
            {
                "id": wire_id(call.id),
                "type": "function",
                "function": {"name": call.name, "arguments": json.dumps(dict(call.arguments))},
            }
            for call in message.calls
        ]
    return told
