"""Streams: who may be asked until when, what is seen of a failed one, and how they end.

Also of the tokens that LangChain reports from inside a call: who sees them, and when.
"""

from __future__ import annotations

import asyncio
from contextlib import aclosing, closing
from contextvars import ContextVar
from functools import partial
from itertools import takewhile
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest
from langchain_core.callbacks import AsyncCallbackHandler, BaseCallbackHandler
from langchain_core.messages import AIMessage, AIMessageChunk, HumanMessage
from langchain_core.messages.ai import add_ai_message_chunks
from langchain_core.output_parsers import StrOutputParser
from langchain_core.runnables import RunnableGenerator, RunnableLambda
from langchain_core.tracers.context import register_configure_hook
from langgraph.graph import START, MessagesState, StateGraph

from honcho_fallback import (
    FallbackObserver,
    FallbackPolicy,
    StreamInterrupted,
    Target,
    check_response,
    classify,
    read_answer,
)
from honcho_fallback.testing import StatusError
from honcho_fallback_langchain import FallbackChatModel, FallbackMiddleware, FallbackRunnable
from honcho_fallback_langchain._outputs import has_content
from tests.helpers import agents, speakers, wire
from tests.helpers.agents import agent, by
from tests.helpers.chat_models import (
    USAGE,
    ScriptedChat,
    alive,
    candidate,
    chat,
    claude,
    dead,
    gemini,
    gpt,
    groq,
    look_up,
    mistral,
    model_at,
)
from tests.helpers.chat_runs import VERBS, Runs, parts_by
from tests.helpers.idle_loop import IdleLoop
from tests.helpers.pairwise import in_turn
from tests.helpers.provider import Reply

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

    from honcho_fallback import Attempt
    from tests.helpers.provider import ProviderServer
# The third version of the events is in beta.
pytestmark = pytest.mark.filterwarnings("ignore::langchain_core._api.LangChainBetaWarning")

STREAMS = ["stream", "astream"]
WHERE: ContextVar[str] = ContextVar("where", default="unset")
PIECE: Any = {"name": "look", "args": "", "id": "1", "index": 0}


def summed(chunks: list[AIMessageChunk]) -> AIMessageChunk:
    first, *others = chunks
    return add_ai_message_chunks(first, *others)


@pytest.mark.parametrize("verb", STREAMS)
async def test_nothing_of_a_failed_stream_is_seen(verb: str) -> None:
    """Its empty chunks are held back, so one message comes out, with one id and one end.

    The mark stands on the last chunk alone: two would be merged into something wrong. The run
    ends with the sum, so that tracers show what was said, with the usage.
    """
    runs = Runs()
    model = FallbackChatModel(chat("primary", ["", StatusError(503)]), alive())

    chunks = await parts_by(verb, model, "hi", {"callbacks": [runs]})

    assert len({chunk.id for chunk in chunks}) == 1
    assert [chunk.chunk_position for chunk in chunks].count("last") == 1
    assert chunks[-1].chunk_position == "last"
    assert (candidate(model, 0).closed, candidate(model, 1).closed) == (["left"], ["whole"])
    assert ["fallback" in chunk.response_metadata for chunk in chunks].count(True) == 1
    for whole in (summed(chunks), runs.check().output):
        assert isinstance(whole, AIMessageChunk)
        assert (whole.text, whole.usage_metadata) == ("from backup", USAGE)
        told = whole.response_metadata["fallback"]
        assert (told["is_fallback"], told["model"]) == (True, "backup")
        targets = [one["target"] for one in told["attempts"]]
        assert targets == ["scripted/primary", "scripted/backup"]


@pytest.mark.parametrize(
    ("chunk", "says"),
    [
        (AIMessageChunk(content="", usage_metadata=USAGE), False),
        (AIMessageChunk(content=[{"type": "thinking", "thinking": "hm", "index": 0}]), False),
        (AIMessageChunk(content="a"), True),
        (AIMessageChunk(content="", tool_call_chunks=[PIECE]), True),
        (AIMessage(content=""), True),
        ("", False),
        ({}, False),
        ({"a": 1}, True),
        (0, True),
        (False, True),
        (None, False),
    ],
    ids=repr,
)
def test_what_counts_as_content(chunk: Any, says: bool) -> None:
    """What the core's reader says of chunks; what a chain makes of an answer is whole."""
    assert has_content(chunk) is says


