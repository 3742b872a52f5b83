"""Keys that are refreshed: a 401 refreshes once and asks the same model again."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest
from agent_fakes import agent, last, run
from chat_fakes import SILENT_VERBS, VERBS, Joke, Told, alive, look_up
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.load import dumps
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.runnables import RunnableLambda
from loopback import Provider

from honcho_fallback import FallbackConfigError
from honcho_fallback.credentials import CredentialError
from honcho_fallback_langchain import FallbackChatModel, FallbackMiddleware, with_fallback_config

if TYPE_CHECKING:
    from pytest_httpserver import HTTPServer


pytestmark = pytest.mark.filterwarnings("ignore::langchain_core._api.LangChainBetaWarning")

EVERY_VERB = VERBS | SILENT_VERBS
each_verb = pytest.mark.parametrize("verb", VERBS)
each_provider = pytest.mark.parametrize("name", ["openai", "anthropic"])
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


@pytest.mark.parametrize("verb", EVERY_VERB)
@each_provider
async def test_a_401_refreshes_once_and_asks_the_same_model_again(
    httpserver: HTTPServer, name: str, verb: str
) -> None:
    """With the new key, and without the fallback; the next call begins with it."""
    up, backup = Provider(httpserver, name, "hello", key=NEW), alive()
    credential = Refreshed()
    model = FallbackChatModel(up.model(api_key="own"), backup, credentials=[credential])
    for _ in range(2):
        assert await EVERY_VERB[verb](model, "hi") == "hello"
    assert up.keys == [OLD, NEW, NEW]
    assert credential.refreshed == 1
    assert backup.asked == []


@each_verb
@each_provider
async def test_a_refresh_that_does_not_help_is_a_switch(
    httpserver: HTTPServer, name: str, verb: str
) -> None:
    """The model is asked twice, then the fallback: with its own key, of which nobody knows."""
    told = Told()
    up, other = Provider(httpserver, name, key=NEW), Provider(httpserver, name, "hi", key="theirs")
    credential = Refreshed(brings=STALE)
    model = FallbackChatModel(
        up.model(), other.model(api_key="theirs"), credentials=[credential], observers=[told]
    )
    assert await VERBS[verb](model, "hi") == "hi"
    assert (up.keys, other.keys) == ([OLD, STALE], ["theirs"])
    kinds = [one.kind and one.kind.value for one in told.records[-1].attempts]
    assert kinds == ["authentication", "authentication", None]
    assert told.records[-1].attempts[1].note == "after a refresh of its credential"


@pytest.mark.parametrize(
    "verb", ["ainvoke", "astream", "abatch", "astream_events v3", "agenerate"]
)
@each_provider
async def test_an_async_credential_is_awaited(
    httpserver: HTTPServer, name: str, verb: str
) -> None:
    """In a task both of its methods may be coroutines."""
    up, credential = Provider(httpserver, name, "hello", key=NEW), Awaited()
    model = FallbackChatModel(up.model(), credentials=[credential])
    assert await EVERY_VERB[verb](model, "hi") == "hello"
    assert (up.keys, credential.refreshed) == ([OLD, NEW], 1)


@pytest.mark.parametrize("verb", ["invoke", "stream", "generate"])
async def test_an_async_credential_is_refused_in_a_thread(
    httpserver: HTTPServer, verb: str
) -> None:
    """The error says what to call instead; nobody was asked."""
    up = Provider(httpserver, "openai", "hello")
    model = FallbackChatModel(up.model(), alive(), credentials=[Awaited()])
    with pytest.raises(FallbackConfigError, match="is async; use ainvoke"):
        await EVERY_VERB[verb](model, "hi")
    assert up.requests == 0


@each_verb
async def test_a_model_that_asks_for_its_key_itself(httpserver: HTTPServer, verb: str) -> None:
    """OpenAI's takes a function for a key: the chain only has to know what to refresh."""
    up, credential = Provider(httpserver, "openai", "hello", key=f"my-{NEW}"), Refreshed()
    given = up.model(api_key=lambda: f"my-{credential.get()}")
    model = FallbackChatModel(given, alive(), credentials=[credential])
    assert await VERBS[verb](model, "hi") == "hello"
    assert (up.keys, credential.refreshed) == ([f"my-{OLD}", f"my-{NEW}"], 1)


@each_verb
async def test_a_token_that_ran_out_is_refreshed_without_a_request(
    httpserver: HTTPServer, verb: str
) -> None:
    """`get` may raise: that is a 401 that the provider need not be asked for."""

    class RunOut(Refreshed):
        def get(self) -> str:
            if self.key == OLD:
                raise CredentialError("no valid token at hand")
            return self.key

    up, credential = Provider(httpserver, "anthropic", "hello", key=NEW), RunOut()
    model = FallbackChatModel(up.model(), alive(), credentials=[credential])
    assert await VERBS[verb](model, "hi") == "hello"
    assert (up.keys, credential.refreshed) == ([NEW], 1)


