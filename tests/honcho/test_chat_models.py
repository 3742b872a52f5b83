"""Honcho's agents as LangChain chat models: real SDKs over scripted providers."""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import re
import subprocess
import sys
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from importlib.metadata import version
from pathlib import Path
from typing import Any

import httpx
import httpx2
import pytest
from langchain_core.load import dumps
from pydantic import BaseModel, ValidationError

from honcho_fallback import FallbackConfig, FallbackError, StreamInterrupted
from honcho_fallback_honcho import load_chat_models, load_policies
from tests.helpers import wire
from tests.helpers.broken_server import WAYS
from tests.helpers.chat_runs import Told
from tests.helpers.observers import Listener
from tests.helpers.pairwise import in_turn
from tests.helpers.provider import ProviderServer, Reply
from tests.honcho.chat_models import (
    FALLBACK,
    PAIRS,
    PRIMARY,
    VERBS,
    WIRES,
    ask,
    deriver,
    other_than,
    settings,
)

# ruff: noqa: E501 # one row of a table is one line


EXTRA = {"extra_body": {"A": 1}, "extra_headers": {"X-B": "2"}, "extra_query": {"c": "3"}}
PARAMS = "OVERRIDES__PROVIDER_PARAMS"
LANGCHAIN = {"gemini": "google_genai"}  # who calls it otherwise


def test_nine_agents() -> None:
    """Each agent has its chat model, by the names of ``load_policies``, under its options."""
    config = FallbackConfig(timeout=7)
    models = load_chat_models({"LLM_OPENAI_API_KEY": "k"}, config=config)
    assert list(models) == list(load_policies({"LLM_OPENAI_API_KEY": "k"}))
    for name, model in models.items():
        assert model.policy.agent == name
        assert model.policy.config.timeout == 7


def test_gemini_may_be_asked_in_many_event_loops() -> None:
    """Workers run a loop for each task: no connection of a closed one is used, none is kept."""
    loops: list[Any] = []

    async def answer(model: Any) -> str:
        loops.append(weakref.ref(asyncio.get_running_loop()))
        return str((await model.ainvoke("hi")).text)

    with ProviderServer(keep_alive=True) as server:
        model = deriver(server, "gemini", "openai")
        with ThreadPoolExecutor(4) as pool:
            answers = [*pool.map(lambda _: asyncio.run(answer(model)), range(12))]
        assert answers == ["hello from gemini"] * 12
        assert server.order == ["gemini"] * 12
    gc.collect()
    assert sum(loop() is not None for loop in loops) <= 1


@pytest.mark.parametrize("transport", [*WIRES, "lmstudio"])
def test_equal_targets_share_a_cooldown(transport: str, providers: ProviderServer) -> None:
    """Two agents with the same model, address and key know each other's failures."""
    address = {"BASE_URL": providers[transport].url}
    own = {"deriver": {}, "summary": {}, "dream_deduction": {"API_KEY": "another", **address}}
    environ = settings(providers, transport, "nous") | {
        f"{agent.upper()}_MODEL_CONFIG__{name}": value
        for agent, more in own.items()
        for name, value in {"TRANSPORT": transport, "MODEL": "m", **more}.items()
    }
    models = load_chat_models(environ)
    names = ("deriver", "summary", "dream.deduction")
    one, same, other = (models[name].policy.targets[0].identity for name in names)
    assert one == same != other


OF_ONE_WIRE = [("nous", "lmstudio"), ("lmstudio", "openai")]
MARKED = [{"type": "text", "text": "hi", "cache_control": {"type": "ephemeral"}}]


