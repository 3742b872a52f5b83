"""What a call leaves behind: its record, without prompts or keys, and errors that carry it."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass
from html import escape
from math import inf
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Self

from honcho_fallback._values.errors import (
    ErrorStandIn,
    FallbackConfigError,
    FallbackError,
    can_be_pickled,
)
from honcho_fallback._values.failure import Failure, FailureKind, Reached
from honcho_fallback.redaction import plain

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

Outcome = Literal[
    "running", "success", "exhausted", "rejected", "cancelled", "interrupted", "abandoned"
]
# What forbade to ask more than was asked.
Limit = Literal["deadline", "retry_budget", "replay"]
# Whether a request is paid for.
Billed = Literal["no", "yes", "unknown"]


class OutcomeTexts(NamedTuple):
    """Say how calls of one outcome ended, and why other targets were never asked."""

    ending: str
    untried: str


OUTCOMES: dict[Outcome, OutcomeTexts] = {
    "running": OutcomeTexts("The call is still running.", "the call is still running"),
    "success": OutcomeTexts(
        "{role} {name} answered after {ms:.0f} ms.", "another target answered first"
    ),
    "exhausted": OutcomeTexts(
        "Nobody answered: every target that could be asked failed.", "max_attempts was reached"
    ),
    "rejected": OutcomeTexts(
        "Nobody answered: no other target could have helped with the last failure.",
        "the failure is not one that it could help with",
    ),
    "cancelled": OutcomeTexts("The caller cancelled the call.", "the call was cancelled"),
    "interrupted": OutcomeTexts(
        "The stream broke after content had been handed out, so nobody else was asked.",
        "content had already been handed out",
    ),
    "abandoned": OutcomeTexts(
        "The reader stopped before the stream had ended.", "the reader stopped"
    ),
}


@dataclass(frozen=True, slots=True)
class AttemptRecord:
    """Say what became of one request to one target.

    Args:
        target: The target's name.
        model: Its model.
        provider: Its provider, or None.
        number: 1-based in the call.
        position: 0-based in the chain.
        started: Seconds after the call's start.
        seconds: How long it took.
        wait: Seconds waited before it.
        kind: What went wrong, or None for an answer.
        status: HTTP status, or None.
        code: The provider's error code, or None.
        error: Class name of the exception, or None.
        retry_after: Seconds the provider asked to wait, or None.
        next_action: What a person should do about the failure, or None.
        note: What was particular about it, such as a probe after a cooldown, or None.
        usage: What it cost, also where its answer was not taken, or None where nobody said.
        is_probe: Whether it was the one that tried a target after its cooldown.
        is_forced: Whether its target was asked in its cooldown, as nobody else was left.
        reached: What became of the request, where it failed: ``"no"``, ``"refused"`` or
            ``"unknown"``.
        received: Characters of content that a stream had brought when it was cut, or None.
        transient: Whether the same target was thought to work soon, or None for an answer.
    """

    target: str
    model: str
    provider: str | None
    number: int
    position: int
    started: float
    seconds: float
    wait: float
    kind: FailureKind | None = None
    status: int | None = None
    code: str | None = None
    error: str | None = None
    retry_after: float | None = None
    next_action: str | None = None
    note: str | None = None
    usage: Mapping[str, Any] | None = None
    is_probe: bool = False
    reached: Reached | None = None
    received: int | None = None
    transient: bool | None = None
    is_forced: bool = False

    @property
    def is_fallback(self) -> bool:
        """Tell whether this was not the primary."""
        return self.position > 0

    @property
    def billed(self) -> Billed:
        """Tell whether the provider bills it: for an answer, and for what a cut stream brought."""
        if self.kind is None or self.usage or self.received:
            return "yes"
        return "no" if self.reached in {"no", "refused"} else "unknown"

    def result(self) -> str:
        """Say in a few words what came of it."""
        if self.kind is None:
            return "answered"
        facts = [str(fact) for fact in (self.status, self.error) if fact]
        return f"{self.kind.value} ({', '.join(facts)})" if facts else self.kind.value


class Cost(NamedTuple):
    """Bound what a call cost, in the currency of the prices.

    Args:
        lower: What it cost at least, as far as providers said and a reader received.
        upper: What it cost at most; infinite where nothing bounds it.
    """

    lower: float
    upper: float


_CHARACTERS_PER_TOKEN = 4  # OpenAI's rule of thumb for English
_PER_MILLION = 1_000_000


def _values_of(record: AttemptRecord | CallRecord) -> dict[str, Any]:
    """Return the fields; what the caller or the provider gave is copied, whatever its depth."""
    values = {name: getattr(record, name) for name in record.__slots__}
    for name in ("usage", "metadata", "cooling"):
        if values.get(name) is not None:
            values[name] = deepcopy(values[name])
    return values


@dataclass(frozen=True, slots=True)
class CallRecord:
    """Say what became of one logical call.

    Args:
        call_id: Unique for the call.
        agent: The label given to the policy or the call.
        chain: The targets' names in order; the first is the primary.
        attempts: What was asked, in order.
        outcome: How the call ended.
        answered_by: Name of the target that answered, or None.
        is_fallback: Whether another target than the primary answered.
        started_at: Start, in seconds since the epoch.
        seconds: How long the call took, waits included.
        usage: What the answer cost that was taken, or None where nobody said.
        time_to_first_token: Seconds from the start to the first content of a stream, or None.
        untried: Targets that were never asked, each with the reason.
        why: Why the call ended though more could have been asked, or None.
        metadata: What the caller said of the call, such as a workspace, or None.
        turn_id: Of the turn that the call was a part of, or None.
        limit: What forbade to ask more, or None: ``why`` in a word.
        cooling: The targets that a cooldown kept from being asked, with the seconds that were
            left of it, 0 where another call was probing them; or None.
    """

    call_id: str
    agent: str
    chain: tuple[str, ...]
    attempts: tuple[AttemptRecord, ...]
    outcome: Outcome
    answered_by: str | None
    is_fallback: bool
    started_at: float
    seconds: float
    usage: Mapping[str, Any] | None
    time_to_first_token: float | None
    untried: tuple[tuple[str, str], ...]
    why: str | None = None
    metadata: Mapping[str, Any] | None = None
    turn_id: str | None = None
    limit: Limit | None = None
    cooling: Mapping[str, float] | None = None

    @property
    def primary(self) -> str:
        """Name the chain's first target."""
        return self.chain[0]

    def to_dict(self) -> dict[str, Any]:
        """Return the record as plain values, ready for ``json.dumps``."""
        values = _values_of(self)
        values["chain"] = list(self.chain)
        values["attempts"] = [
            _values_of(one) | {"kind": one.kind and one.kind.value, "billed": one.billed}
            for one in self.attempts
        ]
        values["untried"] = [{"target": name, "why": why} for name, why in self.untried]
        return values

    def explain(self) -> str:
        """Tell in plain words who was asked, with which result, and who never was and why."""
        lines = [f"Call {plain(self.call_id)} of agent {plain(self.agent)}: {self._ending()}"]
        for attempt in self.attempts:
            before = f" after a wait of {attempt.wait:.2f} s" if attempt.wait else ""
            before += f" ({attempt.note})" if attempt.note else ""
            result = f"{attempt.result()} in {attempt.seconds * 1000:.0f} ms{_bill(attempt)}"
            lines.append(plain(f"  {attempt.number}. {attempt.target}{before}: {result}"))
            if attempt.next_action and self.answered_by is None:
                lines.append(plain(f"     What to do: {attempt.next_action}"))
        lines.extend(plain(f"  -. {name}: never asked, {why}") for name, why in self.untried)
        return "\n".join(lines)

    def cost(
        self, prices: Mapping[str, Sequence[float]], *, at_most: tuple[float, float] = (inf, inf)
    ) -> Cost:
        """Bound what all attempts of the call cost together.

        A request that never arrived or was refused costs nothing, and one with a usage what the
        usage says (``input_tokens``, ``output_tokens`` and ``cache_read_tokens``, as this package
        reads them). Of any other the lower bound is what a cut stream brought, at four characters
        per token, and the upper bound what you say that one request can use at most.

        Args:
            prices: For a million tokens by target or model, as ``(input, output)`` or ``(input,
                output, cached input)``, such as ``{"gpt-5.5": (1.25, 10.0)}``.
            at_most: The input and output tokens that bound one request, such as a prompt's length
                and its ``max_tokens``; without them nothing bounds an answer that was lost.

        Raises:
            FallbackConfigError: An attempt that may be billed has no price, or a price is none.
        """
        lower = upper = 0.0
        for attempt in self.attempts:
            if attempt.billed == "no":
                continue
            price, tokens = _price_of(attempt, prices), _tokens_of(attempt)
            least = most = tokens or _NO_TOKENS
            if tokens is None or attempt.received is not None:
                received = (attempt.received or 0) / _CHARACTERS_PER_TOKEN
                least = (least[0], max(least[1], received), least[2])
                entered = at_most[0] if tokens is None else tokens[0]
                most = (entered, max(least[1], at_most[1]), least[2])
            lower += _price_for(least, price)
            upper += _price_for(most, price)
        return Cost(lower, upper)

    def _ending(self) -> str:
        role = "the fallback" if self.is_fallback else "the primary"
        text = OUTCOMES[self.outcome].ending
        text = text.format(role=role, name=self.answered_by, ms=self.seconds * 1000)
        return plain(f"{text} It ended there because {self.why}." if self.why else text)

    def _repr_html_(self) -> str:
        return f'<pre dir="ltr">{escape(self.explain())}</pre>'


