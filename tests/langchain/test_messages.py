"""What of a history reaches another provider: text, calls with valid ids, and settings it knows.

Requests are built by LangChain's own converters and judged by the strict rules of the providers,
so that what a provider would answer with a 400 fails here.
"""

from __future__ import annotations

import json
import re
from copy import deepcopy
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from langchain_anthropic import ChatAnthropic
from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
)
from langchain_core.messages.tool import invalid_tool_call, tool_call
from langchain_core.tools import StructuredTool
from langchain_openai import ChatOpenAI

from honcho_fallback import Target
from honcho_fallback.providers import Provider
from honcho_fallback.providers._provider import takers
from honcho_fallback.testing import StatusError
from honcho_fallback_langchain import FallbackChatModel
from honcho_fallback_langchain._message_history import Reader, for_provider, tools_for
from tests.helpers.chat_models import NOWHERE, ScriptedChat, claude, gemini, gpt, model_at
from tests.helpers.pairwise import in_turn
from tests.helpers.provider import Reply
from tests.helpers.strict import AnthropicRules, ChatRules, GeminiRules, ResponsesRules
from tests.helpers.wire import message_answer, response_text, responses_answer, text_block

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.helpers.provider import ProviderServer

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


def fallback_at(provider: str, *chain: Target) -> Reader:
    """Return who reads a history beside a primary at another provider."""
    known = Provider.named(provider)
    return Reader(Target("model", known.family), chain, known, known, is_primarys=False)


def sent_to(provider: str, history: list[Any]) -> list[Any]:
    sent: list[Any] = for_provider(history, fallback_at(provider))
    return sent


def by(writer: str | None, content: Any, **fields: Any) -> AIMessage:
    metadata = {"model_provider": writer} if writer else {}
    return AIMessage(content, response_metadata=metadata, **fields)


def sent(message: BaseMessage, provider: str) -> Any:
    (only,) = sent_to(provider, [message])
    return only


def wire(messages: list[BaseMessage], reader: str) -> tuple[str, list[str]]:
    """Return the request that LangChain's integration builds, and the rules that it breaks."""
    model: Any
    if reader == "google":
        model = gemini()
        request: Any = model._prepare_request(messages)
        contents = [one.model_dump(mode="json", exclude_none=True) for one in request["contents"]]
        return json.dumps(contents), GeminiRules().faults({"contents": contents})
    model, rules = {
        "anthropic": (claude(max_tokens=9), AnthropicRules()),
        "openai": (gpt(), ChatRules()),
        "openai-responses": (gpt(use_responses_api=True), ResponsesRules()),
    }[reader]
    bound: Any = model.bind_tools([TOOL])
    body = model._get_request_payload(messages, **bound.kwargs)
    return json.dumps(body), rules.faults(json.loads(json.dumps(body)))


TOOL = {"name": "f", "description": "F.", "parameters": {"type": "object"}}
DATA = "SGVsbG8h"  # stands for what its writer alone can read, and is looked for on the wire


