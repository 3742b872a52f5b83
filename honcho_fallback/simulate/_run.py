"""Play an incident in virtual time: turns begin, their calls overlap, figures come out."""

from __future__ import annotations

import asyncio
import logging
import random
import selectors
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, field, fields, replace
from math import ceil
from typing import TYPE_CHECKING, Any

from honcho_fallback import (
    ConfigOptions,
    Cooldown,
    FallbackConfig,
    FallbackConfigError,
    FallbackPolicy,
    Runtime,
)
from honcho_fallback.simulate._policies import retry_then_next
from honcho_fallback.simulate._simulated import Endpoint

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Generator, Mapping, Sequence

    from honcho_fallback import CallRecord, FallbackRun
    from honcho_fallback.simulate._scenario import Scenario

_HEADS = ("policy", "calls", "answered", "p50 s", "p95 s", "requests", "wasted", "money", "lost")


@dataclass(frozen=True, slots=True)
class Report:
    """Say how one policy fared in one incident.

    Args:
        name: The policy's.
        calls: Calls made.
        answered: Those that were answered.
        p50: Half of the calls took no longer, in seconds: answered or not, waits included.
        p95: 95 of 100 took no longer.
        requests: Requests that each target saw.
        wasted: Requests that failed, or whose answer came when nobody waited any more.
        money: What all answers cost, by the scenario's prices.
        lost: What answers cost that nobody got.
        records: One for each call, in the order in which they began.
    """

    name: str
    calls: int
    answered: int
    p50: float
    p95: float
    requests: Mapping[str, int]
    wasted: int
    money: float
    lost: float
    records: tuple[CallRecord, ...] = field(repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class Comparison:
    """Hold the reports of several policies in the same incident; ``print`` shows a table.

    Args:
        scenario: The incident's name.
        summary: What happens in it.
        reports: One for each policy, in the order given.
    """

    scenario: str
    summary: str
    reports: tuple[Report, ...]

    def __getitem__(self, name: str) -> Report:
        """Return a policy's report."""
        return {one.name: one for one in self.reports}[name]

    def __str__(self) -> str:
        rows = [_HEADS, *map(_cells, self.reports)]
        if not any(one.money for one in self.reports):
            rows = [row[:-2] for row in rows]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = [f"{self.scenario}: {self.summary}"]
        for name, *figures in rows:
            lines.append("  ".join([name.ljust(widths[0]), *map(str.rjust, figures, widths[1:])]))
        targets = " + ".join(dict.fromkeys(name for one in self.reports for name in one.requests))
        lines.append(f"requests: {targets}; wasted: failed, or answered too late")
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """Return all figures as plain values, ready for ``json.dumps``, without the records."""
        return {
            "scenario": self.scenario,
            "summary": self.summary,
            "reports": [
                {one.name: getattr(report, one.name) for one in fields(report) if one.repr}
                for report in self.reports
            ],
        }


def _cells(one: Report) -> tuple[str, ...]:
    # Never rounded up to a hundred: one lost call in a million is one.
    share = 100.0 * one.answered / max(1, one.calls)
    share = share if one.answered == one.calls else min(share, 99.99)
    figures = f"{one.calls}", f"{share:.2f}%", f"{one.p50:.2f}", f"{one.p95:.2f}"
    requests = "+".join(map(str, one.requests.values()))
    return one.name, *figures, requests, f"{one.wasted}", f"{one.money:.2f}", f"{one.lost:.2f}"


def compare(
    scenario: Scenario,
    policies: Mapping[str, FallbackPolicy | FallbackConfig] | None = None,
    *,
    calls: int | None = None,
    seed: int = 0,
) -> Comparison:
    """Play the same incident once for each policy, and for an SDK's retries beside them.

    Args:
        scenario: The incident.
        policies: By name; default: ``FallbackConfig()`` and ``FallbackConfig.resilient()``.
            Without one that is called so, ``retry_then_next()`` is added as ``retry-then-next``.
        calls: As for ``simulate``.
        seed: As for ``simulate``.

    Raises:
        FallbackConfigError: As ``simulate``.
    """
    if policies is None:
        policies = {"default": FallbackConfig(), "resilient": FallbackConfig.resilient()}
    policies = {**policies, "retry-then-next": policies.get("retry-then-next", retry_then_next())}
    reports = tuple(
        simulate(scenario, policy, name=name, calls=calls, seed=seed)
        for name, policy in policies.items()
    )
    return Comparison(scenario.name, scenario.summary, reports)


def simulate(
    scenario: Scenario,
    policy: FallbackPolicy | FallbackConfig,
    *,
    name: str = "policy",
    calls: int | None = None,
    seed: int = 0,
) -> Report:
    """Play an incident under a policy, in virtual time.

    The same scenario, policy and seed give the same report; under one seed, every policy meets the
    same turns, and a target's n-th request the same luck. While it runs, the module ``random`` is
    seeded, which waits are drawn from: play in one thread at a time. Nothing outside is touched:
    no observer, client or credential; cooldown and retry budget are empty copies.

    Args:
        scenario: The incident.
        policy: A policy as in production, whose targets bear the scenario's names; or a config,
            for the scenario's own chain.
        name: What the report calls it.
        calls: About how many are made, by another rate of traffic; default: the scenario's.
        seed: Of everything drawn.

    Raises:
        FallbackConfigError: The policy has a target that the scenario does not know, or the number
            of calls is out of range.
    """
    if calls is not None:
        traffic = scenario.traffic.with_calls(calls, scenario.seconds)
        scenario = scenario.model_copy(update={"traffic": traffic})
    if isinstance(policy, FallbackConfig):
        policy = FallbackPolicy(scenario.chain(), policy, agent=name)
    known = [target.name for target in scenario.targets]
    for target in policy.targets:
        if target.name not in known:
            what = f"target in scenario {scenario.name!r}"
            raise FallbackConfigError.unknown(target.name, known, what)
    return _run_in_virtual_time(lambda: _play(scenario, policy, name, seed))


async def _play(scenario: Scenario, policy: FallbackPolicy, name: str, seed: int) -> Report:
    """Begin the turns when their time comes, and wait until the last call has ended."""
    loop, traffic = asyncio.get_running_loop(), scenario.traffic
    endpoints = {target.name: Endpoint(target, traffic, seed) for target in scenario.targets}
    runtime = Runtime(monotonic=loop.time, time=lambda: scenario.started_at + loop.time())
    policy = _isolated(policy, runtime)
    rng = random.Random(f"{seed}:traffic")  # noqa: S311 # no secrets
    runs: list[FallbackRun] = []

    async def call(run: FallbackRun) -> None:
        try:
            if traffic.stream:
                async for _ in policy.astream(
                    lambda at: endpoints[at.target.name].stream(at), run=run
                ):
                    pass
            else:
                await policy.acall(lambda at: endpoints[at.target.name].ask(at), run=run)
        except Exception:
            # What ends a call is for its caller; anything else is a bug of ours.
            if run.outcome == "running":
                raise

    async def play_turn() -> None:
        with policy.turn():
            for iteration in range(traffic.iterations):
                await asyncio.sleep(traffic.pause if iteration else 0)
                run = policy.start()
                runs.append(run)
                await call(run)
                if run.outcome != "success":
                    return

    with _undisturbed(seed):
        async with asyncio.TaskGroup() as turns:
            for at in traffic.times(scenario.seconds, rng):
                await asyncio.sleep(max(0.0, at - loop.time()))
                turns.create_task(play_turn())
    return _report(name, [run.record for run in runs], endpoints)


def _report(name: str, records: Sequence[CallRecord], endpoints: Mapping[str, Endpoint]) -> Report:
    seconds = sorted(record.seconds for record in records) or [0.0]
    played = endpoints.values()
    return Report(
        name=name,
        calls=len(records),
        answered=sum(record.outcome == "success" for record in records),
        p50=seconds[ceil(0.50 * len(seconds)) - 1],
        p95=seconds[ceil(0.95 * len(seconds)) - 1],
        requests={target: endpoint.requests for target, endpoint in endpoints.items()},
        wasted=sum(one.kind is not None for record in records for one in record.attempts),
        money=sum(endpoint.price * endpoint.written for endpoint in played),
        lost=sum(endpoint.price * endpoint.unheard for endpoint in played),
        records=tuple(records),
    )


def _isolated(policy: FallbackPolicy, runtime: Runtime) -> FallbackPolicy:
    """Copy a policy so that it neither sees nor changes anything outside of the simulation."""
    config, store = policy.config, policy.config.cooldown
    options = ConfigOptions(validate=None, retry_budget=copy(config.retry_budget))
    if store is not None:  # also one that other processes share becomes one of this process
        own = store if isinstance(store, Cooldown) else Cooldown()
        options["cooldown"] = Cooldown(own.after, own.base, own.cap, own.stated_cap)
    if config.transport_recovery is not None:
        options["transport_recovery"] = replace(config.transport_recovery, rebuild=None)
    targets = [replace(target, client=None, credential=None) for target in policy.targets]
    config = config.replace(**options)
    return FallbackPolicy(targets, config, agent=policy.agent, runtime=runtime)


@contextmanager
def _undisturbed(seed: int) -> Generator[None, None, None]:
    """Seed what wait strategies draw from, and keep this thread's switches out of the log."""
    state, thread = random.getstate(), threading.get_ident()
    logger = logging.getLogger("honcho_fallback")

    def is_from_elsewhere(record: logging.LogRecord) -> bool:
        return record.thread != thread

    logger.addFilter(is_from_elsewhere)
    random.seed(seed)
    try:
        yield
    finally:
        random.setstate(state)
        logger.removeFilter(is_from_elsewhere)


class _Clock(selectors.DefaultSelector):
    """Be where the loop waits: let time pass there at once."""

    now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        self.now += max(0.0, timeout or 0.0)
        return super().select(None if timeout is None else 0)


class _VirtualTimeLoop(asyncio.SelectorEventLoop):
    """Run tasks that overlap in virtual time, always in the same order; it has no threads."""

    def __init__(self) -> None:
        self._clock = _Clock()
        super().__init__(self._clock)

    def time(self) -> float:
        return self._clock.now


def _run_in_virtual_time(main: Callable[[], Coroutine[Any, Any, Report]]) -> Report:
    """Run a coroutine to its end, also where a loop is running already, as in a notebook."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        pass
    else:
        with ThreadPoolExecutor(1) as thread:  # a thread runs one loop at a time
            return thread.submit(_run_in_virtual_time, main).result()
    with asyncio.Runner(loop_factory=_VirtualTimeLoop) as runner:
        return runner.run(main())
