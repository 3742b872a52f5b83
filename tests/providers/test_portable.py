"""What of a history travels, and what of a request cannot."""

from __future__ import annotations

import copy
import json
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from google.genai import types
from hypothesis import given, settings
from hypothesis import strategies as st

from honcho_fallback import FallbackConfigError
from honcho_fallback.providers import bound_to, portable
from tests.helpers.processes import python

FORMATS = ("openai", "openai-responses", "anthropic", "google")
PNG = "iVBORw0KGgo="
TABLES = json.loads(Path(__file__).with_name("requests.json").read_text("utf-8"))

QUESTION = {"role": "user", "content": "Where is it warm?"}
THERMOMETER = {"name": "thermometer", "arguments": '{"city": "Lima"}'}
CALL = {
    "role": "assistant",
    "content": None,
    "tool_calls": [{"id": "call:1", "type": "function", "function": THERMOMETER}],
}
RESULT = {"role": "tool", "tool_call_id": "call:1", "content": "21"}


@pytest.mark.parametrize(("made_by", "for_"), [*product(FORMATS, repeat=2)])
@settings(deadline=None)  # speed is not the point
@given(texts=st.lists(st.text(min_size=1).filter(str.strip), min_size=1, max_size=4))
def test_texts_and_calls_survive_any_way_round(made_by: str, for_: str, texts: list[str]) -> None:
    """From chat to a format, to another and back: texts, the call and its result; and again."""
    history = [{"role": "user", "content": texts[0]}, CALL, RESULT]
    for n, text in enumerate(texts):
        history.append({"role": ("assistant", "user")[n % 2], "content": text})
    before = copy.deepcopy(history)
    there = portable(history, made_by="openai", for_=made_by)
    kept = copy.deepcopy(there)
    further = portable(there, made_by=made_by, for_=for_)
    assert made_by != for_ or further == there  # nothing is lost the second time
    back = portable(further, made_by=for_, for_="openai")
    assert (history, there) == (before, kept)
    said = [one["content"] for one in back if one["role"] in {"user", "assistant"}]
    assert [text for text in said if text] == [texts[0], *texts]
    call = back[1]["tool_calls"][0]
    assert call["function"] == THERMOMETER
    assert back[2] == {"role": "tool", "tool_call_id": call["id"], "content": "21"}


@pytest.mark.parametrize("for_", FORMATS)
def test_an_image_goes_wherever_images_go(for_: str) -> None:
    """Bytes and addresses that a user attached are in what comes out, and come back."""
    data = f"data:image/png;base64,{PNG}"
    parts = [
        {"type": "text", "text": "What is this?"},
        {"type": "image_url", "image_url": {"url": data}},
        {"type": "image_url", "image_url": {"url": "https://example.org/a.png"}},
    ]
    history = [{"role": "user", "content": parts}]
    there = portable(history, made_by="openai", for_=for_)
    assert PNG in json.dumps(there)
    assert portable(there, made_by=for_, for_="openai") == history


def test_a_document_goes_with_its_name() -> None:
    """A PDF in Anthropic's words is a file in OpenAI's."""
    source = {"type": "base64", "media_type": "application/pdf", "data": PNG}
    document = {"type": "document", "source": source, "title": "bill.pdf"}
    written = portable(
        [{"role": "user", "content": [document]}], made_by="anthropic", for_="openai-responses"
    )
    file = {"filename": "bill.pdf", "file_data": f"data:application/pdf;base64,{PNG}"}
    assert written == [{"role": "user", "content": [{"type": "input_file", **file}]}]


def test_what_a_user_sent_and_a_format_cannot_express_is_an_error() -> None:
    """A sound that would be lost in silence is refused, with what to do; here it stays."""
    audio = {"type": "input_audio", "input_audio": {"data": PNG, "format": "wav"}}
    file = {"type": "file", "file": {"file_id": "file-1"}}
    for part, for_, complaint in (
        (audio, "anthropic", r"audio/wav cannot be written for .*unfit="),
        (audio, "openai-responses", r"audio/wav cannot be written for .*unfit="),
        (file, "anthropic", "a part 'file' cannot be written for anthropic"),
    ):
        history = [{"role": "user", "content": [part]}]
        assert portable(history, made_by="openai", for_="openai") == history
        with pytest.raises(FallbackConfigError, match=complaint):
            portable(history, made_by="openai", for_=for_)


