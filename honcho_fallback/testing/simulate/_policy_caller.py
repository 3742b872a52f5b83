"""A policy in a simulation: the machine it runs in production, under a virtual clock.

This is a driver like those of the core: it asks, sleeps and reports, and decides nothing.
"""

from __future__ import annotations

from copy import copy
from typing import TYPE_CHECKING, Any

from honcho_fallback import Cooldown, FallbackConfig, FallbackPolicy
from honcho_fallback._machine import FallbackRun
from honcho_fallback._plan import Plan
from honcho_fallback._turn import Turn
from honcho_fallback.testing.simulate._exchange import Limits

if TYPE_CHECKING:
    from collections.abc import Generator

    from honcho_fallback.testing.simulate._caller import Call
    from honcho_fallback.testing.simulate._world import World


class PolicyCaller:
    """Make calls as a policy does.

    Its observers are not told and its credentials not refreshed: nothing outside happens. Where
    the machine has an errand (a refresh, a rebuild, a shared cooldown), it is taken for done at
    once. A cooldown and a retry budget start empty, as copies: the policy's own learn nothing.
    ``validate`` and ``check_responses`` are passed over, as there are no answers to look at.

    Args:
        policy: The policy; its targets are the scenario's, by name.
    """

    def __init__(self, policy: FallbackPolicy) -> None:
        self.policy = policy

    def open(self, world: World, /) -> PolicySession:
        """Start afresh.

        Args:
            world: Where.

        Raises:
            FallbackConfigError: The scenario does not know one of the targets.
        """
        world.scenario.require(target.name for target in self.policy.targets)
        return PolicySession(self.policy, world)


class PolicySession:
    """Make the calls of one simulation.

    Args:
        policy: The policy.
        world: Where.
    """

    def __init__(self, policy: FallbackPolicy, world: World) -> None:
        config = _forgetful(policy.config)
        self._plan = Plan(policy.targets, config, policy.agent, None)
        self._world = world
        self._owner = policy

    def turn(self) -> Turn | None:
        """Open a turn where the policy has any use for it."""
        return Turn(self._owner) if self._plan.turn_scoped else None

    def call(self, call_id: str, turn: Turn | None, /) -> Call:
        """Make one call.

        Args:
            call_id: Its name.
            turn: From ``turn``.
        """
        clock = self._world.clock
        started_at = self._world.scenario.started_at + clock.now
        run = FallbackRun(self._plan, turn, call_id, clock, clock.now, started_at)
        try:
            yield from _drive(run, self._world)
        except Exception:
            # What ends a call is for its caller; anything else is a bug of ours.
            record = run.record
            if record.outcome == "running":
                raise
            return record
        return run.record


def _drive(run: FallbackRun, world: World) -> Generator[float, None, None]:
    """Ask as ``acall`` does, or ``astream`` where answers are streamed."""
    attempt, clock = run.attempt, world.clock
    streamed = world.scenario.traffic.stream
    while True:
        if attempt.wait:
            yield attempt.wait
        while run.errand is not None:
            attempt = run.resume(now=clock.now)
        patience = run.silence(attempt) if streamed else attempt.timeout
        limits = Limits(patience, attempt.connect_timeout, run.idle_timeout)
        exchange = world.ask(attempt.target.name, limits)
        if exchange.first is not None:
            yield exchange.first
            run.content(now=clock.now)
        yield exchange.seconds - (exchange.first or 0.0)
        if exchange.error is None:
            run.succeed(now=clock.now)
            return
        attempt = run.fail(exchange.error, now=clock.now)


def _forgetful(config: FallbackConfig) -> FallbackConfig:
    """Copy what remembers, so that a simulation neither sees nor changes what production knows."""
    fresh: dict[str, Any] = {}
    store = config.cooldown
    if store is not None:
        fresh["cooldown"] = (
            Cooldown(store.base, store.cap)
            if isinstance(store, Cooldown) and store.shared is not None
            else copy(store)
        )
    if config.retry_budget is not None:
        fresh["retry_budget"] = copy(config.retry_budget)
    return config.replace(**fresh) if fresh else config
