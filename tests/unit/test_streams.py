"""What holds for streams beyond the shared scenarios."""

from __future__ import annotations

import asyncio
import contextvars
import gc
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from honcho_fallback import (
    Attempt,
    FallbackConfigError,
    FallbackExhausted,
    FallbackPolicy,
    StreamInterrupted,
    Target,
)
from honcho_fallback.testing import Scripted, StatusError
from tests.helpers.observers import Noting
from tests.helpers.scripted import ask, asked_by, pair, repeating

if TYPE_CHECKING:
    from honcho_fallback import FallbackRun
    from honcho_fallback.testing import Clock, Script

DOWN = StatusError(503)


async def read(chunks: Any) -> list[Any]:
    return [chunk async for chunk in chunks]


@pytest.mark.parametrize("driver", ["stream", "astream"])
def test_no_chunk_of_a_failed_attempt_is_seen(driver: str) -> None:
    """Chunks without content are held back, and dropped with the attempt that they belong to."""
    script = repeating(primary=[["", "", DOWN]], fallback=[["", "hello", "", " you"]])
    policy = pair()
    run = policy.start()
    assert ask(policy, script, driver, run=run) == ["", "hello", "", " you"]
    assert script.closed == {"primary": 1, "fallback": 1}
    assert run.record.outcome == "success"
    assert run.record.time_to_first_token is not None


@pytest.mark.parametrize("driver", ["stream", "astream"])
def test_after_content_the_error_goes_out_with_what_was_received(driver: str) -> None:
    """AN-018, G-29: once content is out nobody else is asked; nothing is lost or repeated."""
    script = repeating(primary=[["hel", "lo", DOWN]], fallback=[["no"]])
    policy = pair()
    run = policy.start()
    got: list[str] = []

    async def consume() -> None:
        async for chunk in policy.astream(script.astream, run=run):
            got.append(chunk)  # noqa: PERF401 # what came before the error is looked at

    with pytest.raises(StreamInterrupted) as caught:
        if driver == "stream":
            got.extend(policy.stream(script.stream, run=run))
        else:
            asyncio.run(consume())
    assert got == ["hel", "lo"]
    assert caught.value.partial == ("hel", "lo")
    assert caught.value.__cause__ is DOWN
    assert caught.value.record.outcome == "interrupted"
    assert caught.value.record.untried == (("fallback", "content had already been handed out"),)
    assert script.asked == ["primary"]


@pytest.mark.parametrize("driver", ["stream", "astream"])
def test_an_empty_stream_is_a_malformed_response(driver: str) -> None:
    """A stream that ends without a single chunk is no answer."""
    script = repeating(primary=[[]], fallback=[["hello"]])
    policy = pair()
    run = policy.start()
    assert ask(policy, script, driver, run=run) == ["hello"]
    assert run.record.attempts[0].kind == "malformed_response"


def test_a_stream_without_content_is_handed_out_as_it_came() -> None:
    """Chunks that has_content never likes still are the answer if the stream ends well."""
    script = repeating(primary=[["a", "b"]], fallback=[["no"]])
    assert list(pair().stream(script.stream, has_content=lambda _: False)) == ["a", "b"]


@pytest.mark.parametrize("driver", ["stream", "astream"])
def test_a_run_that_is_over_asks_nobody_and_says_so(driver: str) -> None:
    """An empty stream would be an answer that was never given."""
    script, policy = repeating(primary=[["hello"]]), pair()
    run = policy.start()
    assert ask(policy, script, driver, run=run) == ["hello"]
    with pytest.raises(RuntimeError, match="a run serves one"):
        ask(policy, script, driver, run=run)
    assert script.asked == ["primary"]


