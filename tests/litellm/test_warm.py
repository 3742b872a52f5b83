"""What the first failure of a process finds loaded, and that nobody notices how it got there."""

# LiteLLM's objects have whatever shape they have.
# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false

from __future__ import annotations

import asyncio
import gc
import json
import logging
import os
import socket
import subprocess
import sys
import threading
import warnings
from itertools import count
from pathlib import Path
from typing import Any

import httpx
import litellm
import pytest
from litellm.integrations.custom_logger import CustomLogger

from honcho_fallback_litellm import warm_up

ROOT = Path(__file__).resolve().parents[2]
KEY = "sk-the-key-of-the-user"
OPENAI = {"model": "openai/gpt-4o-mini", "path": "/v1"}
ANTHROPIC = {"model": "anthropic/claude-3-5-haiku-latest", "path": ""}

# The providers are in the process itself: each request notes what is loaded when it arrives.
FIRST_FAILURE = """
import asyncio, json, os, sys
from litellm import Router
from honcho_fallback_litellm import FallbackRoutingStrategy
from tests.helpers.provider import ProviderServer, Reply

chain, way = json.load(sys.stdin)
loaded = {}

def provider(name, status):
    def note(request):
        loaded[name] = set(sys.modules)
        return Reply(status=status)
    return note

ask = {"model": "group", "messages": [{"role": "user", "content": "hello"}]}
with ProviderServer() as providers:
    providers["primary"].standing = provider("primary", 500)
    providers["backup"].standing = provider("backup", 200)
    router = Router(model_list=[
        {
            "model_name": "group",
            "litellm_params": {
                "model": one["model"],
                "api_base": f"{providers.url}/{name}{one['path']}",
                "api_key": "not-a-key",
            },
            "model_info": {"id": name, "fallback_rank": rank},
        }
        for rank, (name, one) in enumerate(zip(("primary", "backup"), chain))
    ])
    FallbackRoutingStrategy().register(router)

    async def stream():
        async for _ in await router.acompletion(**ask, stream=True):
            pass

    if way == "sync":
        router.completion(**ask)
    else:
        asyncio.run(stream() if way == "stream" else router.acompletion(**ask))
    print(json.dumps([providers.order, sorted(loaded["backup"] - loaded["primary"])]), flush=True)
os._exit(0)
"""


