"""A tool loop's history over two transports: the kit's ``portable``, as Honcho needs it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from honcho_fallback import FallbackConfigError
from honcho_fallback.providers import portable
from honcho_fallback_honcho._slots import TRANSPORTS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

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
        turns = [*map(_with_parts, turns)]
    return system + portable(turns, made_by=_FORMATS[source], for_=_FORMATS[wanted])


def _with_parts(message: Mapping[str, Any]) -> Mapping[str, Any]:
    """Write a plain text as Gemini does; Honcho begins with such, whatever the transport."""
    if "parts" in message:
        return message
    role = "model" if message["role"] == "assistant" else message["role"]
    return {"role": role, "parts": [{"text": message["content"]}]}
