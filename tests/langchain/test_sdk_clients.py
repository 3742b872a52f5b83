"""What reaches a candidate's SDK: a credential's key, and the time of the attempt."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.load import dumps
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.runnables import RunnableLambda

from honcho_fallback import FallbackConfigError
from honcho_fallback_langchain import FallbackChatModel, FallbackMiddleware, FallbackRunnable
from tests.helpers.agents import agent, last, run
from tests.helpers.chat_models import (
    Joke,
    alive,
    asked_of,
    claude,
    gpt,
    groq,
    keys,
    look_up,
    model_at,
    read_timeouts,
    serve,
    with_fallbacks,
)
from tests.helpers.chat_runs import SILENT_VERBS, VERBS
from tests.helpers.observers import Listener
from tests.helpers.pairwise import in_pairs, in_turn

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.helpers.provider import ProviderServer

pytestmark = pytest.mark.filterwarnings("ignore::langchain_core._api.LangChainBetaWarning")

EVERY_VERB = VERBS | SILENT_VERBS
PROVIDERS = ["openai", "anthropic"]
each_provider = pytest.mark.parametrize("name", PROVIDERS)
OLD, NEW, STALE = "old-secret", "new-secret", "stale-secret"


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


@in_pairs(
    kind=["tools", "structured", "chain", "bound", "options"],
    verb=["invoke", "ainvoke"],
    name=PROVIDERS,
)
async def test_a_key_reaches_the_model_wherever_it_is(
    providers: ProviderServer, name: str, verb: str, kind: str
) -> None:
    """With tools bound, under a parser, inside a chain."""
    up, credential = serve(providers, name, '{"setup": "knock"}', key=NEW), Refreshed()
    made: Any = FallbackChatModel(model_at(up), alive(), credentials=[None])
    made = made.with_fallback_config(credentials=[credential])
    prompt = ChatPromptTemplate.from_template("{word}")
    chains = prompt | model_at(up), RunnableLambda(str)
    forms: dict[str, Callable[[], Any]] = {
        "tools": lambda: made.bind_tools([look_up]),
        "structured": lambda: made.with_structured_output(Joke, include_raw=True),
        "chain": lambda: with_fallbacks(chains[0], [chains[1]], credentials=[credential]),
        "bound": lambda: FallbackChatModel(
            model_at(up).bind(stop=["x"]), credentials=[credential]
        ),
        "options": lambda: made.with_fallback_config(agent="a").bind_tools([look_up]),
    }
    given: Any = {"word": "hi"} if kind == "chain" else "hi"
    asked = getattr(forms[kind](), verb)(given)
    if verb == "ainvoke":
        await asked
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
@each_provider
async def test_nobody_is_shown_a_key(
    providers: ProviderServer, name: str, verb: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Not callbacks, records, messages, logs, reprs, or what is written of the model."""
    caplog.set_level("DEBUG", "honcho_fallback")
    told, seen = Listener(), list[str]()

    class Everything(BaseCallbackHandler):
        def on_chat_model_start(self, serialized: Any, messages: Any, **kwargs: Any) -> None:
            seen.append(repr((serialized, messages, kwargs)))

        def on_llm_error(self, error: BaseException, **kwargs: Any) -> None:
            seen.append(repr(kwargs))

        def on_llm_end(self, response: Any, **kwargs: Any) -> None:
            seen.append(repr((response, kwargs)))

    up = serve(providers, name, "hello", key=NEW)
    credential = Refreshed()
    model = FallbackChatModel(
        model_at(up, api_key="own-secret"), alive(), credentials=[credential], observers=[told]
    )
    await VERBS[verb](model, "hi", {"callbacks": [Everything()]})
    assert len(up.requests) == 2
    (record,) = told.records
    seen += [json.dumps(record.to_dict()), record.explain(), repr(record), caplog.text]
    seen += [repr(model.policy), repr(model.policy.targets), repr(model.options), repr(model)]
    for text in [*seen, dumps(model)]:
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


JOKE = '{"setup": "knock knock"}'


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


@in_turn(kind=TIMED, name=["openai", "anthropic"])
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
