"""What looks beyond one attempt, through LangChain: who cools down, how much time is left."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from langchain_core.messages import AIMessageChunk
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.runnables import ConfigurableField, RunnableLambda

from honcho_fallback import (
    Cooldown,
    DeadlineExceeded,
    FallbackConfig,
    FallbackConfigError,
    FallbackExhausted,
    StreamInterrupted,
    TransportRecovery,
)
from honcho_fallback.testing import StatusError
from honcho_fallback_langchain import FallbackChatModel, FallbackRunnable
from tests.helpers.chat_models import (
    Joke,
    alive,
    asked_of,
    chat,
    claude,
    dead,
    gpt,
    look_up,
    model_at,
    read_timeouts,
    serve,
    silent,
    with_fallbacks,
)
from tests.helpers.chat_runs import SILENT_VERBS, VERBS
from tests.helpers.observers import Listener
from tests.helpers.pairwise import in_turn

if TYPE_CHECKING:
    from collections.abc import Callable

    from honcho_fallback import Target
    from honcho_fallback.testing import Clock
    from tests.helpers.provider import ProviderServer

pytestmark = [
    pytest.mark.filterwarnings("ignore::langchain_core._api.LangChainBetaWarning"),
    # Single calls outside of turns are meant to stand alone here.
    pytest.mark.filterwarnings("ignore:.*has no effect outside of a turn:UserWarning"),
]

EVERY_VERB = VERBS | SILENT_VERBS
every_verb = pytest.mark.parametrize("verb", EVERY_VERB)
each_verb = pytest.mark.parametrize("verb", VERBS)
PROVIDERS = ["openai", "anthropic"]
each_provider = pytest.mark.parametrize("name", PROVIDERS)


JOKE = '{"setup": "knock knock"}'


# Cooldown: who is down is remembered.


@in_turn(verb=EVERY_VERB, name=PROVIDERS)
async def test_a_cooldown_leaves_the_dead_primary_alone(
    providers: ProviderServer, name: str, verb: str
) -> None:
    """One request to it in a chain's first call, none in the next two."""
    down, up = serve(providers, name, status=503), serve(providers, "openai", "hello")
    model = FallbackChatModel(model_at(down), model_at(up), cooldown=Cooldown(after=1, base=60))
    assert [await EVERY_VERB[verb](model, "hi") for _ in range(3)] == ["hello"] * 3
    assert (len(down.requests), len(up.requests)) == (1, 3)


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


@each_verb
async def test_a_calls_own_policy_knows_the_same_models(verb: str) -> None:
    """A config per call, with the cooldown in it: the primary is asked by the first call only."""
    primary, backup = dead(), alive()
    model = FallbackChatModel(primary, backup)
    config = FallbackConfig(cooldown=Cooldown(after=1, base=60))
    own = {"configurable": {"fallback_config": config}}
    for _ in range(3):
        assert await VERBS[verb](model, "hi", own) == "from backup"
    assert len(primary.asked) == 1


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


@each_provider
def test_a_model_is_the_same_wherever_it_is_made(name: str) -> None:
    """Model, address and key say who it is; with another of them it is somebody else."""
    make = gpt if name == "openai" else claude
    known = identities(FallbackChatModel(make(), claude(), make(model="other")))
    assert identities(FallbackChatModel(make(), claude(), make(model="other"))) == known
    others = [
        make(api_key="another"),
        make(base_url="http://127.0.0.1:2"),
        make(default_headers={"Authorization": "Bearer another"}),
        make(model="gpt-6"),
    ]
    every = {identities(FallbackChatModel(one))[0] for one in [make(), *others]}
    assert len(every) == 5


def test_what_is_unknown_is_never_the_same() -> None:
    """Fakes, functions, and models that fetch their key from who knows where."""
    makers: list[Callable[[], Any]] = [
        dead,
        lambda: gpt(api_key=lambda: "k"),
        lambda: RunnableLambda(str),
    ]
    for make in makers:
        assert identities(FallbackRunnable(make())) != identities(FallbackRunnable(make()))


async def test_chains_built_apart_share_what_they_learn(providers: ProviderServer) -> None:
    """Two chains over the same provider, with one cooldown between them."""
    down, up = serve(providers, "openai", status=503), serve(providers, "openai", "hello")
    shared = Cooldown(after=1, base=60)
    prompt = ChatPromptTemplate.from_template("{word}")
    model = FallbackChatModel(model_at(down), model_at(up), cooldown=shared)
    chain = with_fallbacks(prompt | model_at(down), [prompt | model_at(up)], cooldown=shared)
    assert model.invoke("hi").text == "hello"
    assert (await chain.ainvoke({"word": "hi"})).text == "hello"
    assert (len(down.requests), len(up.requests)) == (1, 2)


