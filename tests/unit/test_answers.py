"""What read_answer, has_content and thinks make of real answers, chunks, events and dicts."""

from __future__ import annotations

import warnings
from typing import Any

import anthropic.types
import openai.types.chat
import openai.types.responses
import pytest
from anthropic.lib.streaming import TextEvent
from google.genai import types as genai
from hypothesis import given
from hypothesis import strategies as st
from openai.lib.streaming.chat import ChunkEvent, ContentDeltaEvent
from openai.types.completion import Completion
from pydantic import TypeAdapter

from honcho_fallback import Answer, FailureKind, check_response, has_content, read_answer
from honcho_fallback._classify._answers import BROKEN, EMPTY, thinks
from honcho_fallback._classify._content import SHAPES
from honcho_fallback._classify._usage import usage_of
from tests.helpers import wire
from tests.helpers.wire import (
    CHAT_USAGE,
    COUNTS,
    GEMINI_USAGE,
    MESSAGE_COUNTS,
    Json,
    part,
)

CHAT_EVENT: TypeAdapter[Any] = TypeAdapter(openai.types.chat.ChatCompletionChunk)
RESPONSE_EVENT: TypeAdapter[Any] = TypeAdapter(openai.types.responses.ResponseStreamEvent)
MESSAGE_EVENT: TypeAdapter[Any] = TypeAdapter(anthropic.types.RawMessageStreamEvent)
GEMINI: TypeAdapter[Any] = TypeAdapter(genai.GenerateContentResponse)

LANGCHAIN_USAGE: Json = {
    "input_tokens": 12,
    "output_tokens": 7,
    "total_tokens": 19,
    "input_token_details": {"cache_read": 4},
    "output_token_details": {"reasoning": 2},
}
CLOCK = {"name": "clock", "arguments": '{"city": "Rome"}'}


def message(**fields: Any) -> Json:
    return {"role": "assistant", "content": None, **fields}


def chat(finish: str = "stop", content: str | None = None, **fields: Any) -> Json:
    return wire.chat_answer(content, model="m", finish=finish, **fields)


def completion(text: str) -> Json:
    choice = {"index": 0, "text": text, "finish_reason": "stop", "logprobs": None}
    document = {"id": "1", "object": "text_completion", "created": 1, "model": "m"}
    return {**document, "choices": [choice], "usage": CHAT_USAGE}


USAGE_CHUNK = wire.chat_chunk(None, model="m", usage=CHAT_USAGE)


def claude(*content: Json, stop: str = "end_turn") -> Json:
    return wire.message_answer(*content, model="m", stop=stop)


def block(index: int = 0, **fields: Any) -> Json:
    return wire.block_start(fields, index)


def delta(index: int = 0, **fields: Any) -> Json:
    return wire.block_delta(fields, index)


START = wire.message_start(claude())
# As servers end a stream that tell only what is new.
STOP = {**wire.message_delta(claude()), "usage": {"output_tokens": 7}}


def gemini(*parts: Json, finish: str | None = "STOP") -> Json:
    candidate = {"content": {"role": "model", "parts": [*parts]}, "finish_reason": finish}
    return {"candidates": [candidate], "model_version": "m", "usage_metadata": GEMINI_USAGE}


def reply(*output: Json, status: str = "completed") -> Json:
    return {**wire.responses_answer(*output, model="m"), "status": status}


def spoken(text: str | None) -> Json:
    item = wire.response_text(text or "")
    return item if text is not None else {**item, "content": []}


def item(place: str, **fields: Any) -> Json:
    event = {"type": f"response.output_item.{place}", "output_index": 0, "sequence_number": 1}
    return {**event, "item": {"id": "i", "status": "in_progress", **fields}}


def event(kind: str, **fields: Any) -> Json:
    where = {"item_id": "i", "output_index": 0, "content_index": 0, "sequence_number": 1}
    return {"type": f"response.{kind}", **where, **fields}


CALL = {"id": "c", "type": "function", "function": CLOCK}
THOUGHT = {"id": "r", "type": "reasoning", "summary": []}
WEATHER = {"type": "function_call", "call_id": "c", **CLOCK}
CALLING = message(content="", tool_calls=[CLOCK])


# --- whole answers

