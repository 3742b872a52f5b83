"""Whom a failure reaches: the model, whoever has the same key, or whoever is at the same host."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any

import aiohttp
import httpx
import pytest
import urllib3
from werkzeug import Response

from honcho_fallback import (
    ApiKey,
    Cooldown,
    FailureKind,
    FallbackConfig,
    FallbackExhausted,
    FallbackPolicy,
    Target,
    classify,
)
from honcho_fallback.testing import StatusError
from tests.helpers.errors import EXAMPLES, openai_error
from tests.helpers.scripted import DRIVERS, repeating

if TYPE_CHECKING:
    from pytest_httpserver import HTTPServer

    from honcho_fallback import Failure
    from honcho_fallback.testing import Clock

DEAD_KEY, EMPTY = StatusError(401), StatusError(402)
BUSY, GONE = StatusError(429, code="rate_limit_exceeded"), ConnectionRefusedError(111, "refused")


def target(name: str, host: str = "one.example", key: str = "a", **more: Any) -> Target:
    return Target(
        name,
        provider="p",
        name=name,
        endpoint=f"https://{host}/v1",
        credential=ApiKey(key),
        **more,
    )


def reaching(**scopes: Any) -> dict[str, Any]:
    """Say by a refine whom failures of some kinds reach."""

    def refine(failure: Failure, _: BaseException) -> Failure:
        return failure._replace(scope=scopes.get(failure.kind, failure.scope))

    return {"refine": refine}


def naming(kind: str) -> dict[str, Any]:
    """Say by a refine that a failure is of another kind."""
    return {"refine": lambda failure, _: failure._replace(kind=FailureKind(kind))}


LIMITS = reaching(rate_limit="credential")
# The same key at the same host, another key there, and another host.
CHAIN = (
    target("primary"),
    target("sibling"),
    target("colleague", key="b"),
    target("stranger", host="two.example"),
)


def policy_of(*targets: Target, **options: Any) -> FallbackPolicy:
    return FallbackPolicy(targets or CHAIN, FallbackConfig(wait=0, **options))


# What happens with one dead key, one dead host, one empty account and one exhausted model: whom a
# call asks, and whom a cooldown lets rest after it. The table in docs/outages.md says the same.
CASES: dict[str, tuple[Exception, dict[str, Any], list[str], dict[str, str]]] = {
    "dead key": (DEAD_KEY, {}, ["primary", "colleague"], {"sibling": "key"}),
    "dead host": (GONE, {}, ["primary", "stranger"], {"sibling": "host", "colleague": "host"}),
    "empty account": (EMPTY, {}, ["primary", "colleague"], {"sibling": "key"}),
    "exhausted model": (BUSY, {}, ["primary", "sibling"], {}),
    "exhausted model, with refine": (
        BUSY, LIMITS, ["primary", "colleague"], {"sibling": "key"},
    ),
    "dead host, with refine": (
        GONE, reaching(connection="model"), ["primary", "sibling"], {},
    ),
    "empty account, with refine": (
        EMPTY, reaching(quota="endpoint"), ["primary", "stranger"],
        {"sibling": "host", "colleague": "host"},
    ),
    "dead key, with refine": (
        DEAD_KEY, reaching(authentication="model"), ["primary", "sibling"], {},
    ),
    # Another kind alone means all of it; a host that is not there stays one.
    "a model that is said to be a dead key": (
        BUSY, naming("authentication"), ["primary", "colleague"], {"sibling": "key"},
    ),
    "dead host that is said to be a busy one": (
        GONE, naming("overloaded"), ["primary", "stranger"],
        {"sibling": "host", "colleague": "host"},
    ),
}  # fmt: skip


@pytest.mark.parametrize("driver", DRIVERS)
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("rests", [False, True])
def test_who_shares_what_failed_is_passed_over_and_rests(
    clock: Clock, driver: str, case: str, *, rests: bool
) -> None:
    """The next request goes to the first target that does not share the cause.

    With a cooldown other calls leave them alone, too, until one of them looks again.
    """
    failure, options, asked, shared = CASES[case]
    replies = {one.name: ["hello"] for one in CHAIN[1:]} | {"primary": [failure]}
    policy = policy_of(cooldown=Cooldown(after=1, base=60) if rests else None, **options)
    script, run = repeating(**replies), policy.start()
    assert DRIVERS[driver](policy, script, run) == "hello"
    assert script.asked == asked
    reasons = dict(run.record.untried)
    for name, what in shared.items():
        assert reasons[name] == f"it has the same {what} as primary"
        assert f"{name}: never asked, it has the same {what} as primary" in run.record.explain()
    if not rests:
        return
    # Another policy, on the same key and the same host, that knows the primary under no name.
    sharing = FallbackPolicy([target("newcomer"), CHAIN[2], CHAIN[3]], policy.config)
    run = sharing.start()
    free = "newcomer" if "sibling" in asked else asked[1]
    assert run.attempt.target.name == free
    run.succeed()
    clock.now += 60
    probe, beside = sharing.start(), sharing.start()
    assert probe.attempt.target.name == "newcomer"
    assert beside.attempt.target.name == free  # one probe for all who share it
    probe.succeed()
    assert sharing.start().attempt.target.name == "newcomer"


def test_where_all_share_what_failed_the_call_ends_or_waits() -> None:
    """A dead key of all is no reason to go on; a host that may come back is asked again."""
    policy = policy_of(*CHAIN[:2])
    script = repeating(primary=[DEAD_KEY], sibling=["never"])
    with pytest.raises(FallbackExhausted, match="sibling was never asked: it has the same key"):
        policy.call(script.ask)
    assert script.asked == ["primary"]
    script = repeating(primary=[GONE, "back"], sibling=["never"])
    assert policy.call(script.ask) == "back"
    assert script.asked == ["primary", "primary"]


def test_the_last_failure_of_a_target_counts() -> None:
    """A host that was refused and then answers is there again: its other models may be asked."""
    policy = policy_of(*CHAIN[:2], switch_after=2)
    script = repeating(primary=[GONE, BUSY], sibling=["hello"])
    assert policy.call(script.ask) == "hello"
    assert script.asked == ["primary", "primary", "sibling"]


def passed_over(failure: Exception, one: Target, two: Target) -> bool:
    """Tell whether a target that failed takes another one with it."""
    replies: dict[str, Any] = {one.name: [failure], two.name: ["hello"], "last": ["hello"]}
    script = repeating(**replies)
    assert policy_of(one, two, Target("last")).call(script.ask) == "hello"
    return two.name not in script.asked


@pytest.mark.parametrize("failure", [DEAD_KEY, GONE])
def test_what_is_unknown_is_not_shared(failure: Exception) -> None:
    """A guess that two targets share a key would cost the caller an answer.

    The same key at another path of a gateway may stand for another provider's account there.
    """
    key: dict[str, Any] = {"credential": ApiKey("a")}
    unknown = [({}, {}), (key, key), ({"endpoint": "https://one.example"}, key)]
    for one, two in unknown:
        assert not passed_over(failure, Target("primary", **one), Target("other", **two))
    host = "https://gateway.example"
    for provider in (None, "openai"):
        here = Target("primary", provider, endpoint=f"{host}/openai", **key)
        there = Target("other", provider, endpoint=f"{host}/anthropic", **key)
        assert passed_over(failure, here, there) is (failure is GONE)


SAME_HOST = [
    ("https://one.example/v1", "https://ONE.example:443/other"),
    ("http://one.example", "one.example:80"),
    ("one.example/v1", "https://one.example"),
    ("https://user:secret@one.example", "https://one.example"),
    ("http://[::1]:8000/v1", "http://[::1]:8000"),
    ("http://[broken", "http://[broken"),
]
OTHER_HOST = [
    ("https://one.example", "https://two.example"),
    ("http://127.0.0.1:1234", "http://127.0.0.1:1235"),
    ("http://one.example", "https://one.example"),
]


@pytest.mark.parametrize(("one", "two"), SAME_HOST + OTHER_HOST)
def test_a_host_is_a_name_and_a_port(one: str, two: str) -> None:
    """Path, login, case and a scheme's own port make no other host."""
    is_same = passed_over(GONE, Target("a", endpoint=one), Target("b", endpoint=two))
    assert is_same == ((one, two) in SAME_HOST)


