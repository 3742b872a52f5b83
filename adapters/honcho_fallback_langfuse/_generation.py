"""What a generation carries, each field by itself: a hostile value costs its field only."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

from honcho_fallback import read_answer
from honcho_fallback_langfuse import _facts
from honcho_fallback_langfuse._answer import shown
from honcho_fallback_langfuse._content import clean, is_sequence, plain
from honcho_fallback_langfuse._safe import attempted
from honcho_fallback_langfuse._usage import read_usage

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from honcho_fallback import Answer, CallRecord, Target
    from honcho_fallback_langfuse._in_flight import CallInFlight
    from honcho_fallback_langfuse._usage import Usage

_MASKED = "<not shown: the mask raised>"

# What says how a model was asked. Headers, tools and user names are not among it.
_PARAMETERS = frozenset(
    {
        "frequency_penalty",
        "logprobs",
        "max_completion_tokens",
        "max_output_tokens",
        "max_tokens",
        "max_tokens_to_sample",
        "n",
        "num_ctx",
        "num_predict",
        "parallel_tool_calls",
        "presence_penalty",
        "reasoning_effort",
        "repetition_penalty",
        "seed",
        "service_tier",
        "stop",
        "stop_sequences",
        "temperature",
        "thinking_budget",
        "top_k",
        "top_p",
        "verbosity",
    }
)
_LONGEST_PARAMETER = 200

# Endings that left no answer, where a count of nothing is the truth: without one Langfuse would
# tokenise the input and charge it.
_NOTHING_SAID = frozenset({"exhausted", "rejected", "cancelled", "abandoned"})


@dataclass(frozen=True, slots=True)
class Shown:
    """Say what of a call's content is shown.

    Args:
        input: Whether the question is.
        output: Whether the answer is.
        mask: Changes either before it is, or None.
        metadata: What the application adds.
    """

    input: bool = True
    output: bool = True
    mask: Callable[[Any], Any] | None = None
    metadata: dict[str, Any] = field(default_factory=dict[str, Any])

    def content(self, value: Any) -> Any:
        """Return content as it may be shown."""
        told = plain(value)
        if self.mask is None:
            return told
        try:
            return plain(self.mask(told))
        except Exception:  # noqa: BLE001 # what cannot be masked is not shown
            return _MASKED


class _Told(NamedTuple):
    held: CallInFlight
    record: CallRecord
    shown: Shown
    answer: Answer
    usage: Usage | None
    target: Target


def generation(held: CallInFlight, record: CallRecord, shown: Shown) -> dict[str, Any]:
    """Return the arguments for the SDK's ``update``."""
    answer = read_answer(held.output)
    usage = attempted(read_usage, "reading the usage", record.usage, answer)
    told = _Told(held, record, shown, answer, usage, _facts.named_target(held, record))
    fields = {name: attempted(make, name, told) for name, make in _FIELDS.items()}
    return {name: value for name, value in fields.items() if value is not None}


def _output(told: _Told) -> Any:
    return told.shown.content(shown(told.held.output, told.answer)) if told.shown.output else None


def _buckets(told: _Told) -> dict[str, int] | None:
    if told.usage is not None:
        return told.usage.buckets()
    if told.record.outcome in _NOTHING_SAID and told.held.output is None:
        return {"input": 0, "output": 0, "total": 0}
    return None


def _cost(told: _Told) -> dict[str, float] | None:
    return {"total": told.usage.cost} if told.usage and told.usage.cost else None


def _first_token(told: _Told) -> datetime | None:
    seconds = told.record.time_to_first_token
    if seconds is None:
        return None
    return datetime.fromtimestamp(told.record.started_at, UTC) + timedelta(seconds=seconds)


def _metadata(told: _Told) -> dict[str, Any]:
    source = told.usage.source if told.usage else "none"
    return _facts.metadata(told.held.start, told.record, told.target, source, told.shown.metadata)


_FIELDS: dict[str, Callable[[_Told], Any]] = {
    "model": lambda told: clean(told.target.model),
    "model_parameters": lambda told: parameters(told.held, told.target),
    "input": lambda told: told.shown.content(told.held.input) if told.shown.input else None,
    "output": _output,
    "usage_details": _buckets,
    "cost_details": _cost,
    "completion_start_time": _first_token,
    "metadata": _metadata,
    "level": lambda told: _facts.level(told.record),
    "status_message": lambda told: _facts.status_message(told.record),
}


def parameters(held: CallInFlight, target: Target) -> dict[str, Any] | None:
    """Return how the model was asked: the target's own parameters and those of the call."""
    given: Mapping[str, Any] = {**target.params, **held.parameters}
    return {
        name: value for name, value in given.items() if name in _PARAMETERS and _is_plain(value)
    } or None


def _is_plain(value: Any) -> bool:
    if isinstance(value, str):
        return len(value) <= _LONGEST_PARAMETER
    if is_sequence(value):
        return len(value) <= _LONGEST_PARAMETER and all(isinstance(one, str) for one in value)
    return isinstance(value, bool | int | float)