@in_turn(pair=[*PAIRS, *OF_ONE_WIRE], verb=[*VERBS, "invoke", "stream", "astream", "ainvoke"])
def test_every_wire_falls_back_to_every_other(
    providers: ProviderServer, pair: tuple[str, str], verb: str
) -> None:
    """HON-002, HON-016, HON-017, HON-044: one request to the dead primary, in its own form.

    Then the fallback's answer. HON-059: records call servers of OpenAI's wire as ``doctor`` does.
    HON-065, HON-068: input, cached and thought tokens are known, whoever answers and however.
    """
    providers[pair[0]].fail(503)
    listener = Listener()
    model = deriver(providers, *pair, {"observers": [listener]})
    answer = ask(model, verb, [("human", MARKED)])
    assert answer.text == f"hello from {pair[1]}"
    assert providers.order == [*pair]
    for name in pair:
        (request,) = providers[name].requests
        assert request.key == ("not-needed" if name == "lmstudio" else f"{name}-key")
        assert name == "anthropic" or "cache_control" not in repr(request.body)
    record, names = listener.record, [LANGCHAIN.get(name, name) for name in pair]
    assert [one.target for one in record.attempts] == [
        f"{names[0]}/model-one",
        f"{names[1]}/model-two",
    ]
    counts = wire.MESSAGE_COUNTS if pair[1] == "anthropic" else wire.COUNTS
    assert record.agent == "deriver"
    assert counts.items() <= (record.usage or {}).items()


# --- parameters --------------------------------------------------------------------------------


SAMPLING = {"TEMPERATURE": "0.3", "TOP_P": "0.5", "STOP_SEQUENCES": '["a"]'}
SAMPLED = {"temperature": 0.3, "top_p": 0.5}
PENALTIES = {"FREQUENCY_PENALTY": "1", "PRESENCE_PENALTY": "1", "SEED": "7"}
PENALIZED = {"frequency_penalty": 1.0, "presence_penalty": 1.0, "seed": 7}


def thinking(config: dict[str, Any], length: int = 2500) -> dict[str, Any]:
    config = {"candidateCount": 1, "maxOutputTokens": length, "thinkingConfig": config}
    return {"generationConfig": config}


