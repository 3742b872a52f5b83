"""How long an answer takes: a constant, or a lognormal given by two figures people know."""

from __future__ import annotations

from math import exp, log
from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Moment = Annotated[float, Field(ge=0, allow_inf_nan=False)]

_P99 = 2.3263478740408408  # the standard normal's 99th percentile


class Part(BaseModel):
    """Be a part of a scenario: frozen, unknown keys refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)


class Latency(Part):
    """Describe how long answers take, in seconds.

    Args:
        median: Half of them are faster.
        p99: One in a hundred is slower; without it all take the median.
    """

    median: Seconds
    p99: Seconds | None = None

    @model_validator(mode="before")
    @classmethod
    def _a_number_is_a_constant(cls, given: Any) -> Any:
        is_number = isinstance(given, int | float) and not isinstance(given, bool)
        return {"median": given} if is_number else given

    @model_validator(mode="after")
    def _the_tail_is_above(self) -> Self:
        if self.p99 is not None and self.p99 < self.median:
            raise ValueError(f"p99 is {self.p99:g}, pass the median ({self.median:g}) or more")
        return self

    def seconds(self, normal: float, factor: float = 1.0) -> float:
        """Tell how long one answer takes.

        Args:
            normal: A draw from the standard normal distribution.
            factor: How many times slower than usual.
        """
        spread = 0.0 if self.p99 is None else log(self.p99 / self.median) / _P99
        return self.median * factor * exp(spread * normal)
