"""SDK clients as a chain asks them: real clients, servers that are really down."""

from __future__ import annotations

import asyncio
import socket
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import anthropic
import httpx
import httpx2
import openai
import pytest
from google import genai
from google.genai.types import HttpOptions, HttpRetryOptions

from honcho_fallback import ApiKey, FallbackConfigError, FallbackPolicy, Target
from honcho_fallback.providers import (
    distinct_name,
    owner_of,
    place_of,
    with_key,
    with_place,
    with_timeout,
    without_retries,
)
from tests.helpers.provider import Reply

if TYPE_CHECKING:
    from collections.abc import Callable

    from honcho_fallback import Attempt
    from tests.helpers.provider import ProviderServer

MESSAGES: Any = [{"role": "user", "content": "hello"}]
SDKS: dict[str, Any] = {
    "openai": openai.OpenAI,
    "anthropic": anthropic.Anthropic,
    "async openai": openai.AsyncOpenAI,
    "async anthropic": anthropic.AsyncAnthropic,
}


def request(client: Any) -> Any:
    """Ask for an answer; a coroutine of an async client."""
    if "Anthropic" in type(client).__name__:
        return client.messages.create(model="m", max_tokens=9, messages=MESSAGES)
    return client.chat.completions.create(model="m", messages=MESSAGES)


def asked(sdk: str, policy: FallbackPolicy, ask: Callable[[Attempt], Any]) -> Any:
    """Make a call of either sort."""
    if not sdk.startswith("async"):
        return policy.call(ask)

    async def in_task() -> Any:
        try:
            return await policy.acall(ask)
        finally:
            for target in policy.targets:
                await target.client.close()

    return asyncio.run(in_task())


@pytest.mark.parametrize("outage", [Reply(status=503), Reply(hang=True)], ids=["503", "hang"])
@pytest.mark.parametrize("sdk", SDKS)
def test_a_provider_that_is_down_is_asked_once(
    providers: ProviderServer, sdk: str, outage: Reply
) -> None:
    """Two clients, one per target: each sends one request, and the caller's own keep theirs.

    A thread cannot be interrupted, so the request itself ends with the attempt.
    """
    down, up = providers["down"], providers["up"]
    down.standing = outage
    clients = [SDKS[sdk](base_url=one.url, api_key="k", timeout=50) for one in (down, up)]
    targets = [
        Target("m", name=f"m{n}", client=without_retries(client))
        for n, client in enumerate(clients)
    ]
    policy = FallbackPolicy(targets, timeout=1 if outage.hang else 60)
    assert asked(sdk, policy, lambda one: request(with_timeout(one.target.client, one)))
    assert (len(down.requests), len(up.requests)) == (1, 1)
    assert [client.max_retries for client in clients] == [2, 2]
    assert without_retries(targets[0].client) is targets[0].client
    # Whoever holds ``client.chat.completions`` gets one of these back.
    resource = clients[0].messages if "anthropic" in sdk else clients[0].chat.completions
    derived = without_retries(resource)
    assert type(derived) is type(resource)
    assert (owner_of(derived).max_retries, owner_of(resource).max_retries) == (0, 2)


@pytest.mark.parametrize("sdk", [name for name in SDKS if not name.startswith("async")])
def test_another_key_goes_over_the_same_connections(providers: ProviderServer, sdk: str) -> None:
    """The key of an attempt's credential is sent, and the client that it came from has its own."""
    server = providers["up"]
    client = SDKS[sdk](base_url=server.url, api_key="first")
    other = with_key(client, "second")
    request(other)
    request(client)
    assert [one.key for one in server.requests] == ["second", "first"]
    assert other._client is client._client


