"""What a call's record and answer mean for a trace: who answered, why, how bad it is, its cost."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Self

from honcho_fallback import read_answer
from honcho_fallback_langfuse._content import is_mapping, is_sequence, label, plain_label
from honcho_fallback_langfuse._safe import attempted

if TYPE_CHECKING:
    from collections.abc import Mapping

    from honcho_fallback import Answer, AttemptRecord, CallRecord, Target
    from honcho_fallback_langfuse._observer import CallInFlight

Level = Literal["DEFAULT", "WARNING", "ERROR"]
Source = Literal["provider", "estimated", "none"]

# A trace of a call that was tried over and over says enough with so many.
_MOST_ATTEMPTS = 20

# Langfuse's own limit is 128 attributes per observation, from which 4.x drops the type first.
MOST_KEYS = 40

_LEVELS: dict[str, Level] = {
    "success": "DEFAULT",
    "cancelled": "WARNING",
    "abandoned": "WARNING",
}

# What says how a model was asked; headers, tools and user names are not among it. Of these the
# conventions for spans know a name.
REQUEST = {
    "temperature": "temperature",
    "top_p": "top_p",
    "top_k": "top_k",
    "max_tokens": "max_tokens",
    "max_completion_tokens": "max_tokens",
    "max_output_tokens": "max_tokens",
    "frequency_penalty": "frequency_penalty",
    "presence_penalty": "presence_penalty",
    "seed": "seed",
    "stop_sequences": "stop_sequences",
}
_PARAMETERS = REQUEST.keys() | {
    "logprobs",
    "max_tokens_to_sample",
    "n",
    "num_ctx",
    "num_predict",
    "parallel_tool_calls",
    "reasoning_effort",
    "repetition_penalty",
    "service_tier",
    "stop",
    "thinking_budget",
    "verbosity",
}
_LONGEST_PARAMETER = 200
_NUMBERS = frozenset({bool, float, int})

# The keys of Langfuse's own price table, others would cost nothing; what they are a part of.
_PARTS = (
    ("cache_read_tokens", "input_cached_tokens", "input"),
    ("cache_write_tokens", "input_cache_creation", "input"),
    ("reasoning_tokens", "output_reasoning_tokens", "output"),
)


class Usage(NamedTuple):
    """Hold what a call cost.

    Args:
        counts: As ``honcho_fallback.Answer`` has them.
        cost: US dollars, where the provider or LiteLLM says.
        source: Who says.
    """

    counts: Mapping[str, int]
    cost: float | None = None
    source: Source = "provider"

    def buckets(self) -> dict[str, int]:
        """Return the counts as Langfuse prices them: every token in exactly one bucket."""
        counts = self.counts
        buckets = {
            side: counts[f"{side}_tokens"]
            for side in ("input", "output")
            if f"{side}_tokens" in counts
        }
        for name, bucket, side in _PARTS:
            count = counts.get(name)
            if count:
                buckets[bucket] = count
                if side in buckets:
                    buckets[side] = max(0, buckets[side] - count)
        if buckets:
            buckets["total"] = max(counts.get("total_tokens", 0), sum(buckets.values()))
        return buckets


def read_usage(reported: Any, answer: Answer) -> Usage | None:
    """Return what a call cost, or None where nobody said."""
    usage = answer.usage
    # The core has read most answers before, with the same result.
    if reported is not None and reported != usage:
        counted = dict(reported) if is_mapping(reported) else {}
        report = read_answer({"usage": counted or reported})
        if report.usage is not None:
            source: Source = (
                "estimated" if counted.get("usage_source") == "estimated" else "provider"
            )
            return Usage(report.usage, report.cost or answer.cost, source)
    return None if usage is None else Usage(usage, answer.cost)


class EndedCall(NamedTuple):
    """Hold what is known of a call that has ended, read once for all fields.

    Args:
        call: What was heard of it.
        record: How it ended.
        answer: What its output says.
        usage: What it cost, or None where nobody said.
        target: The one that answered, else the one that was asked last.
    """

    call: CallInFlight
    record: CallRecord
    answer: Answer
    usage: Usage | None
    target: Target

    @classmethod
    def of(cls, call: CallInFlight, record: CallRecord) -> Self:
        """Read what a call and its record say."""
        answer = read_answer(call.output)
        usage = attempted(read_usage, "reading the usage", record.usage, answer)
        last = record.attempts[-1].position if record.attempts else 0
        return cls(call, record, answer, usage, call.start.chain[last])

    @property
    def source(self) -> Source:
        """Say who counted the tokens."""
        return self.usage.source if self.usage else "none"


def labels(values: Mapping[Any, Any] | None) -> dict[str, Any]:
    """Return metadata that the application gave; a hostile value costs its own entry only."""
    entries: dict[str, Any] = {}
    for key, value in (values or {}).items():
        entries |= attempted(plain_label, "an entry of the metadata", {key: value}) or {}
    return {name: value for name, value in entries.items() if value is not None}


def metadata(ended: EndedCall, extra: Mapping[str, Any]) -> dict[str, Any]:
    """Return the metadata of a call's generation; ``extra`` is the handler's own, as labels."""
    record, start, target = ended.record, ended.call.start, ended.target
    primary = start.chain[0]
    fields = {
        "is_fallback": record.is_fallback,
        "provider": _label(target.provider),
        "primary_provider": _label(primary.provider),
        "primary_model": label(primary.model),
        "fallback_provider": _label(target.provider) if record.is_fallback else None,
        "fallback_model": label(target.model) if record.is_fallback else None,
        "fallback_reason": fallback_reason(record),
        "attempts": [attempt_fields(attempt) for attempt in record.attempts[:_MOST_ATTEMPTS]],
        "attempt_count": len(record.attempts),
        "outcome": record.outcome,
        "usage_source": ended.source,
        "streaming": record.time_to_first_token is not None,
        "call_id": record.call_id,
    }
    entries = {name: value for name, value in fields.items() if value is not None}
    if not extra and not start.metadata:
        return entries
    # What is particular to the call comes first, where there is not room for everything.
    per_call = labels(start.metadata)
    more = {**per_call, **extra, **per_call}
    room = MOST_KEYS - len(entries)
    others = [(name, value) for name, value in more.items() if name not in entries][:room]
    return {**dict(others), **entries}


def fallback_reason(record: CallRecord) -> str | None:
    """Say why the primary was left, in the words of the log line; None where it was not."""
    if not record.attempts or not record.attempts[-1].is_fallback:
        return None
    of_primary = [attempt for attempt in record.attempts if not attempt.is_fallback]
    if of_primary:
        return attempt_reason(of_primary[-1])
    return _label(next((why for name, why in record.untried if name == record.primary), None))


def attempt_reason(attempt: AttemptRecord) -> str:
    """Say what went wrong in a few words: kind, class and status."""
    kind = attempt.kind.value if attempt.kind else None
    return label(" ".join(str(fact) for fact in (kind, attempt.error, attempt.status) if fact))


def attempt_fields(attempt: AttemptRecord) -> dict[str, Any]:
    """Return what is told of one attempt; without what is not known."""
    fields = {
        "provider": _label(attempt.provider),
        "model": label(attempt.model),
        "kind": attempt.kind.value if attempt.kind else None,
        "error": _label(attempt.error),
        "status": attempt.status,
        "milliseconds": round(attempt.seconds * 1000),
    }
    return {name: value for name, value in fields.items() if value is not None}


def level(record: CallRecord) -> Level:
    """Return WARNING where a fallback answered or the caller left, ERROR where nobody answered."""
    return "WARNING" if record.is_fallback else _LEVELS.get(record.outcome, "ERROR")


def status_message(record: CallRecord) -> str | None:
    """Say in a line what was out of the ordinary; names and codes, never a provider's text."""
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


def parameters(ended: EndedCall) -> dict[str, Any] | None:
    """Return how the model was asked: the target's own parameters and those of the call."""
    settings = {**ended.target.params, **ended.call.parameters}
    return {
        name: value if type(value) in _NUMBERS else plain_label(value)
        for name, value in settings.items()
        if name in _PARAMETERS and (type(value) in _NUMBERS or _is_short(value))
    } or None


def _is_short(value: Any) -> bool:
    if isinstance(value, str):
        return len(value) <= _LONGEST_PARAMETER
    if is_sequence(value):
        return len(value) <= _LONGEST_PARAMETER and all(isinstance(one, str) for one in value)
    return isinstance(value, bool | int | float)


def _label(value: str | None) -> str | None:
    return None if value is None else label(value)
