"""An incident as data, written or on record: the traffic, the targets, who does what when."""

from __future__ import annotations

import tomllib
from collections.abc import Callable  # noqa: TC003 # pydantic reads it
from functools import partial
from heapq import merge
from itertools import accumulate, count, pairwise, takewhile
from math import exp, log
from pathlib import Path
from statistics import NormalDist, median
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from honcho_fallback import AnswerRejected, Failure, FailureKind, FallbackConfigError, Target
from honcho_fallback.records import RecordError, read_records

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from random import Random

    from honcho_fallback import AttemptRecord, CallRecord

Name = Annotated[str, Field(min_length=1)]
Seconds = Annotated[float, Field(gt=0)]
NotNegative = Annotated[float, Field(ge=0)]
Count = Annotated[int, Field(ge=0)]

_SHIPPED = Path(__file__).with_name("scenarios")
_P99 = NormalDist().inv_cdf(0.99)
# Where nobody hangs up, the kernel does: Linux gives up a silent connection after
# tcp_keepalive_time.
KEPT_ALIVE = 7200.0
# What says nothing about a provider.
_OURS = frozenset({FailureKind.CANCELLED, FailureKind.LOCAL})
_LEAST = 0.001  # seconds: no scenario and no answer is shorter

dropped = partial(ConnectionResetError, "simulated: the connection was reset")


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


def replay(records: str | Path | Iterable[CallRecord], *, name: str = "replay") -> Scenario:
    """Build a scenario from what calls met.

    A request in the simulation meets what the request on record that is nearest in time met at
    the same target, so the policy that made the records fares as it did. What they cannot say is
    assumed: a target that nobody asked answers, in the median time of all answers; after a timeout
    nothing would have come; each call is a turn of its own; and limits are repeated as seen, not
    counted. Cancelled attempts and local errors say nothing about a provider and are left out.

    Args:
        records: Of calls over the same targets; or a file with ``json.dumps(record.to_dict())`` on
            each line.
        name: The scenario's.

    Raises:
        FallbackConfigError: There are none, the file cannot be read, or a line is no record.
    """
    if isinstance(records, str | Path):
        try:
            records = list(read_records(records))
        except (RecordError, OSError) as error:
            problem = getattr(error, "strerror", None) or str(error)
            fix = "pass a file with json.dumps(record.to_dict()) on each line"
            raise FallbackConfigError.about(str(records), problem, fix) from None
    calls = sorted(records, key=lambda call: call.started_at)
    if not calls:
        raise FallbackConfigError.about("records", "there are none", "pass at least one")
    start = calls[0].started_at
    replies = {target: list[tuple[float, Reply]]() for call in calls for target in call.chain}
    attempts = [(call, attempt) for call in calls for attempt in call.attempts]
    for call, attempt in attempts:
        if attempt.kind not in _OURS:
            at = round(max(0.0, call.started_at - start + attempt.started), 6)
            replies.setdefault(attempt.target, []).append((at, _reply(call, attempt)))
    usual = median([one.seconds for _, one in attempts if one.kind is None] or [1.0])
    times = [call.started_at - start for call in calls]
    is_stream = any(call.time_to_first_token is not None for call in calls)
    return Scenario(
        name=name,
        summary=f"{len(calls)} calls on record, played again.",
        seconds=times[-1] + _LEAST,
        traffic=Traffic(kind="steady", at=tuple(times), stream=is_stream),
        targets=tuple(
            SimulatedTarget(
                name=target,
                latency=Latency(median=max(_LEAST, usual)),
                recorded=tuple(sorted(pairs, key=lambda pair: pair[0])),
            )
            for target, pairs in replies.items()
        ),
        started_at=start,
    )


def _reply(call: CallRecord, attempt: AttemptRecord) -> Reply:
    # Only a call's last attempt can have brought content.
    content_at = call.time_to_first_token if attempt is call.attempts[-1] else None
    first = None if content_at is None else max(0.0, content_at - attempt.started)
    if attempt.kind is None:
        return Reply(attempt.seconds, None, first)
    hung_up = attempt.status is None and "connect" not in (attempt.error or "").lower()
    if attempt.kind is FailureKind.TIMEOUT and hung_up:
        # The caller hung up: nobody knows what would have come.
        return Reply(KEPT_ALIVE, dropped, first, quiet=first is not None)
    names = ("transient", "status", "code", "retry_after", "reached")
    facts = {name: getattr(attempt, name) for name in names}
    failure = Failure.of(attempt.kind, reason="on record", **facts)
    # Records and rules know an error by the name of its class.
    kind = type(attempt.error or AnswerRejected.__name__, (AnswerRejected,), {})
    return Reply(attempt.seconds, partial(kind, failure), first)


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
