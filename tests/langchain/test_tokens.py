"""Tokens that LangChain reports from inside a call: who sees them, when, and of which attempt."""

from __future__ import annotations

import asyncio
from contextlib import aclosing, closing
from contextvars import ContextVar
from functools import partial
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest
from langchain_core.callbacks import AsyncCallbackHandler, BaseCallbackHandler
from langchain_core.messages import AIMessageChunk
from langchain_core.runnables import RunnableLambda
from langchain_core.tracers.context import register_configure_hook
from langgraph.graph import START, MessagesState, StateGraph

from honcho_fallback import FallbackObserver, StreamInterrupted
from honcho_fallback.testing import StatusError
from honcho_fallback_langchain import FallbackChatModel, FallbackMiddleware, FallbackRunnable
from tests.helpers import wire
from tests.helpers.agents import agent
from tests.helpers.chat_models import ScriptedChat, alive, chat, dead, model_at
from tests.helpers.chat_runs import VERBS, Runs
from tests.helpers.idle_loop import IdleLoop
from tests.helpers.pairwise import in_turn
from tests.helpers.provider import Reply

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.helpers.provider import ProviderServer

HI = {"messages": [("user", "hi")]}


class Talking(ScriptedChat):
    """Stream inside of invoke, as ChatOpenAI(streaming=True) does."""

    streaming: bool = True


talking = partial(chat, kind=Talking, streaming=True)


class Console(BaseCallbackHandler):
    """Write each token as it comes, and count the ends, as StreamingStdOutCallbackHandler may."""

    def __init__(self, seen: list[str] | None = None) -> None:
        self.seen: list[str] = [] if seen is None else seen
        self.ends: list[str] = []

    def on_llm_new_token(self, token: Any, **_given: Any) -> None:
        self.seen.append(token)

    def on_llm_end(self, *_given: Any, **_kwargs: Any) -> None:
        self.ends.append("end")

    def on_llm_error(self, *_given: Any, **_kwargs: Any) -> None:
        self.ends.append("error")


class Queue(AsyncCallbackHandler):
    """Hand each token on in a task, as AsyncIteratorCallbackHandler does."""

    def __init__(self, seen: list[str]) -> None:
        self.seen = seen

    async def on_llm_new_token(self, token: Any, **_given: Any) -> None:
        self.seen.append(token)


async def messages(asked: Any, seen: list[str]) -> None:
    for chunk, _ in asked.stream(HI, stream_mode="messages"):
        seen.append(chunk.text)


async def amessages(asked: Any, seen: list[str]) -> None:
    async for chunk, _ in asked.astream(HI, stream_mode="messages"):
        seen.append(chunk.text)


async def events(asked: Any, seen: list[str]) -> None:
    async for event in asked.astream_events(HI):
        if event["event"] == "on_chat_model_stream":
            seen.append(event["data"]["chunk"].text)  # noqa: PERF401 # as above


async def events_v3(asked: Any, seen: list[str]) -> None:
    stream = asked.stream_events(HI, version="v3")
    for message in stream.messages:
        seen.extend(message.text)
    assert stream.output


async def aevents_v3(asked: Any, seen: list[str]) -> None:
    stream = await asked.astream_events(HI, version="v3")
    async for message in stream.messages:
        async for text in message.text:
            seen.append(text)  # noqa: PERF401 # what was seen before an error counts
    assert await stream.output()


def called_back(verb: str, handler: type[Any]) -> Any:
    """Return a reader of what a callback handler hears of a call."""

    async def read(asked: Any, seen: list[str]) -> None:
        await VERBS[verb](asked, HI, {"callbacks": [handler(seen)]})

    return read


async def queue_in_a_thread(asked: Any, seen: list[str]) -> None:
    await asyncio.to_thread(asked.invoke, HI, {"callbacks": [Queue(seen)]})


READERS: dict[str, Any] = {
    one.__name__: one
    for one in (messages, amessages, events, events_v3, aevents_v3, queue_in_a_thread)
} | {
    "console": called_back("invoke", Console),
    "aconsole": called_back("ainvoke", Console),
    "queue": called_back("ainvoke", Queue),
}

pytestmark = pytest.mark.filterwarnings("ignore::langchain_core._api.LangChainBetaWarning")


def by_middleware(*models: Any, **options: Any) -> Any:
    return agent(models[0], FallbackMiddleware(*models[1:], **options), tools=[])


def by_model(*models: Any, **options: Any) -> Any:
    return agent(FallbackChatModel(*models, **options), tools=[])


def by_nesting(*models: Any, **options: Any) -> Any:
    inner = FallbackChatModel(*models, **options)
    return agent(inner, FallbackMiddleware(talking("outer", "never")), tools=[])


def by_candidate(*models: Any, **options: Any) -> Any:
    return by_model(FallbackChatModel(dead("inner"), models[0]), *models[1:], **options)


AGENTS: dict[str, Any] = {
    "middleware": by_middleware,
    "model": by_model,
    "nested": by_nesting,
    "candidate": by_candidate,
}


