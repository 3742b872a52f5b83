"""Tokens and answers of every SDK, real objects and plain dicts alike, in one form."""

from __future__ import annotations

from typing import Any

import pytest
from anthropic.types import Message, RawMessageStreamEvent
from google.genai.types import GenerateContentResponse
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from openai.types.responses import Response
from pydantic import TypeAdapter

from honcho_fallback import read_answer
from honcho_fallback_langfuse._content import plain
from honcho_fallback_langfuse._generation import shown_output
from honcho_fallback_langfuse._record_fields import Usage
from honcho_fallback_langfuse._record_fields import read_usage as read_from
from tests.helpers.wire import (
    CHAT_USAGE,
    GEMINI_USAGE,
    RESPONSES_USAGE,
    Json,
    block_delta,
    block_start,
    chat_answer,
    chat_chunk,
    message_answer,
    message_delta,
    message_start,
    response_text,
    responses_answer,
    text_block,
)

CHAT = chat_answer("hello")
MESSAGE = message_answer(text_block("hello"))
GEMINI = {
    "candidates": [{"content": {"role": "model", "parts": [{"text": "hello"}]}}],
    "usage_metadata": GEMINI_USAGE,
}
LANGCHAIN_USAGE = {
    "input_tokens": 12,
    "output_tokens": 7,
    "total_tokens": 19,
    "input_token_details": {"cache_read": 4},
    "output_token_details": {"reasoning": 2},
}

BUCKETS = {
    "input": 8,
    "output": 5,
    "input_cached_tokens": 4,
    "output_reasoning_tokens": 2,
    "total": 19,
}
CACHED_BUCKETS = {
    "input": 8,
    "output": 7,
    "input_cached_tokens": 4,
    "input_cache_creation": 3,
    "total": 22,
}


def response() -> Response:
    return Response.model_validate(responses_answer(response_text("hello")))


def chat_chunks(*, usage: bool = True) -> tuple[Any, ...]:
    deltas: list[Json] = [
        {"role": "assistant", "content": ""},
        {"content": "hel"},
        {"content": "lo"},
    ]
    chunks = [chat_chunk(delta) for delta in deltas]
    if usage:
        chunks.append(chat_chunk(None, usage=CHAT_USAGE))
    return tuple(ChatCompletionChunk.model_validate(one) for one in chunks)


def anthropic_events() -> tuple[Any, ...]:
    events = [
        message_start(MESSAGE),
        block_start(text_block("")),
        block_delta({"type": "text_delta", "text": "hello"}),
        {**message_delta(MESSAGE), "usage": {"output_tokens": 7}},
    ]
    event: TypeAdapter[Any] = TypeAdapter(RawMessageStreamEvent)
    return tuple(event.validate_python(one) for one in events)


def gemini_chunks() -> tuple[Any, ...]:
    early = {**GEMINI, "usage_metadata": {"prompt_token_count": 12, "total_token_count": 12}}
    late = {
        "candidates": [{"content": {"role": "model", "parts": []}}],
        "usage_metadata": GEMINI["usage_metadata"],
    }
    return tuple(GenerateContentResponse.model_validate(one) for one in (early, late))


ANSWERS: dict[str, tuple[Any, dict[str, int]]] = {
    "openai chat": (ChatCompletion.model_validate(CHAT), BUCKETS),
    "openai chat, a dict": (CHAT, BUCKETS),
    "openai chat, streamed": (chat_chunks(), BUCKETS),
    "openai responses": (response(), BUCKETS),
    "anthropic": (Message.model_validate(MESSAGE), CACHED_BUCKETS),
    "anthropic, a dict": (MESSAGE, CACHED_BUCKETS),
    "anthropic, streamed": (anthropic_events(), CACHED_BUCKETS),
    "google-genai": (GenerateContentResponse.model_validate(GEMINI), BUCKETS),
    "google-genai, streamed": (gemini_chunks(), BUCKETS),
}


def answer(output: Any) -> Any:
    """Return what is shown of an answer."""
    return shown_output(output, read_answer(output))


def read_usage(reported: Any, output: Any) -> Usage | None:
    """Read what a call cost."""
    return read_from(reported, read_answer(output))


def said(output: Any) -> Any:
    """Return the text of an answer, whichever form it has."""
    found = plain(answer(output))
    return found if isinstance(found, str) else found["content"]


@pytest.mark.parametrize("name", ANSWERS)
def test_every_sdk_is_understood(name: str) -> None:
    """HON-065, HON-070: one reader for answers and streams, exclusive buckets; text is found."""
    output, buckets = ANSWERS[name]
    usage = read_usage(None, output)
    assert usage is not None
    assert usage.buckets() == buckets
    assert usage.source == "provider"
    assert said(output) == "hello"


