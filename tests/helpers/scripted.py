"""The kit's script for tests that say a target's last reply again and again, and every driver."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from honcho_fallback import FallbackConfig, FallbackExhausted, FallbackPolicy, Target
from honcho_fallback.testing import Clock, Scripted, StatusError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Sequence

    from honcho_fallback import Attempt, FallbackRun
    from honcho_fallback.testing import Script


def repeating(**replies: Sequence[Any]) -> Script:
    """Make a script of the replies of each target, whose last one stands for the rest."""
    make = Scripted(Clock())
    return make({name: [*some[:-1], make.always(some[-1])] for name, some in replies.items()})


def pair(**options: Any) -> FallbackPolicy:
    chain = [Target("primary"), Target("fallback")]
    return FallbackPolicy(chain, FallbackConfig(**{"wait": 0, **options}))


def exhausted(one: int, two: int) -> FallbackExhausted:
    """Return what a call raises whose targets answer with these statuses."""
    with pytest.raises(FallbackExhausted) as caught:
        pair().call(repeating(primary=[StatusError(one)], fallback=[StatusError(two)]).ask)
    return caught.value


def asked_by(verb: str, policy: FallbackPolicy, ask: Any, **options: Any) -> Any:
    """Ask by one of the four verbs; a stream's chunks come as a list."""
    if verb == "call":
        return policy.call(ask, **options)
    if verb == "acall":
        return asyncio.run(policy.acall(ask, **options))
    if verb == "stream":
        return list(policy.stream(ask, **options))

    async def read() -> list[Any]:
        return [chunk async for chunk in policy.astream(ask, **options)]

    return asyncio.run(read())


async def awaited(verb: str, policy: FallbackPolicy, ask: Any, **options: Any) -> Any:
    """Ask by acall, or by astream for one chunk, the answer."""
    if verb == "acall":
        return await policy.acall(ask, **options)

    async def chunks(attempt: Attempt) -> AsyncGenerator[Any, None]:
        yield await ask(attempt)

    (answer,) = [chunk async for chunk in policy.astream(chunks, **options)]
    return answer


def ask(policy: FallbackPolicy, script: Script, verb: str, **options: Any) -> Any:
    asks = {"acall": script.aask, "stream": script.stream, "astream": script.astream}
    return asked_by(verb, policy, asks.get(verb, script.ask), **options)


def _driver(verb: str) -> Callable[[FallbackPolicy, Script, FallbackRun], Any]:
    def drive(policy: FallbackPolicy, script: Script, run: FallbackRun) -> Any:
        answer = ask(policy, script, verb, run=run)
        if "stream" in verb:
            (answer,) = answer
        return answer

    return drive


DRIVERS = {verb: _driver(verb) for verb in ("call", "acall", "stream", "astream")}
