"""Answers without an answer, and errors that never switch: each says whose fault it is."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from langchain.agents import create_agent
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage
from langchain_core.output_parsers import StrOutputParser
from langchain_core.runnables import RunnableLambda
from langgraph.errors import GraphBubbleUp, GraphInterrupt, ParentCommand
from langgraph.types import Command
from pydantic import ValidationError

from honcho_fallback import FailureKind, FallbackConfig, FallbackExhausted, StreamInterrupted
from honcho_fallback_langchain import FallbackChatModel, FallbackMiddleware, FallbackRunnable
from tests.helpers.agents import last, run
from tests.helpers.chat_models import (
    alive,
    candidate,
    chat,
    gemini,
    gpt,
    model_at,
    serve,
    with_fallbacks,
)
from tests.helpers.chat_runs import VERBS, Runs, parts_by
from tests.helpers.own_rules import of_provider
from tests.helpers.pairwise import in_turn
from tests.helpers.provider import Reply

if TYPE_CHECKING:
    from collections.abc import Callable

    from langchain_core.language_models import BaseChatModel
    from langchain_core.runnables import Runnable

    from tests.helpers.provider import ProviderServer, SeenRequest


_HEAD = {"id": "1", "object": "chat.completion", "created": 1, "model": "m"}
NULL: Any = {**_HEAD, "choices": None}
EMPTY: Any = {**_HEAD, "choices": []}
DOCUMENT: Any = {"error": {"message": "try again", "type": "server_error", "code": "server_error"}}
SIX = ["invoke", "ainvoke", "stream", "astream", "generate", "agenerate"]


def answering(providers: ProviderServer, body: Any) -> BaseChatModel:
    """Make a real model whose provider answers with status 200 and nothing that can be read."""
    provider = providers.new("openai")

    def answer(request: SeenRequest) -> Reply:
        return Reply(events=[]) if request.body.get("stream") else Reply(body=body)

    provider.standing = answer
    return model_at(provider)


async def ask(model: Runnable[Any, Any], verb: str, asked: Any) -> Any:
    """Ask by a verb, and return the answer or the last chunk."""
    return (await parts_by(verb, model, asked))[-1]


@pytest.mark.parametrize("verb", SIX)
@pytest.mark.parametrize("body", [NULL, DOCUMENT], ids=["null for choices", "an error"])
async def test_what_the_package_raises_about_an_answer_switches(
    providers: ProviderServer, body: Any, verb: str
) -> None:
    """Its exception says that there was no answer, or holds the provider's error document."""
    model = FallbackChatModel(answering(providers, body), alive())
    (failed, _) = (await ask(model, verb, "hi")).response_metadata["fallback"]["attempts"]
    is_document = body is DOCUMENT and "stream" not in verb
    assert failed["kind"] == ("server_error" if is_document else "malformed_response")


async def test_so_it_does_in_a_chain_and_in_an_agent(providers: ProviderServer) -> None:
    """Whatever stands around the model, its exception is the same.

    No choices are an IndexError, which means nothing else where a chat model raised it.
    """
    first, empty = answering(providers, NULL), answering(providers, EMPTY)
    for one in (first, empty):
        chain = FallbackRunnable(one | StrOutputParser(), alive() | StrOutputParser())
        assert chain.invoke("hi") == "from backup"
    for verb in ("invoke", "ainvoke", "generate"):
        assert (await ask(FallbackChatModel(empty, alive()), verb, "hi")).text == "from backup"
    for one in (first, empty):
        made = create_agent(one, middleware=[FallbackMiddleware(alive())])
        for verb in ("invoke", "ainvoke"):
            assert last(await run(verb, made)).text == "from backup"


class _OddMessage(BaseMessage):
    type: str = "odd"


class _Fails(BaseCallbackHandler):
    raise_error = run_inline = True

    def on_chat_model_start(self, *_: Any, **_run: Any) -> None:
        raise KeyError("a bug")


def _fails_for_key() -> str:
    raise KeyError("a bug")


def _key_from_function(model: Any) -> BaseChatModel:
    return gpt(base_url=model.openai_api_base, api_key=_fails_for_key)


def _first_of_none(_said: Any) -> Any:
    return list[Any]()[0]