# Who writes which blocks of an answer: the rows of the table in docs/langchain.md.
BLOCKS_BY: Final[dict[str, dict[str, Json]]] = {
    "anthropic": {
        "thinking": {"type": "thinking", "thinking": DATA, "signature": DATA},
        "redacted thinking": {"type": "redacted_thinking", "data": DATA},
        "search of Anthropic's": {
            "type": "server_tool_use", "id": "srvtoolu_1", "name": DATA, "input": {},
        },
        "result of Anthropic's search": {
            "type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": [DATA],
        },
        "server tool (standard)": {
            "type": "server_tool_call", "id": "s", "name": "web_search", "args": {"q": DATA},
        },
        "citations": {"type": "text", "text": "Hi.", "citations": [{"encrypted_index": DATA}]},
    },
    "openai": {
        "reasoning": {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": DATA},
        "search of OpenAI's": {"type": "web_search_call", "id": DATA, "status": "completed"},
        "image made by OpenAI": {"type": "image_generation_call", "id": "i", "result": DATA},
        "annotations": {
            "type": "text", "text": "Hi.", "annotations": [{"url": DATA}], "id": "msg_1",
        },
        "refusal": {"type": "refusal", "refusal": "No."},
        "of the future": {"type": "of the future", "id": DATA},
        "not standard": {"type": "non_standard", "value": {"type": DATA}},
    },
    "google_genai": {
        "reasoning (standard)": {"type": "reasoning", "reasoning": DATA},
        "image made by Google": {
            "type": "image_url", "image_url": {"url": f"data:image/png;base64,{DATA}"},
        },
        "code run by Google": {
            "type": "executable_code", "executable_code": DATA, "language": "PYTHON",
        },
    },
    "bedrock_converse": {
        "reasoning_content": {
            "type": "reasoning_content", "reasoning_content": {"text": DATA, "signature": DATA},
        },
    },
}  # fmt: skip
FOREIGN = {name: (who, block) for who, own in BLOCKS_BY.items() for name, block in own.items()}
THINKING = FOREIGN["thinking"][1]


@pytest.mark.parametrize("name", FOREIGN)
def test_only_text_of_another_provider_is_sent(name: str) -> None:
    """Also block types that nobody had heard of when this was written; its writer gets all."""
    writer, block = FOREIGN[name]
    message = by(writer, [block, TEXT])
    text = {"citations": "Hi.", "annotations": "Hi.", "refusal": "No."}.get(name, "")
    for reader in READERS:
        mine = reader.partition("_")[0] in writer or (reader == "azure" and writer == "openai")
        if mine or (reader, writer) == ("amazon_bedrock", "bedrock_converse"):
            assert sent(message, reader) is message
        else:
            assert sent(message, reader).content == f"{text}Hi."
    for reader in ("openai", "openai-responses", "anthropic", "google"):
        if writer.partition("_")[0] != reader.partition("-")[0]:
            history = [HumanMessage("Q."), message, HumanMessage("And?")]
            body, faults = wire(sent_to(reader, history), reader)
            assert (faults, DATA in body) == ([], False)


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


def test_types_that_one_provider_writes_go_to_no_other() -> None:
    """Each type of the table of writers, unmarked, is dropped for a provider that is not named."""
    for kind in takers("blocks"):
        message = AIMessage([{"type": kind, "data": DATA}, "A."])
        assert DATA not in str(sent_to("house", [message]))


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


def test_additional_keywords_stay_with_their_writer() -> None:
    """Each of them, but for the name, which belongs to the conversation."""
    own: Json = {
        "reasoning": {"id": "rs_1", "summary": []},
        "reasoning_content": "Hm.",
        "function_call": {"name": "f", "arguments": "{}"},
        "thinking_blocks": [{"thinking": "Hm."}],
        "audio": {"id": "audio_1"},
    }
    for name, value in own.items():
        message = by("openai", "Hi.", additional_kwargs={name: value, "name": "n"})
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


def test_text_keeps_its_order_without_ids_and_citations() -> None:
    """Text around thinking and calls, whatever each provider puts beside it; a refusal is text."""
    blocks = [
        "One ",
        THINKING,
        {"type": "text", "text": "two ", "citations": [{"encrypted_index": "e"}]},
        {"type": "output_text", "text": "three", "annotations": []},
        {"type": "text", "text": None},
    ]
    assert sent(by("anthropic", blocks), "openai").content == "One two three"
    keyword = by("openai", "", additional_kwargs={"refusal": "No."})
    assert sent(keyword, "anthropic").content == "No."


def test_standard_blocks_are_read_as_text_too() -> None:
    """`output_version="v1"` promises blocks; a text that says so breaks the converters."""
    message = by("anthropic", [{"type": "reasoning", "reasoning": "Hm."}, TEXT])
    message.response_metadata["output_version"] = "v1"
    read = sent(message, "openai")
    assert read.content == "Hi."
    assert read.response_metadata == {"model_provider": "anthropic"}
    assert read.content_blocks == [TEXT]


@pytest.mark.parametrize("content", [[THINKING], [THINKING, "\n"]])
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


# Tool-call ids: valid for the reader, and distinct over the whole history (AN-011).


LONG = "call_" + "x" * 60


def test_ids_that_a_provider_made_itself_are_its_own() -> None:
    """Servers that speak OpenAI's API make longer ones, and read them back."""
    history = [by("openai", "", tool_calls=[tool_call(name="f", args={}, id=LONG)])]
    history += [ToolMessage("R.", tool_call_id=LONG)]  # type: ignore[list-item]
    assert sent_to("openai", list(history)) == history


def calls(*ids: str) -> AIMessage:
    return AIMessage("", tool_calls=[tool_call(name="f", args={}, id=one) for one in ids])


def result(call_id: str, text: str = "R.") -> ToolMessage:
    return ToolMessage(text, tool_call_id=call_id)


def test_a_result_belongs_to_the_latest_call() -> None:
    """A call without a result, such as of a turn that was cancelled, takes nobody else's."""
    history = [calls("a"), HumanMessage("Never mind."), calls("a"), result("a")]
    sent = sent_to("anthropic", history)
    again, answer = sent[2:]
    assert isinstance(again, AIMessage)
    assert isinstance(answer, ToolMessage)
    assert again.tool_calls[0]["id"] == answer.tool_call_id != "a"


def test_blocks_and_invalid_calls_are_renamed_alike() -> None:
    """What stands in the content is the call that is listed, and goes where it has a new id."""
    block = {"type": "tool_use", "id": "a", "name": "f", "input": {}}
    listed = [tool_call(name="f", args={}, id="a")]
    broken = [invalid_tool_call(name="f", args="{", id="a", error=None)]
    answer = {"type": "tool_result", "tool_use_id": "a", "content": "R."}
    history: list[BaseMessage] = [
        AIMessage([block], tool_calls=listed),
        HumanMessage([answer]),
        AIMessage([block], tool_calls=listed),
        HumanMessage([answer]),
        AIMessage([block], tool_calls=listed),
        result("a"),
        AIMessage("", invalid_tool_calls=broken),
    ]
    sent: list[Any] = sent_to("anthropic", history)
    first, second, third = (sent[place] for place in (0, 2, 4))
    assert first.content == [block]
    assert second.content == third.content == ""
    assert second.tool_calls[0]["id"] == sent[3].content[0]["tool_use_id"]
    assert third.tool_calls[0]["id"] == sent[5].tool_call_id
    ids = [call["id"] for call in calls_in(sent)]
    assert (ids[0], len({*ids})) == ("a", 4)


def test_a_result_and_its_block_are_one_result() -> None:
    """Parallel calls under one id: a result that says its id twice takes one of theirs.

    What a tool's message says of a call that is not its own keeps its id.
    """
    told = [
        ToolMessage([{"type": "tool_result", "tool_use_id": "a"}], tool_call_id="a")
        for _ in range(2)
    ]
    other = ToolMessage([{"type": "tool_result", "tool_use_id": "b"}], tool_call_id="a")
    sent: list[Any] = sent_to("anthropic", [calls("a", "a"), *told, calls("a"), other])
    ids = [call["id"] for one in (sent[0], sent[3]) for call in one.tool_calls]
    assert [one.tool_call_id for one in (*sent[1:3], sent[4])] == ids
    assert [one.content[0]["tool_use_id"] for one in (*sent[1:3], sent[4])] == [*ids[:2], "b"]
    assert len({*ids}) == 3


@pytest.mark.parametrize("reader", ["google_genai", "house"])
def test_who_does_not_look_at_ids_gets_them_as_they_are(reader: str) -> None:
    """Gemini goes by names, and of a server that is not known nothing is assumed."""
    history = [calls("a"), result("a"), calls("a"), result("a")]
    assert sent_to(reader, history) is history


@pytest.mark.parametrize(("name", "rules"), [("openai", ChatRules), ("anthropic", AnthropicRules)])
def test_strict_providers_accept_the_history(name: str, rules: Any, providers: Any) -> None:
    """AN-011 on the wire: two rounds under one id, asked of whoever did not write them."""
    provider = providers.new(name, rules=rules())
    dead = providers.new("openai-dead")
    dead.fail(503)
    model = FallbackChatModel(model_at(dead), model_at(provider))
    history = [HumanMessage("Q."), calls("a", "a"), result("a", "1"), result("a", "2")]
    model.bind_tools([TOOL]).invoke([*history, calls("a"), result("a", "3")])
    assert not provider.refused
    assert len(provider.requests) == 1


TEXTS = st.text(max_size=8)
TEXT_BLOCKS: Any = st.one_of(
    TEXTS,
    st.builds(lambda text: {"type": "text", "text": text}, TEXTS),
    st.builds(lambda text: {"type": "text", "text": text, "index": 0, **MARK}, TEXTS),
)
INPUTS: Any = st.one_of(TEXTS, st.lists(TEXT_BLOCKS, max_size=4))
# Of a refusal others get the text, which its writer's block does not count as.
NO_TEXT = [block for name, (_, block) in FOREIGN.items() if name != "refusal"]
BLOCKS = st.one_of(TEXT_BLOCKS, st.sampled_from(NO_TEXT))
ANSWERS: Any = st.one_of(TEXTS, st.lists(BLOCKS, max_size=4))
IDS = st.lists(st.sampled_from(["a", "b", "a.b:0", "step00000", "x" * 70]), max_size=4)


@st.composite
def histories(draw: st.DrawFn) -> list[BaseMessage]:
    """Draw rounds of a question, an answer with calls, broken ones too, and the results."""
    history: list[BaseMessage] = []
    for _ in range(draw(st.integers(0, 3))):
        broken, valid = draw(IDS), draw(IDS)
        history.append(draw(st.sampled_from([HumanMessage, SystemMessage]))(draw(INPUTS)))
        extra = draw(st.sampled_from([{}, {"refusal": None}, {"reasoning": {"id": "rs_1"}}]))
        history.append(
            by(
                draw(st.sampled_from([*WRITERS, None, "house"])),
                draw(ANSWERS),
                tool_calls=[tool_call(name="f", args={"a": one}, id=one) for one in valid],
                invalid_tool_calls=[
                    invalid_tool_call(name="f", args="{", id=one, error=None) for one in broken
                ],
                additional_kwargs=extra,
                id=draw(st.sampled_from([None, "msg_1", "lc_1"])),
            )
        )
        history += [ToolMessage(draw(INPUTS), tool_call_id=one) for one in (*valid, *broken)]
    return history


def _writer_of(message: BaseMessage) -> Any:
    return message.response_metadata.get("model_provider")


def calls_in(history: list[BaseMessage]) -> list[Any]:
    answers = [one for one in history if isinstance(one, AIMessage)]
    return [call for one in answers for call in (*one.tool_calls, *one.invalid_tool_calls)]


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])  # speed is not the point
@given(histories(), st.sampled_from([*READERS, "house"]))
def test_what_holds_for_every_history(history: list[BaseMessage], reader: str) -> None:
    """Nothing is mutated, a second time changes nothing, text is kept, each result has its call.

    Where a provider looks at ids they are valid and distinct, but for those that it made itself.
    """
    before = deepcopy(history)

    read = sent_to(reader, history)

    assert (history, sent_to(reader, history)) == (before, read)
    assert (sent_to(reader, read) is read, read != history or read is history) == (True, True)
    said = "".join(str(one.text) for one in history if str(one.text).strip())
    assert "".join(str(one.text) for one in read if str(one.text).strip()) == said
    asked, now = calls_in(history), calls_in(read)
    assert [(call["name"], call["args"]) for call in now] == [
        (call["name"], call["args"]) for call in asked
    ]
    ids = [call["id"] for call in now]
    assert [one.tool_call_id for one in read if isinstance(one, ToolMessage)] == ids
    if reader in VALID:
        assert len({*ids}) == len(ids)
        kept = {call["id"] for call in asked if any(map(_writer_of, history))}
        assert all(re.fullmatch(VALID[reader], one) for one in {*ids} - kept)


