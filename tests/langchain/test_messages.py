"""What one model wrote, as another may read it: units and properties."""

from __future__ import annotations

import re
from copy import deepcopy
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
)
from langchain_core.messages.tool import invalid_tool_call, tool_call
from langchain_core.tools import StructuredTool

from honcho_fallback import Target
from honcho_fallback.providers import Provider
from honcho_fallback_langchain._message_history import tools_for
from tests.helpers.histories import fallback_at, sent_to
from tests.helpers.pairwise import in_turn

Json = dict[str, Any]

MARK = {"cache_control": {"type": "ephemeral"}}
TEXT = {"type": "text", "text": "Hi."}
WRITERS = ["anthropic", "openai", "mistralai", "google_genai", "bedrock_converse", "groq"]
READERS = ["anthropic", "openai", "azure", "mistral", "google_genai", "amazon_bedrock", "litellm"]
VALID = {
    "anthropic": r"[a-zA-Z0-9_-]+",
    "openai": r"(?s).{1,40}",
    "azure": r"(?s).{1,40}",
    "mistral": r"[a-zA-Z0-9]{9}",
    "amazon_bedrock": r"[a-zA-Z0-9_-]{1,64}",
}


def by(writer: str | None, content: Any, **fields: Any) -> AIMessage:
    metadata = {"model_provider": writer} if writer else {}
    return AIMessage(content, response_metadata=metadata, **fields)


def sent(message: BaseMessage, provider: str) -> Any:
    (only,) = sent_to(provider, [message])
    return only


FOREIGN_BLOCKS: list[tuple[str, Json]] = [
    ("anthropic", {"type": "thinking", "thinking": "Hm.", "signature": "s"}),
    ("anthropic", {"type": "redacted_thinking", "data": "d"}),
    ("anthropic", {"type": "server_tool_use", "id": "srvtoolu_1", "name": "n", "input": {}}),
    ("anthropic", {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []}),
    ("anthropic", {"type": "code_execution_tool_result", "tool_use_id": "s", "content": {}}),
    ("openai", {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "e"}),
    ("openai", {"type": "web_search_call", "id": "ws_1", "status": "completed"}),
    ("openai", {"type": "code_interpreter_call", "id": "ci_1", "code": "1"}),
    ("openai", {"type": "image_generation_call", "id": "ig_1", "result": "x"}),
    ("google_genai", {"type": "executable_code", "executable_code": "1", "language": 1}),
    ("bedrock_converse", {"type": "reasoning_content", "reasoning_content": {"text": "Hm."}}),
    ("openai", {"type": "a kind of the future", "id": "x_1"}),
    ("openai", {"type": "non_standard", "value": {"type": "x"}}),
]


@pytest.mark.parametrize(("writer", "block"), FOREIGN_BLOCKS, ids=lambda part: str(part)[:30])
def test_only_text_of_another_provider_is_sent(writer: str, block: Json) -> None:
    """Also block types that nobody had heard of when this was written."""
    message = by(writer, [block, TEXT])
    for reader in READERS:
        mine = reader.partition("_")[0] in writer or (reader == "azure" and writer == "openai")
        if mine or (reader, writer) == ("amazon_bedrock", "bedrock_converse"):
            assert sent(message, reader) is message
        else:
            assert sent(message, reader).content == "Hi."


@pytest.mark.parametrize(
    ("writers", "block"),
    [
        (["anthropic", "google_genai", "mistral"], {"type": "thinking", "thinking": "Hm."}),
        (["anthropic"], {"type": "redacted_thinking", "data": "d"}),
        (["openai", "azure"], {"type": "web_search_call", "id": "ws_1"}),
        (["amazon_bedrock"], {"type": "reasoning_content", "reasoning_content": {}}),
    ],
    ids=lambda part: str(part)[:24],
)
def test_blocks_tell_who_wrote_a_message_that_does_not(writers: list[str], block: Json) -> None:
    """Histories from before `model_provider`; who is not known to write it does not get it."""
    message = by(None, [block, TEXT])
    for reader in [*READERS, "house"]:
        assert (sent(message, reader) is message) is (reader in writers), reader