LOCAL: dict[str, tuple[Callable[[BaseChatModel], Runnable[Any, Any]], Any, type[Exception]]] = {
    "a parser": (lambda model: model | RunnableLambda(_first_of_none), "hi", IndexError),
    "before the model": (lambda model: RunnableLambda(_first_of_none) | model, "hi", IndexError),
    "a callback": (lambda model: model.with_config(callbacks=[_Fails()]), "hi", KeyError),
    "a key's function": (_key_from_function, "hi", KeyError),
    "an input that is none": (lambda model: model, 3, ValueError),
    "a message that nobody knows": (lambda model: model, [_OddMessage(content="hi")], TypeError),
}


@pytest.mark.parametrize("where", LOCAL)
@pytest.mark.parametrize("verb", ["invoke", "ainvoke", "stream", "astream"])
async def test_a_mistake_of_the_program_stays_its_own(
    providers: ProviderServer, verb: str, where: str
) -> None:
    """The same errors raised by the user's own code, or for it, ask nobody else."""
    make, asked, kind = LOCAL[where]
    primary, backup = serve(providers, "openai", "a"), serve(providers, "openai", "b")
    chain = FallbackRunnable(make(model_at(primary)), make(model_at(backup)))
    with pytest.raises((kind, StreamInterrupted)) as raised:
        await ask(chain, verb, asked)
    error = raised.value
    cause = error.__cause__ if isinstance(error, StreamInterrupted) else error  # a word was out
    assert isinstance(cause, kind)
    assert len(backup.requests) == 0


SYSTEM = [SystemMessage("a"), HumanMessage("hi"), AIMessage("yes"), SystemMessage("b")]
SOUND = [HumanMessage([{"type": "audio", "base64": "aGk=", "mime_type": "audio/wav"}])]
REFUSED: dict[str, tuple[Any, dict[str, Any], type[Exception]]] = {
    "a system message in between": (SYSTEM, {}, ValueError),
    "sound": (SOUND, {}, ValueError),
    "a keyword": ("hi", {"logprobs": True}, TypeError),
    "a format": ("hi", {"response_format": {"type": "json_object"}}, AssertionError),
    "a keyword of Gemini's": ("hi", {"max_completion_tokens": 9}, ValidationError),
}


@pytest.mark.parametrize("case", REFUSED)
@pytest.mark.parametrize("verb", ["invoke", "ainvoke", "stream", "astream"])
async def test_what_an_integration_does_not_send_goes_to_the_next(
    providers: ProviderServer, verb: str, case: str
) -> None:
    """Its own code or its SDK's raises before a request: it lacks what is asked for, no rest."""
    asked, bound, kind = REFUSED[case]
    down, last = serve(providers, "openai", status=503), serve(providers, "openai", "heard")
    strict = serve(providers, "google" if kind is ValidationError else "anthropic", "no")
    model = gemini(base_url=strict.url) if kind is ValidationError else model_at(strict)
    refused: FallbackChatModel
    for models in ([model_at(down), model], [model]):
        refused = FallbackChatModel(*models, model_at(last))
        answer = await ask(refused.bind(**bound), verb, asked)
        marks = [one.get("kind") for one in answer.response_metadata["fallback"]["attempts"]]
        assert marks[-2:] == ["unsupported", None]
    assert not strict.requests
    refused = FallbackChatModel(model_at(down), model)
    with pytest.raises(FallbackExhausted) as exhausted:
        await ask(refused.bind(**bound), verb, asked)
    (_, last_attempt) = exhausted.value.record.attempts
    assert (last_attempt.kind, last_attempt.reached) == ("unsupported", "no")
    assert isinstance(exhausted.value.__cause__, kind)
    with pytest.raises(kind):  # nobody takes it: it comes out as it is
        await ask(FallbackChatModel(model).bind(**bound), verb, asked)


@pytest.mark.parametrize("verb", ["invoke", "ainvoke"])
async def test_so_it_does_in_an_agent(providers: ProviderServer, verb: str) -> None:
    """Its frames between the candidates and their models are none of the program's."""
    down, claude = serve(providers, "openai", status=503), serve(providers, "anthropic", "no")
    others = model_at(claude), model_at(serve(providers, "openai", "heard"))
    made = create_agent(model_at(down), middleware=[FallbackMiddleware(*others)])
    messages: Any = {"messages": [*SYSTEM, HumanMessage("hi")]}
    state = made.invoke(messages) if verb == "invoke" else await made.ainvoke(messages)
    assert state["messages"][-1].text == "heard"
    assert not claude.requests