WHOLE: dict[str, tuple[Any, Any, Answer]] = {
    "openai chat": (
        openai.types.chat.ChatCompletion,
        chat(content="hello"),
        Answer("hello", COUNTS, "stop", "m"),
    ),
    "openai, legacy": (Completion, completion("hello"), Answer("hello", COUNTS, "stop", "m")),
    "openai chat, empty": (
        openai.types.chat.ChatCompletion,
        chat(content=""),
        Answer("", COUNTS, "stop", "m"),
    ),
    "openai responses": (
        openai.types.responses.Response,
        reply(THOUGHT, spoken("hello")),
        Answer("hello", COUNTS, "completed", "m"),
    ),
    "anthropic": (
        anthropic.types.Message,
        claude({"type": "text", "text": "hello"}),
        Answer("hello", MESSAGE_COUNTS, "end_turn", "m"),
    ),
    "google-genai": (
        genai.GenerateContentResponse,
        gemini({"text": "hm", "thought": True}, {"text": "hello"}),
        Answer("hello", COUNTS, "stop", "m"),
    ),
    "google-genai, a call": (
        genai.GenerateContentResponse,
        gemini({"function_call": {"name": "clock", "args": {"city": "Rome"}}}),
        Answer(
            message(content="", tool_calls=[{"name": "clock", "arguments": {"city": "Rome"}}]),
            COUNTS,
            "stop",
            "m",
        ),
    ),
}


@pytest.mark.parametrize("name", WHOLE)
def test_an_answer_is_read(name: str) -> None:
    """The SDK's object and the document it is made from say the same."""
    cls, document, answer = WHOLE[name]
    assert read_answer(cls.model_validate(document)) == answer
    assert read_answer(document) == answer
    assert usage_of(cls.model_validate(document)) == answer.usage


SHOWN: dict[str, tuple[Any, Any]] = {
    "openai chat, a call": (chat("tool_calls", tool_calls=[CALL]), CALLING),
    "openai chat, a refusal": (chat(refusal="I will not"), "I will not"),
    "openai chat, its reasoning": (chat(content="hello", reasoning_content="hm"), "hello"),
    "anthropic, a call": (
        claude({"type": "text", "text": "hello"}, wire.tool_use("t", "clock", {"city": "Rome"})),
        {**CALLING, "content": "hello", "tool_calls": [{**CLOCK, "arguments": {"city": "Rome"}}]},
    ),
    "openai responses, a call": (reply(spoken("hello"), WEATHER), {**CALLING, "content": "hello"}),
    "openai responses, a refusal": (
        reply({**spoken(None), "content": [{"type": "refusal", "refusal": "No."}]}),
        "No.",
    ),
}


@pytest.mark.parametrize(("document", "content"), SHOWN.values(), ids=[*SHOWN])
def test_an_answer_is_shown_as_a_text_or_with_its_calls(document: Any, content: Any) -> None:
    """In the form of a stream that was put together, whoever wrote it; a refusal is a text."""
    assert read_answer(document).content == content


def test_what_no_answer_says_is_none() -> None:
    """Neither a content nor a model is invented."""
    for nothing in (None, 42, b"hello", object(), {}, {"a": 1}, {"usage": None}, [{"a": 1}]):
        assert read_answer(nothing) == Answer()
    assert read_answer("hello") == Answer("hello")
    assert read_answer(("hel", "lo")) == Answer("hello")
    assert read_answer(("hel", {"a": 1})) == Answer()


# --- streams

