"""The handler itself: what it shows, what it holds, and what cannot break it."""

from __future__ import annotations

import asyncio
import gc
import logging
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import pytest
from langfuse import propagate_attributes
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider

from honcho_fallback import FallbackConfig, FallbackObserver, FallbackPolicy, Target
from honcho_fallback.testing import StatusError
from honcho_fallback_langfuse import LangfuseCallbackHandler
from honcho_fallback_langfuse._messages import plain
from tests.helpers.langfuse_speakers import MESSAGES, TEXT
from tests.helpers.scripted import repeating

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from langfuse import Langfuse

    from honcho_fallback import Attempt, FallbackRun
    from honcho_fallback.testing import Script
    from tests.helpers.langfuse_memory import Memory

# Single calls outside of turns are meant to stand alone here.
pytestmark = pytest.mark.filterwarnings("ignore:.*has no effect outside of a turn:UserWarning")

ANSWER = {
    "choices": [{"message": {"role": "assistant", "content": TEXT}}],
    "usage": {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5},
}
CHAIN = [Target("one", "openai"), Target("two", "anthropic"), Target("three", "local")]


def policy(*observers: FallbackObserver, **options: Any) -> FallbackPolicy:
    agent = options.pop("agent", "deriver")
    return FallbackPolicy(
        CHAIN, FallbackConfig(wait=0, **options), agent=agent, observers=observers
    )


def failing(times: int, answer: Any = ANSWER) -> Script:
    names = [target.name for target in CHAIN]
    said: dict[str, Any] = {name: [StatusError(503)] for name in names[:times]}
    said |= {name: [answer] for name in names[times:]}
    return repeating(**said)


def called(handler: LangfuseCallbackHandler, *, fails: int = 0, question: Any = MESSAGES) -> None:
    asking = policy(handler)
    run = asking.start()
    run.report(input=question)
    asking.call(failing(fails).ask, run=run)


def test_it_is_an_observer(memory: Memory) -> None:
    """The core takes it, and adapters are told that it stands for Langfuse's own handlers."""
    handler = LangfuseCallbackHandler(memory.client)
    assert isinstance(handler, FallbackObserver)
    assert handler.is_listening
    assert handler.replaces_langfuse_callbacks
    handler.close()
    # Langfuse's own handlers report again, rather than nobody.
    assert not handler.is_listening
    assert not handler.replaces_langfuse_callbacks


def test_fifty_calls_at_once_on_one_handler(memory: Memory) -> None:
    """Each of 50 concurrent calls has its own generation, and nothing stays in the handler."""
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

    async def all_of_them() -> list[str]:
        runs = [asking.start() for _ in range(50)]
        await asyncio.gather(*(one(number, run) for number, run in enumerate(runs)))
        return [run.record.call_id for run in runs]

    ids = asyncio.run(all_of_them())
    told = {one.metadata["call_id"]: one for one in memory.stored()}
    assert [told[call_id].input for call_id in ids] == [f"question {n}" for n in range(50)]
    assert [told[call_id].output for call_id in ids] == [
        call_id + ("" if number % 2 else "end") for number, call_id in enumerate(ids)
    ]
    assert [told[call_id].metadata["outcome"] for call_id in ids] == ["success", "abandoned"] * 25
    assert len({one.trace_id for one in told.values()}) == 50
    assert len(handler._calls) == 0


def test_fifty_calls_in_threads(memory: Memory) -> None:
    """Threads share a handler as tasks do."""
    handler = LangfuseCallbackHandler(memory.client)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: called(handler, fails=1), range(50)))
    assert len(memory.stored()) == 50
    assert all(one.metadata["is_fallback"] is True for one in memory.stored())
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


def test_content_can_be_left_out(memory: Memory) -> None:
    """Without input and output neither is shown; what the call cost still is."""
    called(LangfuseCallbackHandler(memory.client, input=False, output=False))
    one = memory.only()
    assert (one.input, one.output) == (None, None)
    assert one.usage == {"input": 3, "output": 2, "total": 5}