@pytest.mark.parametrize("setting", [{"seed": 1}, {"user": "u"}])
async def test_a_setting_that_some_providers_know_costs_no_call_elsewhere(
    providers: ProviderServer, setting: dict[str, Any]
) -> None:
    """The primary gets it; Claude, which refuses it, is asked without."""
    down, claude = serve(providers, "openai", status=503), serve(providers, "anthropic", "heard")
    chain = FallbackChatModel(*map(model_at, (down, claude))).bind(**setting)
    assert (await chain.ainvoke("hi")).text == "heard"
    (name,) = setting
    assert name in down.requests[0].body
    assert name not in claude.requests[0].body


# What never switches, and whose an error of HTTP is.

SWITCHABLE = frozenset(FailureKind) - {FailureKind.CANCELLED}
ASKING = ["invoke", "ainvoke", "stream", "astream"]


INTERRUPTS: list[BaseException] = [
    GraphInterrupt(),
    GraphBubbleUp(),
    ParentCommand(Command(goto="x")),
]
SIGNALS: list[BaseException] = [KeyboardInterrupt(), SystemExit(1), asyncio.CancelledError()]


@in_turn(verb=ASKING, error=INTERRUPTS)
async def test_control_flow_never_switches(error: BaseException, verb: str) -> None:
    """Whatever the config says, a graph's interrupt comes out, and a stray StopIteration."""
    options: Any = {"fallback_on": SWITCHABLE, "rules": of_provider(Exception)}
    for raised in (error, StopIteration()) if verb == "invoke" else (error,):
        runs, backup = Runs(), alive()

        def raise_it(_asked: Any, raised: BaseException = raised) -> Any:
            raise raised

        model = FallbackRunnable(RunnableLambda(raise_it), backup, **options)
        config: Any = {"callbacks": [runs]}
        with pytest.raises(type(raised)):
            _ = model.invoke("hi", config) if verb == "invoke" else None
            await VERBS[verb](model, "hi", config)
        assert backup.asked == []
        assert runs.check().ends == ["error"]


@in_turn(verb=["invoke", "stream", "batch"], error=SIGNALS)
async def test_signals_never_switch(error: BaseException, verb: str) -> None:
    """Ctrl-C and an exit are for the program; the run is closed all the same."""
    runs = Runs()
    model: Any = FallbackChatModel(chat("primary", error), alive(), fallback_on=SWITCHABLE)
    config: Any = {"callbacks": [runs]}
    asked = getattr(model, verb)
    with pytest.raises(type(error)):
        [*asked(["hi"] if verb == "batch" else "hi", config)]
    assert candidate(model, 1).asked == []
    (root,) = runs.roots
    assert root.ends == ["error"]


@pytest.mark.parametrize("verb", ["ainvoke", "astream", "abatch"])
async def test_a_cancellation_of_something_below_is_no_cancelled_call(verb: str) -> None:
    """Nobody cancelled the task: the backup is asked, though LangChain takes it for an answer."""
    model: Any = FallbackChatModel(chat("primary", asyncio.CancelledError()), alive())
    assert await VERBS[verb](model, "hi") == "from backup"


PAGE = httpx.Request("GET", "https://gateway.example/run")


def down() -> httpx.ConnectError:
    return httpx.ConnectError("All connection attempts failed", request=PAGE)


@pytest.mark.parametrize("bound", [False, True])
@pytest.mark.parametrize("own", [None, FallbackConfig(timeout=5)])
def test_a_chat_models_own_client_is_the_models(bound: bool, own: Any) -> None:
    """In-house chat models talk to gateways of any address; a config for the call leaves it so."""
    primary: Any = chat("primary", down())
    model = with_fallbacks(primary.bind(stop=["."]) if bound else primary, [alive()])
    config: Any = {"configurable": {"fallback_config": own}} if own else {}
    assert isinstance(model.invoke("hi", config), AIMessage)


def test_a_chain_may_ask_another_service() -> None:
    """What a step of it asks over HTTP is looked at as anywhere else."""

    def look_up(_: Any) -> Any:
        raise down()

    asking, backup = RunnableLambda(look_up), alive()
    with pytest.raises(httpx.ConnectError):
        with_fallbacks(asking | chat("primary", "hi"), [backup]).invoke("hi")
    assert backup.asked == []
    assert with_fallbacks(asking, [backup], only_models=True).invoke("hi").text == "from backup"
