"""What is asked, in neutral form, and what comes back."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from pydantic import BaseModel, ValidationError

from honcho_fallback import FallbackConfigError
from honcho_fallback.settings._params import thinking_params
from honcho_fallback.settings._slots import DEFAULT_MAX_TOKENS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from honcho_fallback import Attempt
    from honcho_fallback.settings._endpoint import Endpoint
    from honcho_fallback.settings._messages import Message, ToolCall

_FENCED = re.compile(r"\A\s*```(?:json)?\s*\n(.*?)\n?```\s*\Z", re.DOTALL)
_BUMPED = 0.2


class Tool(NamedTuple):
    """Describe a tool to a model.

    Args:
        name: Its name.
        description: What it does.
        parameters: JSON schema of its arguments.
    """

    name: str
    description: str
    parameters: Mapping[str, Any]

    @classmethod
    def of(cls, given: Tool | Mapping[str, Any]) -> Tool:
        """Read a tool in the form of either wire.

        Args:
            given: With ``name``, ``description`` and ``input_schema`` or ``parameters``.
        """
        if isinstance(given, Tool):
            return given
        table: Mapping[str, Any] = given.get("function", given)
        if not isinstance(table.get("name"), str):
            raise FallbackConfigError.about("tools", "one has no name", "pass Tool objects")
        schema = table.get("input_schema") or table.get("parameters") or {"type": "object"}
        return cls(table["name"], str(table.get("description") or ""), schema)


@dataclass(frozen=True, slots=True)
class Request:
    """Hold what is asked; each target's own wire renders it.

    Args:
        messages: The history.
        tools: What may be called.
        tool_choice: ``auto``, ``none``, ``any``, ``required`` or a tool's name.
        response_model: What the answer is to be: a pydantic model, ``dict`` for any JSON, or None.
        max_tokens: Of the answer; wins over every target's own.
        temperature: Wins over every target's own.
        stop: Wins over every target's own.
        reasoning_effort: For the primary only; a fallback has its own.
        thinking_budget_tokens: For the primary only; a fallback has its own.
        bump_temperature: Whether 0.0 becomes 0.2 after the first attempt, as Honcho has it.
    """

    messages: tuple[Message, ...] = field(repr=False)
    tools: tuple[Tool, ...] = ()
    tool_choice: str = "auto"
    response_model: type[Any] | None = None
    max_tokens: int | None = None
    temperature: float | None = None
    stop: tuple[str, ...] = ()
    reasoning_effort: str | None = None
    thinking_budget_tokens: int | None = None
    bump_temperature: bool = False

    def schema(self) -> dict[str, Any] | None:
        """Return the JSON schema of the answer, or None."""
        if self.response_model is None:
            return None
        if issubclass(self.response_model, BaseModel):
            return self.response_model.model_json_schema()
        return {"type": "object"}

    def params(self, attempt: Attempt, endpoint: Endpoint) -> dict[str, Any]:
        """Return a target's parameters with those of the call over them."""
        params = dict(attempt.target.params)
        wire = endpoint.wire
        if wire == "anthropic":  # which answers nobody who does not say how long
            params.setdefault("max_tokens", DEFAULT_MAX_TOKENS)
        if self.max_tokens is not None:
            params[endpoint.max_tokens_name] = self.max_tokens
        temperature = self.temperature
        if temperature == 0 and self.bump_temperature and attempt.number > 1:
            temperature = _BUMPED
        if temperature is not None:
            if wire == "anthropic":  # its SDK has no keyword for it (version 2)
                params["extra_body"] = {**params.get("extra_body", {}), "temperature": temperature}
            else:
                params["temperature"] = temperature
        if self.stop:
            params["stop" if wire == "openai" else "stop_sequences"] = list(self.stop)
        if not attempt.is_fallback:
            effort, budget = self.reasoning_effort, self.thinking_budget_tokens
            params |= thinking_params(wire, effort, budget)[0]
        return params


class Reply(NamedTuple):
    """Hold what a model answered.

    Args:
        message: For the history.
        usage: ``input_tokens`` and ``output_tokens``, where the provider told.
        target: Name of who answered.
        value: The parsed answer where a ``response_model`` was given.
        problem: Why the answer is not of that model, or empty.
        history: The whole history, this answer included.
    """

    message: Message
    usage: Mapping[str, int]
    target: str
    value: Any = None
    problem: str = ""
    history: tuple[Message, ...] = ()

    def __repr__(self) -> str:
        return f"<Reply of {self.target}, {len(self.text)} characters, {len(self.calls)} calls>"

    @property
    def text(self) -> str:
        """Return what was said."""
        return self.message.text

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        """Return the tools that the model wants called."""
        return self.message.calls


def parsed(text: str, response_model: type[Any]) -> tuple[Any, str]:
    """Parse an answer; return the value, or None and why not."""
    fenced = _FENCED.match(text)
    try:
        raw = json.loads(fenced[1] if fenced else text)
        if issubclass(response_model, BaseModel):
            return response_model.model_validate(raw), ""
    except ValidationError as error:
        return None, f"{error.error_count()} fields do not fit {response_model.__name__}"
    except ValueError:
        return None, "it is not JSON"
    return (raw, "") if isinstance(raw, response_model) else (None, "it is no JSON object")
