"""One failed request, no wait, the next target: what a Router does under the strategy."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import httpx
import litellm
import openai
import pytest

from honcho_fallback import Failure, FallbackConfig
from honcho_fallback_litellm._failures import classifier_for
from tests.helpers.provider import Reply
from tests.helpers.wire import COUNTS, MESSAGE_COUNTS

if TYPE_CHECKING:
    from tests.helpers.provider import ProviderServer

MESSAGES = [{"role": "user", "content": "hello"}]


def meaning_of(error: BaseException) -> Failure:
    """Say what an error out of LiteLLM means."""
    return classifier_for(FallbackConfig())(error)


@pytest.mark.parametrize("code", ["503", 503, None])
@pytest.mark.parametrize("message", ["the engine is overloaded", ""])
def test_an_error_under_a_200_that_litellm_trips_over_is_the_providers(
    message: str,
    code: str | int | None,
    bench: Any,
    providers: ProviderServer,
    ask: Any,
    text: Any,
) -> None:
    """LiteLLM's cooldown compares a status that is a text with a number, and raises a TypeError.

    That is a bug in LiteLLM, for which no caller loses a call, and so is an error without a word.
    """
    body = {"error": {"message": message, "type": "overloaded_error", "code": code}}
    providers["primary"].reply(Reply(body=body))
    router, listener = bench.managed()
    assert text(ask(router, "completion", model="deriver", messages=MESSAGES)) == (
        "hello from backup"
    )
    assert providers.order == ["primary", "backup"]
    assert str(listener.record.attempts[0].kind) in NO_ANSWER


NO_ANSWER = {"overloaded", "server_error", "malformed_response"}

ASYNC_ENDPOINTS: dict[str, dict[str, Any]] = {
    "aresponses": {"input": "hello"},
    "aanthropic_messages": {"messages": MESSAGES, "max_tokens": 16},
}


@pytest.mark.parametrize("status", [429, 500])
@pytest.mark.parametrize("method", ASYNC_ENDPOINTS)
def test_responses_and_messages_switch_too(
    method: str, status: int, bench: Any, providers: ProviderServer, run: Any, text: Any
) -> None:
    """(1) The endpoints that LiteLLM keeps in a metadata bucket of their own."""
    provider = "anthropic" if method == "aanthropic_messages" else "openai"
    models = [
        bench.deployment(name, rank, model=f"{provider}/{name}-model")
        for rank, name in enumerate(["primary", "backup"])
    ]
    providers["primary"].fail(status)
    router, listener = bench.managed(models=models)

    answer = run(getattr(router, method)(model="deriver", **ASYNC_ENDPOINTS[method]))

    assert text(answer) == "hello from backup"
    assert providers.order == ["primary", "backup"]
    assert listener.record.is_fallback
    assert listener.record.usage == (MESSAGE_COUNTS if provider == "anthropic" else COUNTS)


NOT_SWITCHING = {
    "wrong request": (400, {"error": {"message": "bad", "type": "invalid_request_error"}}),
    "a rate limit in the text": (
        400,
        {"error": {"message": "no tool named get_rate_limit", "type": "invalid_request_error"}},
    ),
    "unprocessable": (422, {"error": {"message": "bad", "type": "invalid_request_error"}}),
}


@pytest.mark.parametrize("name", NOT_SWITCHING)
def test_a_wrong_request_surfaces_after_one_request(
    name: str, bench: Any, providers: ProviderServer, ask: Any
) -> None:
    """(2) No other target could help; the error comes out in LiteLLM's own class, annotated."""
    status, body = NOT_SWITCHING[name]
    providers["primary"].fail(status, body=body)
    router, listener = bench.managed()

    with pytest.raises(openai.APIError) as caught:
        ask(router, "completion", model="deriver", messages=MESSAGES)

    assert type(caught.value).__module__ == "litellm.exceptions"
    assert providers.order == ["primary"]
    assert listener.record.outcome == "rejected"
    assert listener.record.attempts[0].kind == "invalid_request"
    assert vars(caught.value)["record"] == listener.record
    assert any("primary invalid_request" in note for note in caught.value.__notes__)


def test_a_retry_policy_has_no_say(
    bench: Any, providers: ProviderServer, ask: Any, text: Any
) -> None:
    """LiteLLM's retry_policy would skip the classifier; in ranked groups it is out of the way."""
    policy = litellm.RetryPolicy(DefaultRetries=4, InternalServerErrorRetries=0)
    router, _ = bench.managed(retry_policy=policy, model_group_retry_policy={"deriver": policy})
    providers["primary"].fail(500, times=1)
    answer = ask(router, "completion", model="deriver", messages=MESSAGES)
    assert text(answer) == "hello from backup"

    providers.order.clear()
    providers["primary"].fail(400, times=1)
    with pytest.raises(litellm.BadRequestError):
        ask(router, "completion", model="deriver", messages=MESSAGES)
    assert providers.order == ["primary"]


def test_the_answer_carries_the_record(bench: Any, providers: ProviderServer, ask: Any) -> None:
    """The caller finds the record with the answer, as plain values, and headers for the Proxy."""
    providers["primary"].fail(429, headers={"retry-after": "3"})
    router, listener = bench.managed()

    answer = ask(router, "completion", model="deriver", messages=MESSAGES)

    told = answer._hidden_params["fallback"]
    assert told == listener.record.to_dict()
    assert told["usage"] == COUNTS
    assert told["attempts"][0]["retry_after"] == 3
    headers = answer._hidden_params["additional_headers"]
    assert headers["x-honcho-fallback-answered-by"] == "backup"
    assert headers["x-honcho-fallback-attempts"] == "2"
    assert headers["x-honcho-fallback-reason"] == "rate_limit"
    assert headers["x-litellm-attempted-retries"] == 1


