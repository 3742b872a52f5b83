"""The Proxy for real: a process of `litellm --config`, asked with the plain openai client."""

from __future__ import annotations

import copy
import re
import shutil
import sys
import tempfile
import time
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import httpx
import openai
import pytest
import redis

from honcho_fallback_litellm import FallbackProxyHandler
from honcho_fallback_litellm._responses import headers_of
from tests.helpers.litellm_proxy import (
    KEY,
    PACKAGES,
    ProxyProcess,
    start_proxy,
    stop_proxies,
    wait_for_proxy,
)
from tests.helpers.provider import ProviderServer, Reply
from tests.helpers.records import HOSTILE_CALL, of_many_attempts

if TYPE_CHECKING:
    from collections.abc import Iterator

for needed in PACKAGES:
    pytest.importorskip(needed, reason="the Proxy's own packages are not installed")

yaml: Any = import_module("yaml")  # LiteLLM's; it ships no types

ROOT = Path(__file__).resolve().parents[2]
CONFIG = ROOT / "examples" / "litellm_proxy" / "config.yaml"
# The first YAML of the page, letter for letter, and what the page says that the Proxy shows then.
PAGE = (ROOT / "docs" / "proxy.md").read_text("utf-8")
PAGES_CONFIG, PAGES_STATE = (
    PAGE.partition(f"```{language}\n")[2].partition("```")[0] for language in ("yaml", "text")
)
MESSAGES: Any = [{"role": "user", "content": "hello"}]
NO_REDIS = "redis-server is not installed"

# What a user puts into a module beside the YAML.
REMEMBERING = """
import logging
import sys

# Before the import, which makes the package's own handler as well.
logger = logging.getLogger("honcho_fallback")
logger.setLevel(logging.DEBUG)
logger.addHandler(logging.StreamHandler(sys.stdout))

from honcho_fallback import Cooldown, FallbackConfig, FallbackObserver
from honcho_fallback_litellm import FallbackProxyHandler


class Handler(FallbackProxyHandler):
    async def async_pre_call_hook(self, *args, **kwargs):
        print("a request comes,", self, flush=True)
        await super().async_pre_call_hook(*args, **kwargs)


class Printer(FallbackObserver):
    def on_finish(self, record):
        print("record of", record.agent, record.metadata, flush=True)


config = FallbackConfig(cooldown=Cooldown(after=1, base=60), deadline=60, wait=0)
handler = Handler(config, respect_cooldown=True, observers=[Printer()])
"""

# LiteLLM's streams set ContextVars in their finalizer; before Python 3.12 a collection can run it
# inside ContextVar.set, which then reads freed memory (CPython's issue 148891). "0,0,0" is never.
COLLECTION = {"PYTHON_GC_THRESHOLD": "0,0,0"} if sys.version_info < (3, 12) else {}

# The first test waits for all processes, each of which imports for 15 s of a processor.
pytestmark = pytest.mark.timeout(400)


class Proxy(NamedTuple):
    """Hold a running Proxy and its client."""

    server: ProxyProcess
    client: openai.OpenAI
    state: str = ""


def start(config: Any, providers: ProviderServer, folder: Path, name: str) -> Proxy:
    """Start a Proxy, and do not wait for it."""
    path = folder / f"{name}.yaml"
    path.write_text(config if isinstance(config, str) else yaml.safe_dump(config), "utf-8")
    server = start_proxy(path, providers, folder / f"{name}.log", COLLECTION)
    return Proxy(server, openai.OpenAI(base_url=server.url, api_key=KEY, max_retries=0))


def state_of(proxy: Proxy) -> str:
    """Read from the Proxy what its handler says of itself, once it says that it is done."""
    url, headers = f"{proxy.server.url}/active/callbacks", {"authorization": f"Bearer {KEY}"}
    until = time.monotonic() + 60.0
    while True:
        callbacks = httpx.get(url, headers=headers, timeout=60).json()["litellm.callbacks"]
        state = next((one for one in callbacks if "Handler: " in one), "no handler")
        if "waits for the Router" not in state or time.monotonic() > until:
            return state
        time.sleep(0.05)