def test_a_probe_brings_the_primary_back_and_observers_hear_it(clock: Clock) -> None:
    """After its rest one call asks it again; it answered, so it is the primary again."""
    told = Listener()
    primary, backup = chat("primary", StatusError(503), "back"), alive()
    cooldown = Cooldown(after=1, base=60)
    model = FallbackChatModel(primary, backup, cooldown=cooldown, observers=[told])
    said = [model.invoke("hi").text, model.invoke("hi").text]
    clock.now += 61
    said += [model.invoke("hi").text, model.invoke("hi").text]
    assert said == ["from backup", "from backup", "back", "back"]
    assert [(one.after, one.primary.name) for one in told.restores] == [
        ("cooldown", "scripted/primary")
    ]


# Time: the SDK of a sync call gives up with the attempt.


def chain_over(one: Any) -> Any:
    return ChatPromptTemplate.from_template("{word}") | one


TIMED: dict[str, Any] = {
    "chat model": lambda models, **options: FallbackChatModel(*models, **options),
    "chains": lambda models, **options: with_fallbacks(
        chain_over(models[0]), [chain_over(models[1])], **options
    ),
    "structured": lambda models, **options: FallbackChatModel(
        *models, **options
    ).with_structured_output(Joke, include_raw=True, method="function_calling"),
    "tools": lambda models, **options: FallbackChatModel(*models, **options).bind_tools([look_up]),
    "bound": lambda models, **options: FallbackChatModel(
        *(model.bind(stop=["x"]) for model in models), **options
    ),
    "retried": lambda models, **options: FallbackChatModel(
        *(model.with_retry(stop_after_attempt=1) for model in models), **options
    ),
    "nested": lambda models, **options: FallbackChatModel(
        FallbackChatModel(models[0], max_attempts=1), models[1], **options
    ),
}


@in_turn(kind=TIMED, name=PROVIDERS)
def test_an_attempts_time_reaches_the_sdk(providers: ProviderServer, name: str, kind: str) -> None:
    """Of 60 s a third is kept for the fallback; what the SDK would wait for is what is left."""
    down, up = serve(providers, name, status=503), serve(providers, name, JOKE)
    made = TIMED[kind]([model_at(down), model_at(up)], deadline=60)
    given: Any = {"word": "hi"} if kind == "chains" else "hi"
    made.invoke(given)
    list(made.stream(given))
    first, second = read_timeouts(down), read_timeouts(up)
    assert [round(seconds or 0) for seconds in first] == [40, 40]
    assert [round(seconds or 0) for seconds in second] == [60, 60]
    assert all(0 < seconds < 60 for seconds in second if seconds)


@pytest.mark.parametrize("name", ["openai", "anthropic", "groq"])
@pytest.mark.parametrize(
    ("own", "option", "expected"),
    [(7, 30, 7), (40, 30, 30), (None, 30, 30), (None, None, None), (7, None, 7)],
)
def test_the_shorter_time_counts(
    providers: ProviderServer, name: str, own: float | None, option: float | None, expected: Any
) -> None:
    """The model's own timeout, or the attempt's."""
    up = serve(providers, "openai" if name == "groq" else name, "hello")
    if name == "groq":
        from langchain_groq import ChatGroq  # noqa: PLC0415 # only here

        given: Any = ChatGroq(model_name="llama", api_key="k", base_url=up.url, timeout=own)
    else:
        given = model_at(up, timeout=own)
    model = FallbackChatModel(given, timeout=option)
    assert model.invoke("hi").text == "hello"
    assert read_timeouts(up) == [expected]


def test_a_request_that_is_none_of_ours_keeps_its_time(providers: ProviderServer) -> None:
    """The user's own object is untouched, and with "keep" the candidates are, too."""
    up = serve(providers, "openai", "hello")
    given = model_at(up, timeout=70)
    model = FallbackChatModel(given, timeout=30)
    model.invoke("hi")
    given.invoke("hi")
    asked_of(model)[0].invoke("hi")
    model.with_fallback_config(sdk_retries="keep").invoke("hi")
    assert read_timeouts(up) == [30, 70, 70, 70]


