"""One request and no more: real integrations against a server that always says 429."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from langchain_core.language_models import BaseChatModel
from langchain_core.language_models.fake_chat_models import FakeListChatModel
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.runnables import (
    ConfigurableField,
    Runnable,
    RunnableBranch,
    RunnableLambda,
    RunnableParallel,
    RunnableSerializable,
)

from honcho_fallback_langchain import without_sdk_retries
from tests.helpers.chat_models import NOWHERE, claude, gemini, gpt, groq, look_up, mistral
from tests.helpers.chat_runs import ainvoke, astream, invoke, stream
from tests.helpers.provider import Reply

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.helpers.provider import Provider, ProviderServer


pytestmark = [
    # Google's SDK subclasses aiohttp's session, which aiohttp does not like.
    pytest.mark.filterwarnings("ignore:Inheritance class:DeprecationWarning"),
    # LiteLLM's types have read-only fields, which pydantic does not know.
    pytest.mark.filterwarnings("ignore:Item .*ReadOnly:UserWarning"),
]

SLOW_DOWN = {"error": {"message": "slow down", "type": "rate_limit_error", "code": 429}}


def at(make: Callable[..., Any]) -> Callable[..., Any]:
    """Return a maker of models at an address."""

    def made(url: str, **fields: Any) -> Any:
        return make(base_url=url, **fields)

    made.__name__ = make.__name__
    return made


openai, anthropic, google = at(gpt), at(claude), at(gemini)


def responses(url: str, **fields: Any) -> Any:
    return openai(url, use_responses_api=True, **fields)


def azure(url: str, **fields: Any) -> Any:
    from langchain_openai import AzureChatOpenAI  # noqa: PLC0415

    where = {"azure_endpoint": url, "azure_deployment": "d", "api_version": "1"}
    return AzureChatOpenAI(**{**where, "api_key": "k", **fields})


def litellm(url: str, **fields: Any) -> Any:
    from langchain_litellm import ChatLiteLLM  # noqa: PLC0415

    return ChatLiteLLM(**{"model": "openai/gpt-5.5", "api_key": "k", "api_base": url, **fields})


EVERY = [openai, responses, azure, anthropic, google, at(groq), at(mistral), litellm]

# What a copy may hold otherwise than its original, over all integrations.
MUST_CHANGE = {
    "async_client",
    "client",
    "max_retries",
    "model_kwargs",
    "root_async_client",
    "root_client",
}


VERBS = [invoke, ainvoke, stream, astream]


@pytest.fixture
def busy(providers: ProviderServer) -> Provider:
    """Return a provider that never answers."""
    provider = providers.new("busy")
    headers = {"retry-after-ms": "1", "retry-after": "0"}
    provider.fail(429, body=SLOW_DOWN, headers=headers)
    return provider


async def requests_by(
    model: Runnable[Any, Any], verb: Callable[..., Any], provider: Provider
) -> int:
    """Return how many requests one failing call sends."""
    before = len(provider.requests)
    with pytest.raises(Exception, match=r"429|slow down"):
        await verb(model, "hi")
    return len(provider.requests) - before


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("make", EVERY)
async def test_a_call_sends_one_request(
    busy: Provider,
    make: Callable[..., BaseChatModel],
    verb: Callable[..., Any],
) -> None:
    """Whatever the integration and however it is asked."""
    assert await requests_by(without_sdk_retries(make(busy.url)), verb, busy) == 1


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
    model = make(NOWHERE, temperature=0.5, max_tokens=7, metadata={"a": 1}, tags=["t"])
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
    model: Any = anthropic(busy.url)
    assert model._serialized["kwargs"].get("max_retries", 2) == 2
    assert await requests_by(model, invoke, busy) == 3

    copy: Any = without_sdk_retries(model)

    assert copy._client._client is model._client._client
    assert "_async_client" not in vars(copy)
    assert await requests_by(copy, invoke, busy) == 1
    assert await requests_by(copy, ainvoke, busy) == 1
    assert copy._serialized["kwargs"]["max_retries"] == 0
    assert copy._client_params["max_retries"] == 0


async def test_subclasses_are_known_by_their_base(busy: Provider) -> None:
    """A class of the user's own retries in the same place."""
    kind: Any = type("HouseModel", (type(openai(busy.url)),), {"__module__": __name__})
    model = kind(model="m", api_key="k", base_url=busy.url)
    copy: Any = without_sdk_retries(model)
    assert type(copy) is kind
    assert await requests_by(copy, invoke, busy) == 1


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


def _models(part: Any) -> Iterator[Any]:
    """Find the models in what a composite holds."""
    if isinstance(part, BaseChatModel):
        yield part
    elif isinstance(part, RunnableSerializable):
        for _, value in part:
            yield from _models(value)
    elif isinstance(part, dict):
        for value in part.values():
            yield from _models(value)
    elif isinstance(part, list | tuple):
        for value in part:
            yield from _models(value)


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
    one, two = openai(NOWHERE), openai(NOWHERE)
    composite = COMPOSITES[name](one, two)

    quiet = without_sdk_retries(composite)

    assert type(quiet) is type(composite)
    assert [model.max_retries for model in _models(quiet)] == [0, 0]
    assert {id(model) for model in _models(composite)} == {id(one), id(two)}
    assert one.root_client.max_retries == two.root_client.max_retries == 2
    assert without_sdk_retries(quiet) is quiet


@pytest.mark.parametrize(
    "candidate",
    [
        RunnableLambda(str),
        PROMPT,
        PROMPT | str,
        FakeListChatModel(responses=["a"]),
        look_up,
    ],
    ids=["lambda", "prompt", "chain", "fake", "tool"],
)
def test_what_has_no_retries_passes_untouched(
    candidate: Runnable[Any, Any], caplog: pytest.LogCaptureFixture
) -> None:
    """The same object, and not a word about it."""
    assert without_sdk_retries(candidate) is candidate
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
