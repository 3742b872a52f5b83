"""What reaches a candidate's SDK: a key, the time of the attempt, and that it asks once."""

from __future__ import annotations

import asyncio
import json
import logging
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from langchain_core.language_models.fake_chat_models import FakeListChatModel
from langchain_core.load import dumps
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.runnables import (
    ConfigurableField,
    Runnable,
    RunnableBranch,
    RunnableLambda,
    RunnableParallel,
)

from honcho_fallback import FallbackConfigError
from honcho_fallback_langchain import (
    FallbackChatModel,
    FallbackMiddleware,
    FallbackRunnable,
    without_sdk_retries,
)
from tests.helpers.agents import agent, last, run
from tests.helpers.chat_models import (
    NOWHERE,
    Joke,
    alive,
    asked_of,
    claude,
    gemini,
    gpt,
    groq,
    keys,
    look_up,
    mistral,
    model_at,
    read_timeouts,
    serve,
    with_fallbacks,
)
from tests.helpers.chat_runs import SILENT_VERBS, VERBS, Told, ainvoke, astream, invoke, stream
from tests.helpers.observers import Listener
from tests.helpers.pairwise import in_pairs, in_turn
from tests.helpers.provider import Reply

if TYPE_CHECKING:
    from collections.abc import Callable

    from langchain_core.language_models import BaseChatModel

    from tests.helpers.provider import Provider, ProviderServer

pytestmark = [
    pytest.mark.filterwarnings("ignore::langchain_core._api.LangChainBetaWarning"),
    # Google's SDK subclasses aiohttp's session, which aiohttp does not like.
    pytest.mark.filterwarnings("ignore:Inheritance class:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:Pydantic serializer"),  # LangChain's own, of `parsed`
    # LiteLLM's types have read-only fields, which pydantic does not know.
    pytest.mark.filterwarnings("ignore:Item .*ReadOnly:UserWarning"),
]

EVERY_VERB = VERBS | SILENT_VERBS
PROVIDERS = ["openai", "anthropic"]
OLD, NEW = "old-secret", "new-secret"


class Refreshed:
    """A credential that has run out, and can be had anew."""

    def __init__(self, brings: str = NEW) -> None:
        self.key = OLD
        self.brings = brings
        self.refreshed = 0

    def get(self) -> str:
        return self.key

    def refresh(self) -> None:
        self.refreshed += 1
        self.key = self.brings


class Awaited(Refreshed):
    """One whose both methods are async."""

    async def get(self) -> str:  # type: ignore[override] # as the protocol allows
        return self.key

    async def refresh(self) -> None:  # type: ignore[override] # as the protocol allows
        await asyncio.sleep(0)
        super().refresh()


JOKE = '{"setup": "knock knock"}'


def chain_over(one: Any) -> Any:
    return ChatPromptTemplate.from_template("{word}") | one


# Where a model may be of whom a chain is made.
FORMS: dict[str, Any] = {
    "chat model": lambda models, **options: FallbackChatModel(*models, **options),
    "chains": lambda models, **options: with_fallbacks(
        chain_over(models[0]), [chain_over(models[1])], **options
    ),
    "structured": lambda models, **options: FallbackChatModel(
        *models, **options
    ).with_structured_output(Joke, include_raw=True),
    "tools": lambda models, **options: FallbackChatModel(*models, **options).bind_tools([look_up]),
    "bound": lambda models, **options: FallbackChatModel(
        *(model.bind(stop=["x"]) for model in models), **options
    ),
    "retried": lambda models, **options: FallbackChatModel(
        *(model.with_retry(stop_after_attempt=1) for model in models), **options
    ),
    "options": lambda models, **options: (
        FallbackChatModel(*models, credentials=[None])
        .with_fallback_config(**options)
        .with_fallback_config(agent="a")
        .bind_tools([look_up])
    ),
    "nested": lambda models, **options: FallbackChatModel(
        FallbackChatModel(models[0], max_attempts=1), models[1], **options
    ),
}


