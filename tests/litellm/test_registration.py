"""Registration is safe: what cannot work is refused or said, and the strategy stays."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING, Any

import litellm
import pytest
from litellm import Router
from litellm.integrations.custom_logger import CustomLogger
from litellm.types.router import CustomRoutingStrategyBase

from honcho_fallback import FallbackConfig, FallbackConfigError
from honcho_fallback_litellm import FallbackRoutingStrategy
from honcho_fallback_litellm._registration import warn_about_gates

if TYPE_CHECKING:
    from tests.helpers.provider import ProviderServer

MESSAGES = [{"role": "user", "content": "hello"}]


def test_a_router_without_ranks_is_refused(bench: Any) -> None:
    """A strategy that would never do anything is a mistake in the model list."""
    router = bench.router([bench.deployment("one", None), bench.deployment("two", None)])
    with pytest.raises(FallbackConfigError, match="no deployment of this Router has one"):
        FallbackRoutingStrategy().register(router)


def test_two_of_one_rank_are_refused(bench: Any) -> None:
    """Who comes first must be clear."""
    router = bench.router([bench.deployment("one", 0), bench.deployment("two", 0)])
    with pytest.raises(FallbackConfigError, match="one and two in group 'deriver' both have 0"):
        FallbackRoutingStrategy().register(router)


def test_a_group_that_is_half_ranked_is_refused(bench: Any) -> None:
    """The deployment without a rank would never be asked."""
    router = bench.router([bench.deployment("one", 0), bench.deployment("two", None)])
    with pytest.raises(FallbackConfigError, match="two in group 'deriver' has none"):
        FallbackRoutingStrategy().register(router)


@pytest.mark.parametrize("rank", [-1, True, "0", 1.5])
def test_a_rank_is_a_number(rank: Any, bench: Any) -> None:
    """YAML gives strings and floats easily; the message names the deployment."""
    router = bench.router([bench.deployment("one", 0), bench.deployment("two", rank)])
    with pytest.raises(FallbackConfigError, match="two has"):
        FallbackRoutingStrategy().register(router)


@pytest.mark.parametrize("place", [{"order": 1}, {"info": {"order": 1}}])
def test_order_beside_ranks_is_refused(place: Any, bench: Any) -> None:
    """LiteLLM would hide all but the lowest order from the strategy, wherever it stands."""
    models = [bench.deployment("one", 0, **place), bench.deployment("two", 1)]
    with pytest.raises(FallbackConfigError, match="remove order"):
        FallbackRoutingStrategy().register(bench.router(models))


def test_a_retry_policy_is_warned_of(bench: Any, caplog: pytest.LogCaptureFixture) -> None:
    """It has no say in ranked groups, and somebody may think that it has."""
    bench.managed(retry_policy=litellm.RetryPolicy(DefaultRetries=1))
    assert "retry_policy has no say in the ranked groups (deriver)" in caplog.text


def test_a_retry_policy_of_the_group_is_warned_of(
    bench: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """The same, and one of another group is nobody's business."""
    bench.managed(model_group_retry_policy={"others": litellm.RetryPolicy(DefaultRetries=1)})
    assert "retry_policy has no say" not in caplog.text
    bench.managed(model_group_retry_policy={"deriver": litellm.RetryPolicy(DefaultRetries=1)})
    assert "retry_policy has no say in the ranked groups (deriver)" in caplog.text


def test_methods_that_litellm_has_no_more_are_named(caplog: pytest.LogCaptureFixture) -> None:
    """Loudly, unless calls do without them."""
    warn_about_gates(["_reset_custom_routing_strategy"])
    assert not caplog.text
    warn_about_gates(["should_retry_this_error", "_reset_custom_routing_strategy"])
    assert "has no should_retry_this_error: switching works by class of error" in caplog.text


def test_max_retries_is_warned_of(bench: Any, caplog: pytest.LogCaptureFixture) -> None:
    """It has no effect; switch_after is what asks one target again."""
    bench.managed(models=bench.chain("primary", "backup", max_retries=4))
    assert "max_retries of primary in group deriver has no effect" in caplog.text


def test_max_retries_has_no_effect(
    bench: Any, providers: ProviderServer, ask: Any, text: Any
) -> None:
    """(1) One request at the dead primary, whatever its deployment says."""
    providers["primary"].fail(500)
    router, _ = bench.managed(models=bench.chain("primary", "backup", max_retries=4))
    ask(router, "completion", model="deriver", messages=MESSAGES)
    assert providers.order == ["primary", "backup"]


@pytest.mark.parametrize(
    "option",
    [
        {"on_exhausted": "group"},
        {"reset": "turn"},
        {"connect_timeout": 1.0},
        {"switch_wait": 1.0},
    ],
)
def test_options_that_cannot_work_are_refused(option: Any) -> None:
    """What LiteLLM leaves no room for is named, with what to do instead."""
    with pytest.raises(FallbackConfigError, match=next(iter(option))):
        FallbackRoutingStrategy(FallbackConfig(**option))


def test_options_at_what_is_possible_are_accepted() -> None:
    """Saying what happens anyway is no mistake."""
    FallbackRoutingStrategy(FallbackConfig(on_exhausted="last", reset="iteration"))


def test_one_strategy_serves_one_router(bench: Any) -> None:
    """A second Router needs a second strategy; the first one again is fine."""
    router = bench.router()
    strategy = FallbackRoutingStrategy().register(router)
    strategy.register(router)
    with pytest.raises(FallbackConfigError, match="serves another Router"):
        strategy.register(bench.router())


