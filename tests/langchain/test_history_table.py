"""The table of content blocks: each kind, to each family, through the real integrations.

Requests are built by LangChain's own converters and judged by the strict rules of the providers:
a row of the table which a provider would answer with a 400 fails here.
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any, Final

import pytest
from langchain_core.exceptions import ModelInvalidRequestError
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.messages.tool import tool_call
from langchain_google_genai import ChatGoogleGenerativeAI

from honcho_fallback_langchain._history import (
    TAKEN_BY,
    TAKEN_BY_ALL,
    for_provider,
    kind_of,
    unsendable,
)
from honcho_fallback_langchain._providers import BLOCK_WRITERS
from tests.helpers.chat_models import claude, gpt
from tests.helpers.strict import AnthropicRules, ChatRules, GeminiRules, ResponsesRules

Json = dict[str, Any]

DATA = "SGVsbG8h"  # stands for what a user sends, and is looked for on the wire
URL = f"gs://bucket/{DATA}"  # Gemini fetches it itself
PDF = {"mime_type": "application/pdf", "base64": DATA}
INPUTS: Final[dict[str, Json]] = {
    "text": {"type": "text", "text": DATA},
    "image": {"type": "image", "base64": DATA, "mime_type": "image/png"},
    "image, version 0": {
        "type": "image",
        "source_type": "base64",
        "data": DATA,
        "mime_type": "image/png",
    },
    "image_url": {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{DATA}"}},
    "audio base64": {"type": "audio", "base64": DATA, "mime_type": "audio/wav"},
    "audio url": {"type": "audio", "url": URL, "mime_type": "audio/wav"},
    "video base64": {"type": "video", "base64": DATA, "mime_type": "video/mp4"},
    "video url": {"type": "video", "url": URL, "mime_type": "video/mp4"},
    "file base64": {"type": "file", "filename": "a.pdf", **PDF},
    "file url": {"type": "file", "url": URL, "mime_type": "application/pdf"},
    "file text": {
        "type": "file",
        "source_type": "text",
        "text": DATA,
        "mime_type": "text/plain",
    },
    "file id": {"type": "file", "file_id": DATA},
    "text-plain": {"type": "text-plain", "text": DATA, "mime_type": "text/plain"},
    "document (Anthropic)": {
        "type": "document",
        "source": {"type": "base64", "media_type": "application/pdf", "data": DATA},
        "title": "a",
    },
    "document (Anthropic), of text": {
        "type": "document",
        "source": {"type": "text", "media_type": "text/plain", "data": DATA},
    },
    "document id": {"type": "document", "source": {"type": "file", "file_id": DATA}},
    "image (Anthropic)": {
        "type": "image",
        "source": {"type": "base64", "media_type": "image/png", "data": DATA},
    },
    "search_result (Anthropic)": {
        "type": "search_result",
        "source": "a",
        "title": "b",
        "content": [{"type": "text", "text": DATA}],
    },
    "tool_result (Anthropic)": {"type": "tool_result", "tool_use_id": "t", "content": DATA},
    "file (OpenAI)": {
        "type": "file",
        "file": {"file_data": f"data:application/pdf;base64,{DATA}", "filename": "a.pdf"},
    },
    "input_audio (OpenAI)": {
        "type": "input_audio",
        "input_audio": {"data": DATA, "format": "wav"},
    },
    "input_file (OpenAI)": {
        "type": "input_file",
        "file_data": f"data:application/pdf;base64,{DATA}",
        "filename": "a.pdf",
    },
    "input_image (OpenAI)": {
        "type": "input_image",
        "image_url": f"data:image/png;base64,{DATA}",
    },
    "input_text (OpenAI)": {"type": "input_text", "text": DATA},
    "media (Google)": {"type": "media", "mime_type": "image/png", "data": DATA},
    "document (Bedrock)": {
        "document": {"format": "pdf", "name": "a", "source": {"bytes": b"Hello!"}}
    },
    "guardContent (Bedrock)": {"guardContent": {"text": {"text": DATA}}},
    "image (Bedrock)": {"image": {"format": "png", "source": {"bytes": b"Hello!"}}},
    "text (Bedrock)": {"text": DATA},
    "video (Bedrock)": {"video": {"format": "mp4", "source": {"bytes": b"Hello!"}}},
    "cachePoint (Bedrock)": {"cachePoint": {"type": DATA}},
    "of the future": {"type": "of_the_future", "data": DATA},
}

FORMATS: Final = {
    "openai": "OpenAI",
    "openai-responses": "OpenAI Responses",
    "anthropic": "Anthropic",
    "google": "Google",
    "bedrock": "Bedrock",
    "house": "others",
}


def gemini(**fields: Any) -> Any:
    return ChatGoogleGenerativeAI(model="gemini-2.5-flash", api_key="k", **fields)


def wire(messages: list[BaseMessage], reader: str) -> tuple[str, list[str]]:
    """Return the request that LangChain's integration builds, and the rules that it breaks."""
    tool = {"name": "f", "description": "F.", "parameters": {"type": "object"}}
    if reader == "google":
        # As its client writes it to JSON.
        request = gemini()._prepare_request(messages)
        contents = [one.model_dump(mode="json", exclude_none=True) for one in request["contents"]]
        return json.dumps(contents), GeminiRules().faults({"contents": contents})
    model: Any
    model, rules = {
        "anthropic": (claude(max_tokens=9), AnthropicRules()),
        "openai": (gpt(), ChatRules()),
        "openai-responses": (gpt(use_responses_api=True), ResponsesRules()),
    }[reader]
    bound: Any = model.bind_tools([tool])
    body = model._get_request_payload(messages, **bound.kwargs)
    return json.dumps(body), rules.faults(json.loads(json.dumps(body)))