STREAMS: dict[str, tuple[Any, list[Any], Answer]] = {
    "openai chat": (
        CHAT_EVENT,
        [
            part(role="assistant", content=""),
            part(content="hel"),
            part(content="lo"),
            part("stop"),
            USAGE_CHUNK,
        ],
        Answer("hello", COUNTS, "stop", "m"),
    ),
    "openai chat, calls": (
        CHAT_EVENT,
        [
            part(
                role="assistant",
                tool_calls=[
                    {"index": 0, "id": "a", "function": {"name": "clock", "arguments": ""}}
                ],
            ),
            part(tool_calls=[{"index": 0, "function": {"arguments": '{"city": '}}]),
            part(tool_calls=[{"index": 0, "function": {"arguments": '"Rome"}'}}]),
            part(
                tool_calls=[
                    {"index": 1, "id": "b", "function": {"name": "look", "arguments": "{}"}}
                ]
            ),
            part("tool_calls"),
        ],
        Answer(
            message(content="", tool_calls=[CLOCK, {"name": "look", "arguments": "{}"}]),
            None,
            "tool_calls",
            "m",
        ),
    ),
    "openai chat, a legacy call": (
        CHAT_EVENT,
        [
            part(role="assistant", function_call={"name": "clock", "arguments": ""}),
            part(function_call={"arguments": '{"city": "Rome"}'}),
            part("function_call"),
        ],
        Answer(CALLING, None, "function_call", "m"),
    ),
    "openai responses": (
        RESPONSE_EVENT,
        [
            event("created", response={**reply(status="in_progress"), "usage": None}),
            event("output_text.delta", delta="hel", logprobs=[]),
            event("output_text.delta", delta="lo", logprobs=[]),
            event("completed", response=reply(spoken("hello"))),
        ],
        Answer("hello", COUNTS, "completed", "m"),
    ),
    "openai responses, a call": (
        RESPONSE_EVENT,
        [
            event("created", response={**reply(status="in_progress"), "usage": None}),
            item("added", **{**WEATHER, "arguments": ""}),
            event("function_call_arguments.delta", delta='{"city": "Rome"}'),
            item("done", **WEATHER),
            event("completed", response=reply(WEATHER)),
        ],
        Answer(CALLING, COUNTS, "completed", "m"),
    ),
    "anthropic": (
        MESSAGE_EVENT,
        [
            START,
            block(type="thinking", thinking="", signature=""),
            delta(type="thinking_delta", thinking="hm"),
            block(1, type="text", text=""),
            delta(1, type="text_delta", text="hello"),
            {"type": "content_block_stop", "index": 1},
            STOP,
            {"type": "message_stop"},
        ],
        Answer("hello", MESSAGE_COUNTS, "end_turn", "m"),
    ),
    "anthropic, a call": (
        MESSAGE_EVENT,
        [
            START,
            block(type="tool_use", id="t", name="clock", input={}),
            delta(type="input_json_delta", partial_json='{"city": '),
            delta(type="input_json_delta", partial_json='"Rome"}'),
            STOP,
        ],
        Answer(CALLING, MESSAGE_COUNTS, "end_turn", "m"),
    ),
    "google-genai": (
        GEMINI,
        [
            gemini({"text": "hm", "thought": True}, finish=None),
            gemini({"text": "hel"}, finish=None),
            gemini({"text": "lo"}),
        ],
        Answer("hello", COUNTS, "stop", "m"),
    ),
}


@pytest.mark.parametrize("name", STREAMS)
def test_a_stream_is_put_together(name: str) -> None:
    """Its chunks say together what the whole answer would have said."""
    adapter, documents, answer = STREAMS[name]
    events = [adapter.validate_python(document) for document in documents]
    assert read_answer(events) == answer
    assert read_answer(tuple(events)) == answer
    assert read_answer(documents) == answer


def test_a_long_stream_is_read_whole_and_its_usage_at_the_ends() -> None:
    """All text counts; a share of usage that only one provider sends in between does not."""
    words = [part(content="a") for _ in range(100)]
    words[50]["usage"] = {**CHAT_USAGE, "completion_tokens": 1}
    assert read_answer([*words, USAGE_CHUNK]) == Answer("a" * 100, COUNTS, None, "m")
    assert read_answer(words).usage is None


# --- LiteLLM and LangChain


@pytest.fixture
def litellm(monkeypatch: pytest.MonkeyPatch) -> Any:
    return pytest.importorskip("litellm")