@pytest.mark.parametrize("kind", ["tools", "structured", "chain", "bound", "options"])
@pytest.mark.parametrize("verb", ["invoke", "ainvoke"])
@each_provider
async def test_a_key_reaches_the_model_wherever_it_is(
    httpserver: HTTPServer, name: str, verb: str, kind: str
) -> None:
    """With tools bound, under a parser, inside a chain."""
    up, credential = Provider(httpserver, name, '{"setup": "knock"}', key=NEW), Refreshed()
    model: Any = FallbackChatModel(up.model(), alive(), credentials=[None])
    model = model.with_fallback_config(credentials=[credential])
    given: Any = "hi"
    if kind == "tools":
        model = model.bind_tools([look_up])
    elif kind == "structured":
        model = model.with_structured_output(Joke, include_raw=True)
    elif kind == "bound":
        model = FallbackChatModel(up.model().bind(stop=["x"]), credentials=[credential])
    elif kind == "options":
        model = model.with_fallback_config(agent="a").bind_tools([look_up])
    else:
        prompt = ChatPromptTemplate.from_template("{word}")
        model = with_fallback_config(
            prompt | up.model(), [RunnableLambda(str)], credentials=[credential]
        )
        given = {"word": "hi"}
    await (model.ainvoke(given) if verb == "ainvoke" else _invoked(model, given))
    assert (up.keys, credential.refreshed) == ([OLD, NEW], 1)


async def _invoked(model: Any, given: Any) -> Any:
    return model.invoke(given)


async def test_many_calls_refresh_once(httpserver: HTTPServer) -> None:
    """Five at once are refused, one refreshes, five are answered."""
    up, credential = Provider(httpserver, "anthropic", "hello", key=NEW), Awaited()
    model = FallbackChatModel(up.model(), alive(), credentials=[credential])
    answers = await asyncio.gather(*(model.ainvoke("hi") for _ in range(5)))
    assert [answer.text for answer in answers] == ["hello"] * 5
    assert credential.refreshed == 1


@pytest.mark.parametrize("verb", ["invoke", "ainvoke"])
@pytest.mark.parametrize("reset", ["iteration", "turn"])
@each_provider
async def test_an_agents_model_has_a_credential_too(
    httpserver: HTTPServer, name: str, reset: Any, verb: str
) -> None:
    """The first one is that of the agent's own model, the others are the fallbacks'."""
    up, credential = Provider(httpserver, name, "hello", key=NEW), Refreshed()
    middleware = FallbackMiddleware(alive(), reset=reset, credentials=[credential])
    assert last(await run(verb, agent(up.model(), middleware))).text == "hello"
    assert (up.keys, credential.refreshed) == ([OLD, NEW], 1)

    down = Provider(httpserver, "openai", status=503)
    second = Refreshed()
    up.headers.clear()
    middleware = FallbackMiddleware(up.model(), reset=reset).with_fallback_config(
        credentials=[None, second]
    )
    assert last(await run(verb, agent(down.model(), middleware))).text == "hello"
    assert (up.keys, second.refreshed) == ([OLD, NEW], 1)


@pytest.mark.parametrize("verb", ["invoke", "ainvoke", "stream", "astream"])
@each_provider
async def test_nobody_is_shown_a_key(
    httpserver: HTTPServer, name: str, verb: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Not callbacks, records, messages, logs, reprs, or what is written of the model."""
    caplog.set_level("DEBUG", "honcho_fallback")
    told, seen = Told(), list[str]()

    class Everything(BaseCallbackHandler):
        def on_chat_model_start(self, serialized: Any, messages: Any, **kwargs: Any) -> None:
            seen.append(repr((serialized, messages, kwargs)))

        def on_llm_error(self, error: BaseException, **kwargs: Any) -> None:
            seen.append(repr(kwargs))

        def on_llm_end(self, response: Any, **kwargs: Any) -> None:
            seen.append(repr((response, kwargs)))

    up = Provider(httpserver, name, "hello", key=NEW)
    credential = Refreshed()
    model = FallbackChatModel(
        up.model(api_key="own-secret"), alive(), credentials=[credential], observers=[told]
    )
    await VERBS[verb](model, "hi", {"callbacks": [Everything()]})
    assert up.requests == 2
    (record,) = told.records
    seen += [json.dumps(record.to_dict()), record.explain(), repr(record), caplog.text]
    seen += [repr(model.policy), repr(model.policy.targets), repr(model.options), repr(model)]
    for text in [*seen, dumps(model)]:
        assert not any(secret in text for secret in (OLD, NEW, "own-secret"))


def test_what_cannot_be_done_with_a_credential_is_said_at_once(httpserver: HTTPServer) -> None:
    """A model whose key nobody here can change, too many credentials, no credential at all."""
    credential = Refreshed()
    model = Provider(httpserver, "openai", "hello").model()
    with pytest.raises(FallbackConfigError, match=r"credentials\[1\]: how a ScriptedChat"):
        FallbackChatModel(model, alive(), credentials=[credential, credential])
    with pytest.raises(FallbackConfigError, match="credentials: there are more than candidates"):
        FallbackChatModel(model, credentials=[credential, credential])
    with pytest.raises(FallbackConfigError, match="credential"):
        FallbackChatModel(model, credentials=["key"])
    with pytest.raises(FallbackConfigError, match=r"credentials\[1\]"):
        FallbackMiddleware(alive(), credentials=[None, credential])
    FallbackMiddleware(alive(), credentials=[credential])  # the agent's own is not known yet


def test_the_users_model_keeps_its_key(httpserver: HTTPServer) -> None:
    """What is asked with another key is a copy."""
    up = Provider(httpserver, "anthropic", "hello", key=NEW)
    given = up.model(api_key=NEW)
    credential = Refreshed()
    FallbackChatModel(given, credentials=[credential]).invoke("hi")
    assert given.invoke("hi").text == "hello"
    assert up.keys == [OLD, NEW, NEW]