@pytest.mark.parametrize("driver", ["stream", "astream"])
def test_a_clean_end_without_a_reason_tells_what_had_come(driver: str) -> None:
    """A gateway that ends a cut answer properly: its content was paid for all the same."""
    script, policy = repeating(primary=[[piece("hel"), piece("lo")]]), pair()
    run = policy.start()
    with pytest.raises(StreamInterrupted, match="primary broke off after 2 chunks"):
        ask(policy, script, driver, run=run)
    (attempt,) = run.record.attempts
    assert (attempt.received, attempt.billed) == (5, "yes")


def test_nothing_is_asked_before_the_first_chunk_is_read() -> None:
    """A stream that nobody reads asks nobody and leaves no record open."""
    listener = Noting()
    script = repeating(primary=[["hello"]])
    policy = FallbackPolicy([Target("primary")], observers=[listener])
    policy.stream(script.stream).close()
    assert (script.asked, listener.events) == ([], [])


@pytest.mark.parametrize("how", ["close", "forget"])
def test_a_reader_that_stops_closes_the_inner_stream_and_the_record(how: str) -> None:
    """close() and a generator that is dropped both end the provider's stream and the record."""
    script = repeating(primary=[["hello", " you", " there"]])
    policy = pair()
    run = policy.start()
    chunks = policy.stream(script.stream, run=run)
    assert next(chunks) == "hello"
    if how == "close":
        chunks.close()
    del chunks
    gc.collect()
    assert script.closed == {"primary": 1}
    assert run.record.outcome == "abandoned"
    assert run.record.answered_by == "primary"


async def test_aclose_closes_the_inner_stream_and_the_record() -> None:
    """An async reader that stops ends the provider's stream and the record."""
    script = repeating(primary=[["hello", " you"]])
    policy = pair()
    run = policy.start()
    chunks = policy.astream(script.astream, run=run)
    assert await anext(chunks) == "hello"
    await chunks.aclose()
    assert script.closed == {"primary": 1}
    assert run.record.outcome == "abandoned"


async def test_an_sdk_stream_is_closed_by_its_own_close() -> None:
    """An SDK's async stream has a coroutine named close; a failed one is closed too."""

    class Stream:
        def __init__(self, chunks: list[Any]) -> None:
            self.chunks = chunks
            self.closed = 0

        def __aiter__(self) -> Any:
            return self

        async def __anext__(self) -> Any:
            if not self.chunks:
                raise StopAsyncIteration
            chunk = self.chunks.pop(0)
            if isinstance(chunk, Exception):
                raise chunk
            return chunk

        async def close(self) -> None:
            self.closed += 1

    streams = [Stream([DOWN]), Stream(["hello"])]

    async def ask(attempt: Attempt) -> Stream:
        return streams[attempt.position]

    assert await read(pair().astream(ask)) == ["hello"]
    assert [stream.closed for stream in streams] == [1, 1]


def test_a_close_that_fails_does_not_hide_the_answer() -> None:
    """A dead stream whose close() raises is no reason to lose the fallback's answer."""

    class Broken:
        def __iter__(self) -> Any:
            raise DOWN

        def close(self) -> None:
            raise OSError("already gone")

    streams: list[Any] = [Broken(), ["hello"]]
    assert list(pair().stream(lambda attempt: streams[attempt.position])) == ["hello"]


async def test_a_silent_stream_runs_into_the_timeout_and_switches() -> None:
    """The attempt's timeout bounds the wait for the first content."""
    closed: list[str] = []

    async def ask(attempt: Any) -> Any:
        try:
            if not attempt.is_fallback:
                await asyncio.Event().wait()
            yield "hello"
        finally:
            closed.append(attempt.target.name)

    policy = pair(timeout=0.01)
    run = policy.start()
    assert await read(policy.astream(ask, run=run)) == ["hello"]
    assert run.record.attempts[0].kind == "timeout"
    assert closed == ["primary", "fallback"]