@pytest.mark.parametrize(
    ("transport", "suffixes", "sent"),
    [
        ("openai", {}, {"max_tokens": 2500}),
        ("openai", {"MODEL": "gpt-5.5"}, {"max_completion_tokens": 2500}),
        ("openai", {"MODEL": "openai/gpt-5.5"}, {"max_completion_tokens": 2500}),
        ("nous", {"MODEL": "o3-mini"}, {"max_completion_tokens": 2500}),
        ("lmstudio", {"MODEL": "openai/gpt-oss-20b"}, {"max_tokens": 2500}),
        ("openai", {**SAMPLING, **PENALTIES, "THINKING_EFFORT": "low"}, {**SAMPLED, **PENALIZED, "stop": ["a"], "reasoning_effort": "low"}),
        ("openai", {"MAX_OUTPUT_TOKENS": "50"}, {"max_tokens": 50}),
        ("lmstudio", {"TOP_K": "5"}, {"max_tokens": 2500, "top_k": 5}),
        ("openai", {PARAMS: json.dumps(EXTRA)}, {"A": 1}),
        ("anthropic", {**SAMPLING, "TOP_K": "5"}, {**SAMPLED, "top_k": 5, "stop_sequences": ["a"]}),
        ("anthropic", {"THINKING_BUDGET_TOKENS": "2000"}, {"thinking": {"type": "enabled", "budget_tokens": 2000}, "max_tokens": 4500}),
        ("anthropic", {"THINKING_BUDGET_TOKENS": "0"}, {"thinking": {"type": "disabled"}}),
        ("anthropic", {"THINKING_EFFORT": "none"}, {"thinking": {"type": "disabled"}}),
        ("anthropic", {"THINKING_EFFORT": "max"}, {"output_config": {"effort": "max"}}),
        ("anthropic", {"CACHE_POLICY__MODE": "prefix"}, {"cache_control": {"type": "ephemeral", "ttl": "5m"}}),
        ("anthropic", {"CACHE_POLICY__MODE": "prefix", "CACHE_POLICY__TTL_SECONDS": "3600"}, {"cache_control": {"type": "ephemeral", "ttl": "1h"}}),
        ("anthropic", {PARAMS: json.dumps(EXTRA)}, {"A": 1}),
        ("gemini", {**SAMPLING, **PENALTIES, "TOP_K": "5"}, {"generationConfig": {
            "temperature": 0.3, "topP": 0.5, "topK": 5, "seed": 7, "frequencyPenalty": 1.0, "presencePenalty": 1.0,
            "stopSequences": ["a"], "maxOutputTokens": 2500, "candidateCount": 1,
        }}),
        ("gemini", {"THINKING_BUDGET_TOKENS": "9"}, thinking({"thinking_budget": 9}, 2509)),
        ("gemini", {"THINKING_EFFORT": "none"}, thinking({"thinking_budget": 0})),
        ("gemini", {"THINKING_BUDGET_TOKENS": "9", "THINKING_EFFORT": "low"}, thinking({"thinking_budget": 9}, 2509)),
        ("gemini", {"THINKING_EFFORT": "low"}, thinking({"thinking_level": "LOW"})),
        ("gemini", {"THINKING_EFFORT": "xhigh"}, thinking({"thinking_level": "HIGH"})),
        ("gemini", {PARAMS: json.dumps(EXTRA)}, {"A": 1}),
        # What a wire does not have is left out.
        ("openai", {"TOP_K": "5", "THINKING_BUDGET_TOKENS": "9", "CACHE_POLICY__MODE": "prefix"}, {}),
        ("anthropic", {**PENALTIES, "THINKING_EFFORT": "minimal", "STRUCTURED_OUTPUT_MODE": "json_object"}, {}),
        ("anthropic", {"CACHE_POLICY__MODE": "gemini_cached_content"}, {}),
        ("gemini", {"STRUCTURED_OUTPUT_MODE": "json_object", "CACHE_POLICY__MODE": "prefix"}, {}),
        ("gemini", {f"{PARAMS}__EXTRA_QUERY": '{"c": "3"}'}, {}),
    ],
)  # fmt: skip
def test_every_suffix_has_its_effect(
    providers: ProviderServer, transport: str, suffixes: dict[str, str], sent: dict[str, Any]
) -> None:
    """D.2, G-31, HON-012: each suffix reaches the request in the words of the target's own wire."""
    more = {f"{FALLBACK}__{name}": value for name, value in suffixes.items()}
    primary = other_than(transport)
    providers[primary].fail(503)
    ask(deriver(providers, primary, transport, **more))
    if not sent:
        ask(deriver(providers, primary, transport))
    request, *without = providers[transport].requests
    assert all(other.body == request.body for other in without)
    assert sent.items() <= request.body.items()
    both = {"max_tokens", "max_completion_tokens"} & request.body.keys()
    assert len(both) == (0 if transport == "gemini" else 1)
    if PARAMS in suffixes:
        assert request.headers["x-b"] == "2"
        assert ("c=3" in request.path) is (transport != "gemini")


def test_nothing_is_sent_that_was_not_configured(providers: ProviderServer) -> None:
    """HON-009: LangChain's own defaults do not come in between."""
    providers["openai"].fail(503)
    ask(deriver(providers, "openai", "gemini"))
    assert providers["openai"].bodies[0].keys() == {"messages", "model", "max_tokens", "stream"}
    body = providers["gemini"].bodies[0]
    assert body.keys() == {"contents", "generationConfig", "safetySettings"}
    assert body["generationConfig"] == {"maxOutputTokens": 2500, "candidateCount": 1}


def test_openais_own_host_gets_the_new_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """HON-012: whatever the model is called, ``max_completion_tokens`` is known there."""
    bodies: list[Any] = []

    def answering(library: Any) -> Any:
        def answer(_: Any, request: Any) -> Any:
            bodies.append(json.loads(request.read()))
            assert request.url == "https://api.openai.com/v1/chat/completions"
            return library.Response(200, json=wire.chat_answer("hello"))

        return answer

    for library in (httpx, httpx2):  # openai 2 stands on the first, openai 3 on the second
        monkeypatch.setattr(library.HTTPTransport, "handle_request", answering(library))
    environ = {"LLM_OPENAI_API_KEY": "k", f"{PRIMARY}__MODEL": "gpt-4.1"}
    load_chat_models(environ)["deriver"].invoke("hi")
    assert bodies[0]["max_completion_tokens"] == 2500
    assert "max_tokens" not in bodies[0]


