"""Cut points over real tokenisations, in the chunks of real SDKs: no word is lost or doubled."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from anthropic.types import RawContentBlockDeltaEvent
from google.genai.types import GenerateContentResponse
from openai.types.chat import ChatCompletionChunk
from openai.types.responses import ResponseTextDeltaEvent

from honcho_fallback import FallbackConfig, FallbackPolicy, Target, read_answer
from tests.helpers.wire import block_delta, part

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from honcho_fallback import Attempt

pytestmark = pytest.mark.timeout(120)
TEXTS = {
    "prose": (
        "Dear Ms. O'Neill,\n\nthe harbour was quiet on the 3rd; two boats came in before noon — "
        "late, as ever. Would you send the papers? We'd rather not wait a week.\n\nYours, K."
    ),
    "a table": "| a | b |\n|---|---|\n| 1 | 2 |\n| 1 | 2 |\n| 1 | 3 |\n\nThat is all of it.",
    "code": "def f(n):\n    if n < 2:\n        return n\n    return f(n - 1) + f(n - 2)\n\nf(9)",
    "other scripts": (
        "\u6771\u4eac\u306f\u4eca\u65e5\u3082\u96e8\u3067\u3059\u3002"
        "\u041f\u0440\u0438\u0432\u0435\u0442, \u043c\u0438\u0440! \u00bfQu\u00e9 tal? "
        "\u0645\u0631\u062d\u0628\u0627 \U0001f469\u200d\U0001f680\U0001f680 done."
    ),
}


def chat(text: str, finish: str | None = None) -> Any:
    return ChatCompletionChunk.model_validate(part(finish, role="assistant", content=text))


def claude(text: str, finish: str | None = None) -> Any:
    if finish:
        return {"type": "message_delta", "delta": {"stop_reason": "end_turn"}}
    delta = block_delta({"type": "text_delta", "text": text})
    return RawContentBlockDeltaEvent.model_validate(delta)


def gemini(text: str, finish: str | None = None) -> Any:
    candidate = {"content": {"role": "model", "parts": [{"text": text}]}}
    end = {"finish_reason": "STOP"} if finish else {}
    return GenerateContentResponse.model_validate({"candidates": [candidate | end]})


def responses(text: str, finish: str | None = None) -> Any:
    if finish:
        document = {"object": "response", "status": "completed", "output": []}
        return {"type": "response.completed", "response": document}
    fields = {"content_index": 0, "item_id": "i", "output_index": 0, "sequence_number": 1}
    kind = "response.output_text.delta"
    return ResponseTextDeltaEvent.model_validate(
        {"type": kind, "delta": text, "logprobs": [], **fields}
    )


def langchain(text: str, finish: str | None = None) -> Any:
    messages = pytest.importorskip("langchain_core.messages")
    metadata = {"finish_reason": "stop"} if finish else {}
    return messages.AIMessageChunk(content=text, response_metadata=metadata)


def tokens_of(text: str) -> list[str]:
    """Cut a text as OpenAI's tokens do; those that end within a letter come with the next."""
    encoding = pytest.importorskip("litellm").encoding
    pieces: list[str] = []
    rest = b""
    for token in encoding.encode(text):
        rest += encoding.decode_single_token_bytes(token)
        try:
            pieces.append(rest.decode())
        except UnicodeDecodeError:
            continue
        rest = b""
    return pieces


# What the next model says of a text, with its beginning before it.
GOES_ON: dict[str, Callable[[str, str], str]] = {
    "follows": lambda text, partial: text.removeprefix(partial),
    "repeats": lambda text, partial: partial[-25:] + text.removeprefix(partial),
    "begins again": lambda text, _: text,
}
SHAPES = [(one, one) for one in (chat, claude, gemini, responses, langchain)]
SHAPES += [(chat, claude), (claude, gemini), (responses, chat)]


@pytest.mark.parametrize("how", GOES_ON)
@pytest.mark.parametrize(("shape", "others"), SHAPES)
@pytest.mark.parametrize("name", TEXTS)
def test_no_cut_loses_or_doubles_a_word(
    name: str,
    shape: Callable[..., Any],
    others: Callable[..., Any],
    how: str,
) -> None:
    """Wherever it breaks, whether the model follows, repeats its last words or begins again."""
    text = TEXTS[name]
    pieces, goes_on = tokens_of(text), GOES_ON[how]
    targets = [Target("primary"), Target("able", prefill=True)]
    policy = FallbackPolicy(targets, FallbackConfig(wait=0))

    def ask(attempt: Attempt) -> Iterator[Any]:
        if attempt.position == 0:
            yield from map(shape, pieces[:cut])
            raise ConnectionResetError
        yield from map(others, tokens_of(goes_on(text, attempt.partial)))
        yield others("", "stop")

    for cut in range(1, len(pieces)):
        before = "".join(pieces[:cut])
        # A few letters that come again may be meant so: they are left where they are.
        if how != "follows" and len(before.rstrip()) < 25:
            continue
        chunks = [*policy.stream(ask, partial="continue")]
        whole = "".join(str(read_answer([one]).content or "") for one in chunks)
        # Cells that come again may be meant so: in doubt nothing is dropped.
        kept = before + goes_on(text, before.rstrip()) if name == "a table" else text
        assert whole in {text, kept}, (cut, before[-30:])
