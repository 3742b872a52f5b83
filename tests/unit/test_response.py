"""What check_response makes of answers that fail under HTTP 200, and of those that do not."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import anthropic.types
import openai.types.chat
import openai.types.responses
import pytest
from google.genai import types as genai

from honcho_fallback import FailureKind, check_response, read_answer
from honcho_fallback._classify._answers import BROKEN, EMPTY
from honcho_fallback._classify._content import SHAPES
from tests.helpers.wire import part

Kind = FailureKind


def built(cls: Any, fields: dict[str, Any]) -> Any:
    """Build an SDK's object as the SDK does: without a check, whatever the provider sent."""
    return cls.construct(**fields)


def chat(finish: Any = "stop", **message: Any) -> dict[str, Any]:
    """Answer as OpenAI's chat completions do."""
    choice = {"index": 0, "finish_reason": finish, "message": {"role": "assistant", **message}}
    return {"id": "1", "object": "chat.completion", "created": 1, "model": "m"} | {
        "choices": [choice]
    }


USAGE: dict[str, Any] = {**part(), "choices": [], "usage": {"total_tokens": 2}}


def claude(stop: Any = "end_turn", *content: dict[str, Any]) -> dict[str, Any]:
    """Answer as Anthropic's messages do."""
    return {"type": "message", "role": "assistant", "content": [*content], "stop_reason": stop}


TEXT_BLOCK = {"type": "text", "text": "well"}
EVENTS: list[dict[str, Any]] = [
    {"type": "message_start", "message": claude(None)},
    {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
    {"type": "ping"},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "we"}},
    {"type": "content_block_stop", "index": 0},
    {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {}},
    {"type": "message_stop"},
]


def gemini(finish: Any = "STOP", *parts: dict[str, Any]) -> dict[str, Any]:
    """Answer as Google's generateContent does."""
    candidate = {"finishReason": finish, "content": {"role": "model", "parts": [*parts]}}
    return {"candidates": [candidate], "modelVersion": "m"}


def reply(status: str, **fields: Any) -> dict[str, Any]:
    """Answer as OpenAI's responses do."""
    return {"id": "1", "object": "response", "status": status, "output": [], **fields}


def spoken(*blocks: dict[str, Any]) -> dict[str, Any]:
    """Hold content as OpenAI's responses do."""
    return {"type": "message", "role": "assistant", "content": [*blocks]}


OUTPUT = spoken({"type": "output_text", "text": "well"})
DELTA = {"type": "response.output_text.delta", "delta": "we"}
CREATED = {"type": "response.created", "response": reply("in_progress")}
CALL = [{"id": "1", "type": "function", "function": {"name": "clock", "arguments": "{}"}}]


def calling(arguments: Any) -> dict[str, Any]:
    """Call a tool as OpenAI's chat completions do."""
    return {"id": "1", "type": "function", "function": {"name": "clock", "arguments": arguments}}


def event(status: str, **fields: Any) -> dict[str, Any]:
    """End a stream as OpenAI's responses do."""
    return {"type": f"response.{status}", "response": reply(status, **fields)}


THOUGHT = {"type": "thinking", "thinking": "hm", "signature": "x"}
REASONING = {"type": "reasoning", "summary": [{"type": "summary_text", "text": "hm"}]}
CUT = {"incomplete_details": {"reason": "max_output_tokens"}}

