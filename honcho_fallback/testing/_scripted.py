"""Targets that play a script: the replies of each in order, and the requests that came."""

from __future__ import annotations

import math
from collections import Counter, deque
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NoReturn

from honcho_fallback import Target

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Iterator, Mapping

    from honcho_fallback import Attempt
    from honcho_fallback.testing._clock import Clock


class StatusError(Exception):
    """Stand for an SDK's error, with the facts that ``classify`` reads.

    Args:
        status: HTTP status.
        retry_after: Seconds for the Retry-After header, or None.
        code: The provider's error code in the body, or None.

    Attributes:
        status_code: The status.
        response: What carries the headers.
        body: As JSON, or None.
    """

    def __init__(
        self, status: int, *, retry_after: float | None = None, code: str | None = None
    ) -> None:
        super().__init__(f"HTTP {status}")
        self.status_code = status
        headers = {} if retry_after is None else {"retry-after": f"{retry_after:g}"}
        self.response = SimpleNamespace(status_code=status, headers=headers)
        self.body = None if code is None else {"error": {"code": code, "message": "scripted"}}


@dataclass(frozen=True, slots=True)
class After:
    """Reply late: a step, or a chunk; beyond the attempt's timeout it is a timeout.

    Args:
        seconds: How late, on the clock; never where they are infinite.
        reply: An answer or an exception.
    """

    seconds: float
    reply: Any = None


@dataclass(frozen=True, slots=True)
class Always:
    """Reply the same to every further request: the last step.

    Args:
        reply: An answer or an exception.
    """

    reply: Any


@dataclass(frozen=True, slots=True)
class ScriptedRequest:
    """Hold one request that a script saw; see ``Script.requests``."""

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
        requests: The requests, in order: each has its ``attempt``, the other ``args`` and
            ``kwargs`` of ``ask``, and ``at``, the seconds since the script was made.
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
        """Play a target's next step in this thread."""
        seconds, reply = self._timed(attempt, self._next(attempt, args, kwargs))
        self._clock.advance(seconds)
        return _play(reply)

    async def aask(self, attempt: Attempt, /, *args: Any, **kwargs: Any) -> Any:
        """Play a target's next step in this task."""
        seconds, reply = self._timed(attempt, self._next(attempt, args, kwargs))
        await self._clock.elapse(seconds)
        return _play(reply)

    def stream(self, attempt: Attempt, /, *args: Any, **kwargs: Any) -> Iterator[Any]:
        """Play a target's next step chunk by chunk; the request counts with the first read."""
        try:
            for chunk in _chunks(self._next(attempt, args, kwargs)):
                seconds, reply = self._timed(attempt, chunk)
                self._clock.advance(seconds)
                yield _play(reply)
        finally:
            self.closed[attempt.target.name] += 1

    async def astream(self, attempt: Attempt, /, *args: Any, **kwargs: Any) -> AsyncIterator[Any]:
        """Play a target's next step chunk by chunk; the request counts with the first read."""
        try:
            for chunk in _chunks(self._next(attempt, args, kwargs)):
                seconds, reply = self._timed(attempt, chunk)
                await self._clock.elapse(seconds)
                yield _play(reply)
        finally:
            self.closed[attempt.target.name] += 1

    def _next(self, attempt: Attempt, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        name = attempt.target.name
        if name not in self._steps:
            known = ", ".join(self._steps)
            _fail(f"the script knows no target {name}, only {known}: pass its steps to scripted()")
        at = self._clock() - self._began
        self.requests.append(ScriptedRequest(attempt, args, kwargs, at))
        steps = self._steps[name]
        if not steps:
            before = self.asked[:-1]
            times = before.count(name)
            names = ", ".join(before) or "nobody"
            _fail(
                f"the script of {name} ran out: it was asked for step {times + 1} of {times} "
                f"(asked before: {names}); add a step, or end it with scripted.always(...)"
            )
        return steps[0].reply if isinstance(steps[0], Always) else steps.popleft()

    def _timed(self, attempt: Attempt, step: Any) -> tuple[float, Any]:
        if not isinstance(step, After):
            return 0.0, step
        limit, name = attempt.timeout, attempt.target.name
        if limit is not None and step.seconds > limit:
            return limit, TimeoutError(f"{name} gave no answer within {limit:g} s")
        if math.isinf(step.seconds):
            _fail(f"{name} hangs for ever: the attempt has no timeout; give the policy one")
        return step.seconds, step.reply


class Scripted:
    """Make scripts and their steps; what the fixture ``scripted`` is.

    Args:
        clock: The clock that delays move.

    Attributes:
        status: Makes an HTTP error in the form of the SDKs, which a step raises.
        after: Makes a step that comes late.
        always: Makes a last step that is played again and again.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def __call__(
        self,
        steps: Mapping[str | Target, Iterable[Any]] | None = None,
        /,
        **more: Iterable[Any],
    ) -> Script:
        """Return a script; ``script.unplayed`` says what nobody asked for."""
        merged: dict[str | Target, Iterable[Any]] = {}
        merged.update(steps or {})
        merged.update(more)
        return Script(merged, self._clock)

    status, after, always = StatusError, After, Always

    @staticmethod
    def hang() -> After:
        """Return a step, or a chunk, that never comes: the attempt's timeout ends it."""
        return After(math.inf)


def _target(name: str | Target) -> Target:
    if isinstance(name, Target):
        return name
    provider, slash, model = name.partition("/")
    return Target(model, provider=provider) if slash else Target(name)


def _chunks(step: Any) -> list[Any]:
    return list(step) if isinstance(step, list) else [step]  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType] # a list of anything


def _play(reply: Any) -> Any:
    """Return a reply, or raise it where it is an error."""
    if isinstance(reply, BaseException):
        raise reply.with_traceback(None)  # it may have been raised before
    kind: Any = reply
    if isinstance(reply, type) and issubclass(kind, BaseException):
        raise kind
    return reply


def _fail(message: str) -> NoReturn:
    # No policy takes pytest's own failure for a provider's, whatever it falls back on: it is no
    # Exception, and so goes through drivers, frameworks and the service's own handlers.
    import pytest  # noqa: PLC0415 # scripts are pytest's; the rest of the kit is not

    pytest.fail(message, pytrace=False)
