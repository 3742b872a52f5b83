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
from tests.helpers.wire import part

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from honcho_fallback.testing import Clock

DOWN = StatusError(503)
BOTH = pytest.mark.parametrize("driver", ["stream", "astream"])


async def read(chunks: Any) -> list[Any]:
    return [chunk async for chunk in chunks]


def leave(policy: FallbackPolicy, ask: Any, driver: str, chunks: int, **options: Any) -> list[Any]:
    """Read so many chunks of a stream, and close it."""
    if driver == "stream":
        reading = policy.stream(ask, **options)
        got = [next(reading) for _ in range(chunks)]
        reading.close()
        return got

    async def in_task() -> list[Any]:
        reading = policy.astream(ask, **options)
        got = [await anext(reading) for _ in range(chunks)]
        await reading.aclose()
        return got

    return asyncio.run(in_task())


def piece(text: str, finish: str | None = None) -> dict[str, Any]:
    return part(finish, content=text)


BEGUN = part(role="assistant")
USED = {"prompt_tokens": 4, "completion_tokens": 2, "total_tokens": 6}
BUSY = {"error": {"message": "busy", "code": "overloaded_error"}}


@BOTH
@pytest.mark.parametrize(
    ("chunks", "kind"),
    [
        ([], "malformed_response"),
        (["", "", DOWN], "overloaded"),
        ([BEGUN], "malformed_response"),
        ([BEGUN, DOWN], "overloaded"),
        ([BEGUN, BUSY], "overloaded"),
    ],
)
def test_no_chunk_of_a_failed_attempt_is_seen(driver: str, chunks: list[Any], kind: str) -> None:
    """Those without content, as an SDK's role alone, are held back and dropped; all is closed."""
    whole = [BEGUN, part(content="hello"), {**part("stop"), "usage": USED}]
    script, policy = repeating(primary=[chunks], fallback=[whole]), pair()
    run = policy.start()
    assert ask(policy, script, driver, run=run) == whole
    assert script.closed == {"primary": 1, "fallback": 1}
    record = run.record
    assert (record.outcome, record.attempts[0].kind) == ("success", kind)
    assert record.time_to_first_token is not None
    assert record.usage == {"input_tokens": 4, "output_tokens": 2, "total_tokens": 6}


@BOTH
@pytest.mark.parametrize(
    ("chunks", "cause"),
    [
        (["hel", "lo", DOWN], str(DOWN)),
        # A gateway that ends a cut answer properly: its content was paid for all the same.
        ([*map(piece, ("hel", "lo"))], "the stream ended without a finish reason"),
    ],
)
def test_after_content_the_error_goes_out_with_what_was_received(
    driver: str, chunks: list[Any], cause: str
) -> None:
    """AN-018, G-29: once content is out nobody else is asked; nothing is lost or repeated."""
    script = repeating(primary=[chunks], fallback=[["no"]])
    with pytest.raises(StreamInterrupted, match="primary broke off after 2 chunks") as caught:
        ask(pair(), script, driver)
    assert caught.value.partial == tuple(chunks[:2])
    assert str(caught.value.__cause__) == cause
    record = caught.value.record
    assert (record.outcome, script.closed) == ("interrupted", {"primary": 1})
    assert record.untried == (("fallback", "content had already been handed out"),)
    (attempt,) = record.attempts
    assert (attempt.received, attempt.billed) == (5, "yes")


def test_a_stream_without_content_is_handed_out_as_it_came() -> None:
    """Chunks that has_content never likes still are the answer if the stream ends well."""
    script = repeating(primary=[["a", "b"]], fallback=[["no"]])
    assert list(pair().stream(script.stream, has_content=lambda _: False)) == ["a", "b"]


@BOTH
def test_a_run_that_is_over_asks_nobody_and_says_so(driver: str) -> None:
    """An empty stream would be an answer that was never given."""
    script, policy = repeating(primary=[["hello"]]), pair()
    run = policy.start()
    assert ask(policy, script, driver, run=run) == ["hello"]
    with pytest.raises(RuntimeError, match="a run serves one"):
        ask(policy, script, driver, run=run)
    assert script.asked == ["primary"]


