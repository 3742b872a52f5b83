"""Targets that play a script: the replies of each in order, and the requests that came."""

from __future__ import annotations

import math
from collections import Counter, deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from honcho_fallback import Target
from honcho_fallback.testing._script_steps import After, Always, fail, play

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Iterator, Mapping

    from honcho_fallback import Attempt
    from honcho_fallback.testing._clock import Clock


@dataclass(frozen=True, slots=True)
class ScriptedRequest:
    """Tell one request that a script saw.

    Args:
        attempt: The attempt that was made, with target, number and timeout.
        args: The other positional arguments of ``ask``.
        kwargs: The keyword arguments of ``ask``.
        at: When, in seconds after the script was made.
    """

    attempt: Attempt
    args: tuple[Any, ...] = field(repr=False)
    kwargs: Mapping[str, Any] = field(repr=False)
    at: float


class Script:
    """Answer for targets by a script; made by the fixture ``scripted``.

    ``policy.call(script.ask)``, ``await policy.acall(script.aask)``,
    ``policy.stream(script.stream)``, ``policy.astream(script.astream)``. Each of the four takes
    the further arguments of your own ``ask``, and keeps them in ``requests``.

    Args:
        steps: For each target (or its name, ``provider/model`` or any other) its replies in
            order: an answer, an exception to raise, or what ``Scripted`` makes of one. For streams
            an entry is a list of these, chunk by chunk.
        clock: The clock that delays move.

    Attributes:
        targets: The chain, in the order of ``steps``.
        requests: The requests, in order.
        closed: How many streams of each target were closed or ended, by name.
    """

    def __init__(self, steps: Mapping[str | Target, Iterable[Any]], clock: Clock) -> None:
        self._steps = {_target(name).name: deque(replies) for name, replies in steps.items()}
        self._clock = clock
        self._began = clock()
        self.targets = tuple(_target(name) for name in steps)
        self.requests: list[ScriptedRequest] = []
        self.closed: Counter[str] = Counter()

    @property
    def asked(self) -> list[str]:
        """Return the name of each request's target, in order."""
        return [request.attempt.target.name for request in self.requests]

    @property
    def unplayed(self) -> dict[str, list[Any]]:
        """Return the steps that were not played, by target; without those of ``always``."""
        unplayed = {
            name: [step for step in steps if not isinstance(step, Always)]
            for name, steps in self._steps.items()
        }
        return {name: steps for name, steps in unplayed.items() if steps}

    def ask(self, attempt: Attempt, /, *args: Any, **kwargs: Any) -> Any:
        """Play a target's next step in this thread.

        Args:
            attempt: As a policy makes it.
            *args: Kept in ``requests``.
            **kwargs: Kept in ``requests``.
        """
        seconds, reply = self._timed(attempt, self._next(attempt, args, kwargs))
        self._clock.advance(seconds)
        return play(reply)

    async def aask(self, attempt: Attempt, /, *args: Any, **kwargs: Any) -> Any:
        """Play a target's next step in this task.

        Args:
            attempt: As a policy makes it.
            *args: Kept in ``requests``.
            **kwargs: Kept in ``requests``.
        """
        seconds, reply = self._timed(attempt, self._next(attempt, args, kwargs))
        await self._clock.elapse(seconds)
        return play(reply)

    def stream(self, attempt: Attempt, /, *args: Any, **kwargs: Any) -> Iterator[Any]:
        """Play a target's next step chunk by chunk; the request counts with the first read.

        Args:
            attempt: As a policy makes it.
            *args: Kept in ``requests``.
            **kwargs: Kept in ``requests``.
        """
        try:
            for chunk in _chunks(self._next(attempt, args, kwargs)):
                seconds, reply = self._timed(attempt, chunk)
                self._clock.advance(seconds)
                yield play(reply)
        finally:
            self.closed[attempt.target.name] += 1

    async def astream(self, attempt: Attempt, /, *args: Any, **kwargs: Any) -> AsyncIterator[Any]:
        """Play a target's next step chunk by chunk; the request counts with the first read.

        Args:
            attempt: As a policy makes it.
            *args: Kept in ``requests``.
            **kwargs: Kept in ``requests``.
        """
        try:
            for chunk in _chunks(self._next(attempt, args, kwargs)):
                seconds, reply = self._timed(attempt, chunk)
                await self._clock.elapse(seconds)
                yield play(reply)
        finally:
            self.closed[attempt.target.name] += 1

    def _next(self, attempt: Attempt, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        name = attempt.target.name
        if name not in self._steps:
            known = ", ".join(self._steps)
            fail(f"the script knows no target {name}, only {known}: pass its steps to scripted()")
        before = self.asked
        at = self._clock() - self._began
        self.requests.append(ScriptedRequest(attempt, args, kwargs, at))
        steps = self._steps[name]
        if not steps:
            times = before.count(name)
            names = ", ".join(before) or "nobody"
            fail(
                f"the script of {name} ran out: it was asked for step {times + 1} of {times} "
                f"(asked before: {names}); add a step, or end it with scripted.always(...)"
            )
        if isinstance(steps[0], Always):
            return steps[0].reply
        return steps.popleft()

    def _timed(self, attempt: Attempt, step: Any) -> tuple[float, Any]:
        if not isinstance(step, After):
            return 0.0, step
        limit, name = attempt.timeout, attempt.target.name
        if limit is not None and step.seconds > limit:
            return limit, TimeoutError(f"{name} gave no answer within {limit:g} s")
        if math.isinf(step.seconds):
            fail(f"{name} hangs for ever: the attempt has no timeout; give the policy one")
        return step.seconds, step.reply


def _target(name: str | Target) -> Target:
    if isinstance(name, Target):
        return name
    provider, slash, model = name.partition("/")
    return Target(model, provider=provider) if slash else Target(name)


def _chunks(step: Any) -> list[Any]:
    return list(step) if isinstance(step, list) else [step]  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType] # a list of anything