# What goes where it is known.


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
        ({"num_ctx": 1, "of_the_future": 1, "temperature": 0.5, "stop": ["x"]}, EVERY),
        ({"tool_choice": "any", "response_format": {"type": "json_object"}}, EVERY),
        ({"extra_headers": {"traceparent": "00-1"}}, EVERY),
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


# On the wire: whose an answer is; loops of tools stand in test_thinking.py.


def test_an_id_of_a_response_is_no_other_accounts(providers: ProviderServer) -> None:
    """The primary is not asked to go on from what a fallback's account keeps."""
    servers = [providers.new("openai", rules=ResponsesRules()) for _ in range(2)]
    servers[0].reply(Reply(status=503))
    for number, server in enumerate(servers):
        body = responses_answer(response_text(f"Said by {number}.", f"msg_{number}"))
        server.standing = Reply(body={**body, "id": f"resp_{number}"})
    fields: Json = {"use_responses_api": True, "use_previous_response_id": True}
    model = FallbackChatModel(*(gpt(base_url=one.url, **fields) for one in servers))
    history: list[BaseMessage] = [HumanMessage("One.")]
    for said in ("Said by 1.", "Said by 0.", "Said by 0."):
        history += [model.invoke(history), HumanMessage("More.")]
        assert history[-2].text == said
    bodies = servers[0].bodies
    assert [one.get("previous_response_id") for one in bodies] == [None, None, "resp_0"]
    assert servers[0].refused == []