async def test_a_stream_read_longer_than_the_timeout_is_not_cut() -> None:
    """The timeout is for the first content, not for the whole stream."""
    gate = asyncio.Event()

    async def ask(_: Any) -> Any:
        yield "hello"
        await gate.wait()
        yield " you"

    chunks = pair(timeout=0.01).astream(ask)
    got = [await anext(chunks)]
    asyncio.get_running_loop().call_later(0.05, gate.set)
    got += [chunk async for chunk in chunks]
    assert got == ["hello", " you"]


async def test_a_cancelled_stream_stays_cancelled() -> None:
    """A cancellation while waiting for a chunk closes the record and the stream, and goes out."""
    asked, closed = list[str](), list[str]()
    policy = pair()
    run = policy.start()
    reached = asyncio.Event()

    async def ask(attempt: Any) -> Any:
        asked.append(attempt.target.name)
        try:
            yield "hello"
            reached.set()
            await asyncio.Event().wait()
        finally:
            closed.append(attempt.target.name)

    task = asyncio.create_task(read(policy.astream(ask, run=run)))
    await reached.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert run.record.outcome == "cancelled"
    assert (asked, closed) == (["primary"], ["primary"])


def test_an_exhausted_stream_raises_like_a_call() -> None:
    """When nobody brings content the reader gets every error."""
    script = repeating(primary=[["", DOWN]], fallback=[[DOWN]])
    with pytest.raises(FallbackExhausted):
        list(pair().stream(script.stream))
    assert script.closed == {"primary": 1, "fallback": 2}


def test_bad_options_are_refused_when_the_stream_is_made() -> None:
    """HON-050 and its kin: what can be wrong is said at once, not at the first chunk."""
    with pytest.raises(ValueError, match="no_such_option: no such option"):
        pair().stream(repeating(primary=[["x"]]).stream, no_such_option=1)  # type: ignore[call-arg] # the point


async def test_a_generator_consumed_in_another_task_keeps_its_turn() -> None:
    """HON-050: the turn is settled where the stream is made, and no context token is reset."""
    policy = pair(reset="turn")
    script = repeating(primary=[DOWN], fallback=["hello"])
    with policy.turn() as turn:
        chunks = policy.astream(script.astream)
        context = contextvars.Context()
        task = asyncio.get_running_loop().create_task(read(chunks), context=context)
        assert await task == ["hello"]
        assert turn.position == 1
        assert policy.call(script.ask) == "hello"
    assert script.asked == ["primary", "fallback", "fallback"]


def marked(script: Script, driver: str) -> Any:
    """Return an ``ask`` whose chunks name the attempt that they are of."""

    def ask(attempt: Attempt) -> Any:
        for chunk in script.stream(attempt):
            yield {**chunk, "attempt": attempt.number}

    async def aask(attempt: Attempt) -> Any:
        async for chunk in script.astream(attempt):
            yield {**chunk, "attempt": attempt.number}

    return ask if driver == "stream" else aask


def piece(text: str, finish: str | None = None) -> dict[str, Any]:
    choice = {"delta": {"content": text}, "finish_reason": finish}
    return {"object": "chat.completion.chunk", "choices": [choice]}


def seen(chunks: list[Any]) -> list[tuple[int, str]]:
    return [(one["attempt"], one["choices"][0]["delta"]["content"]) for one in chunks]


def replaced(policy: FallbackPolicy, script: Script, driver: str, run: FallbackRun) -> list[Any]:
    """Read a stream whose chunks may be replaced."""
    ask = marked(script, driver)
    if driver == "stream":
        return list(policy.stream(ask, partial="replace", run=run))
    return asyncio.run(read(policy.astream(ask, partial="replace", run=run)))