@pytest.mark.filterwarnings("ignore::UserWarning")  # LiteLLM's import warns of its own types
def test_litellm_s_objects_are_read(litellm: Any) -> None:
    """Its usage is OpenAI's, its cost and what came unasked stand beside the answer."""
    whole = litellm.ModelResponse(**chat(content="hello"))
    whole._hidden_params = {"response_cost": 0.25}
    assert read_answer(whole) == Answer("hello", COUNTS, "stop", "m", 0.25)
    made = litellm.ModelResponseStream
    first = made(**part(role="assistant", content="hello"))
    last = made(**part("stop"))
    unasked = made(**part("stop"))
    last._hidden_params = {"usage": litellm.Usage()}
    unasked._hidden_params = {"usage": litellm.Usage(**CHAT_USAGE)}
    asked = made(**{**USAGE_CHUNK, "usage": litellm.Usage(**CHAT_USAGE)})
    assert read_answer((first, last)) == Answer("hello", None, "stop", "m")
    assert read_answer((first, unasked)) == Answer("hello", COUNTS, "stop", "m")
    assert read_answer((first, last, asked)) == Answer("hello", COUNTS, "stop", "m")


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_litellm_s_chunks_are_told_apart(litellm: Any) -> None:
    """Those that only open or end a stream carry nothing."""
    made = litellm.ModelResponseStream
    assert not has_content(made(**part(role="assistant", content="")))
    assert not has_content(made(**part("stop")))
    assert not has_content(made(**{**USAGE_CHUNK, "usage": litellm.Usage(**CHAT_USAGE)}))
    assert has_content(made(**part(content="we")))
    thought = made(**part(reasoning_content="hm"))
    assert thinks(thought)
    assert not has_content(thought)
    assert has_content(made(**part(tool_calls=[{**CALL, "index": 0}])))
    responses = litellm.types.llms.openai
    words = responses.OutputTextDeltaEvent(**event("output_text.delta", delta="we"))
    assert has_content(words)
    assert not has_content(responses.OutputTextDeltaEvent(**event("output_text.delta", delta="")))
    begun = {**reply(status="in_progress"), "usage": None}
    assert not has_content(responses.ResponseCreatedEvent(**event("created", response=begun)))


@pytest.mark.parametrize(
    "chunk", [{"error": {"code": "overloaded_error"}}, {"type": "error", "error": {"code": 503}}]
)
def test_an_error_event_is_no_content(chunk: dict[str, Any]) -> None:
    """A raw stream that begins with its provider's error has handed out nothing."""
    assert not has_content(chunk)
    assert has_content({"error": "of a tool", "rows": 3})
    assert has_content({"error": None})


@pytest.fixture
def messages() -> Any:
    return pytest.importorskip("langchain_core.messages")


@pytest.fixture
def outputs() -> Any:
    return pytest.importorskip("langchain_core.outputs")


def test_langchain_s_messages_are_read(messages: Any, outputs: Any) -> None:
    """Bare, in a generation, in a result and in what a middleware passes on, it is the same."""
    ending = {"finish_reason": "stop", "model_name": "m"}
    whole = messages.AIMessage("hello", usage_metadata=LANGCHAIN_USAGE, response_metadata=ending)
    generation = outputs.ChatGeneration(message=whole)
    passed_on = pytest.importorskip("langchain.agents.middleware.types")
    for answer in (
        whole,
        generation,
        outputs.ChatResult(generations=[generation]),
        outputs.LLMResult(generations=[[generation]]),
        passed_on.ModelResponse(result=[whole]),
    ):
        assert read_answer(answer) == Answer("hello", COUNTS, "stop", "m")
    empty = outputs.ChatGeneration(message=messages.AIMessage(""))
    assert read_answer(outputs.ChatResult(generations=[empty])).content == ""
    calling = messages.AIMessage("", tool_calls=[{"name": "clock", "args": {}, "id": "c"}])
    called = message(content="", tool_calls=[{"name": "clock", "arguments": ""}])
    assert read_answer(calling).content == called
    assert read_answer(outputs.LLMResult(generations=[[outputs.Generation(text="hi")]])) == (
        Answer("hi")
    )
    older = outputs.ChatResult(generations=[], llm_output={"token_usage": CHAT_USAGE})
    assert read_answer(older).usage == COUNTS


def test_langchain_s_chunks_are_added_up(messages: Any, outputs: Any) -> None:
    """Each carries its share of usage, wherever it stands in a long stream."""
    share = {"input_tokens": 12, "output_tokens": 0, "total_tokens": 12}
    rest = {"input_tokens": 0, "output_tokens": 7, "total_tokens": 7}
    piece = messages.AIMessageChunk
    chunks = [
        piece("hel", usage_metadata={**share, "input_token_details": {"cache_read": 4}}),
        *[piece("")] * 20,
        piece("lo", usage_metadata={**rest, "output_token_details": {"reasoning": 2}}),
        *[piece("")] * 20,
        piece("", response_metadata={"finish_reason": "stop", "model_name": "m"}),
    ]
    answer = Answer("hello", COUNTS, "stop", "m")
    assert read_answer(chunks) == answer
    assert read_answer([outputs.ChatGenerationChunk(message=one) for one in chunks]) == answer
    pieces = [
        piece("", tool_call_chunks=[{"name": "clock", "args": "", "id": "c", "index": 0}]),
        piece(
            "",
            tool_call_chunks=[{"name": None, "args": CLOCK["arguments"], "id": None, "index": 0}],
        ),
    ]
    assert read_answer(pieces).content == CALLING


