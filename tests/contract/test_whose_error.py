"""General HTTP clients at real servers: whether a failure is a model's, or another service's."""

from __future__ import annotations

import asyncio
import gc
import urllib.error
import urllib.request
from functools import partial
from typing import TYPE_CHECKING, Any

import aiohttp
import httpx
import openai
import pytest
import requests

from honcho_fallback import FallbackPolicy, RetryBudget, Target, classify
from tests.helpers.errors import raised_from
from tests.helpers.observers import Listener
from tests.helpers.own_rules import loaded, of_provider
from tests.helpers.provider import ProviderServer
from tests.helpers.redis_server import free_port

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_httpserver import HTTPServer

ISSUE, COMPLETIONS, ODD = "/repos/acme/issues", "/v1/chat/completions", "/gateway/run"
BUSY = {"error": "The model is overloaded."}


def by_httpx(method: str, url: str) -> None:
    httpx.request(method, url).raise_for_status()


def by_async_httpx(method: str, url: str) -> None:
    async def ask() -> None:
        async with httpx.AsyncClient() as client:
            (await client.request(method, url)).raise_for_status()

    asyncio.run(ask())


def by_requests(method: str, url: str) -> None:
    requests.request(method, url, timeout=5).raise_for_status()


def by_aiohttp(method: str, url: str) -> None:
    async def ask() -> None:
        async with aiohttp.ClientSession() as session, session.request(method, url) as answer:
            answer.raise_for_status()

    asyncio.run(ask())


def by_urllib(method: str, url: str) -> None:
    urllib.request.urlopen(urllib.request.Request(url, method=method))  # noqa: S310 # ours


# aiohttp and urllib raise without the answer's body, and where nobody listens without a path.
WITH_BODY = (by_httpx, by_async_httpx, by_requests)
CLIENTS = (*WITH_BODY, by_aiohttp, by_urllib)


def failure_of(ask: Callable[[], object]) -> BaseException:
    with pytest.raises(Exception) as caught:  # each client has its own
        ask()
    if isinstance(caught.value, urllib.error.HTTPError):
        caught.value.close()  # it holds the connection
    return caught.value


@pytest.fixture
def nobody() -> str:
    return f"http://127.0.0.1:{free_port()}"


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize(
    ("method", "path", "status", "kind"),
    [
        ("GET", ISSUE, 502, "local"),
        ("POST", ISSUE, 429, "local"),
        ("GET", "/", 403, "local"),
        ("POST", COMPLETIONS, 502, "server_error"),
        ("POST", COMPLETIONS, 429, "rate_limit"),
        ("POST", "/v1/messages", 401, "authentication"),
        ("POST", "/v1beta/models/gemini:generateContent", 503, "overloaded"),
        ("POST", "/api/v10/channels/9/messages", 503, "local"),
        ("POST", "/v1", 503, "overloaded"),  # no path that could say more
    ],
)
def test_an_answers_address_says_whose_it_is(
    httpserver: HTTPServer, client: Any, method: str, path: str, status: int, kind: str
) -> None:
    """A path of inference is a model's, whatever the body; one of another service is not."""
    httpserver.expect_request(path).respond_with_data("down", status=status)
    error = failure_of(lambda: client(method, httpserver.url_for(path)))
    # urllib keeps no method: a page that it could not get may have been asked for by POST.
    expected = "permission" if client is by_urllib and path == "/" else kind
    assert classify(error).kind == expected


@pytest.mark.parametrize("client", WITH_BODY)
@pytest.mark.parametrize(
    ("body", "method", "kind"),
    [
        (BUSY, "POST", "overloaded"),
        ({"detail": "2,000 prompt tokens a minute are allowed"}, "POST", "overloaded"),
        ({"type": "error", "error": {"message": "Busy."}}, "POST", "overloaded"),
        (
            {"error": {"message": "Busy.", "type": "busy", "param": None, "code": None}},
            "GET",
            "overloaded",
        ),
        (BUSY, "GET", "local"),
        ({"error": "The queue is full."}, "GET", "local"),
        ({"error": "The queue is full."}, "POST", "overloaded"),
    ],
)
def test_an_odd_path_is_a_models_unless_its_page_is_read(
    httpserver: HTTPServer, client: Any, body: Any, method: str, kind: str
) -> None:
    """A private gateway may have any path; where it is a GET, the shape of its errors tells."""
    httpserver.expect_request(ODD).respond_with_json(body, status=503)
    error = failure_of(lambda: client(method, httpserver.url_for(ODD)))
    assert classify(error).kind == kind
    assert classify(error, rules=loaded(of_provider(type(error)))).kind == "overloaded"


@pytest.mark.parametrize("client", WITH_BODY)
def test_a_closed_port_is_whose_it_was(client: Any, nobody: str) -> None:
    """Where nobody listens, the request's path tells as well, if the client keeps it."""
    error = failure_of(lambda: client("POST", nobody + COMPLETIONS))
    assert classify(error).kind == "connection"
    error = failure_of(lambda: client("GET", nobody + ISSUE))
    assert classify(error).kind == "local"
    # What only wraps it says no more, and one that quotes it is read the same.
    for text in ("the tool failed", f"no: {error} for url: {nobody}{ISSUE}"):
        assert classify(raised_from(RuntimeError(text), error)).kind == "local"


def test_who_says_nothing_of_a_path_is_a_model(nobody: str) -> None:
    """aiohttp raises with the host alone; the path of an SDK's request is not looked at."""
    sdk = openai.OpenAI(api_key="none", base_url=f"{nobody}/odd", max_retries=0)
    for ask in (partial(by_aiohttp, "POST", nobody + ISSUE), sdk.models.list):
        assert classify(failure_of(ask)).kind == "connection"


@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")
@pytest.mark.parametrize("chain", [("dead", "alive"), ("dead", "alive", "last")])
def test_connections_of_an_earlier_event_loop_cost_nobody_the_call(chain: tuple[str, ...]) -> None:
    """A worker that runs a loop for each job has clients whose pools are full of them.

    They take no other target its turn, and nothing of a budget.
    """
    listener, budget = Listener(), RetryBudget(0.0, 0.0)
    make: Any = partial(openai.AsyncOpenAI, api_key="k", max_retries=0)
    messages: Any = [{"role": "user", "content": "hi"}]

    def ask(client: Any) -> Any:
        return client.chat.completions.create(model="m", messages=messages)

    async def all_at_once(targets: list[Target]) -> None:
        await asyncio.gather(*(ask(one.client) for one in targets * 2))

    async def job(policy: FallbackPolicy) -> None:
        await policy.acall(lambda attempt: ask(attempt.target.client))

    with ProviderServer() as providers:
        targets = [Target(name, client=make(base_url=providers[name].url)) for name in chain]
        policy = FallbackPolicy(targets, observers=[listener], retry_budget=budget)
        asyncio.run(all_at_once(targets))
        providers["dead"].fail(503)
        asyncio.run(job(policy))
    del targets, policy
    gc.collect()  # what is left of them warns here
    kinds = listener.kinds
    assert [one for one in kinds if one != "connection"] == ["overloaded", None]
    assert kinds.count("connection") > 1