@in_turn(
    reader=[*READERS, "house"],
    writer=[*WRITERS, None],
    content=["Hi.", "", [TEXT], ["Hi.", TEXT], "Hi."],
)
def test_plain_messages_stay_the_same_objects(
    content: Any, writer: str | None, reader: str
) -> None:
    """Nothing to do is nothing done: the very list comes back."""
    calls = [tool_call(name="f", args={}, id="abcDEF123")]
    history: list[BaseMessage] = [
        SystemMessage("S."),
        HumanMessage("Q."),
        by(writer, content, additional_kwargs={"refusal": None, "name": "n"}),
        by(writer, content, tool_calls=calls),
        ToolMessage("R.", tool_call_id="abcDEF123"),
    ]
    assert sent_to(reader, history) is history


@pytest.mark.parametrize(
    "extra",
    [
        {"reasoning": {"id": "rs_1", "summary": []}},
        {"reasoning_content": "Hm."},
        {"function_call": {"name": "f", "arguments": "{}"}},
        {"thinking_blocks": [{"thinking": "Hm."}]},
        {"audio": {"id": "audio_1"}},
    ],
    ids=lambda extra: next(iter(extra)),
)
def test_additional_keywords_stay_with_their_writer(extra: Json) -> None:
    """But for the name, which belongs to the conversation."""
    message = by("openai", "Hi.", additional_kwargs={**extra, "name": "n"})
    assert sent(message, "anthropic").additional_kwargs == {"name": "n"}
    assert sent(message, "openai") is message


@pytest.mark.parametrize("name", ["msg_1", "resp_1"])
def test_ids_on_a_server_stay_there(name: str) -> None:
    """OpenAI would look for a message of Anthropic's under its id."""
    assert sent(by("anthropic", "Hi.", id=name), "openai").id is None
    assert sent(by("openai", "Hi.", id=name), "openai").id == name
    assert sent(by("anthropic", "Hi.", id="lc_run--1"), "openai").id == "lc_run--1"
    for content in ("Hi.", [TEXT]):
        answer = by("azure", content)
        answer.response_metadata["id"] = name
        assert "id" not in sent(answer, "anthropic").response_metadata
        assert sent(answer, "openai").response_metadata["id"] == name  # nobody says whose account


def test_a_refusal_is_text_to_others() -> None:
    """It is what was said."""
    block = by("openai", [{"type": "refusal", "refusal": "No."}])
    keyword = by("openai", "", additional_kwargs={"refusal": "No."})
    assert sent(block, "anthropic").content == sent(keyword, "anthropic").content == "No."


def test_text_keeps_its_order_without_ids_and_citations() -> None:
    """Text around thinking and calls, whatever each provider puts beside it."""
    blocks = [
        "One ",
        {"type": "thinking", "thinking": "Hm.", "signature": "s"},
        {"type": "text", "text": "two ", "citations": [{"encrypted_index": "e"}]},
        {"type": "output_text", "text": "three", "annotations": []},
        {"type": "text", "text": None},
    ]
    assert sent(by("anthropic", blocks), "openai").content == "One two three"


def test_standard_blocks_are_read_as_text_too() -> None:
    """`output_version="v1"` promises blocks; a text that says so breaks the converters."""
    message = by("anthropic", [{"type": "reasoning", "reasoning": "Hm."}, TEXT])
    message.response_metadata["output_version"] = "v1"
    read = sent(message, "openai")
    assert read.content == "Hi."
    assert read.response_metadata == {"model_provider": "anthropic"}
    assert read.content_blocks == [TEXT]


@pytest.mark.parametrize("content", [[FOREIGN_BLOCKS[0][1]], [FOREIGN_BLOCKS[0][1], "\n"]])
def test_an_answer_of_which_nothing_is_left_is_left_out(content: Any) -> None:
    """Blank text counts as nothing; a call counts."""
    history = [HumanMessage("Q."), by("anthropic", content), HumanMessage("?")]
    assert sent_to("openai", history) == [history[0], history[2]]

    broken = invalid_tool_call(name="f", args="{", id="c2", error=None)
    for calls in (
        {"tool_calls": [tool_call(name="f", args={}, id="c")]},
        {"invalid_tool_calls": [broken]},
    ):
        assert sent(by("anthropic", content, **calls), "openai").content == ""


LONG = "call_" + "x" * 60