# What each answer is to check_response: the kind of its failure, or None, and whether the same
# target may be asked again, where that is not the kind's.
ANSWERS: dict[tuple[Kind | None, bool | None], dict[str, Any]] = {
    (Kind.RATE_LIMIT, None): {
        "an error instead of an answer": {"error": {"message": "no", "code": 429}},
        "its words alone": {"error": {"message": "you hit the rate limit"}},
        "a number and words": {"error_code": 18, "error_msg": "slowly"},
        "no success": {"success": False, "code": 1302, "msg": "slowly"},
        "a failed event": event("failed", error={"code": "rate_limit_exceeded"}),
    },
    (Kind.OVERLOADED, None): {
        "a sentence instead of an answer": {"error": "too much, overloaded"},
        "an error beside no choices": {"id": None, "choices": None, "error": {"code": 503}},
        "Anthropic's error": {"type": "error", "error": {"type": "overloaded_error"}},
        "an error event": [*EVENTS[:3], {"type": "error", "error": {"type": "overloaded_error"}}],
        "a failed response stream": [
            CREATED,
            DELTA,
            event("failed", error={"code": "server_is_overloaded"}),
        ],
    },
    (Kind.SERVER_ERROR, None): {
        "an error that says nothing": {"error": {"message": "oops"}},
        "an error in the choice": {
            "object": "chat.completion",
            "choices": [{"error": {"code": 502}, "message": {}}],
        },
        "OpenAI's error event": {
            "type": "error",
            "code": "server_error",
            "message": "no",
            "sequence_number": 1,
        },
        "a gateway's word": chat("error", content="some"),
        "a failed response": reply("failed", error={"code": "server_error"}),
        "a failed response that says nothing": reply("failed"),
        "an error chunk": [part(content="we"), {**part("error"), "error": {"code": 502}}],
    },
    (Kind.QUOTA, None): {
        "no credit": {"error": {"message": "no", "code": "insufficient_quota"}},
        "a status beside the answer": {"base_resp": {"status_code": 1008, "status_msg": "no"}},
    },
    (Kind.MALFORMED_RESPONSE, None): {
        "no choices": {"choices": []},
        "null choices": {"object": "chat.completion", "choices": None},
        "a null message": {**chat(), "choices": [{"finish_reason": "stop", "message": None}]},
        "no candidates": {"candidates": []},
        "a candidate without content": {"candidates": [{"finishReason": "MAX_TOKENS"}]},
        "a broken call": gemini("MALFORMED_FUNCTION_CALL", {"text": "so"}),
        "null content": {**claude(), "content": None},
        "a cut chat stream": [part(role="assistant"), part(content="we")],
        "a chat stream of nothing": [part(role="assistant")],
        "a cut Claude stream": EVENTS[:4],
        "a Claude stream of nothing": EVENTS[:1],
        "a cut response stream": [CREATED, DELTA],
        "a cut Gemini stream": [gemini(None, {"text": "we"})],
        "an unspecified end": [gemini("FINISH_REASON_UNSPECIFIED", {"text": "we"})],
    },
    (Kind.REFUSAL, None): {
        "a filter and no text": chat("content_filter", content=""),
        "a refusal": chat(content=None, refusal="I will not"),
        "a blocked prompt": {"promptFeedback": {"blockReason": "OTHER"}},
        "a safety stop": gemini("SAFETY"),
        "thoughts and no answer": gemini("SAFETY", {"text": "hm", "thought": True}),
        "a refusal of Claude's": claude("refusal"),
        "a refusal beside an empty text": claude("refusal", {"type": "text", "text": ""}),
        "a refusal beside a block of nothing": claude("refusal", {"type": "text"}),
        "a filtered response": reply(
            "incomplete", incomplete_details={"reason": "content_filter"}
        ),
        "a refused response": reply(
            "completed", output=[spoken({"type": "refusal", "refusal": "no"})]
        ),
        "a filtered event": event("incomplete", incomplete_details={"reason": "content_filter"}),
        "a filtered chat stream": [part(content=""), part("content_filter")],
        "a refusing chat stream": [part(refusal="I will"), part(refusal=" not"), part("stop")],
        "a refusing Claude stream": [
            EVENTS[0],
            {"type": "message_delta", "delta": {"stop_reason": "refusal"}},
        ],
        "a refusing response stream": [
            CREATED,
            {"type": "response.refusal.delta", "delta": "no"},
            event("completed"),
        ],
        "a Gemini stream that stops": [gemini(None), gemini("PROHIBITED_CONTENT")],
    },
    (Kind.CONTEXT_OVERFLOW, None): {
        "a full window": claude("model_context_window_exceeded"),
    },
    # What is healthy, merely short, or unknown.
    (None, None): {
        "a text": "well",
        "an empty text": "",
        "nothing": None,
        "a number": 42,
        "an empty list": [],
        "a list of texts": ["a", "b"],
        "a list of somebody's rows": [{"id": 1}, {"id": 2}],
        "a question": {"question": "which?", "choices": []},
        "a search": {"query": "who?", "candidates": []},
        "a parsed document with a sentence": {"error": "none of them fits", "answer": 3},
        "a parsed document with an error": {"error": {"x": 1}, "answer": 3},
        "a code": {"code": "print()", "msg": "run it", "success": True},
        "a good status beside the answer": {
            **chat(content="well"),
            "base_resp": {"status_code": 0},
        },
        "a chat answer": chat(content="well"),
        "an empty chat answer": chat(content=""),
        "a chat answer of null": chat(content=None),
        "a tool call": chat("tool_calls", content=None, tool_calls=CALL),
        "a text that was cut": chat("length", content="we"),
        "a Claude text that was cut": claude("max_tokens", TEXT_BLOCK),
        "a Gemini text that was cut": gemini("MAX_TOKENS", {"text": "we"}),
        "thoughts and an ordinary end": chat(content="", reasoning_content="hm"),
        "a call without arguments": chat("tool_calls", tool_calls=[calling("")]),
        "a call with line breaks": chat("tool_calls", tool_calls=[calling('{"a": "b\nc"}')]),
        "a text beside an announcement": chat("tool_calls", content="well"),
        "a custom tool's call": chat(
            "tool_calls", tool_calls=[{"type": "custom", "custom": {"input": "x = {"}}]
        ),
        "a response's custom call": reply(
            "completed", output=[{"type": "custom_tool_call", "name": "sh", "input": "ls ("}]
        ),
        "a response's patch": reply(
            "completed", output=[{"type": "apply_patch_call", "operation": {"diff": "{"}}]
        ),
        "a stream of calls in pieces": [
            part(tool_calls=[{**calling(""), "index": 0}]),
            part(tool_calls=[{"index": 0, "function": {"arguments": '{"a":'}}]),
            part(tool_calls=[{"index": 0, "function": {"arguments": " 1}"}}]),
            part(tool_calls=[{**calling(""), "index": 1}]),
            part("tool_calls"),
        ],
        "a stream that numbers all calls alike": [
            part(tool_calls=[{**calling("{}"), "index": 0}]),
            part(tool_calls=[{**calling('{"a": 1}'), "index": 0}]),
            part("stop"),
        ],
        "a filter after some text": chat("content_filter", content="well"),
        "a completion": {
            "object": "text_completion",
            "choices": [{"text": "", "finish_reason": "stop"}],
        },
        "a word nobody knows": chat("eos", content=""),
        "one chunk": part(content="we"),
        "the usage chunk": USAGE,
        "a Gemini answer": gemini("STOP", {"text": "well"}),
        "an empty Gemini answer": gemini("STOP"),
        "a Gemini call": gemini("SAFETY", {"functionCall": {"name": "clock"}}),
        "an unblocked prompt": {
            **gemini("STOP", {"text": "well"}),
            "promptFeedback": {"blockReason": "BLOCKED_REASON_UNSPECIFIED"},
        },
        "a Claude answer": claude("end_turn", TEXT_BLOCK),
        "an empty Claude answer": claude("end_turn"),
        "a Claude text that was stopped": claude("refusal", TEXT_BLOCK),
        "a Claude call": claude("refusal", {"type": "tool_use", "id": "1", "name": "clock"}),
        "a response": reply("completed", output=[OUTPUT]),
        "a response in the background": reply("queued"),
        "a response that was cut": reply(
            "incomplete", incomplete_details={"reason": "max_output_tokens"}, output=[OUTPUT]
        ),
        "a response's call": reply(
            "incomplete",
            incomplete_details={"reason": "content_filter"},
            output=[{"type": "function_call", "name": "clock"}],
        ),
        "a chat stream": [part(role="assistant"), part(content="we"), part("stop"), USAGE],
        "an empty chat stream": [part(role="assistant"), part("stop")],
        "a stream of a tool call": [part(tool_calls=CALL), part("content_filter")],
        "a chat stream in a tuple": (part(content="we"), part("stop")),
        "a Claude stream": EVENTS,
        "a response stream": [CREATED, DELTA, event("completed")],
        "a Gemini stream": [gemini(None, {"text": "we"}), gemini("STOP", {"text": "ll"})],
    },
    # What used its budget up before it said anything, or in the middle of a call.
    (Kind.MALFORMED_RESPONSE, False): {
        "thinking in a field of its own": chat("length", content="", reasoning_content="hm"),
        "thinking under another name": chat("length", content=None, reasoning="hm"),
        "nothing but an end": chat("length", content=""),
        "a list of thinking": chat("length", content=[{"type": "thinking", "thinking": []}]),
        "Claude's thinking": claude("max_tokens", THOUGHT),
        "Gemini's thinking": gemini("MAX_TOKENS", {"text": "hm", "thought": True}),
        "a response's thinking": reply("incomplete", **CUT, output=[REASONING]),
        "a response of nothing": reply("incomplete", **CUT),
        "a stream of thinking": [
            part(role="assistant", content=""),
            part(reasoning_content="hm"),
            part("length"),
        ],
        "a Claude stream of thinking": [
            EVENTS[0],
            {"type": "content_block_start", "content_block": {**THOUGHT, "thinking": ""}},
            {"type": "content_block_delta", "delta": {"type": "thinking_delta", "thinking": "h"}},
            {"type": "message_delta", "delta": {"stop_reason": "max_tokens"}},
        ],
        "a Gemini stream of thinking": [
            gemini(None, {"text": "hm", "thought": True}),
            gemini("MAX_TOKENS"),
        ],
        "a response stream of thinking": [
            CREATED,
            {"type": "response.reasoning_summary_text.delta", "delta": "hm"},
            event("incomplete", **CUT, output=[REASONING]),
        ],
        "a call that was cut": chat("length", content="well", tool_calls=[calling('{"a')]),
        "a stream of a call that was cut": [
            part(tool_calls=[{**calling('{"a'), "index": 0}]),
            part("length"),
        ],
    },
    # What another try may bring.
    (Kind.MALFORMED_RESPONSE, True): {
        "arguments that are no JSON": chat("tool_calls", tool_calls=[calling("{'a': 1}")]),
        "beside a text": chat("stop", content="well", tool_calls=[calling("{")]),
        "the second of two": chat("tool_calls", tool_calls=[calling("{}"), calling("{")]),
        "a legacy call": chat("function_call", function_call={"name": "clock", "arguments": "{"}),
        "a response's arguments": reply(
            "completed", output=[{"type": "function_call", "name": "clock", "arguments": "{"}]
        ),
        "a stream of them in pieces": [
            part(tool_calls=[{**calling('{"a":'), "index": 0}]),
            part(tool_calls=[{"index": 0, "function": {"arguments": " x}"}}]),
            part("tool_calls"),
        ],
        "a Claude stream of them": [
            EVENTS[0],
            {
                "type": "content_block_start",
                "index": 0,
                "content_block": {"type": "tool_use", "name": "clock", "input": {}},
            },
            {
                "type": "content_block_delta",
                "index": 0,
                "delta": {"type": "input_json_delta", "partial_json": '{"a": '},
            },
            {"type": "message_delta", "delta": {"stop_reason": "tool_use"}},
        ],
        "a response stream of them": [
            CREATED,
            {"type": "response.function_call_arguments.delta", "delta": "{"},
            event(
                "completed", output=[{"type": "function_call", "name": "clock", "arguments": "{"}]
            ),
        ],
        "a call that is missing": chat("tool_calls", content=None),
        "thoughts before a missing one": chat("tool_calls", content="", reasoning="hm"),
        "Claude's that is missing": claude("tool_use", THOUGHT),
        "a stream whose call is missing": [part(role="assistant"), part("tool_calls")],
    },
}


