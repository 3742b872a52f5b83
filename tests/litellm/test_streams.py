"""Streams: another target until the first content, never after it."""

from __future__ import annotations

import json
from contextlib import nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any

import litellm
import openai
import pytest

from honcho_fallback import AnswerRejected, FallbackPolicy, Target, classify
from honcho_fallback_litellm._responses import events_of
from tests.helpers import wire
from tests.helpers.litellm_runs import ASKED, ask_in, run_async, text_of
from tests.helpers.observers import ContentListener
from tests.helpers.provider import Reply
from tests.helpers.wire import CHAT_USAGE, COUNTS, MESSAGE_COUNTS
from tests.helpers.wire import chat_word as word

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


MESSAGES = [{"role": "user", "content": "hello"}]


NO_CONTENT = word("")
OVERLOADED = wire.event(wire.anthropic_error("Overloaded", "overloaded_error"), "error")


def error_event(kind: str, code: str | None = None) -> str:
    """Write an error into a stream."""
    return wire.event(wire.openai_error(kind=kind, code=code))


def needs_the_proxys_packages() -> None:
    """Skip where LiteLLM's streams of Messages lack what they import."""
    for needed in ("soundfile", "backoff"):
        pytest.importorskip(needed, reason="one of the Proxy's packages")


def test_a_stream_that_works_is_left_alone(bench: Any, ask: Any) -> None:
    """The caller gets LiteLLM's own class of stream and each of its chunks.

    What it cost is asked for, for the record, and not shown to a caller who did not ask. LiteLLM
    makes classes inside its calls; one of ours for each would never be let go.
    """
    router, listener = bench.managed()
    chunks: list[Any] = []
    stream = ask(router, received=chunks, stream=True)
    assert isinstance(stream, litellm.CustomStreamWrapper)
    assert text_of(chunks) == "hello from primary"
    assert chunks[-1].choices[0].finish_reason == "stop"
    assert bench.order == ["primary"]
    record = listener.record
    assert record.outcome == "success"
    assert record.time_to_first_token is not None
    assert stream._hidden_params["fallback"] == record.to_dict()
    assert bench["primary"].requests[0].body["stream_options"] == {"include_usage": True}
    assert record.usage is not None
    assert record.usage["total_tokens"] == CHAT_USAGE["total_tokens"]
    assert all(chunk.choices[0].delta or chunk.choices[0].finish_reason for chunk in chunks)
    assert [getattr(chunk, "usage", None) for chunk in chunks] == [None] * len(chunks)
    assert type(ask(router, received=[], stream=True)) is type(stream)


PAGE = "<html><h1>Sign in</h1></html>"
# For a stream that says nothing LiteLLM makes up a stop, as at the end of an empty answer.
PRE_CONTENT: dict[str, tuple[str, dict[str, Any]]] = {
    "refused": ("overloaded", {"status": 529}),
    "cut before any chunk": ("connection", {"events": [], "cut": True}),
    "cut after the role": ("connection", {"events": [NO_CONTENT], "cut": True}),
    "error event": ("server_error", {"events": [NO_CONTENT, error_event("server_error")]}),
    "quota event": (
        "quota",
        {"events": [error_event("insufficient_quota", "insufficient_quota")]},
    ),
    "nothing": ("malformed_response", {"events": []}),
    "the end alone": ("malformed_response", {"events": ["data: [DONE]"]}),
    "a page": ("malformed_response", {"events": [PAGE]}),
    "an error in JSON": ("malformed_response", {"events": [json.dumps(wire.openai_error())]}),
}


@pytest.mark.parametrize("name", PRE_CONTENT)
@pytest.mark.parametrize("asked", [{}, {"stream_options": {"include_usage": True}}])
def test_a_stream_that_breaks_before_content_is_the_backups(
    name: str, asked: Any, bench: Any, ask: Any
) -> None:
    """(1), (8) Once; nobody sees a chunk of the failed attempt, and headers say who answers."""
    kind, reply = PRE_CONTENT[name]
    bench["primary"].reply(Reply(**reply))
    router, listener = bench.managed()
    chunks: list[Any] = []
    stream = ask(router, received=chunks, stream=True, **asked)
    assert text_of(chunks) == "hello from backup"
    assert bench.order == ["primary", "backup"]
    assert listener.kinds == [kind, None]
    assert listener.record.usage["total_tokens"] == CHAT_USAGE["total_tokens"]
    assert len(listener.switches) == 1
    assert stream._hidden_params["fallback"]["answered_by"] == "backup"
    headers = stream._hidden_params["additional_headers"]
    assert headers["x-honcho-fallback-answered-by"] == "backup"
    assert headers["x-honcho-fallback-attempts"] == "2"


