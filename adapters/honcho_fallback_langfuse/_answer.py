"""What was said, as Langfuse shows it: a text of a text, a message of a message."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from honcho_fallback import Answer


def shown(output: Any, answer: Answer) -> Any:
    """Return what was said; the output itself where nobody knows what it says.

    Args:
        output: An SDK's answer, or the tuple of a stream's chunks.
        answer: What was read in it.
    """
    content = answer.content
    if content is None or type(output) is list:  # a list is no stream here
        return list(output) if isinstance(output, tuple) else output
    first = output[0] if isinstance(output, tuple) and output else output
    if isinstance(content, str) and content is not output and not isinstance(first, str | tuple):
        return {"role": "assistant", "content": content}
    return content
