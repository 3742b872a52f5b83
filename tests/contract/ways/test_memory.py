"""What a chain remembers of an outage, whatever the framework: cooldowns, probes, the preset."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING

import pytest

from honcho_fallback import FallbackConfig
from honcho_fallback.redis import RedisCooldown
from tests.contract.ways.cells import cells, one_each
from tests.helpers.later import Later
from tests.helpers.provider import Reply

if TYPE_CHECKING:
    from tests.contract.ways.cells import Cell


@pytest.fixture
def cooldown() -> Later:
    return Later(after=1, base=60)


@cells(every=True)
async def test_a_cooldown_leaves_the_dead_primary_alone(cell: Cell, cooldown: Later) -> None:
    """One request to it in a chain's first call; later ones say why there is none."""
    cell.primary.fail(503)
    cell.build(cooldown=cooldown)
    for _ in range(3):
        assert await cell.is_answered_by(cell.backup)
    assert cell.asked == (1, 3)
    for record in cell.listener.records[1:]:
        ((_, why),) = record.untried
        assert "cooling down" in why
    assert len(cell.listener.switches) == 1


@cells()
async def test_an_answered_probe_brings_the_primary_back(cell: Cell, cooldown: Later) -> None:
    """Retry-After is obeyed; after it one call asks again, and observers hear of the return."""
    cell.primary.fail(429, times=1, headers={"retry-after": "7"})
    cell.build(cooldown=cooldown)
    for _ in range(2):
        assert await cell.is_answered_by(cell.backup)
    cooldown.ahead = 8.0
    assert await cell.is_answered_by(cell.primary)
    assert cell.record.attempts[0].note == "a probe after its cooldown"
    assert await cell.is_answered_by(cell.primary)
    assert cell.asked == (3, 2)
    (restore,) = cell.listener.restores
    assert restore.after == "cooldown"


@cells()
async def test_a_failed_probe_doubles_the_rest(cell: Cell, cooldown: Later) -> None:
    """Whether it was refused or, as a stream, cut before its content."""
    cell.primary.reply(*[Reply(events=[], cut=True)] * 2)
    cell.build(cooldown=cooldown)
    for ahead, answering in ((0, cell.backup), (61, cell.backup), (130, cell.backup)):
        cooldown.ahead = ahead
        assert await cell.is_answered_by(answering)
    assert cell.asked == (2, 3)
    cooldown.ahead = 190
    assert await cell.is_answered_by(cell.primary)


@one_each(asynchronous=True)
async def test_one_of_many_calls_probes(cell: Cell, cooldown: Later) -> None:
    """While the probe is under way the others stay where they are."""
    cell.primary.fail(500, times=1)
    cell.build(cooldown=cooldown)
    await cell.ask()
    cooldown.ahead = 61.0
    others_are_done = threading.Event()
    cell.primary.reply(Reply(hold=others_are_done))
    calls = [asyncio.create_task(cell.ask()) for _ in range(20)]
    in_order = asyncio.as_completed(calls)
    answers = [await next(in_order) for _ in range(19)]
    others_are_done.set()
    answers.append(await next(in_order))
    wanted = [cell.backup] * 19 + [cell.primary]
    assert answers == [f"hello from {provider.name}" for provider in wanted]
    assert len(cell.primary.requests) == 2
    assert len(cell.listener.restores) == 1


@cells(asynchronous=True)
async def test_a_cancelled_probe_gives_its_permit_back(cell: Cell, cooldown: Later) -> None:
    """The very next call probes."""
    cell.primary.fail(500, times=1)
    cell.build(cooldown=cooldown)
    await cell.ask()
    cooldown.ahead = 61.0
    await cell.is_cancelled_at_the_primary()
    assert await cell.is_answered_by(cell.primary)
    assert cell.record.attempts[0].note == "a probe after its cooldown"


@one_each(asynchronous=True)
async def test_many_calls_that_meet_an_outage_together(cell: Cell, cooldown: Later) -> None:
    """Each asks each target at most once and gets the backup's answer."""
    cell.primary.fail(500)
    cell.build(cooldown=cooldown)
    said = await asyncio.gather(*(cell.ask() for _ in range(20)))
    assert {*said} == {f"hello from {cell.backup.name}"}
    primary, backup = cell.asked
    assert (primary <= 20, backup) == (True, 20)


@one_each()
async def test_the_preset_asks_a_dead_primary_three_times(cell: Cell) -> None:
    """``resilient()`` rests it after three failures in a row."""
    cell.primary.fail(503)
    cell.build(FallbackConfig.resilient())
    for _ in range(5):
        assert await cell.is_answered_by(cell.backup)
    assert cell.asked == (3, 5)


@one_each()
async def test_chains_built_apart_share_a_cooldown(cell: Cell, cooldown: Later) -> None:
    """Model, address and key say who it is, for whoever builds the chain anew for each call."""
    cell.primary.fail(503)
    for _ in range(3):
        cell.build(cooldown=cooldown)
        assert await cell.is_answered_by(cell.backup)
    assert cell.asked == (1, 3)


@one_each()
async def test_chains_of_other_processes_know_who_is_down(cell: Cell, redis_url: str) -> None:
    """Nothing is shared but the server: what was learned is told before a call's end."""
    cell.primary.fail(503)
    stores = [RedisCooldown(redis_url, after=1, base=60, timeout=5.0) for _ in range(2)]
    try:
        for store in stores:
            cell.build(cooldown=store)
            assert await cell.is_answered_by(cell.backup)
    finally:
        for store in stores:
            await store.aclose()
            store.close()
    assert cell.asked == (1, 2)