def _bill(attempt: AttemptRecord) -> str:
    if attempt.kind is None or attempt.billed == "no":
        return ""
    return ", billed" if attempt.billed == "yes" else ", perhaps billed"


_NO_TOKENS = (0.0, 0.0, 0.0)


def _tokens_of(attempt: AttemptRecord) -> tuple[float, ...] | None:
    """Count what a usage names: input, output, and what of the input was cached."""
    usage = attempt.usage or {}
    if not usage.keys() & {"input_tokens", "output_tokens"}:
        return None  # none, or in a form of its caller's own
    counts = (usage.get(name) for name in ("input_tokens", "output_tokens", "cache_read_tokens"))
    return tuple(float(count) if isinstance(count, int | float) else 0.0 for count in counts)


def _price_of(attempt: AttemptRecord, prices: Mapping[str, Any]) -> Sequence[float]:
    price: Any = prices.get(attempt.target, prices.get(attempt.model))
    if price is None:
        raise FallbackConfigError.unknown(attempt.target, prices, "price")
    try:
        figures = tuple(map(float, price))
    except (TypeError, ValueError):
        figures = tuple[float, ...]()
    if not 2 <= len(figures) <= 3 or not all(0 <= one < inf for one in figures):
        fix = "pass (input, output) or (input, output, cached input) for a million tokens"
        raise FallbackConfigError.about(f"prices[{attempt.target!r}]", f"got {price!r}", fix)
    return (*figures, figures[0])[:3]