@pytest.mark.parametrize("reader", VALID)
def test_an_id_is_made_valid_wherever_it_stands(reader: str) -> None:
    """In calls, broken calls, blocks and results; the same in each."""
    use = {"type": "tool_use", "id": "a.b:0", "name": "f", "input": {}}
    broken = invalid_tool_call(name="f", args="{", id=LONG + ":", error=None)
    asked = by(
        "house",
        "",
        tool_calls=[tool_call(name="f", args={}, id="a.b:0" * 9)],
        invalid_tool_calls=[broken],
    )
    unknown = by(None, [use], tool_calls=[tool_call(name="f", args={}, id="a.b:0")])
    history: list[BaseMessage] = [
        asked,
        ToolMessage("R.", tool_call_id="a.b:0" * 9),
        ToolMessage("R.", tool_call_id=LONG + ":"),
        unknown,
        ToolMessage("R.", tool_call_id="a.b:0"),
    ]
    first, one, two, second, three = sent_to(reader, history)
    pairs: list[Any] = [
        (first.tool_calls[0]["id"], one.tool_call_id),
        (first.invalid_tool_calls[0]["id"], two.tool_call_id),
        (second.tool_calls[0]["id"], three.tool_call_id),
    ]
    for call, result in pairs:
        assert call == result
        assert re.fullmatch(VALID[reader], call)
    assert sent_to(reader, history) == sent_to(reader, history)


def test_ids_that_a_provider_made_itself_are_its_own() -> None:
    """Servers that speak OpenAI's API make longer ones, and read them back."""
    history = [by("openai", "", tool_calls=[tool_call(name="f", args={}, id=LONG)])]
    history += [ToolMessage("R.", tool_call_id=LONG)]  # type: ignore[list-item]
    assert sent_to("openai", list(history)) == history


MARKED: list[Any] = [
    {**TEXT, **MARK},
    {**TEXT, "extras": {**MARK, "a": 1}},
    {**TEXT, "metadata": dict(MARK)},
    {**TEXT, "content": [{**TEXT, **MARK}]},
]


@in_turn(kind=[SystemMessage, HumanMessage, AIMessage, "tool"], block=MARKED)
def test_cache_markers_go_where_they_are_known(block: Json, kind: Any) -> None:
    """In any message, at any depth; who is not known to take them gets none."""
    content: Any = ["Hi.", block]
    made = ToolMessage(content, tool_call_id="t") if kind == "tool" else kind(content)
    for reader in ("anthropic", "amazon_bedrock", "litellm", "openrouter"):
        assert sent(made, reader) is made
    for reader in ("openai", "azure", "mistral", "google_genai", "groq", "house"):
        read = sent(made, reader)
        assert "cache_control" not in str(read)
        assert read.content[0] == "Hi."
        assert read.content[1]["type"] == block["type"]


def test_a_block_that_is_only_a_marker_goes_with_it() -> None:
    """Bedrock's stands alone, and is no block that others know."""
    message = HumanMessage([TEXT, {"cachePoint": {"type": "default"}}])
    assert sent(message, "anthropic").content == [TEXT]
    assert sent(message, "bedrock_converse") is message


TEXTS = st.text(max_size=8)
TEXT_BLOCKS: Any = st.one_of(
    TEXTS,
    st.builds(lambda text: {"type": "text", "text": text}, TEXTS),
    st.builds(lambda text: {"type": "text", "text": text, "index": 0, **MARK}, TEXTS),
)
INPUTS: Any = st.one_of(TEXTS, st.lists(TEXT_BLOCKS, max_size=4))
BLOCKS = st.one_of(TEXT_BLOCKS, st.sampled_from([block for _, block in FOREIGN_BLOCKS]))
ANSWERS: Any = st.one_of(TEXTS, st.lists(BLOCKS, max_size=4))
IDS = st.one_of(
    st.text("ab.:_-", min_size=1, max_size=3), st.text("ab.:", min_size=39, max_size=70)
)


@st.composite
def histories(draw: st.DrawFn) -> list[BaseMessage]:
    """Draw rounds of a question, an answer that calls tools, and the results."""
    history: list[BaseMessage] = []
    for _ in range(draw(st.integers(0, 3))):
        names = draw(st.lists(IDS, max_size=2, unique=True))
        history.append(draw(st.sampled_from([HumanMessage, SystemMessage]))(draw(INPUTS)))
        calls = [tool_call(name="f", args={"a": name}, id=name) for name in names]
        extra = draw(st.sampled_from([{}, {"refusal": None}, {"reasoning": {"id": "rs_1"}}]))
        history.append(
            by(
                draw(st.sampled_from([*WRITERS, None, "house"])),
                draw(ANSWERS),
                tool_calls=calls,
                additional_kwargs=extra,
                id=draw(st.sampled_from([None, "msg_1", "lc_1"])),
            )
        )
        history += [ToolMessage(draw(INPUTS), tool_call_id=name) for name in names]
    return history


def _text(message: BaseMessage) -> str:
    return str(message.text)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])  # speed is not the point
