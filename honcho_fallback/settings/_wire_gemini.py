"""Gemini's wire."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from honcho_fallback.settings._messages import Message, ToolCall, called_names

if TYPE_CHECKING:
    from honcho_fallback import Attempt
    from honcho_fallback.settings._endpoint import Endpoint
    from honcho_fallback.settings._request import Request

_CHOICES = {"auto": "AUTO", "none": "NONE", "any": "ANY", "required": "ANY"}


def render(request: Request, attempt: Attempt, endpoint: Endpoint) -> dict[str, Any]:
    """Return the keywords for ``models.generate_content``."""
    config = request.params(attempt, endpoint)
    system = [message.text for message in request.messages if message.role == "system"]
    if system:
        config["system_instruction"] = "\n\n".join(system)
    if request.tools:
        config["tools"] = [
            {
                "function_declarations": [
                    {
                        "name": tool.name,
                        "description": tool.description,
                        "parameters_json_schema": dict(tool.parameters),
                    }
                    for tool in request.tools
                ]
            }
        ]
        mode = _CHOICES.get(request.tool_choice)
        calling = {"mode": mode or "ANY"}
        named = {} if mode else {"allowed_function_names": [request.tool_choice]}
        config["tool_config"] = {"function_calling_config": {**calling, **named}}
        config["automatic_function_calling"] = {"disable": True}
    schema = request.schema()
    if schema is not None:
        config |= {"response_mime_type": "application/json", "response_json_schema": schema}
    return {
        "model": attempt.target.model,
        "contents": _contents(request, endpoint.origin),
        "config": config,
    }


def send(client: Any, asked: dict[str, Any], *, stream: bool) -> Any:
    """Send it; with an async client this is an awaitable."""
    models = client.models
    return (models.generate_content_stream if stream else models.generate_content)(**asked)


def bound(asked: dict[str, Any], seconds: float) -> None:
    """Bound the time that a request may take."""
    config = asked["config"]
    config["http_options"] = {**config.get("http_options", {}), "timeout": int(seconds * 1000)}


def read(answer: Any, endpoint: Endpoint) -> tuple[Message, dict[str, int]]:
    """Read an answer into neutral form, with what it cost."""
    content: Any = answer.candidates[0].content
    parts: list[Any] = list(content.parts or ()) if content is not None else []
    text = "".join(part.text for part in parts if part.text and not part.thought)
    wanted: list[Any] = [part.function_call for part in parts if part.function_call is not None]
    # It gives calls no ids; these live in our history only.
    prefix = answer.response_id or f"{id(answer):x}"
    calls = tuple(
        ToolCall(call.id or f"{prefix}-{number}", call.name, dict(call.args or {}))
        for number, call in enumerate(wanted)
    )
    usage = answer.usage_metadata
    cost = {
        "input_tokens": getattr(usage, "prompt_token_count", None),
        "output_tokens": getattr(usage, "candidates_token_count", None),
    }
    told = {name: number for name, number in cost.items() if number is not None}
    native = None if content is None else content.model_dump(exclude_none=True)
    return Message("assistant", text, calls, origin=endpoint.origin, native=native), told


def piece(chunk: Any) -> str:
    """Return the text of a chunk, perhaps none."""
    parts: list[Any] = [
        part
        for candidate in chunk.candidates or ()
        for part in (candidate.content.parts if candidate.content else None) or ()
    ]
    return "".join(part.text for part in parts if part.text and not part.thought)


def _contents(request: Request, origin: str) -> list[dict[str, Any]]:
    names = called_names(request.messages)
    contents: list[dict[str, Any]] = []
    for message in request.messages:
        if message.role == "system":
            continue
        role = "model" if message.role == "assistant" else "user"
        native = message.native_for(origin)
        parts = native["parts"] if native and native.get("parts") else _parts(message, names)
        if not parts:
            continue
        if contents and contents[-1]["role"] == role:
            contents[-1]["parts"] += parts
        else:
            contents.append({"role": role, "parts": list(parts)})
    return contents


def _parts(message: Message, names: dict[str, str]) -> list[dict[str, Any]]:
    if message.role == "tool":
        result = {"error" if message.is_error else "result": message.text}
        name = names.get(message.call_id, "tool")
        return [{"function_response": {"name": name, "response": result}}]
    text = [{"text": message.text}] if message.text else []
    calls = [
        {"function_call": {"name": call.name, "args": dict(call.arguments)}}
        for call in message.calls
    ]
    return [*text, *calls]