def test_a_mask_sees_plain_values_and_decides(memory: Memory) -> None:
    """The mask sees what was asked and what was answered, once each, and never the metadata."""
    seen: list[Any] = []

    def mask(value: Any) -> Any:
        seen.append(value)
        return "***"

    called(LangfuseCallbackHandler(memory.client, mask=mask), fails=1)
    one = memory.only()
    assert seen == [MESSAGES, {"role": "assistant", "content": TEXT}]
    assert (one.input, one.output) == ("***", "***")
    assert one.metadata["is_fallback"] is True
    policy(LangfuseCallbackHandler(memory.client, mask=mask)).start().cancel()
    assert len(seen) == 2  # nothing was asked, and nothing answered


def test_a_mask_that_raises_shows_nothing(memory: Memory) -> None:
    """What cannot be masked is not shown, and the rest of the generation stands."""

    def mask(value: Any) -> Any:
        raise ValueError(value)

    called(LangfuseCallbackHandler(memory.client, mask=mask))
    one = memory.only()
    assert (one.input, one.output) == ("<not shown: the mask raised>",) * 2
    assert one.model == "one"


def test_metadata_of_a_call_comes_before_that_of_the_application(memory: Memory) -> None:
    """HON-062: workspace, run id and purpose of a call are in its generation, not in others."""
    extra = {"namespace": "hermes", "purpose": "any", **{f"key{n}": n for n in range(200)}}
    policy_with_extra = policy(LangfuseCallbackHandler(memory.client, metadata=extra))
    ask = failing(0).ask
    policy_with_extra.call(ask, metadata={"workspace": "acme", "purpose": "summary"})
    policy_with_extra.call(ask)
    first, second = (one.metadata for one in memory.stored())
    assert (first["workspace"], first["purpose"], first["namespace"]) == (
        "acme",
        "summary",
        "hermes",
    )
    assert "workspace" not in second
    assert second["purpose"] == "any"


def test_metadata_is_capped(memory: Memory) -> None:
    """With 200 keys of the application's, type, model and usage stay (4.x drops them)."""
    extra = {f"key{number}": number for number in range(200)}
    called(LangfuseCallbackHandler(memory.client, metadata=extra), fails=1)
    one = memory.only()
    assert (one.type, one.model, one.usage["total"]) == ("GENERATION", "two", 5)
    assert len(one.metadata) == 40
    assert one.metadata["key0"] == 0
    assert one.metadata["fallback_model"] == "two"


class Hostile:
    """Raise at everything."""

    def __str__(self) -> str:
        raise RuntimeError

    __repr__ = __str__

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(name)


def endless() -> list[Any]:
    value: list[Any] = []
    value.append(value)
    return value