@pytest.mark.parametrize("driver", ["stream", "astream"])
def test_content_that_may_be_replaced_ends_nothing(driver: str, clock: Clock) -> None:
    """A break after content goes on to the next attempt, whose first content is what is timed."""
    make = Scripted(clock)
    broken = [piece(""), piece("hel"), make.after(2, piece("lo")), DOWN]
    whole = [piece(""), make.after(3, piece("hello")), piece(" you", "stop")]
    policy, script = pair(), make({"primary": [broken], "fallback": [whole]})
    run = policy.start()
    got = seen(replaced(policy, script, driver, run))
    assert got == [(1, ""), (1, "hel"), (1, "lo"), (2, ""), (2, "hello"), (2, " you")]
    record = run.record
    assert (record.outcome, record.answered_by) == ("success", "fallback")
    assert [one.kind for one in record.attempts] == ["overloaded", None]
    assert record.time_to_first_token == pytest.approx(5)
    assert script.closed == {"primary": 1, "fallback": 1}


@pytest.mark.parametrize("driver", ["stream", "astream"])
def test_an_end_that_is_refused_after_content_is_replaced_too(driver: str) -> None:
    """What check_response says of chunks that were handed out is a failure like any other."""
    policy = pair()
    script = repeating(primary=[[piece("hel")]], fallback=[[piece("hello", "stop")]])
    run = policy.start()
    assert seen(replaced(policy, script, driver, run)) == [(1, "hel"), (2, "hello")]
    assert run.record.attempts[0].kind == "malformed_response"


@pytest.mark.parametrize("driver", ["stream", "astream"])
def test_a_deadline_is_over_once_there_was_content_that_is_replaced(
    driver: str, clock: Clock
) -> None:
    """As it is for content that is final: who read for longer than that gets a whole answer."""

    def chunks(attempt: Attempt) -> Any:
        yield piece(attempt.target.name, "stop" if attempt.is_fallback else None)
        if not attempt.is_fallback:
            clock.advance(100)
            raise DOWN

    async def achunks(attempt: Attempt) -> Any:
        for chunk in chunks(attempt):
            yield chunk

    asks = chunks if driver == "stream" else achunks
    got = asked_by(driver, pair(deadline=60.0), asks, partial="replace")
    assert got == [piece("primary"), piece("fallback", "stop")]


@pytest.mark.parametrize("driver", ["stream", "astream"])
def test_where_nobody_ends_well_the_group_comes_out(driver: str) -> None:
    """Content that was handed out and dropped is no answer: the call is exhausted."""
    policy = pair()
    script = repeating(primary=[[piece("hel"), DOWN]], fallback=[[piece("hi"), DOWN]])
    run = policy.start()
    with pytest.raises(FallbackExhausted) as caught:
        replaced(policy, script, driver, run)
    assert script.asked == ["primary", "fallback", "fallback"]
    assert caught.value.exceptions == (DOWN, DOWN, DOWN)
    assert run.record.time_to_first_token is None


@pytest.mark.parametrize("driver", ["stream", "astream"])
def test_a_reader_that_leaves_a_replaced_stream_abandons_it(driver: str) -> None:
    """Who is read when the reader leaves is who answered; before new content, nobody."""
    broken, whole = [piece("hel"), DOWN], [piece("hello"), piece(" you", "stop")]
    policy, script = pair(), repeating(primary=[broken], fallback=[whole])
    run = policy.start()

    async def leave() -> None:
        chunks = policy.astream(marked(script, driver), partial="replace", run=run)
        assert seen([await anext(chunks), await anext(chunks)]) == [(1, "hel"), (2, "hello")]
        await chunks.aclose()

    if driver == "stream":
        chunks = policy.stream(marked(script, driver), partial="replace", run=run)
        assert seen([next(chunks), next(chunks)]) == [(1, "hel"), (2, "hello")]
        chunks.close()
    else:
        asyncio.run(leave())
    assert (run.record.outcome, run.record.answered_by) == ("abandoned", "fallback")
    assert run.record.attempts[0].kind == "overloaded"


def test_a_cancellation_replaces_nothing() -> None:
    """What was handed out before a cancellation stays the call's; nobody else is asked."""
    policy = pair()
    script = repeating(primary=[[piece("hel"), KeyboardInterrupt()]], fallback=[[piece("no")]])
    run = policy.start()
    with pytest.raises(KeyboardInterrupt):
        replaced(policy, script, "stream", run)
    assert run.record.outcome == "cancelled"
    assert run.record.time_to_first_token is not None
    assert script.asked == ["primary"]