@pytest.mark.parametrize("stream", [False, True])
def test_an_answer_of_litellms_cache_costs_nothing(
    stream: bool, bench: Any, providers: ProviderServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The record counts what a provider was asked for; the answer keeps the first one's usage."""
    monkeypatch.setattr(litellm, "cache", litellm.Cache(type="local"))  # type: ignore[arg-type] # a text will do
    router, listener = bench.managed(cache_responses=True)

    def ask() -> Any:
        answer = router.completion(model="deriver", messages=MESSAGES, stream=stream)
        return [*answer] if stream else answer

    ask()
    answer = ask()

    assert providers.order == ["primary"]
    assert [(one.usage or {})["total_tokens"] for one in listener.records] == [19, 0]
    assert stream or answer.usage.total_tokens == 19


def test_nothing_internal_reaches_a_provider(
    bench: Any, providers: ProviderServer, ask: Any
) -> None:
    """(6) Neither our keys nor LiteLLM's own travel in a body; each target has its own key."""
    providers["primary"].fail(401)
    router, _ = bench.managed()

    ask(router, "completion", model="deriver", messages=MESSAGES, metadata={"secret": "mine"})

    for name in ("primary", "backup"):
        (seen,) = providers[name].requests
        assert set(seen.body) == {"messages", "model"}
        assert seen.body["model"] == f"{name}-model"
        assert seen.headers["authorization"] == f"Bearer key-of-{name}"
        assert not [key for key in seen.headers if "honcho" in key.lower()]


@pytest.mark.parametrize(
    ("place", "seconds"),
    [
        ("none", 180),
        ("request", 2),
        ("deployment", 3),
        ("tier", 240),
        ("router", 4),
        ("process", 300),
    ],
)
def test_a_timeout_of_litellms_is_kept(
    place: str, seconds: float, bench: Any, run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever set a timeout for LiteLLM meant it, wherever it stands."""
    models = bench.chain("primary", "backup")
    for one in models:
        if place == "tier":
            one["litellm_params"]["timeout_by_service_tier"] = {"flex": seconds}
        if place == "deployment":
            one["litellm_params"]["timeout"] = seconds
    if place == "process":
        monkeypatch.setattr(litellm, "request_timeout", seconds)
    router, _ = bench.managed(models=models, **({"timeout": seconds} if place == "router" else {}))
    told = {"timeout": seconds} if place == "request" else {}
    asked: list[float] = []

    async def noted(**request: Any) -> Any:
        asked.append(request["timeout"])
        raise ConnectionError

    monkeypatch.setattr(litellm, "acompletion", noted)
    with pytest.raises(ConnectionError):
        run(router.acompletion(model="deriver", messages=MESSAGES, service_tier="flex", **told))
    assert asked == [seconds, seconds]


@pytest.mark.parametrize(
    ("kind", "below", "meant"),
    [
        ("RateLimitError", KeyError("choices"), "rate_limit"),
        ("RateLimitError", TypeError("no str"), "rate_limit"),
        ("InternalServerError", TypeError("no str"), "local"),
    ],
)
def test_trouble_while_an_error_is_read_is_not_the_error(
    kind: str, below: Exception, meant: str
) -> None:
    """A bug below a rate limit changes nothing; below LiteLLM's catch-all it is what happened."""
    error = getattr(litellm, kind)("own words", llm_provider="openai", model="m")
    error.__cause__ = below
    assert meaning_of(error).kind == meant


def test_anthropics_529_is_an_overload(
    bench: Any, providers: ProviderServer, ask: Any, text: Any
) -> None:
    """LiteLLM makes 500 of it; the status below counts."""
    models = bench.chain("primary", "backup")
    models[0]["litellm_params"]["model"] = "anthropic/primary-model"
    body = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
    providers["primary"].fail(529, body=body, headers={"retry-after": "4"})
    router, listener = bench.managed(models=models)
    answer = ask(router, "completion", model="deriver", messages=MESSAGES)
    assert text(answer) == "hello from backup"
    (failed, _) = listener.record.attempts
    assert (failed.kind, failed.status, failed.retry_after) == ("overloaded", 529, 4)


def test_what_litellms_own_client_was_told_counts() -> None:
    """The transport's error below has the status; the body of a stream only LiteLLM's has read."""
    request = httpx.Request("POST", "http://127.0.0.1/v1/messages")
    response = httpx.Response(400, request=request, stream=httpx.ByteStream(b"never read"))
    kind = type("AnthropicError", (Exception,), {"status_code": 400})
    kind.__module__ = "litellm.llms.anthropic.common_utils"
    told = {"type": "invalid_request_error", "message": "Your credit balance is too low"}
    handler = kind(json.dumps({"type": "error", "error": told}))
    handler.__cause__ = httpx.HTTPStatusError("own words", request=request, response=response)
    error = litellm.BadRequestError("own words", llm_provider="anthropic", model="m")
    error.__cause__ = handler
    assert meaning_of(error).kind == "quota"


def test_a_retry_after_that_only_litellm_kept_counts() -> None:
    """Some of its handlers pass on a status and keep the headers to themselves."""
    error = litellm.RateLimitError("own words", llm_provider="bedrock", model="m")
    error.litellm_response_headers = {"retry-after": "4"}  # type: ignore[attr-defined]
    kind = type("BedrockError", (Exception,), {"status_code": 429})
    kind.__module__ = "litellm.llms.bedrock.common_utils"
    error.__cause__ = kind("own words")
    failure = meaning_of(error)
    assert (failure.kind, failure.retry_after) == ("rate_limit", 4)
