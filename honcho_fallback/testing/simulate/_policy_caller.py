"""A policy in a simulation: the machine it runs in production, under a virtual clock.

This is a driver like those of the core: it asks, sleeps and reports, and decides nothing.
"""

from __future__ import annotations

from copy import copy
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from honcho_fallback import Cooldown, FallbackConfig, FallbackPolicy, Runtime
from honcho_fallback.testing.simulate._exchange import Limits

if TYPE_CHECKING:
    from collections.abc import Generator

    from honcho_fallback import FallbackRun, Turn
    from honcho_fallback.testing.simulate._caller import Call
    from honcho_fallback.testing.simulate._world import World


class PolicyCaller:
    """Make calls as a policy does.

    It informs no observers and refreshes no credentials. Errands of the machine (a refresh, a
    rebuild, a shared cooldown) count as done at once. The cooldown and the retry budget are empty
    copies; those of the policy stay as they are. ``validate`` and ``check_responses`` have no
    effect, as a simulation has no answers.

    Args:
        policy: The policy; its targets are the scenario's, by name.
    """

    def __init__(self, policy: FallbackPolicy) -> None:
        self.policy = policy

    def open(self, world: World, /) -> PolicySession:
        """Start afresh."""
        world.scenario.require(target.name for target in self.policy.targets)
        return PolicySession(self.policy, world)


class PolicySession:
    """Make the calls of one simulation.

    Args:
        policy: The policy.
        world: Where.
    """

    def __init__(self, policy: FallbackPolicy, world: World) -> None:
        clock, started_at = world.clock, world.scenario.started_at
        runtime = replace(Runtime(), monotonic=clock, time=lambda: started_at + clock.now)
        self._policy = FallbackPolicy(
            policy.targets, _forgetful(policy.config), agent=policy.agent, runtime=runtime
        )
        self._world = world

    def turn(self) -> Turn | None:
        """Open a turn where the policy has any use for it."""
        return self._policy.turn() if self._policy.config.reset == "turn" else None

    def call(self, call_id: str, turn: Turn | None, /) -> Call:
        """Make one call."""
        run = self._policy.start(turn=turn)
        try:
            yield from _drive(run, self._world)
        except Exception:
            # What ends a call is for its caller; anything else is a bug of ours.
            if run.outcome == "running":
                raise
        # A simulation can be repeated to the letter, names of calls included.
        return replace(run.record, call_id=call_id)


def _drive(run: FallbackRun, world: World) -> Generator[float, None, None]:
    """Ask as ``acall`` does, or ``astream`` where answers are streamed."""
    attempt, clock = run.attempt, world.clock
    streamed = world.scenario.traffic.stream
    while True:
        if attempt.wait:
            yield attempt.wait
        while run.pending is not None:
            attempt = run.resume(now=clock.now)
        timeout = attempt.stream_timeout if streamed else attempt.timeout
        limits = Limits(timeout, attempt.connect_timeout, attempt.idle_timeout)
        exchange = world.ask(attempt.target.name, limits)
        if exchange.first is not None:
            yield exchange.first
            run.commit(now=clock.now)
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