def _price_for(tokens: Sequence[float], price: Sequence[float]) -> float:
    entered, written, cached = tokens
    parts = zip((max(0.0, entered - cached), written, cached), price, strict=True)
    return sum(count * each for count, each in parts if each) / _PER_MILLION


def nobody_answered(record: CallRecord) -> str:
    """Name who failed with what, and who was never asked and why."""
    kinds = {attempt.target: str(attempt.kind) for attempt in record.attempts}
    failed = ", ".join(f"{target} ({kind})" for target, kind in kinds.items())
    passed_over = [f"; {name} was never asked: {why}" for name, why in record.untried]
    return plain(f"no answer from {failed}{''.join(passed_over)}")


def unknown_outcome(record: CallRecord, key: str) -> str:
    """Say what nobody knows about a request, and what a person should do."""
    return (
        f"{record.why}; see there whether it had one before you send it again (its idempotency "
        f"key, where it was sent with one, is {key})"
    )


# What carries a record out of a call that has no answer.


def _picklable(errors: Sequence[Exception], record: CallRecord) -> list[Exception]:
    """Return errors that survive a pickle: where one does not, what stands for it."""
    attempts = [one for one in record.attempts if one.kind is not None]
    if len(attempts) != len(errors):  # some of them, as ``except*`` leaves: known by their names
        named = {one.error: one for one in attempts}
        attempts = [named.get(type(error).__name__, attempts[0]) for error in errors]
    pairs = zip(errors, attempts, strict=True)
    return [one if can_be_pickled(one) else _stand_in(one, attempt) for one, attempt in pairs]