def test_nothing_is_asked_before_the_first_chunk_is_read() -> None:
    """A stream that nobody reads asks nobody and leaves no record open."""
    listener = Noting()
    script = repeating(primary=[["hello"]])
    policy = FallbackPolicy([Target("primary")], observers=[listener])
    policy.stream(script.stream).close()
    assert (script.asked, listener.events) == ([], [])


@pytest.mark.parametrize("how", ["stream", "astream", "forget"])
def test_a_reader_that_stops_closes_the_inner_stream_and_the_record(how: str) -> None:
    """close(), aclose() and a dropped generator end the provider's stream and the record."""
    script, policy = repeating(primary=[["hello", " you", " there"]]), pair()
    run = policy.start()
    if how == "forget":
        assert next(policy.stream(script.stream, run=run)) == "hello"
        gc.collect()
    else:
        assert leave(policy, getattr(script, how), how, 1, run=run) == ["hello"]
    assert script.closed == {"primary": 1}
    assert (run.record.outcome, run.record.answered_by) == ("abandoned", "primary")


class SdkStream:
    """As an SDK's: its connection is given back by ``close``, which nobody calls for it.

    Where it broke, there is none to give back any more.
    """

    def __init__(self, *replies: str | Exception) -> None:
        self.replies, self.closed = replies, 0

    def __iter__(self) -> Iterator[str]:
        for reply in self.replies:
            if isinstance(reply, Exception):
                raise reply
            yield reply

    def close(self) -> Any:
        self.closed += 1
        if DOWN in self.replies:
            raise OSError("already gone")


class AsyncSdkStream(SdkStream):
    async def __aiter__(self) -> AsyncIterator[str]:
        for reply in self:
            yield reply

    async def close(self) -> None:
        super().close()


@BOTH
def test_an_sdk_stream_is_closed_by_its_own_close(driver: str) -> None:
    """One that failed, one that ended and one whose reader leaves: each at once, and once.

    A dead stream whose close() raises is no reason to lose the fallback's answer.
    """
    kind = SdkStream if driver == "stream" else AsyncSdkStream
    streams = [kind(DOWN), kind("hello", " you"), kind("hello", " you")]

    def ask(attempt: Attempt) -> Any:
        return streams[attempt.position]

    async def aask(attempt: Attempt) -> Any:
        return ask(attempt)

    asked: Any = ask if driver == "stream" else aask
    assert asked_by(driver, pair(), asked) == ["hello", " you"]
    assert leave(pair(), lambda _: streams[2], driver, 1) == ["hello"]
    assert [one.closed for one in streams] == [1, 1, 1]


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


def texts(chunks: list[Any]) -> list[str]:
    return [one["choices"][0]["delta"]["content"] for one in chunks]


@BOTH
def test_content_that_may_be_replaced_ends_nothing(driver: str, clock: Clock) -> None:
    """A break after content goes on to the next attempt, whose first content is what is timed."""
    make = Scripted(clock)
    broken = [piece(""), piece("hel"), make.after(2, piece("lo")), DOWN]
    whole = [piece(""), make.after(3, piece("hello")), piece(" you", "stop")]
    policy, script = pair(), make({"primary": [broken], "fallback": [whole]})
    run = policy.start()
    got = texts(ask(policy, script, driver, partial="replace", run=run))
    assert got == ["", "hel", "lo", "", "hello", " you"]
    record = run.record
    assert (record.outcome, record.answered_by) == ("success", "fallback")
    assert [one.kind for one in record.attempts] == ["overloaded", None]
    assert record.time_to_first_token == pytest.approx(5)
    assert script.closed == {"primary": 1, "fallback": 1}