def test_a_chain_of_breaking_streams_asks_each_once(bench: Any, ask: Any) -> None:
    """(4) Broken streams and refusals mix; each target is asked once, the last error comes out.

    (8) What has been handed out is not replayed; the error is the provider's.
    """
    bench["first"].reply(
        Reply(events=[NO_CONTENT], cut=True),
        Reply(events=[NO_CONTENT, word("hello "), error_event("server_error")]),
    )
    bench["second"].fail(500)
    bench["third"].reply(Reply(events=[error_event("server_error")]))
    router, listener = bench.managed(models=bench.chain("first", "second", "third"))
    chunks: list[Any] = []
    for outcome, heard in (("exhausted", ""), ("interrupted", "hello ")):
        with pytest.raises(openai.APIError) as caught:
            ask(router, received=chunks, stream=True)
        assert type(caught.value).__name__ != "MidStreamFallbackError"
        assert vars(caught.value)["record"] == listener.records[-1]
        assert (listener.records[-1].outcome, text_of(chunks)) == (outcome, heard)
    assert bench.order == ["first", "second", "third", "first"]


def test_nothing_of_a_failed_attempt_is_left(bench: Any, ask: Any) -> None:
    """(8) Neither its chunks nor what it said that it cost, for the caller and for observers."""
    cost = {"prompt_tokens": 99, "completion_tokens": 99, "total_tokens": 198}
    costly = wire.event(wire.chat_chunk(None, usage=cost))
    asked = {"stream_options": {"include_usage": False}}
    router, listener = bench.managed(listener=ContentListener())
    fine: list[Any] = []
    ask(router, received=fine, stream=True, **asked)
    bench["primary"].reply(Reply(events=[NO_CONTENT, costly], cut=True))
    chunks: list[Any] = []
    ask(router, received=chunks, stream=True, **asked)
    assert text_of(chunks) == "hello from backup"
    assert len(chunks) == len(fine)
    assert [*listener.contents[-1].output] == chunks
    assert listener.records[-1].usage is None


EMPTY: dict[str, list[str]] = {
    "openai": wire.chat_events(wire.chat_answer("")),
    "anthropic": wire.message_events(wire.message_answer()),
    "gemini": [wire.event(wire.gemini_answer({"text": ""}))],
}


@pytest.mark.parametrize("provider", EMPTY)
@pytest.mark.parametrize("asked", [{}, {"stream_options": {"include_usage": True}}])
def test_an_empty_answer_is_one(provider: str, asked: Any, bench: Any, ask: Any) -> None:
    """A model may have nothing to say; LiteLLM names the role of OpenAI's protocol alone."""
    bench["primary"].reply(Reply(events=EMPTY[provider]))
    models = [bench.deployment("primary", 0, model=f"{provider}/m"), bench.deployment("backup", 1)]
    router, listener = bench.managed(models=models)
    chunks: list[Any] = []
    stream = ask(router, received=chunks, stream=True, **asked)
    assert text_of(chunks) == ""
    assert bench.order == ["primary"]
    headers = stream._hidden_params["additional_headers"]
    assert headers["x-honcho-fallback-attempts"] == "1"
    assert headers["x-honcho-fallback-answered-by"] == listener.record.answered_by == "primary"


