"""The handler itself: what it shows of answers and labels, what it holds, what cannot break it."""

from __future__ import annotations

import asyncio
import gc
import json
import logging
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import replace
from importlib.metadata import version
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

import pytest
from langfuse import propagate_attributes
from openai.types.chat import ChatCompletion
from opentelemetry import trace
from opentelemetry.sdk.trace import Span, SpanProcessor, TracerProvider

from honcho_fallback import (
    FallbackConfig,
    FallbackExhausted,
    FallbackObserver,
    FallbackPolicy,
    Target,
)
from honcho_fallback.testing import StatusError
from honcho_fallback_langfuse import LangfuseCallbackHandler
from honcho_fallback_langfuse._generation import plain
from honcho_fallback_otel import OpenTelemetryHandler
from tests.helpers.langfuse_server import stored
from tests.helpers.otlp import Traces
from tests.helpers.scripted import repeating
from tests.helpers.wire import (
    CHAT_USAGE,
    chat_answer,
    chat_call,
    chat_chunk,
    message_answer,
    text_block,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from langfuse import Langfuse
    from opentelemetry.context import Context

    from honcho_fallback import Attempt, FallbackRun
    from honcho_fallback.testing import Script
    from tests.helpers.langfuse_server import Memory, Stored
    from tests.helpers.otlp import OtlpReceiver


MESSAGES = [{"role": "user", "content": "Good morning"}]
TEXT = "Hello there"
ANSWER = chat_answer(TEXT)
ONES = {"temperature": 0.5, "extra_headers": {"x-key": "sk-that-nobody-may-see"}}
CHAIN = [
    Target("one", "openai", params=ONES),
    Target("two", "anthropic"),
    Target("three", "local"),
]


def policy(*observers: FallbackObserver) -> FallbackPolicy:
    return FallbackPolicy(CHAIN, FallbackConfig(wait=0), agent="deriver", observers=observers)


def failing(times: int) -> Script:
    said = [*[StatusError(503)] * times, *[ANSWER] * (3 - times)]
    return repeating(**{target.name: [one] for target, one in zip(CHAIN, said, strict=True)})


def called(handler: LangfuseCallbackHandler, *, fails: int = 0, question: Any = MESSAGES) -> None:
    asking = policy(handler)
    run = asking.start()
    run.report(input=question, parameters={"top_p": 0.9})
    asking.call(failing(fails).ask, run=run)


async def test_fifty_calls_at_once_on_one_handler(memory: Memory) -> None:
    """Tasks and threads: each call has its own generation, and nothing stays in the handler."""
    handler = LangfuseCallbackHandler(memory.client)
    asking = policy(handler)

    async def chunks(attempt: Attempt) -> AsyncIterator[str]:
        if attempt.position == 0:
            raise StatusError(503)
        for chunk in attempt.call_id, "end":
            await asyncio.sleep(0)
            yield chunk

    async def one(number: int, run: FallbackRun) -> None:
        run.report(input=f"question {number}")
        stream = asking.astream(chunks, run=run)
        async for _ in stream:
            if number % 2:
                break
        await stream.aclose()

    runs = [asking.start() for _ in range(50)]
    await asyncio.gather(*(one(number, run) for number, run in enumerate(runs)))
    ids = [run.record.call_id for run in runs]
    told = {one.metadata["call_id"]: one for one in memory.stored()}
    assert [told[call_id].input for call_id in ids] == [f"question {n}" for n in range(50)]
    assert [told[call_id].output for call_id in ids] == [
        call_id + ("" if number % 2 else "end") for number, call_id in enumerate(ids)
    ]
    assert [told[call_id].metadata["outcome"] for call_id in ids] == ["success", "abandoned"] * 25
    assert len({one.trace_id for one in told.values()}) == 50
    memory.clear()
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: called(handler, fails=1), range(50)))
    assert [one.metadata["is_fallback"] for one in memory.stored()] == [True] * 50
    assert len(handler._calls) == 0


