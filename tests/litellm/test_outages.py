"""What looks beyond one call: who cools down, how much time is left, what may be repeated."""

from __future__ import annotations

import logging
from functools import partial
from typing import Any

import litellm
import openai
import pytest
from litellm.exceptions import GuardrailRaisedException

from honcho_fallback import (
    Cooldown,
    FallbackConfig,
    FallbackConfigError,
)
from honcho_fallback_litellm import FallbackProxyHandler
from tests.helpers.later import AtOnce, Later
from tests.helpers.litellm_runs import ASKED, ask_in
from tests.helpers.provider import Reply
from tests.helpers.wire import chat_word as word


@pytest.fixture
def cooldown() -> Later:
    """Return a cooldown that begins at once, whose clock a test may put forward."""
    return Later(after=1, base=60.0)


@pytest.fixture
def config(cooldown: Later) -> FallbackConfig:
    """Return the options of one that cools down."""
    return FallbackConfig(cooldown=cooldown)


def test_litellms_cooldown_stays_where_it_is_asked_for(
    config: FallbackConfig, cooldown: Later, bench: Any, ask: Any
) -> None:
    """With both, a target that LiteLLM cools down is not probed, and its permit is free again."""
    bench["primary"].fail(429, times=1)
    router, listener = bench.managed(config, respect_cooldown=True, cooldown_time=60)
    ask(router)
    cooldown.ahead = 61.0
    for _ in range(2):
        ask(router)
    assert bench.order == ["primary", "backup", "backup", "backup"]
    assert listener.records[2].untried == (("primary", "LiteLLM had taken it out of rotation"),)


def test_a_pause_is_obeyed_and_a_memory_is_not(
    config: FallbackConfig, cooldown: Later, bench: Any, say: Any
) -> None:
    """A primary that is paused when it is due is probed as soon as it is back.

    Where all others are paused it is asked in its cooldown: a memory forbids nobody.
    """
    bench["primary"].fail(500, times=1)
    router, listener = bench.managed(config)
    primary, backup = (one["model_info"] for one in router.model_list)
    say(router)
    cooldown.ahead = 61.0
    primary["blocked"] = True
    assert say(router) == "hello from backup"
    primary["blocked"] = False
    assert say(router) == "hello from primary"
    assert bench.order == ["primary", "backup", "backup", "primary"]
    bench["primary"].fail(500, times=1)
    say(router)
    backup["blocked"] = True
    assert say(router) == "hello from primary"
    assert listener.records[-1].attempts[0].note == "in its cooldown, as nobody else was left"


def test_one_model_with_other_parameters_is_a_fallback(bench: Any, say: Any) -> None:
    """With less effort it may answer where it did not; what LiteLLM itself takes tells nothing."""
    bench["primary"].fail(503, times=1)
    models = [
        bench.deployment(
            "primary", rank, reasoning_effort=effort, rpm=rank, info={"id": str(rank)}
        )
        for rank, effort in enumerate(("high", "high", "low"))
    ]
    router, _ = bench.managed(models=models)
    assert say(router) == "hello from primary"
    efforts = [request.body["reasoning_effort"] for request in bench["primary"].requests]
    assert efforts == ["high", "low"]


def test_a_new_key_is_a_new_target(config: FallbackConfig, bench: Any, ask: Any, say: Any) -> None:
    """`upsert_deployment` with another key makes another target of it, under the same id.

    A request that brought a dead key along does not send everybody to the fallback.
    """
    bench["primary"].fail(401, times=1)
    router, _ = bench.managed(config)
    ask(router, api_key="mine, and dead")
    assert say(router) == "hello from primary"
    bench["primary"].fail(401, times=1)
    ask(router)
    router.upsert_deployment(litellm.Deployment(**bench.deployment("primary", 0)))
    assert say(router) == "hello from backup"
    fresh = bench.deployment("primary", 0, api_key="another")
    router.upsert_deployment(litellm.Deployment(**fresh))
    assert say(router) == "hello from primary"
    assert bench["primary"].requests[-1].headers["authorization"] == "Bearer another"


