"""The kit's script for tests that say a target's last reply again and again, and every driver."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from honcho_fallback.testing import Clock, Scripted

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from honcho_fallback import FallbackPolicy, FallbackRun
    from honcho_fallback.testing import Script


def repeating(**replies: Sequence[Any]) -> Script:
    """Make a script of the replies of each target, whose last one stands for the rest."""
    make = Scripted(Clock())
    return make({name: [*some[:-1], make.always(some[-1])] for name, some in replies.items()})


def _call(policy: FallbackPolicy, script: Script, run: FallbackRun) -> Any:
    return policy.call(script.ask, run=run)


def _acall(policy: FallbackPolicy, script: Script, run: FallbackRun) -> Any:
    return asyncio.run(policy.acall(script.aask, run=run))


def _stream(policy: FallbackPolicy, script: Script, run: FallbackRun) -> Any:
    (answer,) = policy.stream(script.stream, run=run)
    return answer


def _astream(policy: FallbackPolicy, script: Script, run: FallbackRun) -> Any:
    async def read() -> Any:
        (answer,) = [chunk async for chunk in policy.astream(script.astream, run=run)]
        return answer

    return asyncio.run(read())


DRIVERS: dict[str, Callable[[FallbackPolicy, Script, FallbackRun], Any]] = {
    "call": _call,
    "acall": _acall,
    "stream": _stream,
    "astream": _astream,
}
