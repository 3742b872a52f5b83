"""Whole incidents over the real async drivers, on an event loop whose time is virtual, too.

The same policy, the same providers: ``acall`` and ``astream`` with asyncio's own timeouts and
tasks on one side, the simulator on the other. Every attempt of every call is to be the same.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest
from incidents import failing

from honcho_fallback import (
    Attempt,
    CallRecord,
    Cooldown,
    FallbackConfig,
    FallbackPolicy,
    Runtime,
)
from honcho_fallback.testing.simulate import Scenario, simulate
from honcho_fallback.testing.simulate._clock import VirtualClock
from honcho_fallback.testing.simulate._failures import ConnectTimeoutError
from honcho_fallback.testing.simulate._world import World

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from honcho_fallback.testing.simulate._exchange import Reply


class VirtualLoop(asyncio.SelectorEventLoop):
    """Go straight to the next event instead of waiting for it."""

    now = 0.0

    def time(self) -> float:
        return self.now

    def _run_once(self) -> None:
        ready, scheduled = self._ready, self._scheduled  # type: ignore[attr-defined] # asyncio's
        if scheduled and not ready:
            self.now = max(self.now, scheduled[0].when())
        super()._run_once()  # type: ignore[misc] # as above


class Providers:
    """Answer over asyncio what the scenario's targets answer."""

    def __init__(self, scenario: Scenario, clock: Callable[[], float]) -> None:
        self._meters = World(scenario, VirtualClock(), seed=0).meters
        self._clock = clock

    def reply(self, attempt: Attempt) -> Reply:
        return self._meters[attempt.target.name]._reply(self._clock())

    async def ask(self, attempt: Attempt) -> str:
        reply = self.reply(attempt)
        await self._connect(reply, attempt)
        await asyncio.sleep(reply.seconds)
        if reply.error is not None:
            raise reply.error
        return "answer"

    async def stream(self, attempt: Attempt) -> AsyncIterator[str]:
        reply = self.reply(attempt)
        await self._connect(reply, attempt)
        if reply.first is not None:
            await asyncio.sleep(reply.first)
            yield "content"
        rest = reply.seconds - (reply.first or 0.0)
        steps = 1 if reply.first is None or reply.quiet else 48
        for _ in range(steps):
            await asyncio.sleep(rest / steps)
            if steps > 1:
                yield "more"
        if reply.error is not None:
            raise reply.error

    @staticmethod
    async def _connect(reply: Reply, attempt: Attempt) -> None:
        if not reply.connected and attempt.connect_timeout is not None:
            await asyncio.sleep(attempt.connect_timeout)
            raise ConnectTimeoutError("as an SDK would, which is handed the limit")


async def turn(
    policy: FallbackPolicy, scenario: Scenario, providers: Providers, at: float
) -> list[CallRecord]:
    """Make one turn's calls, as a service would."""
    await asyncio.sleep(at)
    records: list[CallRecord] = []
    with policy.turn():
        for iteration in range(scenario.traffic.iterations):
            if iteration:
                await asyncio.sleep(scenario.traffic.pause)
            run = policy.start()
            with suppress(Exception):  # how it ended is in the record
                if scenario.traffic.stream:
                    async for _ in policy.astream(providers.stream, run=run):
                        pass
                else:
                    await policy.acall(providers.ask, run=run)
            records.append(run.record)
            if run.record.outcome != "success":
                break
    return records


def driven(scenario: Scenario, config: FallbackConfig) -> list[CallRecord]:
    """Play the scenario's traffic over the real drivers."""

    async def all_turns() -> list[list[CallRecord]]:
        loop = asyncio.get_running_loop()
        providers = Providers(scenario, loop.time)
        runtime = Runtime(monotonic=loop.time, time=loop.time)
        policy = FallbackPolicy(scenario.chain(), config, runtime=runtime)
        luck = World(scenario, VirtualClock(), seed=0).luck("traffic")
        times = list(scenario.traffic.times(scenario.seconds, luck))
        turns = (turn(policy, scenario, providers, at) for at in times)
        return await asyncio.gather(*turns)

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        turns = runner.run(all_turns())
    records = [record for records in turns for record in records]
    return sorted(records, key=lambda record: record.started_at)