def test_an_identity_that_is_handed_on_keeps_what_it_shares() -> None:
    """An adapter that knows key and address passes the identity alone, also under a prefix."""
    known = target("model")
    primary = Target("primary", identity=known.identity)
    sibling = Target("sibling", identity=f"mine:{target('other').identity}")
    colleague = Target("colleague", identity=target("third", key="b").identity)
    script = repeating(primary=[DEAD_KEY], sibling=["never"], colleague=["hello"])
    assert policy_of(primary, sibling, colleague).call(script.ask) == "hello"
    assert "secret" not in repr(target("x", key="secret").identity)


def test_a_probe_needs_all_that_rests(clock: Clock) -> None:
    """A model that is due at a host that is not stays where it is; a probe looks at both."""
    policy = policy_of(CHAIN[0], CHAIN[3], cooldown=Cooldown(after=1, base=60))
    first = policy.start()
    first.fail(StatusError(503))  # the model, for 60 s
    first.succeed()
    clock.now += 30
    elsewhere = FallbackPolicy([CHAIN[1], CHAIN[3]], policy.config)
    second = elsewhere.start()
    second.fail(GONE)  # the host, 30 s later
    second.succeed()
    clock.now += 40
    run = policy.start()
    assert run.attempt.target.name == "stranger"
    assert run.record.cooling == {"primary": 20.0}
    clock.now += 20
    probe = policy.start()
    assert probe.attempt.target.name == "primary"
    assert elsewhere.start().attempt.target.name == "stranger"
    probe.fail(BUSY)  # the model rests again; the host is for the next to look at
    assert elsewhere.start().attempt.target.name == "sibling"


