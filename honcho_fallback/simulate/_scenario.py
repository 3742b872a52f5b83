"""An incident as data: the traffic, the targets, and what each of them does when."""

from __future__ import annotations

import tomllib
from collections.abc import Callable  # noqa: TC003 # pydantic reads it
from heapq import merge
from itertools import accumulate, count, pairwise, takewhile
from math import exp, log
from pathlib import Path
from statistics import NormalDist
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from honcho_fallback import FallbackConfigError, Target

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from random import Random

Name = Annotated[str, Field(min_length=1)]
Seconds = Annotated[float, Field(gt=0)]
NotNegative = Annotated[float, Field(ge=0)]
Count = Annotated[int, Field(ge=0)]

_SHIPPED = Path(__file__).with_name("scenarios")
_P99 = NormalDist().inv_cdf(0.99)


class _Part(BaseModel):
    """Be a table of a scenario: frozen, and what it does not know is refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Latency(_Part):
    """Describe how long answers take: a lognormal distribution, or a constant without ``p99``."""

    median: Seconds
    p99: Seconds | None = None

    def seconds(self, normal: float) -> float:
        """Return how long an answer takes, given a draw from the standard normal distribution."""
        spread = 0.0 if self.p99 is None else log(self.p99 / self.median) / _P99
        return self.median * exp(spread * normal)


class Price(_Part):
    """Say what an answer costs, in whatever currency; refusals cost nothing."""

    per_million_input: NotNegative = 0.0
    per_million_output: NotNegative = 0.0


class Phase(_Part):
    """Say what a target does from some moment until its next phase; a kind reads its own keys."""

    # The share of a recovery falls to nothing by the end of the phase.
    kind: Literal["up", "slow", "failing", "recovering", "rate_limited", "dropped", "silent"]
    starts: NotNegative = 0.0  # seconds after the scenario's start
    factor: Annotated[float, Field(ge=1)] = 1.0  # how many times the usual time
    status: Annotated[int, Field(ge=400, le=599)] = 503
    code: str | None = None  # the provider's error code
    retry_after: NotNegative | None = None  # seconds that a refusal asks to be left alone
    delay: NotNegative = 0.05  # seconds until a refusal is there, or the connection breaks
    share: Annotated[float, Field(gt=0, le=1)] = 1.0  # of the requests; the others are answered
    after_content: bool = False  # whether a stream brings content first
    calls: Count = 0  # requests answered per window, the first of which begins with the phase
    window: Seconds = 60.0  # its length; Retry-After tells when it ends


class Reply(NamedTuple):
    """Say what a provider does with one request, for as long as the caller waits."""

    seconds: float  # until the answer is complete, or the error is there
    error: Callable[[], Exception] | None = None
    first: float | None = None  # seconds until a stream's first content
    quiet: bool = False  # nothing comes between the first content and the end


class SimulatedTarget(_Part):
    """Describe one target of a scenario; before its first phase it is up."""

    name: Name  # as in the policy's chain, such as openai/gpt-5.5
    latency: Latency
    price: Price = Price()
    phases: tuple[Phase, ...] = ()
    recorded: tuple[tuple[float, Reply], ...] = ()  # instead of phases, in order of time

    @field_validator("phases")
    @classmethod
    def _in_order(cls, phases: tuple[Phase, ...]) -> tuple[Phase, ...]:
        if any(later.starts <= earlier.starts for earlier, later in pairwise(phases)):
            raise ValueError("each phase must start later than the one before; reorder them")
        if phases and phases[-1].kind == "recovering":
            raise ValueError("a recovery needs an end; add a phase after it")
        return phases


class Traffic(_Part):
    """Say when turns begin, and what a turn is made of."""

    # At even distances, independently of each other, or bursts over a poisson stream of others.
    kind: Literal["steady", "poisson", "bursts"]
    per_second: NotNegative = 0.0  # turns
    every: Seconds = 60.0  # from burst to burst; the first comes after as many
    turns_each: Annotated[int, Field(ge=1)] = 1  # of one burst
    at: tuple[NotNegative, ...] = ()  # in seconds, in order, where there is no rate
    iterations: Annotated[int, Field(ge=1)] = 1  # calls of a turn; one that fails ends it
    pause: NotNegative = 0.0  # seconds between two of them, such as a tool's
    stream: bool = False
    input_tokens: Count = 0  # of one request, for prices
    output_tokens: Count = 0

    def times(self, seconds: float, rng: Random) -> Iterator[float]:
        """Yield when turns begin, in order."""
        rate, times = self.per_second, iter(self.at)
        if rate and self.kind == "steady":
            times = (number / rate for number in count())
        elif rate:
            times = accumulate(rng.expovariate(rate) for _ in count())
        if self.kind == "bursts":
            bursts = (number * self.every for number in count(1) for _ in range(self.turns_each))
            times = merge(bursts, times)
        return takewhile(lambda at: at < seconds, times)

    def with_calls(self, calls: int, seconds: float) -> Traffic:
        """Return the same at another rate: about so many calls, if all turns complete."""
        turns = self.per_second * seconds
        if self.kind == "bursts":
            turns += (-(-seconds // self.every) - 1) * self.turns_each
        if calls < 1:
            raise FallbackConfigError.about("calls", f"got {calls}", "pass 1 or more")
        if not turns:
            problem = "this traffic has no rate that could change"
            raise FallbackConfigError.about("calls", problem, "leave it out")
        factor = calls / (turns * self.iterations)
        each = max(1, round(self.turns_each * factor))
        rates = {"per_second": self.per_second * factor, "turns_each": each}
        return self.model_copy(update=rates)


class Scenario(_Part):
    """Hold one incident; ``parse`` builds it from a mapping as a TOML file holds it.

    The shipped file ``scenarios/outage.toml`` says what may stand in one.
    """

    name: Name
    summary: str = ""
    seconds: Seconds  # how long turns are begun; those under way are finished
    traffic: Traffic
    targets: tuple[SimulatedTarget, ...]  # the default chain, the primary first
    started_at: float = 0.0  # in seconds since the epoch, for records

    @field_validator("targets")
    @classmethod
    def _check_names(cls, targets: tuple[SimulatedTarget, ...]) -> tuple[SimulatedTarget, ...]:
        if not targets:
            raise ValueError("there are none; describe at least one")
        if len({target.name for target in targets}) < len(targets):
            raise ValueError("two have the same name; give one of them another")
        return targets

    def chain(self) -> tuple[Target, ...]:
        """Return its targets for a policy."""
        names = [target.name.partition("/") for target in self.targets]
        return tuple(
            Target(model, provider=first) if model else Target(first) for first, _, model in names
        )

    @classmethod
    def parse(cls, given: Mapping[str, Any], source: str = "scenario") -> Scenario:
        """Build a scenario from plain values, as TOML or JSON hold them.

        Args:
            given: Keys and values, tables as mappings.
            source: What messages call it, such as the file's name.

        Raises:
            FallbackConfigError: A key is unknown or missing, or a value out of range.
        """
        try:
            return cls.model_validate(dict(given))
        except ValidationError as error:
            raise FallbackConfigError.invalid(error, source) from None


def shipped() -> tuple[str, ...]:
    """Name the scenarios that come with the package."""
    return tuple(sorted(path.stem for path in _SHIPPED.glob("*.toml")))


def load_scenario(source: str | Path) -> Scenario:
    """Read a scenario: one that is shipped, by name, or a TOML file.

    Args:
        source: Such as ``"outage"`` or ``"incident.toml"``.

    Raises:
        FallbackConfigError: There is none, it is no TOML, or a key or value is wrong.
    """
    path = _SHIPPED / f"{source}.toml" if source in shipped() else source
    return Scenario.parse(read_toml(path, shipped()), str(source))


def read_toml(source: str | Path, names: Iterable[str]) -> dict[str, Any]:
    """Read a TOML file; the error also names what else could have been meant."""
    try:
        return tomllib.loads(Path(source).read_text(encoding="utf-8"))
    except OSError as error:
        what = f"file ({error.strerror}) or name"
        raise FallbackConfigError.unknown(str(source), names, what) from None
    except ValueError as error:
        raise FallbackConfigError.about(str(source), f"no TOML: {error}", "correct it") from None