@pytest.mark.parametrize("model", ["model-one", "gpt-5.5"])
def test_other_servers_are_asked_over_the_chat_api_only(
    providers: ProviderServer, model: str
) -> None:
    """LangChain would ask the Responses API for a built-in tool, which others do not have."""
    chat = deriver(providers, "nous", "lmstudio", **{f"{PRIMARY}__MODEL": model})
    chat.bind_tools([{"type": "web_search"}]).invoke("hi")
    assert [request.path for request in providers["nous"].requests] == ["chat/completions"]


@pytest.mark.parametrize("transport", [*WIRES, "lmstudio"])
def test_the_targets_own_timeout(providers: ProviderServer, transport: str) -> None:
    """HON-053, HOM-026: each wire gives up when its target's time is over, not LangChain's."""
    model = deriver(providers, transport, "nous", **{f"{PRIMARY}__{PARAMS}__TIMEOUT": "7"})
    ask(model, "ainvoke")
    (request,) = providers[transport].requests
    headers = ("x-stainless-read-timeout", "x-server-timeout")
    assert [float(request.headers[name]) for name in headers if name in request.headers] == [7]
    if transport in {"openai", "lmstudio"}:  # LangChain ends a silent stream after 120 s
        chat: Any = model.candidates[0]
        assert chat.stream_chunk_timeout == 7
        assert chat.root_async_client.timeout.connect == 5  # a host that is not there


@pytest.mark.parametrize("fallback", [*WIRES, "lmstudio"])
def test_a_length_of_the_call_wins_on_both(providers: ProviderServer, fallback: str) -> None:
    """HON-012: ``max_tokens`` of a call replaces what was configured, under each model's name."""
    primary = "nous"
    providers[primary].fail(503)
    model = deriver(providers, primary, fallback, **{f"{PRIMARY}__MODEL": "gpt-5.5"})
    model.bind(max_tokens=77).invoke("hi")
    assert providers[primary].bodies[0]["max_completion_tokens"] == 77
    body = providers[fallback].bodies[0]
    sent = {**body, **body.get("generationConfig", {})}
    name = "maxOutputTokens" if fallback == "gemini" else "max_tokens"
    assert sent[name] == 77
    assert "max_completion_tokens" not in sent


# --- failures ------------------------------------------------------------------------------------


@pytest.mark.parametrize("transport", WIRES)
def test_a_model_asks_once_without_its_policy_too(
    providers: ProviderServer, transport: str
) -> None:
    """HON-044, HOM-025: its SDK is told so where the model is built."""
    providers[transport].fail(503)
    model = deriver(providers, transport, "nous").candidates[0]
    with pytest.raises(Exception, match=r"\b503\b"):  # each SDK has its own
        ask(model)
    assert providers.order == [transport]


def test_a_missing_key_asks_nobody_and_goes_to_the_fallback(providers: ProviderServer) -> None:
    """HOM-023: it is a failed authentication; tools and schemas can be bound all the same."""
    listener = Listener()
    options = {"config": FallbackConfig(), "observers": [listener]}
    model = deriver(providers, "gemini", "anthropic", options, LLM_GEMINI_API_KEY="")
    tool = {"name": "f", "description": "F.", "parameters": {"type": "object", "properties": {}}}
    for verb in VERBS:
        assert ask(model, verb).text == "hello from anthropic"
    assert ask(model.bind_tools([tool])).text == "hello from anthropic"
    assert {*providers.order} == {"anthropic"}
    assert listener.records[0].attempts[0].target == "google_genai/model-one"
    assert listener.records[0].attempts[0].kind == "authentication"


# --- structured output -------------------------------------------------------------------------


class City(BaseModel):
    name: str


@in_turn(transport=[*WIRES, "lmstudio"], is_async=[False, True])
def test_structured_output(providers: ProviderServer, transport: str, is_async: bool) -> None:
    """HOM-060: each provider by its own method, after a switch too."""
    primary = "nous"
    providers[primary].fail(503)
    replies = {
        "anthropic": wire.message_answer(wire.tool_use("t1", "City", {"name": "Lima"})),
        "gemini": wire.gemini_answer({"text": '{"name": "Lima"}'}),
    }
    body = replies.get(transport, wire.chat_answer('{"name": "Lima"}'))
    providers[transport].reply(Reply(body=body))
    model = deriver(providers, primary, transport).with_structured_output(City)
    assert ask(model, "ainvoke" if is_async else "invoke") == City(name="Lima")
    if transport == "lmstudio":
        (body,) = providers[transport].bodies
        assert body["response_format"]["type"] == "json_schema"


