"""What a generation carries, each field by itself: a hostile value costs its field only."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from honcho_fallback_langfuse import _facts
from honcho_fallback_langfuse._answer import answer
from honcho_fallback_langfuse._content import clean, plain
from honcho_fallback_langfuse._safe import attempted
from honcho_fallback_langfuse._shape import is_sequence
from honcho_fallback_langfuse._usage import Usage, read_usage

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from honcho_fallback import CallRecord
    from honcho_fallback_langfuse._in_flight import CallInFlight

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
        "stream",
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
        """Return content as it may be shown.

        Args:
            value: What was asked or answered.
        """
        told = plain(value)
        if self.mask is None:
            return told
        try:
            return plain(self.mask(told))
        except Exception:  # noqa: BLE001 # what cannot be masked is not shown
            return _MASKED


def generation(held: CallInFlight, record: CallRecord, shown: Shown) -> dict[str, Any]:
    """Return the arguments for the SDK's ``update``.

    Args:
        held: The call, and what was told of it.
        record: How it ended.
        shown: What of it is shown.
    """
    usage = attempted(lambda: read_usage(record.usage, held.output), "reading the usage")
    source = usage.source if usage else "none"
    makers: dict[str, Callable[[], Any]] = {
        "model": lambda: clean(_facts.named_target(held, record).model),
        "model_parameters": lambda: parameters(held, record),
        "input": lambda: shown.content(held.input) if shown.input else None,
        "output": lambda: shown.content(answer(held.output)) if shown.output else None,
        "usage_details": lambda: _buckets(usage, held, record),
        "cost_details": lambda: {"total": usage.cost} if usage and usage.cost else None,
        "completion_start_time": lambda: _first_token(record),
        "metadata": lambda: _facts.metadata(held, record, source, shown.metadata),
        "level": lambda: _facts.level(record),
        "status_message": lambda: _facts.status_message(record),
    }
    fields = {name: attempted(make, f"the field {name}") for name, make in makers.items()}
    return {name: value for name, value in fields.items() if value is not None}


def parameters(held: CallInFlight, record: CallRecord) -> dict[str, Any] | None:
    """Return how the model was asked: the target's own parameters and those of the call.

    Args:
        held: The call.
        record: How it ended.
    """
    given: Mapping[str, Any] = {**_facts.named_target(held, record).params, **held.parameters}
    told = {name: value for name, value in given.items() if name in _PARAMETERS}
    return {name: value for name, value in told.items() if _is_plain(value)} or None


def _is_plain(value: Any) -> bool:
    if isinstance(value, str):
        return len(value) <= _LONGEST_PARAMETER
    if is_sequence(value):
        return len(value) <= _LONGEST_PARAMETER and all(isinstance(one, str) for one in value)
    return isinstance(value, bool | int | float)


def _buckets(usage: Usage | None, held: CallInFlight, record: CallRecord) -> dict[str, int] | None:
    if usage is not None:
        return usage.buckets()
    if record.outcome in _NOTHING_SAID and held.output is None:
        return {"input": 0, "output": 0, "total": 0}
    return None


def _first_token(record: CallRecord) -> datetime | None:
    if record.time_to_first_token is None:
        return None
    started = datetime.fromtimestamp(record.started_at, UTC)
    return started + timedelta(seconds=record.time_to_first_token)
