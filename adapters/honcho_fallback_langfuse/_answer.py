"""What was said, out of the answers and chunks of the SDKs; by shape, without any SDK."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from honcho_fallback_langfuse._content import as_message
from honcho_fallback_langfuse._shape import is_sequence, part, parts, pieces, text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


def answer(output: Any) -> Any:
    """Return what was said: a text, a message, or the output itself where it is neither.

    Args:
        output: An SDK's answer, or the tuple of a stream's chunks.
    """
    if isinstance(output, tuple):
        return _joined(pieces(output))
    for read in _READERS:
        found = read(output)
        if found is not None:
            return found
    return output


def _chat(output: Any) -> Any:
    # OpenAI's chat completions and all that copy them, LiteLLM's too.
    said = [part(choice, "message") or text(choice, "text") for choice in parts(output, "choices")]
    return (said[0] if len(said) == 1 else said) or None


def _generation(output: Any) -> Any:
    # LangChain's ChatResult and LLMResult; the latter has a list per prompt.
    found = parts(output, "generations")
    while found and is_sequence(found[0]):
        found = list(found[0])
    return (part(found[0], "message") or part(found[0], "text")) if found else None


def _blocks(output: Any) -> Any:
    # Anthropic's message: alone, a text is more readable than a list of one block.
    if text(output, "type") != "message":
        return None
    blocks = parts(output, "content")
    texts = [text(block, "text") for block in blocks if text(block, "type") == "text"]
    content = texts[0] if len(texts) == len(blocks) == 1 else blocks
    return {"role": "assistant", "content": content}


def _response(output: Any) -> Any:
    # OpenAI's responses.
    if text(output, "object") != "response":
        return None
    return text(output, "output_text") or part(output, "output")


def _candidates(output: Any) -> Any:
    # Gemini's.
    if not parts(output, "candidates"):
        return None
    said = _Said()
    _hear_candidates(output, said)
    return said.whole()


def _agent(output: Any) -> Any:
    # The response that LangChain's middleware passes on; mostly there is one message.
    said = [message for one in parts(output, "result") if (message := as_message(one))]
    return (said[0] if len(said) == 1 else said) or None


_READERS: tuple[Callable[[Any], Any], ...] = (
    _chat,
    as_message,
    _generation,
    _blocks,
    _response,
    _candidates,
    _agent,
)


class _Said:
    """Put an answer together from its pieces."""

    __slots__ = ("calls", "is_text", "texts")

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.calls: dict[Any, dict[str, Any]] = {}
        self.is_text = True

    def call(self, index: Any, name: Any, arguments: Any) -> None:
        """Take a piece of a tool call."""
        call = self.calls.setdefault(index, {"name": "", "arguments": ""})
        call["name"] += name if isinstance(name, str) else ""
        if isinstance(arguments, str):
            call["arguments"] += arguments
        elif arguments:
            call["arguments"] = arguments

    def whole(self) -> Any:
        """Return all of it: a text where the pieces were texts, else a message."""
        content = "".join(self.texts)
        if self.is_text:
            return content
        message: dict[str, Any] = {"role": "assistant", "content": content}
        if self.calls:
            message["tool_calls"] = list(self.calls.values())
        return message


def _joined(chunks: tuple[Any, ...]) -> Any:
    said = _Said()
    for chunk in chunks:
        if isinstance(chunk, str):
            said.texts.append(chunk)
            continue
        said.is_text = False
        if not any(hear(chunk, said) for hear in _LISTENERS):
            return list(chunks)
    return said.whole()


def _hear_chat(chunk: Any, said: _Said) -> bool:
    if not is_sequence(part(chunk, "choices")):
        return False
    for choice in parts(chunk, "choices")[:1]:
        delta = part(choice, "delta")
        said.texts.append(text(delta, "content") or text(choice, "text"))
        for call in parts(delta, "tool_calls"):
            function = part(call, "function")
            said.call(part(call, "index"), part(function, "name"), part(function, "arguments"))
    return True


def _hear_message(chunk: Any, said: _Said) -> bool:
    # LangChain's chunks, bare or inside a ChatGenerationChunk.
    message = chunk if part(chunk, "additional_kwargs") is not None else part(chunk, "message")
    if as_message(message) is None:
        return False
    content = part(message, "content")
    said.texts.append(content if isinstance(content, str) else _texts(content))
    for call in parts(message, "tool_call_chunks") or parts(message, "tool_calls"):
        said.call(part(call, "index"), part(call, "name"), part(call, "args"))
    return True


def _texts(blocks: Iterable[Any]) -> str:
    return "".join(block if isinstance(block, str) else text(block, "text") for block in blocks)


_EVENTS = ("message_", "content_block_", "response.", "ping")


def _hear_event(chunk: Any, said: _Said) -> bool:
    # Anthropic's and OpenAI's events are told apart by their types.
    kind = text(chunk, "type")
    if not kind.startswith(_EVENTS):
        return False
    index = part(chunk, "index")
    if kind == "content_block_start":
        block = part(chunk, "content_block")
        if text(block, "type") == "tool_use":
            said.call(index, part(block, "name"), None)
    elif kind == "content_block_delta":
        delta = part(chunk, "delta")
        said.texts.append(text(delta, "text"))
        if text(delta, "type") == "input_json_delta":
            said.call(index, None, part(delta, "partial_json"))
    elif kind == "response.output_text.delta":
        said.texts.append(text(chunk, "delta"))
    elif kind == "response.output_item.done":
        item = part(chunk, "item")
        if text(item, "type") == "function_call":
            said.call(part(chunk, "output_index"), part(item, "name"), part(item, "arguments"))
    return True


def _hear_candidates(chunk: Any, said: _Said) -> bool:
    if part(chunk, "candidates") is None and part(chunk, "usage_metadata") is None:
        return False
    said.is_text = False
    for candidate in parts(chunk, "candidates")[:1]:
        for piece in parts(part(candidate, "content"), "parts"):
            if part(piece, "thought") is not True:
                said.texts.append(text(piece, "text"))
            call = part(piece, "function_call")
            if call is not None:
                said.call(len(said.calls), part(call, "name"), part(call, "args"))
    return True


_LISTENERS: tuple[Callable[[Any, _Said], bool], ...] = (
    _hear_chat,
    _hear_message,
    _hear_event,
    _hear_candidates,
)