def test_a_reader_that_stops_early_abandons_the_call(bench: Any) -> None:
    """The record is closed, and LiteLLM's stream with it."""
    router, listener = bench.managed()

    stream = router.completion(**ASKED, stream=True)
    next(stream)
    stream.close()

    async def first_chunk() -> None:
        stream = await router.acompletion(**ASKED, stream=True)
        await anext(stream)
        await stream.aclose()

    run_async(first_chunk())
    assert [record.outcome for record in listener.records] == ["abandoned", "abandoned"]


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("method", ["responses", "anthropic_messages"])
@pytest.mark.parametrize("status", [500, None])
def test_other_endpoints_switch(
    method: str, status: int | None, bench: Any, *, stream: bool
) -> None:
    """(1) Responses and Messages: refused at the opening, or broken before content.

    The record says what the answer cost.
    """
    is_anthropic = method == "anthropic_messages"
    if stream:
        needs_the_proxys_packages()
    broken = Reply(events=[OVERLOADED]) if is_anthropic else Reply(events=[], cut=True)
    bench["primary"].reply(Reply(status=status) if status else broken)
    model = "anthropic/m" if is_anthropic else "openai/m"
    router, listener = bench.managed(models=bench.chain("primary", "backup", model=model))
    asked: Any = {"messages": MESSAGES, "max_tokens": 9} if is_anthropic else {"input": "hello"}

    assert "backup" in str(ask_in("async", router, method, stream=stream, **asked))
    assert bench.order == ["primary", "backup"]
    assert listener.record.answered_by == "backup"
    assert listener.record.usage == (MESSAGE_COUNTS if is_anthropic else COUNTS)


SPEAKING_OF_ERRORS = wire.message_events(
    wire.message_answer(wire.text_block("it says event: error and goes on"))
)
WITHOUT_END = SPEAKING_OF_ERRORS[:-1]


@pytest.mark.parametrize(
    ("events", "kind"),
    [
        (WITHOUT_END[:2], "malformed_response"),
        ([json.dumps(wire.anthropic_error("Overloaded", "overloaded_error"))], "overloaded"),
        ([PAGE], "malformed_response"),
    ],
)
def test_what_is_no_stream_of_messages_is_the_backups(
    events: list[str], kind: str, bench: Any
) -> None:
    """One that ends early, an error in JSON and a page are no answers, whatever the status.

    After content nobody else is asked, and a reader learns that the answer has no end. Where the
    backup says nothing at all, the first one's opening stays hidden (8).
    """
    bench["primary"].reply(Reply(events=events))
    needs_the_proxys_packages()
    models = bench.chain("primary", "backup", model="anthropic/some-model")
    router, listener = bench.managed(models=models)
    received: list[bytes] = []
    asked: Any = {"messages": MESSAGES, "max_tokens": 9, "stream": True, "received": received}
    read = partial(ask_in, "async", router, "anthropic_messages", **asked)
    read()
    assert bench.order == ["primary", "backup"]
    assert b"backup" in b"".join(received)
    assert listener.record.attempts[0].kind == kind

    bench["primary"].reply(Reply(events=events))
    bench["backup"].reply(Reply(events=[]))
    received.clear()
    with pytest.raises(AnswerRejected, match="no whole stream"):
        read()
    assert not received

    bench["primary"].reply(Reply(events=WITHOUT_END))
    with pytest.raises(AnswerRejected):
        read()
    assert b"goes" in b"".join(received)
    assert listener.records[-1].outcome == "interrupted"
    assert len(bench.order) == 5


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
@pytest.mark.parametrize("fails", [False, True])
def test_a_stream_of_messages_is_read_by_events(newline: str, fails: bool) -> None:
    """Wherever the network cuts it: an error event is one, and a text that speaks of one is not.

    No event is changed, and none is held back once it is whole.
    """
    events = [*WITHOUT_END[:4], OVERLOADED] if fails else SPEAKING_OF_ERRORS
    whole = [f"{event}\n\n".replace("\n", newline).encode() for event in events]
    run = FallbackPolicy([Target("m", name="primary")]).start()

    async def read(*pieces: bytes) -> list[bytes]:
        async def network() -> AsyncIterator[bytes]:
            for piece in pieces:
                yield piece

        received: list[bytes] = []
        with pytest.raises(openai.APIError) if fails else nullcontext() as caught:
            async for chunk in events_of(network(), run):
                received.append(chunk)  # noqa: PERF401 # what came before an error counts
        assert caught is None or classify(caught.value).kind == "overloaded"
        return received

    async def read_all_cuts() -> None:
        joined = b"".join(whole)
        for cut in range(len(joined)):
            assert await read(joined[:cut], joined[cut:]) == whole[: len(whole) - fails]

    run_async(read_all_cuts())