def test_connecting_has_a_time_of_its_own() -> None:
    """What is left for connecting is the shortest of the model's, the option's, the attempt's."""
    told: list[dict[str, Any]] = []
    model = FallbackChatModel(gpt(timeout=70), timeout=30, connect_timeout=5)

    def look(_: Any) -> str:
        told.append(asked_of(model)[0].root_client.timeout.as_dict())
        return "seen"

    seeing = FallbackRunnable(RunnableLambda(look), timeout=30, connect_timeout=5)
    seeing.invoke("hi")
    seeing.with_fallback_config(timeout=3).invoke("hi")
    look("")
    keys = ("connect", "read", "write", "pool")
    assert [tuple(one[key] for key in keys) for one in told] == [
        (5, 30, 30, 30),
        (3, 3, 3, 3),
        (70, 70, 70, 70),
    ]


def test_the_time_of_an_inner_chain_is_within_that_of_the_outer(providers: ProviderServer) -> None:
    """A candidate may be a chain of its own, with more patience."""
    up = serve(providers, "openai", "hello")
    inner = FallbackChatModel(model_at(up), timeout=100)
    FallbackRunnable(inner, timeout=10).invoke("hi")
    FallbackRunnable(inner, timeout=100).with_fallback_config(timeout=200).invoke("hi")
    assert read_timeouts(up) == [10, 100]


def test_a_cache_is_found_again_whatever_time_is_left(providers: ProviderServer) -> None:
    """The time of an attempt is in no cache's key."""
    from langchain_core.caches import InMemoryCache  # noqa: PLC0415 # only here

    up = serve(providers, "openai", "hello")
    model = FallbackChatModel(model_at(up, cache=InMemoryCache()), deadline=60)
    assert [model.invoke("hi").text for _ in range(2)] == ["hello", "hello"]
    assert model.with_fallback_config(deadline=50).invoke("hi").text == "hello"
    assert len(up.requests) == 1


@in_turn(
    verb=["invoke", "ainvoke", "stream", "astream"],
    name=["openai", "anthropic", "anthropic", "openai"],
)
async def test_a_deadline_leaves_time_for_the_fallback(
    providers: ProviderServer, silent_url: str, name: str, verb: str
) -> None:
    """A primary that hangs gets half of it; the fallback answers within the rest."""
    told = Listener()
    up = serve(providers, "openai", "hello")
    model = FallbackChatModel(
        silent(name, silent_url), model_at(up), deadline=2.4, observers=[told]
    )
    assert await EVERY_VERB[verb](model, "hi") == "hello"
    assert told.kinds == ["timeout", None]


@pytest.mark.parametrize("verb", ["invoke", "ainvoke", "stream", "astream"])
async def test_a_deadline_ends_a_call(silent_url: str, verb: str) -> None:
    """Nobody answered in time: the error says so and carries the record."""
    models = [silent("openai", silent_url), silent("anthropic", silent_url)]
    model = FallbackChatModel(*models, deadline=0.4)
    with pytest.raises(DeadlineExceeded) as caught:
        await VERBS[verb](model, "hi")
    assert [one.kind and one.kind.value for one in caught.value.record.attempts] == ["timeout"] * 2


@in_turn(
    verb=["stream", "astream", "stream_events v3", "astream_events v3"],
    name=["openai", "anthropic", "anthropic", "openai"],
)
async def test_a_silent_stream_is_left_before_its_first_token(
    providers: ProviderServer, silent_url: str, name: str, verb: str
) -> None:
    """`first_token_timeout` holds for streams, in a thread through the SDK."""
    told = Listener()
    up = serve(providers, name, "hello")
    model = FallbackChatModel(
        silent(name, silent_url), model_at(up), first_token_timeout=0.5, observers=[told]
    )
    assert await EVERY_VERB[verb](model, "hi") == "hello"
    assert told.kinds == ["timeout", None]
    assert told.records[-1].attempts[0].seconds < 30  # the model's own patience


async def test_a_stream_that_falls_silent_is_interrupted() -> None:
    """`idle_timeout` bounds the time between two chunks of content."""
    import asyncio  # noqa: PLC0415 # only here

    class Stalling(RunnableLambda[Any, Any]):
        async def astream(self, input: Any, config: Any = None, **kwargs: Any) -> Any:  # noqa: A002
            yield "hel"
            await asyncio.sleep(30)

    chain = FallbackRunnable(Stalling(str), alive(), idle_timeout=0.1)
    with pytest.raises(StreamInterrupted) as caught:
        [chunk async for chunk in chain.astream("hi")]
    assert caught.value.partial == ("hel",)


