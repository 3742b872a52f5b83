"""Registration is safe: what cannot work is refused or said, and the strategy stays."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import litellm
import pytest

from honcho_fallback import FallbackConfig, FallbackConfigError
from honcho_fallback_litellm import FallbackProxyHandler, FallbackRoutingStrategy
from tests.helpers.litellm_runs import ASKED, ask_in


def errors_in(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return what this package logged as an error."""
    return [
        one.getMessage()
        for one in caplog.records
        if one.name == "honcho_fallback" and one.levelname == "ERROR"
    ]


def spoilt(bench: Any, *ranks: Any, **more: Any) -> list[dict[str, Any]]:
    """Describe a group with a mistake in it."""
    names = ["red", "blue", "green"]
    return [
        bench.deployment(name, rank, group="spoilt", **more)
        for name, rank in zip(names, ranks, strict=False)
    ]


@pytest.mark.parametrize(
    ("ranks", "more", "problem"),
    [
        ((0, 0), {}, "red and blue both have 0"),
        ((0, None), {}, "blue has none, others there do"),
        ((0, "1"), {}, "'1' of blue is no whole number"),
        ((0, 1.0), {}, "1.0 of blue is no whole number"),
        ((0, True), {}, "True of blue is no whole number"),
        ((0, -1), {}, "-1 of blue is no whole number"),
        ((0, [1]), {}, "[1] of blue is no whole number"),
        # LiteLLM would hide all but the lowest order, wherever it stands.
        ((0, 1), {"order": 1}, "red has an order, too"),
        ((0, 1), {"info": {"order": 1}}, "red has an order, too"),
    ],
)
def test_a_mistake_spoils_its_own_group_only(
    ranks: tuple[Any, ...], more: Any, problem: str, bench: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """One line names group, deployment and mistake; its requests are as without us."""
    models = [*bench.chain("primary", "backup"), *spoilt(bench, *ranks, **more)]
    router, listener = bench.managed(models=models)
    (line,) = errors_in(caplog)
    assert line.startswith("group spoilt is no chain, LiteLLM routes it: ")
    assert f"model_info.fallback_rank: {problem}" in line

    ask_in("sync", router, model="spoilt")
    assert not listener.starts
    assert len(errors_in(caplog)) == 1

    bench["primary"].fail(500)
    router.completion(**ASKED)
    assert bench.order[1:] == ["primary", "backup"]


def test_every_mistake_is_named_at_once_where_no_chain_is_left(bench: Any) -> None:
    """Whoever mends one should not meet the next; nothing of the Router has changed.

    A strategy that would never do anything is a mistake in the model list.
    """
    models = [*spoilt(bench, "0", "1"), bench.deployment("a", 7), bench.deployment("b", 7)]
    router = bench.router(models)
    with pytest.raises(FallbackConfigError) as caught:
        FallbackRoutingStrategy().register(router)
    head, *lines = str(caught.value).splitlines()
    assert head == "this Router has no chain"
    assert [line.count("fallback_rank: ") for line in lines] == [2, 1]
    router.completion(**ASKED)
    with pytest.raises(FallbackConfigError, match="fallback_rank: 0"):
        FallbackRoutingStrategy().register(bench.router([bench.deployment("one", None)]))


@pytest.mark.parametrize(
    ("place", "key"),
    [
        ({"info": {"fallback-rank": 0}}, "model_info.fallback-rank"),
        ({"info": {"fallbackRank": 0}}, "model_info.fallbackRank"),
        ({"info": {"rank": 0}}, "model_info.rank"),
        ({"info": {"falback_rank": 0}}, "model_info.falback_rank"),
        ({"info": {"fallback_rnak": 0}}, "model_info.fallback_rnak"),
        # LiteLLM would send it to the provider.
        ({"fallback_rank": 0}, "litellm_params.fallback_rank"),
    ],
)
def test_a_rank_in_the_wrong_place_is_recognized(
    place: Any, key: str, bench: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """Beside a chain it is a warning, without one it is in the error."""
    astray = bench.deployment("astray", None, group="astray", **place)
    message = f"astray in group astray has no fallback_rank; write {key} as model_info."
    bench.managed(models=[*bench.chain("primary", "backup"), astray])
    assert message in caplog.text
    with pytest.raises(FallbackConfigError, match="this Router has no chain") as caught:
        FallbackRoutingStrategy().register(bench.router([astray]))
    assert message in str(caught.value)


def test_one_line_says_which_chains_are_active(
    bench: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """In their order, as LiteLLM spells models; an alias is no group; no key, no address."""
    caplog.set_level("INFO", "honcho_fallback")
    models = [
        bench.deployment("b", 1, group="gpt", model="anthropic/claude"),
        bench.deployment("a", 0, group="gpt", model="gpt-4o", custom_llm_provider="openai"),
        bench.deployment("c", None, group="plain"),
        bench.deployment("d", 0, group="lonely"),
        *spoilt(bench, 0, 0),
    ]
    bench.managed(models=models, model_group_alias={"fast": "gpt", "cheap": "plain"})
    (line,) = [one.getMessage() for one in caplog.records if one.levelname == "INFO"]
    assert line == (
        "active: chain gpt: openai/gpt-4o -> anthropic/claude; "
        "chain lonely: openai/d-model (no fallback); "
        "groups that stay LiteLLM's: 2 (1 for a mistake)"
    )
    assert "key-of" not in caplog.text
    assert bench.providers.url not in caplog.text


def test_a_deployment_that_comes_later_with_a_mistake_spoils_its_group_until_it_is_gone(
    bench: Any, ask: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """No request fails for it; it is logged once, not for each request."""
    caplog.set_level("INFO", "honcho_fallback")
    models = [*bench.chain("primary", "backup"), *bench.chain("p2", "b2", group="other")]
    router, listener = bench.managed(models=models)
    for number in (1, 2):
        router.add_deployment(litellm.Deployment(**bench.deployment("late", "2")))
        for _ in range(2):
            ask(router)
        assert len(listener.starts) == 2 * (number - 1)
        (line,) = errors_in(caplog)
        assert line.startswith("group deriver is no chain")
        assert "'2' of late" in line

        ask(router, model="other")
        router.delete_deployment(id="late")
        ask(router)
        assert len(listener.starts) == 2 * number


def test_each_team_has_its_own_ranks(
    bench: Any, ask: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """Two deployments of rank 0 under one public name are no mistake when no request sees both."""
    caplog.set_level("INFO", "honcho_fallback")
    models = [
        bench.deployment(f"{team}{rank}", rank, group=f"internal-{team}{rank}", info=info)
        for team in ("x", "y")
        for info in [{"team_id": team, "team_public_model_name": "public"}]
        for rank in (0, 1)
    ]
    router, _ = bench.managed(models=models)
    assert not errors_in(caplog)
    assert (
        "chain public (team x): openai/x0-model -> openai/x1-model; "
        "chain public (team y): openai/y0-model -> openai/y1-model;" in caplog.text
    )
    for name in ("x0", "y0"):
        bench[name].fail(500)
    for team in ("x", "y"):
        metadata = {"user_api_key_team_id": team}
        ask(router, model="public", metadata=metadata)
    assert bench.order == ["x0", "x1", "y0", "y1"]


def test_a_mistake_of_one_team_is_not_the_others(
    bench: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """A group that teams share is checked as each of them, and as nobody's, sees it."""
    models = [
        bench.deployment("all1", 1, group="shared"),
        bench.deployment("x0", 0, group="shared", info={"team_id": "x"}),
        bench.deployment("y0", 0, group="shared", info={"team_id": "y"}),
        bench.deployment("z0", "0", group="shared", info={"team_id": "z"}),
    ]
    router, listener = bench.managed(models=models)
    assert [line.partition(" is no chain")[0] for line in errors_in(caplog)] == [
        "group shared (team x, y, z)",
        "group shared (team z)",
    ]
    for _ in range(2):
        for team in ("x", "y", "z", None):
            metadata = {"user_api_key_team_id": team}
            ask_in("sync", router, model="shared", metadata=metadata)
    assert len(listener.starts) == 4
    assert len(errors_in(caplog)) == 2


def test_a_spoilt_group_is_logged_once_whatever_it_is_called(
    bench: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """Not again for each alias, nor for each name that a wildcard stands for."""
    models = [
        *bench.chain("primary"),
        *spoilt(bench, 0, 0),
        bench.deployment("w0", 0, group="openai/*", model="openai/*"),
        bench.deployment("w1", "1", group="openai/*", model="openai/*"),
    ]
    del models[-1]["model_info"]["id"]  # then the model names it
    router, listener = bench.managed(models=models, model_group_alias={"fast": "spoilt"})
    for name in ("fast", "spoilt", "openai/gpt-4o", "openai/gpt-4o-mini"):
        ask_in("sync", router, model=name)
    assert not listener.starts
    assert [line.partition(" is no chain")[0] for line in errors_in(caplog)] == [
        "group spoilt",
        "group openai/*",
    ]


def test_a_wildcard_group_is_a_chain(
    bench: Any, ask: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """The model that was asked for goes to each deployment under its own provider."""
    caplog.set_level("INFO", "honcho_fallback")
    models = [
        bench.deployment("w0", 0, group="openai/*", model="openai/*"),
        bench.deployment("w1", 1, group="openai/*", model="hosted_vllm/*"),
    ]
    router, listener = bench.managed(models=models)
    assert "openai/*: openai/* -> hosted_vllm/*;" in caplog.text
    bench["w0"].fail(500)
    ask(router, model="openai/gpt-4o")
    assert bench.order == ["w0", "w1"]
    assert [one.model for one in listener.starts[0].chain] == ["gpt-4o", "gpt-4o"]


async def awaited(_: Any) -> bool:
    return True


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("on_exhausted", "group"),
        ("connect_timeout", 1.0),
        ("validate", awaited),  # the sync methods cannot await it
        ("config", []),
    ],
)
def test_options_that_cannot_work_are_refused(field: str, value: Any) -> None:
    """What LiteLLM leaves no room for is named, and what is no config.

    Of a wrong observer the message is the core's, before any Router is there.
    """
    with pytest.raises(FallbackConfigError, match=field):
        FallbackRoutingStrategy(value if value == [] else FallbackConfig(**{field: value}))
    FallbackRoutingStrategy(FallbackConfig(on_exhausted="last", reset="iteration"))
    for make in (FallbackRoutingStrategy, FallbackProxyHandler):
        with pytest.raises(FallbackConfigError, match="observers: got a int"):
            make(observers=3)  # type: ignore[arg-type] # that is the mistake


def test_one_strategy_serves_one_router(bench: Any) -> None:
    """A second Router needs a second strategy; the first one again is fine.

    What is no Router is refused as such.
    """
    router = bench.router()
    strategy = FallbackRoutingStrategy().register(router)
    strategy.register(router)
    with pytest.raises(FallbackConfigError, match="serves another Router"):
        strategy.register(bench.router())
    for other in (None, router.model_list, litellm.Router):
        with pytest.raises(FallbackConfigError, match=r"got a .*; pass a litellm\.Router"):
            FallbackRoutingStrategy().register(other)


@pytest.mark.parametrize("managed", [False, True])
def test_the_strategy_does_not_keep_its_router(managed: bool, bench: Any) -> None:
    """Who has an endpoint of a Router keeps it, with a strategy as without; then it is gone."""
    router: Any = bench.router()
    strategy = FallbackRoutingStrategy().register(router) if managed else None
    core, ask = weakref.ref(vars(router).get("_core", router)), router.completion
    # LiteLLM has it in global lists.
    (router.retire if hasattr(router, "retire") else router.discard)()
    del router
    gc.collect()
    assert core() is not None
    del ask
    gc.collect()
    assert core() is None
    assert strategy is None or not strategy.is_registered(None)


def test_the_chain_is_what_the_router_holds(bench: Any, say: Any) -> None:
    """(11) Call by call: a deployment that comes late, other ranks, with gaps, other settings.

    LiteLLM removes a custom strategy on a change of settings, without a word; ours stays.
    """
    router, _ = bench.managed(models=bench.chain("one"))
    bench["one"].fail(500)
    router.add_deployment(litellm.Deployment(**bench.deployment("two", 20)))
    assert say(router) == "hello from two"
    router.set_model_list([bench.deployment("one", 20), bench.deployment("two", 10)])
    assert say(router) == "hello from two"
    router.set_model_list(bench.chain("one", "two"))
    router.update_settings(routing_strategy="least-busy", num_retries=0)
    assert say(router) == "hello from two"
    assert bench.order == ["one", "two", "two", "one", "two"]


def test_targets_are_described_without_secrets(bench: Any, ask: Any) -> None:
    """Model, provider, the deployment's id or model, its window; no key, no address."""
    models = [
        bench.deployment("primary", 0, model="openai/gpt-4o"),
        bench.deployment("", 1, model="anthropic/claude-x", info={"max_input_tokens": 5}),
        bench.deployment("", 2, model="anthropic/claude-x", api_key="other"),
    ]
    for one in models[1:]:
        del one["model_info"]["id"]
    router, listener = bench.managed(models=models)
    ask(router)
    (start,) = listener.starts
    assert start.agent == "deriver"
    assert [(t.name, t.model, t.provider) for t in start.chain] == [
        ("primary", "gpt-4o", "openai"),
        ("anthropic/claude-x", "claude-x", "anthropic"),
        ("anthropic/claude-x#3", "claude-x", "anthropic"),
    ]
    assert [t.context_window for t in start.chain] == [128000, 5, 5]
    told = repr(start) + str(listener.record.to_dict())
    assert "key-of" not in told
    assert bench.providers.url not in told
