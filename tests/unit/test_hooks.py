"""The user's own hooks: what they decide, where they may be async, and what breaks in them."""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncIterator, Iterator
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import pytest
from pydantic import BaseModel, RootModel

from honcho_fallback import (
    AnswerRejected,
    Failure,
    FailureKind,
    FallbackConfig,
    FallbackConfigError,
    FallbackPolicy,
    Target,
)
from honcho_fallback.testing import StatusError
from tests.helpers.scripted import DRIVERS, ask, asked_by, pair, repeating

if TYPE_CHECKING:
    from honcho_fallback import Attempt
    from honcho_fallback.testing import Script

P, F = "primary", "fallback"
LATE = {"error": {"message": "Overloaded", "type": "overloaded_error"}, "type": "error"}


def changed(**change: Any) -> Any:
    return lambda failure, _: failure._replace(**change)


async def is_good(answer: str) -> bool:
    await asyncio.sleep(0)
    return answer == "good"


async def chokes(answer: str) -> None:
    await asyncio.sleep(0)
    if answer != "good":
        raise ValueError(answer)


@pytest.mark.parametrize(
    ("validate", "error"),
    [
        (is_good, "AnswerRejected"),
        (chokes, "ValueError"),
        # What it is is seen when it is called: a lambda around a coroutine function.
        (lambda answer: is_good(f"{answer}"), "AnswerRejected"),
        (lambda answer: answer == "good", "AnswerRejected"),
        (lambda answer: {"good": None}[answer], "KeyError"),
        # A comparison of scores returns numpy's own False.
        (lambda answer: pytest.importorskip("numpy").bool_(answer == "good"), "AnswerRejected"),
    ],
)
@pytest.mark.parametrize("kind", [FailureKind.MALFORMED_RESPONSE, FailureKind.RATE_LIMIT])
async def test_an_async_validator_is_awaited(validate: Any, error: str, kind: FailureKind) -> None:
    """What it returns or raises counts as of a sync one, and is refined; None accepts."""
    policy = pair(validate=validate, refine=changed(kind=kind))
    script = repeating(primary=["bad"], fallback=["good"])
    run = policy.start()
    assert await policy.acall(script.aask, run=run) == "good"
    first = run.record.attempts[0]
    assert (first.kind, first.error) == (kind, error)


async def never(_: object) -> bool:
    await asyncio.Event().wait()
    return True


async def cancelled_elsewhere(_: object) -> bool:
    raise asyncio.CancelledError


@pytest.mark.parametrize("verb", ["acall", "astream"])
@pytest.mark.parametrize(
    ("validate", "error"),
    [(never, "TimeoutError"), (cancelled_elsewhere, "ConnectionAbortedError")],
)
def test_a_validator_that_never_says_anything_costs_no_call(
    verb: str, validate: Any, error: str
) -> None:
    """It has the attempt's time, and what somebody else cancelled in it cancels nobody."""

    async def judge(answer: object) -> bool:
        return answer == "good" or await validate(answer)

    script = repeating(primary=["bad"], fallback=["good"])
    policy = pair(validate=judge, timeout=0.05)
    run = policy.start()
    options: dict[str, Any] = {"partial": "replace"} if verb == "astream" else {}
    assert "good" in ask(policy, script, verb, run=run, **options)
    first = run.record.attempts[0]
    assert (first.kind, first.error) == (FailureKind.MALFORMED_RESPONSE, error)


def breaks(*_: Any) -> Failure:
    raise ZeroDivisionError


async def waits(*_: Any) -> Failure:
    return Failure.of(FailureKind.RATE_LIMIT)


class WaitsWhenCalled:
    async def __call__(self, *_: Any) -> Failure:
        return Failure.of(FailureKind.RATE_LIMIT)


@pytest.mark.parametrize("hook", [waits, WaitsWhenCalled()])
def test_an_async_refine_is_refused_where_it_is_written(hook: Any) -> None:
    """What an error means is decided at once; only an answer may be looked at for longer."""
    with pytest.raises(FallbackConfigError, match="refine: it is async; write it without async"):
        FallbackConfig(refine=hook)
    with pytest.raises(FallbackConfigError, match="refine: it is async"):
        pair().call(HELLO.ask, refine=hook)