def limited(message: str, status: int, **fields: Any) -> Exception:
    """Return what OpenAI's SDK raises for a limit or a key, in the form that gateways copy."""
    headers = {"retry_after": "20000"} if status == 429 else {}
    error = {"message": message, "type": None, "param": None, "code": None, **fields}
    return openai_error(status, error, **headers)


@pytest.mark.parametrize(
    ("whose", "answers"), [("of_one_model", "sibling"), ("of_the_key", "colleague")]
)
def test_whose_a_limit_or_a_refusal_is(whose: str, answers: str) -> None:
    """A day's limit of one model, or a key that only lacks one, says nothing of its siblings.

    An account's limit names no model, or all of them: whoever is asked with its key is left.
    """
    for row in EXAMPLES["limits"][whose]:
        error = limited(**row)
        script = repeating(primary=[error], sibling=["sibling"], colleague=["colleague"])
        assert policy_of(*CHAIN[:3]).call(script.ask) == answers, row


async def _in_aiohttp(url: str) -> None:
    # The first has all its time to connect: the second waits for nothing but its place.
    connector, timeout = aiohttp.TCPConnector(limit=1), aiohttp.ClientTimeout(connect=0.05)
    async with aiohttp.ClientSession(connector=connector) as session:
        await asyncio.gather(session.post(f"{url}/slow"), session.post(url, timeout=timeout))


def _httpx_pool(url: str) -> None:
    limits, timeout = httpx.Limits(max_connections=1), httpx.Timeout(5, pool=0.05)
    with httpx.Client(limits=limits, timeout=timeout) as client, client.stream("POST", url):
        client.post(url)


def _urllib3_pool(url: str) -> None:
    with urllib3.PoolManager(maxsize=1, block=True) as pool:
        held = pool.request("POST", url, preload_content=False)
        try:
            pool.request("POST", url, pool_timeout=0.05)
        finally:
            held.close()


POOLS: list[Any] = [_httpx_pool, _urllib3_pool, lambda url: asyncio.run(_in_aiohttp(url))]


@pytest.mark.parametrize("ask", POOLS)
def test_a_pool_of_ones_own_says_nothing_of_the_host(httpserver: HTTPServer, ask: Any) -> None:
    """No request was sent, nobody rests, and whoever has another client may ask the same host."""
    gate = threading.Event()

    def slow(_: Any) -> Response:
        gate.wait(10)
        return Response("hello")

    httpserver.expect_request("/v1/chat/completions").respond_with_data("hello")
    httpserver.expect_request("/v1/chat/completions/slow").respond_with_handler(slow)
    with pytest.raises(Exception) as got:  # each library has its own
        ask(httpserver.url_for("/v1/chat/completions"))
    gate.set()
    failure = classify(got.value)
    assert (failure.kind, failure.reached, failure.scope) == ("timeout", "no", "client")
    # Nor does a pool that is left of a closed event loop.
    stale = failure._replace(kind=FailureKind.CONNECTION)
    policy = policy_of(*CHAIN[:2], cooldown=Cooldown(after=1, base=60), attempts_per_target=1)
    for meant in (None, stale):
        run = policy.start()
        assert run.fail(got.value, failure=meant).target.name == "sibling"
        run.succeed()
        assert policy.start().attempt.target.name == "primary"