Row = tuple[Any, Kind | None, bool | None]
ROWS: dict[str, Row] = {
    name: (answer, *outcome) for outcome, rows in ANSWERS.items() for name, answer in rows.items()
}


def meets(answer: Any, kind: Kind | None, again: bool | None) -> bool:
    """Tell whether check_response says this of an answer."""
    failure = check_response(answer)
    if failure is None or kind is None:
        return failure is None and kind is None
    assert failure.reason
    assert failure.error == "ErrorInAnswer"
    return failure.kind is kind and again in {None, failure.transient}


@pytest.mark.parametrize("name", ROWS)
def test_a_failure_under_200_is_seen_and_a_legal_answer_left_alone(name: str) -> None:
    """Each way to fail has its kind; what is healthy, merely short or unknown is no failure."""
    assert meets(*ROWS[name])


# By a field that only this SDK's answers have; Google's spells them in two ways, and checks.
CLASSES: dict[str, Any] = {
    "choices": openai.types.chat.ChatCompletion,
    "output": openai.types.responses.Response,
    "candidates": genai.GenerateContentResponse,
    "promptFeedback": genai.GenerateContentResponse,
    "stop_reason": anthropic.types.Message,
}
PARTS: dict[str, Any] = {
    "chat.completion.chunk": openai.types.chat.ChatCompletionChunk,
    "message_start": anthropic.types.RawMessageStartEvent,
    "message_delta": anthropic.types.RawMessageDeltaEvent,
    "response.failed": openai.types.responses.ResponseFailedEvent,
    "response.completed": openai.types.responses.ResponseCompletedEvent,
    "error": openai.types.responses.ResponseErrorEvent,
}


