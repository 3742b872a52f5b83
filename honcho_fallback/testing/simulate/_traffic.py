"""When turns begin, and what a turn is made of."""

from __future__ import annotations

from heapq import merge
from typing import TYPE_CHECKING, Annotated, Literal, Self

from pydantic import Field

from honcho_fallback.testing.simulate._latency import Moment, Part, Seconds

if TYPE_CHECKING:
    from collections.abc import Iterator
    from random import Random

Rate = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class _Traffic(Part):
    """Hold what all traffic has.

    Args:
        iterations: Calls of one turn, one after the other; a call that fails ends the turn.
        pause: Seconds between two of them, such as a tool's.
        stream: Whether answers are streamed.
        input_tokens: Of one request, for prices.
        output_tokens: Of one answer.
    """

    iterations: Annotated[int, Field(ge=1)] = 1
    pause: Moment = 0.0
    stream: bool = False
    input_tokens: Annotated[int, Field(ge=0)] = 0
    output_tokens: Annotated[int, Field(ge=0)] = 0


class Steady(_Traffic):
    """Begin turns at even distances.

    Args:
        per_second: Turns per second.
    """

    kind: Literal["steady"] = "steady"
    per_second: Rate

    def turns(self, seconds: float) -> float:
        """Tell how many turns are expected."""
        return self.per_second * seconds

    def times(self, seconds: float, random: Random) -> Iterator[float]:  # noqa: ARG002 # as others
        """Yield when turns begin, in order."""
        number = 0
        while (at := number / self.per_second) < seconds:
            yield at
            number += 1

    def scaled(self, factor: float) -> Self:
        """Return the same with another rate."""
        return self.model_copy(update={"per_second": self.per_second * factor})


class Poisson(_Traffic):
    """Begin turns independently of each other.

    Args:
        per_second: Turns per second on average.
    """

    kind: Literal["poisson"] = "poisson"
    per_second: Rate

    def turns(self, seconds: float) -> float:
        """Tell how many turns are expected."""
        return self.per_second * seconds

    def times(self, seconds: float, random: Random) -> Iterator[float]:
        """Yield when turns begin, in order."""
        at = random.expovariate(self.per_second)
        while at < seconds:
            yield at
            at += random.expovariate(self.per_second)

    def scaled(self, factor: float) -> Self:
        """Return the same with another rate."""
        return self.model_copy(update={"per_second": self.per_second * factor})


class Bursts(_Traffic):
    """Begin many turns at once, again and again, over a steady stream of others.

    Args:
        every: Seconds from burst to burst; the first comes after as many.
        turns_each: Turns of one burst.
        per_second: Other turns per second, independent of each other; 0 for none.
    """

    kind: Literal["bursts"] = "bursts"
    every: Seconds
    turns_each: Annotated[int, Field(ge=1)]
    per_second: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.0

    def turns(self, seconds: float) -> float:
        """Tell how many turns are expected."""
        return sum(1 for _ in self._bursts(seconds)) + self.per_second * seconds

    def times(self, seconds: float, random: Random) -> Iterator[float]:
        """Yield when turns begin, in order."""
        return merge(self._bursts(seconds), self._others(seconds, random))

    def scaled(self, factor: float) -> Self:
        """Return the same with other numbers of turns."""
        each = max(1, round(self.turns_each * factor))
        return self.model_copy(update={"turns_each": each, "per_second": self.per_second * factor})

    def _bursts(self, seconds: float) -> Iterator[float]:
        number = 1
        while (at := number * self.every) < seconds:
            for _ in range(self.turns_each):
                yield at
            number += 1

    def _others(self, seconds: float, random: Random) -> Iterator[float]:
        if self.per_second:
            yield from Poisson(per_second=self.per_second).times(seconds, random)


class RecordedTraffic(_Traffic):
    """Begin turns when they began on record.

    Args:
        at: When, in seconds of the scenario, in order.
    """

    kind: Literal["recorded"] = "recorded"
    at: tuple[Moment, ...]

    def turns(self, seconds: float) -> float:
        """Tell how many turns there are."""
        return sum(1 for at in self.at if at < seconds)

    def times(self, seconds: float, random: Random) -> Iterator[float]:  # noqa: ARG002 # as others
        """Yield when turns begin, in order."""
        return (at for at in self.at if at < seconds)

    def scaled(self, factor: float) -> Self:
        """Refuse: what was recorded is what it is."""
        raise ValueError(f"recorded traffic cannot be multiplied by {factor:g}")


Traffic = Annotated[Steady | Poisson | Bursts | RecordedTraffic, Field(discriminator="kind")]
