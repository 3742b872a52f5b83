"""Spans of calls: what all observers share that trace, whichever framework takes their spans.

A span opens when its call begins and ends with it; the calls of a turn lie under a span of the
turn. What a call meant (who answered, why not the primary, what it cost) is read here, once, so
that each framework shows the same.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, ParamSpec, Self, TypeVar, cast

from honcho_fallback import FallbackObserver, read_answer
from honcho_fallback.redaction import label

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from honcho_fallback import (
        Answer,
        AttemptRecord,
        CallContent,
        CallRecord,
        CallStart,
        Target,
        TurnEnd,
    )

__all__ = [
    "MOST_METADATA",
    "EndedCall",
    "SpanObserver",
    "attempt_fields",
    "attempt_reason",
    "attempted",
    "shown",
]

logger = logging.getLogger("honcho_fallback.spans")

P = ParamSpec("P")
T = TypeVar("T")

# Entries of a call's metadata: a framework's limit, mostly 128 attributes, is for the rest, too.
MOST_METADATA = 40

# A trace of a call that was tried over and over says enough with so many.
_MOST_ATTEMPTS = 20

# What says how a model was asked; headers, tools and user names are not among it.
_SETTINGS = frozenset((
    "frequency_penalty", "logprobs", "max_completion_tokens", "max_output_tokens",
    "max_tokens", "max_tokens_to_sample", "n", "num_ctx", "num_predict", "parallel_tool_calls",
    "presence_penalty", "reasoning_effort", "repetition_penalty", "seed", "service_tier",
    "stop", "stop_sequences", "temperature", "thinking_budget", "top_k", "top_p", "verbosity",
))  # fmt: skip
# An SDK's own sign for what is not given is none of these.
_PLAIN = (bool, int, float, str, list, tuple)


def attempted(do: Callable[P, T], what: str, *args: P.args, **kwargs: P.kwargs) -> T | None:
    """Return what a callable returns, or None where it raises: a value costs itself, no more.

    Args:
        do: Reads a value that somebody else made.
        what: Names it in the log.
        args: For the callable.
        kwargs: For the callable.
    """
    try:
        return do(*args, **kwargs)
    except Exception as error:  # noqa: BLE001 # hostile values must cost their field, not the call
        # No traceback: its frames could show what a call carries.
        logger.debug("%s raised %s", what, type(error).__name__)
        return None


def shown(value: Any) -> Any:
    """Return a value as a trace may carry it: plain, its addresses without credentials.

    Args:
        value: Metadata or a setting; prompts and answers are the user's and stay what they are.
    """
    if isinstance(value, str):
        # One lone surrogate would cost all that is exported with it.
        return label(value.encode("utf-8", "replace").decode())
    if isinstance(value, bool | float | None):
        return value
    if isinstance(value, int):
        # The wire's are of 64 bits.
        return int(value) if -(2**63) <= value < 2**63 else str(value)
    if isinstance(value, Mapping):
        entries = cast("Mapping[object, object]", value)
        return {shown(str(key)): shown(one) for key, one in entries.items()}
    if isinstance(value, list | tuple | AbstractSet):
        return [shown(one) for one in cast("Iterable[object]", value)]
    return shown(str(value))


def attempt_fields(attempt: AttemptRecord) -> dict[str, Any]:
    """Return what is told of one attempt; without what is not known."""
    fields = {
        "provider": attempt.provider and label(attempt.provider),
        "model": label(attempt.model),
        "kind": attempt.kind and attempt.kind.value,
        "error": attempt.error and label(attempt.error),
        "status": attempt.status,
        "milliseconds": round(attempt.seconds * 1000),
        "reached": attempt.reached,
        "billed": attempt.billed,
    }
    return {name: value for name, value in fields.items() if value is not None}


def attempt_reason(attempt: AttemptRecord) -> str:
    """Say what went wrong in a few words: kind, class and status."""
    kind = attempt.kind and attempt.kind.value
    return label(" ".join(str(fact) for fact in (kind, attempt.error, attempt.status) if fact))


@dataclass(slots=True, eq=False)
class _OpenCall:
    """Collect what is heard of a call while its span is open."""

    start: CallStart
    span: Any
    input: Any = None
    output: Any = None
    parameters: dict[str, Any] = field(default_factory=dict[str, Any])


class EndedCall(NamedTuple):
    """Hold what is known of a call that has ended.

    Args:
        start: How it began.
        record: How it ended.
        input: What was asked, or None.
        output: What came back, as the provider sent it, or None.
        parameters: How the caller asked.
        target: The one that answered, else the one that was asked last.
        answer: What the output says.
        usage: Token counts, as ``Answer`` has them, or None where nobody counted.
        cost: US dollars, where the provider or LiteLLM says.
    """

    start: CallStart
    record: CallRecord
    input: Any
    output: Any
    parameters: Mapping[str, Any]
    target: Target
    answer: Answer
    usage: Mapping[str, int] | None
    cost: float | None

    @classmethod
    def of(cls, call: _OpenCall, record: CallRecord) -> Self:
        """Read what a call and its record say."""
        answer = read_answer(call.output)
        # Whoever reports a usage knows best, in whatever form it is.
        report = read_answer({"usage": record.usage}) if record.usage else answer
        spent = report.usage or answer.usage, report.cost or answer.cost
        target = call.start.chain[record.attempts[-1].position if record.attempts else 0]
        content = call.input, call.output, call.parameters
        return cls(call.start, record, *content, target, answer, *spent)

    @property
    def metadata(self) -> dict[str, Any]:
        """What the application says of the call, as far as there is room."""
        entries = [*(self.start.metadata or {}).items()][:MOST_METADATA]
        return {name: value for name, value in shown(dict(entries)).items() if value is not None}

    @property
    def settings(self) -> dict[str, Any]:
        """How the model was asked: the target's own parameters and those of the call."""
        settings = {**self.target.params, **self.parameters}
        plain = {
            name: attempted(shown, name, value)
            for name, value in settings.items()
            if name in _SETTINGS and isinstance(value, _PLAIN)
        }
        return {name: value for name, value in plain.items() if value is not None}

    @property
    def attempts(self) -> list[dict[str, Any]]:
        """The first of its attempts, as fields."""
        return [attempt_fields(one) for one in self.record.attempts[:_MOST_ATTEMPTS]]

    @property
    def fallback_reason(self) -> str | None:
        """Why the primary was left, in the words of the log line; None where it was not."""
        record = self.record
        if not record.attempts or not record.attempts[-1].is_fallback:
            return None
        of_primary = [attempt for attempt in record.attempts if not attempt.is_fallback]
        if of_primary:
            return attempt_reason(of_primary[-1])
        return next((label(why) for name, why in record.untried if name == record.primary), None)

    @property
    def status_message(self) -> str | None:
        """What was out of the ordinary; names and codes, never a provider's text."""
        record = self.record
        answered = record.outcome == "success"
        if answered and not record.is_fallback:
            return None
        failed = [
            f"{label(attempt.target)}: {attempt_reason(attempt)}"
            for attempt in record.attempts[:_MOST_ATTEMPTS]
            if attempt.kind is not None
        ]
        end = f"{label(record.answered_by or '')} answered" if answered else record.outcome
        return "; ".join([*failed, end])