# --- has_content

# Whose chunk it is stands before the comma of its name.
ADAPTERS = {
    "openai": CHAT_EVENT,
    "legacy": TypeAdapter(Completion),
    "responses": RESPONSE_EVENT,
    "anthropic": MESSAGE_EVENT,
    "google": GEMINI,
}

FRAMES: dict[str, Json] = {
    "openai, a role": part(role="assistant", content=""),
    "openai, a role and no content": part(role="assistant", content=None),
    "openai, a role and no refusal": part(role="assistant", content="", refusal=None),
    "openai, no reasoning": part(reasoning_content="", reasoning=None),
    "openai, an empty delta": part(),
    "openai, an end": part("stop"),
    "openai, usage": USAGE_CHUNK,
    "openai, audio to come": part(audio={"id": "a"}),
    "openai, a filter's report": {
        **part(),
        "choices": [],
        "prompt_filter_results": [{"prompt_index": 0}],
    },
    "legacy, no text": completion(""),
    "responses, created": event("created", response=reply(status="queued")),
    "responses, in progress": event("in_progress", response=reply()),
    "responses, an empty delta": event("output_text.delta", delta="", logprobs=[]),
    "responses, an item to come": item("added", **{**spoken(None), "status": "in_progress"}),
    "responses, thoughts to come": item("added", type="reasoning", summary=[]),
    "responses, a part to come": event(
        "content_part.added", part={"type": "output_text", "text": "", "annotations": []}
    ),
    "responses, an empty end": event("completed", response=reply()),
    "anthropic, a start": START,
    "anthropic, a text to come": block(type="text", text=""),
    "anthropic, thoughts to come": block(type="thinking", thinking="", signature=""),
    "anthropic, an empty delta": delta(type="text_delta", text=""),
    "anthropic, an end": STOP,
    "anthropic, the end": {"type": "message_stop"},
    "google, no parts": gemini(finish=None),
    "google, an empty text": gemini({"text": ""}, finish=None),
    "google, a signature": gemini({"text": "", "thought_signature": b"x"}),
    "google, usage": {"candidates": [], "usage_metadata": GEMINI_USAGE},
}
CARRYING: dict[str, Json] = {
    "openai, a text": part(content=" "),
    "openai, a refusal": part(refusal="I"),
    "openai, a call": part(tool_calls=[{**CALL, "index": 0}]),
    "openai, a legacy call": part(function_call={"name": "clock"}),
    "openai, audio": part(audio={"id": "a", "transcript": "we"}),
    "openai, images": part(images=[{"image_url": {"url": "data:"}}]),
    "openai, the second choice": {
        **part(),
        "choices": [{"index": 0, "delta": {}}, {"index": 1, "delta": {"content": "we"}}],
    },
    "legacy, a text": completion("we"),
    "responses, a text": event("output_text.delta", delta="we", logprobs=[]),
    "responses, a refusal": event("refusal.delta", delta="I"),
    "responses, arguments": event("function_call_arguments.delta", delta="{"),
    "responses, a call": item("added", **{**WEATHER, "arguments": ""}),
    "responses, audio": event("audio.delta", delta="AAAA"),
    "responses, an image": event(
        "image_generation_call.partial_image", partial_image_b64="A", partial_image_index=0
    ),
    "responses, an end with all": event("completed", response=reply(WEATHER)),
    "anthropic, a text": delta(type="text_delta", text="we"),
    "anthropic, a call": block(type="tool_use", id="t", name="clock", input={}),
    "anthropic, arguments": delta(type="input_json_delta", partial_json="{"),
    "google, a text": gemini({"text": "we"}, finish=None),
    "google, a call": gemini({"function_call": {"name": "clock"}}, finish=None),
    "google, media": gemini(
        {"inline_data": {"data": b"x", "mime_type": "image/png"}}, finish=None
    ),
}
THINKING: dict[str, Json] = {
    "openai, reasoning": part(role="assistant", content="", reasoning="hm"),
    "openai, reasoning content": part(reasoning_content="hm"),
    "responses, thoughts": event("reasoning_summary_text.delta", delta="hm", summary_index=0),
    "anthropic, thoughts": delta(type="thinking_delta", thinking="hm"),
    "anthropic, hidden thoughts": block(type="redacted_thinking", data="x"),
    "google, thoughts": gemini({"text": "hm", "thought": True}, finish=None),
    "openai, details": part(reasoning_details=[{"text": "hm"}]),
    "openai, blocks": part(thinking_blocks=[{"type": "thinking", "thinking": "h"}]),
    "responses, a text of thoughts": event("reasoning_text.delta", delta="hm"),
    "responses, a part": event(
        "reasoning_summary_part.done", part={"type": "summary_text", "text": "hm"}, summary_index=0
    ),
    "responses, thoughts that are over": item(
        "done", **{**THOUGHT, "summary": [{"type": "summary_text", "text": "hm"}]}
    ),
    "responses, sealed thoughts": item("done", **{**THOUGHT, "encrypted_content": "x"}),
    "responses, thoughts in full": item(
        "done", **THOUGHT, content=[{"type": "reasoning_text", "text": "hm"}]
    ),
    "responses, an end with thoughts": event(
        "completed",
        response=reply({**THOUGHT, "summary": [{"type": "summary_text", "text": "hm"}]}),
    ),
    "anthropic, a signature": delta(type="signature_delta", signature="x"),
    "anthropic, a block": block(type="thinking", thinking="hm", signature=""),
}