@pytest.mark.parametrize(
    "value",
    [
        Hostile(),
        [Hostile()],
        {"a": Hostile()},
        endless(),
        b"\xff\x00",
        float("nan"),
        {1: {2, 3}},
        "\ud800",
        [["\udcff"]],
    ],
    ids=lambda value: type(value).__name__,
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


def test_a_huge_text_is_cut(memory: Memory) -> None:
    """Two million characters become one, with a note of the rest; inline media is left whole."""
    called(LangfuseCallbackHandler(memory.client), question=[{"content": "x" * 2_000_000}])
    (message,) = memory.only().input
    assert len(message["content"]) < 1_000_100
    assert message["content"].endswith("... (1000000 characters more)")
    media = f"data:text/plain;base64,{'a' * 2_000_000}"
    assert plain(media) == media  # the SDK uploads it


def test_a_call_without_a_label(memory: Memory) -> None:
    """HON-061: a call that nobody named is called LLM Call."""
    asking = FallbackPolicy([Target("one")], observers=[LangfuseCallbackHandler(memory.client)])
    asking.call(lambda _: "hello")
    one = memory.only()
    assert (one.name, one.trace_name, one.output) == ("LLM Call", "LLM Call", "hello")
    assert not {"primary_provider", "provider"} & one.metadata.keys()


def test_each_iteration_of_a_loop_is_a_generation(memory: Memory) -> None:
    """HON-076: the unit is the call, so no iteration overwrites another or adds to its usage."""
    handler = LangfuseCallbackHandler(memory.client)
    asking = policy(handler, reset="turn")
    with memory.client.start_as_current_observation(name="turn"), asking.turn():
        for _ in range(3):
            asking.call(failing(1).ask)
    calls = [one for one in memory.stored() if one.type == "GENERATION"]
    assert [one.usage["total"] for one in calls] == [5, 5, 5]
    assert [one.metadata["attempt_count"] for one in calls] == [2, 1, 1]
    assert all(one.metadata["is_fallback"] is True for one in calls)
    reasons = [one.metadata["fallback_reason"] for one in calls]
    assert reasons == ["overloaded StatusError 503", *["the turn had already left it"] * 2]


def test_a_fallback_s_fallback_tells_whom_and_why(memory: Memory) -> None:
    """HON-074: the second fallback is named, the reason is why the primary was left."""
    called(LangfuseCallbackHandler(memory.client), fails=2)
    one = memory.only()
    said = one.metadata
    assert (said["fallback_provider"], said["fallback_model"], one.model) == (
        "local",
        "three",
        "three",
    )
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


def test_the_trace_keeps_the_name_that_the_application_gave(memory: Memory) -> None:
    """A propagated trace name goes before the agent's, also under a web server's span."""
    tracer = TracerProvider().get_tracer("web")
    for enclosing in (nullcontext(), tracer.start_as_current_span("GET /")):
        with enclosing, propagate_attributes(trace_name="checkout", session_id="s1"):
            called(LangfuseCallbackHandler(memory.client))
    assert [one.trace_name for one in memory.stored()] == ["checkout"] * 2
    assert {span.attributes["session.id"] for span in memory.spans()} == {"s1"}


def test_a_foreign_span_gets_no_name_from_us(memory: Memory) -> None:
    """Under a web server's span the trace is named after the agent, the span is left alone."""
    tracer = TracerProvider().get_tracer("web")
    with tracer.start_as_current_span("GET /") as outer:
        called(LangfuseCallbackHandler(memory.client))
        assert not getattr(outer, "attributes", None)
    one = memory.only()
    assert one.trace_name == "deriver"
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


def test_a_stream_may_end_anywhere(memory: Memory, caplog: pytest.LogCaptureFixture) -> None:
    """A generator that is closed in another task or thread, or lost, ends its generation once."""
    asking = policy(LangfuseCallbackHandler(memory.client))

    async def letters(_: Attempt) -> AsyncIterator[str]:
        for letter in "ab":
            yield letter

    async def two_tasks() -> None:
        stream = asking.astream(letters)
        assert await asyncio.create_task(_first(stream)) == "a"
        await asyncio.create_task(_closed(stream))

    asyncio.run(two_tasks())
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
    assert [one.metadata["outcome"] for one in told] == [
        "abandoned",
        "abandoned",
        "success",
        "abandoned",
    ]
    assert all(one.parent_id is None for one in told)
    assert [one.output for one in told] == ["a", "a", {"role": "assistant", "content": TEXT}, "a"]
    assert "detach" not in caplog.text


async def _first(stream: Any) -> Any:
    return await anext(stream)


async def _closed(stream: Any) -> None:
    await stream.aclose()


def test_closing_makes_nothing_of_later_calls(memory: Memory) -> None:
    """After close the handler is silent; the client belongs to the application and goes on."""
    handler = LangfuseCallbackHandler(memory.client)
    called(handler)
    assert handler.close()
    called(handler)
    assert len(memory.stored()) == 1
    memory.client.start_observation(name="the application's").end()
    assert len(memory.stored()) == 2


class Broken:
    """Stand for a client that raises at everything."""

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(name)


def test_telemetry_that_fails_is_swallowed(caplog: pytest.LogCaptureFixture) -> None:
    """HON-067: a client that raises at everything costs no call, and one line in the log."""
    broken: Any = Broken()
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
