"""What is bound reaches every candidate, each in its own form; every parameter of one is kept.

Also who a candidate is, and what is refused at once.
"""

from __future__ import annotations

from copy import copy
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from langchain.chat_models import init_chat_model
from langchain_anthropic import ChatAnthropic
from langchain_core.language_models import BaseChatModel
from langchain_core.language_models.fake_chat_models import FakeListChatModel
from langchain_core.messages import AIMessage, AIMessageChunk
from langchain_core.runnables import ConfigurableField, RunnableBinding, RunnableLambda
from langchain_openai import AzureChatOpenAI

from honcho_fallback import Cooldown, FallbackConfig, FallbackConfigError
from honcho_fallback.testing import StatusError
from honcho_fallback_langchain import FallbackChatModel, FallbackMiddleware, FallbackRunnable
from honcho_fallback_langchain._sdk import chat_model_of
from tests.helpers.agents import agent
from tests.helpers.chat_models import (
    NOWHERE,
    Joke,
    ScriptedChat,
    alive,
    asked_of,
    candidate,
    chat,
    claude,
    dead,
    failing_over,
    gemini,
    gpt,
    groq,
    look_up,
    mistral,
    model_at,
    serve,
    with_fallbacks,
)
from tests.helpers.chat_runs import VERBS
from tests.helpers.pairwise import in_turn

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.helpers.provider import ProviderServer

# Single calls outside of turns are meant to stand alone here.
pytestmark = pytest.mark.filterwarnings("ignore:.*has no effect outside of a turn:UserWarning")


@pytest.mark.parametrize("verb", VERBS)
async def test_tools_are_bound_to_each_in_its_own_format(verb: str) -> None:
    """The fallback gets what its own `bind_tools` made, never the primary's."""
    model = failing_over()
    bound = model.bind_tools([look_up], tool_choice="any")

    assert isinstance(bound, RunnableBinding)
    assert isinstance(bound.bound, BaseChatModel)
    assert await VERBS[verb](bound, "hi") == "from backup"
    for position, name in enumerate(("primary", "backup")):
        (asked,) = candidate(model, position).asked
        assert asked.kwargs["tools"][0]["for"] == name
        assert asked.kwargs["tool_choice"] == "any"


@pytest.mark.parametrize("make", [gemini, mistral, groq, claude])
async def test_what_is_bound_goes_to_whom_knows_it(providers: ProviderServer, make: Any) -> None:
    """Gemini's integration refuses `parallel_tool_calls`, Mistral's server `strict`.

    Claude, which refuses `seed` and `user`, is asked without.
    """
    down, other = serve(providers, "openai", status=503), serve(providers, "other", "heard")
    model = FallbackChatModel(model_at(down), make(base_url=other.url))
    bound = model.bind_tools([look_up], strict=True, parallel_tool_calls=False)
    assert bound.invoke("hi").text == "heard"
    (asked,), (told,) = down.bodies, other.bodies
    assert (asked["parallel_tool_calls"], asked["tools"][0]["function"]["strict"]) == (False, True)
    assert "strict" not in told
    assert ("parallel_tool_calls" in told) == (make in {mistral, groq})
    for setting in ({"seed": 1}, {"user": "u"}) if make is claude else ():
        assert (await model.bind(**setting).ainvoke("hi")).text == "heard"
        assert setting.items() <= down.bodies[-1].items()
        assert not setting.keys() & other.bodies[-1].keys()


ANY = "required", {"type": "any"}
ONE = {"type": "function", "function": {"name": "look_up"}}, {"type": "tool", "name": "look_up"}
CHOICES: list[tuple[Any, tuple[Any, Any]]] = [
    ("required", ANY),
    (True, ANY),
    ({"type": "any"}, ANY),
    ("auto", ("auto", {"type": "auto"})),
    ({"type": "auto"}, ("auto", {"type": "auto"})),
    ("none", ("none", {"type": "none"})),
    *((named, ONE) for named in ("look_up", *ONE)),
]


@pytest.mark.parametrize(("choice", "expected"), CHOICES, ids=[str(one) for one, _ in CHOICES])
def test_a_choice_among_tools_is_each_ones_own(choice: Any, expected: tuple[Any, Any]) -> None:
    """In the words of OpenAI, Anthropic or LangChain: each provider is asked in its own."""
    for models in ((gpt(), claude()), (claude(), gpt())):
        bound: Any = FallbackChatModel(*models).bind_tools([look_up], tool_choice=choice)
        asked = [one.kwargs["tool_choice"] for one in asked_of(bound.bound)]
        assert asked == [expected[isinstance(one, ChatAnthropic)] for one in models]


