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

# Outcomes without an answer. Their token counts are zero: without counts Langfuse would tokenise
# the input and charge it.
_WITHOUT_ANSWER = frozenset({"exhausted", "rejected", "cancelled", "abandoned"})


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
        plain_value = plain(value)
        if self.mask is None:
            return plain_value
        try:
            return plain(self.mask(plain_value))
        except Exception:  # noqa: BLE001 # what cannot be masked is not shown
            return _MASKED


class _Told(NamedTuple):
    call: CallInFlight
    record: CallRecord
    shown: Shown
    answer: Answer
    usage: Usage | None
    target: Target


def generation(call: CallInFlight, record: CallRecord, shown: Shown) -> dict[str, Any]:
    """Return the arguments for the SDK's ``update``."""
    answer = read_answer(call.output)
    usage = attempted(read_usage, "reading the usage", record.usage, answer)
    details = _Told(call, record, shown, answer, usage, _facts.named_target(call, record))
    fields = {name: attempted(make, name, details) for name, make in _FIELDS.items()}
    return {name: value for name, value in fields.items() if value is not None}


def _output(details: _Told) -> Any:
    return (
        details.shown.content(shown(details.call.output, details.answer))
        if details.shown.output
        else None
    )


def _buckets(details: _Told) -> dict[str, int] | None:
    if details.usage is not None:
        return details.usage.buckets()
    if details.record.outcome in _WITHOUT_ANSWER and details.call.output is None:
        return {"input": 0, "output": 0, "total": 0}
    return None


def _cost(details: _Told) -> dict[str, float] | None:
    return {"total": details.usage.cost} if details.usage and details.usage.cost else None


def _first_token(details: _Told) -> datetime | None:
    seconds = details.record.time_to_first_token
    if seconds is None:
        return None
    return datetime.fromtimestamp(details.record.started_at, UTC) + timedelta(seconds=seconds)


def _metadata(details: _Told) -> dict[str, Any]:
    source = details.usage.source if details.usage else "none"
    return _facts.metadata(
        details.call.start, details.record, details.target, source, details.shown.metadata
    )


_FIELDS: dict[str, Callable[[_Told], Any]] = {
    "model": lambda details: clean(details.target.model),
    "model_parameters": lambda details: parameters(details.call, details.target),
    "input": lambda details: (
        details.shown.content(details.call.input) if details.shown.input else None
    ),
    "output": _output,
    "usage_details": _buckets,
    "cost_details": _cost,
    "completion_start_time": _first_token,
    "metadata": _metadata,
    "level": lambda details: _facts.level(details.record),
    "status_message": lambda details: _facts.status_message(details.record),
}


def parameters(call: CallInFlight, target: Target) -> dict[str, Any] | None:
    """Return how the model was asked: the target's own parameters and those of the call."""
    settings: Mapping[str, Any] = {**target.params, **call.parameters}
    return {
        name: value for name, value in settings.items() if name in _PARAMETERS and _is_plain(value)
    } or None


def _is_plain(value: Any) -> bool:
    if isinstance(value, str):
        return len(value) <= _LONGEST_PARAMETER
    if is_sequence(value):
        return len(value) <= _LONGEST_PARAMETER and all(isinstance(one, str) for one in value)
    return isinstance(value, bool | int | float)