def test_calls_that_never_end_do_not_pile_up(memory: Memory) -> None:
    """A run that was started and dropped makes room for later ones, the oldest first."""
    handler = LangfuseCallbackHandler(memory.client)
    handler._most = 2
    runs = [policy(handler).start() for _ in range(3)]
    assert len(handler._calls) == 2
    for run in runs:
        run.succeed()
    call_ids = [one.metadata["call_id"] for one in memory.stored()]
    assert call_ids == [run.record.call_id for run in runs[1:]]


def test_the_wire_carries_the_same(
    memory: Memory, wire: OtlpReceiver, wire_client: Langfuse
) -> None:
    """What leaves the process, packed and signed, means the same to a server."""
    handler = LangfuseCallbackHandler(wire_client)
    policy(handler, LangfuseCallbackHandler(memory.client)).call(failing(1).ask)
    assert handler.flush(10)
    (export,) = wire.exports
    assert export.credentials == ("pk-wire", "sk-wire")
    assert export.headers["content-type"] == "application/x-protobuf"
    sent, kept = stored(*export.spans), memory.only()
    own = {name: getattr(kept, name) for name in ("id", "trace_id", "start", "end")}
    assert replace(sent, **own) == kept


def test_content_is_the_user_s_and_can_be_left_out(memory: Memory) -> None:
    """An address is shown as it was asked; without content what the call cost still is."""
    question = [{"role": "user", "content": "what is https://me:pw@host?"}]
    called(LangfuseCallbackHandler(memory.client), question=question)
    called(LangfuseCallbackHandler(memory.client, input=False, output=False))
    shown, hidden = memory.stored()
    assert shown.input == question
    assert shown.parameters == {"temperature": 0.5, "top_p": 0.9}
    assert (hidden.input, hidden.output) == (None, None)
    assert hidden.usage == OPENAIS


def test_a_mask_sees_plain_values_and_decides(memory: Memory) -> None:
    """What was asked and what was answered, once each, never the metadata; else neither shows."""
    seen: list[Any] = []

    def mask(value: Any) -> Any:
        seen.append(value)
        if len(seen) > 2:
            raise ValueError(value)
        return "***"

    handler = LangfuseCallbackHandler(memory.client, mask=mask)
    called(handler, fails=1)
    assert seen == [MESSAGES, {"role": "assistant", "content": TEXT}]
    policy(handler).start().cancel()
    assert len(seen) == 2  # nothing was asked, and nothing answered
    called(handler)
    one, _, last = memory.stored()
    assert (one.input, one.output, one.metadata["is_fallback"]) == ("***", "***", True)
    assert last.input == last.output
    assert last.input.startswith("<not shown")
    assert last.model == "one"


def test_metadata_of_a_call_comes_before_that_of_the_application(memory: Memory) -> None:
    """HON-062: what is particular to a call is in its generation, within what there is room for.

    With 200 keys of the application's, type, model and usage stay (4.x drops them).
    """
    nested = {"path": PurePosixPath("/srv"), "tags": {"a"}, "sizes": (1, 2.5, None)}
    extra = {"app": nested, "purpose": "any", **{f"key{n}": n for n in range(200)}}
    asking = policy(LangfuseCallbackHandler(memory.client, metadata=extra))
    asking.call(failing(1).ask, metadata={"workspace": "acme", "purpose": "summary"})
    asking.call(failing(0).ask)
    first, second = memory.stored()
    assert (first.type, first.model, first.usage["total"]) == ("GENERATION", "two", 19)
    assert (first.metadata["workspace"], first.metadata["purpose"]) == ("acme", "summary")
    assert first.metadata["app"] == {"path": "/srv", "tags": ["a"], "sizes": [1, 2.5, None]}
    assert first.metadata["fallback_model"] == "two"
    assert len(first.metadata) == 40
    assert "workspace" not in second.metadata
    assert second.metadata["purpose"] == "any"


class Hostile:
    """Raise at everything."""

    def __str__(self) -> str:
        raise RuntimeError

    __repr__ = __str__

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(name)


