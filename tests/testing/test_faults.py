"""A transport that fails on schedule: the SDKs' own exceptions."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import anthropic
import google.genai
import groq
import httpx
import httpx2
import litellm
import openai
import pytest

from honcho_fallback import FailureKind, FallbackConfigError, classify
from honcho_fallback.testing import FaultTransport, assert_switched
from honcho_fallback_litellm import FallbackRoutingStrategy
from tests.helpers.litellm_runs import THEIRS, deployment

if TYPE_CHECKING:
    from honcho_fallback.testing import Clock, Records
    from tests.helpers.provider import Provider, ProviderServer


pytestmark = [pytest.mark.filterwarnings(warning) for warning in THEIRS]
MESSAGES: Any = [{"role": "user", "content": "hi"}]


SDKS: dict[str, Any] = {"OpenAI": openai, "Groq": groq, "Anthropic": anthropic}
either = pytest.mark.parametrize("asynchronous", [False, True], ids=["sync", "async"])


def ask(
    sdk: str, transport: FaultTransport, provider: Provider, *, asynchronous: bool = False
) -> None:
    """Ask by an SDK, whose every request goes through a transport; sync or async."""
    module, options = SDKS[sdk], {"api_key": "none", "max_retries": 0, "base_url": provider.url}

    def create(client: Any) -> Any:
        if sdk == "Anthropic":
            return client.messages.create(model="m", messages=MESSAGES, max_tokens=9)
        return client.chat.completions.create(model="m", messages=MESSAGES)

    async def in_task() -> None:
        async with module.DefaultAsyncHttpxClient(transport=transport) as http_client:
            await create(getattr(module, f"Async{sdk}")(http_client=http_client, **options))

    if asynchronous:
        asyncio.run(in_task())
    else:
        with module.DefaultHttpxClient(transport=transport) as http_client:
            create(getattr(module, sdk)(http_client=http_client, **options))


FAULTS: list[tuple[dict[str, Any], str, FailureKind]] = [
    ({"status": 400}, "BadRequestError", FailureKind.INVALID_REQUEST),
    ({"status": 401}, "AuthenticationError", FailureKind.AUTHENTICATION),
    ({"status": 403}, "PermissionDeniedError", FailureKind.PERMISSION),
    ({"status": 404}, "NotFoundError", FailureKind.MODEL_UNAVAILABLE),
    ({"status": 429, "retry_after": 7}, "RateLimitError", FailureKind.RATE_LIMIT),
    ({"status": 429, "code": "insufficient_quota"}, "RateLimitError", FailureKind.QUOTA),
    ({"status": 500}, "InternalServerError", FailureKind.SERVER_ERROR),
    ({"status": 503}, "InternalServerError", FailureKind.OVERLOADED),
    ({"status": 529}, "InternalServerError", FailureKind.OVERLOADED),
    ({"error": "timeout"}, "APITimeoutError", FailureKind.TIMEOUT),
    ({"error": "connection"}, "APIConnectionError", FailureKind.CONNECTION),
]


@either
@pytest.mark.parametrize("sdk", SDKS)
@pytest.mark.parametrize(("fault", "name", "kind"), FAULTS)
def test_the_sdks_own_exception_comes_out(
    sdk: str,
    fault: dict[str, Any],
    name: str,
    kind: FailureKind,
    asynchronous: bool,
    providers: ProviderServer,
) -> None:
    """Its class is the SDK's for that status, classify reads it right, and the rest is healthy."""
    transport, provider = FaultTransport().on(1, **fault), providers[sdk.lower()]
    with pytest.raises(getattr(SDKS[sdk], name)) as caught:
        ask(sdk, transport, provider, asynchronous=asynchronous)
    assert type(caught.value).__module__.partition(".")[0] == sdk.lower()
    failure = classify(caught.value)
    assert failure.kind is kind
    assert failure.retry_after == fault.get("retry_after")
    if "code" in fault:
        assert failure.code == fault["code"]
    if sdk == "Anthropic" and fault.get("status") == 529:
        assert type(caught.value).__name__ == "OverloadedError"
        assert "overloaded_error" in str(caught.value)
    assert providers.order == []
    ask(sdk, transport, provider, asynchronous=asynchronous)
    assert providers.order == [provider.name]
    assert (transport.requests, transport.failed) == (2, 1)


@either
def test_requests_fail_in_litellms_own_http_client(
    monkeypatch: pytest.MonkeyPatch,
    fallback_records: Records,
    providers: ProviderServer,
    asynchronous: bool,
) -> None:
    """LiteLLM, which nothing of the kit knows, maps the error as ever; the strategy switches."""
    faults = FaultTransport().on(1, status=429, retry_after=5)
    # LiteLLM keeps clients by their address and key; these two are nobody else's.
    url = providers.new("openai").url
    chain = [
        deployment("deriver", f"openai/m{n}", url, n, f"number {n}", api_key="none")
        for n in range(2)
    ]
    router = litellm.Router(chain, disable_cooldowns=True)
    FallbackRoutingStrategy().register(router)
    with httpx.Client(transport=faults) as client:
        monkeypatch.setattr(litellm, "client_session", client)
        # An event loop of its own for each test: no connection may outlive one.
        aclient = httpx.AsyncClient(transport=faults, headers={"connection": "close"})
        monkeypatch.setattr(litellm, "aclient_session", aclient)
        if asynchronous:
            answer: Any = asyncio.run(router.acompletion("deriver", MESSAGES))
        else:
            answer = router.completion("deriver", MESSAGES)
    assert answer.model == "m1"
    record = fallback_records.one
    assert_switched(record, from_="number 0", to="number 1", kind="rate_limit")
    assert (record.attempts[0].error, record.attempts[0].retry_after) == ("RateLimitError", 5)
    assert (faults.requests, faults.failed) == (2, 1)


