"""Streams: who may be asked until when, what is seen of a failed one, and how they end."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from langchain_core.messages import AIMessage, AIMessageChunk, HumanMessage
from langchain_core.messages.ai import add_ai_message_chunks
from langchain_core.output_parsers import StrOutputParser
from langchain_core.outputs import ChatGenerationChunk
from langchain_core.runnables import RunnableGenerator, RunnableLambda

from honcho_fallback import (
    FallbackPolicy,
    StreamInterrupted,
    Target,
    check_response,
    classify,
    read_answer,
)
from honcho_fallback.testing import StatusError
from honcho_fallback_langchain import FallbackChatModel, FallbackRunnable
from honcho_fallback_langchain._outputs import has_content
from tests.helpers import wire
from tests.helpers.chat_models import (
    USAGE,
    WHERE,
    Setting,
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
from tests.helpers.provider import Reply

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

    from honcho_fallback import Attempt
    from tests.helpers.provider import ProviderServer


STREAMS = ["stream", "astream"]
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
async def test_an_empty_stream_is_an_answer(verb: str) -> None:
    """A chain that has nothing to say has said it; the fallback is not asked for more."""
    asked: list[str] = []
    runs = Runs()
    empty = RunnableGenerator(nothing, anothing)
    model = FallbackRunnable(empty, RunnableLambda(asked.append))

    assert await parts_by(verb, model, "hi", {"callbacks": [runs]}) == []
    assert asked == []
    assert runs.check().ends == ["end"]


@pytest.mark.parametrize("verb", STREAMS)
async def test_a_model_that_says_nothing_has_answered(
    verb: str, providers: ProviderServer
) -> None:
    """Its chunks are held back to the end of the call, and say all the same who gave them."""
    provider = providers.new("openai")
    provider.reply(Reply(text=""))
    answer = summed(await parts_by(verb, FallbackChatModel(model_at(provider), alive()), "hi"))
    assert (answer.text, answer.response_metadata["finish_reason"]) == ("", "stop")
    assert answer.response_metadata["fallback"]["is_fallback"] is False


@pytest.mark.parametrize("verb", STREAMS)
async def test_a_context_variable_set_by_a_candidate_stays_to_its_end(verb: str) -> None:
    """Every chunk is made in one context; OpenTelemetry's spans rest on that."""
    setting = Setting(model="backup", script=[["a", "b"]])

    await parts_by(verb, FallbackChatModel(dead(), setting), "hi")

    assert setting.closed == [*["generator"] * 4, "reset", "whole"]


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
@pytest.mark.filterwarnings("ignore::langchain_core._api.LangChainBetaWarning")
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


NULL = (
    '{"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": null}'
)
ERROR = '{"error": {"code": 503, "message": "busy", "status": "UNAVAILABLE"}}'


@pytest.mark.filterwarnings("ignore:Inheritance class AiohttpClientSession:DeprecationWarning")
@pytest.mark.parametrize("verb", ["stream", "astream", "invoke", "ainvoke"])
@pytest.mark.parametrize(("make", "sent"), [(gpt, NULL), (gemini, ERROR)])
async def test_a_good_status_over_nothing_is_no_answer(
    providers: ProviderServer, verb: str, make: Any, sent: str
) -> None:
    """Null for choices, or Gemini's error document: the fallback is asked."""
    provider = providers.new("openai")
    provider.standing = Reply(events=[sent])
    primary = make(base_url=provider.url, max_retries=1, streaming=True)  # in invoke, too
    assert await VERBS[verb](FallbackChatModel(primary, alive()), "hi") == "from backup"


async def test_a_stream_inside_of_a_run_is_closed_with_it() -> None:
    """LangChain's own run abandons it: the connection is not left to the garbage collector."""
    closed: list[str] = []

    class Endless(type(alive())):  # type: ignore[misc] # a fake that speaks on
        async def _astream(self, *_: Any, **__: Any) -> Any:
            try:
                while True:
                    yield ChatGenerationChunk(message=AIMessageChunk(content="word "))
            finally:
                closed.append("closed")

    model = FallbackChatModel(Endless(model="a"), alive())
    stream: Any = model._astream([HumanMessage("hi")])
    await anext(stream)
    await stream.aclose()
    assert closed == ["closed"]