ENDLESS: list[Any] = []
ENDLESS.append(ENDLESS)


@pytest.mark.parametrize(
    "value", [Hostile(), ENDLESS, {1: {2, 3}}, b"\xff"], ids=lambda value: type(value).__name__
)
def test_hostile_content_costs_its_field_only(value: Any, memory: Memory) -> None:
    """Whatever is asked and answered, the call works and the generation has its facts."""
    handler = LangfuseCallbackHandler(memory.client)
    asking = policy(handler)
    run = asking.start()
    run.report(input=value, parameters={"temperature": value})
    asking.call(lambda _: value, run=run)
    one = memory.only()
    assert (one.type, one.model, one.level) == ("GENERATION", "one", "DEFAULT")
    assert one.metadata["is_fallback"] is False
    assert len(handler._calls) == 0


def test_a_text_that_an_export_cannot_take_is_mended(memory: Memory) -> None:
    """Of two million characters one is left, of half an emoji a mark; media is the SDK's."""
    torn = "half an emoji: \ud83d"
    handler = LangfuseCallbackHandler(memory.client)
    called(handler, question=[{"content": "x" * 2_000_000}, {"content": torn}])
    long, mended = memory.only().input
    assert len(long["content"]) < 1_000_100
    assert long["content"].endswith("... (1000000 characters more)")
    assert mended["content"] == "half an emoji: ?"
    media = f"data:text/plain;base64,{'a' * 2_000_000}"
    assert plain(media) == media


def test_a_call_without_a_label(memory: Memory) -> None:
    """HON-061: a call that nobody named is called LLM Call."""
    asking = FallbackPolicy([Target("one")], observers=[LangfuseCallbackHandler(memory.client)])
    asking.call(lambda _: "hello")
    one = memory.only()
    assert (one.name, one.trace_name, one.output) == ("LLM Call", "LLM Call", "hello")
    assert not {"primary_provider", "provider"} & one.metadata.keys()


def test_a_fallback_s_fallback_tells_whom_and_why(memory: Memory) -> None:
    """HON-074: the second fallback is named, the reason is why the primary was left."""
    called(LangfuseCallbackHandler(memory.client), fails=2)
    one = memory.only()
    said = one.metadata
    assert (said["fallback_provider"], said["fallback_model"]) == ("local", "three")
    assert one.model == "three"
    assert said["fallback_reason"] == "overloaded StatusError 503"
    assert said["attempts"][1]["model"] == "two"
    assert one.status_message == (
        "openai/one: overloaded StatusError 503; anthropic/two: overloaded StatusError 503; "
        "local/three answered"
    )


def test_attempts_become_events_when_asked(memory: Memory) -> None:
    """HON-064: child events for attempts are an option; without it a failure leaves nothing."""
    called(LangfuseCallbackHandler(memory.client, per_attempt=True), fails=1)
    first, second, generation = memory.stored()
    assert [first.type, second.type, generation.type] == ["EVENT", "EVENT", "GENERATION"]
    assert (first.name, first.level) == ("attempt openai/one", "WARNING")
    assert (second.name, second.level) == ("attempt anthropic/two", "DEFAULT")
    assert first.status_message == "overloaded StatusError 503"
    assert {first.parent_id, second.parent_id} == {generation.id}
    assert (first.metadata["status"], second.metadata["is_fallback"]) == (503, True)


def test_a_trace_has_the_agents_name_or_the_applications(memory: Memory) -> None:
    """A propagated name goes before the agent's, also under a web server's span.

    That span gets no name from us.
    """
    tracer = TracerProvider().get_tracer("web")
    handler = LangfuseCallbackHandler(memory.client)
    for enclosing in (nullcontext(), tracer.start_as_current_span("GET /")):
        with enclosing, propagate_attributes(trace_name="checkout", session_id="s1"):
            called(handler)
    assert [one.trace_name for one in memory.stored()] == ["checkout"] * 2
    assert {span.attributes["session.id"] for span in memory.spans()} == {"s1"}
    memory.clear()
    with tracer.start_as_current_span("GET /") as outer:
        called(handler)
        assert not getattr(outer, "attributes", None)
    one = memory.only()
    assert (one.name, one.trace_name) == ("deriver", "deriver")
    assert one.parent_id == f"{outer.get_span_context().span_id:016x}"


