"""Play an incident: turns begin, calls overlap, a report comes out."""

from __future__ import annotations

import logging
import random
import threading
from contextlib import contextmanager
from itertools import count
from typing import TYPE_CHECKING

from honcho_fallback import FallbackConfig, FallbackConfigError, FallbackPolicy
from honcho_fallback.testing.simulate._caller import Caller
from honcho_fallback.testing.simulate._clock import VirtualClock
from honcho_fallback.testing.simulate._peers import LangChainLike, LiteLLMLike
from honcho_fallback.testing.simulate._policy_caller import PolicyCaller
from honcho_fallback.testing.simulate._report import Comparison, report
from honcho_fallback.testing.simulate._world import World

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Mapping

    from honcho_fallback import CallRecord
    from honcho_fallback.testing.simulate._caller import Session
    from honcho_fallback.testing.simulate._report import Report
    from honcho_fallback.testing.simulate._scenario import Scenario

Contender = FallbackPolicy | FallbackConfig | Caller


def contenders() -> dict[str, Contender]:
    """Return what is compared where nothing else is said, by name.

    ``honcho_main`` is Honcho's own loop; the retries of the SDKs below it are left out.
    """
    return {
        "default": FallbackConfig(),
        "resilient": FallbackConfig.resilient(),
        "honcho_main": FallbackConfig.honcho_main(),
        "litellm-like": LiteLLMLike(),
        "langchain-like": LangChainLike(),
    }


def compare(
    scenario: Scenario,
    policies: Mapping[str, Contender] | None = None,
    *,
    seed: int = 0,
    calls: int | None = None,
) -> Comparison:
    """Play the same incident once for each policy.

    Args:
        scenario: The incident.
        policies: By name; default: ``contenders()``.
        seed: As for ``simulate``.
        calls: As for ``simulate``.

    Raises:
        FallbackConfigError: As ``simulate``.
    """
    chosen = contenders() if policies is None else policies
    reports = tuple(
        simulate(scenario, policy, name=name, seed=seed, calls=calls)
        for name, policy in chosen.items()
    )
    return Comparison(scenario.name, scenario.summary, scenario.seconds, reports)


def simulate(
    scenario: Scenario,
    policy: Contender,
    *,
    name: str = "policy",
    seed: int = 0,
    calls: int | None = None,
) -> Report:
    """Play an incident under a policy, in virtual time.

    The same scenario, policy and seed give the same report. Under one seed, every policy meets
    the same turns at the same times, and a target's n-th request the same luck. While it runs, the
    module ``random`` is seeded: waits are drawn from it. Play in one thread at a time.

    Args:
        scenario: The incident.
        policy: A policy as in production, whose targets bear the scenario's names; a config, for
            the scenario's own chain; or any other ``Caller``.
        name: What the report calls it.
        seed: Of everything drawn.
        calls: About how many are made, by another rate of traffic; default: the scenario's.

    Raises:
        FallbackConfigError: The policy has a target that the scenario does not know, or the number
            of calls is out of range.
    """
    if calls is not None:
        scenario = scenario.with_calls(calls)
    clock = VirtualClock()
    world = World(scenario, clock, seed)
    session = _caller(policy, scenario).open(world)
    records: dict[int, CallRecord] = {}
    clock.spawn(_traffic(world, session, records))
    with _quiet(), _seeded(seed):
        clock.run()
    return report(name, world, seed, [records[number] for number in sorted(records)])


def _caller(policy: Contender, scenario: Scenario) -> Caller:
    if isinstance(policy, FallbackConfig):
        policy = FallbackPolicy(scenario.chain(), policy, agent="simulated")
    if isinstance(policy, FallbackPolicy):
        return PolicyCaller(policy)
    if isinstance(policy, Caller):  # pyright: ignore[reportUnnecessaryIsInstance] # users without a type checker
        return policy
    raise FallbackConfigError.about(
        "policy", f"got a {type(policy).__name__}", "pass a FallbackPolicy or a FallbackConfig"
    )


def _traffic(
    world: World, session: Session, records: dict[int, CallRecord]
) -> Generator[float, None, None]:
    scenario, clock = world.scenario, world.clock
    numbers = count(1)
    for at in scenario.traffic.times(scenario.seconds, world.luck("traffic")):
        if at > clock.now:
            yield at - clock.now
        clock.spawn(_turn(world, session, records, numbers))


def _turn(
    world: World, session: Session, records: dict[int, CallRecord], numbers: Iterator[int]
) -> Generator[float, None, None]:
    traffic, turn = world.scenario.traffic, session.turn()
    for iteration in range(traffic.iterations):
        if iteration and traffic.pause:
            yield traffic.pause
        number = next(numbers)
        record = yield from session.call(f"simulated-{number}", turn)
        records[number] = record
        if record.outcome != "success":
            return


@contextmanager
def _seeded(seed: int) -> Generator[None]:
    """Make what draws from the module ``random`` repeatable, as tenacity's wait strategies do."""
    state = random.getstate()
    random.seed(seed)
    try:
        yield
    finally:
        random.setstate(state)


@contextmanager
def _quiet() -> Generator[None]:
    """Keep simulated switches out of the log; what other threads log at the time is written."""
    here, logger = threading.get_ident(), logging.getLogger("honcho_fallback")

    def elsewhere(_: logging.LogRecord) -> bool:
        return threading.get_ident() != here

    logger.addFilter(elsewhere)
    try:
        yield
    finally:
        logger.removeFilter(elsewhere)
