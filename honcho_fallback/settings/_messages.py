"""A history that every provider can be told: neutral in form, rendered anew for each request.

A provider's own form of a turn (thinking blocks, signatures) is kept beside it and goes back to
the endpoint that it came from, never to another: that one would refuse the request.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, cast

from honcho_fallback import FallbackConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

Role = Literal["system", "user", "assistant", "tool"]
_ROLES = ("system", "user", "assistant", "tool")


class ToolCall(NamedTuple):
    """Hold one call of a tool that a model wants.

    Args:
        id: Which result belongs to it.
        name: The tool's.
        arguments: What it is passed.
    """

    id: str
    name: str
    arguments: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Message:
    """Hold one message of a history, whoever wrote it.

    Args:
        role: ``system``, ``user``, ``assistant`` or ``tool``.
        text: What was said; for a tool its result.
        calls: The tools that the assistant wants called.
        call_id: Which call a tool's result belongs to.
        is_error: Whether the tool failed.
        origin: The endpoint that it came from, or None.
        native: Its form there, for that endpoint only.
    """

    role: Role
    text: str = field(default="", repr=False)
    calls: tuple[ToolCall, ...] = field(default=(), repr=False)
    call_id: str = ""
    is_error: bool = False
    origin: str | None = field(default=None, compare=False)
    native: Any = field(default=None, repr=False, compare=False)

    def native_for(self, origin: str) -> Any:
        """Return its own form where it goes back to whom it came from, otherwise None.

        Args:
            origin: The endpoint that is asked.
        """
        return self.native if self.origin == origin else None


def canonical(messages: Iterable[Message | Mapping[str, Any]]) -> tuple[Message, ...]:
    """Return a history in neutral form."""
    return tuple(
        one if isinstance(one, Message) else _from_mapping(position, one)
        for position, one in enumerate(messages)
    )


def called_names(messages: Sequence[Message]) -> dict[str, str]:
    """Name the tool of each call in a history, by the call's id."""
    return {call.id: call.name for message in messages for call in message.calls}


def arguments_of(text: str | None) -> Mapping[str, Any]:
    """Read the arguments that a model wrote as JSON; what is no object is handed on as text."""
    try:
        parsed = json.loads(text or "{}")
    except ValueError:
        parsed = None
    return cast("dict[str, Any]", parsed) if isinstance(parsed, dict) else {"text": text}


def _from_mapping(position: int, given: Mapping[str, Any]) -> Message:
    role, content = given.get("role"), given.get("content")
    if role == "developer":
        role = "system"
    if role not in _ROLES or not isinstance(content, str | None):
        raise FallbackConfigError.about(
            f"messages[{position}]",
            "it has no role and text",
            "pass a Message, or {'role': 'user', 'content': '...'}",
        )
    calls = tuple(
        ToolCall(call["id"], call["function"]["name"], arguments_of(call["function"]["arguments"]))
        for call in given.get("tool_calls") or ()
    )
    return Message(role, content or "", calls, str(given.get("tool_call_id") or ""))
