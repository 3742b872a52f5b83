"""The soak's own checks: a soak that cannot fail is worth nothing."""

from __future__ import annotations

import asyncio
import gc
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from benchmarks.soak.backends import CoreBackend
from benchmarks.soak.checker import (
    RECORDS,
    Checker,
    Observation,
    RecordObserver,
    Records,
    violations,
)
from benchmarks.soak.leaks import holdings, left_over, live_runs, lost_tasks
from benchmarks.soak.plan import (
    BACKUP,
    CANCEL,
    CLOSE,
    DROP,
    OK,
    PRIMARY,
    Call,
    Way,
    calls,
    read_prompt,
    text_of,
)
from benchmarks.soak.run import Extent, soak
from honcho_fallback import FailureKind, FallbackPolicy, Target
from tests.helpers.provider import ProviderProcess

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from honcho_fallback import Attempt, CallRecord, FallbackObserver

UNARY, STREAM = Way("core", sync=False, stream=False), Way("core", sync=False, stream=True)
SWITCHED = ((PRIMARY, "500"), (BACKUP, OK))
GOOD = text_of(7, BACKUP, 2)


class RefusedError(Exception):
    status_code = 500


def record(*failing: str, targets: Sequence[str] = (PRIMARY, BACKUP)) -> CallRecord:
    """Return the record of a call whose named targets fail."""
    observer, records = RecordObserver(), Records()
    token = RECORDS.set(records)
    policy = FallbackPolicy(
        [Target(name, provider="openai") for name in targets], observers=[observer]
    )

    def ask(attempt: Attempt) -> str:
        if attempt.target.model in failing:
            raise RefusedError
        return "answer"

    try:
        policy.call(ask, wait=0)
    except Exception:  # noqa: BLE001, S110 # the record is what is wanted
        pass
    finally:
        RECORDS.reset(token)
    (closed,) = records.closed
    return closed


def checked(
    observation: Observation,
    requests: Sequence[tuple[str, str]] = SWITCHED,
    *,
    way: Way = UNARY,
    records: Records | None = None,
) -> list[str]:
    call = Call(7, way, tuple(fault for _, fault in requests))
    records = records or Records(1, [record(PRIMARY)])
    return [*violations(call, observation, records, requests)]


def test_a_good_call_is_in_order() -> None:
    """The caller has the good answer of the request that the record and the provider know."""
    assert checked(Observation("answer", GOOD)) == []


@pytest.mark.parametrize(
    ("observation", "requests", "expected"),
    [
        (Observation("answer", text_of(8, BACKUP, 2)), SWITCHED, "good answers were"),
        (Observation("answer", text_of(7, PRIMARY, 1)), SWITCHED, "good answers were"),
        (Observation("answer", ""), SWITCHED, "good answers were"),
        (Observation("answer", GOOD, swallowed=True), SWITCHED, "swallowed"),
        (Observation("error", error="ValueError"), SWITCHED, "the record says success"),
        (Observation("answer", GOOD), (*SWITCHED, (BACKUP, OK)), "and the record has"),
        (Observation("answer", text_of(7, BACKUP, 1)), ((BACKUP, OK),), "and the record has"),
        (
            Observation("answer", text_of(7, PRIMARY, 1)),
            ((PRIMARY, OK), (BACKUP, "500")),
            "and the record",
        ),
        (Observation("left", "8 by"), SWITCHED, "begins none of"),
    ],
)
def test_what_a_caller_must_not_get(
    observation: Observation, requests: Sequence[tuple[str, str]], expected: str
) -> None:
    """Another's answer, a failed attempt's, none at all, a lost one, an unrecorded request."""
    assert any(expected in violation for violation in checked(observation, requests))


@pytest.mark.parametrize(("opened", "closed"), [(0, 0), (1, 0), (2, 1), (1, 2), (2, 2)])
def test_a_record_is_begun_and_closed_once(opened: int, closed: int) -> None:
    """Whatever else the numbers are, they are a violation."""
    records = Records(opened, [record(PRIMARY)] * closed)
    assert "records were begun" in checked(Observation("answer", GOOD), records=records)[0]