def test_who_a_deployment_is(bench: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The provider, the model, the address and the key tell; the unknown is this process's own.

    A key of the environment is LiteLLM's to read.
    """
    monkeypatch.setenv("OPENAI_API_KEY", "from the environment")

    def identities(**params: Any) -> list[str]:
        router, heard = bench.managed(models=bench.chain("primary", "backup", **params))
        router.completion(**ASKED)
        return [target.identity for target in heard.starts[0].chain]

    mine, here = identities(), identities(api_key=None)
    assert (mine, here) == (identities(), identities(api_key=None))
    assert len({*mine, *identities(api_key="another")}) == 4
    assert len({*mine, *identities(organization="another")}) == 4
    address = bench.providers.url + "/primary"
    one, same = (identities(api_key="k", api_base=url) for url in (address, f"{address}/"))
    assert one[0] == same[0]
    assert not [one for one in mine if one.startswith("here:") or "key-of" in one]
    assert len({*here}) == 2
    assert all(one.startswith("here:") for one in here)


@pytest.mark.parametrize(
    ("limit", "theirs"),
    [
        ("deadline", {"timeout": 60.0}),
        ("deadline", {"request_timeout": 60.0}),
        ("first_token_timeout", {"timeout": 60.0, "stream": True}),
        ("first_token_timeout", {"stream_timeout": 60.0, "stream": True}),
    ],
)
def test_a_limit_reaches_litellms_request(limit: str, theirs: Any, bench: Any, say: Any) -> None:
    """The primary gets what is not kept for the backup, whatever longer timeout LiteLLM has."""
    bench["primary"].reply(Reply(hang=True))
    limits: Any = {limit: 1.4}
    router, listener = bench.managed(FallbackConfig(**limits))
    assert say(router, **theirs) == "hello from backup"
    assert listener.kinds == ["timeout", None]


@pytest.mark.parametrize("ask", ["async"], indirect=True)
@pytest.mark.parametrize(
    ("limit", "theirs", "drip"),
    [
        ({"timeout": 0.5}, None, ""),
        ({"timeout": 9.0}, 0.5, ""),
        ({"timeout": 0.5}, None, ": keep-alive"),
        # Of a stream a deployment's timeout is for its pauses, the config's for its first content.
        ({"timeout": 0.5}, 0.5, ": keep-alive"),
        ({"first_token_timeout": 1}, None, ": ping"),
        ({"first_token_timeout": 1}, None, word("")),
    ],
)
def test_who_keeps_the_connection_warm_and_says_nothing_is_left(
    limit: Any, theirs: Any, drip: str, bench: Any, say: Any
) -> None:
    """LiteLLM's timeout, one between two reads, never strikes there: the policy's own does."""
    begun = [word("")] if "first_token_timeout" in limit else []
    bench["primary"].reply(Reply(events=begun, hang=True, drip=drip))
    models = bench.chain("primary", "backup", timeout=theirs)
    router, listener = bench.managed(FallbackConfig(**limit), models=models)
    assert say(router, stream=bool(drip)) == "hello from backup"
    assert bench.order == ["primary", "backup"]
    assert listener.kinds == ["timeout", None]


def stay(name: str, said: object, **more: Any) -> dict[str, Any]:
    return {name: {"must_not_degrade": said}, **more}


@pytest.mark.parametrize(
    ("config", "way", "method", "asked"),
    [
        (FallbackConfig(replay="safe"), "sync", "completion", {}),
        (FallbackConfig(replay="safe"), "async", "completion", {}),
        (FallbackConfig(must_not_degrade=True), "async", "completion", {}),
        (FallbackConfig(), "async", "completion", stay("metadata", True)),
        (FallbackConfig(), "sync", "completion", stay("metadata", "true")),
        # Responses have metadata of their own beside LiteLLM's; either may say so.
        (FallbackConfig(), "async", "responses", stay("metadata", True, litellm_metadata={})),
        (FallbackConfig(), "async", "responses", stay("litellm_metadata", "true")),
    ],
)
def test_what_is_for_the_primary_alone_is_never_the_fallbacks(
    config: FallbackConfig, way: str, method: str, asked: Any, bench: Any
) -> None:
    """Not the chain's fallback and not LiteLLM's own, for all calls or as one request says.

    Judges and gates, of which nothing reaches a provider, or the next request; and what may have
    had an effect.
    """
    bench["primary"].fail(500)
    router, listener = bench.with_a_spare(config)
    question: Any = {"input": "hello"} if method == "responses" else {}
    ask = partial(ask_in, way, router, method, **question)
    with pytest.raises(openai.APIError) as caught:
        ask(**asked)
    assert {*bench.order} == {"primary"}
    assert vars(caught.value)["record"] == listener.record
    if config.replay == "safe":
        assert listener.record.limit == "replay"
        return
    assert listener.record.untried == (("backup", "the call must not degrade"),)
    assert "must_not_degrade" not in str([one.body for one in bench["primary"].requests])
    if asked:
        ask()
        assert listener.records[-1].answered_by == "backup"


@pytest.mark.parametrize("must_not_degrade", [True, False])
def test_what_is_paused_is_not_down(
    bench: Any, ask: Any, say: Any, *, must_not_degrade: bool
) -> None:
    """LiteLLM's own "nobody is there" comes out, nobody is asked or takes it for an outage."""
    config = FallbackConfig(must_not_degrade=must_not_degrade, cooldown=Cooldown(after=1))
    router, listener = bench.managed(config)
    paused = router.model_list[:1] if must_not_degrade else router.model_list
    for one in paused:
        one["model_info"]["blocked"] = True
    with pytest.raises(Exception, match=r"[Nn]o .*deployment"):
        ask(router)
    assert not bench.order + listener.records
    for one in paused:
        one["model_info"]["blocked"] = False
    assert say(router) == "hello from primary"
    assert listener.record.attempts[0].note is None


def test_what_a_guardrail_blocks_is_blocked(
    bench: Any, ask: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A guardrail's no is for the request: neither the next target nor another group is asked."""
    router, listener = bench.with_a_spare()

    def blocked(**_: Any) -> Any:
        raise GuardrailRaisedException(guardrail_name="ours", message="not that")

    for name in ("completion", "acompletion"):
        monkeypatch.setattr(litellm, name, blocked)
    with pytest.raises(GuardrailRaisedException):
        ask(router)
    assert not bench.order
    assert listener.record.outcome == "rejected"


def test_a_transport_without_retries_has_no_other_chance(bench: Any, ask: Any) -> None:
    """A request that wants one attempt gets one."""
    bench["primary"].fail(times=1, drop=True)
    recovery = AtOnce(rebuild=lambda _: None)
    router, listener = bench.managed(FallbackConfig(transport_recovery=recovery))
    with pytest.raises(openai.APIError):
        ask(router, num_retries=0)
    assert bench.order == ["primary"]
    assert listener.record.outcome == "exhausted"


@pytest.mark.parametrize("bucket", ["metadata", "litellm_metadata"])
def test_a_request_stays_within_its_labels(bucket: str, bench: Any, ask: Any, say: Any) -> None:
    """`require` in its metadata, of deployments' tags; nothing of it reaches a provider."""
    bench["primary"].fail(500)
    models = [
        bench.deployment("primary", 0, tags=["eu", "fast"]),
        bench.deployment("abroad", 1),
        bench.deployment("near", 2, tags=["eu"]),
    ]
    router, listener = bench.with_a_spare(FallbackConfig(wait=0), models)
    asked: Any = {bucket: {"require": ["eu"]}}
    assert say(router, **asked) == "hello from near"
    assert listener.record.untried == (("abroad", "it lacks the label 'eu'"),)
    assert set(bench["primary"].requests[0].body) == {"messages", "model"}
    bench["near"].fail(500)
    with pytest.raises(litellm.InternalServerError):
        ask(router, **asked)
    for wrong in (["us"], "eu", 3):  # it says which label is missing, or what may be passed
        with pytest.raises(FallbackConfigError, match=r"lacks the label 'us'|pass a set of texts"):
            ask(router, **{bucket: {"require": wrong}})
    assert not {"abroad", "spare"} & {*bench.order}
    assert say(router) == "hello from abroad"


def test_the_resilient_preset(bench: Any, caplog: pytest.LogCaptureFixture) -> None:
    """It has turns, which LiteLLM has not: an INFO says what holds instead."""
    with caplog.at_level(logging.INFO, "honcho_fallback"):
        router, listener = bench.managed(FallbackConfig.resilient())
    assert 'reset="iteration" in place of "turn"' in caplog.text
    assert FallbackProxyHandler(FallbackConfig.resilient())
    router.completion(**ASKED)
    assert listener.record.turn_id is None