def test_nothing_stays_current(memory: Memory) -> None:
    """While a stream is read, what the reader does is no child of the generation."""
    asking = policy(LangfuseCallbackHandler(memory.client))
    stream = asking.stream(lambda _: iter("ab"))
    next(stream)
    assert trace.get_current_span() is trace.INVALID_SPAN
    with memory.client.start_as_current_observation(name="the reader's own"):
        list(stream)
    assert all(one.parent_id is None for one in memory.stored())


async def test_a_stream_may_end_anywhere(memory: Memory, caplog: pytest.LogCaptureFixture) -> None:
    """A generator that is closed in another task or thread, or lost, ends its generation once."""
    asking = policy(LangfuseCallbackHandler(memory.client))

    async def letters(_: Attempt) -> AsyncIterator[str]:
        for letter in "ab":
            yield letter

    async_stream = asking.astream(letters)
    assert await asyncio.ensure_future(anext(async_stream)) == "a"
    await asyncio.ensure_future(async_stream.aclose())
    with ThreadPoolExecutor(1) as one, ThreadPoolExecutor(1) as other:
        stream = asking.stream(lambda _: iter("ab"))
        assert one.submit(next, stream).result() == "a"
        other.submit(stream.close).result()
        # The first thread is not left inside the generation.
        one.submit(called, LangfuseCallbackHandler(memory.client)).result()
    lost = asking.stream(lambda _: iter("ab"))
    next(lost)
    del lost
    gc.collect()
    told = memory.stored()
    outcomes = [(one.metadata["outcome"], one.level) for one in told]
    left = ("abandoned", "WARNING")
    assert outcomes == [left, left, ("success", "DEFAULT"), left]
    assert all(one.parent_id is None for one in told)
    assert [one.output for one in told] == ["a", "a", {"role": "assistant", "content": TEXT}, "a"]
    assert "detach" not in caplog.text


def test_closing_makes_nothing_of_later_calls(memory: Memory) -> None:
    """After close the handler is silent; the client belongs to the application and goes on."""
    handler = LangfuseCallbackHandler(memory.client)
    called(handler)
    assert handler.replaces_langfuse_callbacks
    assert handler.close()
    called(handler)
    # Langfuse's own handlers report again, rather than nobody.
    assert not handler.replaces_langfuse_callbacks
    assert len(memory.stored()) == 1
    memory.client.start_observation(name="the application's").end()
    assert len(memory.stored()) == 2


def test_telemetry_that_fails_is_swallowed(caplog: pytest.LogCaptureFixture) -> None:
    """HON-067: a client that raises at everything costs no call, and one line in the log."""
    broken: Any = Hostile()
    handler = LangfuseCallbackHandler(broken)
    asking = policy(handler)
    for _ in range(25):
        asking.call(failing(0).ask)
    assert handler.flush(1)
    (line,) = [one.getMessage() for one in caplog.records if one.levelno >= logging.WARNING]
    assert line.startswith("observer LangfuseCallbackHandler raised RuntimeError in on_start;")


def test_of_several_clients_none_is_guessed(
    memory: Memory, wire_client: Langfuse, caplog: pytest.LogCaptureFixture
) -> None:
    """Without a client or a key nothing is sent to either project, and a WARNING says so once."""
    handler = LangfuseCallbackHandler()
    called(handler)
    called(handler)
    assert memory.stored() == []
    assert caplog.text.count("there are several Langfuse clients") == 1


PLAIN: dict[str, Any] = {
    "workspace": "acme", "run_id": "123", "is_batch": True, "is_test": False, "step": 3,
    "share": 0.5, "city": "Zürich",
}  # fmt: skip
VALUES = {**PLAIN, "huge": 2**70, "nothing": None, "half": "a\ud800"}
KEPT = {**PLAIN, "huge": str(2**70), "half": "a?"}