def test_the_strategy_survives_update_settings(
    bench: Any, providers: ProviderServer, ask: Any, text: Any
) -> None:
    """(11) LiteLLM removes a custom strategy on such a change, without a word; ours stays."""
    providers["primary"].fail(500)
    router, listener = bench.managed()

    router.update_settings(routing_strategy="least-busy", num_retries=0)

    answer = ask(router, "completion", model="deriver", messages=MESSAGES)
    assert text(answer) == "hello from backup"
    assert providers.order == ["primary", "backup"]
    assert listener.record.is_fallback


def test_a_strategy_that_was_replaced_says_so(
    bench: Any, providers: ProviderServer, ask: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """(11) Somebody else's strategy wins, loudly, once."""
    router, listener = bench.managed()

    class Theirs(CustomRoutingStrategyBase):
        def get_available_deployment(self, *_: Any, **__: Any) -> Any:
            return router.model_list[0]

        async def async_get_available_deployment(self, *_: Any, **__: Any) -> Any:
            return router.model_list[0]

    router.set_custom_routing_strategy(Theirs())
    for _ in range(2):
        ask(router, "completion", model="deriver", messages=MESSAGES)

    assert caplog.text.count("was replaced by another routing strategy") == 1
    assert not listener.starts


def test_the_strategy_does_not_keep_its_router(bench: Any) -> None:
    """The Router is held weakly, and so is it by its own gates."""
    router = bench.router()
    strategy = FallbackRoutingStrategy().register(router)
    core = vars(router).get("_core", router)
    # LiteLLM's global callback lists hold Routers, too; only ours are counted here.
    referrers = [id(one) for one in gc.get_referrers(core) if isinstance(one, dict)]
    assert id(vars(strategy)) not in referrers
    assert id(vars(strategy._patches)) not in referrers


def test_a_router_that_is_gone_is_no_runtime_error() -> None:
    """LiteLLM runs a whole call again on a RuntimeError from the sync method."""
    strategy = FallbackRoutingStrategy()
    with pytest.raises(ReferenceError, match="gone"):
        strategy.get_available_deployment("deriver", request_kwargs={})


def test_a_deployment_that_comes_later_joins_the_chain(
    bench: Any, providers: ProviderServer, ask: Any, text: Any
) -> None:
    """The chain is what the Router holds, call by call."""
    router, _ = bench.managed(models=bench.chain("primary"))
    late = bench.deployment("late", 1)
    router.add_deployment(litellm.Deployment(**late))
    providers["primary"].fail(500)
    assert text(ask(router, "completion", model="deriver", messages=MESSAGES)) == "hello from late"


def test_ranks_that_change_change_the_order(
    bench: Any, providers: ProviderServer, ask: Any, text: Any
) -> None:
    """A new model list with the same deployments is a new chain."""
    router, _ = bench.managed(models=bench.chain("one", "two"))
    assert text(ask(router, "completion", model="deriver", messages=MESSAGES)) == "hello from one"
    router.set_model_list([bench.deployment("one", 1), bench.deployment("two", 0)])
    assert text(ask(router, "completion", model="deriver", messages=MESSAGES)) == "hello from two"
    assert providers.order == ["one", "two"]


def test_litellms_own_langfuse_beside_observers_is_warned_of(
    bench: Any, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two tracers on one call make traces out of failed attempts."""
    monkeypatch.setattr(litellm, "success_callback", ["langfuse_otel"])
    router, _ = bench.managed()
    assert "langfuse_otel is on beside the strategy's observers" in caplog.text
    caplog.clear()
    FallbackRoutingStrategy().register(bench.router())
    assert "langfuse_otel" not in caplog.text
    assert isinstance(router, Router)


@pytest.mark.parametrize("name", ["success_callback", "failure_callback", "callbacks"])
def test_a_langfuse_callback_set_after_the_router_is_warned_of_once(
    name: str, bench: Any, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who sets LiteLLM's callbacks last hears of it at the first call, and not again."""
    router, _ = bench.managed()
    assert "is on beside" not in caplog.text
    langfuse = type("LangfuseLogger", (CustomLogger,), {})
    langfuse.__module__ = "litellm.integrations.langfuse.langfuse"
    monkeypatch.setattr(litellm, name, [langfuse()])
    for _ in range(2):
        router.completion(model="deriver", messages=MESSAGES)
    assert caplog.text.count("LangfuseLogger is on beside the strategy's observers") == 1


def test_targets_are_described_without_secrets(
    bench: Any, providers: ProviderServer, ask: Any
) -> None:
    """Model, provider, the deployment's id or model, its window; no key, no address."""
    models = [
        bench.deployment("primary", 0, model="openai/gpt-4o"),
        bench.deployment("", 1, model="anthropic/claude-x"),
        bench.deployment("", 2, model="anthropic/claude-x", api_key="other"),
    ]
    for one in models[1:]:
        del one["model_info"]["id"]
    router, listener = bench.managed(models=models)
    ask(router, "completion", model="deriver", messages=MESSAGES)
    (start,) = listener.starts
    assert start.agent == "deriver"
    assert [(t.name, t.model, t.provider) for t in start.chain] == [
        ("primary", "gpt-4o", "openai"),
        ("anthropic/claude-x", "claude-x", "anthropic"),
        ("anthropic/claude-x#2", "claude-x", "anthropic"),
    ]
    assert start.chain[0].context_window == 128000
    told = repr(start) + str(listener.record.to_dict())
    assert "key-of" not in told
    assert providers.url not in told
