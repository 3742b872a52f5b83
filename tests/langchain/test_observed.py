"""What observers hear of LangChain's calls, and what Langfuse's own handler no longer does."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
from langchain.agents import create_agent
from langchain_core.caches import InMemoryCache
from langchain_core.messages import HumanMessage
from langchain_core.output_parsers import StrOutputParser
from langchain_core.runnables import RunnableLambda

from honcho_fallback.testing import StatusError
from honcho_fallback_langchain import FallbackChatModel, FallbackMiddleware
from tests.helpers.chat_models import USAGE, ScriptedChat, with_fallbacks
from tests.helpers.chat_runs import Runs, ainvoke, astream, invoke, stream
from tests.helpers.observers import ContentListener, Listener
from tests.helpers.pairwise import in_pairs

if TYPE_CHECKING:
    from collections.abc import Iterator

    from honcho_fallback import CallStart


class StandIn(ContentListener):
    """Stand in for Langfuse's handlers, as the Langfuse adapter's handler does."""

    replaces_langfuse_callbacks = True

    def __init__(self) -> None:
        super().__init__()
        self.stood_for: list[tuple[list[object], object]] = []
        self.inside = False

    @contextmanager
    def in_place_of(self, handlers: list[object], parent_run_id: object) -> Iterator[None]:
        self.stood_for.append((handlers, parent_run_id))
        self.inside = True
        yield
        self.inside = False

    def on_start(self, call: CallStart) -> None:
        assert self.inside is bool(self.stood_for)
        super().on_start(call)


class OfLangfuse(Runs):
    """Be one of Langfuse's own handlers, as far as its module says."""


OfLangfuse.__module__ = "langfuse.langchain.CallbackHandler"


def broken() -> ScriptedChat:
    return ScriptedChat(model="broken", script=[[StatusError(503)]], temperature=0.1)


def healthy() -> ScriptedChat:
    return ScriptedChat(model="healthy", script=[["good ", "morning"]], temperature=0.7)


VERBS = {verb.__name__: verb for verb in (invoke, ainvoke, stream, astream)}


def told(heard: ContentListener, what: str) -> list[Any]:
    return [value for one in heard.contents if (value := getattr(one, what)) is not None]


@pytest.mark.parametrize("verb", VERBS)
async def test_an_observer_hears_input_parameters_output_and_usage(verb: str) -> None:
    """Each verb tells what was asked, each model's parameters, the answer, and what it cost."""
    heard = ContentListener()
    model = FallbackChatModel(broken(), healthy(), observers=[heard])
    await VERBS[verb](model, "hello")
    assert told(heard, "input") == ["hello"]
    assert told(heard, "parameters") == [{"temperature": 0.1}, {"temperature": 0.7}]
    (output,) = told(heard, "output")
    chunks = output if isinstance(output, tuple) else [output]
    assert "".join(chunk.text for chunk in chunks) == "good morning"
    assert heard.record.usage == USAGE


@pytest.mark.parametrize("verb", VERBS)
async def test_langfuse_does_not_hear_what_an_observer_reports(verb: str) -> None:
    """With a stand-in, Langfuse's handler hears of no attempt; every other handler still does."""
    stand_in, langfuse, other = StandIn(), OfLangfuse(), Runs()
    model = FallbackChatModel(broken(), healthy(), observers=[stand_in])
    await VERBS[verb](model, "hello", {"callbacks": [langfuse, other]})
    assert not langfuse.all
    assert len(other.all) == 3
    assert stand_in.stood_for == [([langfuse], None)]
    assert stand_in.record.outcome == "success"


def test_langfuse_hears_everything_where_nobody_stands_in() -> None:
    """Without a stand-in its handler is one like any other."""
    langfuse = OfLangfuse()
    model = FallbackChatModel(broken(), healthy(), observers=[Listener()])
    model.invoke("hello", {"callbacks": [langfuse]})
    assert len(langfuse.all) == 3