def _stand_in(error: Exception, attempt: AttemptRecord) -> ErrorStandIn:
    """Return what an error meant, as its attempt's record says, without a word of its text."""
    name, kind, status = type(error).__name__, attempt.kind or FailureKind.LOCAL, attempt.status
    made = ErrorStandIn(f"{name} ({status or kind.value})")
    failure = Failure.of(
        kind, transient=attempt.transient, status=status, reached=attempt.reached, error=name
    )
    made.failure = failure._replace(code=attempt.code, retry_after=attempt.retry_after)
    made.status_code = status
    return made


class FallbackExhausted(FallbackError, ExceptionGroup[Exception]):  # noqa: N818 # the design's word
    """Carry every error of a call that nobody answered.

    The members are the providers' own exceptions, in the order they came; ``__cause__`` is the
    last of them; ``record`` says what was asked, when and with which result. So that a traceback
    can be read, each member keeps only the frame that raised it; its causes stay reachable.
    """

    def __new__(cls, message: str, exceptions: Sequence[Exception], record: CallRecord) -> Self:
        del record  # which __init__ keeps
        return super().__new__(cls, message, exceptions)

    def __init__(self, message: str, exceptions: Sequence[Exception], record: CallRecord) -> None:
        super().__init__(message, exceptions)
        self.args = (message,)  # they are shown where its members must not be
        self.record = record

    def __repr__(self) -> str:
        return f"FallbackExhausted({self.message!r})"

    @property
    def attempts(self) -> tuple[AttemptRecord, ...]:
        """List the attempts of the call."""
        return self.record.attempts

    def derive(self, excs: Sequence[Exception], /) -> FallbackExhausted:  # type: ignore[override] # the members stay of one type
        """Build the same error over other members, as ``except*`` does."""
        return FallbackExhausted(self.message, excs, self.record)

    def __reduce__(self) -> tuple[Any, ...]:
        errors = _picklable(self.exceptions, self.record)
        return FallbackExhausted, (self.message, errors, self.record)


class _Stopped(FallbackError):  # noqa: N818 # in line with the others
    """Stand above what ends a call that could have asked more."""

    def __init__(self, message: str, errors: Sequence[Exception], record: CallRecord) -> None:
        super().__init__(message)
        self.errors = tuple(errors)
        self.record = record

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (str(self), _picklable(self.errors, self.record), self.record)


class DeadlineExceeded(_Stopped, TimeoutError):  # noqa: N818 # the design's word
    """Tell that ``deadline`` ran out while more could have been asked.

    Args:
        message: What happened.
        errors: The providers' own exceptions, in the order they came.
        record: What was asked, when and with which result.
    """


class OutcomeUnknown(_Stopped):
    """Tell that a request may have had an effect, so that ``replay="safe"`` asks nobody again.

    Its arguments are those of DeadlineExceeded; the message says how to find out, too.
    """


class StreamInterrupted(FallbackError):  # noqa: N818 # the design's word
    """Tell that a stream broke after content had been handed out, so nobody else was asked.

    Args:
        message: What happened.
        partial: The chunks that were handed out, in order.
        record: What was asked, when and with which result.
    """

    def __init__(self, message: str, partial: tuple[Any, ...], record: CallRecord) -> None:
        super().__init__(message)
        self.partial = partial
        self.record = record

    def __reduce__(self) -> tuple[Any, ...]:
        partial = tuple(filter(can_be_pickled, self.partial))
        return StreamInterrupted, (str(self), partial, self.record)