REAL = ["openai", "openai-responses", "anthropic", "google"]


def asked(block: Json, *, in_result: bool) -> list[BaseMessage]:
    """Put a block into a question, or into the result of a tool."""
    if not in_result:
        return [HumanMessage([{"type": "text", "text": "Q."}, block])]
    call = AIMessage("", tool_calls=[tool_call(name="f", args={}, id="call_1")])
    result = ToolMessage([{"type": "text", "text": "R."}, block], tool_call_id="call_1")
    return [HumanMessage("Q."), call, result]


def fate(block: Json, reader: str, *, in_result: bool = False) -> str:
    """Say what becomes of a block on its way."""
    history = asked(block, in_result=in_result)
    if unsendable(history, reader) is not None:
        return "refused"
    sent = for_provider(history, reader)
    content: Any = sent[-1].content
    if len(content) < 2:
        return "dropped"
    if content[1] == block:
        return "passes"
    return (
        "as text" if content[1]["type"] == "text" and block.get("type") != "text" else "rendered"
    )


def test_the_walk_knows_every_kind_of_the_table() -> None:
    """A row that is added to the table needs a block here."""
    kinds = {kind_of(block) for block in INPUTS.values()}
    assert {*TAKEN_BY, *TAKEN_BY_ALL} <= kinds
    assert all(
        kind_of(block) == name.partition(",")[0] or name == "of the future"
        for name, block in INPUTS.items()
        if "version 0" not in name
    )


@pytest.mark.parametrize("in_result", [False, True], ids=["question", "result"])
@pytest.mark.parametrize("reader", REAL)
@pytest.mark.parametrize("name", INPUTS)
@pytest.mark.filterwarnings("ignore:OpenAI may require a filename")
def test_what_a_user_or_a_tool_sends(name: str, reader: str, *, in_result: bool) -> None:
    """What is sent arrives in a request that the provider accepts; the rest never leaves."""
    block = INPUTS[name]
    history = asked(block, in_result=in_result)
    expected = fate(block, reader, in_result=in_result)
    if expected == "refused":
        with pytest.raises(ModelInvalidRequestError) as caught:
            for_provider(history, reader)
        reason = unsendable(history, reader)
        assert reason is not None
        assert reason in str(caught.value)
        assert DATA not in reason
        return
    sent = for_provider(history, reader)
    assert for_provider(sent, reader) is sent
    assert [one.model_dump() for one in for_provider(history, reader)] == [
        one.model_dump() for one in sent
    ]
    body, faults = wire(sent, reader)
    if name.startswith("tool_result"):
        return  # its call is written by hand as well
    assert faults == []
    assert (DATA in body) is (expected != "dropped")


