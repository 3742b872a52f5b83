"""A day of Honcho in virtual time: nine agents, and one hour in which the primary is down."""

from __future__ import annotations

import asyncio
import random
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

import pytest

from honcho_fallback import FallbackConfig, Runtime
from honcho_fallback.simulate._run import run_in_virtual_time
from honcho_fallback.testing import StatusError
from honcho_fallback_honcho import load_policies

if TYPE_CHECKING:
    from collections.abc import Callable

    from honcho_fallback import Attempt, CallRecord, FallbackPolicy

HOUR = 3600.0
DOWN = (10 * HOUR, 11 * HOUR)
CALLS = 500  # of each agent
PRIMARY, FALLBACK = "openai/gpt-5.4-mini", "anthropic/claude-haiku-4-5"
LEVELS = ("minimal", "low", "medium", "high", "max")
PREFIXES = (
    "DERIVER_MODEL_CONFIG",
    *(f"DIALECTIC_LEVELS__{level}__MODEL_CONFIG" for level in LEVELS),
    "SUMMARY_MODEL_CONFIG",
    "DREAM_DEDUCTION_MODEL_CONFIG",
    "DREAM_INDUCTION_MODEL_CONFIG",
)
SETTINGS = {
    "LLM_OPENAI_API_KEY": "openai-key",
    "LLM_ANTHROPIC_API_KEY": "anthropic-key",
    **{f"{prefix}__FALLBACK__MODEL": FALLBACK for prefix in PREFIXES},
}


class Day(NamedTuple):
    """Hold what a day brought.

    Args:
        records: Of all calls.
        at_dead_primary: When the primary was asked while it was down, in seconds of the day.
    """

    records: list[CallRecord]
    at_dead_primary: list[float]

    @property
    def by_fallback(self) -> int:
        return sum(record.is_fallback for record in self.records)

    def begun_in(self, start: float, end: float) -> list[CallRecord]:
        return [record for record in self.records if start <= record.started_at < end]


# Made anew for each day: the second has a memory.
CONFIGS: dict[str, Callable[[], FallbackConfig]] = {
    "honcho": FallbackConfig.honcho,
    "resilient": lambda: FallbackConfig.resilient(reset="iteration"),
}


@cache
def live(config: str) -> Day:
    """Live through the day; the primary answers 503 while it is down."""
    policies = load_policies(SETTINGS, strict=True, config=CONFIGS[config]())
    return run_in_virtual_time(lambda: _live(policies))


async def _live(policies: dict[str, FallbackPolicy]) -> Day:
    loop, draw = asyncio.get_running_loop(), random.Random(0)  # noqa: S311 # no secrets
    day = Day([], [])

    async def ask(attempt: Attempt) -> str:
        if attempt.target.name == PRIMARY and DOWN[0] <= loop.time() < DOWN[1]:
            day.at_dead_primary.append(loop.time())
            await asyncio.sleep(0.2)
            raise StatusError(503)
        await asyncio.sleep(draw.uniform(1, 8))
        return "an answer"

    async def call(policy: FallbackPolicy) -> None:
        run = policy.start()
        await policy.acall(ask, run=run)
        day.records.append(run.record)

    times = [
        (draw.uniform(0, 24 * HOUR), policy) for policy in policies.values() for _ in range(CALLS)
    ]
    with Runtime(monotonic=loop.time, time=loop.time).installed():
        async with asyncio.TaskGroup() as calls:
            for at, policy in sorted(times, key=lambda one: one[0]):
                await asyncio.sleep(max(0.0, at - loop.time()))
                calls.create_task(call(policy))
    return day


def most_in_a_minute(times: list[float]) -> int:
    """Count the requests of the busiest minute, wherever it begins."""
    return max(sum(0 <= other - one < 60 for other in times) for one in times)


@pytest.mark.parametrize("config", CONFIGS)
def test_nothing_is_lost(config: str) -> None:
    """Every call of the day is answered, and outside of the outage by the primary."""
    day = live(config)
    assert len(day.records) == len(PREFIXES) * CALLS
    assert {record.outcome for record in day.records} == {"success"}
    assert len({record.agent for record in day.begun_in(*DOWN)}) == len(PREFIXES)
    assert all(record.is_fallback for record in day.begun_in(*DOWN))
    assert not any(record.is_fallback for record in day.begun_in(0, DOWN[0] - 10))


def test_without_a_cooldown_each_call_asks_the_dead_primary_once() -> None:
    """By default nothing is remembered: one failed request for each call, and no more."""
    day = live("honcho")
    during = day.begun_in(*DOWN)
    assert len(day.at_dead_primary) == day.by_fallback == len(during) == 195
    assert all(len(record.attempts) == 2 for record in during)


def test_one_shared_config_leaves_the_dead_primary_alone() -> None:
    """Nine agents, one primary, one key, one cooldown: a probe now and then, ever more rarely."""
    day = live("resilient")
    assert len(day.at_dead_primary) == 19
    assert most_in_a_minute(day.at_dead_primary) <= 5
    # When the primary is back, the next probe notices; until then the fallback goes on answering.
    late = [record for record in day.begun_in(DOWN[1], 24 * HOUR) if record.is_fallback]
    assert day.by_fallback == len(day.begun_in(*DOWN)) + len(late) == 198