SLIPS = (
    *(changed(kind="nonsense"), changed(kind=["rate_limit"]), changed(kind=None)),
    *(changed(retry_after="soon"), changed(scope="planet"), changed(code=5)),
    *(changed(error=None), changed(transient=None), lambda *_: None),
)


@pytest.mark.parametrize(
    ("refine", "what"),
    [
        # As fallback_on, rules and a cooldown take it, a kind may be named by its word.
        (changed(kind="rate_limit"), ""),
        (lambda *_: Failure.of("rate_limit"), ""),  # type: ignore[arg-type] # users without a type checker
        *((slip, "returned no Failure") for slip in SLIPS),
        (breaks, "raised ZeroDivisionError"),
    ],
)
@pytest.mark.parametrize("driver", ["call", "acall"])
def test_what_is_no_failure_changes_nothing(
    driver: str, refine: Any, what: str, caplog: Any
) -> None:
    """A slip in refine shows at the first outage, which is no time to lose a provider's error."""
    script = repeating(primary=[StatusError(503)], fallback=["hello"])
    policy = pair(refine=refine)
    run = policy.start()
    assert DRIVERS[driver](policy, script, run) == "hello"
    assert run.record.attempts[0].kind == ("overloaded" if what else "rate_limit")
    assert isinstance(run.record.attempts[0].kind, FailureKind)
    assert (f"refine {what}; it is passed over" in caplog.text) is bool(what)


def looks_sync(answer: str) -> Any:
    return is_good(answer)


@pytest.mark.parametrize(
    ("driver", "validate", "asked"),
    [("call", is_good, []), ("stream", is_good, []), ("call", looks_sync, [P])],
)
def test_an_async_validator_is_refused_in_a_thread(
    driver: str, validate: Any, asked: list[str]
) -> None:
    """Before anything is asked, with the verbs that would await it; and the record is closed.

    One that accepts everything, because nobody awaited it, would be the worst: the call ends where
    it turns out to be async. A loop of one's own cannot await it either.
    """
    policy, script = pair(validate=validate), repeating(primary=["x"])
    run, own = policy.start(), policy.start()
    with pytest.raises(FallbackConfigError, match="validate: it is async; use acall or astream"):
        DRIVERS[driver](policy, script, run)
    assert (script.asked, run.outcome) == (asked, "rejected" if asked else "cancelled")
    with pytest.raises(FallbackConfigError, match="validate: it is async"):
        own.accept("bad")
    assert own.outcome == "rejected"


@pytest.mark.parametrize(
    ("status", "change", "asked"),
    [
        # A kind that only replaces another means all that it means.
        (400, {"kind": FailureKind.OVERLOADED}, [P, F]),
        (400, {"kind": FailureKind.QUOTA}, [P, F]),
        (503, {"kind": FailureKind.LOCAL}, [P]),
        # Answers that refine gives itself stay: they are what the presets are made of.
        (400, {"kind": FailureKind.LOCAL, "switchable": True}, [P, F]),
        (503, {"kind": FailureKind.RATE_LIMIT, "transient": False, "switchable": False}, [P]),
    ],
)
def test_a_kind_brings_its_answers_unless_refine_has_its_own(
    status: int, change: dict[str, Any], asked: list[str]
) -> None:
    """Whether another target helps, and whether the same may soon; it is told what was raised."""
    error, seen = StatusError(status), list[BaseException]()

    def refine(failure: Failure, raised: BaseException) -> Failure:
        seen.append(raised)
        return failure._replace(**change)

    wanted = {"fallback_on": {"local"}} if change.get("switchable") else {}
    policy = pair(refine=refine, **wanted)
    script = repeating(primary=[error], fallback=["hello"])
    run = policy.start()
    with nullcontext() if F in asked else pytest.raises(StatusError):
        policy.call(script.ask, run=run)
    assert (script.asked, seen) == (asked, [error])
    assert run.record.attempts[0].kind == change["kind"]


def test_a_transient_kind_is_asked_again() -> None:
    """On the only target it may pass by itself."""
    refine = changed(kind=FailureKind.OVERLOADED)
    policy = FallbackPolicy([Target(P)], wait=0, refine=refine)
    assert policy.call(repeating(primary=[StatusError(400), "back"]).ask) == "back"


