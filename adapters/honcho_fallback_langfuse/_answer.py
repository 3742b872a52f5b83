"""What was said, as Langfuse shows it: a text of a text, a message of a message."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from honcho_fallback_langfuse._content import is_sequence

if TYPE_CHECKING:
    from honcho_fallback import Answer


def shown(output: Any, answer: Answer) -> Any:
    """Return what was said; the output itself where nobody knows what it says."""
    pieces = output if is_sequence(output) else (output,)
    # A list is an answer of its own kind, no stream.
    if answer.content is None or isinstance(pieces, list):
        return [*pieces] if is_sequence(output) else output
    if not isinstance(answer.content, str) or all(isinstance(piece, str) for piece in pieces):
        return answer.content
    return {"role": "assistant", "content": answer.content}