@given(histories(), st.sampled_from([*READERS, "house"]))
def test_what_holds_for_every_history(history: list[BaseMessage], reader: str) -> None:
    """Nothing is mutated, a second time changes nothing, text and pairs of ids are kept."""
    before = deepcopy(history)

    read = sent_to(reader, history)

    assert history == before
    assert sent_to(reader, read) is read
    said = "".join(_text(message) for message in history if _text(message).strip())
    assert "".join(_text(message) for message in read if _text(message).strip()) == said
    asked = [call for one in history if isinstance(one, AIMessage) for call in one.tool_calls]
    now = [call for one in read if isinstance(one, AIMessage) for call in one.tool_calls]
    assert [(call["name"], call["args"]) for call in now] == [
        (call["name"], call["args"]) for call in asked
    ]
    results = [one.tool_call_id for one in read if isinstance(one, ToolMessage)]
    assert [call["id"] for call in now] == results
    if read == history:
        assert read is history


EVERY = {*READERS, "anthropic-bedrock", "fireworks", "groq", "house"}


@pytest.mark.parametrize(
    ("settings", "known_to"),
    [
        ({"cache_control": {}}, {"anthropic", "anthropic-bedrock"}),
        ({"prompt_cache_key": "k"}, {"openai", "azure", "fireworks"}),
        ({"betas": ["b"]}, {"anthropic", "anthropic-bedrock"}),
        ({"thinking": {"type": "enabled"}}, {"anthropic", "anthropic-bedrock", "litellm"}),
        ({"reasoning": {"effort": "low"}}, {"openai", "azure"}),
        ({"service_tier": "auto"}, {"openai", "azure", "anthropic", "anthropic-bedrock", "groq"}),
        ({"num_ctx": 1}, EVERY),
        ({"top_k": 1}, EVERY - {"azure", "groq", "house", "mistral", "openai"}),
        ({"safe_prompt": True}, {"mistral"}),
        ({"extra_headers": {"Anthropic-Beta": "b"}}, {"anthropic", "anthropic-bedrock"}),
        ({"extra_headers": {"x-session-affinity": "s"}}, {"fireworks"}),
        ({"extra_headers": {"OpenAI-Project": "p"}}, {"openai", "azure"}),
        ({"extra_headers": {"Authorization": "Bearer k"}}, set()),
        ({"default_headers": {"X-API-Key": "k"}}, set()),
        ({"api_key": "k"}, set()),
        ({"base_url": "http://a"}, set()),
        ({"extra_body": {"a": 1}}, set()),
    ],
    ids=lambda value: str(sorted(value) if isinstance(value, set) else value),
)
def test_a_setting_goes_where_it_is_known(settings: Json, known_to: set[str]) -> None:
    """Others would refuse it; a key would be given away."""
    for reader in EVERY:
        assert Provider.named(reader).settings(settings) == (
            settings if reader in known_to else {}
        ), reader


def test_other_settings_travel() -> None:
    """What every integration understands, and what nobody here has heard of."""
    given_settings = {
        "temperature": 0.5,
        "stop": ["x"],
        "tool_choice": "any",
        "response_format": {"type": "json_object"},
        "extra_headers": {"traceparent": "00-1"},
        "of_the_future": 1,
    }
    before = deepcopy(given_settings)
    for reader in (*READERS, "house"):
        travelled = Provider.named(reader).settings(given_settings)
        assert travelled == given_settings
        assert travelled is not given_settings
    assert given_settings == before


def test_tools_lose_markers_too() -> None:
    """Described or as objects, in settings or beside them."""
    described = {"name": "f", "input_schema": {"type": "object", "properties": dict(MARK)}, **MARK}
    plain = {"name": "g", "extras": {"a": 1}}
    made = StructuredTool.from_function(len, name="len", description="l", extras=dict(MARK))
    tools: list[Any] = [described, plain, made]

    openai = Provider.named("openai")
    primary = Target("model", "anthropic")
    (first, second, third), _ = tools_for(fallback_at("openai", primary), tools, {})

    assert first == {"name": "f", "input_schema": described["input_schema"]}
    assert second is plain
    assert (third.name, third.extras) == ("len", None)
    assert made.extras == MARK
    assert openai.settings({"tools": [described]})["tools"] == [first]
    assert tools_for(fallback_at("anthropic", primary), tools, {}) == (tools, {})
    assert tools_for(fallback_at("openai", primary), [plain], {}) == ([plain], {})