class AtStart(SpanProcessor):
    """See what samplers and processors see of a span that begins."""

    def __init__(self) -> None:
        self.seen: list[Any] = []

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        self.seen.append(dict(span.attributes or {}))


def test_every_kind_of_metadata_is_shown_as_it_was(memory: Memory) -> None:
    """HON-062: texts, numbers and booleans, in either trace; a span keeps room for its own."""
    many = VALUES | {f"key{number}": number for number in range(200)}
    traces = Traces()
    handlers = [LangfuseCallbackHandler(memory.client), OpenTelemetryHandler(traces.provider)]
    FallbackPolicy([Target("one")], observers=handlers).call(lambda _: "hello", metadata=many)
    read = memory.only().metadata
    shown = {name: read[name] for name in KEPT}
    if version("langfuse").startswith("4."):
        # What is a text to 4.x is whatever it looks like to a server.
        assert (shown.pop("run_id"), shown.pop("huge")) == (123, 2**70)
    (span,) = traces.received()
    prefix = "honcho_fallback.metadata."
    on_span = {
        name.removeprefix(prefix): value
        for name, value in span.attributes.items()
        if name.startswith(prefix)
    }
    for one in (shown, on_span):
        expected = {name: KEPT[name] for name in one if name in KEPT}
        assert expected.items() <= one.items()
        assert [type(one[name]) for name in expected] == [*map(type, expected.values())]
        assert "nothing" not in one
    assert on_span.keys() >= KEPT.keys()
    assert len(on_span) < len(many)
    assert span.attributes["gen_ai.operation.name"] == "chat"


FORMS = (
    "https://{}@host.example/v1",
    "https://me:{}@host.example:8443/v1?page=2",
    "redis+tls://:{}@host/0",
    "https://host/v1?key={}",
    "at https://host/v1?page=2&api_key={} now",
    "https://host/v1?X-Goog-Signature={}&page=2",
    "wss://host/#access_token={}",
)
SECRET = "s3cr3t-._~%:@!$*+,"


@pytest.mark.parametrize("form", FORMS)
def test_no_field_shows_credentials(memory: Memory, form: str) -> None:
    """Whatever holds an address (names, metadata, parameters, errors), the secret is nowhere."""
    address, traces, at_start = form.format(SECRET), Traces(), AtStart()
    traces.provider.add_span_processor(at_start)
    nested = {address: [{"a": {address}}, (address, PurePosixPath(address))]}
    params = {"temperature": 0.5, "stop": [address], "reasoning_effort": address}
    chain = [
        Target(f"{n} {address}", address, name=f"{address} {n}", params=params) for n in range(2)
    ]
    policy = FallbackPolicy(
        chain,
        FallbackConfig(wait=0, max_attempts=2),
        agent=address,
        observers=[
            OpenTelemetryHandler(traces.provider),
            LangfuseCallbackHandler(memory.client, per_attempt=True, metadata=nested),
        ],
    )
    failure: Exception = type(address, (StatusError,), {})(503)
    answer = {**ANSWER, "model": address}
    answer["choices"] = [{**answer["choices"][0], "finish_reason": address}]
    said: list[Any] = [[failure], [answer, answer, failure]]
    script = repeating(**{one.name: replies for one, replies in zip(chain, said, strict=True)})
    run = policy.start(metadata={"url": address, address: address})
    run.report(input=MESSAGES, parameters={"service_tier": address})
    policy.call(script.ask, run=run)
    policy.call(script.ask, unfit={0: address})
    with pytest.raises(FallbackExhausted):
        policy.call(script.ask)
    told = [[one.name, one.status_message, one.attributes] for one in memory.spans()]
    told += [one.to_json() for one in traces.finished()]
    shown = json.dumps(told) + repr(at_start.seen)
    assert len(memory.stored()) == 3 + 5  # generations and attempts
    assert "host" in shown
    assert "s3cr3t" not in shown