@in_turn(kind=AGENTS, reader=READERS)
async def test_after_content_a_break_is_an_interruption(reader: str, kind: str) -> None:
    """What was shown stands in the error, and nobody is asked to say it again."""
    seen: list[str] = []
    backup = talking("backup", "never")
    primary = talking("primary", ["par", "tly", StatusError(503)])
    with pytest.raises(StreamInterrupted) as caught:
        await READERS[reader](AGENTS[kind](primary, backup), seen)
    assert [text for text in seen if text] == ["par", "tly"]
    assert "".join(chunk.text for chunk in caught.value.partial) == "partly"
    assert backup.asked == []


@in_turn(kind=AGENTS, reader=READERS)
async def test_a_whole_answer_is_shown_once_it_is_taken(reader: str, kind: str) -> None:
    """What validate refuses is shown to nobody, where the model does not stream."""
    seen: list[str] = []
    models = [chat(name, name, disable_streaming=True) for name in ("primary", "backup")]

    def validate(answer: Any) -> bool:
        message = getattr(answer, "result", [answer])[0]
        return bool(message.text == "backup")

    asked = AGENTS[kind](*models, validate=validate)
    await READERS[reader](asked, seen)
    shows_whole_answers = reader in {"messages", "amessages", "events_v3", "aevents_v3"}
    assert seen == (["backup"] if shows_whole_answers else [])


@pytest.mark.parametrize("verb", ["invoke", "ainvoke"])
@pytest.mark.parametrize("streaming", [True, False])
async def test_every_run_ends_once_whoever_listens(verb: str, streaming: bool) -> None:
    """A refused attempt's run is an error for those who show tokens, the taken one's an answer."""
    make = talking if streaming else chat
    model = FallbackChatModel(
        make("a", StatusError(503)), make("b", "", "no"), make("c", "yes"),
        validate=lambda answer: answer.text == "yes",
    )  # fmt: skip
    runs, written = Runs(), Console()
    await VERBS[verb](model, "hi", {"callbacks": [runs, written]})
    assert runs.check().ends == ["end"]
    assert [run.ends for run in runs.models] == [["error"], ["error"], ["end"]]
    assert written.ends == ["error", "error", "end"]
    assert "".join(written.seen) == ("yes" if streaming else "")


@pytest.mark.parametrize("verb", ["invoke", "ainvoke", "stream", "astream"])
async def test_the_runs_of_a_chain_end_before_it(verb: str) -> None:
    """What is held back of a chain's runs comes out in order, whether it failed or not."""
    late: Any = RunnableLambda(lambda answer: answer.text)

    def fail(_answer: Any) -> str:
        raise StatusError(503)

    runs = Runs()
    model = FallbackRunnable(
        chat("a", "", disable_streaming=True) | RunnableLambda(fail), talking("b", "yes") | late
    )
    assert await VERBS[verb](model, "hi", {"callbacks": [runs]}) == "yes"
    assert runs.check().ends == ["end"]
    assert [run.ends for run in runs.models] == [["error"], ["end"]]
    assert isinstance(runs.models[0].error, StatusError)


@pytest.mark.parametrize("reader", ["messages", "amessages", "console", "aconsole"])
async def test_what_is_shown_to_nobody_settles_nothing(reader: str) -> None:
    """A run that is tagged nostream may fail after its content, and the fallback is asked."""
    seen: list[str] = []
    hidden = talking("hidden", "secret").with_config(tags=["nostream"])

    def fail(_answer: Any) -> str:
        raise StatusError(503)

    model = FallbackRunnable(hidden | RunnableLambda(fail), talking("backup", ["from ", "backup"]))
    graph: Any = StateGraph(MessagesState)
    graph.add_node("say", lambda state: {"messages": [model.invoke(state["messages"])]})
    graph.add_edge(START, "say")
    await READERS[reader](graph.compile(), seen)
    assert [text for text in seen if text] == ["from ", "backup"]


_counting: ContextVar[Console | None] = ContextVar("counting", default=None)


@pytest.fixture(name="hooked")
def _hooked() -> Iterator[Console]:
    from langchain_core.tracers import context  # noqa: PLC0415 # its list is put back

    register_configure_hook(_counting, inheritable=True)
    written = Console()
    token = _counting.set(written)
    yield written
    _counting.reset(token)
    context._configure_hooks.pop()


@pytest.mark.parametrize("kind", AGENTS)
async def test_a_handler_that_langchain_adds_by_itself_hears_once(
    hooked: Console, kind: str
) -> None:
    """get_openai_callback and its kin are looked for in every manager, and added if missing."""
    AGENTS[kind](talking("primary", ["", StatusError(503)]), talking("backup", "yes")).invoke(HI)
    assert [text for text in hooked.seen if text] == ["yes"]
    assert hooked.ends.count("end") == 1