def test_a_call_cancelled_before_it_began_has_no_record() -> None:
    """The one case in which no record is right."""
    assert checked(Observation("cancelled"), (), records=Records()) == []


def test_a_lost_answer_is_found() -> None:
    """A provider answered well, and the caller got an error for it."""
    records = Records(1, [record(PRIMARY, BACKUP)])
    requests = ((PRIMARY, "500"), (BACKUP, OK), (BACKUP, "500"))
    assert any(
        "was lost" in one
        for one in checked(Observation("error", error="X"), requests, records=records)
    )


def test_a_request_that_never_left_is_no_violation() -> None:
    """An attempt that was cut short may have sent nothing; any other has."""
    tried = record(PRIMARY)
    late = replace(tried.attempts[1], kind=FailureKind.TIMEOUT)
    for kind, is_found in ((late, False), (tried.attempts[0], True)):
        attempts = (tried.attempts[0], kind, tried.attempts[1])
        records = Records(1, [replace(tried, attempts=attempts)])
        assert bool(checked(Observation("answer", GOOD), records=records)) is is_found


def test_giving_up_early_is_found() -> None:
    """An error after one target of two was asked, or a rejection of what may be retried."""
    only = Records(1, [replace(record(PRIMARY, targets=(PRIMARY,)), outcome="exhausted")])
    assert any(
        "only" in one for one in checked(Observation("error"), ((PRIMARY, "500"),), records=only)
    )
    refused = Records(1, [replace(record(PRIMARY, targets=(PRIMARY,)), outcome="rejected")])
    found = checked(Observation("error"), ((PRIMARY, "500"),), records=refused)
    assert any("rejected after 500" in one for one in found)


def test_a_broken_stream_has_to_say_so() -> None:
    """After content an error is an interruption, by its own name."""
    broken = replace(record(), outcome="interrupted", answered_by=None)
    requests = ((PRIMARY, "cut late"),)
    for error, expected in (("StreamInterrupted", 0), ("ValueError", 1)):
        observation = Observation("interrupted", "7 by", error)
        assert (
            len(checked(observation, requests, way=STREAM, records=Records(1, [broken])))
            == expected
        )


def test_closing_twice_or_never_is_noticed() -> None:
    """The observer knows records that were not open, and those that still are."""
    observer = RecordObserver()
    RECORDS.set(records := Records())
    policy = FallbackPolicy([Target("m", name=PRIMARY)], observers=[observer])
    run = policy.start()
    assert observer.open == 1
    run.succeed()
    assert (observer.open, len(records.closed), observer.violations) == (0, 1, [])
    observer.on_finish(records.closed[0])
    assert "closed while it was not open" in observer.violations[0]
    RECORDS.set(None)
    policy.start().succeed()
    assert "outside of any planned call" in observer.violations[1]


def test_a_request_after_the_end_is_noticed() -> None:
    """A call that was checked must not be heard of again."""
    checker = Checker(10)
    checker.begin(call := Call(0, UNARY, (OK,)))
    checker.end(call, Observation("answer", text_of(0, PRIMARY, 1)), Records(1, [record()]))
    checker.check([(0, PRIMARY, OK)])
    checker.check([])
    assert (checker.endings.total(), checker.count) == (1, 0)
    checker.check([(0, BACKUP, OK)])
    assert "had ended" in checker.violations[0]


def test_a_dropped_stream_is_waited_for_and_not_forgotten() -> None:
    """It may be closed late, and has to be closed in the end."""
    checker = Checker(10)
    call = Call(0, STREAM, (OK,), DROP, 0, 1)
    checker.begin(call)
    checker.end(call, Observation("left", "0"), Records(1))
    for _ in range(3):
        checker.check([])
    assert checker.endings.total() == 0
    checker.check([], last=True)
    assert (checker.endings.total(), checker.count) == (1, 1)