@pytest.mark.parametrize(
    "options",
    [{"agent": "x"}, {"timeout": 3}, {"turn": True}, {"unfit": {0: "x"}}, {"metadata": {"a": 1}}],
)
def test_a_run_comes_alone(options: dict[str, Any]) -> None:
    """Options of a call that has begun already would be lost: where they go is said."""
    policy = pair()
    if "turn" in options:
        options = {"turn": policy.turn()}
    with pytest.raises(FallbackConfigError, match=r"run: it came with options.*start\(\)"):
        policy.call(HELLO.ask, run=policy.start(), **options)


def judge(failure: Failure, error: BaseException) -> Failure:
    assert isinstance(error, AnswerRejected | ValueError)
    return failure._replace(kind=FailureKind.LOCAL)


def test_a_refused_answer_is_refined_like_an_exception() -> None:
    """HON-025: an object that failed under HTTP 200 and one that `validate` refused go through."""
    policy = pair(refine=judge, validate=lambda answer: answer != "bad")
    for bad in ("bad", LATE):
        script = repeating(primary=[bad], fallback=["no"])
        with pytest.raises(AnswerRejected):
            policy.call(script.ask)
        assert script.asked == [P]


@pytest.mark.parametrize("answer", ["a text", {"a": 1}])
@pytest.mark.parametrize(
    "validate",
    [
        lambda answer: answer.contents,
        lambda answer: answer + 1,
        lambda answer: an_answer,  # type: ignore[name-defined] # noqa: F821 # the mistake
    ],
)
def test_a_mistake_in_a_validator_is_no_providers_failure(validate: Any, answer: Any) -> None:
    """It comes out of the call that it was made in, and nobody else is asked for it."""
    script = repeating(primary=[answer], fallback=["no"])
    policy = pair(validate=validate)
    run = policy.start()
    with pytest.raises((AttributeError, NameError, TypeError)):
        policy.call(script.ask, run=run)
    assert script.asked == [P]
    assert run.record.attempts[0].kind == "local"


@pytest.mark.parametrize("validate", [lambda answer: answer.strip(), lambda answer: answer + "."])
def test_a_validator_that_meets_none_says_no(validate: Any) -> None:
    """An answer that lacks what was to be looked at is no bug, and somebody else is asked."""
    script = repeating(primary=[{"text": None}], fallback=[{"text": "hello"}])
    answer = pair(validate=lambda one: bool(validate(one["text"]))).call(script.ask)
    assert answer == {"text": "hello"}


def test_the_pull_requests_table_holds_for_answers() -> None:
    """HON-025, HOM-060: junk engages the fallback; under HTTP 200 the table decides."""
    config = FallbackConfig.honcho(wait=0, validate=lambda answer: answer != "bad")
    policy = FallbackPolicy([Target(P), Target(F)], config)
    for bad in ("bad", LATE):
        script = repeating(primary=[bad], fallback=["hello"])
        assert policy.call(script.ask) == "hello"
    blocked = {"candidates": [], "promptFeedback": {"blockReason": "SAFETY"}}
    with pytest.raises(AnswerRejected):
        policy.call(repeating(primary=[blocked], fallback=["no"]).ask)


class Fields(BaseModel):
    """An answer as the SDKs make them: iterating over it gives its fields."""

    id: str = "1"
    choices: list[Any] = []


class Items(RootModel[list[str]]):
    """A model that says itself what iterating over it gives."""

    def __iter__(self) -> Any:
        return iter(self.root)


class SyncStream(Iterator[str]):
    """As SDKs make them: an iterator to close."""

    def __init__(self) -> None:
        self.closed = False
        self.chunks = iter(["hel", "lo"])

    def __next__(self) -> str:
        return next(self.chunks)

    def close(self) -> Any:
        self.closed = True


class AsyncStream(AsyncIterator[str]):
    """As SDKs make them; its close is a coroutine."""

    def __init__(self) -> None:
        self.closed = False
        self.chunks = iter(["hel", "lo"])

    async def __anext__(self) -> str:
        chunk = next(self.chunks, None)
        if chunk is None:
            raise StopAsyncIteration
        return chunk

    async def close(self) -> None:
        self.closed = True


