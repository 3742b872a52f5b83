"""One failed request, no wait, the next target: what a Router does under the strategy."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx
import litellm
import pytest

from honcho_fallback import AnswerRejected, Failure, FailureKind, FallbackConfig
from honcho_fallback.testing import StatusError
from honcho_fallback_litellm._failures import classifier_for
from tests.helpers import wire
from tests.helpers.errors import raised_from, stand_in
from tests.helpers.litellm_runs import ASKED, ask_in, run_async
from tests.helpers.provider import Reply


def meaning_of(error: BaseException, **options: Any) -> Failure:
    """Say what an error out of LiteLLM means."""
    return classifier_for(FallbackConfig(**options))(error)


ANSWER = wire.chat_answer("never read")


@pytest.mark.parametrize(
    "body",
    [
        {"error": "the model exploded"},
        {"error": {"message": "it exploded"}},
        ANSWER | {"choices": [{**ANSWER["choices"][0], "message": {"content": 42}}]},
        ANSWER | {"choices": [{**ANSWER["choices"][0], "message": None}]},
        ANSWER | {"usage": "n/a"},
        # LiteLLM's cooldown compares a status that is a text with a number: a TypeError.
        *(
            {"error": {"message": message, "type": "overloaded_error", "code": code}}
            for message in ("the engine is overloaded", "")
            for code in ("503", 503, None)
        ),
    ],
)
@pytest.mark.parametrize("model", ["openai/m", "deepseek/m"])
def test_what_litellm_cannot_read_is_no_answer(
    model: str, body: Any, bench: Any, say: Any
) -> None:
    """LiteLLM's status for an error under HTTP 200 without one, 422, is not the provider's.

    What it trips over in an answer, or in an error without a word, is no bug of the program, and
    no caller loses a call for LiteLLM's. A provider's own 422 is its own.
    """
    bench["primary"].reply(Reply(body=body), Reply(status=422))
    models = [bench.deployment("primary", 0, model=model), bench.deployment("backup", 1)]
    router, listener = bench.managed(models=models)
    assert say(router) == "hello from backup"
    assert bench.order == ["primary", "backup"]
    assert listener.kinds[0] in {"overloaded", "server_error", "malformed_response"}
    with pytest.raises(litellm.BadRequestError):
        say(router)
    assert bench.order == ["primary", "backup", "primary"]


def test_what_litellm_could_not_read_is_known_by_its_422() -> None:
    """Its handlers raise that; a 422 of a provider has the transport's error below."""
    kind = stand_in("CodestralError", "litellm.llms.codestral.completion.handler")
    handler = raised_from(kind("<html>", status_code=422), json.JSONDecodeError("no", "", 0))
    error = litellm.BadRequestError("own words", llm_provider="codestral", model="m")
    vars(error)["status_code"] = 422
    assert meaning_of(raised_from(error, handler)).kind == "malformed_response"


def test_an_answer_that_refuses_is_no_outage(bench: Any, ask: Any) -> None:
    """The Proxy hands on the status of an error: clients would ask again after a 500."""
    refusal = {**ANSWER["choices"][0], "message": {"role": "assistant", "refusal": "no"}}
    bench["primary"].reply(Reply(body=ANSWER | {"choices": [refusal]}))
    router, listener = bench.managed()
    with pytest.raises(AnswerRejected) as caught:
        ask(router)
    assert vars(caught.value)["status_code"] == 400
    assert (bench.order, listener.kinds) == (["primary"], ["refusal"])


def test_a_retry_policy_has_no_say(bench: Any, ask: Any, say: Any) -> None:
    """Nor has `max_retries`: LiteLLM's retry_policy would skip the classifier.

    (2) A wrong request surfaces in LiteLLM's own class, annotated, and carries the record.
    """
    policy = litellm.RetryPolicy(
        DefaultRetries=4, InternalServerErrorRetries=0, BadRequestErrorRetries=4
    )
    models = bench.chain("primary", "backup", max_retries=4)
    policies = {"retry_policy": policy, "model_group_retry_policy": {"deriver": policy}}
    router, listener = bench.managed(models=models, **policies)
    bench["primary"].fail(500, times=1)
    assert say(router) == "hello from backup"
    bench["primary"].fail(400, times=1)
    with pytest.raises(litellm.BadRequestError) as caught:
        ask(router)
    assert bench.order == ["primary", "backup", "primary"]
    assert vars(caught.value)["record"] == listener.records[-1]
    assert any("primary invalid_request" in note for note in caught.value.__notes__)


def test_the_answer_carries_the_record(bench: Any, ask: Any) -> None:
    """The caller finds the record with the answer, as plain values, and headers for the Proxy."""
    bench["primary"].fail(429, headers={"retry-after": "3"})
    router, listener = bench.managed()
    answer = ask(router)
    told = answer._hidden_params["fallback"]
    assert told == listener.record.to_dict()
    assert told["usage"] == wire.COUNTS
    assert told["attempts"][0]["retry_after"] == 3
    headers = answer._hidden_params["additional_headers"]
    assert headers["x-honcho-fallback-answered-by"] == "backup"
    assert headers["x-honcho-fallback-attempts"] == "2"
    assert headers["x-honcho-fallback-reason"] == "rate_limit"
    assert headers["x-litellm-attempted-retries"] == 1


