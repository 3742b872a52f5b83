"""One cell after the other: a subject, a way to fail, some rounds."""

from __future__ import annotations

import asyncio
import gc
import inspect
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from failover.provider import HANG, MODES, OK
from failover.subject import Place, Ready, Subject

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from standins import Served

FAMILIES = {
    "sdk": "sdk",
    "langchain": "langchain_models",
    "litellm": "litellm_routers",
    "pydantic-ai": "pydantic_ai_models",
    "haystack": "haystack_generators",
}
TIMEOUT = 1.0
# Long enough for what a library does behind a call's back, so that it is not in the next one.
PAUSE = 0.02
QUICK_TO_FAIL = "401"
CONTROL = 2


@dataclass(frozen=True, slots=True)
class Effort:
    """Say how much is measured per cell, whichever is less; never less than one round.

    Args:
        rounds: How many.
        seconds: How long.
    """

    rounds: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Round:
    """Tell what the providers saw of one call.

    Args:
        requests: How many came to the primary before the fallback's.
        gap: Milliseconds from the primary's first failing answer (where it hangs: from its first
            request) to the fallback's request; None where one of them was never asked.
        whole: Milliseconds from the call's start to the fallback's request, or to the primary's
            where that is healthy.
        error: Class of what the call raised, or None.
    """

    requests: int
    gap: float | None
    whole: float | None
    error: str | None = None


def seen(mode: str, began: int, log: dict[str, Any], error: str | None = None) -> Round:
    """Make a round of what the providers noted.

    Args:
        mode: How the primary behaved.
        began: When the call began, nanoseconds.
        log: The control port's answer.
        error: Class of what the call raised, or None.
    """
    asked: list[list[int]] = log["primary"]
    if mode == OK:
        whole = (asked[0][0] - began) / 1e6 if asked else None
        return Round(len(asked), None, whole, error)
    if not log["backup"]:
        return Round(len(asked), None, None, error)
    arrived: int = log["backup"][0]
    before = [one for one in asked if one[0] < arrived]
    since = before[0][0 if mode == HANG else 1] if before else None
    gap = None if since is None else (arrived - since) / 1e6
    return Round(len(before), gap, (arrived - began) / 1e6, error)


def measured(
    served: Served,
    subjects: Iterable[Subject],
    effort: Effort,
    modes: Sequence[str] = (OK, *MODES),
) -> Iterator[dict[str, Any]]:
    """Measure every subject in every mode, in this process.

    Args:
        served: The providers.
        subjects: Of one family.
        effort: Per cell.
        modes: How the primary behaves, one after the other.
    """
    with asyncio.Runner() as runner:
        for subject in subjects:
            bench = Bench(served, runner)
            usual = bench.warm(subject.make(Place.of(served)))
            hasty = bench.warm(subject.make(Place.of(served, TIMEOUT)))
            gc.collect()
            gc.freeze()
            for mode in modes:
                rounds = bench.rounds(hasty if mode == HANG else usual, mode, effort)
                yield {
                    "subject": subject.name,
                    "ours": subject.ours,
                    "mode": mode,
                    "requests": [one.requests for one in rounds],
                    "gap": [one.gap for one in rounds],
                    "whole": [one.whole for one in rounds],
                    "errors": sorted({one.error for one in rounds if one.error}),
                }


class Bench:
    """Make calls, one at a time, and ask the providers what they saw."""

    def __init__(self, served: Served, runner: asyncio.Runner) -> None:
        self._served, self._runner = served, runner

    def warm(self, ready: Ready) -> Ready:
        """Open connections and load what is loaded late."""
        for mode in (OK, QUICK_TO_FAIL, QUICK_TO_FAIL):
            self.one(ready, mode)
        return ready

    def rounds(self, ready: Ready, mode: str, effort: Effort) -> list[Round]:
        """Measure one cell; where there are several rounds, the first is for warming up."""
        until = time.monotonic() + effort.seconds
        told: list[Round] = []
        while not told or (len(told) <= effort.rounds and time.monotonic() < until):
            told.append(self.one(ready, mode))
        return told[1:] or told

    def one(self, ready: Ready, mode: str) -> Round:
        ready.rest()
        number = -1 if mode == OK else MODES.index(mode)
        self._served.ask(CONTROL, f"/reset?mode={number}")
        began, error = _called(ready) if ready.sync else self._runner.run(_awaited(ready))
        return seen(mode, began, self._served.ask(CONTROL, "/log"), error)


async def _awaited(ready: Ready) -> tuple[int, str | None]:
    began, error = time.monotonic_ns(), None
    try:
        answer = ready.ask()
        if inspect.isawaitable(answer):
            await answer
    except Exception as raised:  # noqa: BLE001 # what a peer raises is a figure, too
        error = type(raised).__name__
    await asyncio.sleep(PAUSE)
    return began, error


def _called(ready: Ready) -> tuple[int, str | None]:
    began, error = time.monotonic_ns(), None
    try:
        ready.ask()
    except Exception as raised:  # noqa: BLE001 # as above
        error = type(raised).__name__
    time.sleep(PAUSE)
    return began, error