class BothWays(SyncStream, AsyncStream):
    """As LiteLLM's."""

    close = SyncStream.close


def says(answer: Any) -> Script:
    return repeating(primary=[answer], fallback=[answer])


HELLO = says("hello")
COMPLETION = {"choices": [{"message": {"content": "hello"}}], "model": "m", "object": "x"}


@pytest.mark.parametrize(
    ("verb", "asks", "fits"),
    [
        ("call", HELLO.aask, "acall"),
        ("call", HELLO.stream, "stream"),
        ("call", HELLO.astream, "astream"),
        ("acall", HELLO.ask, "call"),
        ("acall", HELLO.stream, "stream"),
        ("acall", HELLO.astream, "astream"),
        ("stream", HELLO.aask, "astream"),
        ("stream", HELLO.astream, "astream"),
        ("astream", HELLO.ask, "stream"),
        ("astream", HELLO.stream, "stream"),
        # Whole answers and the SDKs' streams: fields are no chunks.
        ("stream", says(Fields()).ask, "call"),
        ("stream", says(dict(COMPLETION)).ask, "call"),
        ("astream", says(Fields()).aask, "acall"),
        ("call", SyncStream(), "stream"),
        ("call", BothWays(), "stream"),
        ("call", AsyncStream(), "astream"),
        ("acall", SyncStream(), "stream"),
        ("acall", BothWays(), "astream"),
        ("acall", AsyncStream(), "astream"),
        ("stream", AsyncStream(), "astream"),
    ],
)
def test_the_wrong_verb_is_refused_with_the_right_one(verb: str, asks: Any, fits: str) -> None:
    """What nobody has read, recorded as a success, is a failure that nobody sees.

    The connection of a stream that was no answer goes back, in the way that its verb can.
    """
    made = asks if isinstance(asks, SyncStream | AsyncStream) else None
    if made:
        asks = says(made).aask if verb == "acall" else says(made).ask
    run = (policy := pair(fallback_on={*FailureKind} - {FailureKind.CANCELLED})).start()
    message = rf"ask: it returned .* to policy\.{verb}; use policy\.{fits} "
    with pytest.raises(FallbackConfigError, match=message):
        asked_by(verb, policy, asks, run=run)
    assert (run.outcome, len(run.record.attempts)) == ("rejected", 1)
    if isinstance(made, SyncStream) or verb == "acall":
        assert made is None or made.closed


@pytest.mark.parametrize(
    "answer",
    [
        *("hello", ["a"], ("a",), {"a": 1}, COMPLETION, None, Fields(), Items(["a"])),
        *(iter("ab"), map(str, "ab"), io.BytesIO(b"speech")),
    ],
    ids=lambda answer: type(answer).__name__,
)
async def test_any_answer_that_can_be_used_is_one(answer: Any) -> None:
    """Values, containers, models, files and plain iterators: doubt lets an answer pass."""
    assert pair().call(says(answer).ask) is answer
    assert await pair().acall(says(answer).aask) is answer


@pytest.mark.parametrize(
    "make",
    [
        *(lambda: ["a", "b"], lambda: ("a", "b"), lambda: iter("ab"), lambda: "ab"),
        *(lambda: {"a": 1, "b": 2}, lambda: Items(["a", "b"]), SyncStream, BothWays),
    ],
)
def test_any_iterable_of_chunks_is_a_stream(make: Any) -> None:
    """Lists, tuples, iterators, SDKs' streams, and models that say how they are iterated.

    LiteLLM's streams are one class for threads and tasks.
    """
    assert "".join(pair().stream(lambda _: make())) in {"ab", "hello"}
    if make is BothWays:
        assert asked_by("astream", pair(), lambda _: make()) == ["hel", "lo"]


@pytest.mark.parametrize(("verb", "asks"), [("acall", HELLO.aask), ("astream", HELLO.astream)])
def test_a_plain_function_may_fail_before_it_has_something_to_await(verb: str, asks: Any) -> None:
    """It is no wrong verb yet: what it raises is a failure, and the next target is asked."""

    def prepares(attempt: Attempt) -> Any:
        if attempt.target.name == P:
            raise StatusError(503)
        return asks(attempt)

    assert asked_by(verb, pair(), prepares) in ("hello", ["hello"])
