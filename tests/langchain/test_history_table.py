"""The table of an answer's blocks: each kind, to each family, through the real integrations.

Requests are built by LangChain's own converters and judged by the strict rules of the providers:
a row of the table which a provider would answer with a 400 fails here.
"""

from __future__ import annotations

import json
from typing import Any, Final

import pytest
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langchain_google_genai import ChatGoogleGenerativeAI

from honcho_fallback.providers._provider import takers
from tests.helpers.chat_models import claude, gpt
from tests.helpers.histories import sent_to
from tests.helpers.strict import AnthropicRules, ChatRules, GeminiRules, ResponsesRules

Json = dict[str, Any]

DATA = "SGVsbG8h"  # stands for what a user sends, and is looked for on the wire


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
    sent = sent_to(reader, history)
    body, faults = wire(sent, reader)
    assert faults == []
    assert DATA not in body
    assert sent[1].text.endswith("A.")
    assert ("No." in body) is (name == "refusal")


def test_types_that_one_provider_writes_go_to_no_other() -> None:
    """Each type of the table of writers, unmarked, is dropped for a provider that is not named."""
    for kind in takers("blocks"):
        message = AIMessage([{"type": kind, "data": DATA}, "A."])
        assert DATA not in str(sent_to("house", [message]))
