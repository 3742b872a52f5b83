"""The providers' side of a simulation: it answers requests and counts them."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from math import inf
from random import Random
from typing import TYPE_CHECKING

from honcho_fallback.testing.simulate._exchange import Exchange, Limits, seen
from honcho_fallback.testing.simulate._phases import Request, Up

if TYPE_CHECKING:
    from honcho_fallback.testing.simulate._clock import VirtualClock
    from honcho_fallback.testing.simulate._exchange import Reply
    from honcho_fallback.testing.simulate._phases import Phase
    from honcho_fallback.testing.simulate._recorded import Taken
    from honcho_fallback.testing.simulate._scenario import Scenario, SimulatedTarget


class Meter:
    """Play one target, and count.

    Args:
        target: What it is and does.
        scenario: For the traffic's nature.
        seed: Its n-th request has the same luck under every policy.
    """

    def __init__(self, target: SimulatedTarget, scenario: Scenario, seed: int) -> None:
        self.requests = self.wasted = 0
        self.money = self.wasted_money = 0.0
        self._target = target
        self._traffic = traffic = scenario.traffic
        price = target.price
        self._price = price.of(traffic.input_tokens, traffic.output_tokens) if price else 0.0
        phases: tuple[Phase, ...] = target.phases
        if not phases or phases[0].starts > 0:
            phases = (Up(), *phases)
        self._phases = phases
        self._starts = [phase.starts for phase in phases]
        self._ends = [*self._starts[1:], inf]
        self._counts: list[dict[int, int]] = [{} for _ in phases]
        self._taken: list[Taken] = [Counter() for _ in phases]
        self._random = _luck(seed, f"target {target.name}")

    def ask(self, now: float, limits: Limits) -> Exchange:
        """Answer one request."""
        reply = self._reply(now)
        exchange = seen(self._target.name, reply, limits)
        self.requests += 1
        # What was written is paid for, whether anybody still waits for it or not.
        price = self._price if reply.error is None or reply.first is not None else 0.0
        self.money += price
        if exchange.error is not None:
            self.wasted += 1
            self.wasted_money += price
        return exchange

    def _reply(self, now: float) -> Reply:
        number = bisect_right(self._starts, now) - 1
        phase, target = self._phases[number], self._target
        # Two draws for every request, used or not: the next one's luck depends on nothing else.
        luck, normal = self._random.random(), self._random.gauss()
        return phase.reply(
            Request(
                now,
                now - phase.starts,
                self._ends[number] - now,
                target.latency,
                target.first,
                self._traffic.stream,
                luck,
                normal,
                self._counts[number],
                self._taken[number],
            )
        )


class World:
    """Hold all targets of one simulation.

    Args:
        scenario: The incident.
        clock: The virtual time.
        seed: Makes it repeatable.
    """

    def __init__(self, scenario: Scenario, clock: VirtualClock, seed: int) -> None:
        self.scenario = scenario
        self.clock = clock
        self._seed = seed
        self.meters = {target.name: Meter(target, scenario, seed) for target in scenario.targets}

    def luck(self, of: str) -> Random:
        """Return a source of randomness that nobody else draws from.

        Args:
            of: Whose it is; the same name and seed give the same draws.
        """
        return _luck(self._seed, of)

    def ask(self, target: str, limits: Limits) -> Exchange:
        """Send one request now.

        Args:
            target: The target's name.
            limits: How long the caller waits.

        Returns:
            What the caller sees, and when.
        """
        return self.meters[target].ask(self.clock.now, limits)


def _luck(seed: int, of: str) -> Random:
    return Random(f"{seed}:{of}")  # noqa: S311 # luck, not secrets