class InHouse(ScriptedChat):
    """A class that does not say whom it asks: LangChain's tracing names it after itself."""


def test_two_models_of_a_class_without_a_name_are_not_one_provider() -> None:
    """What a request says to the one host, and what that host has signed, stays with it."""
    signed = {"type": "thinking", "thinking": "Hm.", "signature": "signed"}
    answer = AIMessage([signed, {"type": "text", "text": "Hello."}])
    first = InHouse(model="a", script=[[StatusError(503)]])
    second = InHouse(model="b", script=[["Bye."]])
    model = FallbackChatModel(first, second)
    headers = {"authorization": "of the first"}
    model.invoke([HumanMessage("One."), answer, HumanMessage("Two.")], extra_headers=headers)
    assert first.asked[-1].kwargs["extra_headers"] == headers
    assert "extra_headers" not in second.asked[-1].kwargs
    assert "signed" not in str(second.asked[-1].messages)


# Whose an answer of the history is, where providers share an integration or a class.


REASONING = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "e"}
CLOUD = "http://127.0.0.1:2"


def at_another(provider: str, kind: Any) -> Callable[..., Any]:
    """Return a maker of another provider's models, built on this class as several are."""

    def described(self: Any, **kwargs: Any) -> Any:
        return kind._get_ls_params(self, **kwargs) | {"ls_provider": provider}

    made: Any = type("Another", (kind,), {"_get_ls_params": described, "__module__": __name__})
    return partial(made, model="m", api_key="k", base_url=CLOUD)


