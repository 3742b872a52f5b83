"""Who a candidate is to its provider, however it was made; the chain's options as a whole."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from langchain_core.messages import AIMessageChunk
from langchain_core.runnables import ConfigurableField, RunnableLambda

from honcho_fallback import Cooldown, FallbackConfig, FallbackConfigError
from honcho_fallback_langchain import FallbackChatModel, FallbackRunnable
from tests.helpers.chat_models import (
    Joke,
    alive,
    chat,
    claude,
    dead,
    gpt,
    look_up,
    model_at,
    serve,
    with_fallbacks,
)
from tests.helpers.pairwise import in_turn

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.helpers.provider import ProviderServer

# Single calls outside of turns are meant to stand alone here.
pytestmark = pytest.mark.filterwarnings("ignore:.*has no effect outside of a turn:UserWarning")

JOKE = '{"setup": "knock knock"}'


REBOUND: dict[str, Callable[[Any], Any]] = {
    "bind": lambda model: model.bind(stop=["x"]),
    "bind_tools": lambda model: model.bind_tools([look_up]),
    "tools, then options": lambda m: m.bind_tools([look_up]).with_fallback_config(agent="a"),
    "options, then tools": lambda m: m.with_fallback_config(agent="a").bind_tools([look_up]),
    "with_config": lambda model: model.with_config(tags=["t"]),
    "with_fallback_config": lambda model: model.with_fallback_config(deadline=60),
    "with_structured_output": lambda m: m.with_structured_output(Joke, include_raw=True),
    "structured, then options": lambda m: m.with_structured_output(
        Joke, include_raw=True
    ).with_fallback_config(agent="a"),
}


@in_turn(rebind=REBOUND.values(), facts=["known", "unknown"])
async def test_a_cooldown_survives_rebinding(
    providers: ProviderServer, facts: str, rebind: Callable[[Any], Any]
) -> None:
    """What was made of a model anew, for each call, is the same model to its provider.

    Of OpenAI's the address and the key tell; of a fake nothing does but its place in the chain.
    """
    down, up = serve(providers, "openai", status=503), serve(providers, "openai", JOKE)
    call: Any = {"name": "Joke", "args": JOKE, "id": "c1", "index": 0}
    told = chat("backup", AIMessageChunk(content="from backup", tool_call_chunks=[call]))
    models: list[Any] = [model_at(down), model_at(up)] if facts == "known" else [dead(), told]
    model = FallbackChatModel(*models, cooldown=Cooldown(after=1, base=60))
    for _ in range(3):
        await rebind(model).ainvoke("hi")
    assert model.invoke("hi").text in {JOKE, "from backup"}
    asked = len(down.requests) if facts == "known" else len(models[0].asked)
    assert asked == 1


def test_what_is_configurable_per_call_keeps_its_cooldown(providers: ProviderServer) -> None:
    """A field that is set anew for each call makes no new model."""
    down, up = serve(providers, "openai", status=503), serve(providers, "openai", "hello")
    field = ConfigurableField("t")
    models = [model_at(one).configurable_fields(seed=field) for one in (down, up)]
    made = FallbackChatModel(*models, cooldown=Cooldown(after=1, base=60))
    for seed in (1, 2, 3):
        made.invoke("hi", {"configurable": {"t": seed}})
    assert [body["seed"] for body in up.bodies] == [1, 2, 3]
    assert len(down.requests) == 1


def test_a_default_keeps_its_labels_until_a_config_picks_another() -> None:
    """A temperature is the same model's; an address, a name or an alternative may be anybody."""
    eu = chat("eu", "hi", tags=["eu"])
    fields: Any = {"temperature": ConfigurableField("heat"), "model": ConfigurableField("name")}
    candidates: list[Any] = [
        eu.configurable_fields(**fields),
        eu.configurable_fields(**fields).with_config(configurable={"heat": 0.1}),
        eu.configurable_alternatives(ConfigurableField("name"), default_key="eu", us=alive()),
    ]
    for one in candidates:
        model = FallbackChatModel(one, alive(), require={"eu"})
        for config in ({}, {"heat": 0.7}):
            assert model.invoke("hi", {"configurable": config}).text == "hi"
        with pytest.raises(FallbackConfigError, match="where its config may lead elsewhere"):
            model.invoke("hi", {"configurable": {"name": "us"}})
        bound = one.with_config(configurable={"name": "us"})
        with pytest.raises(FallbackConfigError, match="eu"):
            FallbackChatModel(bound, alive(), require={"eu"}).invoke("hi")


def test_one_model_with_other_parameters_is_a_fallback(providers: ProviderServer) -> None:
    """With less effort it may answer where it did not, by its own field or bound around it."""
    lower: list[Callable[[Any], Any]] = [
        lambda model: model.model_copy(update={"reasoning_effort": "low"}),
        lambda model: model.bind(reasoning_effort="low"),
    ]
    for low in lower:
        server = serve(providers, "openai", "hello")
        server.fail(503, times=1)
        high = [model_at(server, reasoning_effort="high") for _ in range(2)]
        model = FallbackRunnable(*high, low(model_at(server)))
        assert model.invoke("hi").text == "hello"
        assert [body["reasoning_effort"] for body in server.bodies] == ["high", "low"]


def identities(model: Any) -> list[str]:
    return [target.identity for target in model.policy.targets]


@pytest.mark.parametrize("make", [gpt, claude])
def test_a_model_is_the_same_wherever_it_is_made(make: Any) -> None:
    """Model, address and key say who it is; with another of them it is somebody else.

    What is unknown is never the same: fakes, functions, a key from who knows where.
    """
    known = identities(FallbackChatModel(make(), claude(), make(model="other")))
    assert identities(FallbackChatModel(make(), claude(), make(model="other"))) == known
    others = [
        make(api_key="another"),
        make(base_url="http://127.0.0.1:2/v1"),
        make(base_url="http://me:hush@127.0.0.1:2/v1?key=hush"),
        make(default_headers={"Authorization": "Bearer another"}),
        make(model="gpt-6"),
    ]
    chains = [FallbackChatModel(one) for one in [make(), *others]]
    assert len({identities(one)[0] for one in chains}) == 6
    endpoint = chains[3].policy.targets[0].endpoint or ""
    assert endpoint.rstrip("/") == "http://127.0.0.1:2/v1"  # openai 3 ends a path with a slash
    assert "hush" not in repr(chains[3].policy)
    unknown: list[Callable[[], Any]] = [
        dead,
        lambda: gpt(api_key=lambda: "k"),
        lambda: RunnableLambda(str),
    ]
    for one in unknown:
        assert identities(FallbackRunnable(one())) != identities(FallbackRunnable(one()))


def test_a_whole_config_comes_first_and_options_go_on_top() -> None:
    """By the same name as in a call's config."""
    config = FallbackConfig.resilient()
    given: list[Any] = [
        FallbackChatModel(dead(), alive(), fallback_config=config, deadline=9),
        FallbackRunnable(dead(), alive()).with_fallback_config(fallback_config=config, deadline=9),
        with_fallbacks(dead(), [alive()], fallback_config=config, deadline=9),
        FallbackChatModel(dead(), alive())
        .bind(stop=["x"])
        .with_fallback_config(fallback_config=config, deadline=9)
        .bound,
    ]
    for made in given:
        held = made.policy.config
        assert (held.deadline, held.reset, held.cooldown) == (9, "turn", config.cooldown)
    with pytest.raises(FallbackConfigError, match="fallback_config: got a dict"):
        FallbackChatModel(dead(), fallback_config={"reset": "turn"})  # type: ignore[arg-type] # what is refused
