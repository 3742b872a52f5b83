"""A tool loop's history over two transports: the kit's ``portable``, as Honcho needs it."""

from __future__ import annotations

from base64 import b64decode
from secrets import token_hex
from typing import TYPE_CHECKING, Any

from honcho_fallback import FallbackConfigError
from honcho_fallback.providers import portable
from honcho_fallback_honcho._slots import TRANSPORTS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_SNAKE = {
    "functionCall": "function_call",
    "functionResponse": "function_response",
    "thoughtSignature": "thought_signature",
}
_FORMATS = {"openai": "openai", "anthropic": "anthropic", "gemini": "google"}  # by wire


def portable_history(
    messages: Sequence[Mapping[str, Any]], *, made_by: str, for_: str
) -> list[Any]:
    """Return messages as another of Honcho's transports takes them; as they are for the same one.

    System messages stay among them, since Honcho's backends look for them there. Ids of tool
    calls are made valid, and what only one provider can read stays behind.

    Args:
        messages: A history, or a turn of it, in the format of ``made_by``; left as they are.
        made_by: The transport whose format they have.
        for_: The transport that will be asked.

    Raises:
        FallbackConfigError: A transport is unknown, or a message is none of its own.
    """
    for name, transport in (("made_by", made_by), ("for_", for_)):
        if transport not in TRANSPORTS:
            raise FallbackConfigError.unknown(transport, TRANSPORTS, name)
    source, wanted = TRANSPORTS[made_by].wire, TRANSPORTS[for_].wire
    if source == wanted:
        return [*messages]
    system = [one for one in messages if one["role"] == "system"]
    turns = [one for one in messages if one["role"] != "system"]
    if source == "gemini":
        turns = [*map(_from_gemini, turns)]
    moved = portable(turns, made_by=_FORMATS[source], for_=_FORMATS[wanted])
    return system + ([*map(_for_gemini, moved)] if wanted == "gemini" else moved)


def _from_gemini(message: Mapping[str, Any]) -> Mapping[str, Any]:
    """Write a plain text as Gemini does, and give its calls ids, which are distinct in all turns.

    Honcho begins with such texts, whatever the transport, and its Gemini has no ids.
    """
    if "parts" not in message:
        role = "model" if message["role"] == "assistant" else message["role"]
        return {"role": role, "parts": [{"text": message["content"]}]}
    parts = [
        {"function_call": {"id": f"call_{token_hex(8)}", **part["function_call"]}}
        if "function_call" in part
        else part
        for part in message["parts"]
    ]
    return {**message, "parts": parts}


def _for_gemini(message: Mapping[str, Any]) -> Mapping[str, Any]:
    """Name a message's parts as Honcho does, which looks for calls and results among them."""
    parts = [{_SNAKE.get(name, name): part[name] for name in part} for part in message["parts"]]
    for part in parts:
        if "thought_signature" in part:
            part["thought_signature"] = b64decode(part["thought_signature"])
    return {**message, "parts": parts}