@pytest.mark.parametrize("choice", [None, "web_search", {"type": "web_search"}])
def test_a_tool_that_a_provider_runs_stays_there(choice: Any) -> None:
    """The chain is no poorer for it: Azure has it too, and the choice of it is no other's."""
    azure = AzureChatOpenAI(azure_endpoint=NOWHERE, api_version="1", model="m", api_key="k")
    model = FallbackChatModel(gpt(), claude(), azure)
    bound: Any = model.bind_tools([{"type": "web_search"}, look_up], tool_choice=choice).bound
    first, second, third = (one.kwargs for one in asked_of(bound))
    assert [one.get("name") for one in second["tools"]] == ["look_up"]
    assert not second.get("tool_choice")
    for kwargs in (first, third):
        assert kwargs["tools"][0] == {"type": "web_search"}
        assert kwargs.get("tool_choice") == (choice and {"type": "web_search"})
    schema = {"title": "f", "type": "object", "properties": {}}  # a function, by its schema alone
    for tools, left in (([{"type": "web_search"}], None), ([schema], ["f"])):
        alone: Any = asked_of(model.bind_tools(tools, tool_choice=choice).bound)[1]
        names = [one["name"] for one in alone.kwargs["tools"]] if left else None
        assert names == left
        assert isinstance(alone, RunnableBinding) is (left is not None)


def test_what_was_bound_to_a_candidate_stays_around_its_tools() -> None:
    """Its settings and its retries are its own; bound again, the last tools and choice count."""
    first, second = dead(), alive()
    retrying = first.bind(seed=1).with_retry(stop_after_attempt=2, wait_exponential_jitter=False)
    model = FallbackChatModel(retrying, second.with_config(tags=["second"]))
    again: Any = model.bind_tools([Joke], tool_choice="Joke").bound

    assert again.bind_tools([look_up]).invoke("hi", stop=["x"]).text == "from backup"

    assert [len(one.asked) for one in (first, second)] == [2, 1]
    for one, seed in ((first, 1), (second, None)):
        kwargs = one.asked[-1].kwargs
        (tool,) = kwargs["tools"]
        assert (tool["for"], tool["function"]["name"]) == (one.model, "look_up")
        assert (kwargs["stop"], kwargs.get("seed")) == (["x"], seed)
        assert "tool_choice" not in kwargs


@pytest.mark.parametrize("form", ["bind", "with_config", "bind_tools", "twice"])
def test_bound_forms_can_be_configured(form: str) -> None:
    """`with_fallback_config` reaches through a binding, and what was bound stays."""
    model = failing_over()
    if form == "twice":
        bound: Any = model.bind(seed=1).with_config({"tags": ["t"]}, run_name="r")
    else:
        bound = REBOUND[form](model)

    changed = bound.with_fallback_config(agent="a", reset="turn").with_fallback_config(wait=0)

    assert type(changed) is type(bound)
    assert (changed.kwargs, changed.config) == (bound.kwargs, bound.config)
    innermost = changed
    while isinstance(innermost, RunnableBinding):
        innermost = innermost.bound
    assert innermost.policy.agent == "a"
    assert innermost.policy.config.reset == "turn"
    assert model.policy.agent == "unknown"
    assert changed.invoke("hi").text == "from backup"


HEAT: Any = {"temperature": ConfigurableField(id="heat")}


def test_a_candidates_fields_can_be_configured_per_call() -> None:
    """Also with tools bound to it or a schema; and the chain says what can be configured."""
    heats: list[Any] = []

    class Feels(ScriptedChat):
        def _parts(self, *args: Any) -> Any:
            heats.append(self.temperature)
            return super()._parts(*args)

    candidates = chat("primary", StatusError(503), kind=Feels), alive(kind=Feels)
    model: Any = FallbackChatModel(*(one.configurable_fields(**HEAT) for one in candidates))
    made = model.bind_tools([look_up])

    config = {"configurable": {"heat": 0.7}}
    assert made.invoke("hi", config).text == "from backup"
    assert made.with_config(configurable={"heat": 0.2}).invoke("hi").text == "from backup"
    assert made.invoke("hi").text == "from backup"
    assert heats == [0.7, 0.7, 0.2, 0.2, None, None]
    structured = FallbackChatModel(gpt().configurable_fields(**HEAT), claude())
    for chain in (made, structured.with_structured_output(Joke)):
        assert "heat" in {spec.id for spec in chain.config_specs}