@pytest.mark.parametrize("way", ["invoke", "ainvoke", "stream", "astream"])
def test_langchains_wrapper_of_a_router_switches(way: str, bench: Any) -> None:
    """Through ChatLiteLLMRouter, in its four ways: one request at the primary."""
    langchain = pytest.importorskip("langchain_litellm")
    bench["primary"].fail(500)
    router, listener = bench.managed()
    model = langchain.ChatLiteLLMRouter(router=router, model_name="deriver", model="deriver")

    async def inside() -> list[Any]:
        if way == "ainvoke":
            return [await model.ainvoke("hello")]
        return [chunk async for chunk in model.astream("hello")]

    if way.startswith("a"):
        said = run_async(inside())
    else:
        said = [model.invoke("hello")] if way == "invoke" else model.stream("hello")
    assert "".join(one.text for one in said) == "hello from backup"
    assert bench.order == ["primary", "backup"]
    assert listener.record.answered_by == "backup"


@pytest.mark.parametrize("stream", [False, True])
def test_an_answer_of_litellms_cache_costs_nothing(
    stream: bool, bench: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The record counts what a provider was asked for; the answer keeps the first one's usage."""
    monkeypatch.setattr(litellm, "cache", litellm.Cache(type="local"))  # type: ignore[arg-type] # a text will do
    router, listener = bench.managed(cache_responses=True)
    ask_in("sync", router, stream=stream)
    answer = ask_in("sync", router, stream=stream)
    assert bench.order == ["primary"]
    assert [(one.usage or {})["total_tokens"] for one in listener.records] == [19, 0]
    assert stream or answer.usage.total_tokens == 19


def test_nothing_internal_reaches_a_provider(bench: Any, ask: Any) -> None:
    """(6) Neither our keys nor LiteLLM's own travel in a body; each target has its own key."""
    bench["primary"].fail(401)
    router, _ = bench.managed()
    ask(router, metadata={"secret": "mine"})
    for name in ("primary", "backup"):
        (seen,) = bench[name].requests
        assert set(seen.body) == {"messages", "model"}
        assert seen.body["model"] == f"{name}-model"
        assert seen.headers["authorization"] == f"Bearer key-of-{name}"
        assert not [key for key in seen.headers if "honcho" in key.lower()]


PATIENT = httpx.Timeout(20.0, connect=5.0)


@pytest.mark.parametrize(
    ("place", "theirs", "options", "handed", "bound"),
    [
        ("nowhere", None, {}, 180, 181),
        ("request", 2, {}, 2, 3),
        ("deployment", 3, {}, 3, 4),
        ("tier", 240, {}, 240, 241),
        ("router", 4, {}, 4, 5),
        ("process", 300, {}, 300, 301),
        ("deployment", 60.0, {"timeout": 2.0}, 60, 61),
        ("deployment", 2.0, {"timeout": None}, 2, 3),
        ("deployment", PATIENT, {"timeout": 9.0}, PATIENT, 21),
        ("nowhere", None, {"timeout": None}, None, None),
        # Of a stream a pause between two chunks is no time to the first content: in a task LiteLLM
        # is not handed that, and would cut a stream that pauses.
        ("stream", None, {"first_token_timeout": 5.0, "deadline": 9.0}, 180, 5),
        ("stream", 2.0, {"timeout": 60.0}, 2, 61),
        ("stream", 2.0, {"timeout": None}, 2, None),
    ],
)
def test_a_timeout_of_litellms_is_kept(
    place: str,
    theirs: Any,
    options: Any,
    handed: Any,
    bound: float | None,
    bench: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whoever set a timeout for LiteLLM meant it, wherever it stands.

    LiteLLM counts who runs into its own, so the policy's stands a second behind the longest.
    """
    models, stream = bench.chain("primary", "backup"), place == "stream"
    for one in models:
        if place == "tier":
            one["litellm_params"]["timeout_by_service_tier"] = {"flex": theirs}
        if place in {"deployment", "stream"}:
            one["litellm_params"]["timeout"] = theirs
    if place == "process":
        monkeypatch.setattr(litellm, "request_timeout", theirs)
    of_router = {"timeout": theirs} if place == "router" else {}
    router, _ = bench.managed(FallbackConfig(**options), models=models, **of_router)
    told: Any = {"timeout": theirs} if place == "request" else {}
    asked: list[Any] = []
    bounds: list[Any] = []
    real = asyncio.timeout

    async def noted(**request: Any) -> Any:
        asked.append(request.get("stream_timeout") or request["timeout"])
        raise ConnectionError

    def limited(seconds: float | None) -> asyncio.Timeout:
        bounds.append(seconds)
        return real(seconds)

    monkeypatch.setattr(litellm, "acompletion", noted)
    monkeypatch.setattr(asyncio, "timeout", limited)
    with pytest.raises(ConnectionError):
        ask_in("async", router, service_tier="flex", stream=stream, **told)
    assert bounds[0] == bound
    assert handed is None or asked == [handed] * 2


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
    assert meaning_of(raised_from(error, below)).kind == meant


def test_what_litellms_own_client_was_told_counts() -> None:
    """The transport's error below has the status; the body of a stream only LiteLLM's has read."""
    request = httpx.Request("POST", "http://127.0.0.1/v1/messages")
    response = httpx.Response(400, request=request, stream=httpx.ByteStream(b"never read"))
    kind = stand_in("AnthropicError", "litellm.llms.anthropic.common_utils")
    told = {"type": "invalid_request_error", "message": "Your credit balance is too low"}
    handler = kind(json.dumps({"type": "error", "error": told}), status_code=400)
    raised_from(handler, httpx.HTTPStatusError("own words", request=request, response=response))
    error = litellm.BadRequestError("own words", llm_provider="anthropic", model="m")
    assert meaning_of(raised_from(error, handler)).kind == "quota"


def test_a_retry_after_that_only_litellm_kept_counts() -> None:
    """Some of its handlers pass on a status and keep the headers to themselves."""
    error = litellm.RateLimitError("own words", llm_provider="bedrock", model="m")
    error.litellm_response_headers = {"retry-after": "4"}  # type: ignore[attr-defined]
    kind = stand_in("BedrockError", "litellm.llms.bedrock.common_utils")
    failure = meaning_of(raised_from(error, kind("own words", status_code=429)))
    assert (failure.kind, failure.retry_after) == ("rate_limit", 4)


# The user's own rules.

BODY = {"error": {"message": "team budget is used up", "code": "TEAM_BUDGET", "type": "budget"}}


def own(failure: Failure, _: BaseException) -> Failure:
    return failure if failure.by_rule else Failure.of(FailureKind.INVALID_REQUEST)


@pytest.mark.parametrize(
    "condition",
    [
        {"code": "TEAM_BUDGET", "status": 400},
        {"error": "litellm.BadRequestError", "status": 400},
        {"error": "openai.BadRequestError", "code": "TEAM_BUDGET"},
    ],
)
@pytest.mark.parametrize("refine", [None, own])
def test_a_rule_makes_a_bad_request_a_switch(
    condition: Any, refine: Any, bench: Any, say: Any
) -> None:
    """Users read LiteLLM's class in their logs, and the body is below it: both are looked at."""
    bench["primary"].fail(400, body=BODY)
    rules = {"kind": "quota", "reason": "ours", **condition}
    router, listener = bench.managed(FallbackConfig(rules=rules, refine=refine))
    assert say(router) == "hello from backup"
    first = listener.record.attempts[0]
    assert (first.kind, first.note) == ("quota", "rule 1 given in Python: ours")


def test_a_rule_is_for_what_the_provider_sent() -> None:
    """LiteLLM makes a 500 of Anthropic's 529; a kind of LiteLLM's own troubles may be a rule's."""
    for kind, status in (("quota", 529), ("local", 503)):
        error = litellm.InternalServerError("overloaded", "anthropic", "claude")
        raised = raised_from(error, StatusError(status))
        failure = meaning_of(raised, rules={"kind": kind, "status": status})
        assert (failure.kind, failure.by_rule) == (kind, True)


@pytest.mark.parametrize("is_broken", [False, True])
def test_refine_corrects_what_lies_below_litellms_error(
    is_broken: bool, bench: Any, say: Any
) -> None:
    """A kind brings its answers with it, and a hook that breaks is passed over."""

    def refine(failure: Failure, _: BaseException) -> Failure:
        if is_broken:
            raise ZeroDivisionError
        return failure._replace(kind=FailureKind.QUOTA)

    # LiteLLM trips over a code that is a text, and raises a TypeError.
    error = {"message": "busy", "type": "overloaded_error", "code": "503"}
    bench["primary"].reply(Reply(body={"error": error}))
    router, listener = bench.managed(FallbackConfig(refine=refine))
    assert say(router) == "hello from backup"
    switch = listener.switches[0].failure
    known = ("overloaded", True) if is_broken else ("quota", False)
    assert (switch.kind, switch.transient) == known


def test_what_a_request_says_of_itself_is_the_callers(bench: Any) -> None:
    """OpenAI's metadata and LiteLLM's own; of what the Proxy adds, its copy of the client's."""
    router, listener = bench.managed()
    both: Any = {"metadata": {"workspace": "acme"}, "litellm_metadata": {"run_id": "r-17"}}
    ask_in("async", router, "responses", input="hello", **both)
    assert listener.records[0].metadata == {"workspace": "acme", "run_id": "r-17"}
    proxys: Any = {"user_api_key": "hash", "mine": 1, "requester_metadata": {"run_id": "r-18"}}
    router.completion(**ASKED, metadata=proxys)
    assert listener.records[1].metadata == {"run_id": "r-18"}
