"""Tokens and answers of every SDK, real objects and plain dicts alike, in one form."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from anthropic.types import Message, RawMessageStreamEvent
from google.genai.types import GenerateContentResponse
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from openai.types.responses import Response
from pydantic import TypeAdapter

from honcho_fallback import FallbackPolicy, Target
from honcho_fallback_langfuse import LangfuseCallbackHandler
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

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.helpers.langfuse_memory import Memory
    from tests.helpers.langfuse_server import Stored

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


@pytest.fixture
def stored(memory: Memory) -> Callable[..., Stored]:
    """Return what a server stores of a call that answered, and of what it is said to have cost."""
    policy = FallbackPolicy([Target("one")], observers=[LangfuseCallbackHandler(memory.client)])

    def store(output: Any, reported: Any = None) -> Stored:
        memory.clear()
        run = policy.start()
        run.report(output=output)
        run.succeed(usage=reported)
        return memory.only()

    return store


def text_of(one: Stored) -> Any:
    """Return the text of an answer, whichever form it has."""
    return one.output if isinstance(one.output, str) else one.output["content"]


def test_every_sdk_is_understood(stored: Callable[..., Stored]) -> None:
    """HON-065, HON-070: one reader for answers and streams, exclusive buckets; text is found."""
    read = {name: stored(output) for name, (output, _) in ANSWERS.items()}
    assert {name: one.usage for name, one in read.items()} == {
        name: buckets for name, (_, buckets) in ANSWERS.items()
    }
    assert {text_of(one) for one in read.values()} == {"hello"}
    assert {one.metadata["usage_source"] for one in read.values()} == {"provider"}


def test_langchain_is_understood(stored: Callable[..., Stored]) -> None:
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
    for output in (whole, chunks, long, generations):
        one = stored(output)
        assert (one.usage, text_of(one)) == (BUCKETS, "hello")
    result = outputs.ChatResult(generations=[outputs.ChatGeneration(message=whole)])
    assert text_of(stored(result)) == "hello"
    assert stored(chunks, LANGCHAIN_USAGE).usage == BUCKETS


@pytest.mark.filterwarnings("ignore")  # of its own imports
def test_litellm_is_understood(
    monkeypatch: pytest.MonkeyPatch, stored: Callable[..., Stored]
) -> None:
    """LiteLLM's usage is OpenAI's with more beside it, its cost stands beside the answer."""
    litellm = pytest.importorskip("litellm")
    usage = litellm.Usage(**CHAT_USAGE, cache_read_input_tokens=4, cache_creation_input_tokens=0)
    whole = litellm.ModelResponse(**{**CHAT, "usage": usage})
    whole._hidden_params = {"response_cost": 0.25}
    one = stored(whole)
    assert (one.usage, one.cost, text_of(one)) == (BUCKETS, {"total": 0.25}, "hello")
    chunk = litellm.ModelResponseStream(
        choices=[{"index": 0, "delta": {"content": "hello", "role": "assistant"}}]
    )
    last = litellm.ModelResponseStream(choices=[], usage=usage)
    streamed = stored((chunk, last))
    assert (streamed.usage, text_of(streamed)) == (BUCKETS, "hello")


REPORTED: dict[str, tuple[Any, dict[str, int]]] = {
    "only the output": ({"output_tokens": 2}, {"output": 2, "total": 2}),
    "langchain-anthropic, whose sum leaves out what it splits": (
        {
            "input_tokens": 11,
            "output_tokens": 7,
            "total_tokens": 18,
            "input_token_details": {
                "cache_creation": 0,
                "ephemeral_5m_input_tokens": 2,
                "ephemeral_1h_input_tokens": 1,
            },
        },
        {"input": 8, "output": 7, "input_cache_creation": 3, "total": 18},
    ),
    "reasoning outside of completion_tokens": ({**CHAT_USAGE, "completion_tokens": 5}, BUCKETS),
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
    "nothing": ({}, {}),
    "a bool": ({"prompt_tokens": True}, {}),
    "a negative": ({"prompt_tokens": -1}, {}),
    "a text": ({"input_tokens": "12"}, {}),
}


def test_what_a_caller_reports_is_understood(stored: Callable[..., Stored]) -> None:
    """HON-066: what nobody counted is left out, what is odd is no count and never negative."""
    read = {name: stored("hello", reported) for name, (reported, _) in REPORTED.items()}
    assert {name: one.usage for name, one in read.items()} == {
        name: buckets for name, (_, buckets) in REPORTED.items()
    }


def test_what_a_caller_reports_goes_before_the_answer(stored: Callable[..., Stored]) -> None:
    """The caller knows best; where its report says nothing, the answer is read."""
    assert stored(CHAT, {"output_tokens": 1}).usage == {"output": 1, "total": 1}
    assert stored(CHAT, {"note": "nothing"}).usage == BUCKETS


def test_a_cost_is_taken_where_it_is_one(stored: Callable[..., Stored]) -> None:
    """OpenRouter tells a cost; zero is left out, for it would switch Langfuse's prices off."""
    costs = {
        cost: stored({"usage": {**CHAT_USAGE, "cost": cost}}).cost for cost in (0.5, 0, -1, "1")
    }
    assert costs == {0.5: {"total": 0.5}, 0: {}, -1: {}, "1": {}}


def test_tool_calls_are_put_together(stored: Callable[..., Stored]) -> None:
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
        assert stored(chunks).output == {"role": "assistant", "content": "", "tool_calls": [call]}


def test_the_responses_stream_is_understood(stored: Callable[..., Stored]) -> None:
    """OpenAI's response stream tells text in events, and the usage with its last one."""
    events = (
        {"type": "response.created", "response": {"usage": None}},
        {"type": "response.output_text.delta", "delta": "hel"},
        {"type": "response.output_text.delta", "delta": "lo"},
        {"type": "response.completed", "response": {"usage": RESPONSES_USAGE}},
    )
    one = stored(events)
    assert (one.usage, text_of(one)) == (BUCKETS, "hello")


def test_what_is_not_known_is_shown_as_it_is(stored: Callable[..., Stored]) -> None:
    """Texts join, other chunks stay a list, other answers stay themselves."""
    typed = {"type": "text", "text": "hello"}
    assert stored(("hel", "lo")).output == "hello"
    assert stored(({"a": 1}, {"a": 2})).output == [{"a": 1}, {"a": 2}]
    assert stored((typed, typed)).output == [typed, typed]
    assert stored({"a": 1}).output == {"a": 1}
