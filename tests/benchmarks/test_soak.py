"""The soak's own judges: a soak that cannot fail is worth nothing."""

from __future__ import annotations

import asyncio
import gc
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from honcho_fallback import FallbackPolicy, Target
from soak.court import Court
from soak.lanes.core import CoreLane
from soak.leaks import Holdings, live_runs, lost_tasks
from soak.ledger import SLOT, Ledger, Slot
from soak.plan import CANCEL, CLOSE, DROP, OK, Call, Way, calls, drawn, read_prompt
from soak.provider import BACKUP, PRIMARY, text_of
from soak.run import Extent, soak
from soak.verdict import Told, troubles
from standins import serving

if TYPE_CHECKING:
    from collections.abc import Sequence

    from honcho_fallback import Attempt, CallRecord
    from standins import Served

UNARY, STREAM = Way("core", sync=False, stream=False), Way("core", sync=False, stream=True)
SWITCHED = ((PRIMARY, "500"), (BACKUP, OK))
GOOD = text_of(7, BACKUP, 2)


class RefusedError(Exception):
    status_code = 500


def record(*failing: str, targets: Sequence[str] = (PRIMARY, BACKUP)) -> CallRecord:
    """Return the record of a call whose named targets fail."""
    kept = Ledger()
    slot = Slot()
    token = SLOT.set(slot)
    policy = FallbackPolicy(
        [Target(name, provider="openai") for name in targets], observers=[kept]
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
        SLOT.reset(token)
    (closed,) = slot.records
    return closed


def judged(
    told: Told,
    served: Sequence[tuple[str, str]] = SWITCHED,
    *,
    way: Way = UNARY,
    slot: Slot | None = None,
) -> list[str]:
    call = Call(7, way, tuple(fault for _, fault in served))
    slot = slot or Slot(1, [record(PRIMARY)])
    return [*troubles(call, told, slot, served)]


def test_a_good_call_is_in_order() -> None:
    """The caller has the good answer of the request that the record and the provider know."""
    assert judged(Told("answer", GOOD)) == []


@pytest.mark.parametrize(
    ("told", "served", "said"),
    [
        (Told("answer", text_of(8, BACKUP, 2)), SWITCHED, "good answers were"),
        (Told("answer", text_of(7, PRIMARY, 1)), SWITCHED, "good answers were"),
        (Told("answer", ""), SWITCHED, "good answers were"),
        (Told("answer", GOOD, swallowed=True), SWITCHED, "swallowed"),
        (Told("error", error="ValueError"), SWITCHED, "the record says success"),
        (Told("answer", GOOD), (*SWITCHED, (BACKUP, OK)), "in no record"),
        (Told("answer", text_of(7, BACKUP, 1)), ((BACKUP, OK),), "never saw the attempt"),
        (
            Told("answer", text_of(7, PRIMARY, 1)),
            ((PRIMARY, OK), (BACKUP, "500")),
            "and the record",
        ),
        (Told("left", "8 by"), SWITCHED, "begins none of"),
    ],
)
def test_what_a_caller_must_not_get(
    told: Told, served: Sequence[tuple[str, str]], said: str
) -> None:
    """Another's answer, a failed attempt's, none at all, a lost one, an unrecorded request."""
    assert any(said in trouble for trouble in judged(told, served))


@pytest.mark.parametrize(("opened", "closed"), [(0, 0), (1, 0), (2, 1), (1, 2), (2, 2)])
def test_a_record_is_begun_and_closed_once(opened: int, closed: int) -> None:
    """Whatever else the numbers are, they are a violation."""
    slot = Slot(opened, [record(PRIMARY)] * closed)
    assert "records were begun" in judged(Told("answer", GOOD), slot=slot)[0]


def test_a_call_cancelled_before_it_began_has_no_record() -> None:
    """The one case in which no record is right."""
    assert judged(Told("cancelled"), (), slot=Slot()) == []


def test_a_lost_answer_is_found() -> None:
    """A provider answered well, and the caller got an error for it."""
    slot = Slot(1, [record(PRIMARY, BACKUP)])
    served = ((PRIMARY, "500"), (BACKUP, OK), (BACKUP, "500"))
    assert any("was lost" in one for one in judged(Told("error", error="X"), served, slot=slot))


def test_giving_up_early_is_found() -> None:
    """An error after one target of two was asked, or a rejection of what may be retried."""
    only = Slot(1, [replace(record(PRIMARY, targets=(PRIMARY,)), outcome="exhausted")])
    assert any("only" in one for one in judged(Told("error"), ((PRIMARY, "500"),), slot=only))
    refused = Slot(1, [replace(record(PRIMARY, targets=(PRIMARY,)), outcome="rejected")])
    found = judged(Told("error"), ((PRIMARY, "500"),), slot=refused)
    assert any("rejected after 500" in one for one in found)


def test_a_broken_stream_has_to_say_so() -> None:
    """After content an error is an interruption, by its own name."""
    broken = replace(record(), outcome="interrupted", answered_by=None)
    served = ((PRIMARY, "cut late"),)
    for error, expected in (("StreamInterrupted", 0), ("ValueError", 1)):
        told = Told("interrupted", "7 by", error)
        assert len(judged(told, served, way=STREAM, slot=Slot(1, [broken]))) == expected


def test_closing_twice_or_never_is_noticed() -> None:
    """The ledger knows records that were not open, and those that still are."""
    ledger = Ledger()
    SLOT.set(slot := Slot())
    policy = FallbackPolicy([Target("m", name=PRIMARY)], observers=[ledger])
    run = policy.start()
    assert ledger.open == 1
    run.succeed()
    assert (ledger.open, len(slot.records), ledger.troubles) == (0, 1, [])
    ledger.on_finish(slot.records[0])
    assert "closed while it was not open" in ledger.troubles[0]
    SLOT.set(None)
    policy.start().succeed()
    assert "outside of any planned call" in ledger.troubles[1]


def test_a_request_after_the_end_is_noticed() -> None:
    """A call that was judged must not be heard of again."""
    court = Court()
    court.begin(call := Call(0, UNARY, (OK,)))
    court.add(call, Told("answer", text_of(0, PRIMARY, 1)), Slot(1, [record()]))
    court.hold([(0, PRIMARY, OK)])
    court.hold([])
    assert (court.judged, court.found) == (1, 0)
    court.hold([(0, BACKUP, OK)])
    assert "had ended" in court.troubles[0]


def test_a_dropped_stream_is_waited_for_and_not_forgotten() -> None:
    """It may be closed late, and has to be closed in the end."""
    court = Court()
    call = Call(0, STREAM, (OK,), DROP, 0, 1)
    court.begin(call)
    court.add(call, Told("left", "0"), Slot(1))
    for _ in range(3):
        court.hold([])
    assert court.judged == 0
    court.hold([], last=True)
    assert (court.judged, court.found) == (1, 1)


def test_a_call_that_never_ends_is_named() -> None:
    """A soak does not wait for it for ever."""
    court = Court()
    court.begin(Call(3, UNARY, (OK,)))
    court.give_up()
    assert court.found == 1
    assert "call 3 (core async call, None, ('ok',)): never ended" in court.troubles


def test_the_plan_is_the_same_each_time() -> None:
    """A call is drawn from the seed and its number, and the prompt carries what was drawn."""
    shares = {UNARY: 1.0, STREAM: 1.0}
    planned = [*calls(3, 300, shares)]
    assert planned == [*calls(3, 300, shares)]
    assert planned[200] == drawn(3, 200, shares)
    assert planned != [*calls(4, 300, shares)]
    assert read_prompt(planned[200].prompt) == (200, planned[200].faults)
    assert {call.leave for call in planned} == {None, CANCEL, CLOSE, DROP}
    assert any(call.faults[0] != OK for call in planned)


async def test_what_is_left_over_is_named() -> None:
    """A task, a socket and a run that somebody keeps are each found."""
    before, runs = Holdings.now(), live_runs()
    kept = FallbackPolicy([Target("m", name=PRIMARY)]).start()
    server = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
    task = asyncio.ensure_future(asyncio.sleep(60))
    said = " ".join(Holdings.now().left_over(before))
    assert "1 more task sleep" in said
    assert "more sockets" in said
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


class Cheating(CoreLane):
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
def provider() -> Any:
    """Serve the soak's providers."""
    with serving("soak.provider") as served:
        yield served


# The collector tells a dropped stream's connection of its end before the stream, which closes it.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("", None),
        ("leaks a task", "more task sleep"),
        ("retries in secret", "records were begun"),
        ("swallows a cancellation", "swallowed"),
        ("mixes answers up", "good answers were"),
    ],
)
async def test_a_whole_run_finds_what_a_lane_does_wrong(
    provider: Served, how: str, said: str | None
) -> None:
    """An honest lane passes a small run; each cheating one is caught by it."""

    def make(_name: str, served: Served, ledger: Ledger) -> Cheating:
        lane = Cheating(served, ledger)
        lane.how = how
        return lane

    report = await soak(provider, ["core"], 22, Extent(60, 20, 20), make)
    if said is None:
        assert report.troubles == []
        assert report.endings.total() == 60
    else:
        assert report.found >= len(report.troubles) > 0
        assert any(said in trouble for trouble in report.troubles), report.troubles
