"""How a target is spoken to over the ``anthropic`` SDK; imported only where one is asked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import anthropic

from honcho_fallback.cli._speakers import ABOUT, SCHEMA, TOOL, ToolUse, use_tool

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from honcho_fallback import Attempt


class AnthropicSpeaker:
    """Speak over ``anthropic``.

    Args:
        client: With ``max_retries=0``; the policy decides.
    """

    def __init__(self, client: anthropic.Anthropic) -> None:
        self._client = client

    def answer(self, attempt: Attempt, prompt: str) -> Any:
        """Ask for a text, and return the SDK's own answer."""
        return self._create(attempt, _history(prompt, ()))

    def say(self, attempt: Attempt, prompt: str) -> str:
        """Ask for a text."""
        return _text(self.answer(attempt, prompt))

    def stream(self, attempt: Attempt, prompt: str) -> Iterator[str]:
        """Ask for a text in pieces, some of them empty."""
        with self._create(attempt, _history(prompt, ()), stream=True) as events:
            for event in events:
                yield getattr(getattr(event, "delta", None), "text", "")

    def step(
        self, attempt: Attempt, prompt: str, done: Sequence[ToolUse], *, last: bool
    ) -> ToolUse | str:
        """Ask for the next tool call, or at last for a text."""
        answer = self._create(
            attempt,
            _history(prompt, done),
            # A history with tool calls is refused without the tools.
            tools=[{"name": TOOL, "description": ABOUT, "input_schema": SCHEMA}],
            tool_choice={"type": "none" if last else "any"},
        )
        used = [block.input for block in answer.content if block.type == "tool_use"]
        return _text(answer) if last or not used else use_tool(used[0])

    def _create(self, attempt: Attempt, messages: Any, **more: Any) -> Any:
        create: Callable[..., Any] = self._client.messages.create
        return create(
            model=attempt.target.model,
            messages=messages,
            timeout=anthropic.Timeout(attempt.timeout, connect=attempt.connect_timeout),
            **{"max_tokens": 256, **attempt.target.params, **more},
        )


def _history(prompt: str, done: Sequence[ToolUse]) -> list[dict[str, Any]]:
    history: list[dict[str, Any]] = [{"role": "user", "content": prompt}]
    for number, use in enumerate(done):
        name = f"toolu_{number}"
        called = {"type": "tool_use", "id": name, "name": TOOL, "input": use.arguments}
        told = {"type": "tool_result", "tool_use_id": name, "content": use.result}
        history += [
            {"role": "assistant", "content": [called]},
            {"role": "user", "content": [told]},
        ]
    return history


def _text(answer: Any) -> str:
    return "".join(block.text for block in answer.content if block.type == "text")