CHAT = chat_answer("hello")
MESSAGE = message_answer(text_block("hello"))
CALL = chat_call("t", "clock", {"city": "Rome"})


@pytest.fixture
def store(memory: Memory) -> Callable[..., Stored]:
    """Return what a server stores of a call that answered, and of what it is said to have cost."""
    policy = FallbackPolicy([Target("one")], observers=[LangfuseCallbackHandler(memory.client)])

    def of(output: Any, reported: Any = None) -> Stored:
        memory.clear()
        run = policy.start()
        run.report(output=output)
        run.succeed(usage=reported)
        return memory.only()

    return of


TYPED = {"type": "text", "text": "hello"}
# What came back, and what is shown of it; how it is read is the core's matter.
SAID = {"role": "assistant", "content": "hello"}
SHOWN: dict[str, tuple[Any, Any]] = {
    "an answer's text is a message": (CHAT, SAID),
    "so is an object's": (ChatCompletion.model_validate(CHAT), SAID),
    "so is a stream's": (tuple(chat_chunk({"content": half}) for half in ("hel", "lo")), SAID),
    "a call of a tool": (
        (chat_chunk({"tool_calls": [{**CALL, "index": 0}]}),),
        {**SAID, "content": "", "tool_calls": [CALL["function"]]},
    ),
    "texts join": (("hel", "lo"), "hello"),
    "other chunks stay a list": (({"a": 1}, {"a": 2}), [{"a": 1}, {"a": 2}]),
    "so do contents": ((TYPED, TYPED), [TYPED, TYPED]),
    "other answers stay themselves": ({"a": 1}, {"a": 1}),
}


def test_an_answer_is_shown_as_everybody_writes_it(store: Callable[..., Stored]) -> None:
    """A text of a text, a message of a message; what is not known is shown as it is."""
    read = {name: store(output).output for name, (output, _) in SHOWN.items()}
    assert read == {name: shown for name, (_, shown) in SHOWN.items()}


OPENAIS = {
    "input": 8,
    "output": 5,
    "input_cached_tokens": 4,
    "output_reasoning_tokens": 2,
    "total": 19,
}
ANTHROPICS = {
    "input": 8,
    "output": 7,
    "input_cached_tokens": 4,
    "input_cache_creation": 3,
    "total": 22,
}
COUNTED: dict[str, tuple[Any, Any, dict[str, int]]] = {
    "openai": (CHAT, None, OPENAIS),
    "anthropic": (MESSAGE, None, ANTHROPICS),
    "only the output, as the caller says": (CHAT, {"output_tokens": 2}, {"output": 2, "total": 2}),
    "a report that says nothing": (CHAT, {"note": "nothing"}, OPENAIS),
    "more cached than asked": (
        "hello",
        {"prompt_tokens": 1, "prompt_tokens_details": {"cached_tokens": 4}},
        {"input": 0, "input_cached_tokens": 4, "total": 4},
    ),
    "zeros": ("hello", {"prompt_tokens": 0}, {"input": 0, "total": 0}),
    "what is no count": ("hello", {"prompt_tokens": -1}, {}),
    "nothing, as some local models do": ("hello", None, {}),
}


def test_each_token_stands_in_one_bucket(store: Callable[..., Stored]) -> None:
    """HON-065, HON-066, HON-070: whoever counted; what nobody did is left out."""
    read = {name: store(output, said).usage for name, (output, said, _) in COUNTED.items()}
    assert read == {name: buckets for name, (_, _, buckets) in COUNTED.items()}


def test_a_cost_is_taken_where_it_is_one(store: Callable[..., Stored]) -> None:
    """OpenRouter tells a cost; zero is left out, for it would switch Langfuse's prices off."""
    costs = [store({"usage": {**CHAT_USAGE, "cost": cost}}).cost for cost in (0.5, 0)]
    assert costs == [{"total": 0.5}, {}]