MODE = {f"{PRIMARY}__STRUCTURED_OUTPUT_MODE": "json_object"}


@pytest.mark.parametrize(
    "given", ["hi", [("system", "Be brief."), ("human", "hi")], [("human", "hi")]], ids=repr
)
def test_json_object_asks_without_a_schema(providers: ProviderServer, given: Any) -> None:
    """HOM-006, HOM-060: for servers that know no schema; it stands in the system message."""
    providers["lmstudio"].reply(Reply(text='{"name": "Lima"}'))
    model = deriver(providers, "lmstudio", "anthropic", **MODE).with_structured_output(City)
    assert model.invoke(given) == City(name="Lima")
    (body,) = providers["lmstudio"].bodies
    assert body["response_format"] == {"type": "json_object"}
    assert [message["role"] for message in body["messages"]] == ["system", "user"]
    system = body["messages"][0]["content"]
    assert '"required": ["name"]' in system
    assert system.startswith("Be brief." if isinstance(given, list) and len(given) == 2 else "Ans")


@in_turn(more=[{}, MODE], junk=["no JSON at all", "no JSON at all", '{"town": "Lima"}', "[1]"])
def test_junk_instead_of_json_goes_to_the_fallback(
    providers: ProviderServer, more: dict[str, str], junk: str
) -> None:
    """HOM-060, G-17: what is not the wanted JSON is a malformed response; the next is asked."""
    providers["lmstudio"].reply(Reply(text=junk))
    call = wire.tool_use("t1", "City", {"name": "Lima"})
    providers["anthropic"].reply(Reply(body=wire.message_answer(call)))
    model = deriver(providers, "lmstudio", "anthropic", **more)
    assert model.with_structured_output(City).invoke("hi") == City(name="Lima")
    assert providers.order == ["lmstudio", "anthropic"]


def test_a_mistake_of_the_program_is_no_junk(providers: ProviderServer) -> None:
    """A request that does not fit the SDK's own classes is nobody's answer, and asks nobody."""
    model = deriver(providers, "gemini", "openai").bind(no_such_setting=1)
    with pytest.raises(ValidationError, match="GenerateContentConfig"):
        model.invoke("hi")
    assert not providers.order


def test_extras_that_are_missing_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a provider's package the error names the extra, and only where it is needed."""
    monkeypatch.setitem(__import__("sys").modules, "langchain_anthropic", None)
    load_chat_models({"LLM_OPENAI_API_KEY": "k"})
    environ = {"LLM_OPENAI_API_KEY": "k", "LLM_ANTHROPIC_API_KEY": "k"}
    with pytest.raises(ImportError, match=re.escape("pip install 'honcho-fallback[providers]'")):
        load_chat_models({**environ, f"{FALLBACK}__MODEL": "anthropic/m"})


SENTINEL = "sk-sentinel-7f3a9c2e51"
KEYS = (
    "ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "GEMINI_API_KEY", "GOOGLE_API_KEY",
    "LANGSMITH_GATEWAY_API_KEY", "OPENAI_ADMIN_KEY", "OPENAI_API_KEY",
)  # fmt: skip
# Nobody listens there: whoever asked there would not reach the provider.
ADDRESSES = (
    "ANTHROPIC_API_URL", "ANTHROPIC_BASE_URL", "ANTHROPIC_PROXY", "GOOGLE_GEMINI_BASE_URL",
    "GOOGLE_VERTEX_BASE_URL", "LANGSMITH_GATEWAY", "OPENAI_API_BASE", "OPENAI_BASE_URL", "OPENAI_PROXY",
)  # fmt: skip
OF_THE_SDKS = {
    **dict.fromkeys((*KEYS, "GOOGLE_CLOUD_LOCATION", "GOOGLE_CLOUD_PROJECT"), SENTINEL),
    **dict.fromkeys(ADDRESSES, "http://127.0.0.1:9"),
    **dict.fromkeys(("GOOGLE_GENAI_USE_ENTERPRISE", "GOOGLE_GENAI_USE_VERTEXAI"), "true"),
}


