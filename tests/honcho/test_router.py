"""Honcho's settings as a LiteLLM Router: real requests on loopback, on each wire, both ways."""

# ruff: noqa: E501 # one row of a table is one line

from __future__ import annotations

import json
import logging
import subprocess
import sys
import time
from itertools import permutations
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("litellm")
pytest.importorskip("pydantic_settings")

from honcho_fallback import FallbackConfig, FallbackConfigError
from honcho_fallback_honcho import Endpoint, load_router
from honcho_fallback_honcho._parameters import needs_completion_tokens
from tests.helpers.litellm_runs import THEIRS, litellm_left_clean, run_async
from tests.helpers.observers import Listener
from tests.helpers.provider import ProviderProcess, Reply
from tests.helpers.strict import AnthropicRules, ChatRules
from tests.helpers.wire import COUNTS, MESSAGE_COUNTS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from litellm import Router
    from pytest_httpserver import HTTPServer

    from tests.helpers.provider import ProviderServer
    from tests.helpers.wire import Json

pytestmark = [
    pytest.mark.timeout(180),  # the first test to touch LiteLLM imports all of it
    *(pytest.mark.filterwarnings(warning) for warning in THEIRS),
]

P, F = "DERIVER_MODEL_CONFIG", "DERIVER_MODEL_CONFIG__FALLBACK"
AGENTS = [
    "deriver",
    *(f"dialectic.{level}" for level in ("minimal", "low", "medium", "high", "max")),
    "summary",
    "dream.deduction",
    "dream.induction",
]
KEYS = {"LLM_OPENAI_API_KEY": "openai-key"}
MODELS = {"openai": "gpt-5.4-mini", "anthropic": "claude-sonnet-4-6", "gemini": "gemini-2.5-flash"}
PATHS = {
    "openai": "chat/completions",
    "anthropic": "v1/messages",
    "gemini": "v1beta/models/gemini-2.5-flash:generateContent",
}
PAIRS = list(permutations(MODELS, 2))
SENTINEL = "sk-sentinel-7f3a9c2e51"
MESSAGES = [{"role": "user", "content": "hello"}]

both_ways = pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
pairs = pytest.mark.parametrize(("one", "two"), PAIRS, ids=[f"{one}-{two}" for one, two in PAIRS])


@pytest.fixture(autouse=True)
def clean_litellm() -> Iterator[None]:
    """Leave LiteLLM as it was."""
    with litellm_left_clean():
        yield


def target(
    prefix: str, transport: str, url: str, model: str | None = None, **more: str
) -> dict[str, str]:
    """Name a target with a key of its own."""
    return {
        f"{prefix}__TRANSPORT": transport,
        f"{prefix}__MODEL": model or MODELS[transport],
        f"{prefix}__OVERRIDES__BASE_URL": url,
        f"{prefix}__OVERRIDES__API_KEY": f"{url.rpartition('/')[2]}-key",
        **{f"{prefix}__{name}": value for name, value in more.items()},
    }


def chain(providers: ProviderServer, one: str, two: str) -> dict[str, str]:
    """Name the deriver's two targets."""
    primary = target(P, one, providers["primary"].url)
    return KEYS | primary | target(F, two, providers["backup"].url)


def ask(router: Router, *, is_async: bool = False, **options: Any) -> Any:
    """Ask the deriver; return the answer, or of a stream the text and the last chunk."""
    request: dict[str, Any] = {"model": "deriver", "messages": MESSAGES, **options}

    async def in_a_task() -> Any:
        answer: Any = await router.acompletion(**request)
        return [chunk async for chunk in answer] if options.get("stream") else answer

    if is_async:
        return run_async(in_a_task())
    answer: Any = router.completion(**request)
    return list(answer) if options.get("stream") else answer


def text_of(answer: Any) -> str:
    return str(answer.choices[0].message.content)


def sent(providers: ProviderServer, environ: dict[str, str], **options: Any) -> Json:
    """Ask the deriver's only target, and return the request's body without what is asked."""
    ask(load_router(KEYS | environ), **options)
    (body,) = providers["primary"].bodies
    return {
        name: value
        for name, value in body.items()
        if name not in {"messages", "contents", "model"}
    }