def example_config() -> Any:
    """Read the example's config; cooldowns are off in its group so that tests do not meet."""
    config = yaml.safe_load(CONFIG.read_text("utf-8"))
    for one in config["model_list"]:
        one["model_info"]["cooldown_time"] = 0
    return config


def sharing(config: Any, redis_port: int) -> Any:
    """Add a group of the same providers whose cooldowns go through Redis."""
    cooling = copy.deepcopy(config["model_list"])
    for one in cooling:
        one["model_name"], name = "cooling", f"cooling-{one['model_info']['id']}"
        one["model_info"].update(id=name, cooldown_time=60)
    settings = {"redis_host": "127.0.0.1", "redis_port": redis_port}
    models = [*config["model_list"], *cooling]
    return {**config, "model_list": models, "router_settings": settings}


@pytest.fixture(scope="module")
def upstream() -> Iterator[ProviderServer]:
    with ProviderServer() as serving:
        yield serving


@pytest.fixture(scope="module")
def proxies(
    upstream: ProviderServer, request: pytest.FixtureRequest
) -> Iterator[dict[str, Proxy]]:
    """Run every Proxy that the module needs: together, since each imports for a long time."""
    config = example_config()
    if shutil.which("redis-server") is not None:
        config = sharing(config, request.getfixturevalue("redis_port"))
    remembering: Any = {"litellm_settings": {"callbacks": "remembering.handler"}}
    configs: dict[str, Any] = {
        "first": config,
        "second": config,
        "remembering": {**example_config(), **remembering},
        "page": PAGES_CONFIG,
    }
    started: dict[str, Proxy] = {}
    with tempfile.TemporaryDirectory() as name:
        (Path(name) / "remembering.py").write_text(REMEMBERING, "utf-8")
        try:
            for what, config in configs.items():
                started[what] = start(config, upstream, Path(name), what)
            for what, proxy in started.items():
                wait_for_proxy(proxy.server)
                started[what] = proxy._replace(state=state_of(proxy))
            yield started
        finally:
            for proxy in started.values():
                proxy.client.close()
            stop_proxies(*(proxy.server for proxy in started.values()))


@pytest.fixture
def proxy(proxies: dict[str, Proxy], upstream: ProviderServer) -> Proxy:
    upstream.reset()
    return proxies["first"]


def test_the_yaml_of_the_page_starts_as_it_stands(
    proxies: dict[str, Proxy], upstream: ProviderServer
) -> None:
    """With the keys in the environment; the chain is in force, and switches."""
    upstream.reset()
    assert proxies["page"].state == PAGES_STATE.strip()
    upstream["primary"].fail(503)
    answer = proxies["page"].client.chat.completions.create(model="deriver", messages=MESSAGES)
    assert answer.choices[0].message.content == "hello from backup"


def ask(proxy: Proxy, model: str = "deriver") -> Any:
    return proxy.client.chat.completions.with_raw_response.create(model=model, messages=MESSAGES)


def say(proxy: Proxy, endpoint: str) -> tuple[str, Any]:
    """Return what is said there, and the headers."""
    client, asked = proxy.client, {"model": "deriver", "input": "hello"}
    match endpoint:
        case "stream":
            stream = client.chat.completions.create(
                model="deriver", messages=MESSAGES, stream=True
            )
            words = [chunk.choices[0].delta.content or "" for chunk in stream if chunk.choices]
            return "".join(words), stream.response.headers
        case "responses":
            raw: Any = client.responses.with_raw_response.create(**asked)  # type: ignore[call-overload] # a dict
            return raw.parse().output_text, raw.headers
        case "embeddings":
            raw = client.embeddings.with_raw_response.create(**asked)  # type: ignore[arg-type] # a dict
            return "", raw.headers
        case "messages":
            body = {"model": "deriver", "max_tokens": 9, "messages": MESSAGES}
            answer: Any = client.post("/v1/messages", body=body, cast_to=httpx.Response)
            return answer.json()["content"][0]["text"], answer.headers
        case _:
            raw = ask(proxy)
            return text(raw), raw.headers


def told_in(headers: Any) -> dict[str, str]:
    names = ("primary", "answered-by", "attempts", "reason")
    return {name: headers[f"x-honcho-fallback-{name}"] for name in names}


def text(raw: Any) -> str:
    return raw.parse().choices[0].message.content or ""