def test_a_shorter_time_of_the_clients_own_stays() -> None:
    """What is asked for is bounded by the attempt, never prolonged by it."""
    client = openai.OpenAI(base_url="http://127.0.0.1:1", api_key="k", timeout=3)
    attempt = FallbackPolicy([Target("m")], timeout=20, connect_timeout=1).start().attempt
    bounded: Any = with_timeout(client, attempt).timeout
    assert isinstance(bounded, httpx.Timeout | httpx2.Timeout)
    assert (bounded.read, bounded.write, bounded.pool, bounded.connect) == (3, 3, 3, 1)
    again = with_timeout(client, attempt)
    assert with_timeout(again, attempt) is again


def test_googles_client_is_taken_as_it_was_built(providers: ProviderServer) -> None:
    """It has no copies: the message says how to build it, and one that is built so asks once."""
    down = providers["down"]
    down.fail(503)

    def built(**options: Any) -> genai.Client:
        http = HttpOptions(base_url=down.url, **options)
        return genai.Client(api_key="k", vertexai=False, http_options=http)

    for retrying in (built(), built(retry_options=HttpRetryOptions(attempts=2))):
        with pytest.raises(FallbackConfigError, match=r"HttpRetryOptions\(attempts=1\)"):
            without_retries(retrying)
    client = built(retry_options=HttpRetryOptions(attempts=1))
    assert without_retries(client) is client
    assert without_retries(client.models) is client.models
    with pytest.raises(Exception, match="503"):
        client.models.generate_content(model="m", contents="hello")
    assert len(down.requests) == 1


@pytest.mark.parametrize("derive", [without_retries, lambda one: with_key(one, "secret-key")])
def test_a_client_that_nobody_knows_is_refused(derive: Any) -> None:
    """The message names the class and what to do, and no key."""
    with socket.socket() as stranger, pytest.raises(FallbackConfigError) as caught:
        derive(stranger)
    text = str(caught.value)
    assert "socket.socket is told is not known; set it where the client is built" in text
    assert "secret-key" not in text


@pytest.mark.parametrize("sdk", SDKS)
def test_a_target_has_the_place_of_its_client(sdk: str) -> None:
    """Address and key are the client's, unless the target has its own."""
    client = SDKS[sdk](api_key="one", base_url="https://api.example/v1")
    target, other = (with_place(Target(model), client) for model in ("m", "n"))
    assert target.endpoint is not None
    assert target.endpoint.startswith("https://api.example/v1")
    assert target.keys["credential"] == other.keys["credential"]
    own = Target("m", endpoint="https://own.example", credential=ApiKey("own"))
    assert with_place(own, client) == own
    assert (
        with_place(Target("m"), None, "https://other.example").endpoint == "https://other.example"
    )


def test_a_place_is_an_address_and_an_account() -> None:
    """Two targets whose addresses nobody knows are two places, each its own."""
    here: dict[str, Any] = {"endpoint": "https://api.example", "credential": ApiKey("one")}
    place = place_of(Target("m", **here))
    assert place == place_of(Target("n", **here))
    for other in ({"credential": ApiKey("other")}, {"endpoint": "https://eu.example"}):
        assert place != place_of(Target("m", **here | other))
    keyless, again = (place_of(Target(name, endpoint="https://api.example")) for name in "mn")
    assert keyless == again
    assert "api.example" not in keyless
    nowhere = Target("m")
    assert place_of(nowhere) == place_of(replace(nowhere, labels={"eu"}))
    assert place_of(nowhere) != place_of(Target("m"))


@pytest.mark.parametrize(
    ("taken", "name"),
    [
        ([], "gpt"),
        (["claude"], "gpt"),
        (["gpt"], "gpt#2"),
        (["gpt", "claude"], "gpt#3"),
        (["gpt", "gpt#2"], "gpt#3"),
        (["gpt", "gpt#3"], "gpt#4"),
    ],
)
def test_a_taken_name_gets_the_number_of_its_place(taken: list[str], name: str) -> None:
    """Counted from 1, as people count; where even that is taken, the next free number."""
    assert distinct_name("gpt", taken) == name
