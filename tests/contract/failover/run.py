"""Make the calls of a scenario, and note what both sides saw of them."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING
from unittest.mock import patch

from benchmarks.faults import FaultyProvider
from benchmarks.faults.scenarios import (
    CALLS,
    HEALTHY,
    INTERVAL,
    SCENARIOS,
    Answer,
    Call,
    Hang,
    Observation,
    Verdict,
    judge,
)
from tests.contract.failover.ways import ALONE, CONTROLS, PROFILES, WAYS
from tests.helpers.idle_loop import IdleLoop

if TYPE_CHECKING:
    from benchmarks.faults.scenarios import Scenario
    from tests.contract.failover.ways import Ask, Build, Profile


@dataclass(frozen=True, slots=True)
class Row:
    """Hold what was judged of one way in with one profile, or of a framework's own means."""

    name: str
    profile: str
    cells: dict[str, tuple[Verdict, str]]

    def count(self, verdict: Verdict) -> int:
        """Return how many scenarios ended so."""
        return sum(found is verdict for found, _ in self.cells.values())


class Runs:
    """Run the scenarios in one loop, and remember the rows.

    Args:
        runner: Of an ``IdleLoop``.
    """

    def __init__(self, runner: asyncio.Runner) -> None:
        self._runner = runner
        self._rows: dict[tuple[str, str], Row] = {}

    def way(self, name: str, profile: Profile) -> Row:
        """Return the row of a way in."""
        return self._row(name, profile.name, WAYS[name].build, profile)

    def control(self, name: str) -> Row:
        """Return the row of a framework's own means, which reads no profile."""
        return self._row(name, "", CONTROLS[name], PROFILES[0])

    def all(self) -> list[Row]:
        """Return every row."""
        ways = [self.way(way.name, profile) for way in WAYS.values() for profile in way.profiles]
        return [*ways, *map(self.control, CONTROLS)]

    def _row(self, name: str, shown: str, build: Build, profile: Profile) -> Row:
        if (name, shown) not in self._rows:
            cells = self._runner.run(self._cells(build, profile, has_fallback=name != ALONE))
            self._rows[name, shown] = Row(name, shown, cells)
        return self._rows[name, shown]

    @staticmethod
    async def _cells(
        build: Build, profile: Profile, *, has_fallback: bool
    ) -> dict[str, tuple[Verdict, str]]:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, IdleLoop)
        # LiteLLM's cooldowns go by the date.
        with (await loop.runtime()).installed(), patch.object(time, "time", loop.date):
            return {
                scenario.name: judge(
                    scenario,
                    await observe(build, scenario, profile),
                    has_fallback=has_fallback,
                )
                for scenario in SCENARIOS
            }


async def observe(build: Build, scenario: Scenario, profile: Profile) -> Observation:
    """Meet a scenario."""
    async with (
        FaultyProvider(scenario.primary) as primary,
        FaultyProvider(scenario.fallback) as fallback,
    ):
        try:
            ask = build(primary.url, fallback.url, profile)
        except Exception as error:  # noqa: BLE001 # whatever its user would see
            return Observation([Call(0.0, 0.0, error)], [], [])
        calls: list[Call] = []
        for number in range(CALLS if scenario.is_outage else 1):
            await asyncio.sleep(max(0.0, number * INTERVAL - primary.now))
            calls.append(await _call(ask, primary, scenario.most))
        seen = Observation(calls, [*primary.requests], [*fallback.requests])
        # Nobody fails from here on: does the same object still work?
        primary.fault = fallback.fault = HEALTHY
        afterwards = await _call(ask, primary, 10.0)
        works = isinstance(afterwards.result, Answer) and afterwards.result.is_whole
        return replace(seen, works_afterwards=works)


async def _call(ask: Ask, primary: FaultyProvider, most: float) -> Call:
    at, limit = primary.now, asyncio.timeout(most)
    try:
        async with limit:
            result = await ask()
    except TimeoutError as error:
        return Call(at, primary.now - at, Hang() if limit.expired() else error)
    except Exception as error:  # noqa: BLE001 # whatever a caller would see
        return Call(at, primary.now - at, error)
    return Call(at, primary.now - at, result)