async def test_a_whole_message_in_a_stream_is_marked() -> None:
    """A chain that yields messages and no chunks says who answered, too."""
    first = RunnableLambda(lambda _: (_ for _ in ()).throw(StatusError(503)))
    model = FallbackRunnable(first, alive("b", "x") | RunnableLambda(lambda m: AIMessage(m.text)))
    (answer,) = [one async for one in model.astream("hi")]
    assert not isinstance(answer, AIMessageChunk)
    assert answer.response_metadata["fallback"]["is_fallback"] is True


# Every parameter of a candidate is kept, and the chain promises what all of them can do.


# What `without_sdk_retries` changes on purpose; test_sdk_clients.py says how.
RETRIES = {"max_retries", "client", "async_client", "root_client", "root_async_client"}


GIVEN: dict[str, Any] = {
    "temperature": 0.5,
    "max_tokens": 77,
    "timeout": 9.0,
    "metadata": {"a": 1},
    "tags": ["t"],
    "name": "named",
    "stop": ["x"],
    "default_headers": {"x-team": "a"},
    "model_kwargs": {"user": "u"},
    "disable_streaming": "tool_calling",
    "stream_usage": True,
    "top_p": 0.3,
    "verbose": False,
}


@pytest.mark.parametrize("change", ["bind_tools", "structured", "with_fallback_config"])
@pytest.mark.parametrize("retries", ["off", "keep"])
def test_no_field_of_a_candidate_is_lost(change: str, retries: Any) -> None:
    """Every field of the SDK classes, private ones included, whatever is made of the model."""
    given = [gpt(**GIVEN, seed=4, reasoning_effort="low"), claude(**GIVEN, top_k=4)]
    wrapped = FallbackChatModel(*given, sdk_retries=retries)

    structured = change == "structured"
    made = wrapped.with_structured_output(Joke) if structured else REBOUND[change](wrapped)
    asked = asked_of(getattr(made, "bound", made))
    found: list[Any] = [chat_model_of(getattr(one, "first", one)) for one in asked]

    assert [type(one) for one in found] == [type(one) for one in given]
    for one, original in zip(found, given, strict=True):
        differing = {
            name
            for name in type(original).model_fields
            if getattr(one, name) is not getattr(original, name)
            and getattr(one, name) != getattr(original, name)
        }
        assert differing <= (RETRIES if retries == "off" else set())
        assert one.__pydantic_private__ == original.__pydantic_private__


def test_a_subclass_may_have_fields() -> None:
    """Its constructor takes them beside the options."""

    class Ours(FallbackChatModel):
        tenant: str = ""

    made = Ours(alive("a"), tenant="t", agent="a")  # type: ignore[call-arg] # pyright: ignore[reportCallIssue] # a class of a test writes no constructor
    assert (made.tenant, made.policy.agent) == ("t", "a")


def test_profile_is_what_all_can_do() -> None:
    """All for an ability, the smallest for a size; what one does not tell is not promised."""
    able = {"tool_calling": True, "structured_output": True, "max_input_tokens": 2000, "name": "a"}
    less = {"tool_calling": True, "structured_output": False, "max_input_tokens": 1000, "name": ""}
    first = alive("a", profile={**able, "image_inputs": True})
    second = alive("b", profile={**less, "audio_inputs": True})
    joined = {"tool_calling": True, "structured_output": False, "max_input_tokens": 1000}
    assert FallbackChatModel(first.bind(seed=1), second).profile == joined
    given: Any = {"tool_calling": False}
    assert FallbackChatModel(first, second, profile=given).profile == given
    assert FallbackChatModel(first, alive("c")).profile is None


def test_tokens_are_counted_as_the_primary_counts() -> None:
    """A count needs no provider; a wrapper's own tokenizer would be nobody's."""

    class Counts(ScriptedChat):
        def get_token_ids(self, text: str) -> list[int]:
            return [1] * len(text)

        def get_num_tokens_from_messages(self, messages: Any, tools: Any = None) -> int:
            return 40 + len(messages)

    model = FallbackChatModel(Counts(model="a").bind(seed=1), alive())
    assert model.get_num_tokens("four") == 4
    assert model.get_num_tokens_from_messages([AIMessage(content="x")]) == 41