def as_object(document: Any) -> Any:
    """Make of a document what its SDK makes of it, or None where none knows it."""
    if isinstance(document, list | tuple):
        parts = [as_object(one) or one for one in document]
        return None if parts == [*document] else parts
    if not isinstance(document, dict):
        return None
    event = document.get("object") if "object" in document else document.get("type")
    cls = PARTS.get(str(event))
    if cls is None:
        cls = next((CLASSES[name] for name in CLASSES if name in document), None)
    if cls is None:
        return None
    google = cls is genai.GenerateContentResponse
    return cls.model_validate(document) if google else cls.construct(**document)


STRANGERS = {"a question", "a search"}  # documents that no SDK makes anything of
OBJECTS = {
    name: (made, kind, again)
    for name, (answer, kind, again) in ROWS.items()
    if name not in STRANGERS and (made := as_object(answer)) is not None
}


@pytest.mark.parametrize("name", OBJECTS)
def test_the_sdks_objects_say_what_their_documents_say(name: str) -> None:
    """With their enums and their other spelling, whole or in a stream."""
    assert meets(*OBJECTS[name])


def test_an_sdks_object_of_nothing_is_no_answer() -> None:
    """A class says more than an empty document."""
    classes: list[Any] = [openai.types.chat.ChatCompletion, genai.GenerateContentResponse]
    for made in classes:
        assert seen(made.model_construct()) is Kind.MALFORMED_RESPONSE