def test_a_call_that_never_ends_is_named() -> None:
    """A soak does not wait for it for ever."""
    checker = Checker(10)
    checker.begin(Call(3, UNARY, (OK,)))
    checker.give_up()
    assert checker.count == 1
    assert "call 3 (core async call, None, ('ok',)): never ended" in checker.violations


def test_the_plan_is_the_same_each_time() -> None:
    """A call is drawn from the seed and its number, and the prompt carries what was drawn."""
    shares = {UNARY: 1.0, STREAM: 1.0}
    planned = [*calls(3, range(300), shares)]
    assert [*calls(3, range(200, 300), shares)] == planned[200:]
    assert [*calls(4, range(300), shares)] != planned
    assert read_prompt(planned[200].prompt) == (200, planned[200].faults)
    assert {call.leave for call in planned} == {None, CANCEL, CLOSE, DROP}
    assert any(call.faults[0] != OK for call in planned)


async def test_what_is_left_over_is_named() -> None:
    """A task, a socket and a run that somebody keeps are each found."""
    runs, before = live_runs(), holdings()  # in this order: other tests leave garbage
    kept = FallbackPolicy([Target("m", name=PRIMARY)]).start()
    server = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
    task = asyncio.ensure_future(asyncio.sleep(60))
    left = " ".join(left_over(before))
    assert "1 more task sleep" in left
    assert "more sockets" in left
    assert live_runs() == runs + 1
    task.cancel()
    server.close()
    kept.cancel()


async def test_a_task_that_the_collector_took_is_named() -> None:
    """It was never cancelled and nothing held it: the loop alone hears of its end."""
    lost = lost_tasks(asyncio.get_running_loop())

    async def waits_for_nobody() -> None:
        await asyncio.Future[None]()

    asyncio.ensure_future(waits_for_nobody())  # noqa: RUF006 # that nobody holds it is the case
    await asyncio.sleep(0)
    gc.collect()
    assert len(lost) == 1
    assert "waits_for_nobody: Task was destroyed" in lost[0]


class Cheating(CoreBackend):
    """Break one promise in every call."""

    how = ""
    kept: list[Any]

    async def acall(self, prompt: str) -> str:
        if self.how == "leaks a task":
            task = asyncio.ensure_future(asyncio.sleep(60))
            self.kept = [task]
            return await super().acall(prompt)
        if self.how == "retries in secret":
            await super().acall(prompt)
            return await super().acall(prompt)
        if self.how == "swallows a cancellation":
            try:
                return await super().acall(prompt)
            except asyncio.CancelledError:
                return ""
        answer = await super().acall(prompt)
        return f"0{answer}" if self.how == "mixes answers up" else answer


@pytest.fixture(scope="module")
def providers() -> Iterator[ProviderProcess]:
    """Serve the soak's providers."""
    with ProviderProcess("benchmarks.soak.provider") as process:
        yield process


# The collector tells a dropped stream's connection of its end before the stream, which closes it.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize(
    ("how", "expected"),
    [
        ("", None),
        ("leaks a task", "more task sleep"),
        ("retries in secret", "records were begun"),
        ("swallows a cancellation", "swallowed"),
        ("mixes answers up", "good answers were"),
    ],
)
async def test_a_whole_run_finds_what_a_backend_does_wrong(
    providers: ProviderProcess, how: str, expected: str | None
) -> None:
    """An honest backend passes a small run; each cheating one is caught by it."""

    def make(url: str, observer: FallbackObserver) -> Cheating:
        backend = Cheating(url, observer)
        backend.how = how
        return backend

    report = await soak(providers, ["core"], 22, Extent(60, 20, 20), {"core": make})
    if expected is None:
        assert report.violations == []
        assert report.endings.total() == 60
    else:
        assert report.count >= len(report.violations) > 0
        assert any(expected in one for one in report.violations), report.violations