CHUNKS = {
    f"{name} ({carries=}, {thinking=})": (document, carries, thinking)
    for table, carries, thinking in (
        (FRAMES, False, False),
        (CARRYING, True, False),
        (THINKING, False, True),
    )
    for name, document in table.items()
}


@pytest.mark.parametrize("name", CHUNKS)
def test_a_chunk_carries_content_or_thinking_or_nothing(name: str) -> None:
    """Thinking is a sign of life and no content; a frame, usage or an end is neither."""
    document, carries, thinking = CHUNKS[name]
    for one in (document, ADAPTERS[name.partition(",")[0]].validate_python(document)):
        assert (has_content(one), thinks(one)) == (carries, thinking)


def test_pydantic_ai_s_thinking_is_told_apart() -> None:
    """Its parts and deltas, as its streams bring them."""
    parts = pytest.importorskip("pydantic_ai.messages")

    def starting(part: Any) -> Any:
        return parts.PartStartEvent(index=0, part=part)

    def going_on(delta: Any) -> Any:
        return parts.PartDeltaEvent(index=0, delta=delta)

    thoughts = [
        starting(parts.ThinkingPart("hm")),
        starting(parts.ThinkingPart("", signature="x")),
        going_on(parts.ThinkingPartDelta(content_delta="hm")),
        going_on(parts.ThinkingPartDelta(signature_delta="x")),
    ]
    contents = [
        starting(parts.TextPart("we")),
        starting(parts.ToolCallPart("clock", {})),
        going_on(parts.TextPartDelta("we")),
        going_on(parts.ToolCallPartDelta(args_delta="{")),
    ]
    for one in thoughts:
        assert (has_content(one), thinks(one)) == (False, True)
    for one in contents:
        assert (has_content(one), thinks(one)) == (True, False)
    assert not thinks(starting(parts.ThinkingPart("")))


def test_the_sdks_own_helpers_are_read() -> None:
    """What they put around chunks, and add to events, counts as what is in it."""
    empty = CHAT_EVENT.validate_python(part(role="assistant", content=""))
    word = CHAT_EVENT.validate_python(part(content="we"))
    whole = openai.types.chat.ChatCompletion.model_validate(chat(content="we"))
    assert not has_content(ChunkEvent.construct(type="chunk", chunk=empty, snapshot=whole))
    assert has_content(ChunkEvent.construct(type="chunk", chunk=word, snapshot=whole))
    adding = ContentDeltaEvent.construct(type="content.delta", delta="we", snapshot="we")
    assert has_content(adding)
    assert has_content(TextEvent(type="text", text="we", snapshot="we"))
    assert not has_content(TextEvent(type="text", text="", snapshot=""))