def test_langchains_answers_without_use_are_none() -> None:
    """By content, by invalid_tool_calls, and in streams by what the pieces make together."""
    messages = pytest.importorskip("langchain_core.messages")
    spent, calls = {"finish_reason": "length"}, {"finish_reason": "tool_calls"}
    thinking = {"reasoning_content": "hm"}
    whole, part = messages.AIMessage, messages.AIMessageChunk
    bad = {"name": "clock", "args": "{", "id": "1", "error": None}
    piece = {"name": "clock", "args": '{"a": ', "id": "1", "index": 0}
    rest = {"name": None, "args": "1}", "id": None, "index": 0}
    for answer, again in (
        (whole("", additional_kwargs=thinking, response_metadata=spent), False),
        (whole([THOUGHT], response_metadata={"stop_reason": "max_tokens"}), False),
        (whole("", response_metadata={"done_reason": "length"}), False),
        ([part("", additional_kwargs=thinking), part("", response_metadata=spent)], False),
        (whole("", invalid_tool_calls=[bad], response_metadata=calls), True),
        (whole("", response_metadata=calls), True),
        ([part("", tool_call_chunks=[piece]), part("", response_metadata=calls)], True),
    ):
        failure = check_response(answer)
        assert failure is not None
        assert (failure.kind, failure.transient) == (Kind.MALFORMED_RESPONSE, again)
    for answer in (
        whole("", tool_calls=[{"name": "clock", "args": {}, "id": "1"}], response_metadata=calls),
        [
            part("", tool_call_chunks=[piece]),
            part("", tool_call_chunks=[rest]),
            part("", response_metadata=calls),
        ],
    ):
        assert check_response(answer) is None


def test_pydantic_ais_answers_without_use_are_none() -> None:
    """Parts that only think, and arguments that are no JSON."""
    parts = pytest.importorskip("pydantic_ai.messages")
    thinking, call = parts.ThinkingPart("hm"), parts.ToolCallPart
    for answer, again in (
        (parts.ModelResponse([thinking], finish_reason="length"), False),
        (parts.ModelResponse([call("clock", "{")], finish_reason="tool_call"), True),
        (parts.ModelResponse([thinking], finish_reason="tool_call"), True),
    ):
        failure = check_response(answer)
        assert failure is not None
        assert (failure.kind, failure.transient) == (Kind.MALFORMED_RESPONSE, again)
    legal: list[Any] = ["", None, {}, '{"a": 1}']
    for arguments in legal:
        assert check_response(parts.ModelResponse([call("clock", arguments)])) is None


