"""An incident as data: the traffic, the targets, and what each of them does when."""

from __future__ import annotations

import tomllib
from importlib.resources import files
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Self

from pydantic import Field, ValidationError, field_validator, model_validator

from honcho_fallback import FallbackConfigError, Target
from honcho_fallback.testing.simulate._border import explain
from honcho_fallback.testing.simulate._latency import Latency, Part, Seconds
from honcho_fallback.testing.simulate._phases import Phase, Recovering
from honcho_fallback.testing.simulate._traffic import Traffic  # noqa: TC001 # pydantic reads it

if TYPE_CHECKING:
    from collections.abc import Iterable

Name = Annotated[str, Field(min_length=1)]
Money = Annotated[float, Field(ge=0, allow_inf_nan=False)]

_SHIPPED = files("honcho_fallback.testing.simulate") / "scenarios"


class Price(Part):
    """Say what one answer costs, in whatever currency; refusals cost nothing.

    Args:
        per_call: For each answer.
        per_million_input: For a million input tokens.
        per_million_output: For a million output tokens.
    """

    per_call: Money = 0.0
    per_million_input: Money = 0.0
    per_million_output: Money = 0.0

    def of(self, input_tokens: int, output_tokens: int) -> float:
        """Tell what one answer costs.

        Args:
            input_tokens: Of the request.
            output_tokens: Of the answer.
        """
        tokens = self.per_million_input * input_tokens + self.per_million_output * output_tokens
        return self.per_call + tokens / 1_000_000


class SimulatedTarget(Part):
    """Describe one target of a scenario.

    Args:
        name: As in the policy's chain, such as ``openai/gpt-5.5``.
        latency: How long its answers usually take.
        first: The share of an answer's time that passes before a stream's first content.
        price: Of an answer, or None where money does not matter.
        phases: What it does from when on; before the first it is up.
    """

    name: Name
    latency: Latency
    first: Annotated[float, Field(gt=0, le=1)] = 0.25
    price: Price | None = None
    phases: tuple[Phase, ...] = ()

    @field_validator("phases")
    @classmethod
    def _in_order(cls, phases: tuple[Phase, ...]) -> tuple[Phase, ...]:
        starts = [phase.starts for phase in phases]
        if any(later <= earlier for earlier, later in pairwise(starts)):
            raise ValueError("each phase must start later than the one before, reorder them")
        if phases and isinstance(phases[-1], Recovering):
            raise ValueError("a recovery needs an end, add a phase after it")
        return phases

    def target(self) -> Target:
        """Return the target as a policy's chain has it."""
        provider, slash, model = self.name.partition("/")
        if slash and provider and model:
            return Target(model, provider=provider, name=self.name)
        return Target(self.name)


class Scenario(Part):
    """Hold one incident.

    Args:
        name: What reports call it.
        summary: What happens, in a sentence.
        seconds: How long calls are begun; those under way are finished.
        traffic: When they begin.
        targets: The default chain, the primary first.
        started_at: When it begins, in seconds since the epoch; for records.
        assumptions: What it takes for granted, in sentences.
    """

    name: Name
    summary: str = ""
    seconds: Seconds
    traffic: Traffic
    targets: Annotated[tuple[SimulatedTarget, ...], Field(min_length=1)]
    started_at: float = 0.0
    assumptions: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _names_are_unique(self) -> Self:
        names = [target.name for target in self.targets]
        duplicate = next((name for name in names if names.count(name) > 1), None)
        if duplicate is not None:
            raise ValueError(f"targets: {duplicate!r} is there twice, give one another name")
        return self

    @property
    def names(self) -> tuple[str, ...]:
        """Return the targets' names, the primary first."""
        return tuple(target.name for target in self.targets)

    def chain(self, names: Iterable[str] | None = None) -> tuple[Target, ...]:
        """Return targets for a policy.

        Args:
            names: Which, in which order; default: all, in the scenario's.

        Raises:
            FallbackConfigError: The scenario has no such target.
        """
        targets = {target.name: target for target in self.targets}
        selection = self.names if names is None else tuple(names)
        self.require(selection)
        return tuple(targets[name].target() for name in selection)

    def require(self, names: Iterable[str]) -> None:
        """Refuse targets whose behaviour nobody described.

        Args:
            names: Of a policy's chain.

        Raises:
            FallbackConfigError: The scenario has no such target.
        """
        missing = [name for name in names if name not in self.names]
        if missing:
            raise FallbackConfigError.about(
                "targets",
                f"scenario {self.name!r} has no {missing[0]!r}",
                f"use its targets ({', '.join(self.names)}), or describe this one in it",
            )

    def with_calls(self, calls: int) -> Scenario:
        """Return the same incident under another load: so many calls, if all turns complete.

        Args:
            calls: About how many over the whole time; limits and outages stay what they are.

        Raises:
            FallbackConfigError: The number is not positive, or the traffic is a record.
        """
        if calls < 1:
            raise FallbackConfigError.about("calls", f"got {calls}", "pass 1 or more")
        traffic = self.traffic
        expected = traffic.turns(self.seconds) * traffic.iterations
        if not expected:
            raise FallbackConfigError.about("calls", "the scenario begins none", "leave it out")
        try:
            scaled = traffic.scaled(calls / expected)
        except ValueError as error:
            raise FallbackConfigError.about("calls", str(error), "leave it out") from None
        return self.model_copy(update={"traffic": scaled})

    @classmethod
    def parse(cls, given: Any, source: str = "scenario") -> Scenario:
        """Build a scenario from plain values, as TOML or JSON hold them.

        Args:
            given: A mapping.
            source: What messages call it, such as the file's name.

        Raises:
            FallbackConfigError: A key is unknown or missing, or a value out of range.
        """
        try:
            return cls.model_validate(given)
        except ValidationError as error:
            raise FallbackConfigError(explain(error, source, cls)) from None


def shipped() -> tuple[str, ...]:
    """Name the scenarios that come with the package."""
    return tuple(
        sorted(one.name.removesuffix(".toml") for one in _SHIPPED.iterdir() if ".toml" in one.name)
    )


def load_scenario(source: str | Path) -> Scenario:
    """Read a scenario: one that is shipped, by name, or a TOML file.

    Args:
        source: Such as ``"outage"`` or ``"incident.toml"``.

    Raises:
        FallbackConfigError: There is none, it is no TOML, or a key or value is wrong.
    """
    if isinstance(source, str) and source in shipped():
        text = (_SHIPPED / f"{source}.toml").read_text(encoding="utf-8")
        return Scenario.parse(tomllib.loads(text), source)
    return Scenario.parse(read_toml(source, "scenario"), str(source))


def read_toml(source: str | Path, what: str) -> dict[str, Any]:
    """Read a TOML file."""
    try:
        return tomllib.loads(Path(source).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or "no UTF-8 text"
        fix = "pass a TOML file"
        if what == "scenario":
            fix += f" or a shipped name: {', '.join(shipped())}"
        raise FallbackConfigError.about(str(source), f"{why}", fix) from None
    except tomllib.TOMLDecodeError as error:
        raise FallbackConfigError.about(str(source), f"no TOML: {error}", "correct it") from None