def test_what_else_the_primary_has_can_be_read() -> None:
    """Its fields, as with_fallbacks shows them; what it lacks is missing here, too.

    create_agent asks a model for a schema by its name: it is told where a fallback takes one, too.
    """
    model: Any = FallbackChatModel(gpt(max_tokens=7), claude())
    theirs: Any = gpt(max_tokens=7).with_fallbacks([claude()])
    assert model.max_tokens == theirs.max_tokens == 7
    assert copy(model).root_client is model.candidates[0].root_client
    for name in ("no_such_field", "_private"):
        with pytest.raises(AttributeError, match=name):
            getattr(model, name)
    able, unable = ({"structured_output": one} for one in (True, False))
    both: Any = FallbackChatModel(gpt(profile=able), claude(profile=able))
    one: Any = FallbackChatModel(gpt(profile=able), claude(profile=unable))
    assert both.model_name == both.candidates[0].model_name
    for name in ("model", "model_id", "model_name"):
        with pytest.raises(AttributeError, match=rf"candidates\[0\].{name}"):
            getattr(one, name)


# Who a candidate is to its provider, however it was made; the chain's options as a whole.

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
    """By the same name as in a call's config; given later they are those given at once."""
    config = FallbackConfig.resilient()
    options: Any = {"fallback_config": config, "deadline": 9}
    given: list[Any] = [
        failing_over(**options),
        FallbackRunnable(dead(), alive()).with_fallback_config(**options),
        with_fallbacks(dead(), [alive()], **options),
        failing_over().bind(stop=["x"]).with_fallback_config(**options).bound,
    ]
    for made in given:
        held = made.policy.config
        assert (held.deadline, held.reset, held.cooldown) == (9, "turn", config.cooldown)
    late = failing_over().with_fallback_config(agent="a").with_fallback_config(max_attempts=2)
    assert late.options == failing_over(agent="a", max_attempts=2).options
    with pytest.raises(FallbackConfigError, match="fallback_config: got a dict"):
        FallbackChatModel(dead(), fallback_config={"reset": "turn"})  # type: ignore[arg-type] # what is refused


# What is wrong is said at construction or at bind, never at the first outage.


MODEL: Any = alive()
FIELDS: Any = {"configurable_fields": "any", "api_key": "k"}
UNMADE: Any = init_chat_model(**FIELDS)
DEFAULTED: Any = init_chat_model("openai:gpt-5.5", **FIELDS)
CHAIN: Any = RunnableLambda(str)
# Untyped, as a user's call may be.
CHAT: Any = FallbackChatModel
RUNNABLE: Any = FallbackRunnable
AGENT: Any = FallbackMiddleware

BOUND: Any = alive().bind(stop=["x"])
CANDIDATES: dict[str, tuple[Any, tuple[Any, ...], str]] = {
    "no candidate": (CHAT, (), "candidates: there is none; pass the primary"),
    "no candidate of a chain": (RUNNABLE, (), "candidates: there is none"),
    "no fallback": (AGENT, (), "fallbacks: there is none; pass a chat model"),
    "a name": (CHAT, (MODEL, "gpt"), r"candidates\[1\]: no chat model can be made of 'gpt'"),
    "no such package": (CHAT, ("cohere:x",), r"candidates\[0\]: no chat model"),
    "one made for each call": (CHAT, (UNMADE, MODEL), r"candidates\[0\]: .* for each call"),
    "one beside a model": (CHAT, (MODEL, UNMADE), "pass init_chat_model.name. without"),
    "one with a default": (CHAT, (DEFAULTED,), "made anew for each call"),
    "one behind an agent's": (AGENT, (UNMADE,), r"fallbacks\[0\]: .* each call"),
    "a bound one there": (AGENT, (BOUND,), r"fallbacks\[0\]: got a _ChatModelBinding"),
    "a class": (CHAT, (ScriptedChat, MODEL), r"candidates\[0\]: got ScriptedChat, not a Runnable"),
    "None": (RUNNABLE, (CHAIN, None), r"candidates\[1\]: got NoneType"),
    "a chain in a chat model": (
        CHAT,
        (MODEL, MODEL | CHAIN),
        r"candidates\[1\]: got a RunnableSequence, not a chat model; pass chat models only",
    ),
    # Those by name would lose those by position, or the other way round.
    "by name as well": (partial(CHAT, candidates=[MODEL]), (MODEL,), "candidates: no such"),
    "a chain's": (partial(RUNNABLE, candidates=[MODEL]), (MODEL,), "candidates: no such"),
} | {
    # A field that is a candidate's business: nobody would look at it in a chain.
    name: (partial(CHAT, **{name: None}), (MODEL,), f"{name}: .*; give it to each candidate")
    for name in ("cache", "disable_streaming", "output_version", "rate_limiter")
}