@pytest.mark.parametrize("verb", ["stream", "astream"])
@pytest.mark.parametrize("partial", ["append", None, True])
def test_an_unknown_way_with_broken_streams_is_refused(verb: str, partial: Any) -> None:
    """Bad input is refused when the stream is made, with what may be passed."""
    with pytest.raises(FallbackConfigError, match=r"partial: got .*; pass one of 'final'"):
        getattr(pair(), verb)(list, partial=partial)


# What a stream says as a whole, and how fast it comes.

CALL = {"index": 0, "function": {"name": "f", "arguments": "{}"}}
STREAM_DRIVERS = ("stream", "astream")


def deltas(*parts: dict[str, Any]) -> list[Any]:
    return [{"choices": [{"index": 0, "delta": part}]} for part in parts]


def read_all(policy: FallbackPolicy, driver: str, script: Script, **options: Any) -> list[Any]:
    if driver == "stream":
        return list(policy.stream(script.stream, **options))
    return asyncio.run(read(policy.astream(script.astream, **options)))


@pytest.mark.parametrize("driver", STREAM_DRIVERS)
@pytest.mark.parametrize(
    ("chunks", "whole"),
    [
        (["hel", "", "lo"], "hello"),
        (deltas({"role": "assistant"}, {"content": "hel"}, {"content": "lo"}), "hello"),
        (
            deltas({"content": "a"}, {"tool_calls": [CALL]}),
            {
                "role": "assistant",
                "content": "a",
                "tool_calls": [{"name": "f", "arguments": "{}"}],
            },
        ),
        ([[1], [2]], [1, 2]),
        ([{"mine": 1}], ({"mine": 1},)),
    ],
)
def test_validate_sees_the_joined_answer_of_a_stream(driver: str, chunks: Any, whole: Any) -> None:
    """A text, a message with its calls, what chunks add up to, or the chunks themselves."""
    seen: list[Any] = []
    policy = pair(validate=seen.append, check_responses=False)
    assert read_all(policy, driver, repeating(primary=[chunks])) == chunks
    assert seen == [whole]


@pytest.mark.parametrize("driver", STREAM_DRIVERS)
def test_a_refused_stream_is_replaced_or_interrupted(driver: str) -> None:
    """What was handed out can be replaced by another's chunks, or the error says what it was."""
    policy = pair(validate=lambda text: text != "bad")
    replies: dict[str, Any] = {"primary": [["b", "ad"]], "fallback": [["good"]]}
    got = read_all(policy, driver, repeating(**replies), partial="replace")
    assert got == ["b", "ad", "good"]
    with pytest.raises(StreamInterrupted, match="malformed_response") as caught:
        read_all(policy, driver, repeating(**replies))
    assert caught.value.partial == ("b", "ad")
    assert "validate said no" in str(caught.value.__cause__)
    # Nothing was handed out: the next one is asked.
    empty = pair(validate=lambda text: text != "")
    script = repeating(primary=[["", ""]], fallback=[["good"]])
    assert read_all(empty, driver, script) == ["good"]


def test_an_async_validate_sees_a_stream() -> None:
    """In a task it is awaited."""

    async def validate(text: str) -> bool:
        await asyncio.sleep(0)
        return text == "good"

    script = repeating(primary=[["bad"]], fallback=[["good"]])
    got = read_all(pair(validate=validate), "astream", script, partial="replace")
    assert got == ["bad", "good"]