def test_google_fails_in_its_own_form(providers: ProviderServer) -> None:
    """Its SDK reads status and code from a body of its own."""
    transport = FaultTransport().on(1, status=429).on(2, status=503)
    with httpx.Client(transport=transport) as http_client:
        options = google.genai.types.HttpOptions(
            base_url=providers["gemini"].url, httpx_client=http_client
        )
        models = google.genai.Client(api_key="none", http_options=options).models
        with pytest.raises(google.genai.errors.ClientError, match="429 RESOURCE_EXHAUSTED"):
            models.generate_content(model="gemini-2.5-flash", contents="hi")
        with pytest.raises(google.genai.errors.ServerError, match="503 UNAVAILABLE"):
            list(models.generate_content_stream(model="gemini-2.5-flash", contents="hi"))
        assert models.generate_content(model="gemini-2.5-flash", contents="hi").text


def test_clients_of_both_lineages_may_share_one(providers: ProviderServer) -> None:
    """One schedule counts the requests of several clients, whichever httpx they are of."""
    transport = FaultTransport().on(2, status=503)
    url = f"{providers['openai'].url}/models"
    statuses: list[int] = []
    for module in (httpx, httpx2, httpx, httpx2):
        client: Any = module.Client(transport=transport)
        with client:
            statuses.append(client.get(url).status_code)
    assert statuses == [200, 503, 200, 200]


def test_the_transport_inside_is_asked_and_closed() -> None:
    """What does not fail goes out by the one that was given, which ends with the client.

    An exception of one's own is raised as it is; what an SDK makes of it is the SDK's matter.
    """
    closed: list[str] = []
    inside: Any = httpx.MockTransport(lambda _: httpx.Response(200))
    inside.close = lambda: closed.append("inside")
    error = KeyError("a bug")
    transport = FaultTransport(inside).on(1, status=503).on(3, error=error)
    with httpx.Client(transport=transport) as client:
        assert [client.get("http://localhost/").status_code for _ in range(2)] == [503, 200]
        with pytest.raises(KeyError) as caught:
            client.get("http://localhost/")
    assert caught.value is error
    assert closed == ["inside"]


def schedule() -> FaultTransport:
    """Return a transport over a provider that always answers."""
    return FaultTransport(httpx.MockTransport(lambda _: httpx.Response(200)))


def statuses(transport: FaultTransport, number: int) -> list[int]:
    """Return the status of each of so many requests."""
    requests = (httpx.Request("POST", "http://provider.test/v1") for _ in range(number))
    return [transport.handle_request(request).status_code for request in requests]


def test_the_first_rule_that_applies_counts() -> None:
    """Rules stand in an order, and one without numbers is for all."""
    transport = schedule().on(3, 4, status=401).on(*range(3, 8, 3), status=503)
    assert statuses(transport, 7) == [200, 200, 401, 401, 200, 503, 200]
    assert (transport.requests, transport.failed) == (7, 3)
    assert repr(transport) == "<FaultTransport: 3 of 7 requests failed>"
    assert statuses(transport.on(status=529), 2) == [529, 529]


def test_an_outage_lasts_as_long_as_the_clock_says(fallback_clock: Clock) -> None:
    """It ends when the clock has moved on by its seconds, and not before."""
    transport = schedule().on(status=503, seconds=60)
    assert statuses(transport, 1) == [503]
    fallback_clock.advance(59.5)
    assert statuses(transport, 1) == [503]
    fallback_clock.advance(0.5)
    assert statuses(transport, 1) == [200]


def test_threads_share_the_numbers() -> None:
    """Requests of threads have numbers of their own: as many fail as one after the other."""
    transport = schedule().on(*range(3, 1001, 3), status=503)
    with ThreadPoolExecutor(16) as pool:
        together = [*pool.map(lambda _: statuses(transport, 100), range(10))]
    assert sum(one.count(503) for one in together) == transport.failed == 333
    assert transport.requests == 1000


@pytest.mark.parametrize(
    ("number", "fault", "message"),
    [
        (0, {"status": 500}, "count requests from 1"),
        (1, {}, "not one of status and error"),
        (1, {"status": 500, "error": "timeout"}, "not one of status and"),
        (1, {"status": 200}, "status: got 200"),
        (1, {"status": "503"}, "status: got '503'; pass 400 to 599"),
        (1, {"error": "slow"}, "error: got 'slow'"),
    ],
)
def test_bad_rules_are_refused(number: int, fault: dict[str, Any], message: str) -> None:
    """A rule that could never do what it says is refused where it is written."""
    with pytest.raises(FallbackConfigError, match=message):
        schedule().on(number, **fault)