def nothing(_text: Any) -> Iterator[Any]:
    yield from ()


async def anothing(_text: Any) -> AsyncIterator[Any]:
    for one in list[Any]():
        yield one


@pytest.mark.parametrize("verb", STREAMS)
async def test_an_empty_stream_is_an_answer(verb: str, providers: ProviderServer) -> None:
    """A chain that has nothing to say has said it; the fallback is not asked for more.

    Of a model's the chunks are held back to the end of the call, and say who gave them.
    """
    asked: list[str] = []
    runs = Runs()
    empty = RunnableGenerator(nothing, anothing)
    chain = FallbackRunnable(empty, RunnableLambda(asked.append))
    assert await parts_by(verb, chain, "hi", {"callbacks": [runs]}) == []
    assert asked == []
    assert runs.check().ends == ["end"]

    provider = providers.new("openai")
    provider.reply(Reply(text=""))
    answer = summed(await parts_by(verb, FallbackChatModel(model_at(provider), alive()), "hi"))
    assert (answer.text, answer.response_metadata["finish_reason"]) == ("", "stop")
    assert answer.response_metadata["fallback"]["is_fallback"] is False


@pytest.mark.parametrize("verb", STREAMS)
async def test_a_context_variable_set_by_a_candidate_stays_to_its_end(verb: str) -> None:
    """Every chunk is made in one context; OpenTelemetry's spans rest on that."""
    tokens: list[Any] = []
    seen: list[str] = []

    def begin() -> None:
        tokens.append(WHERE.set("generator"))

    def note() -> None:
        seen.append(WHERE.get())

    def end() -> None:
        WHERE.reset(tokens.pop())  # raises in another context

    backup = chat("backup", [begin, "a", note, "b", note, end])
    assert await VERBS[verb](FallbackChatModel(dead(), backup), "hi") == "ab"
    assert (seen, tokens, backup.closed) == (["generator"] * 2, [], ["whole"])


@pytest.mark.parametrize("verb", VERBS)
async def test_a_context_variable_of_the_caller_is_seen_by_every_candidate(verb: str) -> None:
    """In threads and tasks of a batch as well."""
    seen: list[str] = []

    def note() -> None:
        seen.append(WHERE.get())

    model = FallbackChatModel(chat("a", [note, StatusError(503)]), chat("b", [note, "yes"]))
    token = WHERE.set("caller")
    assert await VERBS[verb](model, "hi") == "yes"
    WHERE.reset(token)
    assert seen == ["caller", "caller"]


@pytest.mark.parametrize("verb", STREAMS)
async def test_a_stream_that_may_be_replaced_goes_on(verb: str) -> None:
    """Each attempt is a message of its own, whose first chunk says what it takes the place of."""
    runs = Runs()
    model = FallbackChatModel(
        chat("a", ["par", "tly", StatusError(503)]), chat("b", ["", StatusError(503)]),
        chat("c", ["al", "most", StatusError(503)]), alive("d"), partial="replace",
    )  # fmt: skip
    for config in ({"callbacks": [runs]}, None):
        chunks = await parts_by(verb, model, "hi", config)
        ids = list(dict.fromkeys(chunk.id for chunk in chunks))
        parts = [[chunk for chunk in chunks if chunk.id == one] for one in ids]
        assert [summed(part).text for part in parts] == ["partly", "almost", "from d"]
        marks = [part[0].response_metadata.get("fallback") for part in parts]
        assert marks == [None, {"replaces": [ids[0]]}, {"replaces": [ids[1]]}]
        marked = chunks[-1].response_metadata["fallback"]
        assert (marked["model"], len(marked["attempts"])) == ("d", 4)
        whole = summed(chunks)
        assert whole.response_metadata["fallback"] == {**marked, "replaces": ids[:2]}
        assert summed(parts[-1]).usage_metadata == USAGE
    root = runs.check()
    assert (root.output.text, root.output.usage_metadata) == ("from d", USAGE)