@in_turn(transport=[*WIRES, *WIRES, "lmstudio"], verb=VERBS)
def test_nothing_of_the_environment_reaches_a_host(
    transport: str, verb: str, providers: ProviderServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """HOM-021: the SDKs' own variables are for the SDKs' own hosts."""
    for name, value in OF_THE_SDKS.items():
        monkeypatch.setenv(name, value)
    ask(deriver(providers, transport), verb)
    (request,) = providers[transport].requests
    assert SENTINEL not in repr(request)
    assert request.key == {"lmstudio": "not-needed"}.get(transport, f"{transport}-key")
    if transport == "gemini":
        assert re.match("v1(beta)?/models/", request.path)  # not that of Vertex


@in_turn(transport=WIRES, verb=["invoke", "ainvoke"])
def test_a_redirect_gets_no_key(transport: str, verb: str, providers: ProviderServer) -> None:
    """A provider that sends its callers elsewhere learns nobody's key for there."""
    if (transport, verb) == ("anthropic", "ainvoke") and version("anthropic").startswith("1."):
        pytest.skip("the SDK's first major version takes the key along")
    with ProviderServer(keep_alive=False) as elsewhere:
        location = {"location": f"{elsewhere.url}/elsewhere/v1/messages"}
        providers[transport].standing = Reply(status=307, body="{}", headers=location)
        model = deriver(providers, transport, options={"config": FallbackConfig(max_attempts=1)})
        with suppress(FallbackError):  # some follow, and some do not
            ask(model, verb)
        assert f"{transport}-key" not in repr(elsewhere["elsewhere"].requests)


@in_turn(transport=WIRES, verb=["invoke", "astream", "stream"])
def test_a_key_and_a_header_are_shown_nowhere(
    transport: str, verb: str, providers: ProviderServer, caplog: pytest.LogCaptureFixture
) -> None:
    """HON-075: neither in a repr, a record, a log line nor a run of LangChain."""
    caplog.set_level(logging.DEBUG)
    listener, tracer = Listener(), Told()
    more = {
        f"{PRIMARY}__OVERRIDES__BASE_URL": providers[transport].url,
        f"{PRIMARY}__OVERRIDES__API_KEY": SENTINEL,
        f"{PRIMARY}__{PARAMS}__EXTRA_HEADERS": '{"x-token": "header-token"}',
    }
    model = deriver(providers, transport, options={"observers": [listener]}, **more)
    providers[transport].reply(Reply(status=503))
    ask(model, verb)
    answer = ask(model.with_config(callbacks=[tracer]), verb)
    assert answer.text == f"hello from {transport}"
    request = providers[transport].requests[-1]
    assert (request.key, request.headers["x-token"]) == (SENTINEL, "header-token")
    shown = [repr(model), str(model), repr(model.candidates), repr(model.policy.targets)]
    shown += [dumps(model), json.dumps([record.to_dict() for record in listener.records])]
    shown += [record.explain() for record in listener.records]
    shown += [repr(answer), *tracer.events]
    shown += [one.getMessage() for one in caplog.records if one.name != "httpcore.http11"]
    for secret in (SENTINEL, "header-token"):
        assert secret not in "\n".join(shown)


# --- connections ---------------------------------------------------------------------------------


FIRST_WORD = {
    "openai": [wire.chat_word("one ")],
    "anthropic": wire.message_events(wire.message_answer(wire.text_block("one two")))[:3],
    "gemini": wire.gemini_events(wire.gemini_answer({"text": "one two"}))[:1],
}


@in_turn(transport=WIRES, verb=["astream", "stream"])
def test_a_stream_that_falls_silent_ends_with_its_targets_timeout(
    transport: str, verb: str, providers: ProviderServer
) -> None:
    """AN-019: without any limit of the policy's the target's own holds between two chunks, too."""
    providers[transport].reply(Reply(events=FIRST_WORD[transport], hang=True))
    limit = {f"{PRIMARY}__OVERRIDES__PROVIDER_PARAMS__TIMEOUT": "0.3"}
    with pytest.raises(StreamInterrupted, match="timeout"):
        ask(deriver(providers, transport, **limit), verb)
    assert providers.order == [transport]


@pytest.mark.parametrize(
    ("transport", "is_async"),
    [("openai", True), ("anthropic", True), ("anthropic", False), ("gemini", False)],
)
async def test_an_abandoned_stream_closes_its_connection(
    transport: str, is_async: bool, providers: ProviderServer
) -> None:
    """AN-021: a reader that has enough leaves nobody waiting, and the record says so."""
    left = threading.Event()
    providers[transport].reply(Reply(events=FIRST_WORD[transport], hang=True, left=left))
    listener = Listener()
    model = deriver(providers, transport, options={"observers": [listener]})
    if is_async:
        stream = model.astream("hi")
        async for chunk in stream:
            if chunk.text:
                break
        await stream.aclose()
        assert await asyncio.to_thread(left.wait, 5)
    else:
        with closing(model.stream("hi")) as chunks:
            assert next(filter(None, (chunk.text for chunk in chunks))) == "one "
        assert left.wait(5)
    assert listener.record.outcome == "abandoned"
    assert providers.order == [transport]


@pytest.mark.timeout(40)  # less than what the target is given
def test_nobody_waits_for_a_host_that_is_not_there(providers: ProviderServer) -> None:
    """Where no connection is made, a thread and a task leave long before the target's time."""
    with WAYS["connecting is silent"]() as place:
        address = {"LLM_OPENAI_BASE_URL": place.url}
        model = deriver(providers, **address, **{f"{PRIMARY}__{PARAMS}__TIMEOUT": "600"})
        with ThreadPoolExecutor(1) as pool:
            answer = pool.submit(model.invoke, "hi")
            assert ask(model, "ainvoke").text == "hello from anthropic"
            assert answer.result().text == "hello from anthropic"
    assert len(providers["anthropic"].requests) == 2


# LangChain's tracing and the event loop's backend come with the first call, whoever is asked.
FEW = 40
PROBE = """
import asyncio, json, sys
from honcho_fallback_honcho import load_chat_models

async def streamed():
    return "".join([chunk.text async for chunk in model.astream("hi")])

model = load_chat_models(json.loads(sys.argv[1]))["deriver"]
types = sys.modules.get("google.genai.types")
built = types is None or types.GenerateContentConfig.__pydantic_complete__
before = set(sys.modules)
text = model.invoke("hi").text if sys.argv[2] == "invoke" else asyncio.run(streamed())
print(json.dumps({
    "text": text,
    "before": sorted({name.partition(".")[0] for name in before}),
    "new": sorted(set(sys.modules) - before),
    "built": built,
}))
"""


@pytest.mark.parametrize(
    ("primary", "fallback", "verb"),
    [("openai", "gemini", "invoke"), ("gemini", "anthropic", "astream")],
)
def test_the_first_switch_imports_no_sdk(
    providers: ProviderServer, primary: str, fallback: str, verb: str
) -> None:
    """A switch finds its SDK imported, and what it builds lazily built; nobody else's is."""
    providers[primary].fail(503)
    environ = json.dumps(settings(providers, primary, fallback))
    root = Path(__file__).resolve().parents[2]
    path = f"{root}:{root / 'adapters'}"
    command = [sys.executable, "-c", PROBE, environ, verb]
    seen = json.loads(subprocess.check_output(command, env={"PYTHONPATH": path}))
    assert seen["text"] == f"hello from {fallback}"
    assert providers.order == [primary, fallback]
    assert ("anthropic" in seen["before"]) is (fallback == "anthropic")
    assert {name.partition(".")[0] for name in seen["new"]} <= {*seen["before"]}
    sdks = ("anthropic.", "google.", "httpx.", "httpx2.", "langchain_anthropic.", "openai.")
    assert not [name for name in seen["new"] if name.startswith(sdks)]
    assert len(seen["new"]) < FEW
    assert seen["built"]