def test_ids_that_repeat_are_told_apart_and_results_follow() -> None:
    """Servers that number each answer's calls anew make a history that others refuse."""
    written = portable(
        [QUESTION, CALL, RESULT, CALL, {**RESULT, "content": "22"}],
        made_by="openai",
        for_="anthropic",
    )
    blocks = [block for one in written for block in one["content"]]
    calls = [block["id"] for block in blocks if block["type"] == "tool_use"]
    results = [
        (block["tool_use_id"], block["content"][0]["text"])
        for block in blocks
        if block["type"] == "tool_result"
    ]
    assert len({*calls}) == 2
    assert results == [(calls[0], "21"), (calls[1], "22")]
    assert all(call.isalnum() for call in calls)


def test_a_failed_result_says_so_where_a_format_can() -> None:
    """Anthropic's is_error is Google's error, and back."""
    call = {"type": "tool_use", "id": "toolu_1", "name": "thermometer", "input": {}}
    broken = [{"type": "text", "text": "broken"}]
    result = {"type": "tool_result", "tool_use_id": "toolu_1", "is_error": True, "content": broken}
    history = [{"role": "assistant", "content": [call]}, {"role": "user", "content": [result]}]
    there = portable(history, made_by="anthropic", for_="google")
    assert there[1]["parts"][0]["functionResponse"]["response"] == {"error": "broken"}
    again = portable(there, made_by="google", for_="anthropic")
    assert again[1]["content"][0]["is_error"] is True


def test_a_custom_tools_text_stays_a_text_between_openais_apis() -> None:
    """Elsewhere, where arguments are objects, it is one of a single field."""
    item = {"type": "custom_tool_call", "call_id": "c1", "name": "sql", "input": "select 1"}
    output = {"type": "custom_tool_call_output", "call_id": "c1", "output": "1"}
    chats = portable([item, output], made_by="openai-responses", for_="openai")
    assert chats[0]["tool_calls"][0]["custom"] == {"name": "sql", "input": "select 1"}
    assert portable(chats, made_by="openai", for_="openai-responses") == [item, output]
    blocks = portable([item, output], made_by="openai-responses", for_="anthropic")
    assert blocks[0]["content"][0]["input"] == {"input": "select 1"}


def test_an_answer_of_thoughts_alone_is_left_out() -> None:
    """Nothing is left of it that another provider could read, and an empty message is refused."""
    thought = {"type": "thinking", "thinking": "hm", "signature": "s"}
    history = [QUESTION, {"role": "assistant", "content": [thought]}, QUESTION]
    assert portable(history, made_by="anthropic", for_="openai") == [QUESTION, QUESTION]


def test_a_format_that_nobody_knows_is_refused() -> None:
    """The argument is named, and the format that may be meant."""
    with pytest.raises(FallbackConfigError, match=r"made_by.*did you mean openai"):
        portable([], made_by="opneai", for_="google")
    with pytest.raises(FallbackConfigError, match=r"claude: no such for_; choose from anthropic"):
        portable([], made_by="openai", for_="claude")


@pytest.mark.parametrize(("made_by", "message"), TABLES["no history"])
def test_what_is_no_history_is_refused(made_by: str, message: Any) -> None:
    """A message of another format is named before it is half translated."""
    with pytest.raises(FallbackConfigError, match="messages"):
        portable([message], made_by=made_by, for_="openai")


REQUESTS: dict[str, tuple[Any, str | None]] = {
    **TABLES["bound_to"],
    "google objects": (
        {"config": types.GenerateContentConfig(tools=[types.Tool(google_search={})])},
        "googleSearch",
    ),
    "google functions": (
        {"config": {"tools": [{"function_declarations": [{"name": "f"}]}, print]}},
        None,
    ),
}


@pytest.mark.parametrize("name", REQUESTS)
def test_a_request_says_what_binds_it(name: str) -> None:
    """What a server keeps and tools that it runs are nowhere else; anything of the caller's is."""
    request, part = REQUESTS[name]
    before = copy.deepcopy(request)
    reason = bound_to(request)
    assert (reason is None) if part is None else (reason is not None and part in reason)
    assert request == before


def test_no_sdk_and_no_framework_is_imported() -> None:
    """The package by itself: histories move and a client asks once, in a bare process."""
    code = """
import sys
from honcho_fallback.providers import bound_to, portable, without_retries
portable([{"role": "user", "content": "hi"}], made_by="openai", for_="google")
bound_to({"messages": []})
class Client:
    max_retries = 2
    def with_options(self, max_retries):
        self.max_retries = max_retries
        return self
assert without_retries(Client()).max_retries == 0
known = {"anthropic", "google", "httpx", "langchain_core", "litellm", "openai", "requests"}
print(sorted(known & {*sys.modules}))
"""
    assert python("-c", code, check=True).stdout == "[]\n"