def test_langchain_s_chunks_are_told_apart(messages: Any, outputs: Any) -> None:
    """Bare or in a generation; frames of blocks, usage and metadata are nothing yet."""
    piece = messages.AIMessageChunk
    frame = {"type": "text", "text": "", "index": 0, "id": "b"}
    call = {"name": "clock", "args": "", "id": "c", "index": 0}
    empty = [
        piece(""),
        piece([]),
        piece([frame]),
        piece("", usage_metadata=LANGCHAIN_USAGE),
        piece("", response_metadata={"finish_reason": "stop"}),
        piece("", chunk_position="last"),
    ]
    carrying = [
        piece("we"),
        piece([{**frame, "text": "we"}]),
        piece("", tool_call_chunks=[call]),
        piece("", additional_kwargs={"audio": {"data": "x"}}),
    ]
    thinking = [
        piece([{"type": "thinking", "thinking": "hm", "index": 0}]),
        piece([{"type": "thinking", "signature": "x", "index": 0}]),
        piece([{"type": "reasoning", "summary": [{"text": "hm"}], "index": 0}]),
        piece([{"type": "reasoning", "reasoning": "hm"}]),
        piece("", additional_kwargs={"reasoning_content": "hm"}),
        piece("", additional_kwargs={"reasoning": {"summary": [{"text": "hm"}]}}),
    ]
    for chunks, carries in ((empty, False), (carrying, True), (thinking, False)):
        for one in chunks:
            for whole in (one, outputs.ChatGenerationChunk(message=one)):
                assert has_content(whole) is carries
                assert thinks(whole) is (chunks is thinking)
    assert has_content(outputs.GenerationChunk(text="we"))
    assert not has_content(outputs.GenerationChunk(text=""))
    assert has_content(messages.HumanMessage("hi"))


class Own:
    """Have a name that an SDK's chunks have, too."""

    def __init__(self) -> None:
        self.type, self.delta, self.choices = "message_start", "", list[Any]()


class Array:
    def __bool__(self) -> bool:
        raise ValueError("the truth of an array is ambiguous")


@pytest.mark.parametrize(
    ("chunk", "carries"),
    [
        ("", False),
        (" ", True),
        (b"", False),
        (b"a", True),
        (None, False),
        (0, False),
        (1, True),
        ([], False),
        ([0], True),
        ((), False),
        ({}, False),
        ({"a": None}, True),
        ({"type": "ping"}, False),
        ({"type": "keepalive"}, False),
        ({"type": "text", "content": "hello"}, True),
        ({"type": "text", "text": "hello"}, True),
        ({"query": "who?", "candidates": []}, True),
        (Own(), True),
        (object(), True),
        (Array(), True),
    ],
    ids=lambda value: repr(value).partition(" at ")[0],
)
def test_of_everything_else_its_truth_decides(chunk: Any, carries: bool) -> None:
    """A class of the user's own, and a dict of no known shape, is content where it is true."""
    assert has_content(chunk) is carries


# --- usage

OTHERS: dict[str, tuple[Any, dict[str, int]]] = {
    "no details": (
        {"prompt_tokens": 3, "completion_tokens": 2},
        {"input_tokens": 3, "output_tokens": 2, "total_tokens": 5},
    ),
    "only the output": ({"output_tokens": 2}, {"output_tokens": 2}),
    "an embedding": (
        {"prompt_tokens": 3, "total_tokens": 3},
        {"input_tokens": 3, "total_tokens": 3},
    ),
    "bedrock": (
        {
            "inputTokens": 8,
            "outputTokens": 7,
            "totalTokens": 22,
            "cacheReadInputTokens": 4,
            "cacheWriteInputTokens": 3,
        },
        MESSAGE_COUNTS,
    ),
    "gemini over REST": (
        {
            "promptTokenCount": 10,
            "toolUsePromptTokenCount": 2,
            "cachedContentTokenCount": 4,
            "candidatesTokenCount": 5,
            "thoughtsTokenCount": 2,
            "totalTokenCount": 19,
        },
        COUNTS,
    ),
    "ollama": (
        {"prompt_eval_count": 3, "eval_count": 2},
        {"input_tokens": 3, "output_tokens": 2, "total_tokens": 5},
    ),
    "reasoning outside of the output": ({**CHAT_USAGE, "completion_tokens": 5}, COUNTS),
    "langchain": (LANGCHAIN_USAGE, COUNTS),
    "langchain's split cache": (
        {
            **LANGCHAIN_USAGE,
            "input_token_details": {
                "cache_creation": 0,
                "ephemeral_5m_input_tokens": 2,
                "ephemeral_1h_input_tokens": 1,
            },
            "output_token_details": {},
        },
        {"input_tokens": 12, "output_tokens": 7, "total_tokens": 19, "cache_write_tokens": 3},
    ),
    "our own form": (COUNTS, COUNTS),
    "our own form of what others leave out": (MESSAGE_COUNTS, MESSAGE_COUNTS),
}


