"""What a call leaves behind: frozen, without prompts, keys or text of a provider."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

    from honcho_fallback._values.failure import FailureKind

Outcome = Literal[
    "running", "success", "exhausted", "rejected", "cancelled", "interrupted", "abandoned"
]


# What forbade to ask more than was asked.
Limit = Literal["deadline", "retry_budget"]


class OutcomeTexts(NamedTuple):
    """What is said of calls that end in one way.

    Args:
        ending: How the call ended.
        untried: Why other targets were never asked.
    """

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


_JOINERS = "\u200c\u200d"  # invisible, but some scripts are misspelt without them


def plain(text: str) -> str:
    """Return a text on one line, without what could act on a terminal or turn its surroundings."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(
        letter
        if letter.isprintable() or letter in _JOINERS
        else " "
        if letter.isspace()
        else "\ufffd"
        for letter in text
    )


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

    @property
    def is_fallback(self) -> bool:
        """Tell whether this was not the primary."""
        return self.position > 0

    def result(self) -> str:
        """Say in a few words what came of it."""
        if self.kind is None:
            return "answered"
        facts = [str(fact) for fact in (self.status, self.error) if fact]
        return f"{self.kind.value} ({', '.join(facts)})" if facts else self.kind.value


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
            _values_of(attempt) | {"kind": attempt.kind and attempt.kind.value}
            for attempt in self.attempts
        ]
        values["untried"] = [{"target": name, "why": why} for name, why in self.untried]
        return values

    def explain(self) -> str:
        """Tell in plain words who was asked, with which result, and who never was and why."""
        lines = [f"Call {plain(self.call_id)} of agent {plain(self.agent)}: {self._ending()}"]
        for attempt in self.attempts:
            before = f" after a wait of {attempt.wait:.2f} s" if attempt.wait else ""
            before += f" ({attempt.note})" if attempt.note else ""
            result = f"{attempt.result()} in {attempt.seconds * 1000:.0f} ms"
            lines.append(plain(f"  {attempt.number}. {attempt.target}{before}: {result}"))
            if attempt.next_action and self.answered_by is None:
                lines.append(plain(f"     What to do: {attempt.next_action}"))
        lines.extend(plain(f"  -. {name}: never asked, {why}") for name, why in self.untried)
        return "\n".join(lines)

    def _ending(self) -> str:
        role = "the fallback" if self.is_fallback else "the primary"
        text = OUTCOMES[self.outcome].ending
        text = text.format(role=role, name=self.answered_by, ms=self.seconds * 1000)
        return plain(f"{text} It ended there because {self.why}." if self.why else text)

    def _repr_html_(self) -> str:
        return f'<pre dir="ltr">{escape(self.explain())}</pre>'


def nobody_answered(record: CallRecord) -> str:
    """Name who failed with what, and who was never asked and why."""
    kinds = {attempt.target: str(attempt.kind) for attempt in record.attempts}
    failed = ", ".join(f"{target} ({kind})" for target, kind in kinds.items())
    passed_over = [f"; {name} was never asked: {why}" for name, why in record.untried]
    return plain(f"no answer from {failed}{''.join(passed_over)}")