def test_where_a_server_never_says_its_end_a_stream_is_whole_without() -> None:
    """Whoever knows that says so; a stream of nothing is no answer even then."""
    begun, said = part(role="assistant"), part(content="we")
    assert seen([begun, said]) is Kind.MALFORMED_RESPONSE
    assert check_response([begun, said], needs_finish=False) is None
    for nothing in ([begun], [begun, part(reasoning_content="hm")]):
        failure = check_response(nothing, needs_finish=False)
        assert failure is not None
        assert failure.kind is Kind.MALFORMED_RESPONSE


def seen(answer: Any) -> FailureKind | None:
    failure = check_response(answer)
    return None if failure is None else failure.kind


@pytest.mark.filterwarnings("ignore::UserWarning")  # LiteLLM's import warns of its own types
def test_litellm_objects_are_read_as_their_documents(monkeypatch: pytest.MonkeyPatch) -> None:
    """LiteLLM's own classes, which keep a chunk's parts elsewhere, are read as well."""
    litellm = pytest.importorskip("litellm")
    assert seen(litellm.ModelResponse(**chat(content="well"))) is None
    assert seen(litellm.ModelResponse(**chat("content_filter"))) is Kind.REFUSAL
    part = litellm.types.utils.ModelResponseStream
    said = part(choices=[{"index": 0, "delta": {"content": "we"}, "finish_reason": None}])
    assert seen([said]) is Kind.MALFORMED_RESPONSE
    assert seen([said, part(choices=[{"index": 0, "delta": {}, "finish_reason": "stop"}])]) is None


def test_langchain_messages_are_read() -> None:
    """A message is judged by its metadata, bare or in a result; an unknown model's end is free."""
    messages = pytest.importorskip("langchain_core.messages")
    outputs = pytest.importorskip("langchain_core.outputs")
    stopped = {"finish_reason": "content_filter"}
    assert seen(messages.AIMessage("well", response_metadata=stopped)) is None
    assert seen(messages.AIMessage("", response_metadata={"finish_reason": "stop"})) is None
    refused = messages.AIMessage("", response_metadata=stopped)
    assert seen(refused) is Kind.REFUSAL
    result = outputs.ChatResult(generations=[outputs.ChatGeneration(message=refused)])
    assert seen(result) is Kind.REFUSAL
    blocked = {"prompt_feedback": {"block_reason": "SAFETY"}}
    assert seen(messages.AIMessage("", response_metadata=blocked)) is Kind.REFUSAL
    said = messages.AIMessageChunk("we")
    assert seen([said]) is None
    assert seen([outputs.ChatGenerationChunk(message=said)]) is None
    last = messages.AIMessageChunk("", response_metadata={"stop_reason": "refusal"})
    assert seen([last]) is Kind.REFUSAL
    assert seen([said, last]) is None


def by(provider: str, **metadata: Any) -> dict[str, Any]:
    return {"model_provider": provider, **metadata}


# What each integration's whole streams carry, chunk by chunk, as they were seen on the wire.
LANGCHAIN_STREAMS: dict[str, list[dict[str, Any]]] = {
    "openai": [by("openai"), by("openai", finish_reason="stop"), {}],
    "openai's responses": [by("openai"), by("openai", status="completed", object="response")],
    "openai, cut short": [
        by("openai"),
        by("openai", status="incomplete", incomplete_details={"reason": "max_output_tokens"}),
    ],
    "anthropic": [by("anthropic", model_name="m"), by("anthropic", stop_reason="end_turn")],
    "google_genai": [by("google_genai"), by("google_genai", finish_reason="STOP"), {}],
    "groq": [by("groq"), {}, {"finish_reason": "stop"}, {}],
    "mistralai": [by("mistralai"), by("mistralai", finish_reason="stop"), {}],
    "litellm": [by("litellm"), {}, {"finish_reason": "stop"}, {}],
}
ENDS = ("finish_reason", "stop_reason", "status", "incomplete_details")