@pytest.mark.parametrize("driver", STREAM_DRIVERS)
@pytest.mark.parametrize("partial", ["final", "replace"])
def test_a_stream_that_trickles_is_left(clock: Clock, driver: str, partial: Any) -> None:
    """min_rate: fewer characters a second, over ten seconds of waiting, are a timeout."""
    policy = pair(min_rate=2.0)
    slow = ["start", *[Scripted(clock).after(3, "x") for _ in range(9)]]
    script = Scripted(clock)({"primary": [slow], "fallback": [["fast"]]})
    run = policy.start()
    if partial == "replace":
        assert read_all(policy, driver, script, run=run, partial=partial)[-1] == "fast"
    else:
        with pytest.raises(StreamInterrupted, match="timeout") as caught:
            read_all(policy, driver, script, run=run)
        assert caught.value.partial == ("start", "x", "x", "x")
        assert "0.3 characters/s, fewer than min_rate=2" in str(caught.value.__cause__)
    assert run.record.attempts[0].kind == "timeout"
    assert run.record.attempts[0].seconds == 12.0


@pytest.mark.parametrize("options", [{}, {"min_rate": 0.3}])
def test_a_stream_that_is_fast_enough_stays(clock: Clock, options: Any) -> None:
    """Each window counts by itself; and off is the default."""
    chunks = ["start", *[Scripted(clock).after(3, "x") for _ in range(9)]]
    script = Scripted(clock)({"primary": [chunks]})
    assert len(read_all(pair(**options), "stream", script)) == 10


class Word(NamedTuple):
    """A chunk of one's own."""

    words: str


THOUGHT = {"type": "content_block_delta", "delta": {"type": "thinking_delta", "thinking": "hm"}}


@pytest.mark.parametrize("driver", STREAM_DRIVERS)
@pytest.mark.parametrize("chunk", [Word("two hundred characters"), THOUGHT, 7])
def test_what_cannot_be_counted_is_never_too_slow(clock: Clock, driver: str, chunk: Any) -> None:
    """min_rate judges characters: a chunk of one's own class, or of thinking, has none."""
    script = Scripted(clock)
    healthy = ["start", *[script.after(3, chunk) for _ in range(9)]]
    assert len(read_all(pair(min_rate=2.0), driver, script({"primary": [healthy]}))) == 10
    # Where it is over and characters trickle, they are judged again.
    script = Scripted(clock)
    slow = ["start", script.after(9, chunk), *[script.after(3, "x") for _ in range(4)]]
    with pytest.raises(StreamInterrupted, match="timeout"):
        read_all(pair(min_rate=2.0), driver, script({"primary": [slow]}))


def test_a_slow_reader_is_no_slow_stream(clock: Clock) -> None:
    """Only the time spent waiting for the provider counts."""
    script = repeating(primary=[["x"] * 9])
    for _ in pair(min_rate=100.0).stream(script.stream):
        clock.advance(60)
    assert script.asked == ["primary"]


def pieces_of_a_call(*arguments: str) -> list[dict[str, Any]]:
    """Make the chunks of a tool call whose arguments come in these pieces."""

    def chunk(finish: str | None, call: dict[str, Any] | None) -> dict[str, Any]:
        delta = {} if call is None else {"tool_calls": [{"index": 0, "function": call}]}
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        return {"object": "chat.completion.chunk", "choices": [choice]}

    calls = [chunk(None, {"name": "look"}), *(chunk(None, {"arguments": a}) for a in arguments)]
    return [*calls, chunk("tool_calls", None)]


def test_a_call_that_nobody_can_make_is_its_readers_once_it_was_handed_out() -> None:
    """No other target can be asked then; a reader who can drop it gets the next one's answer."""
    torn, whole = pieces_of_a_call('{"city": "Par'), pieces_of_a_call('{"city": ', '"Paris"}')

    def ask(attempt: Attempt) -> list[Any]:
        return whole if attempt.is_fallback else torn

    policy = FallbackPolicy([Target("primary"), Target("fallback")])
    assert [*policy.stream(ask)] == torn
    assert [*policy.stream(ask, partial="replace")] == [*torn, *whole]
    assert [*policy.stream(ask, has_content=lambda _: False)] == whole