@pytest.mark.parametrize("name", OTHERS)
def test_usage_has_one_form(name: str) -> None:
    """By itself or inside an answer; what is in that form already stays as it is."""
    usage, counts = OTHERS[name]
    assert usage_of({"usage": usage}) == counts
    assert usage_of(usage) == counts
    assert read_answer({"usage": usage}).usage == counts


@pytest.mark.parametrize(
    "usage", [{}, {"prompt_tokens": True}, {"prompt_tokens": -1}, {"input_tokens": "12"}, "12", 12]
)
def test_no_count_is_invented(usage: Any) -> None:
    """A bool, a text or a negative is no count."""
    assert usage_of({"usage": usage}) is None


@pytest.mark.parametrize(("cost", "known"), [(0.5, 0.5), (0, None), (-1, None), ("1", None)])
def test_a_cost_is_taken_where_it_is_one(cost: Any, known: float | None) -> None:
    """OpenRouter puts it into the usage."""
    assert read_answer({"usage": {**CHAT_USAGE, "cost": cost}}).cost == known


# --- what they promise


class Hostile:
    """Claim to be an SDK's object, and raise or warn wherever it is touched."""

    __module__ = "openai.types"

    def __getattribute__(self, name: str) -> Any:
        raise RuntimeError(name)


class Trapped:
    """Claim the same, and have a property that nobody may run."""

    __module__ = "openai.types"

    def __init__(self) -> None:
        self.choices, self.usage, self.message = [self], self, self

    @property
    def content(self) -> Any:
        warnings.warn("never ask", DeprecationWarning, stacklevel=2)
        raise RuntimeError("never ask")

    error = content


class Map(dict[str, Any]):
    def get(self, key: str, default: Any = None) -> Any:
        raise RuntimeError(key)


def test_hostile_objects_are_survived_and_unasked() -> None:
    """No property runs, and what raises all the same says nothing."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for answer in (Hostile(), [Hostile()], (Hostile(), "a")):
            assert read_answer(answer) == Answer()
        assert read_answer(Trapped()).usage is None
        assert has_content(Hostile()) is True
        assert thinks(Hostile()) is False
        assert has_content(Trapped()) in {True, False}
        assert check_response(Trapped()) is None
        for unread in (Hostile(), Map(choices=[]), Map(error={"code": 1})):
            assert check_response(unread) is None
            assert check_response([unread]) is None


_leaves = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=12)
_leaves |= st.sampled_from([*BROKEN, *EMPTY, *(v for shape in SHAPES for v in shape.values)])
_steps = {step for s in SHAPES for field in s[1:-2] for p in field for step in p.split(".")}
_others = ("code", "type", "object", "message", "status_code", "base_resp", "usage", "name")
_keys = st.sampled_from([*sorted(_steps), *_others, "prompt_tokens"])
_values = st.recursive(
    _leaves,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_keys, inner, max_size=5),
    max_leaves=12,
)


@given(answer=_values)
def test_none_of_them_ever_raises(answer: Any) -> None:
    """Whatever an answer holds, an Answer comes out, a yes or no, and nothing or a Failure."""
    within = openai.types.chat.ChatCompletion.construct(choices=answer, usage=answer)
    for one in (answer, [answer], (answer, answer), within):
        assert type(read_answer(one)) is Answer
        assert type(has_content(one)) is bool
        assert type(thinks(one)) is bool
        failure = check_response(one)
        assert failure is None or (failure.kind in FailureKind and failure.reason)


@pytest.mark.parametrize(
    "document",
    [
        {"error": "the runner crashed"},
        {"detail": "no such page"},
        {"object": "response", "status": "completed", "output": None},
    ],
)
def test_a_response_without_output_is_no_answer(document: dict[str, Any]) -> None:
    """OpenAI's SDK makes its object of whatever came under HTTP 200."""
    failure = check_response(openai.types.responses.Response.construct(**document))
    assert failure is not None
    assert failure.kind is FailureKind.MALFORMED_RESPONSE
