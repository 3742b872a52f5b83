"""What happens to call number n: drawn from the seed and n, so that a run can be repeated."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

OK = "ok"
STALL = "stall"
JUNK = "junk"
REJECTED = "400"
CUT_LATE, STALL_LATE = "cut late", "stall late"

# How a request may end, and how often; the rest of them are answered.
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
# What a framework hides: LiteLLM takes an empty stream for an answer without words.
_HIDDEN = {("litellm", True)}
# A fallback is mostly well, or nothing would ever be answered.
_FALLBACK_FAULTS = 0.35
_REQUESTS = 3

# How a reader may leave before the end, and how often in a hundred calls.
CANCEL, CLOSE, DROP = "cancel", "close", "drop"
# In a framework an async stream is a generator in a generator and so on; where nobody closes the
# outermost, the collector closes each by itself, and Python says that they are running already.
_MAY_BE_DROPPED = frozenset({"core"})
_LEAVES = {CANCEL: 8, CLOSE: 12, DROP: 4}
_LONGEST_PATIENCE = 0.04
_CHUNKS = 4


@dataclass(frozen=True, slots=True)
class Way:
    """Name one way to ask: a lane and a method of it.

    Args:
        lane: Whose.
        sync: Whether a thread asks.
        stream: Whether a stream is asked for.
    """

    lane: str
    sync: bool
    stream: bool

    def __str__(self) -> str:
        kind = "stream" if self.stream else "call"
        return f"{self.lane} {'' if self.sync else 'async '}{kind}"


@dataclass(frozen=True, slots=True)
class Call:
    """Say what happens to one call.

    Args:
        number: Which; also what its answer has to begin with.
        way: How it asks.
        faults: How its requests end, in order; the last is for all that follow.
        leave: How the reader leaves before the end, or None.
        patience: Seconds before it cancels.
        chunks: How many it reads before it closes or drops a stream.
    """

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


def drawn(seed: int, number: int, shares: Mapping[Way, float]) -> Call:
    """Draw one call.

    Args:
        seed: The run's.
        number: The call's.
        shares: How often each way is taken.
    """
    # Not a tuple's hash, which may differ from process to process.
    dice = Random(f"{seed} {number}")
    (way,) = dice.choices([*shares], [*shares.values()])
    possible = dict(FAULTS[way.stream])
    if (way.lane, way.stream) in _HIDDEN:
        del possible[JUNK]
    faults = tuple(_fault(dice, possible, position) for position in range(_REQUESTS))
    return Call(number, way, faults, *_leave(dice, way))


def calls(seed: int, count: int, shares: Mapping[Way, float]) -> Iterator[Call]:
    """Draw all calls of a run."""
    return (drawn(seed, number, shares) for number in range(count))


def _fault(dice: Random, possible: Mapping[str, float], position: int) -> str:
    share = 1 if position == 0 else _FALLBACK_FAULTS
    if dice.random() > share * sum(possible.values()) / 100:
        return OK
    return dice.choices([*possible], [*possible.values()])[0]


def _leave(dice: Random, way: Way) -> tuple[str | None, float, int]:
    patience, chunks = dice.uniform(0, _LONGEST_PATIENCE), dice.randint(1, _CHUNKS)
    drawn_at = dice.uniform(0, 100)
    for leave, share in _LEAVES.items():
        drawn_at -= share
        if drawn_at < 0:
            possible = way.stream if leave != CANCEL else not way.sync
            if leave == DROP and way.lane not in _MAY_BE_DROPPED:
                possible = False
            return (leave, patience, chunks) if possible else (None, 0.0, 0)
    return None, 0.0, 0
