"""Targets that play a script: what each says, in order, who was asked and what."""

from __future__ import annotations

import math
from collections import Counter, deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from honcho_fallback import Target
from honcho_fallback.testing._script_steps import After, Always, fail, say

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Iterator, Mapping

    from honcho_fallback import Attempt
    from honcho_fallback.testing._clock import Clock


@dataclass(frozen=True, slots=True)
class ScriptedRequest:
    """Tell one request that a script saw.

    Args:
        attempt: The attempt that was made, with target, number and timeout.
        args: What else ``ask`` was given by position.
        kwargs: What else ``ask`` was given by name.
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
    whatever else your own ``ask`` would be given, and keeps it in ``requests``.

    Args:
        said: For each target (or its name, ``provider/model`` or any other) what it says, in
            order: an answer, an exception to raise, or what ``Scripted`` makes of one. For streams
            an entry is a list of these, chunk by chunk.
        clock: What delays move.

    Attributes:
        targets: The chain, in the order of ``said``.
        requests: What was asked, in order.
        closed: How many streams of each target were closed or ended, by name.
    """

    def __init__(self, said: Mapping[str | Target, Iterable[Any]], clock: Clock) -> None:
        self._left = {_target(name).name: deque(steps) for name, steps in said.items()}
        self._clock = clock
        self._began = clock()
        self.targets = tuple(_target(name) for name in said)
        self.requests: list[ScriptedRequest] = []
        self.closed: Counter[str] = Counter()

    @property
    def asked(self) -> list[str]:
        """Return the names of the targets that were asked, in order."""
        return [request.attempt.target.name for request in self.requests]

    @property
    def unplayed(self) -> dict[str, list[Any]]:
        """Return what is left to be said, by target; what is said always is never left."""
        left = {
            name: [step for step in steps if not isinstance(step, Always)]
            for name, steps in self._left.items()
        }
        return {name: steps for name, steps in left.items() if steps}

    def ask(self, attempt: Attempt, /, *args: Any, **kwargs: Any) -> Any:
        """Play a target's next step in this thread.

        Args:
            attempt: As a policy makes it.
            *args: Kept in ``requests``.
            **kwargs: Kept in ``requests``.
        """
        seconds, said = self._timed(attempt, self._next(attempt, args, kwargs))
        self._clock.advance(seconds)
        return say(said)

    async def aask(self, attempt: Attempt, /, *args: Any, **kwargs: Any) -> Any:
        """Play a target's next step in this task.

        Args:
            attempt: As a policy makes it.
            *args: Kept in ``requests``.
            **kwargs: Kept in ``requests``.
        """
        seconds, said = self._timed(attempt, self._next(attempt, args, kwargs))
        await self._clock.elapse(seconds)
        return say(said)

    def stream(self, attempt: Attempt, /, *args: Any, **kwargs: Any) -> Iterator[Any]:
        """Play a target's next step chunk by chunk; asked with the first chunk's reading.

        Args:
            attempt: As a policy makes it.
            *args: Kept in ``requests``.
            **kwargs: Kept in ``requests``.
        """
        try:
            for chunk in _chunks(self._next(attempt, args, kwargs)):
                seconds, said = self._timed(attempt, chunk)
                self._clock.advance(seconds)
                yield say(said)
        finally:
            self.closed[attempt.target.name] += 1

    async def astream(self, attempt: Attempt, /, *args: Any, **kwargs: Any) -> AsyncIterator[Any]:
        """Play a target's next step chunk by chunk; asked with the first chunk's reading.

        Args:
            attempt: As a policy makes it.
            *args: Kept in ``requests``.
            **kwargs: Kept in ``requests``.
        """
        try:
            for chunk in _chunks(self._next(attempt, args, kwargs)):
                seconds, said = self._timed(attempt, chunk)
                await self._clock.elapse(seconds)
                yield say(said)
        finally:
            self.closed[attempt.target.name] += 1

    def _next(self, attempt: Attempt, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        name = attempt.target.name
        if name not in self._left:
            known = ", ".join(self._left)
            fail(f"the script knows no target {name}, only {known}: pass its steps to scripted()")
        before = self.asked
        at = self._clock() - self._began
        self.requests.append(ScriptedRequest(attempt, args, kwargs, at))
        steps = self._left[name]
        if not steps:
            times = before.count(name)
            asked = ", ".join(before) or "nobody"
            fail(
                f"the script of {name} ran out: it was asked for step {times + 1} of {times} "
                f"(asked before: {asked}); add a step, or end it with scripted.always(...)"
            )
        if isinstance(steps[0], Always):
            return steps[0].said
        return steps.popleft()

    def _timed(self, attempt: Attempt, step: Any) -> tuple[float, Any]:
        if not isinstance(step, After):
            return 0.0, step
        limit, name = attempt.timeout, attempt.target.name
        if limit is not None and step.seconds > limit:
            return limit, TimeoutError(f"{name} gave no answer within {limit:g} s")
        if math.isinf(step.seconds):
            fail(f"{name} hangs for ever: the attempt has no timeout; give the policy one")
        return step.seconds, step.said


def _target(name: str | Target) -> Target:
    if isinstance(name, Target):
        return name
    provider, slash, model = name.partition("/")
    return Target(model, provider=provider) if slash else Target(name)


def _chunks(step: Any) -> list[Any]:
    return list(step) if isinstance(step, list) else [step]  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType] # a list of anything