@pytest.mark.timeout(180)  # another process imports LiteLLM first, which takes seconds
@pytest.mark.parametrize("way", ["sync", "async", "stream"])
@pytest.mark.parametrize(
    "chain",
    [(OPENAI, OPENAI), (OPENAI, ANTHROPIC), (ANTHROPIC, OPENAI)],
    ids=["openai", "openai to anthropic", "anthropic to openai"],
)
def test_a_first_failure_imports_nothing(chain: Any, way: str) -> None:
    """From the failing answer to the fallback's request a fresh process loads no module."""
    done = subprocess.run(
        [sys.executable, "-c", FIRST_FAILURE],
        cwd=ROOT,
        env={**os.environ, "LITELLM_LOCAL_MODEL_COST_MAP": "True"},
        input=json.dumps([chain, way]),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    order, late = json.loads(done.stdout.splitlines()[-1])
    assert order == ["primary", "backup"]
    assert late == []


_numbers = count(1)


@pytest.fixture
def models() -> list[str]:
    """Return models that this process has not exercised yet."""
    return [f"{provider}/new-{next(_numbers)}" for provider in ("openai", "anthropic", "gemini")]


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[httpx.Request]:
    """Return the requests that are made for httpx from now on."""
    requests: list[httpx.Request] = []

    def noting(build: Any) -> Any:
        def build_request(*args: Any, **options: Any) -> httpx.Request:
            requests.append(build(*args, **options))
            return requests[-1]

        return build_request

    for client in (httpx.Client, httpx.AsyncClient):
        monkeypatch.setattr(client, "build_request", noting(client.build_request))
    return requests


@pytest.fixture(autouse=True)
def connections(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Return the addresses to which a connection, or whose number, is wanted from now on."""
    addresses: list[Any] = []
    connect = socket.socket.connect

    def note(self: socket.socket, address: Any) -> None:
        addresses.append(address)
        connect(self, address)

    def look_up(*address: Any, **_: Any) -> Any:
        addresses.append(address)
        raise socket.gaierror("nothing is looked up here")

    monkeypatch.setattr(socket.socket, "connect", note)
    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    return addresses


class Ear(CustomLogger):
    """Note what of it is looked up, not to speak of called."""

    def __init__(self) -> None:
        super().__init__()
        self.touched: list[str] = []

    def __getattribute__(self, name: str) -> Any:
        """Note the name of a hook."""
        if not name.startswith("_") and name != "touched":
            self.touched.append(name)
        return super().__getattribute__(name)


def test_providers_fail_in_memory(
    models: list[str], sent: list[httpx.Request], connections: list[Any]
) -> None:
    """Each provider is asked by LiteLLM's sync and async code; no request leaves the process."""
    warm_up(models)

    assert len(sent) == 2 * len(models)
    assert {request.url.scheme for request in sent} == {"warm-up"}
    assert connections == []


def test_keys_and_addresses_of_the_user_are_not_used(
    models: list[str], sent: list[httpx.Request], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the environment holds for LiteLLM is in no request."""
    for name in ("OPENAI", "ANTHROPIC", "GEMINI"):
        monkeypatch.setenv(f"{name}_API_KEY", KEY)
        monkeypatch.setenv(f"{name}_API_BASE", "http://127.0.0.1:9/of-the-user")

    warm_up(models)

    assert sent
    assert not any(KEY in f"{one.url} {one.headers.multi_items()}" for one in sent)
    assert not any("of-the-user" in str(one.url) for one in sent)


def test_callbacks_of_the_user_hear_nothing(
    models: list[str], sent: list[httpx.Request], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither an object among LiteLLM's callbacks nor a function is told."""
    ear, events = Ear(), list[Any]()

    def hear(*event: Any) -> None:
        events.append(event)

    for name in (
        "callbacks",
        "input_callback",
        "success_callback",
        "failure_callback",
        "service_callback",
        "_async_input_callback",
        "_async_success_callback",
        "_async_failure_callback",
    ):
        monkeypatch.setattr(litellm, name, [ear] if name == "callbacks" else [ear, hear])
    ear.touched.clear()

    warm_up(models)

    assert sent
    assert (ear.touched, events) == ([], [])


def test_it_runs_inside_a_running_loop(models: list[str], sent: list[httpx.Request]) -> None:
    """A Router may be set up in async code: the loop there is left alone."""

    async def inside() -> set[Any]:
        warm_up(models)
        return asyncio.all_tasks()

    assert len(asyncio.run(inside())) == 1
    assert len(sent) == 2 * len(models)


def _state() -> dict[str, Any]:
    lists = {
        name: [*map(id, value)]
        for name, value in vars(litellm).items()
        if isinstance(value, list) and "callback" in name
    }
    settings = {
        name: value
        for name, value in vars(litellm).items()
        if not name.startswith("__") and isinstance(value, (bool, int, float, str, type(None)))
    }
    return {
        "lists": lists,
        "settings": settings,
        "clients": sorted(litellm.in_memory_llm_clients_cache.cache_dict),
        "prices": set(litellm.model_cost),
        "threads": set(threading.enumerate()),
    }


def test_nothing_stays_behind(models: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """No callback, setting, client, price, thread or open session is left, and nobody warns."""
    monkeypatch.setattr(litellm, "num_retries", 3)
    gc.collect()
    before = _state()

    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always", ResourceWarning)
        warm_up(models)
        gc.collect()

    assert _state() == before
    assert [one for one in warned if issubclass(one.category, ResourceWarning)] == []


def test_it_leaves_no_full_collection_to_the_first_call(models: list[str]) -> None:
    """What the modules that it loads owe the garbage collector is paid before it returns."""
    generations: list[int] = []

    def note(phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            generations.append(info["generation"])

    gc.callbacks.append(note)
    try:
        warm_up(models)
    finally:
        gc.callbacks.remove(note)
    assert generations[-1] == 2


def test_a_model_is_exercised_once(models: list[str], sent: list[httpx.Request]) -> None:
    """The second time nothing happens, from whichever thread it is called."""
    threads = [threading.Thread(target=warm_up, args=(models,)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    warm_up(models)

    assert len(sent) == 2 * len(models)


@pytest.mark.parametrize(
    "model", ["no-such-provider/model", "bedrock/anthropic.claude-new", "vertex_ai/gemini-new", ""]
)
def test_what_cannot_be_exercised_breaks_nothing(
    model: str, sent: list[httpx.Request], connections: list[Any], caplog: Any
) -> None:
    """A provider that signs in first is not signed in to, an unknown one is no error."""
    with caplog.at_level(logging.DEBUG, "honcho_fallback"):
        warm_up([model])

    assert (sent, connections) == ([], [])
    assert f"warm_up: {model} raised" in caplog.text


@pytest.mark.parametrize("setting", ["model_fallbacks", "model_alias_map"])
def test_a_detour_of_litellms_is_not_taken(
    setting: str, models: list[str], sent: list[httpx.Request], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where LiteLLM would ask the user's other models instead, nobody is asked."""
    others = [models[1]] if setting == "model_fallbacks" else {models[0]: models[1]}
    monkeypatch.setattr(litellm, setting, others)

    warm_up(models)

    assert sent == []