cloud = at_another("cloud", ChatOpenAI)
mantle = at_another("amazon_bedrock", ChatAnthropic)


def answer(writer: str = "openai", target: str | None = None) -> AIMessage:
    """Return what a model said; its chain, if there was one, notes which target that was."""
    described = {"fallback": {"attempts": [{"target": target}]}} if target else {}
    metadata = {"model_provider": writer, **described}
    return AIMessage([REASONING, {"type": "text", "text": "Hi."}], response_metadata=metadata)


def kept(message: AIMessage, position: int, *candidates: Any) -> bool:
    """Tell whether a candidate of a chain gets an answer whole."""
    chain = FallbackChatModel(*candidates).policy.targets
    (sent,) = for_provider([message], Reader.of(chain[position], chain))
    assert sent is message or sent.content == "Hi."
    return sent is message


@pytest.mark.parametrize("form", ["messages", "responses"])
def test_thoughts_go_back_to_a_primary_of_another_name(
    providers: ProviderServer, form: str
) -> None:
    """Who serves Anthropic's models, or speaks OpenAI's protocol, reads what it wrote itself."""
    if form == "messages":
        provider = providers.new("anthropic", rules=AnthropicRules())
        thought: Json = {"type": "thinking", "thinking": "Hm.", "signature": "signed"}
        provider.reply(Reply(body=message_answer(thought, text_block("Hi."))))
        made = mantle(base_url=provider.url, model="claude-sonnet-5", max_tokens=9)
        model = FallbackChatModel(made, gpt())
    else:
        provider = providers.new("openai", rules=ResponsesRules())
        provider.reply(Reply(body=responses_answer(REASONING, response_text("Hi.", "msg_1"))))
        given: Json = {"use_responses_api": True, "output_version": "responses/v1"}
        model = FallbackChatModel(cloud(base_url=provider.url, **given), claude())
    model.invoke([HumanMessage("Q."), model.invoke("Q."), HumanMessage("And?")])
    assert provider.refused == []
    body = str(provider.bodies[-1])
    assert ("'signature': 'signed'" if form == "messages" else "encrypted_content") in body