@in_turn(verb=EVERY_VERB, name=PROVIDERS)
async def test_a_401_refreshes_once_and_asks_the_same_model_again(
    providers: ProviderServer, name: str, verb: str
) -> None:
    """With the new key, and without the fallback; the next call begins with it.

    In a task both of the credential's methods may be coroutines.
    """
    for kind in (Refreshed, Awaited) if verb.startswith("a") else (Refreshed,):
        up, backup, credential = serve(providers, name, "hello", key=NEW), alive(), kind()
        model = FallbackChatModel(model_at(up, api_key="own"), backup, credentials=[credential])
        for _ in range(2):
            assert await EVERY_VERB[verb](model, "hi") == "hello"
        assert keys(up) == [OLD, NEW, NEW]
        assert credential.refreshed == 1
        assert backup.asked == []


@pytest.mark.parametrize("verb", ["invoke", "stream", "generate"])
async def test_an_async_credential_is_refused_in_a_thread(
    providers: ProviderServer, verb: str
) -> None:
    """The error says what to call instead; nobody was asked."""
    up = serve(providers, "openai", "hello")
    model = FallbackChatModel(model_at(up), alive(), credentials=[Awaited()])
    with pytest.raises(FallbackConfigError, match="is async; use ainvoke"):
        await EVERY_VERB[verb](model, "hi")
    assert len(up.requests) == 0


async def test_whose_key_is_whose(providers: ProviderServer) -> None:
    """What is asked with another key is a copy; the user's object and its own key stay.

    OpenAI's takes a function for a key: the chain only has to know what to refresh.
    """
    up, credential = serve(providers, "anthropic", "hello", key=NEW), Refreshed()
    given = model_at(up, api_key=NEW)
    FallbackChatModel(given, credentials=[credential]).invoke("hi")
    assert given.invoke("hi").text == "hello"
    assert keys(up) == [OLD, NEW, NEW]

    up, credential = serve(providers, "openai", "hello", key=f"my-{NEW}"), Refreshed()
    given = model_at(up, api_key=lambda: f"my-{credential.get()}")
    model = FallbackChatModel(given, alive(), credentials=[credential])
    for verb in ("invoke", "astream"):
        assert await VERBS[verb](model, "hi") == "hello"
    assert (keys(up), credential.refreshed) == ([f"my-{OLD}", f"my-{NEW}", f"my-{NEW}"], 1)


@in_pairs(kind=[*FORMS][:-1], verb=["invoke", "ainvoke"], name=PROVIDERS)
async def test_a_key_reaches_the_model_wherever_it_is(
    providers: ProviderServer, name: str, verb: str, kind: str
) -> None:
    """With tools bound, under a parser, inside a chain."""
    up, credential = serve(providers, name, '{"setup": "knock"}', key=NEW), Refreshed()
    made = FORMS[kind]([model_at(up), alive()], credentials=[credential])
    await VERBS[verb](made, {"word": "hi"} if kind == "chains" else "hi")
    assert (keys(up), credential.refreshed) == ([OLD, NEW], 1)


@in_pairs(verb=["invoke", "ainvoke"], reset=["iteration", "turn"], name=PROVIDERS)
async def test_an_agents_model_has_a_credential_too(
    providers: ProviderServer, name: str, reset: Any, verb: str
) -> None:
    """The first one is that of the agent's own model, the others are the fallbacks'."""
    up, credential = serve(providers, name, "hello", key=NEW), Refreshed()
    middleware = FallbackMiddleware(alive(), reset=reset, credentials=[credential])
    assert last(await run(verb, agent(model_at(up), middleware))).text == "hello"
    assert (keys(up), credential.refreshed) == ([OLD, NEW], 1)

    down = serve(providers, "openai", status=503)
    second = Refreshed()
    up.requests.clear()
    middleware = FallbackMiddleware(model_at(up), reset=reset).with_fallback_config(
        credentials=[None, second]
    )
    assert last(await run(verb, agent(model_at(down), middleware))).text == "hello"
    assert (keys(up), second.refreshed) == ([OLD, NEW], 1)