@pytest.mark.parametrize("partial", ["final", "replace"])
def test_a_handler_keeps_its_class_behind_the_gate(partial: Any) -> None:
    """LangChain looks for handlers by their class; what they are set to is set on themselves.

    A thread that an attempt has left behind may still speak, before the next is asked, too: that
    is shown to nobody, and settles nothing.
    """
    found: list[Any] = []

    def look(_given: Any, config: Any) -> str:
        found.extend(config["callbacks"].handlers)
        raise StatusError(503)

    class Late(FallbackObserver):
        def on_switch(self, _switch: Any) -> None:
            found[0].on_llm_new_token("late", run_id=uuid4())

    written = Console()
    backup: Any = RunnableLambda(lambda _: "backup")
    model: Any = FallbackRunnable(
        RunnableLambda(look), chat("down", StatusError(503)), backup,
        partial=partial, observers=[Late()],
    )  # fmt: skip
    assert model.invoke("hi", {"callbacks": [written]}) == "backup"
    (proxy,) = found
    assert isinstance(proxy, Console)
    assert (proxy == written, proxy is written) == (True, False)
    proxy.raise_error = True
    assert written.raise_error is True
    proxy.on_llm_new_token("late", run_id=uuid4())
    assert written.seen == []


async def test_a_refused_stream_ends_as_an_error() -> None:
    """A stream that broke without a word is an error for a console, the next one an answer."""
    broken = AIMessageChunk(content="", response_metadata={"finish_reason": "error"})
    model = FallbackChatModel(chat("a", broken), alive("b", "hel", "lo"))
    written, awritten = Console(), Console()
    for _ in model.stream("hi", {"callbacks": [written]}):
        pass
    async for _ in model.astream("hi", {"callbacks": [awritten]}):
        pass
    assert written.ends == awritten.ends == ["error", "end"]
    assert "".join(written.seen) == "".join(awritten.seen) == "hello"


async def test_who_leaves_an_answer_without_content_leaves_no_run_open() -> None:
    """Its chunks are handed out after the call has ended, and what was held back is told then."""
    model = FallbackChatModel(chat("a", ""))
    written, awritten = Console(), Console()
    with closing(model.stream("hi", {"callbacks": [written]})) as chunks:
        next(chunks)
    async with aclosing(model.astream("hi", {"callbacks": [awritten]})) as achunks:
        await anext(achunks)
    assert written.ends == awritten.ends == ["error"]


def thought(text: str) -> AIMessageChunk:
    return AIMessageChunk(content=[{"type": "thinking", "thinking": text, "index": 0}])


@in_turn(reader=READERS, kind=AGENTS)
async def test_nothing_of_a_failed_attempt_is_shown(
    providers: ProviderServer, reader: str, kind: str
) -> None:
    """A reader of an agent sees the tokens of the attempt that answered, each once, in order.

    A thought settles nothing: of an attempt that fails while it thinks nobody sees anything. A
    budget that went into thought is a failure, too.
    """
    thinker = providers.new("anthropic")
    thought_of = {"type": "thinking", "thinking": "hm, well", "signature": "s"}
    thinker.standing = Reply(body=wire.message_answer(thought_of, stop="max_tokens"))
    empty = talking("primary", ["", StatusError(503)])
    lost = talking("primary", [thought("hm"), thought("..."), StatusError(503)])
    for primary in (empty, lost, model_at(thinker)):
        seen: list[Any] = []
        await READERS[reader](AGENTS[kind](primary, talking("backup", ["from ", "backup"])), seen)
        texts = [text for text in seen if isinstance(text, str) and text]
        assert texts == ["from ", "backup"]
    assert len(thinker.requests) == 1


@pytest.mark.parametrize("kind", AGENTS)
@pytest.mark.parametrize("ends", ["with a word", "in thought"])
async def test_thoughts_are_handed_on_in_order(kind: str, ends: str) -> None:
    """With the first word, or, where an answer is nothing but thought, with its end."""
    words = ["so"] * (ends == "with a word")
    model = AGENTS[kind](talking("primary", [thought("a"), thought("b"), *words]), alive())
    chunks = [chunk async for chunk, _ in model.astream(HI, stream_mode="messages")]
    said = [one.get("thinking") or one.get("text") for chunk in chunks for one in blocks(chunk)]
    assert said == ["a", "b", *words]


def blocks(chunk: Any) -> list[Any]:
    if isinstance(chunk.content, str):
        return [{"text": chunk.content}] if chunk.content else []
    return list(chunk.content)


# Limits on silence, where tokens are read from inside of a call.


class Whole(ScriptedChat):
    """Answer at once, after a while."""

    async def _agenerate(self, *args: Any, **kwargs: Any) -> Any:
        await asyncio.sleep(30)
        return await super()._agenerate(*args, **kwargs)


def test_a_model_that_answers_at_once_has_no_first_token() -> None:
    """What does not stream is bounded by its timeout alone, whoever reads tokens."""
    whole = Whole(model="primary", script=[["whole"]], disable_streaming=True)
    made = agent(whole, FallbackMiddleware(alive(), first_token_timeout=10))

    async def read() -> str:
        chunks = made.astream(HI, stream_mode="messages")
        return "".join([chunk.text async for chunk, _ in chunks])

    # Its time passes only while nobody has work.
    with asyncio.Runner(loop_factory=IdleLoop) as runner:
        assert runner.run(read()) == "whole"
