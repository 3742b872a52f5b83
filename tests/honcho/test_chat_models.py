"""Honcho's agents as LangChain chat models: real SDKs over scripted providers."""

from __future__ import annotations

import asyncio
import gc
import json
import re
import weakref
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import httpx2
import pytest
from pydantic import BaseModel, ValidationError

from honcho_fallback import (
    CredentialError,
    FallbackConfig,
    FallbackConfigError,
    FallbackExhausted,
)
from honcho_fallback_honcho import load_chat_models, load_policies
from tests.helpers import wire
from tests.helpers.broken_server import WAYS
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
    awaited,
    deriver,
)

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
    name = transport.upper()
    server = {f"LLM_{name}_BASE_URL": providers[transport].url, f"LLM_{name}_API_KEY": "k"}
    for agent in ("SUMMARY", "DERIVER", "DREAM_DEDUCTION"):
        server[f"{agent}_MODEL_CONFIG__TRANSPORT"] = transport
        server[f"{agent}_MODEL_CONFIG__MODEL"] = "m"
    server["DREAM_DEDUCTION_MODEL_CONFIG__API_KEY"] = "another"
    server["DREAM_DEDUCTION_MODEL_CONFIG__BASE_URL"] = providers[transport].url
    models = load_chat_models(server)
    names = ("deriver", "summary", "dream.deduction")
    one, same, other = (models[name].policy.targets[0].identity for name in names)
    assert one == same != other


@in_turn(pair=PAIRS, verb=VERBS)
def test_every_wire_falls_back_to_every_other(
    providers: ProviderServer, pair: tuple[str, str], verb: str
) -> None:
    """HON-002, HON-016, HON-017: one request to the dead primary, then the fallback's answer."""
    primary, fallback = pair
    providers[primary].fail(503)
    listener = Listener()
    answer = ask(deriver(providers, primary, fallback, {"observers": [listener]}), verb)
    assert answer.text == f"hello from {fallback}"
    assert providers.order == [primary, fallback]
    assert [providers[name].requests[0].key for name in (primary, fallback)] == [
        f"{primary}-key",
        f"{fallback}-key",
    ]
    (record,) = listener.records
    assert record.agent == "deriver"
    assert record.answered_by == f"{LANGCHAIN.get(fallback, fallback)}/model-two"


def test_servers_of_openais_wire_keep_their_names(providers: ProviderServer) -> None:
    """Records call a target as ``doctor`` does, and messages take the form of OpenAI's wire."""
    providers["nous"].fail(503)
    listener = Listener()
    marked = [{"type": "text", "text": "hi", "cache_control": {"type": "ephemeral"}}]
    options = {"observers": [listener]}
    ask(deriver(providers, "nous", "lmstudio", options), given=[("human", marked)])
    assert "cache_control" not in repr(providers["lmstudio"].bodies)
    (record,) = listener.records
    assert [attempt.target for attempt in record.attempts] == [
        "nous/model-one",
        "lmstudio/model-two",
    ]