def test_a_model_that_is_made_for_each_call_is_refused_at_an_agents_first() -> None:
    """Its middleware sees the agent's model then; nobody is asked, and the cure is named."""
    backup = alive()
    with pytest.raises(FallbackConfigError, match=r"the agent's model: .* for each call"):
        agent(DEFAULTED, FallbackMiddleware(backup)).invoke({"messages": [("user", "hi")]})
    assert not backup.asked


def test_what_is_configurable_in_a_chat_model_is_configured_per_call() -> None:
    """The cure: the model is known, and a field of it is a matter of the call.

    Around whom a config picks stands what was made for the default.
    """
    field = ConfigurableField("model")
    given = alive("primary").configurable_fields(model=field)
    model = FallbackChatModel(given, dead("backup"))
    answer = model.invoke("hi", {"configurable": {"model": "other"}})
    assert answer.response_metadata["model_name"] == "other"
    chosen = alive().configurable_alternatives(ConfigurableField(id="which"), other=alive("b"))
    model = FallbackChatModel(chosen, alive())
    assert model.bind_tools([Joke]).invoke("hi").text == "from backup"
    assert model.with_retry(stop_after_attempt=1).invoke("hi").text == "from backup"


@pytest.mark.parametrize("case", CANDIDATES)
def test_candidates_are_checked_at_construction(case: str) -> None:
    """The error says which one, what was found, and what to do."""
    make, given, message = CANDIDATES[case]
    with pytest.raises(FallbackConfigError, match=message):
        make(*given)


OPTIONS: dict[str, tuple[dict[str, Any], str]] = {
    "unknown": ({"retries": 3}, "retries: no such option; did you mean sdk_retries"),
    "misspelt": ({"partal": "final"}, "partal: no such option; did you mean partial"),
    "a candidate's": ({"temperature": 0}, "temperature: no such option"),
    "out of range": ({"max_attempts": 0}, "max_attempts: "),
    "sdk_retries": ({"sdk_retries": False}, 'sdk_retries: got False; pass "off" or "keep"'),
    "an observer that is none": ({"observers": [print]}, "observers"),
    "an agent without a name": ({"agent": ""}, "agent"),
    "config": ({"config": {}}, "config: no such option"),
}
PLACES: dict[str, Any] = {
    "chat model": partial(FallbackChatModel, dead(), alive()),
    "runnable": partial(FallbackRunnable, dead(), alive()),
    "middleware": partial(FallbackMiddleware, alive()),
    "copy of a chat model": failing_over().with_fallback_config,
    "copy of a runnable": FallbackRunnable(CHAIN).with_fallback_config,
    "copy of a middleware": FallbackMiddleware(alive()).with_fallback_config,
}


@in_turn(place=PLACES, case=OPTIONS)
def test_options_are_checked_wherever_they_are_given(case: str, place: str) -> None:
    """The same error everywhere; the message names the option."""
    options, message = OPTIONS[case]
    with pytest.raises(FallbackConfigError, match=message):
        PLACES[place](**options)


NO_TOOLS = FakeListChatModel(responses=["a"])


@pytest.mark.parametrize("position", [0, 1])
@pytest.mark.parametrize("what", ["tools", "structured output"])
def test_a_candidate_that_cannot_take_tools_is_told_at_bind(what: str, position: int) -> None:
    """The error names it by its place, and keeps what it said."""
    given: list[Any] = [alive(), alive()]
    given[position] = NO_TOOLS
    model = FallbackChatModel(*given)
    with pytest.raises(FallbackConfigError, match=rf"candidates\[{position}\]: .*{what}") as error:
        if what == "tools":
            model.bind_tools([Joke])
        else:
            model.with_structured_output(Joke)
    assert isinstance(error.value.__cause__, NotImplementedError)