@pytest.mark.parametrize("verb", STREAMS)
async def test_chunks_that_cannot_say_what_they_replace_are_final(verb: str) -> None:
    """A text has no place for it, so its stream ends where it breaks, whatever the option says."""
    chain = chat("primary", ["par", StatusError(503)]) | StrOutputParser()
    again: Any = RunnableLambda(lambda _: "again")
    model = FallbackRunnable(chain, again, partial="replace")
    with pytest.raises(StreamInterrupted) as caught:
        await parts_by(verb, model, "hi")
    assert "".join(caught.value.partial) == "par"


@pytest.mark.parametrize("streams", [True, False])
@pytest.mark.parametrize("verb", ["stream_events", "astream_events"])
async def test_a_stream_of_events_says_who_answered(verb: str, streams: bool) -> None:
    """The answer that LangChain puts together from its third version carries the mark."""
    model = FallbackChatModel(dead(), chat("backup", "yes", disable_streaming=not streams))
    if verb == "stream_events":
        answer = model.stream_events("hi", version="v3").output
    else:
        answer = await (await model.astream_events("hi", version="v3"))
    assert answer.text == "yes"
    fallback = answer.response_metadata["fallback"]
    assert (fallback["is_fallback"], fallback["model"]) == (True, "backup")


async def test_a_stream_inside_of_a_run_is_closed_with_it() -> None:
    """LangChain's own run abandons it: the connection is not left to the garbage collector."""
    primary = alive("a", "word ", "word ")
    stream: Any = FallbackChatModel(primary)._astream([HumanMessage("hi")])
    await anext(stream)
    await stream.aclose()
    assert primary.closed == ["left"]


# How the streams of LangChain's integrations end, and what becomes of one that does not.


def responses(**fields: Any) -> Any:
    return gpt(use_responses_api=True, **fields)


def responses_in_v1(**fields: Any) -> Any:
    return responses(output_version="v1", **fields)


# Who is asked, in whose form, and in which event it says how its stream ended.
CHAT = wire.CHAT, speakers.Chat(), '"finish_reason": "stop"'
RESPONSES = wire.RESPONSES, speakers.Responses(), "response.completed"
MODELS: dict[str, tuple[Callable[..., Any], wire.Form, Any, str]] = {
    "openai": (gpt, *CHAT),
    "responses": (responses, *RESPONSES),
    "responses in v1": (responses_in_v1, *RESPONSES),
    "anthropic": (claude, wire.MESSAGES, speakers.Claude(), "message_delta"),
    "gemini": (gemini, wire.GEMINI, speakers.Gemini(), '"finishReason"'),
    "groq": (groq, *CHAT),
    "mistral": (mistral, *CHAT),
}


def events_of(form: wire.Form, error: Any = None) -> list[str]:
    return form.events(form.answer("hello you", "m", True), {}, error)


def serving(providers: ProviderServer, make: Callable[..., Any], events: list[str]) -> Any:
    provider = providers.new("streams")
    provider.standing = Reply(events=events)
    retries = {"max_retries": 1} if make is gemini else {}  # the first request counts
    return make(base_url=provider.url, **retries)


async def read(model: Any, way: str) -> list[Any]:
    """Read a model's chunks: over its public verbs, or as the integration yields them."""
    if way == "yielded":
        return list(model._stream([HumanMessage("hi")]))
    return await parts_by(way, model, "hi")


@pytest.mark.filterwarnings("ignore:Inheritance class AiohttpClientSession:DeprecationWarning")
@pytest.mark.parametrize("way", ["stream", "astream", "yielded"])
@pytest.mark.parametrize("name", MODELS)
async def test_a_whole_stream_passes_and_one_without_its_end_does_not(
    providers: ProviderServer, name: str, way: str
) -> None:
    """Each integration says in its chunks who it is and how the stream ended, or did not.

    Mistral's passes an error event over: what is left is a stream without its end, too. A stream
    that ends with a call has an end.
    """
    make, form, speaker, end = MODELS[name]
    events = events_of(form)
    whole = await read(serving(providers, make, events), way)
    assert check_response(whole) is None
    assert read_answer(whole).finish_reason
    ends = [[*takewhile(lambda event: end not in event, events)]]
    if make is mistral:
        ends.append(events_of(form, form.error("busy", "server_error")))
    for sent in ends:
        broken = check_response(await read(serving(providers, make, sent), way))
        assert broken is not None
        assert (broken.kind, broken.switchable) == ("malformed_response", True)
    if way != "yielded":
        calling = serving(providers, make, form.events(speaker.calls({}), {}, None))
        called = await read(calling.bind_tools([look_up]), way)
        assert any(chunk.tool_call_chunks for chunk in called)
        assert check_response(called) is None


