"""What a call cost, as Langfuse adds it up and prices it: every token in exactly one bucket."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from honcho_fallback import read_answer
from honcho_fallback_langfuse._content import is_mapping

if TYPE_CHECKING:
    from collections.abc import Mapping

    from honcho_fallback import Answer

Source = Literal["provider", "estimated", "none"]

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
        """Return the counts as Langfuse prices them; what nobody said is left out."""
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
    counted = dict(reported) if is_mapping(reported) else {}
    report = read_answer({"usage": counted or reported})
    if report.usage is None:
        return None if answer.usage is None else Usage(answer.usage, answer.cost)
    source: Source = "estimated" if counted.get("usage_source") == "estimated" else "provider"
    return Usage(report.usage, report.cost or answer.cost, source)