@BOTH
def test_where_nobody_ends_well_the_group_comes_out(driver: str) -> None:
    """Content that was handed out and dropped is no answer: the call is exhausted."""
    policy = pair()
    script = repeating(primary=[[piece("hel"), DOWN]], fallback=[[piece("hi"), DOWN]])
    run = policy.start()
    with pytest.raises(FallbackExhausted) as caught:
        ask(policy, script, driver, partial="replace", run=run)
    assert script.asked == ["primary", "fallback", "fallback"]
    assert script.closed == {"primary": 1, "fallback": 2}
    assert caught.value.exceptions == (DOWN, DOWN, DOWN)
    assert run.record.time_to_first_token is None


@BOTH
def test_a_reader_that_leaves_a_replaced_stream_abandons_it(driver: str) -> None:
    """Who is read when the reader leaves is who answered; before new content, nobody."""
    broken, whole = [piece("hel"), DOWN], [piece("hello"), piece(" you", "stop")]
    policy, script = pair(), repeating(primary=[broken], fallback=[whole])
    run = policy.start()

    got = leave(policy, getattr(script, driver), driver, 2, partial="replace", run=run)
    assert texts(got) == ["hel", "hello"]
    assert (run.record.outcome, run.record.answered_by) == ("abandoned", "fallback")
    assert run.record.attempts[0].kind == "overloaded"


def test_a_cancellation_replaces_nothing() -> None:
    """What was handed out before a cancellation stays the call's; nobody else is asked."""
    policy = pair()
    script = repeating(primary=[[piece("hel"), KeyboardInterrupt()]], fallback=[[piece("no")]])
    run = policy.start()
    with pytest.raises(KeyboardInterrupt):
        ask(policy, script, "stream", partial="replace", run=run)
    assert run.record.outcome == "cancelled"
    assert run.record.time_to_first_token is not None
    assert script.asked == ["primary"]


@pytest.mark.parametrize("verb", ["stream", "astream"])
@pytest.mark.parametrize(
    ("options", "message"),
    [
        *(({"partial": way}, r"partial: got .*; pass one of 'final'") for way in ("append", None)),
        ({"no_such_option": 1}, "no_such_option: no such option"),
    ],
)
def test_bad_options_are_refused_when_the_stream_is_made(
    verb: str, options: Any, message: str
) -> None:
    """HON-050 and its kin: what can be wrong is said at once, not at the first chunk."""
    with pytest.raises(FallbackConfigError, match=message):
        getattr(pair(), verb)(list, **options)


# What a stream says as a whole, and how fast it comes.

CALL = {"index": 0, "function": {"name": "f", "arguments": "{}"}}


@BOTH
@pytest.mark.parametrize(
    ("chunks", "whole"),
    [
        (["hel", "", "lo"], "hello"),
        ([part(role="assistant"), part(content="hel"), part(content="lo")], "hello"),
        (
            [piece("a"), part(tool_calls=[CALL])],
            {"role": "assistant", "content": "a", "tool_calls": [CALL["function"]]},
        ),
        ([[1], [2]], [1, 2]),
        ([{"mine": 1}], ({"mine": 1},)),
    ],
)
def test_validate_sees_the_joined_answer_of_a_stream(driver: str, chunks: Any, whole: Any) -> None:
    """A text, a message with its calls, what chunks add up to, or the chunks themselves."""
    seen: list[Any] = []
    policy = pair(validate=seen.append, check_responses=False)
    assert ask(policy, repeating(primary=[chunks]), driver) == chunks
    assert seen == [whole]


async def is_good(text: str) -> bool:
    await asyncio.sleep(0)
    return text == "good"


@pytest.mark.parametrize(
    ("driver", "validate"),
    [
        ("stream", lambda text: text == "good"),
        ("astream", lambda text: text == "good"),
        ("astream", is_good),
    ],
)
def test_a_refused_stream_is_replaced_or_interrupted(driver: str, validate: Any) -> None:
    """What was handed out can be replaced by another's chunks, or the error says what it was."""
    policy = pair(validate=validate)
    replies: dict[str, Any] = {"primary": [["b", "ad"]], "fallback": [["good"]]}
    got = ask(policy, repeating(**replies), driver, partial="replace")
    assert got == ["b", "ad", "good"]
    with pytest.raises(StreamInterrupted, match="malformed_response") as caught:
        ask(policy, repeating(**replies), driver)
    assert caught.value.partial == ("b", "ad")
    assert "validate said no" in str(caught.value.__cause__)
    # Nothing was handed out: the next one is asked.
    script = repeating(primary=[["", ""]], fallback=[["good"]])
    assert ask(policy, script, driver) == ["good"]