@pytest.mark.parametrize(
    ("endpoint", "reply", "reason"),
    [
        ("chat", Reply(status=429, headers={"retry-after": "7"}), "rate_limit"),
        ("stream", Reply(status=500), "server_error"),
        ("stream", Reply(events=[], cut=True), "connection"),
        ("responses", Reply(status=503), "overloaded"),
        ("messages", Reply(status=503), "overloaded"),
    ],
)
def test_a_failure_of_the_primary_is_the_backups_answer(
    endpoint: str, reply: Reply, reason: str, proxy: Proxy, upstream: ProviderServer
) -> None:
    """One request to the primary, 200 for the client, and headers that say who answered."""
    upstream["primary"].reply(reply)
    said, headers = say(proxy, endpoint)
    assert said == "hello from backup"
    assert upstream.order == ["primary", "backup"]
    assert headers["x-litellm-model-id"] == "backup"
    told = {"primary": "primary", "answered-by": "backup", "attempts": "2", "reason": reason}
    assert told_in(headers) == told


@pytest.mark.parametrize("endpoint", ["chat", "stream", "embeddings", "responses"])
def test_an_errors_headers(endpoint: str, proxy: Proxy, upstream: ProviderServer) -> None:
    """What nobody answers says so in its headers, at each endpoint where LiteLLM lets it."""
    upstream["primary"].fail(400)
    with pytest.raises(openai.BadRequestError) as caught:
        say(proxy, endpoint)
    headers, reason = caught.value.response.headers, "invalid_request"
    told = {"primary": "primary", "answered-by": "nobody", "attempts": "1", "reason": reason}
    assert told_in(headers) == told
    assert headers["x-litellm-call-id"]


def test_headers_are_short_and_printable() -> None:
    """A hundred attempts and names of any kind make no header that a server refuses."""
    many = replace(of_many_attempts(100), chain=(f" {'ü' * 300}\n 0 ",))
    headers = headers_of(many)
    assert headers["x-honcho-fallback-attempts"] == "100"
    assert headers["x-honcho-fallback-reason"].startswith("overloaded, overloaded")
    for value in (*headers.values(), *headers_of(HOSTILE_CALL).values()):
        assert len(value) <= 200
        assert value.isascii()
        assert value.isprintable()
        assert value == value.strip()


def test_when_all_are_down_a_client_learns_when_to_come_back(
    proxy: Proxy, upstream: ProviderServer
) -> None:
    """The soonest that a provider has stated, under the name that clients read."""
    upstream["primary"].fail(429, headers={"retry-after": "7"})
    upstream["backup"].fail(429, headers={"retry-after": "9"})
    with pytest.raises(openai.RateLimitError) as caught:
        ask(proxy)
    assert caught.value.response.headers["retry-after"] == "7"
    assert upstream.order == ["primary", "backup"]


@pytest.mark.skipif(shutil.which("redis-server") is None, reason=NO_REDIS)
def test_a_second_proxy_on_the_same_redis_knows_the_cooldown(
    proxies: dict[str, Proxy], upstream: ProviderServer, redis_port: int
) -> None:
    """A target that one process cools down is passed over by the other.

    The other one has not asked Redis for it within the second before, as LiteLLM does not twice.
    """
    upstream.reset()
    upstream["primary"].fail(429)
    with redis.Redis(port=redis_port) as shared:
        shared.flushall()  # what the tests before have cooled
        assert text(ask(proxies["first"], "cooling")) == "hello from backup"
        while not shared.keys("*deployment:cooling-primary:cooldown*"):
            time.sleep(0.02)  # LiteLLM tells Redis after it has answered
    raw = ask(proxies["second"], "cooling")
    assert text(raw) == "hello from backup"
    assert upstream.order == ["primary", "backup", "backup"]
    assert raw.headers["x-honcho-fallback-attempts"] == "1"
    assert raw.headers["x-honcho-fallback-answered-by"] == "cooling-backup"


