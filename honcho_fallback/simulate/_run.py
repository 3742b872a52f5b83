"""Play an incident in virtual time: turns begin, their calls overlap, a report comes out."""

from __future__ import annotations

import asyncio
import logging
import random
import selectors
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from copy import copy
from dataclasses import replace
from itertools import count
from math import ceil
from typing import TYPE_CHECKING, Any, TypeVar

from honcho_fallback import (
    ConfigOptions,
    Cooldown,
    FallbackConfig,
    FallbackConfigError,
    FallbackPolicy,
    Runtime,
)
from honcho_fallback.simulate._policies import retry_then_next
from honcho_fallback.simulate._report import Comparison, Report
from honcho_fallback.simulate._simulated import Endpoint

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Generator, Mapping, Sequence

    from honcho_fallback import CallRecord, FallbackRun
    from honcho_fallback.simulate._scenario import Scenario

T = TypeVar("T")


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
    return Comparison(scenario.name, scenario.summary, scenario.assumptions, reports)


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
    if not isinstance(policy, FallbackPolicy):  # pyright: ignore[reportUnnecessaryIsInstance] # users without a type checker
        fix = "pass a FallbackPolicy or a FallbackConfig"
        raise FallbackConfigError.about("policy", f"got a {type(policy).__name__}", fix)
    scenario.chain(target.name for target in policy.targets)
    return run_in_virtual_time(lambda: _play(scenario, policy, name, seed))


async def _play(scenario: Scenario, policy: FallbackPolicy, name: str, seed: int) -> Report:
    """Begin the turns when their time comes, and wait until the last call has ended."""
    loop, traffic = asyncio.get_running_loop(), scenario.traffic
    endpoints = {target.name: Endpoint(target, traffic, seed) for target in scenario.targets}
    runtime = Runtime(monotonic=loop.time, time=lambda: scenario.started_at + loop.time())
    policy = _isolated(policy, runtime)
    rng = random.Random(f"{seed}:traffic")  # noqa: S311 # no secrets
    records: list[CallRecord | None] = []
    turn_ids = map("simulated-turn-{}".format, count(1))

    async def play_turn() -> None:
        with policy.turn(next(turn_ids)):
            for iteration in range(traffic.iterations):
                if iteration:
                    await asyncio.sleep(traffic.pause)
                number, run = len(records), policy.start()
                records.append(None)
                await _call(policy, run, endpoints, stream=traffic.stream)
                # A simulation can be repeated to the letter, names of calls and turns included.
                records[number] = replace(run.record, call_id=f"simulated-{number + 1}")
                if run.outcome != "success":
                    return

    with _undisturbed(seed):
        async with asyncio.TaskGroup() as turns:
            for at in traffic.times(scenario.seconds, rng):
                if at > loop.time():
                    await asyncio.sleep(at - loop.time())
                turns.create_task(play_turn())
    return _report(name, [record for record in records if record], endpoints)


def _report(name: str, records: Sequence[CallRecord], endpoints: Mapping[str, Endpoint]) -> Report:
    seconds = sorted(record.seconds for record in records) or [0.0]
    answered = sum(record.outcome == "success" for record in records)
    is_priced = any(endpoint.is_priced for endpoint in endpoints.values())
    return Report(
        name=name,
        calls=len(records),
        answered=answered,
        success_rate=answered / max(1, len(records)),
        p50=seconds[ceil(0.50 * len(seconds)) - 1],
        p95=seconds[ceil(0.95 * len(seconds)) - 1],
        requests={target: endpoint.requests for target, endpoint in endpoints.items()},
        wasted=sum(endpoint.wasted for endpoint in endpoints.values()),
        money=sum(endpoint.money for endpoint in endpoints.values()) if is_priced else None,
        lost=sum(endpoint.lost for endpoint in endpoints.values()) if is_priced else None,
        records=tuple(records),
    )


async def _call(
    policy: FallbackPolicy, run: FallbackRun, endpoints: Mapping[str, Endpoint], *, stream: bool
) -> None:
    try:
        if not stream:
            await policy.acall(lambda one: endpoints[one.target.name].ask(one), run=run)
            return
        async for _ in policy.astream(lambda one: endpoints[one.target.name].stream(one), run=run):
            pass
    except Exception:
        # What ends a call is for its caller; anything else is a bug of ours.
        if run.outcome == "running":
            raise


def _isolated(policy: FallbackPolicy, runtime: Runtime) -> FallbackPolicy:
    """Copy a policy so that it neither sees nor changes anything outside of the simulation."""
    config, options = policy.config, ConfigOptions(validate=None)
    store = config.cooldown
    if store is not None:  # also one that other processes share becomes one of this process
        own = store if isinstance(store, Cooldown) else Cooldown()
        options["cooldown"] = Cooldown(own.after, own.base, own.cap, own.stated_cap)
    if config.retry_budget is not None:
        options["retry_budget"] = copy(config.retry_budget)
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
        # Without a timer there is no time to go to; only a thread can wake the loop then.
        ready = super().select(None if timeout is None else 0)
        if timeout is not None and not ready:
            self.now += max(0.0, timeout)
        return ready


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """Run tasks that overlap in virtual time; the same tasks always run in the same order."""

    def __init__(self) -> None:
        self._clock = _Clock()
        super().__init__(self._clock)

    def time(self) -> float:
        """Return the virtual time in seconds, from 0."""
        return self._clock.now

    async def shutdown_default_executor(self, timeout: float | None = None) -> None:  # noqa: ARG002, ASYNC109 # as asyncio calls it
        """Wait for threads for as long as they take: none ends within a limit in virtual time."""
        await super().shutdown_default_executor()


def run_in_virtual_time(main: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run a coroutine to its end, also where a loop is running already, as in a notebook."""
    if not _is_loop_running():
        return _run(main)
    with ThreadPoolExecutor(1) as thread:  # a thread runs one loop at a time
        return thread.submit(_run, main).result()


def _run(main: Callable[[], Coroutine[Any, Any, T]]) -> T:
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        return runner.run(main())


def _is_loop_running() -> bool:
    # By itself: what is raised in an except block has that block's error for its context.
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