def test_the_stand_in_learns_whose_run_the_call_belongs_to() -> None:
    """Inside a chain the handler keeps the chain's run, and the stand-in is told its id."""
    stand_in, langfuse = StandIn(), OfLangfuse()
    model = FallbackChatModel(broken(), healthy(), observers=[stand_in])
    chain: Any = RunnableLambda(lambda text: [HumanMessage(text)]) | model
    chain.invoke("hello", {"callbacks": [langfuse]})
    sequence = next(run for run in langfuse.all.values() if run.parent is None)
    ((handlers, parent),) = stand_in.stood_for
    assert handlers == [langfuse]
    assert parent == sequence.id
    assert {run.name for run in langfuse.all.values()} == {"RunnableSequence", "RunnableLambda"}


WITH_A_CACHE: dict[str, Any] = {
    "a model": lambda models, observer: FallbackChatModel(*models, observers=[observer]),
    "chains": lambda models, observer: with_fallbacks(
        models[0] | StrOutputParser(), [models[1] | StrOutputParser()], observers=[observer]
    ),
    "an agent": lambda models, observer: create_agent(
        models[0], middleware=[FallbackMiddleware(models[1], observers=[observer])]
    ),
}


@in_pairs(kind=WITH_A_CACHE, verb=["invoke", "ainvoke"], primary=["down", "up"])
async def test_what_a_cache_repeats_costs_nothing(kind: str, verb: str, primary: str) -> None:
    """The answer's usage was paid for by the call that asked; the record of a hit has none."""
    cache, listener = InMemoryCache(), Listener()
    first = ScriptedChat(model="a", script=[[StatusError(503) if primary == "down" else "hi"]])
    models = [first, ScriptedChat(model="b", script=[["hi"]])]
    asked = [model.model_copy(update={"cache": cache}) for model in models]
    made = WITH_A_CACHE[kind](asked, listener)
    given: Any = {"messages": [HumanMessage("hello")]} if kind == "an agent" else "hello"
    for _ in range(2):
        _ = made.invoke(given) if verb == "invoke" else await made.ainvoke(given)
    assert len(models[primary == "down"].asked) == 1
    paid = None if kind == "chains" else USAGE  # its answer is a text
    assert [record.usage for record in listener.records] == [paid, None]


def test_a_stream_is_asked_for_its_usage_where_somebody_wants_to_know() -> None:
    """LangChain leaves it off at other addresses than OpenAI's; the user's own choice stays."""
    wanted: list[bool | None] = []

    class Switched(ScriptedChat):
        stream_usage: bool | None = None

        def _stream(self, *args: Any, **kwargs: Any) -> Any:
            wanted.append(self.stream_usage)
            yield from super()._stream(*args, **kwargs)

    listener = ContentListener()
    for observers, chosen in (([listener], None), ([listener], False), ([], None)):
        options = {} if chosen is None else {"stream_usage": chosen}
        model = Switched(script=[["yes"]], **options)
        list(FallbackChatModel(model, healthy(), observers=observers).stream("hello"))
    assert wanted == [True, False, None]


@pytest.mark.parametrize("asynchronous", [False, True])
async def test_an_agents_calls_are_reported_once_too(asynchronous: bool) -> None:
    """In an agent the middleware keeps Langfuse's handler from the model's runs, nothing else."""
    stand_in, langfuse = StandIn(), OfLangfuse()
    middleware = FallbackMiddleware(healthy(), observers=[stand_in])
    agent = create_agent(broken(), middleware=[middleware])
    given: Any = {"messages": [HumanMessage("hello")]}
    config: Any = {"callbacks": [langfuse]}
    if asynchronous:
        await agent.ainvoke(given, config)
    else:
        agent.invoke(given, config)
    assert langfuse.all
    assert not langfuse.models
    ((handlers, parent),) = stand_in.stood_for
    assert handlers == [langfuse]
    assert parent in langfuse.all
    assert told(stand_in, "parameters") == [{"temperature": 0.1}, {"temperature": 0.7}]
    assert stand_in.record.usage == USAGE