def told(records: list[CallRecord] | tuple[CallRecord, ...]) -> list[Any]:
    """What happened in each call, down to the microsecond."""
    return [
        (
            round(record.started_at, 6),
            record.outcome,
            round(record.seconds, 6),
            record.answered_by,
            record.why,
            None if record.time_to_first_token is None else round(record.time_to_first_token, 6),
            [
                (
                    one.target,
                    round(one.started, 6),
                    round(one.seconds, 6),
                    round(one.wait, 6),
                    one.kind,
                    one.status,
                    one.error,
                    one.retry_after,
                    one.note,
                )
                for one in record.attempts
            ],
            record.untried,
        )
        for record in records
    ]


def scenario(*, stream: bool) -> Scenario:
    """Every kind of bad day in ten minutes, with turns of three calls that overlap."""
    # Where a silent phase ends, many calls fail at one moment, in an order that asyncio leaves
    # open. So what they meet next depends on no draw: a constant fallback, lost packets.
    return Scenario.parse(
        {
            "name": "everything",
            "seconds": 600,
            "traffic": {
                "kind": "poisson",
                "per_second": 0.2,
                "iterations": 3,
                "pause": 0.7,
                "stream": stream,
            },
            "targets": [
                {
                    "name": "p/one",
                    "phases": [
                        failing(starts=50),
                        {"kind": "silent", "starts": 100, "share": 0.7},
                        {"kind": "unreachable", "starts": 150},
                        {"kind": "slow", "factor": 9, "starts": 200},
                        {"kind": "rate_limited", "calls": 5, "window": 20, "starts": 250},
                        {"kind": "recovering", "status": 500, "starts": 300},
                        {"kind": "quota", "starts": 350},
                        {"kind": "silent", "after_content": True, "starts": 400},
                        {"kind": "dropped", "starts": 450, "delay": 1.3, "after_content": True},
                        {"kind": "up", "starts": 500},
                    ],
                    "latency": {"median": 2.0, "p99": 9.0},
                },
                {
                    "name": "f/two",
                    "phases": [
                        {"kind": "dropped", "starts": 70},
                        {"kind": "up", "starts": 80},
                        failing(429, starts=375, retry_after=7),
                        {"kind": "up", "starts": 390},
                    ],
                    "latency": 2.5,
                },
            ],
        }
    )


CONFIGS: dict[str, Callable[[], FallbackConfig]] = {
    "default": lambda: FallbackConfig(wait=0.5),
    "short": lambda: FallbackConfig(wait=0.5, timeout=7.3, connect_timeout=2.1),
    "deadline": lambda: FallbackConfig(wait=0.5, deadline=11.7, reserve=4.1, max_attempts=5),
    "cooldown": lambda: FallbackConfig(wait=0.5, cooldown=Cooldown(base=11.3)),
    "resilient": lambda: FallbackConfig.resilient(
        wait=0.5, deadline=17.9, first_token_timeout=3.3, idle_timeout=2.7
    ),
}


@pytest.mark.parametrize("stream", [False, True], ids=["acall", "astream"])
@pytest.mark.parametrize("name", [*CONFIGS])
def test_the_simulator_does_what_the_drivers_do(name: str, *, stream: bool) -> None:
    """Hundreds of overlapping calls, attempt by attempt: targets, times, waits, failures, ends."""
    incident = scenario(stream=stream)
    real, simulated = driven(incident, CONFIGS[name]()), simulate(incident, CONFIGS[name]())
    assert simulated.calls > 200
    assert len({attempt.kind for record in real for attempt in record.attempts}) > 4
    assert told(simulated.records) == told(real)