def test_a_proxy_that_remembers(proxies: dict[str, Proxy], upstream: ProviderServer) -> None:
    """Options come from a module beside the YAML; one request says that it must not degrade."""
    proxy = proxies["remembering"]
    upstream.reset()
    upstream["primary"].fail(500)
    said = [ask(proxy) for _ in range(3)]
    assert [text(raw) for raw in said] == ["hello from backup"] * 3
    assert upstream.order == ["primary", "backup", "backup", "backup"]
    assert [raw.headers["x-honcho-fallback-attempts"] for raw in said] == ["2", "1", "1"]

    upstream.order.clear()
    with pytest.raises(openai.InternalServerError):
        proxy.client.chat.completions.create(
            model="deriver", messages=MESSAGES, extra_body={"metadata": {"must_not_degrade": True}}
        )
    assert {*upstream.order} == {"primary"}
    assert "must_not_degrade" not in str(upstream["primary"].requests[-1].body)


def test_a_record_has_the_requesters_metadata_and_nothing_of_the_proxys(
    proxies: dict[str, Proxy], upstream: ProviderServer
) -> None:
    """Neither the key's hash nor headers, in a stream neither; without metadata there is none."""
    proxy = proxies["remembering"]
    upstream.reset()
    log = proxy.server.log
    seen = log.read_text()
    mine: Any = {"workspace": "acme", "run_id": "r-17", "api_key": "secret", "many": ["a"]}
    ask: Any = proxy.client.chat.completions.create
    ask(model="deriver", messages=MESSAGES, extra_body={"metadata": mine})
    list(ask(model="deriver", messages=MESSAGES, stream=True, extra_body={"metadata": mine}))
    ask(model="deriver", messages=MESSAGES)
    until = time.monotonic() + 30.0
    while (records := log.read_text()[len(seen) :].count("record of")) < 3:
        assert time.monotonic() < until, f"{records} records"
        time.sleep(0.05)
    lines = log.read_text()[len(seen) :].splitlines()
    expected = {"workspace": "acme", "run_id": "r-17"}
    assert [line for line in lines if line.startswith("record of")] == [
        *[f"record of deriver {expected}"] * 2,
        "record of deriver None",
    ]


def test_the_chains_are_there_before_a_request_is(proxies: dict[str, Proxy]) -> None:
    """The Proxy registers and imports at its start; ``/active/callbacks`` shows it."""
    chain = "deriver: openai/gpt-5.5 -> anthropic/claude-sonnet-5"
    for name, handler in (("first", "FallbackProxyHandler"), ("remembering", "Handler")):
        state = proxies[name].state
        assert state.startswith(f"{handler}: chains in force, ")
        assert chain in state
    ask(proxies["remembering"])
    log = proxies["remembering"].server.log.read_text().splitlines()
    requests = [number for number, line in enumerate(log) if line.startswith("a request comes")]
    assert log[requests[0]].startswith("a request comes, Handler: chains in force, ")
    assert any("Uvicorn running on" in line for line in log[: requests[0]])


def test_lines_of_the_handler_have_a_time_and_a_level(
    proxy: Proxy, upstream: ProviderServer
) -> None:
    """As LiteLLM's have, also where nobody has set up logging."""
    upstream["primary"].fail(503)
    ask(proxy)
    lines = proxy.server.log.read_text("utf-8").splitlines()
    switch = next(one for one in lines if "failed=primary fallback=backup" in one)
    assert re.match(r"\d{4}-\d\d-\d\d [\d:,]+ - honcho_fallback:WARNING: agent=", switch)
    assert any("honcho_fallback:INFO: active: chain " in one for one in lines)


def test_what_a_handler_does_without_chains(bench: Any, caplog: pytest.LogCaptureFixture) -> None:
    """It leaves LiteLLM alone, and makes chains once it can."""
    models = [bench.deployment("primary", 0), bench.deployment("backup", 0)]
    router = bench.router(models)
    handler = FallbackProxyHandler()
    assert not handler.attach(None)
    assert "has no Router" in str(handler)
    assert not handler.attach(router)
    assert "both have 0" in str(handler)

    router.delete_deployment("backup")
    assert handler.attach(router)
    assert handler.attach(router)
    assert [one.getMessage() for one in caplog.records if one.levelname == "WARNING"] == [
        "the ranked groups of this Proxy are chains now"
    ]
    active = "active: chain deriver: openai/primary-model (no fallback); "
    assert str(handler).startswith(f"FallbackProxyHandler: chains in force, {active}")
