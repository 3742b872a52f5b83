"""Who is asked in one call, whatever the framework: one request each, or nobody else."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from tests.contract.ways.cells import after_content, cells, in_turn, one_each
from tests.contract.ways.way import EXHAUSTED, INTERRUPTED, REJECTED, Place
from tests.helpers import wire
from tests.helpers.provider import Reply
from tests.helpers.redis_server import free_port

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.contract.ways.cells import Cell


class Failing(NamedTuple):
    """Say what a provider does, and what it has to be taken for."""

    kind: str
    reply: Reply
    forms: tuple[str, ...] = ("openai", "anthropic")


def openai_says(kind: str, status: int, code: str, message: str = "own words") -> Failing:
    """Describe an error that OpenAI names by a code."""
    body = wire.openai_error(message, "invalid_request_error", code)
    return Failing(kind, Reply(status=status, body=body), ("openai",))


FAILURES: dict[str, Failing] = {
    "rate limit": Failing("rate_limit", Reply(status=429, headers={"retry-after": "30"})),
    "quota": openai_says("quota", 429, "insufficient_quota"),
    "server": Failing("server_error", Reply(status=500)),
    "unavailable": Failing("overloaded", Reply(status=503)),
    "overloaded": Failing("overloaded", Reply(status=529)),
    "timeout": Failing("timeout", Reply(status=408)),
    "key": Failing("authentication", Reply(status=401)),
    "money": Failing("quota", Reply(status=402)),
    "region": Failing("permission", Reply(status=403)),
    "gone": openai_says("model_unavailable", 404, "model_not_found"),
    "dropped": Failing("connection", Reply(drop=True)),
    # Nothing says how large the windows are: a longer one may be next.
    "window": openai_says("context_overflow", 400, "context_length_exceeded", "maximum context"),
    "size": Failing("payload_too_large", Reply(status=413)),
}


@in_turn(failure=FAILURES)
async def test_the_first_failure_switches(cell: Cell, failure: str) -> None:
    """The primary sees one request, though its SDK would send three; the fallback answers.

    Its tokens are in the record, whatever its form; neither a key nor an address is told.
    """
    cell.primary.standing = FAILURES[failure].reply
    cell.build()
    assert await cell.is_answered_by(cell.backup)
    assert cell.asked == (1, 1)
    record = cell.record
    assert cell.kinds == [FAILURES[failure].kind, None]
    assert (record.outcome, record.is_fallback, record.attempts[1].wait) == ("success", True, 0)
    assert record.usage is not None
    assert record.usage["input_tokens"] > 0
    heard = cell.listener
    assert len(heard.switches) == 1
    told = str(record.to_dict()) + repr((heard.starts, heard.switches))
    for place in cell.places:
        assert place.secret not in told
        assert place.url not in repr((heard.starts, heard.switches))


@cells(every=True)
async def test_each_call_begins_at_the_primary(cell: Cell) -> None:
    """The fallback costs nothing until it is wanted: a healthy primary is the only one asked.

    G-21: without a cooldown or a turn a failure says nothing of the next call.
    """
    cell.build()
    assert await cell.is_answered_by(cell.primary)
    assert cell.asked == (1, 0)
    assert not cell.record.is_fallback
    cell.primary.fail(503, times=1)
    assert await cell.is_answered_by(cell.backup)
    assert await cell.is_answered_by(cell.primary)
    assert cell.asked == (3, 1)


@cells()
async def test_a_port_that_nobody_listens_on_switches(cell: Cell) -> None:
    """The most common outage of all; another model at the same host is not asked at all."""
    cell.primary.url = f"http://127.0.0.1:{free_port()}"
    first, last = cell.places
    cell.places = [first, Place(cell.primary, "gpt-next-mini"), last]
    cell.build()
    assert await cell.is_answered_by(cell.backup)
    assert cell.kinds == ["connection", None]
    assert cell.record.attempts[0].reached == "no"
    ((_, why),) = cell.record.untried
    assert "the same host" in why


@one_each()
async def test_another_model_of_a_refused_key_is_passed_over(cell: Cell) -> None:
    """A key is refused once; a model with another key is asked at the same address."""
    cell.primary.key = "good"
    keys = ("revoked", "revoked", "good")
    cell.places = [Place(cell.primary, f"gpt-{n}", key) for n, key in enumerate(keys)]
    cell.build()
    assert await cell.is_answered_by(cell.primary)
    assert [request.key for request in cell.primary.requests] == ["revoked", "good"]
    ((_, why),) = cell.record.untried
    assert "the same key" in why


@cells()
async def test_a_wrong_request_switches_nothing(cell: Cell) -> None:
    """It is the program's: the framework's own error comes out, and the record says so."""
    cell.primary.fail(400, error="invalid_request_error", message="no tool named get_rate_limit")
    cell.build()
    await cell.fails(REJECTED)
    assert cell.asked == (1, 0)
    assert (cell.record.outcome, cell.kinds) == ("rejected", ["invalid_request"])


@cells()
async def test_everybody_is_down(cell: Cell) -> None:
    """Each was asked once, and neither the SDK nor the framework asks again."""
    cell.primary.fail(500)
    cell.backup.fail(529)
    cell.build(attempts_per_target=1)
    await cell.fails(EXHAUSTED)
    assert cell.asked == (1, 1)
    assert (cell.record.outcome, cell.kinds) == ("exhausted", ["server_error", "overloaded"])


# Both after HTTP 200.
BEFORE_CONTENT = {
    "cut": Reply(events=[], cut=True),
    "error event": Reply(text="", error="overloaded_error"),
}


@cells(streamed=True)
@pytest.mark.parametrize("broken", BEFORE_CONTENT)
async def test_a_stream_that_breaks_before_its_content_switches(cell: Cell, broken: str) -> None:
    """Nothing was shown yet."""
    cell.primary.standing = BEFORE_CONTENT[broken]
    cell.build()
    assert await cell.is_answered_by(cell.backup)
    assert cell.asked == (1, 1)


@cells(streamed=True)
async def test_a_stream_that_is_cut_after_its_content_is_interrupted(cell: Cell) -> None:
    """What was shown stays shown, so nobody else is asked; the record says what was received."""
    cell.primary.standing = after_content(cut=True)
    cell.build()
    await cell.fails(INTERRUPTED)
    assert cell.asked == (1, 0)
    cut = cell.record.attempts[0]
    assert (cell.record.outcome, cut.received, cut.billed) == ("interrupted", 5, "yes")


@cells(asynchronous=True)
async def test_a_cancelled_call_stays_cancelled(cell: Cell) -> None:
    """Whoever gives up does not begin again at the fallback."""
    cell.build()
    await cell.is_cancelled_at_the_primary()
    assert cell.asked == (1, 0)
    assert cell.record.outcome == "cancelled"


async def shares_nothing(cell: Cell, calls: int, reply: Callable[[str], Any]) -> None:
    """Make calls at once, of which half meet an outage: no healthy one touches the backup."""
    cell.primary.standing = lambda request: Reply(
        status=503 if "fail" in str(request.body) else 200
    )
    cell.build(reset="iteration")
    asked = [f"{'fail' if number % 2 else 'answer'} {number}" for number in range(calls)]
    said = await asyncio.gather(*map(reply, asked))
    wanted = [cell.backup if number % 2 else cell.primary for number in range(calls)]
    assert said == [f"hello from {provider.name}" for provider in wanted]
    assert cell.asked == (calls, calls / 2)
    attempts = Counter(len(record.attempts) for record in cell.listener.records)
    assert attempts == {1: calls / 2, 2: calls / 2}  # each knows its own


@one_each(asynchronous=True)
async def test_concurrent_tasks_share_nothing(cell: Cell) -> None:
    """A hundred at once."""
    await shares_nothing(cell, 100, cell.ask)


@one_each(asynchronous=False)
async def test_concurrent_threads_share_nothing(cell: Cell) -> None:
    """The same for threads."""
    await shares_nothing(cell, 20, lambda asked: asyncio.to_thread(asyncio.run, cell.ask(asked)))