def warned(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


def left_out(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [
        record.getMessage()
        for record in caplog.records
        if record.levelno == logging.DEBUG and record.name == "honcho_fallback.honcho"
    ]


def test_each_agent_is_a_group_whose_members_are_ranked() -> None:
    """Nine groups under the agents' names, in Honcho's order, the primary with rank 0."""
    fallbacks = {
        f"{F}__MODEL": "anthropic/claude-x",
        f"{F}__FALLBACK__MODEL": "lmstudio/qwen",
        "LLM_ANTHROPIC_API_KEY": "k",
    }
    models: Any = load_router(KEYS | fallbacks).get_model_list()
    assert list(dict.fromkeys(one["model_name"] for one in models)) == AGENTS
    assert [
        (one["litellm_params"]["model"], one["model_info"]["fallback_rank"])
        for one in models
        if one["model_name"] == "deriver"
    ] == [("openai/gpt-5.4-mini", 0), ("anthropic/claude-x", 1), ("openai/qwen", 2)]
    assert {one["model_info"]["fallback_rank"] for one in models[3:]} == {0}


@both_ways
@pairs
def test_a_dead_primary_costs_one_request(
    providers: ProviderServer, one: str, two: str, is_async: bool
) -> None:
    """HON-002, HON-016, HON-017: one request to it, then the fallback's own wire; all observed."""
    providers["primary"].fail(503, headers={"retry-after": "7"})
    listener = Listener()
    router = load_router(chain(providers, one, two), observers=[listener])
    assert text_of(ask(router, is_async=is_async)) == "hello from backup"
    assert providers.order == ["primary", "backup"]
    requests = [providers[name].requests[0] for name in providers.order]
    assert [request.path for request in requests] == [PATHS[one], PATHS[two]]
    assert [request.key for request in requests] == ["primary-key", "backup-key"]
    assert (listener.record.agent, listener.kinds) == ("deriver", ["overloaded", None])
    assert listener.record.answered_by == f"deriver/{two}/{MODELS[two]}"
    assert listener.record.attempts[1].wait == 0
    usage = listener.record.usage
    assert usage is not None
    assert (MESSAGE_COUNTS if two == "anthropic" else COUNTS).items() <= usage.items()


@both_ways
@pairs
def test_streams_switch_and_tell_their_usage(
    providers: ProviderServer, one: str, two: str, is_async: bool
) -> None:
    """HON-068, HOM-051: a stream that cannot be opened is asked of the fallback; the record has tokens."""
    providers["primary"].fail(429)
    listener = Listener()
    router = load_router(chain(providers, one, two), observers=[listener])
    chunks = ask(router, is_async=is_async, stream=True)
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert text == "hello from backup"
    assert providers.order == ["primary", "backup"]
    usage = listener.record.usage
    assert usage is not None
    assert usage["output_tokens"] == 7


@both_ways
def test_the_next_call_begins_at_the_primary(providers: ProviderServer, is_async: bool) -> None:
    """HON-014: what failed a moment ago is asked first again; LiteLLM cools nothing down."""
    providers["primary"].fail(429, times=4)
    router = load_router(chain(providers, "openai", "anthropic"))
    for _ in range(5):
        ask(router, is_async=is_async)
    assert providers.order == ["primary", "backup"] * 4 + ["primary"]


@pytest.mark.parametrize("wire", ["openai", "anthropic"])
def test_an_error_under_http_200_is_a_failure(providers: ProviderServer, wire: str) -> None:
    """An error object in place of an answer goes to the fallback."""
    providers["primary"].reply(Reply(body={"error": {"message": "down", "code": 503}}))
    router = load_router(chain(providers, wire, "gemini"))
    assert text_of(ask(router)) == "hello from backup"
    assert providers.order == ["primary", "backup"]


# --- what goes over the wire -----------------------------------------------------------------

SAMPLING = {"TEMPERATURE": "0.3", "TOP_P": "0.5", "STOP_SEQUENCES": '["x"]'}
PENALTIES = {"FREQUENCY_PENALTY": "0.1", "PRESENCE_PENALTY": "0.2", "SEED": "7"}
OPENAI_SAMPLING = {
    "temperature": 0.3,
    "top_p": 0.5,
    "stop": ["x"],
    "frequency_penalty": 0.1,
    "presence_penalty": 0.2,
    "seed": 7,
}
GEMINI_SAMPLING = {
    "temperature": 0.3,
    "top_p": 0.5,
    "stop_sequences": ["x"],
    "frequency_penalty": 0.1,
    "presence_penalty": 0.2,
    "seed": 7,
}
SHORT = {"MAX_OUTPUT_TOKENS": "99"}


@pytest.mark.parametrize(
    ("transport", "model", "settings", "body", "missing"),
    [
        ("openai", "gpt-4.1", SAMPLING | PENALTIES | SHORT | {"TOP_K": "3"}, OPENAI_SAMPLING | {"max_tokens": 99}, ["TOP_K"]),
        ("openai", "gpt-5.4-mini", PENALTIES | SHORT | {"THINKING_EFFORT": "low"}, {"max_completion_tokens": 99, "seed": 7, "reasoning_effort": "low"}, ["FREQUENCY_PENALTY", "PRESENCE_PENALTY"]),
        ("openai", "o9-mini", {}, {"max_completion_tokens": 2500}, []),
        ("openai_compatible", "openai/gpt-5.5", {"THINKING_BUDGET_TOKENS": "2000"}, {"max_completion_tokens": 2500}, ["THINKING_BUDGET_TOKENS"]),
        ("lmstudio", "qwen/qwen3", SAMPLING | PENALTIES | SHORT | {"TOP_K": "3", "THINKING_EFFORT": "low"}, OPENAI_SAMPLING | {"max_tokens": 99, "top_k": 3, "reasoning_effort": "low"}, []),
        ("nous", "hermes", {"STRUCTURED_OUTPUT_MODE": "json_object"}, {"max_tokens": 2500}, ["STRUCTURED_OUTPUT_MODE"]),
        ("nous", "hermes", {"STRUCTURED_OUTPUT_MODE": "json_schema"}, {"max_tokens": 2500}, []),
        ("anthropic", "claude-sonnet-4-6", SAMPLING | SHORT | {"TOP_K": "3", "SEED": "7"}, {"temperature": 0.3, "top_p": 0.5, "stop_sequences": ["x"], "top_k": 3, "max_tokens": 99}, ["SEED"]),
        ("anthropic", "claude-of-tomorrow", {"THINKING_BUDGET_TOKENS": "2000"}, {"thinking": {"type": "enabled", "budget_tokens": 2000}, "max_tokens": 4500}, []),
        ("anthropic", "claude-sonnet-4-6", {"THINKING_BUDGET_TOKENS": "0"}, {"thinking": {"type": "disabled"}, "max_tokens": 2500}, []),
        ("anthropic", "claude-of-tomorrow", {"THINKING_EFFORT": "high"}, {"max_tokens": 2500}, ["THINKING_EFFORT"]),
        ("anthropic", "claude-x", {"CACHE_POLICY__MODE": "prefix", "CACHE_POLICY__TTL_SECONDS": "3600"}, {"cache_control": {"type": "ephemeral", "ttl": "1h"}, "max_tokens": 2500}, []),
        ("anthropic", "claude-x", {"CACHE_POLICY__MODE": "gemini_cached_content"}, {"max_tokens": 2500}, ["CACHE_POLICY"]),
        ("gemini", "gemini-2.5-flash", SAMPLING | PENALTIES | SHORT | {"TOP_K": "3"}, {"generationConfig": GEMINI_SAMPLING | {"top_k": 3, "max_output_tokens": 99}}, []),
        ("gemini", "gemini-2.5-flash", {"THINKING_BUDGET_TOKENS": "0", "THINKING_EFFORT": "low"}, {"generationConfig": {"thinkingConfig": {"thinkingBudget": 0}, "max_output_tokens": 2500}}, ["THINKING_EFFORT"]),
        ("gemini", "gemini-2.5-flash", {"THINKING_EFFORT": "max"}, {"generationConfig": {"max_output_tokens": 2500}}, ["THINKING_EFFORT"]),
    ],
)  # fmt: skip
def test_parameters_on_the_wire(
    providers: ProviderServer,
    caplog: pytest.LogCaptureFixture,
    transport: str,
    model: str,
    settings: dict[str, str],
    body: Json,
    missing: list[str],
) -> None:
    """HON-009: each is sent as its provider names it; what cannot be sent is in the log."""
    caplog.set_level(logging.DEBUG, "honcho_fallback.honcho")
    environ = target(P, transport, providers["primary"].url, model, **settings)
    assert sent(providers, environ) == body
    assert left_out(caplog) == [
        f"{P}__{name}: {transport} has no such parameter" for name in missing
    ]


@pytest.mark.parametrize(
    ("model", "base_url", "expected"),
    [
        ("gpt-4.1", "https://api.openai.com/v1", True),
        ("gpt-4.1", "https://gateway.example/v1", False),
        ("gpt-5.4-mini", "https://gateway.example/v1", True),
        ("openai/gpt-5", "https://gateway.example/v1", True),
        ("openrouter/openai/o3-mini", "https://gateway.example/v1", True),
        ("O1", "https://gateway.example/v1", True),
        ("gpt-35-turbo", "https://gateway.example/v1", False),
        ("gpt-oss-120b", "https://gateway.example/v1", False),
        ("olmo-3", "https://gateway.example/v1", False),
        ("qwen/qwen3.5-9b", "http://localhost:1234/v1", False),
    ],
)
def test_which_name_the_limit_has(model: str, base_url: str, expected: bool) -> None:
    """HON-012: OpenAI's reasoning models take max_completion_tokens, also behind a gateway."""
    assert needs_completion_tokens(model, Endpoint("openai", base_url)) is expected
    assert not needs_completion_tokens(model, Endpoint("anthropic", base_url))


@both_ways
@pytest.mark.parametrize("name", ["max_tokens", "max_completion_tokens"])
@pytest.mark.parametrize(
    ("transport", "model"),
    [("openai", "o9-mini"), ("openai", "gpt-5.4-mini"), ("lmstudio", "qwen"), ("anthropic", None)],
)
def test_the_calls_own_limit_counts(
    providers: ProviderServer, transport: str, model: str | None, name: str, is_async: bool
) -> None:
    """HON-012: the argument of the call replaces the setting, under the name that is needed."""
    environ = target(P, transport, providers["primary"].url, model, MAX_OUTPUT_TOKENS="99")
    body = sent(providers, environ, is_async=is_async, **{name: 5})
    needed = "max_completion_tokens" if transport == "openai" else "max_tokens"
    assert body == {needed: 5}


def test_the_calls_own_parameters_reach_each_target_that_has_them(
    providers: ProviderServer,
) -> None:
    """HON-011: a temperature goes to the fallback as well; a seed stays away from Anthropic."""
    providers["primary"].fail(503)
    router = load_router(chain(providers, "gemini", "anthropic") | {f"{F}__TEMPERATURE": "1"})
    ask(router, temperature=0.2, seed=7)
    config = providers["primary"].bodies[0]["generationConfig"]
    assert (config["temperature"], config["seed"]) == (0.2, 7)
    body = providers["backup"].bodies[0]
    assert (body["temperature"], "seed" in body) == (0.2, False)


@pytest.mark.parametrize("transport", MODELS)
def test_what_is_passed_on_to_the_provider_as_it_is(
    providers: ProviderServer, caplog: pytest.LogCaptureFixture, transport: str
) -> None:
    """OVERRIDES__PROVIDER_PARAMS: fields of the body and headers; a query is not possible."""
    params = "OVERRIDES__PROVIDER_PARAMS"
    extras = {
        f"{params}__EXTRA_BODY": '{"service_tier": "auto", "top_layer": {"a": 1}}',
        f"{params}__EXTRA_HEADERS": '{"x-gateway": "b"}',
        f"{params}__EXTRA_QUERY": '{"api-version": "1"}',
    }
    body = sent(providers, target(P, transport, providers["primary"].url, **extras))
    (request,) = providers["primary"].requests
    assert (body["service_tier"], body["top_layer"]) == ("auto", {"a": 1})
    assert request.headers["x-gateway"] == "b"
    assert not {"extra_body", "extra_query"} & body.keys()
    name = f"{P}__OVERRIDES__PROVIDER_PARAMS__EXTRA_QUERY"
    assert f"{name}: LiteLLM sends no query; use load_chat_models" in warned(caplog)


@both_ways
@pytest.mark.parametrize(
    ("transport", "rules"), [("openai", ChatRules), ("anthropic", AnthropicRules)]
)
def test_strict_providers_accept_what_is_sent(
    providers: ProviderServer, transport: str, rules: Any, is_async: bool
) -> None:
    """Nothing of the Router's own stands in a request: a strict provider refuses nothing."""
    provider = providers.new("primary", rules=rules())
    more = SHORT | {"TEMPERATURE": "1", "THINKING_EFFORT": "low"}
    router = load_router(KEYS | target(P, transport, provider.url, **more))
    ask(router, is_async=is_async)
    assert provider.refused == []
    assert len(provider.requests) == 1


def test_timeouts_are_the_targets_own(providers: ProviderServer) -> None:
    """Each agent's targets keep theirs, although one strategy has one config."""
    timeout = "OVERRIDES__PROVIDER_PARAMS__TIMEOUT"
    environ = target(P, "openai", providers["primary"].url, **{timeout: "7"})
    environ |= target("SUMMARY_MODEL_CONFIG", "openai", providers["backup"].url, **{timeout: "11"})
    router = load_router(KEYS | environ)
    ask(router)
    ask(router, model="summary", stream=True)
    timeouts = [
        providers[name].requests[0].headers["x-stainless-read-timeout"] for name in providers.order
    ]
    assert timeouts == ["7.0", "11.0"]


@both_ways
def test_a_silent_primary_is_left_after_its_timeout(
    providers: ProviderServer, silent_url: str, is_async: bool
) -> None:
    """HON-022: the target's own timeout ends the wait, and the fallback answers."""
    more = {"OVERRIDES__PROVIDER_PARAMS__TIMEOUT": "0.2"}
    environ = target(P, "openai", silent_url, **more) | target(
        F, "openai", providers["backup"].url
    )
    listener = Listener()
    router = load_router(KEYS | environ, observers=[listener])
    assert text_of(ask(router, is_async=is_async)) == "hello from backup"
    assert listener.kinds == ["timeout", None]


# --- keys ------------------------------------------------------------------------------------


@both_ways
@pytest.mark.parametrize("transport", ["openai", "lmstudio", "anthropic", "gemini"])
def test_nothing_of_litellms_environment_is_sent(
    providers: ProviderServer, monkeypatch: pytest.MonkeyPatch, transport: str, is_async: bool
) -> None:
    """Keys and addresses are the settings' own, whatever LiteLLM would read where there are none."""
    for name in ("OPENAI", "ANTHROPIC", "GEMINI", "GOOGLE", "LITELLM", "LM_STUDIO"):
        monkeypatch.setenv(f"{name}_API_KEY", SENTINEL)
        monkeypatch.setenv(f"{name}_API_BASE", f"http://127.0.0.1:1/{SENTINEL}")
        monkeypatch.setenv(f"{name}_BASE_URL", f"http://127.0.0.1:1/{SENTINEL}")
    environ = target(P, transport, providers["primary"].url, MODELS.get(transport, "qwen"))
    if transport == "lmstudio":
        del environ[f"{P}__OVERRIDES__API_KEY"]
    ask(load_router(KEYS | environ), is_async=is_async)
    (request,) = providers["primary"].requests
    assert request.key == ("not-needed" if transport == "lmstudio" else "primary-key")
    assert SENTINEL not in json.dumps([request.headers, request.body, request.path])


def test_a_target_without_a_key_is_left_out(
    providers: ProviderServer, caplog: pytest.LogCaptureFixture
) -> None:
    """LiteLLM could not refuse before the request: the group has the other targets, and it is said."""
    environ = {f"{P}__MODEL": "gpt-5.5"} | target(F, "anthropic", providers["backup"].url)
    router = load_router(environ)
    assert text_of(ask(router)) == "hello from backup"
    assert router.get_model_names() == ["deriver"]
    messages = warned(caplog)
    assert (
        f"deriver: openai/gpt-5.5 is left out, it has no key; set {P}__OVERRIDES__API_KEY"
        in messages
    )
    assert "summary: no target has a key, so there is no model group" in messages


def test_no_key_at_all_is_an_error() -> None:
    """A Router without a group could answer nothing."""
    with pytest.raises(
        FallbackConfigError, match="no agent has a target with a key; set LLM_OPENAI"
    ):
        load_router({})


def test_strict_refuses_what_is_otherwise_a_warning() -> None:
    """As for the policies: a misspelled name and a missing key are errors."""
    with pytest.raises(FallbackConfigError, match=f"{F}__MODLE"):
        load_router({**KEYS, f"{F}__MODLE": "x"}, strict=True)


def nous(providers: ProviderServer, portal: HTTPServer, folder: Path) -> dict[str, str]:
    """Name a primary whose key comes from the portal."""
    return {
        f"{P}__TRANSPORT": "nous",
        f"{P}__MODEL": "hermes",
        "LLM_NOUS_BASE_URL": providers["primary"].url,
        "NOUS_REFRESH_TOKEN": "rt-0",
        "NOUS_OAUTH_STATE_PATH": str(folder / "state.json"),
        "NOUS_PORTAL_BASE_URL": portal.url_for("").rstrip("/"),
    }


@both_ways
def test_a_key_that_changes_is_taken_for_each_request(
    providers: ProviderServer,
    httpserver: HTTPServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    is_async: bool,
) -> None:
    """An OAuth key is fetched for the first request, kept, and renewed when it runs out."""
    token = {"access_token": "at", "refresh_token": "rt", "expires_in": 3600}
    httpserver.expect_request("/api/oauth/token").respond_with_json(token)
    for number in (1, 2):
        key = {"api_key": f"agent-key-{number}", "expires_in": 7200}
        httpserver.expect_oneshot_request("/api/oauth/agent-key").respond_with_json(key)
    environ = nous(providers, httpserver, tmp_path)
    router = load_router(KEYS | environ)
    assert not httpserver.log
    ask(router, is_async=is_async)
    ask(router, is_async=is_async)
    now = time.time
    monkeypatch.setattr(time, "time", lambda: now() + 7200)
    ask(router, is_async=is_async)
    keys = [request.key for request in providers["primary"].requests]
    assert keys == ["agent-key-1", "agent-key-1", "agent-key-2"]


@both_ways
def test_a_key_that_cannot_be_fetched_is_a_failure_like_another(
    providers: ProviderServer, httpserver: HTTPServer, tmp_path: Path, is_async: bool
) -> None:
    """Without a key no request is sent; a policy that leaves a 401 asks the fallback."""
    httpserver.expect_request("/api/oauth/token").respond_with_json({}, status=400)
    environ = nous(providers, httpserver, tmp_path)
    environ |= target(F, "anthropic", providers["backup"].url)
    listener = Listener()
    router = load_router(KEYS | environ, config=FallbackConfig(), observers=[listener])
    assert text_of(ask(router, is_async=is_async)) == "hello from backup"
    assert providers.order == ["backup"]
    assert listener.kinds == ["authentication", None]


def test_no_secret_is_shown(providers: ProviderServer, caplog: pytest.LogCaptureFixture) -> None:
    """HON-075: neither a key nor an address's password stands in what this package shows."""
    caplog.set_level(logging.DEBUG, "honcho_fallback")
    providers["primary"].fail(503)
    url = providers["primary"].url.replace("//", f"//user:{SENTINEL}@")
    environ = target(P, "openai", url) | target(F, "openai", providers["backup"].url)
    environ[f"{F}__OVERRIDES__API_KEY"] = SENTINEL
    listener = Listener()
    router = load_router(KEYS | environ, observers=[listener])
    answer = ask(router)
    shown = [record.getMessage() for record in caplog.records if "honcho" in record.name]
    assert shown
    shown += [repr(listener.record), listener.record.explain(), str(listener.record.to_dict())]
    shown += [repr(router), repr(listener.switches), str(answer._hidden_params["fallback"])]
    assert providers.order == ["primary", "backup"]
    assert SENTINEL not in "\n".join(shown)


# --- the policy ------------------------------------------------------------------------------


def test_options_that_litellm_leaves_no_room_for_are_refused() -> None:
    """The strategy's own error names the option and what to do."""
    with pytest.raises(FallbackConfigError, match=r"connect_timeout.*set timeout instead"):
        load_router(KEYS, config=FallbackConfig.honcho(connect_timeout=3))


COLD_PAIRS = {
    "DERIVER": ("openai", "anthropic"),
    "SUMMARY": ("anthropic", "openai"),
    "DREAM_DEDUCTION": ("openai", "gemini"),
}
COLD = """
import asyncio, os, sys
os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"
from honcho_fallback_honcho import load_router
router = load_router()
loaded = {*sys.modules}
request = {"messages": [{"role": "user", "content": "hello"}]}
for agent in ("deriver", "summary"):
    router.completion(model=agent, **request)
asyncio.run(router.acompletion(model="dream.deduction", **request))
print("new:", sorted({*sys.modules} - loaded), flush=True)
os._exit(0)  # LiteLLM leaves sessions open
"""


def test_the_first_switch_imports_nothing() -> None:
    """A fresh process: what a failure and each fallback need is there when the Router is."""
    with ProviderProcess() as server:
        server.control(providers={"primary": {"always": {"status": 503}}})
        environ = {**KEYS}
        for agent, (one, two) in COLD_PAIRS.items():
            environ |= target(f"{agent}_MODEL_CONFIG", one, f"{server.url}/primary")
            environ |= target(f"{agent}_MODEL_CONFIG__FALLBACK", two, f"{server.url}/backup")
        environ["PYTHONPATH"] = ":".join(sys.path)
        done = subprocess.run(
            [sys.executable, "-W", "ignore", "-c", COLD],
            env=environ,
            capture_output=True,
            text=True,
            check=False,
        )
        assert "new: []" in done.stdout, done.stdout + done.stderr
        assert server.control()["order"] == ["primary", "backup"] * 3