ANSWERS: Final[dict[str, tuple[str, Json]]] = {
    "thinking": ("anthropic", {"type": "thinking", "thinking": DATA, "signature": DATA}),
    "redacted thinking": ("anthropic", {"type": "redacted_thinking", "data": DATA}),
    "reasoning": (
        "openai",
        {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": DATA},
    ),
    "reasoning (standard)": ("google_genai", {"type": "reasoning", "reasoning": DATA}),
    "reasoning_content": (
        "bedrock_converse",
        {"type": "reasoning_content", "reasoning_content": {"text": DATA, "signature": DATA}},
    ),
    "search of Anthropic's": (
        "anthropic",
        {"type": "server_tool_use", "id": "srvtoolu_1", "name": DATA, "input": {}},
    ),
    "result of Anthropic's search": (
        "anthropic",
        {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": [DATA]},
    ),
    "search of OpenAI's": (
        "openai",
        {"type": "web_search_call", "id": DATA, "status": "completed"},
    ),
    "image made by OpenAI": (
        "openai",
        {"type": "image_generation_call", "id": "i", "result": DATA},
    ),
    "image made by Google": (
        "google_genai",
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{DATA}"}},
    ),
    "code run by Google": (
        "google_genai",
        {"type": "executable_code", "executable_code": DATA, "language": "PYTHON"},
    ),
    "server tool (standard)": (
        "anthropic",
        {"type": "server_tool_call", "id": "s", "name": "web_search", "args": {"q": DATA}},
    ),
    "citations": (
        "anthropic",
        {"type": "text", "text": "Hi.", "citations": [{"encrypted_index": DATA}]},
    ),
    "annotations": (
        "openai",
        {"type": "text", "text": "Hi.", "annotations": [{"url": DATA}], "id": "msg_1"},
    ),
    "refusal": ("openai", {"type": "refusal", "refusal": "No."}),
}


FOREIGN = [
    (name, reader)
    for name, (writer, _) in ANSWERS.items()
    for reader in REAL
    if writer.partition("_")[0] != reader.partition("-")[0]
]


@pytest.mark.parametrize(("name", "reader"), FOREIGN)
def test_what_another_provider_wrote(name: str, reader: str) -> None:
    """Reasoning, signatures and a provider's own tools never reach another provider."""
    writer, block = ANSWERS[name]
    history: list[BaseMessage] = [
        HumanMessage("Q."),
        AIMessage(
            [block, {"type": "text", "text": "A."}], response_metadata={"model_provider": writer}
        ),
        HumanMessage("And?"),
    ]
    assert unsendable(history, reader) is None
    sent = for_provider(history, reader)
    body, faults = wire(sent, reader)
    assert faults == []
    assert DATA not in body
    assert sent[1].text.endswith("A.")
    assert ("No." in body) is (name == "refusal")


def answer_fate(writer: str, block: Json, reader: str) -> str:
    message = AIMessage([block, "A."], response_metadata={"model_provider": writer})
    (sent,) = for_provider([message], reader)
    if sent is message:
        return "passes"
    return "as text" if sent.content != "A." else "dropped"


def table() -> str:
    """Write the table for readers: one line for each kind, one column for each format."""
    lines = [
        "| block | " + " | ".join(FORMATS.values()) + " |",
        "|---" * (len(FORMATS) + 1) + "|",
    ]
    rows = {
        f"answer: {name}": [answer_fate(writer, block, reader) for reader in FORMATS]
        for name, (writer, block) in ANSWERS.items()
    }
    rows |= {name: [fate(block, reader) for reader in FORMATS] for name, block in INPUTS.items()}
    rows["in a tool's result: image"] = [
        fate(INPUTS["image"], reader, in_result=True) for reader in FORMATS
    ]
    rows["in a tool's result: file base64"] = [
        fate(INPUTS["file base64"], reader, in_result=True) for reader in FORMATS
    ]
    return "\n".join([*lines, *(f"| {name} | {' | '.join(row)} |" for name, row in rows.items())])


DOCUMENT = Path(__file__).parents[2] / "docs" / "langchain.md"
BLOCK = re.compile(r"(?<=<!-- history-table -->\n).*?(?=\n<!-- /history-table -->)", re.DOTALL)


def test_the_documentation_shows_the_table() -> None:
    """`docs/langchain.md` shows what goes where; `WRITE_TABLES=1` writes it anew."""
    document = DOCUMENT.read_text(encoding="utf-8")
    if os.environ.get("WRITE_TABLES"):
        document = BLOCK.sub(lambda _: table(), document)
        DOCUMENT.write_text(document, encoding="utf-8")
    assert BLOCK.findall(document) == [table()], "run this module with WRITE_TABLES=1"


def test_types_that_one_provider_writes_go_to_no_other() -> None:
    """Each type of the table of writers, unmarked, is dropped for a provider that is not named."""
    for kind in BLOCK_WRITERS:
        message = AIMessage([{"type": kind, "data": DATA}, "A."])
        assert DATA not in str(for_provider([message], "house"))