@BOTH
@pytest.mark.parametrize("partial", ["final", "replace"])
def test_a_stream_that_trickles_is_left(clock: Clock, driver: str, partial: Any) -> None:
    """min_rate: fewer characters a second, over ten seconds of waiting, are a timeout."""
    policy = pair(min_rate=2.0)
    slow = ["start", *[Scripted(clock).after(3, "x") for _ in range(9)]]
    script = Scripted(clock)({"primary": [slow], "fallback": [["fast"]]})
    run = policy.start()
    if partial == "replace":
        assert ask(policy, script, driver, run=run, partial=partial)[-1] == "fast"
    else:
        with pytest.raises(StreamInterrupted, match="timeout") as caught:
            ask(policy, script, driver, run=run)
        assert caught.value.partial == ("start", "x", "x", "x")
        assert "0.3 characters/s, fewer than min_rate=2" in str(caught.value.__cause__)
    assert run.record.attempts[0].kind == "timeout"
    assert run.record.attempts[0].seconds == 12.0


def test_a_stream_that_is_fast_enough_stays(clock: Clock) -> None:
    """Each window counts by itself, off is the default, and a slow reader is no slow stream."""
    make = Scripted(clock)
    chunks = ["start", *[make.after(3, "x") for _ in range(9)]]
    for options in ({}, {"min_rate": 0.3}):
        assert len(ask(pair(**options), make({"primary": [chunks]}), "stream")) == 10
    script = repeating(primary=[["x"] * 9])
    for _ in pair(min_rate=100.0).stream(script.stream):
        clock.advance(60)
    assert script.asked == ["primary"]


class Word(NamedTuple):
    """A chunk of one's own."""

    words: str


THOUGHT = {"type": "content_block_delta", "delta": {"type": "thinking_delta", "thinking": "hm"}}


@BOTH
@pytest.mark.parametrize("chunk", [Word("two hundred characters"), THOUGHT, 7])
def test_what_cannot_be_counted_is_never_too_slow(clock: Clock, driver: str, chunk: Any) -> None:
    """min_rate judges characters: a chunk of one's own class, or of thinking, has none."""
    script = Scripted(clock)
    healthy = ["start", *[script.after(3, chunk) for _ in range(9)]]
    assert len(ask(pair(min_rate=2.0), script({"primary": [healthy]}), driver)) == 10
    # Where it is over and characters trickle, they are judged again.
    script = Scripted(clock)
    slow = ["start", script.after(9, chunk), *[script.after(3, "x") for _ in range(4)]]
    with pytest.raises(StreamInterrupted, match="timeout"):
        ask(pair(min_rate=2.0), script({"primary": [slow]}), driver)


def pieces_of_a_call(*arguments: str) -> list[dict[str, Any]]:
    """Make the chunks of a tool call whose arguments come in these pieces."""
    functions = [{"name": "look"}, *({"arguments": one} for one in arguments)]
    calls = [part(tool_calls=[{"index": 0, "function": one}]) for one in functions]
    return [*calls, part("tool_calls")]


def test_a_call_that_nobody_can_make_is_its_readers_once_it_was_handed_out() -> None:
    """No other target can be asked then; a reader who can drop it gets the next one's answer."""
    torn, whole = pieces_of_a_call('{"city": "Par'), pieces_of_a_call('{"city": ', '"Paris"}')
    stream, policy = repeating(primary=[torn], fallback=[whole]).stream, pair()
    assert [*policy.stream(stream)] == torn
    assert [*policy.stream(stream, partial="replace")] == [*torn, *whole]
    assert [*policy.stream(stream, has_content=lambda _: False)] == whole
