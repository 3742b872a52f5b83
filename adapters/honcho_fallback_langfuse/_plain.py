"""What was asked and answered, as everybody writes it: dicts, lists and texts.

It is the user's: it keeps its addresses, for a trace that rewrites a prompt lies about it, and a
mask is there for whoever wants that.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from honcho_fallback import Answer

# Larger texts cost milliseconds each and are read by nobody.
_MOST_CHARACTERS = 1_000_000

# LangChain names who speaks otherwise than everybody else.
_ROLES = {"human": "user", "ai": "assistant", "AIMessageChunk": "assistant"}


def plain(value: Any) -> Any:
    """Return content as dicts, lists and scalars, each text cut where it is too long."""
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, Mapping):
        entries = cast("Mapping[object, object]", value)
        return {str(key): plain(one) for key, one in entries.items()}
    if isinstance(value, list | tuple):
        return [plain(one) for one in cast("list[object]", value)]
    opened = _opened(value)
    # What is left the SDK's serializer knows: numbers, dates, dataclasses and the like.
    return value if opened is None else plain(opened)


def _text(value: str) -> str:
    # Inline media is cut out and uploaded by the SDK; half of it would be neither.
    more = len(value) - _MOST_CHARACTERS
    if more > 0 and not value.startswith("data:"):
        value = f"{value[:_MOST_CHARACTERS]}... ({more} characters more)"
    # One lone surrogate, as of a stream that splits an emoji, would cost the whole export.
    return value if value.isascii() else value.encode("utf-8", "replace").decode()


def _opened(value: Any) -> Any:
    """Return what an SDK's or LangChain's object holds, or None for anything else."""
    if isinstance(value, bytes | bytearray):
        return f"<{type(value).__name__}, {len(value)} bytes>"
    message = _message(value)
    if message is not None:
        return message
    dump = getattr(value, "model_dump", None)  # the SDKs' objects
    if callable(dump):
        return dump(exclude_none=True, warnings=False)
    to_messages = getattr(value, "to_messages", None)  # LangChain's prompt values
    return to_messages() if callable(to_messages) else None


def _message(value: Any) -> dict[str, Any] | None:
    """Return LangChain's message as everybody else writes it, or None for anything else."""
    kind, content = getattr(value, "type", None), getattr(value, "content", None)
    more = getattr(value, "additional_kwargs", None)
    if not isinstance(kind, str) or content is None or not isinstance(more, dict):
        return None
    message: dict[str, Any] = {"role": _ROLES.get(kind, kind), "content": content}
    for name in ("tool_calls", "tool_call_id", "name"):
        detail = getattr(value, name, None)
        if detail:
            message[name] = detail
    return message


def shown_output(output: Any, answer: Answer) -> Any:
    """Return a text of a text, a message of a message; else the output itself.

    Args:
        output: What came back, a stream's chunks as a tuple.
        answer: What it says.
    """
    if answer.content is None or isinstance(output, list):  # an answer of its own kind, no stream
        return cast("object", output)
    pieces = cast("tuple[object, ...]", output if isinstance(output, tuple) else (output,))
    if not isinstance(answer.content, str) or all(isinstance(piece, str) for piece in pieces):
        return answer.content
    return {"role": "assistant", "content": answer.content}