def test_langchain_is_understood() -> None:
    """Messages and the sum of their chunks carry usage_metadata, which is inclusive."""
    messages = pytest.importorskip("langchain_core.messages")
    outputs = pytest.importorskip("langchain_core.outputs")
    whole = messages.AIMessage("hello", usage_metadata=LANGCHAIN_USAGE)
    first: dict[str, Any] = {"input_tokens": 12, "output_tokens": 0, "total_tokens": 12}
    first["input_token_details"] = {"cache_read": 4}
    last: dict[str, Any] = {"input_tokens": 0, "output_tokens": 7, "total_tokens": 7}
    last["output_token_details"] = {"reasoning": 2}
    chunks = (
        messages.AIMessageChunk("hel", usage_metadata=first),
        messages.AIMessageChunk("lo", usage_metadata=last),
    )
    # In a long stream the share of every chunk counts, not only of the first and the last.
    long = (messages.AIMessageChunk(""),) * 20 + chunks + (messages.AIMessageChunk(""),) * 20
    generations = tuple(outputs.ChatGenerationChunk(message=chunk) for chunk in chunks)
    result = outputs.ChatResult(generations=[outputs.ChatGeneration(message=whole)])
    for output in (whole, chunks, long, generations):
        usage = read_usage(None, output)
        assert usage is not None
        assert usage.buckets() == BUCKETS
        assert said(output) == "hello"
    assert said(result) == "hello"
    called = read_usage(LANGCHAIN_USAGE, chunks)
    assert called is not None
    assert called.buckets() == BUCKETS


def test_langchain_s_split_cache_creation_is_added_up() -> None:
    """langchain-anthropic splits the cache creation by lifetime and leaves 0 in the sum."""
    details = {"cache_creation": 0, "ephemeral_5m_input_tokens": 2, "ephemeral_1h_input_tokens": 1}
    usage = read_usage(
        {
            "input_tokens": 11,
            "output_tokens": 7,
            "total_tokens": 18,
            "input_token_details": details,
        },
        None,
    )
    assert usage is not None
    assert usage.buckets() == {
        "input": 8,
        "output": 7,
        "input_cache_creation": 3,
        "total": 18,
    }


@pytest.mark.filterwarnings("ignore")  # of its own imports
def test_litellm_is_understood(monkeypatch: pytest.MonkeyPatch) -> None:
    """LiteLLM's usage is OpenAI's with more beside it, its cost stands beside the answer."""
    monkeypatch.setenv("LITELLM_LOCAL_MODEL_COST_MAP", "True")  # asks the network otherwise
    litellm = pytest.importorskip("litellm")
    usage = litellm.Usage(**CHAT_USAGE, cache_read_input_tokens=4, cache_creation_input_tokens=0)
    whole = litellm.ModelResponse(**{**CHAT, "usage": usage})
    whole._hidden_params = {"response_cost": 0.25}
    read = read_usage(None, whole)
    assert read is not None
    assert read.buckets() == BUCKETS
    assert read.cost == 0.25
    assert said(whole) == "hello"
    chunk = litellm.ModelResponseStream(
        choices=[{"index": 0, "delta": {"content": "hello", "role": "assistant"}}]
    )
    last = litellm.ModelResponseStream(choices=[], usage=usage)
    streamed = read_usage(None, (chunk, last))
    assert streamed is not None
    assert streamed.buckets() == BUCKETS
    assert said((chunk, last)) == "hello"


CACHED = {"cached_tokens": 4}
OTHERS: dict[str, tuple[Any, dict[str, int]]] = {
    "no details": (
        {"prompt_tokens": 3, "completion_tokens": 2},
        {"input": 3, "output": 2, "total": 5},
    ),
    "only the output": ({"output_tokens": 2}, {"output": 2, "total": 2}),
    "bedrock": (
        {
            "inputTokens": 8,
            "outputTokens": 7,
            "totalTokens": 22,
            "cacheReadInputTokens": 4,
            "cacheWriteInputTokens": 3,
        },
        CACHED_BUCKETS,
    ),
    "gemini over REST": (
        {
            "promptTokenCount": 12,
            "cachedContentTokenCount": 4,
            "candidatesTokenCount": 5,
            "thoughtsTokenCount": 2,
            "totalTokenCount": 19,
        },
        BUCKETS,
    ),
    "ollama": ({"prompt_eval_count": 3, "eval_count": 2}, {"input": 3, "output": 2, "total": 5}),
    "reasoning outside of completion_tokens": (
        {**CHAT_USAGE, "completion_tokens": 5},
        BUCKETS,
    ),
    "zeros": (
        {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0},
        {"input": 0, "output": 0, "total": 0},
    ),
    "more cached than asked": (
        {
            "prompt_tokens": 1,
            "completion_tokens": 1,
            "prompt_tokens_details": {"cached_tokens": 4},
        },
        {"input": 0, "output": 1, "input_cached_tokens": 4, "total": 5},
    ),
}


