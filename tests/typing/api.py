"""What type checkers must make of the public API; checked, never run."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Generator, Iterator
from typing import assert_type

import httpx
import httpx2

from honcho_fallback import (
    Attempt,
    AttemptRecord,
    CallRecord,
    CallStart,
    Failure,
    FailureKind,
    FallbackConfig,
    FallbackExhausted,
    FallbackObserver,
    FallbackPolicy,
    FallbackRun,
    StreamInterrupted,
    Switch,
    Target,
    Turn,
    classify,
)
from honcho_fallback.testing import FaultTransport


class Answer:
    """Stand for whatever a client returns."""


class Ledger(FallbackObserver):
    """Observe a call from its start to its end."""

    def on_start(self, call: CallStart, /) -> None:
        assert_type(call.chain, tuple[Target, ...])

    def on_switch(self, switch: Switch, /) -> None:
        assert_type(switch.failure, Failure)
        assert_type(switch.failed, Target)

    def on_finish(self, record: CallRecord, /) -> None:
        assert_type(record.attempts, tuple[AttemptRecord, ...])
        assert_type(record.answered_by, str | None)
        assert_type(record.explain(), str)


class Duck:
    """Observe nothing: it has the hook, and another base."""

    def on_finish(self, record: CallRecord, /) -> None: ...


ledger: FallbackObserver = Ledger()
policy = FallbackPolicy(
    [Target("a", provider="one"), Target("b", params={"temperature": 0}, context_window=8192)],
    FallbackConfig(switch_after={FailureKind.TIMEOUT: 2}, reset="turn", on_exhausted="last"),
    agent="typed",
    observers=[ledger, Ledger()],
)

FallbackPolicy([Target("a")], observers=[Duck()])  # type: ignore[list-item] # pyright: ignore[reportArgumentType] # no observer
FallbackConfig(reset="forever")  # type: ignore[arg-type] # pyright: ignore[reportArgumentType] # no such literal
FallbackConfig(on_exhausted="first")  # type: ignore[arg-type] # pyright: ignore[reportArgumentType] # no such literal
FallbackConfig(patience=3)  # type: ignore[call-arg] # pyright: ignore[reportCallIssue] # no such option
policy.call(str, reset="forever")  # type: ignore[arg-type] # pyright: ignore[reportArgumentType] # no such literal


def ask(attempt: Attempt) -> Answer:
    assert_type(attempt.target, Target)
    assert_type(attempt.timeout, float | None)
    assert_type(attempt.is_fallback, bool)
    return Answer()


async def aask(attempt: Attempt) -> Answer:
    return ask(attempt)


def chunks(attempt: Attempt) -> Iterator[Answer]:
    yield ask(attempt)


async def achunks(attempt: Attempt) -> AsyncIterator[Answer]:
    yield ask(attempt)


async def open_achunks(attempt: Attempt) -> AsyncIterator[Answer]:
    return achunks(attempt)


@policy.wrap
def wrapped_ask(attempt: Attempt, prompt: str, *, words: int = 9) -> Answer:
    return ask(attempt)


@policy.wrap
async def wrapped_aask(attempt: Attempt, prompt: str) -> Answer:
    return ask(attempt)


@policy.wrap
async def wrapped_achunks(attempt: Attempt, prompt: str) -> AsyncIterator[Answer]:
    yield ask(attempt)


async def a_wrapped_function_keeps_its_types() -> None:
    assert_type(wrapped_ask("hello", words=3), Answer)
    assert_type(await wrapped_aask("hello"), Answer)
    assert_type(wrapped_achunks(prompt="hello"), AsyncIterator[Answer])
    wrapped_ask(3)  # type: ignore[arg-type] # pyright: ignore[reportArgumentType] # a text
    wrapped_ask()  # type: ignore[call-arg] # pyright: ignore[reportCallIssue] # the prompt is missing


def sync_keeps_the_answers_type() -> None:
    assert_type(policy.call(ask), Answer)
    assert_type(policy.call(lambda attempt: attempt.number), int)
    assert_type(policy.call(ask, run=policy.start()), Answer)
    assert_type(policy.call(ask, timeout=3.0, max_attempts=2, reset="turn"), Answer)
    assert_type(policy.stream(chunks), Generator[Answer, None, None])
    assert_type(policy.stream(chunks, has_content=id), Generator[Answer, None, None])


async def async_keeps_the_answers_type() -> None:
    assert_type(await policy.acall(aask), Answer)
    assert_type(policy.astream(achunks), AsyncGenerator[Answer, None])
    assert_type(policy.astream(open_achunks), AsyncGenerator[Answer, None])


def turns() -> None:
    with policy.turn() as turn:
        assert_type(turn, Turn)
        assert_type(policy.call(ask, turn=turn), Answer)


def the_machine() -> None:
    run = policy.start(agent="other", max_attempts=1)
    assert_type(run, FallbackRun)
    assert_type(run.attempt, Attempt)
    assert_type(run.fail(TimeoutError()), Attempt)
    assert_type(run.record, CallRecord)
    assert_type(classify(TimeoutError()), Failure)
    assert_type(classify(TimeoutError()).kind, FailureKind)


def errors() -> None:
    try:
        policy.call(ask)
    except FallbackExhausted as exhausted:
        assert_type(exhausted.exceptions, tuple[Exception | ExceptionGroup[Exception], ...])
        assert_type(exhausted.record, CallRecord)
    except StreamInterrupted as interrupted:
        assert_type(interrupted.record, CallRecord)


# A transport fits the clients of both lineages of httpx, sync and async.
faults = assert_type(
    FaultTransport().on(1, status=503).on(error="timeout", seconds=60), FaultTransport
)
clients = (
    httpx.Client(transport=faults),
    httpx.AsyncClient(transport=faults),
    httpx2.Client(transport=faults),
    httpx2.AsyncClient(transport=faults),
)
faults.on(2, error="slow")  # type: ignore[arg-type] # pyright: ignore[reportArgumentType] # no such fault