@pytest.mark.parametrize("stream", LANGCHAIN_STREAMS)
@pytest.mark.parametrize("text", ["we", ""])
def test_a_known_integrations_stream_has_an_end(stream: str, text: str) -> None:
    """Its chunks name it: without a finish reason they are no answer, empty or not."""
    chunk = pytest.importorskip("langchain_core.messages").AIMessageChunk
    whole = LANGCHAIN_STREAMS[stream]
    cut = [{name: one[name] for name in one if name not in ENDS} for one in whole]
    chunks = [chunk(text, response_metadata=metadata) for metadata in whole]
    broken = [chunk(text, response_metadata=metadata) for metadata in cut]
    failure = check_response(chunks)  # one that was cut short has to hold some text
    assert failure is None or (stream.endswith("cut short") and not text)
    assert read_answer(chunks).finish_reason
    assert seen(broken) is Kind.MALFORMED_RESPONSE
    assert read_answer(broken).finish_reason is None
    assert seen(broken[0]) is None  # alone it is a message
    assert seen([one.model_dump() for one in broken]) is Kind.MALFORMED_RESPONSE


def test_a_stream_that_never_says_its_end_is_whole_without() -> None:
    """A fake, a stranger, Anthropic's with stream_usage=False, and whole messages in a list."""
    messages = pytest.importorskip("langchain_core.messages")
    for metadata in ({}, by("somebody"), by("anthropic"), by("")):
        chunks = [messages.AIMessageChunk(text, response_metadata=metadata) for text in ("we", "")]
        assert seen(chunks) is None
    assert seen([messages.AIMessage("we", response_metadata=by("openai"))]) is None


def test_a_generations_own_end_counts() -> None:
    """What an integration yields has the finish reason beside the message, not in it."""
    outputs = pytest.importorskip("langchain_core.outputs")
    chunk = pytest.importorskip("langchain_core.messages").AIMessageChunk

    def yielded(info: Any) -> Any:
        message = chunk("we", response_metadata=by("openai"))
        return outputs.ChatGenerationChunk(message=message, generation_info=info)

    whole = [yielded(None), yielded({"finish_reason": "stop"})]
    assert seen(whole) is None
    assert read_answer(whole).finish_reason == "stop"
    assert seen(whole[:1]) is Kind.MALFORMED_RESPONSE


# --- the tables

WORDS = {**BROKEN, **EMPTY}


@pytest.mark.parametrize("word", sorted(word for word in WORDS if "(" not in word))
def test_every_finish_reason_decides(word: str) -> None:
    """Each word gives its row's kind; beside a text only if it means that always."""
    assert seen(chat(word.upper(), content="")) is WORDS[word].kind
    assert seen(chat(word, content="well")) is (BROKEN[word].kind if word in BROKEN else None)


def test_no_word_and_no_shape_stands_twice() -> None:
    """A word of two rows, or a value of two shapes, would be decided by chance."""
    assert not BROKEN.keys() & EMPTY.keys()
    rows = [word for table in (BROKEN, EMPTY) for row in {*table.values()} for word in row.keys]
    keys = [key for shape in SHAPES for key in (*shape.values, *shape.fields)]
    for listed in (rows, keys):
        assert len(listed) == len({*listed})


# --- what it promises


def test_objects_of_others_are_not_read() -> None:
    """A class of the user's own may have choices and candidates of its own."""
    quiz = type("Quiz", (), {})()
    quiz.choices, quiz.candidates, quiz.error = [], [], "none"
    assert check_response(quiz) is None


def test_no_reference_to_the_answer_is_kept() -> None:
    """Neither the answer nor its error outlives the caller's own reference."""
    answer = built(openai.types.chat.ChatCompletion, {"choices": None, "error": {"code": 429}})
    alive = weakref.ref(answer)
    failure = check_response(answer)
    del answer
    gc.collect()
    assert failure is not None
    assert alive() is None


def test_an_error_before_a_whole_answer_is_past() -> None:
    """A stream is read from its end: what was answered and finished is an answer."""
    stream = [{"error": {"message": "no", "code": 503}}, part(content="well"), part("stop")]
    assert check_response(stream) is None
    failure = check_response(stream[:2])
    assert failure is not None
    assert failure.kind is Kind.OVERLOADED