@pytest.mark.parametrize("name", OTHERS)
def test_what_a_caller_reports_is_understood(name: str) -> None:
    """HON-066: what nobody counted is left out, and what is odd never becomes negative."""
    reported, buckets = OTHERS[name]
    usage = read_usage(reported, None)
    assert usage is not None
    assert usage.buckets() == buckets


@pytest.mark.parametrize(
    "reported",
    [None, {}, {"prompt_tokens": True}, {"prompt_tokens": -1}, {"input_tokens": "12"}, "12", 12],
)
def test_nothing_is_invented(reported: Any) -> None:
    """HON-066: without a count there is no usage; a bool, a text or a negative is no count."""
    assert read_usage(reported, "an answer") is None


def test_what_a_caller_reports_goes_before_the_answer() -> None:
    """The caller knows best; where its report says nothing, the answer is read."""
    usage = read_usage({"output_tokens": 1}, CHAT)
    assert usage == Usage({"output_tokens": 1})
    fallen_back = read_usage({"note": "nothing"}, CHAT)
    assert fallen_back is not None
    assert fallen_back.buckets() == BUCKETS


def test_an_estimate_is_called_one() -> None:
    """Only who reports an estimate as such gets one."""
    usage = read_usage({"input_tokens": 1, "output_tokens": 1, "usage_source": "estimated"}, None)
    assert usage is not None
    assert usage.source == "estimated"


@pytest.mark.parametrize(("cost", "known"), [(0.5, 0.5), (0, None), (-1, None), ("1", None)])
def test_a_cost_is_taken_where_it_is_one(cost: Any, known: float | None) -> None:
    """OpenRouter tells a cost; zero is left out, for it would switch Langfuse's prices off."""
    usage = read_usage(None, {"usage": {**CHAT_USAGE, "cost": cost}})
    assert usage is not None
    assert usage.cost == known


def test_a_long_stream_is_read_at_its_ends() -> None:
    """Usage in the last chunks is found without a look into the thousands before."""

    class Chunk:
        looked = 0

        @property
        def choices(self) -> list[Any]:
            return []

        def __getattr__(self, name: str) -> Any:
            Chunk.looked += 1
            raise AttributeError(name)

    usage = read_usage(None, (Chunk(),) * 5000 + chat_chunks())
    assert usage is not None
    assert usage.buckets() == BUCKETS
    assert Chunk.looked < 2000


def test_tool_calls_are_put_together() -> None:
    """A streamed tool call is one call with its name and all its arguments, in each dialect."""
    body = {"id": "1", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    pieces = [
        {"index": 0, "id": "t", "function": {"name": "clock", "arguments": ""}},
        {"index": 0, "function": {"arguments": '{"city"'}},
        {"index": 0, "function": {"arguments": ': "Rome"}'}},
    ]
    chat = tuple(
        ChatCompletionChunk.model_validate(
            {**body, "choices": [{"index": 0, "delta": {"tool_calls": [piece]}}]}
        )
        for piece in pieces
    )
    used = {"type": "tool_use", "id": "t", "name": "clock", "input": {}}
    events: TypeAdapter[Any] = TypeAdapter(RawMessageStreamEvent)
    anthropic = tuple(
        events.validate_python(event)
        for event in (
            {"type": "content_block_start", "index": 1, "content_block": used},
            *(
                {
                    "type": "content_block_delta",
                    "index": 1,
                    "delta": {"type": "input_json_delta", "partial_json": half},
                }
                for half in ('{"city"', ': "Rome"}')
            ),
        )
    )
    responses = (
        {"type": "response.created"},
        {
            "type": "response.output_item.done",
            "output_index": 0,
            "item": {"type": "function_call", "name": "clock", "arguments": '{"city": "Rome"}'},
        },
    )
    call = {"name": "clock", "arguments": '{"city": "Rome"}'}
    for chunks in (chat, anthropic, responses):
        assert answer(chunks) == {"role": "assistant", "content": "", "tool_calls": [call]}


def test_the_responses_stream_is_understood() -> None:
    """OpenAI's response stream tells text in events, and the usage with its last one."""
    events = (
        {"type": "response.created", "response": {"usage": None}},
        {"type": "response.output_text.delta", "delta": "hel"},
        {"type": "response.output_text.delta", "delta": "lo"},
        {"type": "response.completed", "response": {"usage": RESPONSES_USAGE}},
    )
    usage = read_usage(None, events)
    assert usage is not None
    assert usage.buckets() == BUCKETS
    assert said(events) == "hello"


def test_what_is_not_known_is_shown_as_it_is() -> None:
    """Texts join, other chunks stay a list, other answers stay themselves."""
    assert answer(("hel", "lo")) == "hello"
    assert answer(({"a": 1}, {"a": 2})) == [{"a": 1}, {"a": 2}]
    typed = {"type": "text", "text": "hello"}
    assert answer((typed, typed)) == [typed, typed]
    assert answer({"a": 1}) == {"a": 1}
    assert answer(()) == ""