class SpanObserver(FallbackObserver, ABC):
    """Observe calls and turns, and keep one span for each.

    The calls of a turn lie under the turn's span, which opens with the first of them.

    Args:
        keep_input: Whether what was asked is of interest.
    """

    # Calls and turns that began and never ended (a run that was dropped) must not pile up.
    _most = 4096

    def __init__(self, *, keep_input: bool) -> None:
        self._keep_input = keep_input
        # By id, the oldest first. Each step is one operation on a dictionary, which the
        # interpreter does not interrupt, so calls may start and end in any thread.
        self._calls: OrderedDict[str, _OpenCall] = OrderedDict()
        self._turns: OrderedDict[str, Any] = OrderedDict()  # spans

    def on_start(self, call: CallStart, /) -> None:
        """Open the span of a call."""
        span = self._open(call, self._turn_span(call))
        if span is None:
            return
        self._calls[call.call_id] = _OpenCall(call, span)
        # A span that is forgotten is never exported: nobody knows how it went on.
        if len(self._calls) > self._most:
            with suppress(KeyError):  # other threads took them all
                self._calls.popitem(last=False)

    def on_content(self, content: CallContent, /) -> None:
        """Keep what was asked or answered; the latest counts."""
        call = self._calls.get(content.call_id)
        if call is None:
            return
        if content.input is not None and self._keep_input:
            call.input = content.input
        call.output = call.output if content.output is None else content.output
        call.parameters.update(content.parameters or {})

    def on_finish(self, record: CallRecord, /) -> None:
        """Fill and end the span of a call."""
        call = self._calls.pop(record.call_id, None)
        if call is None:
            return
        try:
            self._fill(call.span, EndedCall.of(call, record))
        finally:
            call.span.end()

    def on_turn_end(self, turn: TurnEnd, /) -> None:
        """Fill and end the span of a turn."""
        span = self._turns.pop(turn.turn_id, None)
        if span is None:
            return
        try:
            self._fill_turn(span, turn)
        finally:
            span.end()

    def _turn_span(self, call: CallStart) -> Any:
        if call.turn_id is None:
            return None
        span = self._turns.get(call.turn_id)
        if span is None and (opened := self._open_turn(call)) is not None:
            # Of two calls that begin a turn at once one is first; the other's span never ends, so
            # it is never exported.
            span = self._turns.setdefault(call.turn_id, opened)
            self._end_turns(but=self._most)
        return span

    def _end_turns(self, *, but: int = 0) -> None:
        """End the spans of the oldest turns: what lies under them has been exported."""
        while len(self._turns) > but:
            with suppress(KeyError):  # it ended meanwhile
                self._turns.popitem(last=False)[1].end()

    @abstractmethod
    def _open(self, call: CallStart, turn: Any) -> Any:
        """Open a call's span now, under its turn's, or return None where nobody would see it."""

    @abstractmethod
    def _open_turn(self, call: CallStart) -> Any:
        """Open the span of a turn that begins with a call, or return None as above."""

    @abstractmethod
    def _fill_turn(self, span: Any, turn: TurnEnd) -> None:
        """Write into a turn's span how the turn ended."""

    @abstractmethod
    def _fill(self, span: Any, ended: EndedCall) -> None:
        """Write into a span what is known of its call."""