ERROR = '{"error": {"message": "busy"}}'


@pytest.mark.parametrize("make", [gpt, responses, claude, groq, mistral])
@pytest.mark.parametrize("events", [[], ["data: [DONE]"], [ERROR]], ids=["none", "done", "json"])
def test_a_stream_without_an_event_switches(
    providers: ProviderServer, make: Callable[..., Any], events: list[str]
) -> None:
    """An error document or nothing under HTTP 200 is no answer, whoever finds out."""
    model = serving(providers, make, events)
    with pytest.raises(ValueError, match="No generation chunks") as caught:
        list(model.stream("hi"))
    assert classify(caught.value).kind == "malformed_response"
    backup = serving(providers, gpt, events_of(wire.CHAT))
    clients = [model, backup]

    def ask(attempt: Attempt) -> Any:
        return clients[attempt.position].stream("hi")

    policy = FallbackPolicy([Target("primary"), Target("backup")], max_attempts=2)
    assert "".join(chunk.text for chunk in policy.stream(ask)) == "hello you"


# Tokens that LangChain reports from inside a call: who sees them, when, of which attempt.


HI = {"messages": [("user", "hi")]}


talking = partial(chat, streaming=True)  # inside of invoke, too, as ChatOpenAI may


def fail(_answer: Any) -> str:
    raise StatusError(503)


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


def over(way: str, *models: Any, **options: Any) -> Any:
    return agent(*by(way, *models, **options), tools=[])


def by_nesting(*models: Any, **options: Any) -> Any:
    inner = FallbackChatModel(*models, **options)
    return agent(inner, FallbackMiddleware(talking("outer", "never")), tools=[])


def by_candidate(*models: Any, **options: Any) -> Any:
    inner = FallbackChatModel(dead("inner"), models[0])
    return over("chat model", inner, *models[1:], **options)


AGENTS: dict[str, Any] = {
    "middleware": partial(over, "middleware"),
    "model": partial(over, "chat model"),
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


@pytest.mark.parametrize("verb", ["invoke", "ainvoke", *STREAMS])
@pytest.mark.parametrize("streaming", [True, False])
async def test_every_run_ends_once_whoever_listens(verb: str, streaming: bool) -> None:
    """A refused attempt's run is an error for those who show tokens, the taken one's an answer.

    Of a stream what broke without a word is refused.
    """
    make = talking if streaming else chat
    broken = AIMessageChunk(content="", response_metadata={"finish_reason": "error"})
    model = FallbackChatModel(
        make("a", StatusError(503)), make("b", broken if verb in STREAMS else ""),
        make("c", "yes"), validate=lambda answer: answer.text == "yes",
    )  # fmt: skip
    runs, written = Runs(), Console()
    await VERBS[verb](model, "hi", {"callbacks": [runs, written]})
    assert runs.check().ends == ["end"]
    assert [run.ends for run in runs.models] == [["error"], ["error"], ["end"]]
    assert written.ends == ["error", "error", "end"]
    assert "".join(written.seen) == ("yes" if streaming or verb in STREAMS else "")


@pytest.mark.parametrize("verb", ["invoke", "ainvoke", "stream", "astream"])
async def test_the_runs_of_a_chain_end_before_it(verb: str) -> None:
    """What is held back of a chain's runs comes out in order, whether it failed or not."""
    late: Any = RunnableLambda(lambda answer: answer.text)
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
    said = [chunk.content async for chunk, _ in model.astream(HI, stream_mode="messages")]
    assert [one for one in said if one] == [thought("a").content, thought("b").content, *words]


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
    # Its time passes only while nobody has work.
    with asyncio.Runner(loop_factory=IdleLoop) as runner:
        parts = runner.run(agents.stream("ainvoke", made, "messages"))
    assert "".join(chunk.text for chunk, _ in parts) == "whole"
