"""Keys, passwords and connections of Honcho's chat models: where they go, and where not."""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import re
import threading
from contextlib import closing, suppress
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import pytest
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.load import dumps

from honcho_fallback import FallbackConfig, FallbackError, StreamInterrupted
from honcho_fallback_langfuse import LangfuseCallbackHandler
from tests.helpers import wire
from tests.helpers.langfuse_memory import Memory, langfuse_memory
from tests.helpers.observers import Listener
from tests.helpers.pairwise import in_turn
from tests.helpers.provider import ProviderServer, Reply
from tests.honcho.chat_models import PRIMARY, VERBS, WIRES, ask, deriver

if TYPE_CHECKING:
    from collections.abc import Iterator

SENTINEL = "sk-sentinel-7f3a9c2e51"
NAMES = (
    "ANTHROPIC_API_KEY",
    "ANTHROPIC_AUTH_TOKEN",
    "GEMINI_API_KEY",
    "GOOGLE_API_KEY",
    "LANGSMITH_GATEWAY_API_KEY",
    "OPENAI_ADMIN_KEY",
    "OPENAI_API_KEY",
)
# Nobody listens there: whoever asked there would not reach the provider.
ADDRESSES = (
    "ANTHROPIC_API_URL",
    "ANTHROPIC_BASE_URL",
    "ANTHROPIC_PROXY",
    "GOOGLE_GEMINI_BASE_URL",
    "GOOGLE_VERTEX_BASE_URL",
    "LANGSMITH_GATEWAY",
    "OPENAI_API_BASE",
    "OPENAI_BASE_URL",
    "OPENAI_PROXY",
)
OTHERS = {
    "GOOGLE_CLOUD_LOCATION": SENTINEL,
    "GOOGLE_CLOUD_PROJECT": SENTINEL,
    "GOOGLE_GENAI_USE_ENTERPRISE": "true",
    "GOOGLE_GENAI_USE_VERTEXAI": "true",
}


@in_turn(transport=[*WIRES, *WIRES, "lmstudio"], verb=VERBS)
def test_nothing_of_the_environment_reaches_a_host(
    transport: str, verb: str, providers: ProviderServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """HOM-021: the SDKs' own variables are for the SDKs' own hosts."""
    for name in NAMES:
        monkeypatch.setenv(name, SENTINEL)
    for name in ADDRESSES:
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    for name, value in OTHERS.items():
        monkeypatch.setenv(name, value)
    other = "openai" if transport != "openai" else "gemini"
    ask(deriver(providers, transport, other), verb)
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
        other = "openai" if transport != "openai" else "gemini"
        model = deriver(providers, transport, other, {"config": FallbackConfig(max_attempts=1)})
        with suppress(FallbackError):  # some follow, and some do not
            ask(model, verb)
        assert f"{transport}-key" not in repr(elsewhere["elsewhere"].requests)


# --- a user and a password in the address --------------------------------------------------------

PASSWORD, TOKEN = "pass/word", "header-token"
BASIC = base64.b64encode(f"us er:{PASSWORD}".encode()).decode()


class Tracer(BaseCallbackHandler):
    """Note all that LangChain tells of a run."""

    def __init__(self) -> None:
        self.events: list[str] = []

    def __getattribute__(self, name: str) -> Any:
        if name.startswith("on_"):
            return lambda *args, **kwargs: self.events.append(repr((name, args, kwargs)))
        return super().__getattribute__(name)


@pytest.fixture(scope="module")
def memory_client() -> Iterator[Memory]:
    with langfuse_memory("honcho") as memory:
        yield memory


@pytest.fixture
def memory(memory_client: Memory) -> Memory:
    memory_client.clear()
    return memory_client


@in_turn(transport=[*WIRES, *WIRES], verb=VERBS)
def test_a_password_in_the_address_works_and_is_shown_nowhere(
    transport: str,
    verb: str,
    providers: ProviderServer,
    memory: Memory,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """HON-075: neither in a repr, a record, a log line, a run of LangChain nor at Langfuse."""
    caplog.set_level(logging.DEBUG)
    address = providers[transport].url.replace(
        "://", f"://us%20er:{PASSWORD.replace('/', '%2F')}@"
    )
    other = "openai" if transport != "openai" else "gemini"
    listener, tracer = Listener(), Tracer()
    options = {"observers": [listener, LangfuseCallbackHandler(memory.client)]}
    params = f"{PRIMARY}__OVERRIDES__PROVIDER_PARAMS__EXTRA_HEADERS"
    more = {
        f"{PRIMARY}__OVERRIDES__BASE_URL": address,
        f"{PRIMARY}__OVERRIDES__API_KEY": SENTINEL,
        params: json.dumps({"x-token": TOKEN}),
    }
    model = deriver(providers, transport, other, options, **more)
    providers[transport].reply(Reply(status=503))
    ask(model, verb)
    providers.order.clear()
    answer = ask(model.with_config(callbacks=[tracer]), verb)
    assert answer.text == f"hello from {transport}"
    request = providers[transport].requests[-1]
    assert request.headers["authorization"] == f"Basic {BASIC}"
    assert request.headers["x-token"] == TOKEN
    shown = [repr(model), str(model), repr(model.candidates), repr(model.policy.targets)]
    shown += [dumps(model), json.dumps([record.to_dict() for record in listener.records])]
    shown += [record.explain() for record in listener.records]
    shown += [repr(answer), *tracer.events, repr(memory.spans())]
    shown += [one.getMessage() for one in caplog.records if one.name != "httpcore.http11"]
    assert len(memory.stored()) == 2
    for secret in (PASSWORD, "pass%2F", BASIC, SENTINEL, TOKEN):
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
    other = "openai" if transport != "openai" else "gemini"
    limit = {f"{PRIMARY}__OVERRIDES__PROVIDER_PARAMS__TIMEOUT": "0.3"}
    with pytest.raises(StreamInterrupted, match="timeout"):
        ask(deriver(providers, transport, other, **limit), verb)
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
    other, listener = "openai" if transport != "openai" else "gemini", Listener()
    model = deriver(providers, transport, other, {"observers": [listener]})
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
