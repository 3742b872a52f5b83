"""What happens to call number n: drawn from the seed and n, so that a run can be repeated."""

from __future__ import annotations

import os
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

TARGETS = PRIMARY, BACKUP = "primary", "backup"
# Of one attempt, in seconds; long enough that a busy machine does not make an answer late. A small
# run, which is not busy, need not wait so long for what hangs.
TIMEOUT = float(os.environ.get("SOAK_TIMEOUT", "5"))

OK, STALL, JUNK, REJECTED = "ok", "stall", "junk", "400"
CUT_LATE, STALL_LATE = "cut late", "stall late"
# How a request may end, in percent; the rest of them are answered.
_ANYWHERE: Mapping[str, float] = {
    "500": 5,
    "503": 4,
    "429": 4,
    "429 retry-after": 3,
    "401": 2,
    REJECTED: 1,
    "dropped": 4,
    JUNK: 3,
    "error under 200": 3,
    STALL: 1,
}
FAULTS: Mapping[bool, Mapping[str, float]] = {
    False: {**_ANYWHERE, "cut": 4},
    True: {**_ANYWHERE, "cut early": 4, CUT_LATE: 3, STALL_LATE: 0.2},
}
# LiteLLM takes an empty stream for an answer without words.
_HIDDEN = {("litellm", True)}
# A fallback is mostly well, or nothing would ever be answered.
_FALLBACK_SHARE = 0.35
_REQUESTS = 3

# How a reader may leave before the end, in percent of calls.
CANCEL, CLOSE, DROP = "cancel", "close", "drop"
_LEAVES = {CANCEL: 8, CLOSE: 12, DROP: 4}
# In a framework an async stream is a generator in a generator and so on; where nobody closes the
# outermost, the collector closes each by itself, and Python says that they are running already.
_MAY_BE_DROPPED = frozenset({"core"})
_LONGEST_PATIENCE = 0.04
_CHUNKS = 4


@dataclass(frozen=True, slots=True)
class Way:
    """Name one way to ask: a method of a backend."""

    backend: str
    sync: bool
    stream: bool

    def __str__(self) -> str:
        kind = "stream" if self.stream else "call"
        return f"{self.backend} {'' if self.sync else 'async '}{kind}"


@dataclass(frozen=True, slots=True)
class Call:
    """Say what happens to one call."""

    number: int
    way: Way
    faults: tuple[str, ...]
    leave: str | None = None
    patience: float = 0.0
    chunks: int = 0

    @property
    def prompt(self) -> str:
        """Write what the provider has to know."""
        return f"{self.number}|{'|'.join(self.faults)}"


def read_prompt(prompt: str) -> tuple[int, tuple[str, ...]]:
    """Read what ``Call.prompt`` wrote."""
    number, *faults = prompt.split("|")
    return int(number), tuple(faults)


def text_of(number: int, target: str, request: int) -> str:
    """Write the one answer to a call's n-th request, counted from 1."""
    return f"{number} by {target} #{request}"


def calls(seed: int, numbers: range, shares: Mapping[Way, float]) -> Iterator[Call]:
    """Draw the calls of these numbers; ``shares`` says how often each way is taken."""
    for number in numbers:
        # Not a tuple's hash, which may differ from process to process.
        dice = Random(f"{seed} {number}")
        (way,) = dice.choices([*shares], [*shares.values()])
        possible = dict(FAULTS[way.stream])
        if (way.backend, way.stream) in _HIDDEN:
            del possible[JUNK]
        faults = tuple(_fault(dice, possible, position) for position in range(_REQUESTS))
        yield Call(number, way, faults, *_leave(dice, way))


def _fault(dice: Random, possible: Mapping[str, float], position: int) -> str:
    share = 1 if position == 0 else _FALLBACK_SHARE
    if dice.random() > share * sum(possible.values()) / 100:
        return OK
    return dice.choices([*possible], [*possible.values()])[0]


def _leave(dice: Random, way: Way) -> tuple[str | None, float, int]:
    none = 100.0 - sum(_LEAVES.values())
    (leave,) = dice.choices([None, *_LEAVES], [none, *_LEAVES.values()])
    is_possible = not way.sync if leave == CANCEL else way.stream
    if leave == DROP and way.backend not in _MAY_BE_DROPPED:
        is_possible = False
    if leave is None or not is_possible:
        return None, 0.0, 0
    return leave, dice.uniform(0, _LONGEST_PATIENCE), dice.randint(1, _CHUNKS)