# How the streams of LangChain's integrations end, and what becomes of one that does not.


def responses(**fields: Any) -> Any:
    return gpt(use_responses_api=True, **fields)


def responses_in_v1(**fields: Any) -> Any:
    return responses(output_version="v1", **fields)


# Who is asked, the form that it speaks, and in which event it says how its stream ended.
MODELS: dict[str, tuple[Callable[..., Any], wire.Form, str]] = {
    "openai": (gpt, wire.CHAT, '"finish_reason": "stop"'),
    "responses": (responses, wire.RESPONSES, "response.completed"),
    "responses in v1": (responses_in_v1, wire.RESPONSES, "response.completed"),
    "anthropic": (claude, wire.MESSAGES, "message_delta"),
    "gemini": (gemini, wire.GEMINI, '"finishReason"'),
    "groq": (groq, wire.CHAT, '"finish_reason": "stop"'),
    "mistral": (mistral, wire.CHAT, '"finish_reason": "stop"'),
}
Json = dict[str, Any]


def events_of(form: wire.Form) -> list[str]:
    return form.events(form.answer("hello you", "m", True), {}, None)


def cut(events: list[str], end: str) -> list[str]:
    """Leave out the event that says how the stream ended, and what follows."""
    last = next(place for place, event in enumerate(events) if end in event)
    return events[:last]


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
    """Each integration says in its chunks who it is and how the stream ended, or did not."""
    make, form, end = MODELS[name]
    events = events_of(form)
    whole = await read(serving(providers, make, events), way)
    assert check_response(whole) is None
    assert read_answer(whole).finish_reason
    broken = check_response(await read(serving(providers, make, cut(events, end)), way))
    assert broken is not None
    assert (broken.kind, broken.switchable) == ("malformed_response", True)


CALL: Json = wire.chat_call("c1", "look_up", {"city": "Oslo"})


@pytest.mark.parametrize(
    ("make", "form", "answer"),
    [
        (gpt, wire.CHAT, wire.chat_answer(None, CALL)),
        (groq, wire.CHAT, wire.chat_answer(None, CALL)),
        (mistral, wire.CHAT, wire.chat_answer(None, CALL)),
        (claude, wire.MESSAGES, wire.message_answer(wire.tool_use("c1", "look_up", {}))),
        (gemini, wire.GEMINI, wire.gemini_answer(wire.function_call("look_up", {}))),
    ],
    ids=["openai", "groq", "mistral", "anthropic", "gemini"],
)
def test_a_whole_tool_call_passes(
    providers: ProviderServer, make: Callable[..., Any], form: wire.Form, answer: Json
) -> None:
    """A stream that ends with a call has an end, too."""
    model = serving(providers, make, form.events(answer, {}, None))
    chunks = list(model.bind_tools([look_up]).stream("hi"))
    assert any(chunk.tool_call_chunks for chunk in chunks)
    assert check_response(chunks) is None


ERROR_EVENT = f"data: {json.dumps({'error': {'message': 'busy', 'code': 503}})}"


@pytest.mark.parametrize("make", [gpt, responses, claude, groq, mistral])
@pytest.mark.parametrize(
    "events", [[], ["data: [DONE]"], [ERROR_EVENT[6:]]], ids=["none", "done", "json"]
)
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


def test_mistrals_error_event_is_no_end(providers: ProviderServer) -> None:
    """The integration passes an error event over: what is left is a stream without its end."""
    form = wire.CHAT
    error = form.error("busy", "server_error")
    events = form.events(form.answer("hello you", "m", True), {}, error)
    broken = check_response(list(serving(providers, mistral, events).stream("hi")))
    assert broken is not None
    assert broken.kind == "malformed_response"