TWO = gpt(model="a"), gpt(model="b")
PLACES = gpt(model="a", base_url=NOWHERE), gpt(model="b", base_url=CLOUD)
CLOUDY = gpt(model="a"), cloud(model="b")
SERVED = claude(model="a"), mantle(model="b"), gpt()
OF_OPENAI, ELSEWHERE = answer(target="openai/a"), answer(target="openai/elsewhere")
# An answer, the candidates of a chain, and which of them gets it whole.
WHOSE: dict[str, tuple[AIMessage, tuple[Any, ...], list[bool]]] = {
    "accounts share a format, its note says openai": (OF_OPENAI, CLOUDY, [True, False]),
    "its note says cloud": (answer(target="cloud/b"), CLOUDY, [False, True]),
    "no note, so it is the primary's": (answer(), CLOUDY, [True, False]),
    "no note, whoever is the primary": (answer(), CLOUDY[::-1], [True, False]),
    "one provider at two addresses is two accounts": (OF_OPENAI, PLACES, [True, False]),
    "at one address it is one": (OF_OPENAI, TWO, [True, True]),
    # Agents with chains of their own share a thread, and a model of a thread is renamed.
    "another chain's is its provider's": (ELSEWHERE, (claude(), *CLOUDY), [False, True, False]),
    "it is nobody's where two accounts may have made it": (ELSEWHERE, PLACES, [False, False]),
    "it is both's at one address": (ELSEWHERE, TWO, [True, True]),
    "signatures hold where the model is served": (
        answer("anthropic", "anthropic/a"),
        SERVED,
        [True, True, False],
    ),
}


@pytest.mark.parametrize("case", WHOSE)
def test_an_answer_goes_whole_to_whose_it_is(case: str) -> None:
    """The chain's note says which target wrote it; what only an account can read stays there."""
    message, chain, expected = WHOSE[case]
    assert [kept(message, at, *chain) for at in range(len(chain))] == expected


def test_an_id_that_is_too_long_is_its_own_accounts() -> None:
    """A server of OpenAI's protocol reads its own ids back, and the others would refuse them."""
    chain = FallbackChatModel(gpt(model="a"), cloud(model="b")).policy.targets
    message = answer(target="cloud/b")
    message.tool_calls = [tool_call(name="f", args={}, id="x" * 70)]
    lengths = []
    for target in chain:
        (sent,) = for_provider([message], Reader.of(target, chain))
        assert isinstance(sent, AIMessage)
        lengths.append(len(sent.tool_calls[0]["id"] or ""))
    assert lengths == [32, 70]


def test_a_primary_that_no_table_knows_keeps_its_own_blocks() -> None:
    """What an unknown primary sends unmarked is its own, whoever else writes such blocks."""
    primary = Target("m", "house")
    history: list[BaseMessage] = [AIMessage([{"type": "thinking", "thinking": "t"}, "Hi."])]
    assert for_provider(history, Reader.of(primary, [primary])) is history
    (sent,) = for_provider(history, Reader.of(Target("n", "shed"), [primary]))
    assert sent.content == "Hi."