# Everything else that a call can be given.


@in_turn(verb=VERBS, way=["with_fallback_config", "constructor", "configurable"])
async def test_a_judge_is_never_degraded(verb: str, way: str) -> None:
    """`must_not_degrade` fails closed: the fallback is not asked, and the record says who was."""
    told = Listener()
    primary, backup = dead(), alive()
    judge = FallbackChatModel(primary, backup, observers=[told], max_attempts=1)
    config: Any = None
    if way == "with_fallback_config":
        judge = judge.with_fallback_config(must_not_degrade=True)
    elif way == "constructor":
        given: Any = {"observers": [told], "max_attempts": 1, "must_not_degrade": True}
        judge = FallbackChatModel(primary, backup, **given)
    else:
        own = FallbackConfig(must_not_degrade=True, max_attempts=1)
        config = {"configurable": {"fallback_config": own}}
    with pytest.raises((FallbackExhausted, StatusError)):
        await VERBS[verb](judge, "hi", config)
    assert (told.records[-1].outcome, told.kinds) == ("exhausted", ["overloaded"])
    assert backup.asked == []


@pytest.mark.parametrize("verb", SILENT_VERBS)
async def test_what_is_asked_without_a_run_has_the_config_around_it(verb: str) -> None:
    """In a chain or a graph, `generate` and the events' third version are no way around a gate."""
    primary, backup = dead(), alive()
    judge = FallbackChatModel(primary, backup)
    own = FallbackConfig(must_not_degrade=True, max_attempts=1)

    async def ask(word: str) -> str:
        answer: str = await SILENT_VERBS[verb](judge, word)
        return answer

    with pytest.raises(FallbackExhausted):
        await RunnableLambda(ask).ainvoke("hi", {"configurable": {"fallback_config": own}})
    assert backup.asked == []


@in_turn(verb=VERBS, name=PROVIDERS)
async def test_a_lost_connection_gets_one_more_chance(clock: Clock, name: str, verb: str) -> None:
    """`rebuild` is called with the target, whose model then answers; nobody else is asked."""
    told = Listener()
    rebuilt: list[Target] = []
    backup = alive()
    recovery = TransportRecovery(rebuild=rebuilt.append)
    lost = (gpt if name == "openai" else claude)()  # nobody listens there
    model = FallbackChatModel(lost, backup, transport_recovery=recovery, observers=[told])
    assert await VERBS[verb](model, "hi") == "from backup"
    assert told.kinds == ["connection", "connection", None]
    assert [target.client for target in rebuilt] == [asked_of(model)[0]]
    assert clock.slept == [4]


@every_verb
async def test_the_preset_for_production(providers: ProviderServer, verb: str) -> None:
    """`resilient()` as a whole: a dead primary costs a turn one request, and three in all."""
    down, up = serve(providers, "openai", status=503), serve(providers, "anthropic", "hi")
    config = FallbackConfig.resilient()
    model = FallbackChatModel(model_at(down), model_at(up), fallback_config=config)
    for _ in range(4):
        with model.turn():
            assert await EVERY_VERB[verb](model, "hi") == "hi"
            assert await EVERY_VERB[verb](model, "hi") == "hi"
    again = FallbackChatModel(model_at(down), model_at(up)).with_fallback_config(
        fallback_config=config
    )
    assert again.invoke("hi").text == "hi"
    assert (len(down.requests), len(up.requests)) == (3, 9)
    assert model.policy.config == config.replace(only_models=True)


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


def test_an_address_with_a_password_is_not_shown() -> None:
    """What stands beside host and path in a `base_url` is a secret, and tells models apart."""
    urls = [f"http://me:{word}@127.0.0.1:1/v1?key={word}" for word in ("hush", "quiet")]
    chains = [FallbackChatModel(gpt(base_url=url), alive()) for url in urls]
    told = repr(chains[0].policy.targets) + repr(chains[0].policy)
    assert "hush" not in told
    endpoint = chains[0].policy.targets[0].endpoint or ""
    assert endpoint.rstrip("/") == "http://127.0.0.1:1/v1"  # openai 3 ends a path with a slash
    assert identities(chains[0])[0] != identities(chains[1])[0]