# --- parameters --------------------------------------------------------------------------------


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
        (
            "openai",
            {
                "TEMPERATURE": "0.3",
                "TOP_P": "0.5",
                "FREQUENCY_PENALTY": "1",
                "PRESENCE_PENALTY": "1",
                "SEED": "7",
                "THINKING_EFFORT": "low",
                "MAX_OUTPUT_TOKENS": "50",
                "STOP_SEQUENCES": '["a","b"]',
            },
            {
                "temperature": 0.3,
                "top_p": 0.5,
                "frequency_penalty": 1.0,
                "presence_penalty": 1.0,
                "seed": 7,
                "reasoning_effort": "low",
                "max_tokens": 50,
                "stop": ["a", "b"],
            },
        ),
        ("lmstudio", {"TOP_K": "5"}, {"max_tokens": 2500, "top_k": 5}),
        ("openai", {PARAMS: json.dumps(EXTRA)}, {"A": 1}),
        (
            "anthropic",
            {"TEMPERATURE": "0.3", "TOP_P": "0.5", "TOP_K": "5", "STOP_SEQUENCES": '["a"]'},
            {"temperature": 0.3, "top_p": 0.5, "top_k": 5, "stop_sequences": ["a"]},
        ),
        (
            "anthropic",
            {"THINKING_BUDGET_TOKENS": "2000"},
            {"thinking": {"type": "enabled", "budget_tokens": 2000}, "max_tokens": 4500},
        ),
        ("anthropic", {"THINKING_BUDGET_TOKENS": "0"}, {"thinking": {"type": "disabled"}}),
        ("anthropic", {"THINKING_EFFORT": "none"}, {"thinking": {"type": "disabled"}}),
        ("anthropic", {"THINKING_EFFORT": "max"}, {"output_config": {"effort": "max"}}),
        (
            "anthropic",
            {"CACHE_POLICY__MODE": "prefix"},
            {"cache_control": {"type": "ephemeral", "ttl": "5m"}},
        ),
        (
            "anthropic",
            {"CACHE_POLICY__MODE": "prefix", "CACHE_POLICY__TTL_SECONDS": "3600"},
            {"cache_control": {"type": "ephemeral", "ttl": "1h"}},
        ),
        ("anthropic", {PARAMS: json.dumps(EXTRA)}, {"A": 1}),
        (
            "gemini",
            {
                "TEMPERATURE": "0.3",
                "TOP_P": "0.5",
                "TOP_K": "5",
                "SEED": "7",
                "FREQUENCY_PENALTY": "1",
                "PRESENCE_PENALTY": "1",
                "STOP_SEQUENCES": '["a"]',
            },
            {
                "generationConfig": {
                    "temperature": 0.3,
                    "topP": 0.5,
                    "topK": 5,
                    "seed": 7,
                    "frequencyPenalty": 1.0,
                    "presencePenalty": 1.0,
                    "stopSequences": ["a"],
                    "maxOutputTokens": 2500,
                    "candidateCount": 1,
                }
            },
        ),
        (
            "gemini",
            {"THINKING_BUDGET_TOKENS": "9"},
            thinking({"thinking_budget": 9}, 2509),
        ),
        ("gemini", {"THINKING_EFFORT": "none"}, thinking({"thinking_budget": 0})),
        (
            "gemini",
            {"THINKING_BUDGET_TOKENS": "9", "THINKING_EFFORT": "low"},
            thinking({"thinking_budget": 9}, 2509),  # it takes one of the two
        ),
        ("gemini", {"THINKING_EFFORT": "low"}, thinking({"thinking_level": "LOW"})),
        ("gemini", {"THINKING_EFFORT": "xhigh"}, thinking({"thinking_level": "HIGH"})),
        ("gemini", {PARAMS: json.dumps(EXTRA)}, {"A": 1}),
    ],
)
def test_every_suffix_has_its_effect(
    providers: ProviderServer, transport: str, suffixes: dict[str, str], sent: dict[str, Any]
) -> None:
    """D.2, HON-012: each suffix reaches the request in the words of the target's own wire."""
    more = {f"{FALLBACK}__{name}": value for name, value in suffixes.items()}
    primary = "anthropic" if transport != "anthropic" else "openai"
    providers[primary].fail(503)
    ask(deriver(providers, primary, transport, **more))
    (request,) = providers[transport].requests
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
    asyncio.run(awaited(model.ainvoke("hi")))
    (request,) = providers[transport].requests
    headers = ("x-stainless-read-timeout", "x-server-timeout")
    assert [float(request.headers[name]) for name in headers if name in request.headers] == [7]
    if transport in {"openai", "lmstudio"}:
        chat: Any = model.candidates[0]
        assert chat.stream_chunk_timeout == 7
        assert chat.root_async_client.timeout.connect == 5  # a host that is not there


@pytest.mark.timeout(40)  # less than what the target is given
def test_nobody_waits_for_a_host_that_is_not_there(providers: ProviderServer) -> None:
    """Where no connection is made, a thread and a task leave long before the target's time."""
    with WAYS["connecting is silent"]() as place:
        address = {"LLM_OPENAI_BASE_URL": place.url}
        model = deriver(providers, **address, **{f"{PRIMARY}__{PARAMS}__TIMEOUT": "600"})
        with ThreadPoolExecutor(1) as pool:
            answer = pool.submit(model.invoke, "hi")
            assert asyncio.run(awaited(model.ainvoke("hi"))).text == "hello from anthropic"
            assert answer.result().text == "hello from anthropic"
    assert len(providers["anthropic"].requests) == 2


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


