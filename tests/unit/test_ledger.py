"""What attempts and calls cost: whose usage it is, what is billed, and within what bounds."""

from __future__ import annotations

import json
from contextlib import nullcontext
from math import inf
from typing import Any

import pytest

from honcho_fallback import (
    CallRecord,
    FallbackConfigError,
    FallbackExhausted,
    FallbackPolicy,
    StreamInterrupted,
    Target,
)
from honcho_fallback.records import read_records
from honcho_fallback.testing import StatusError
from tests.helpers.answers import as_object
from tests.helpers.scripted import DRIVERS, ask, pair, repeating
from tests.helpers.wire import chat_answer, part

GONE, BUSY = ConnectionRefusedError(111, "refused"), StatusError(429)
SLOW, RESET = TimeoutError("too slow"), ConnectionResetError(104, "reset")
PRICES = {"primary": (1.0, 10.0), "fallback": (2.0, 20.0)}
USED = {"input_tokens": 1_000_000, "output_tokens": 100_000}
ANSWER = {"choices": [{"message": {"content": "hello"}}], "usage": {
    "prompt_tokens": 1_000_000, "completion_tokens": 100_000}}  # fmt: skip


def record_of(primary: Any, fallback: Any = ANSWER) -> CallRecord:
    policy = pair()
    run = policy.start()
    policy.call(repeating(primary=[primary], fallback=[fallback]).ask, run=run)
    return run.record


@pytest.mark.parametrize("driver", DRIVERS)
@pytest.mark.parametrize(
    ("error", "reached", "billed", "words"),
    [
        (GONE, "no", "no", "connection (ConnectionRefusedError) in 0 ms\n"),
        (BUSY, "refused", "no", "rate_limit (429, StatusError) in 0 ms\n"),
        (SLOW, "unknown", "unknown", "timeout (TimeoutError) in 0 ms, perhaps billed\n"),
    ],
)
def test_each_attempt_says_whether_it_is_billed(  # one table
    clock: Any, driver: str, error: Exception, reached: str, billed: str, words: str
) -> None:
    """In the record, in its JSON and in explain(); saved lines are read again."""
    del clock
    policy = pair()
    run = policy.start()
    DRIVERS[driver](policy, repeating(primary=[error], fallback=["hello"]), run)
    record = run.record
    failed, answered = record.attempts
    assert (failed.reached, failed.billed) == (reached, billed)
    assert (answered.reached, answered.billed) == (None, "yes")
    assert words in record.explain()
    line = json.dumps(record.to_dict())
    saved = json.loads(line)["attempts"][0]
    assert (saved["reached"], saved["billed"], saved["received"]) == (reached, billed, None)
    assert list(read_records([line])) == [record]


def test_lines_of_before_are_read() -> None:
    """A record that was saved without the new fields says that it does not know."""
    values = record_of(SLOW).to_dict()
    for attempt in values["attempts"]:
        for name in ("reached", "received", "billed"):
            del attempt[name]
    (record,) = read_records([json.dumps(values)])
    assert [attempt.billed for attempt in record.attempts] == ["unknown", "yes"]


@pytest.mark.parametrize("driver", ["stream", "astream"])
@pytest.mark.parametrize("partial", ["final", "replace"])
def test_a_cut_stream_counts_what_was_received(driver: str, partial: Any) -> None:
    """It is billed, with the characters that the reader had."""
    policy = pair()
    script = repeating(primary=[["", "hel", "lo", RESET]], fallback=[["again"]])
    run = policy.start()
    with pytest.raises(StreamInterrupted) if partial == "final" else nullcontext():
        ask(policy, script, driver, run=run, partial=partial)
    cut = run.record.attempts[0]
    assert (cut.billed, cut.received, cut.reached) == ("yes", 5, "unknown")
    assert ", billed" in run.record.explain()
    assert run.record.cost(PRICES | {"fallback": (0, 0)}) == (5 / 4 * 10 / 1e6, inf)


def test_chunks_of_an_sdk_are_counted_too() -> None:
    """Texts and the arguments of tool calls; what cannot be read is not."""
    call = {"index": 0, "function": {"name": "f", "arguments": '{"a"'}}
    chunks: list[Any] = [part(content="hello"), part(tool_calls=[call])]
    for cut, count in ((chunks, 9), ([object()], None)):
        run = pair().start()
        with pytest.raises(StreamInterrupted):
            list(pair().stream(repeating(primary=[[*cut, RESET]]).stream, run=run))
        assert run.record.attempts[0].received == count


def test_a_reader_who_leaves_has_received_something() -> None:
    """The provider may have gone on: what was received is the least that it bills."""
    policy = pair()
    run = policy.start()
    stream = policy.stream(lambda _: iter(["hello", "you"]), run=run)
    next(stream)
    stream.close()
    assert run.record.attempts[0].received == 5
    assert run.record.cost(PRICES) == (5 / 4 * 10 / 1e6, inf)


def test_a_usage_of_a_stream_that_was_cut_is_the_least() -> None:
    """Providers count input first: more was written than they had said by then."""
    run = pair().start()
    run.commit(partial=["12345678"])
    run.report(usage={"input_tokens": 1_000_000, "output_tokens": 1})
    with pytest.raises(StreamInterrupted):
        run.fail(RESET)
    price = {"primary": (1.0, 1_000_000.0)}
    assert run.record.cost(price) == (3.0, inf)
    assert run.record.cost(price, at_most=(9_000_000, 10)) == (3.0, 11.0)
    assert run.record.cost(price, at_most=(0, 0)) == (3.0, 3.0)