@pytest.mark.parametrize("verb", ["invoke", "ainvoke", "stream", "astream"])
@pytest.mark.parametrize("name", PROVIDERS)
async def test_nobody_is_shown_a_key(
    providers: ProviderServer, name: str, verb: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Not callbacks, records, messages, logs, reprs, or what is written of the model."""
    caplog.set_level("DEBUG", "honcho_fallback")
    told, traced = Listener(), Told()
    up = serve(providers, name, "hello", key=NEW)
    credential = Refreshed()
    model = FallbackChatModel(
        model_at(up, api_key="own-secret"), alive(), credentials=[credential], observers=[told]
    )
    await VERBS[verb](model, "hi", {"callbacks": [traced]})
    assert len(up.requests) == 2
    (record,) = told.records
    seen = [*traced.events, json.dumps(record.to_dict()), record.explain(), repr(record)]
    seen += [repr(model.policy), repr(model.policy.targets), repr(model.options), repr(model)]
    for text in [*seen, caplog.text, dumps(model)]:
        assert not any(secret in text for secret in (OLD, NEW, "own-secret"))


def test_what_cannot_be_done_with_a_credential_is_said_at_once(providers: ProviderServer) -> None:
    """A model whose key nobody here can change, too many credentials, no credential at all."""
    credential = Refreshed()
    model = model_at(serve(providers, "openai", "hello"))
    with pytest.raises(FallbackConfigError, match=r"credentials\[1\]: how a ScriptedChat"):
        FallbackChatModel(model, alive(), credentials=[credential, credential])
    with pytest.raises(FallbackConfigError, match="credentials: there are more than candidates"):
        FallbackChatModel(model, credentials=[credential, credential])
    with pytest.raises(FallbackConfigError, match="credential"):
        FallbackChatModel(model, credentials=["key"])  # type: ignore[list-item] # what is refused
    with pytest.raises(FallbackConfigError, match=r"credentials\[1\]"):
        FallbackMiddleware(alive(), credentials=[None, credential])
    FallbackMiddleware(alive(), credentials=[credential])  # the agent's own is not known yet


# The time of an attempt reaches the SDK, by whatever candidate is around its model.


@in_turn(kind=FORMS, name=["openai", "anthropic"])
def test_an_attempts_time_reaches_the_sdk(providers: ProviderServer, name: str, kind: str) -> None:
    """Of 60 s a third is kept for the fallback; what the SDK would wait for is what is left."""
    down, up = serve(providers, name, status=503), serve(providers, name, JOKE)
    made = FORMS[kind]([model_at(down), model_at(up)], deadline=60)
    given: Any = {"word": "hi"} if kind == "chains" else "hi"
    made.invoke(given)
    list(made.stream(given))
    first, second = read_timeouts(down), read_timeouts(up)
    assert [30 < (seconds or 0) <= 40 for seconds in first] == [True, True]
    assert [40 < (seconds or 0) < 60 for seconds in second] == [True, True]


@pytest.mark.parametrize(
    ("own", "option", "expected"),
    [(7, 30, 7), (40, 30, 30), (None, 30, 30), (None, None, None), (7, None, 7)],
)
@pytest.mark.parametrize("make", [gpt, claude, groq])
def test_the_shorter_time_counts(
    providers: ProviderServer, make: Any, own: float | None, option: float | None, expected: Any
) -> None:
    """The model's own timeout, or the attempt's."""
    up = serve(providers, "any", "hello")
    model = FallbackChatModel(make(base_url=up.url, timeout=own), timeout=option)
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


def test_the_time_of_an_inner_chain_is_within_that_of_the_outer(providers: ProviderServer) -> None:
    """A candidate may be a chain of its own, with more patience."""
    up = serve(providers, "openai", "hello")
    inner = FallbackChatModel(model_at(up), timeout=100)
    FallbackRunnable(inner, timeout=10).invoke("hi")
    FallbackRunnable(inner, timeout=100).with_fallback_config(timeout=200).invoke("hi")
    assert read_timeouts(up) == [10, 100]


# One request and no more: real integrations against a server that always says 429.


def responses(**fields: Any) -> Any:
    return gpt(use_responses_api=True, **fields)


def azure(base_url: str, **fields: Any) -> Any:
    from langchain_openai import AzureChatOpenAI  # noqa: PLC0415

    where = {"azure_endpoint": base_url, "azure_deployment": "d", "api_version": "1"}
    return AzureChatOpenAI(**{**where, "api_key": "k", **fields})


def litellm(base_url: str, **fields: Any) -> Any:
    from langchain_litellm import ChatLiteLLM  # noqa: PLC0415

    given = {"model": "openai/gpt-5.5", "api_key": "k", "api_base": base_url}
    return ChatLiteLLM(**{**given, **fields})


def house(**fields: Any) -> Any:
    """Make a model of a class of the user's own, which retries in its base's place."""
    kind: Any = type("HouseModel", (type(gpt()),), {"__module__": __name__})
    return kind(model="m", api_key="k", **fields)


EVERY = [gpt, responses, azure, house, claude, gemini, groq, mistral, litellm]

# What a copy may hold otherwise than its original, over all integrations.
MUST_CHANGE = {
    "async_client",
    "client",
    "max_retries",
    "model_kwargs",
    "root_async_client",
    "root_client",
}


@pytest.fixture
def busy(providers: ProviderServer) -> Provider:
    """Return a provider that never answers."""
    provider = providers.new("busy")
    headers = {"retry-after-ms": "1", "retry-after": "0"}
    provider.fail(429, message="slow down", headers=headers)
    return provider


async def requests_by(
    model: Runnable[Any, Any], verb: Callable[..., Any], provider: Provider
) -> int:
    """Return how many requests one failing call sends."""
    before = len(provider.requests)
    with pytest.raises(Exception, match=r"429|slow down"):
        await verb(model, "hi")
    return len(provider.requests) - before


@pytest.mark.parametrize("verb", [invoke, ainvoke, stream, astream])
@pytest.mark.parametrize("make", EVERY)
async def test_a_call_sends_one_request(
    busy: Provider,
    make: Callable[..., BaseChatModel],
    verb: Callable[..., Any],
) -> None:
    """Whatever the integration and however it is asked."""
    assert await requests_by(without_sdk_retries(make(base_url=busy.url)), verb, busy) == 1


@pytest.mark.parametrize("verb", [invoke, ainvoke])
async def test_mistral_does_not_dial_again(
    providers: ProviderServer, verb: Callable[..., Any]
) -> None:
    """It sends a refused answer once anyway, but a dropped connection five times, 4 s apart."""
    dropping = providers.new("mistral")
    dropping.standing = Reply(drop=True)
    with pytest.raises(httpx.RequestError):
        await verb(without_sdk_retries(mistral(base_url=dropping.url)), "hi")
    assert len(dropping.requests) == 1


def _state(model: BaseChatModel) -> dict[str, Any]:
    clients = {
        name: (client, getattr(client, "max_retries", None))
        for name, client in vars(model).items()
        if name in {"root_client", "root_async_client", "_client", "_async_client"}
    }
    return {**vars(model), **clients, "private": dict(model.__pydantic_private__ or {})}


@pytest.mark.parametrize("used", [False, True], ids=["fresh", "used"])
@pytest.mark.parametrize("make", EVERY)
def test_a_copy_differs_in_its_retries_alone(make: Callable[..., Any], used: bool) -> None:
    """The original keeps its values and its clients, which retry as often as before."""
    model = make(base_url=NOWHERE, temperature=0.5, max_tokens=7, metadata={"a": 1}, tags=["t"])
    for name in ("_serialized", "_client", "_async_client") if used else ():
        getattr(model, name, None)  # built on first use
    before, given = _state(model), set(model.model_fields_set)

    copy = without_sdk_retries(model)

    assert copy is not model
    assert type(copy) is type(model)
    after = _state(model)
    assert after.keys() == before.keys()
    for name, value in before.items():
        assert after[name] is value or after[name] == value, name
    assert model.model_fields_set == given <= copy.model_fields_set
    fields = type(model).model_fields
    changed = {name for name in fields if getattr(copy, name) is not getattr(model, name)}
    assert changed <= MUST_CHANGE
    assert copy.__pydantic_private__ == model.__pydantic_private__


async def test_a_client_that_was_built_already_is_derived_from(busy: Provider) -> None:
    """ChatAnthropic builds its clients on first use; one that is there may be the user's own.

    What a trace shows of the copy is what the copy does.
    """
    model: Any = claude(base_url=busy.url)
    assert model._serialized["kwargs"].get("max_retries", 2) == 2
    assert await requests_by(model, invoke, busy) == 3

    copy: Any = without_sdk_retries(model)

    assert copy._client._client is model._client._client
    assert "_async_client" not in vars(copy)
    assert await requests_by(copy, invoke, busy) == 1
    assert await requests_by(copy, ainvoke, busy) == 1
    assert copy._serialized["kwargs"]["max_retries"] == 0
    assert copy._client_params["max_retries"] == 0


def test_litellm_keeps_its_other_model_kwargs() -> None:
    """They travel beside the retries; retries asked for there are turned off as well."""
    given = {"user": "u", "num_retries": 4, "max_retries": 4, "retry_policy": {"x": 1}}
    model: Any = litellm(NOWHERE, max_retries=4, model_kwargs=given)
    copy: Any = without_sdk_retries(model)
    assert copy.model_kwargs == {"user": "u", "num_retries": 0, "max_retries": 0}
    assert copy.max_retries == 1  # counts attempts
    assert model.model_kwargs == given


@pytest.mark.filterwarnings("ignore:Router.model_list is deprecated")  # ChatLiteLLMRouter reads it
def test_a_router_keeps_its_policy() -> None:
    """How often its deployments are asked was decided there."""
    from langchain_litellm import ChatLiteLLMRouter  # noqa: PLC0415
    from litellm.router import Router  # noqa: PLC0415

    deployment = {"model_name": "m", "litellm_params": {"model": "openai/m", "api_key": "k"}}
    model: Any = ChatLiteLLMRouter(router=Router(model_list=[deployment]))
    assert without_sdk_retries(model) is model


PROMPT = ChatPromptTemplate.from_messages([("human", "{text}")])


COMPOSITES: dict[str, Callable[[Any, Any], Runnable[Any, Any]]] = {
    "sequence": lambda one, two: PROMPT | one | str | two,
    "parallel": lambda one, two: RunnableParallel(a=one, b=two),
    "branch": lambda one, two: RunnableBranch((bool, one), two),
    "with_fallbacks": lambda one, two: one.with_fallbacks([two]),
    "with_retry": lambda one, two: one.with_retry() | two,
    "each": lambda one, two: one.map() | two.map(),
    "alternatives": lambda one, two: one.configurable_alternatives(
        ConfigurableField(id="which"), other=two
    ),
    "nested": lambda one, two: PROMPT | {"a": one.bind(x=1), "b": PROMPT | two.with_retry()},
}


@pytest.mark.parametrize("name", COMPOSITES)
def test_every_place_of_a_composite_is_reached(name: str) -> None:
    """Each of LangChain's ways to put models together; those that asked twice still do."""
    one, two = gpt(), gpt()
    composite = COMPOSITES[name](one, two)

    quiet = without_sdk_retries(composite)

    assert type(quiet) is type(composite)
    assert dumps(quiet).count('"max_retries": 0') == 2
    assert "max_retries" not in dumps(composite)
    assert one.root_client.max_retries == two.root_client.max_retries == 2
    assert without_sdk_retries(quiet) is quiet


def test_what_has_no_retries_passes_untouched(caplog: pytest.LogCaptureFixture) -> None:
    """The same object, and not a word about it: a function, a prompt, a chain, a fake, a tool."""
    fake = FakeListChatModel(responses=["a"])
    for one in (RunnableLambda(str), PROMPT, PROMPT | str, fake, look_up):
        assert without_sdk_retries(one) is one
    assert not caplog.records


@pytest.mark.parametrize("field", ["max_retries", "num_retries", "retries"])
def test_an_unknown_integration_is_named_once(
    field: str, caplog: pytest.LogCaptureFixture
) -> None:
    """It may retry, and only its user can turn that off: one warning per class says how."""
    name, body = f"House_{field}", {"__annotations__": {field: int}, field: 2}
    kind: Any = type(name, (FakeListChatModel,), body)
    model = kind(responses=["a"])
    for _ in range(3):
        assert without_sdk_retries(model | str).first is model
    (record,) = caplog.records
    assert (record.name, record.levelno) == ("honcho_fallback", logging.WARNING)
    for word in (name, "max_retries=0", 'sdk_retries="keep"'):
        assert word in record.getMessage()
