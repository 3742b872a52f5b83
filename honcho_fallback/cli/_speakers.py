"""How a target is spoken to over the ``openai`` SDK, told not to retry by itself.

History is kept in neutral form, so that a tool loop may go on with another provider.
"""

from __future__ import annotations

import json
from abc import abstractmethod
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import openai

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from honcho_fallback import Attempt

TOOL = "read_thermometer"
ABOUT = "Read the temperature of one city."
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"city": {"type": "string", "enum": ["Oslo", "Lima", "Hanoi"]}},
    "required": ["city"],
}


class ToolUse(NamedTuple):
    """Hold one tool call of the model, and what the tool said.

    Args:
        arguments: What the model passed.
        result: What the tool returned.
    """

    arguments: dict[str, Any]
    result: str


class Speaker(Protocol):
    """Ask one target, over its provider's own SDK."""

    @abstractmethod
    def answer(self, attempt: Attempt, prompt: str) -> Any:
        """Ask for a text, and return the SDK's own answer."""

    @abstractmethod
    def say(self, attempt: Attempt, prompt: str) -> str:
        """Ask for a text."""

    @abstractmethod
    def stream(self, attempt: Attempt, prompt: str) -> Iterator[str]:
        """Ask for a text in pieces, some of them empty."""

    @abstractmethod
    def step(
        self, attempt: Attempt, prompt: str, done: Sequence[ToolUse], *, last: bool
    ) -> ToolUse | str:
        """Ask for the next tool call, or at last for a text."""


class OpenAISpeaker:
    """Speak over ``openai``: to OpenAI and to every server with its wire.

    Args:
        client: With ``max_retries=0``; the policy decides.
    """

    def __init__(self, client: openai.OpenAI) -> None:
        self._client = client

    def answer(self, attempt: Attempt, prompt: str) -> Any:
        """Ask for a text, and return the SDK's own answer."""
        return self._create(attempt, _openai_history(prompt, ()))

    def say(self, attempt: Attempt, prompt: str) -> str:
        """Ask for a text."""
        return self.answer(attempt, prompt).choices[0].message.content or ""

    def stream(self, attempt: Attempt, prompt: str) -> Iterator[str]:
        """Ask for a text in pieces, some of them empty."""
        with self._create(attempt, _openai_history(prompt, ()), stream=True) as chunks:
            for chunk in chunks:
                yield (chunk.choices[0].delta.content or "") if chunk.choices else ""

    def step(
        self, attempt: Attempt, prompt: str, done: Sequence[ToolUse], *, last: bool
    ) -> ToolUse | str:
        """Ask for the next tool call, or at last for a text."""
        function = {"name": TOOL, "description": ABOUT, "parameters": SCHEMA}
        tools = {"tools": [{"type": "function", "function": function}], "tool_choice": "required"}
        asked = self._create(attempt, _openai_history(prompt, done), **({} if last else tools))
        message = asked.choices[0].message
        if last or not message.tool_calls:
            return message.content or ""
        return use_tool(json.loads(message.tool_calls[0].function.arguments))

    def _create(self, attempt: Attempt, messages: Any, **more: Any) -> Any:
        # The SDK's overloads cannot follow arguments that come from a mapping.
        create: Callable[..., Any] = self._client.chat.completions.create
        return create(
            model=attempt.target.model,
            messages=messages,
            timeout=openai.Timeout(attempt.timeout, connect=attempt.connect_timeout),
            **{**attempt.target.params, **more},
        )


def use_tool(arguments: dict[str, Any]) -> ToolUse:
    """Do what the model asked for."""
    return ToolUse(arguments, f"{len(str(arguments.get('city', '')))} degrees")


def _openai_history(prompt: str, done: Sequence[ToolUse]) -> list[dict[str, Any]]:
    history: list[dict[str, Any]] = [{"role": "user", "content": prompt}]
    for number, use in enumerate(done):
        name = f"call_{number}"
        function = {"name": TOOL, "arguments": json.dumps(use.arguments)}
        calls = [{"id": name, "type": "function", "function": function}]
        history += [
            {"role": "assistant", "content": None, "tool_calls": calls},
            {"role": "tool", "tool_call_id": name, "content": use.result},
        ]
    return history