def test_bounds_of_what_a_call_cost() -> None:
    """A refused request costs nothing, an answer what it says, a lost one nobody knows what."""
    assert record_of(BUSY).cost(PRICES) == (4.0, 4.0)
    assert record_of(GONE).cost(PRICES) == (4.0, 4.0)
    assert record_of(SLOW).cost(PRICES) == (4.0, inf)
    assert record_of(SLOW).cost(PRICES | {"primary": (1, 0)}) == (4.0, inf)
    # The prompt's length and max_tokens bound it.
    at_most = (2_000_000, 300_000)
    assert record_of(SLOW).cost(PRICES, at_most=at_most) == (4.0, 4.0 + 2.0 + 3.0)
    assert record_of(BUSY).cost(PRICES, at_most=at_most) == (4.0, 4.0)
    # An answer that says nothing of its cost, or in a form of its own, is not said to be free.
    assert record_of(SLOW, "hello").cost(PRICES) == (0.0, inf)
    run = pair().start()
    run.succeed(usage={"credits": 3})
    assert run.record.cost(PRICES) == (0.0, inf)
    # Where every request was refused it cost nothing, whatever the prices.
    with pytest.raises(FallbackExhausted) as got:
        pair().call(repeating(primary=[BUSY], fallback=[BUSY]).ask, max_attempts=2)
    assert got.value.record.cost({}) == (0.0, 0.0)


def test_prices_by_model_and_for_what_was_cached() -> None:
    """A target's own price wins over its model's; three figures price cached input by itself."""
    policy = FallbackPolicy([Target("m", "p")])
    run = policy.start()
    run.succeed(usage=USED | {"cache_read_tokens": 400_000})
    record = run.record
    assert record.cost({"m": (1, 10)}) == (2.0, 2.0)
    assert record.cost({"m": (1, 10), "p/m": (2, 10)}) == (3.0, 3.0)
    assert record.cost({"m": (1, 10, 0.5)}) == pytest.approx((1.8, 1.8))


@pytest.mark.parametrize(
    ("prices", "message"),
    [
        ({"primari": (1, 1), "fallback": (1, 1)}, "primary: no such price; did you mean primari"),
        ({"primary": (1,), "fallback": (1, 1)}, r"pass \(input, output\)"),
        ({"primary": 3, "fallback": (1, 1)}, r"prices\['primary'\]: got 3"),
        ({"primary": (1, -1), "fallback": (1, 1)}, r"prices\['primary'\]: got \(1, -1\)"),
    ],
)
def test_a_missing_or_wrong_price_is_refused(prices: Any, message: str) -> None:
    """A sum that leaves out an attempt would be wrong; one that costs nothing needs no price."""
    with pytest.raises(FallbackConfigError, match=message):
        record_of(SLOW).cost(prices)
    assert record_of(BUSY).cost({"fallback": (1, 0)}) == (1.0, 1.0)


# Usage stays with the attempt that brought it, and is the call's where its answer was taken.


def completion(tokens: int, text: str = "hello") -> Any:
    """Return an answer of OpenAI's SDK that cost so many tokens."""
    usage = {"prompt_tokens": tokens, "completion_tokens": 1, "total_tokens": tokens + 1}
    return as_object(chat_answer(text, usage=usage))


@pytest.mark.parametrize("driver", ["call", "acall"])
@pytest.mark.parametrize(
    ("primary", "fallback", "spent", "answer"),
    [
        (BUSY, completion(5), [None, 5], 5),
        (completion(99, "bad"), "no usage known", [99, None], None),
        (completion(99, "bad"), completion(7, "bad"), [99, 7], None),
    ],
)
def test_the_usage_of_a_refused_answer_stays_with_its_attempt(
    driver: str, primary: Any, fallback: Any, spent: Any, answer: Any
) -> None:
    """What the caller never got is not what the answer cost; without an answer there is none.

    No driver has to be told: the reader of answers finds the usage of an SDK's object.
    """
    policy = pair(validate=lambda one: "bad" not in str(one), max_attempts=2)
    run = policy.start()
    with pytest.raises(FallbackExhausted) if "bad" in str(fallback) else nullcontext():
        DRIVERS[driver](policy, repeating(primary=[primary], fallback=[fallback]), run)
    usages = [attempt.usage for attempt in run.record.attempts]
    assert [usage and usage["input_tokens"] for usage in usages] == spent
    assert [one["usage"] for one in run.record.to_dict()["attempts"]] == usages
    assert run.record.usage == (answer and usages[-1])


def test_an_answer_that_is_looked_at_has_its_usage_and_its_time(clock: Any) -> None:
    """What the caller says of it counts as for one that needs no look, refused or taken.

    An adapter that reports usage before a failure does not bill the fallback.
    """
    policy = pair(validate=lambda answer: answer != "bad", switch_after=2)
    start = clock.now
    run = policy.start()
    run.accept("bad", usage={"n": 1}, now=start + 1)
    run.report(usage={"n": 99})
    run.fail(BUSY, now=start + 3)
    assert run.record.usage is None
    assert run.accept("good", usage={"n": 2}, now=start + 6) is None
    record = run.record
    assert [attempt.usage for attempt in record.attempts] == [{"n": 1}, {"n": 99}, {"n": 2}]
    assert ([attempt.seconds for attempt in record.attempts], record.seconds) == ([1, 2, 3], 6)
    assert (record.usage, record.is_fallback) == ({"n": 2}, True)
    plain = pair().start()
    plain.accept("hello", now=start + 5)
    assert plain.record.seconds == 5