@pytest.mark.parametrize(
    ("transport", "suffix", "value"),
    [
        ("openai", "TOP_K", "5"),
        ("openai", "THINKING_BUDGET_TOKENS", "9"),
        ("openai", "CACHE_POLICY__MODE", "prefix"),
        ("anthropic", "SEED", "7"),
        ("anthropic", "FREQUENCY_PENALTY", "1"),
        ("anthropic", "PRESENCE_PENALTY", "1"),
        ("anthropic", "THINKING_EFFORT", "minimal"),
        ("anthropic", "STRUCTURED_OUTPUT_MODE", "json_object"),
        ("gemini", "STRUCTURED_OUTPUT_MODE", "json_object"),
        ("gemini", "CACHE_POLICY__MODE", "prefix"),
        ("anthropic", "CACHE_POLICY__MODE", "gemini_cached_content"),
        ("gemini", f"{PARAMS}__EXTRA_QUERY", '{"c": "3"}'),
    ],
)
def test_a_parameter_that_a_wire_does_not_have_is_dropped(
    providers: ProviderServer,
    transport: str,
    suffix: str,
    value: str,
) -> None:
    """G-31: it is left out, rather than refused by the provider."""
    primary = "anthropic" if transport != "anthropic" else "openai"
    providers[primary].fail(503)
    ask(deriver(providers, primary, transport))
    ask(deriver(providers, primary, transport, **{f"{FALLBACK}__{suffix}": value}))
    one, other = providers[transport].bodies
    assert one == other


# --- usage and failures ------------------------------------------------------------------------


@in_turn(transport=[*WIRES, "lmstudio", *WIRES, "lmstudio"], verb=[*VERBS, *reversed(VERBS)])
def test_usage_is_known_in_streams_too(
    providers: ProviderServer, transport: str, verb: str
) -> None:
    """HON-065, HON-068: input, cached and thought tokens, whoever answers and however."""
    listener = Listener()
    primary = "nous"
    providers[primary].fail(503)
    ask(deriver(providers, primary, transport, {"observers": [listener]}), verb)
    (record,) = listener.records
    counts = wire.MESSAGE_COUNTS if transport == "anthropic" else wire.COUNTS
    assert record.usage is not None
    assert counts.items() <= record.usage.items()


@in_turn(transport=WIRES, status=[408, 429, 500, 503])
def test_one_request_per_attempt(providers: ProviderServer, transport: str, status: int) -> None:
    """HON-044, HOM-025: no SDK retries by itself, nor does the model without its policy."""
    providers[transport].fail(status)
    other = "openai" if transport != "openai" else "gemini"
    providers[other].fail(400)
    model = deriver(providers, transport, other, {"config": FallbackConfig(max_attempts=2)})
    with pytest.raises(FallbackExhausted, match="no answer from"):
        ask(model)
    assert providers.order == [transport, other]
    with pytest.raises(Exception, match=rf"\b{status}\b"):  # each SDK has its own
        ask(model.candidates[0])
    assert providers.order == [transport, other, transport]


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


def test_a_missing_key_says_what_is_missing(providers: ProviderServer) -> None:
    """HOM-023: the only target's error names the variable; other agents work."""
    models = load_chat_models({"LLM_ANTHROPIC_API_KEY": "k"})
    with pytest.raises(CredentialError, match="LLM_OPENAI_API_KEY: not set"):
        models["summary"].invoke("hi")
    with pytest.raises(FallbackConfigError, match="LLM_OPENAI_API_KEY: not set"):
        load_chat_models({}, strict=True)


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


# --- a real model ------------------------------------------------------------------------------


def test_extras_that_are_missing_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a provider's package the error names the extra, and only where it is needed."""
    monkeypatch.setitem(__import__("sys").modules, "langchain_anthropic", None)
    load_chat_models({"LLM_OPENAI_API_KEY": "k"})
    environ = {"LLM_OPENAI_API_KEY": "k", "LLM_ANTHROPIC_API_KEY": "k"}
    with pytest.raises(ImportError, match=re.escape("pip install 'honcho-fallback[providers]'")):
        load_chat_models({**environ, f"{FALLBACK}__MODEL": "anthropic/m"})
