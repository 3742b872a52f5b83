"""One generation of the Langfuse SDK: how it is opened, and what it carries."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Literal, cast

from honcho_fallback.redaction import label
from honcho_fallback.spans import MOST_METADATA, attempt_fields, attempt_reason

if TYPE_CHECKING:
    from langfuse import Langfuse
    from opentelemetry.trace import Span

    from honcho_fallback import CallRecord, CallStart
    from honcho_fallback.spans import EndedCall

Level = Literal["DEFAULT", "WARNING", "ERROR"]

# A call without a label of its own; the policy's default label says nothing.
_UNNAMED, _NAME = "unknown", "LLM Call"

SCOPE = "langfuse-sdk"
TRACE_NAME = "langfuse.trace.name"

# Larger texts cost milliseconds each and are read by nobody.
_MOST_CHARACTERS = 1_000_000

# LangChain names who speaks otherwise than everybody else.
_ROLES = {"human": "user", "ai": "assistant", "AIMessageChunk": "assistant"}

_LEVELS: dict[str, Level] = {"success": "DEFAULT", "cancelled": "WARNING", "abandoned": "WARNING"}

# Outcomes without an answer. Their token counts are zero: without counts Langfuse would tokenise
# the input and charge it.
_WITHOUT_ANSWER = frozenset({"exhausted", "rejected", "cancelled", "abandoned"})

# The keys of Langfuse's own price table, others would cost nothing; what they are a part of.
_PARTS = (
    ("cache_read_tokens", "input_cached_tokens", "input"),
    ("cache_write_tokens", "input_cache_creation", "input"),
    ("reasoning_tokens", "output_reasoning_tokens", "output"),
)


def open_observation(
    client: Langfuse | None, call: CallStart, kind: Literal["agent", "generation"], parent: Any
) -> Any:
    """Open a call's generation or its turn's observation, under a parent or the current span."""
    if client is None:
        return None
    # Imported here, where there is a client, it is a look into sys.modules.
    from opentelemetry import trace  # noqa: PLC0415 # see above

    name = _NAME if call.agent == _UNNAMED else label(call.agent)
    if parent is not None:  # whether it is sampled holds for what lies under it, too
        return parent.start_observation(name=name, as_type=kind)
    if not _is_foreign(trace.get_current_span()):
        # A root gives its trace its name; elsewhere in Langfuse's traces they have one.
        return client.start_observation(name=name, as_type=kind)
    opening = client.start_as_current_observation(name=name, as_type=kind, end_on_exit=False)
    # Entered and left in this frame: a span that stays current in a generator or a task would
    # adopt whatever the consumer does meanwhile.
    with opening as observation:
        span = trace.get_current_span()
        # The SDK has stamped here what the application propagated.
        attributes: Mapping[str, Any] = getattr(span, "attributes", None) or {}
        if TRACE_NAME not in attributes:
            span.set_attribute(TRACE_NAME, name)
    return observation


def _is_foreign(enclosing: Span) -> bool:
    # Langfuse never gets to see a web server's span, so it cannot name the trace.
    scope: Any = getattr(enclosing, "instrumentation_scope", None)
    return enclosing.get_span_context().is_valid and getattr(scope, "name", None) != SCOPE


def generation_fields(ended: EndedCall, metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the SDK's ``update`` takes beside content; the handler's own metadata last."""
    record = ended.record
    fields = {
        "model": label(ended.target.model),
        "model_parameters": ended.settings or None,
        "usage_details": _buckets(ended),
        "cost_details": {"total": ended.cost} if ended.cost else None,
        "completion_start_time": _first_token(record),
        "metadata": _metadata(ended, metadata),
        "level": "WARNING" if record.is_fallback else _LEVELS.get(record.outcome, "ERROR"),
        "status_message": ended.status_message,
    }
    return {name: value for name, value in fields.items() if value is not None}


def _buckets(ended: EndedCall) -> dict[str, int] | None:
    """Return the token counts as Langfuse prices them: every token in exactly one bucket."""
    counts = ended.usage
    if counts is None:
        is_free = ended.record.outcome in _WITHOUT_ANSWER and ended.output is None
        return {"input": 0, "output": 0, "total": 0} if is_free else None
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


def _first_token(record: CallRecord) -> datetime | None:
    seconds = record.time_to_first_token
    if seconds is None:
        return None
    return datetime.fromtimestamp(record.started_at, UTC) + timedelta(seconds=seconds)


def _metadata(ended: EndedCall, extra: Mapping[str, Any]) -> dict[str, Any]:
    """Return who answered and why; ``extra`` is the handler's own."""
    record, target, primary = ended.record, ended.target, ended.start.chain[0]
    provider, model = target.provider and label(target.provider), label(target.model)
    fields = {
        "is_fallback": record.is_fallback,
        "provider": provider,
        "primary_provider": primary.provider and label(primary.provider),
        "primary_model": label(primary.model),
        "fallback_provider": provider if record.is_fallback else None,
        "fallback_model": model if record.is_fallback else None,
        "fallback_reason": ended.fallback_reason,
        "attempts": ended.attempts,
        "attempt_count": len(record.attempts),
        "outcome": record.outcome,
        "usage_source": "none" if ended.usage is None else "provider",
        "streaming": record.time_to_first_token is not None,
        "call_id": record.call_id,
    }
    facts = {name: value for name, value in fields.items() if value is not None}
    # What is particular to the call comes first, where there is not room for everything.
    own = ended.metadata
    more = own | {name: one for name, one in extra.items() if name not in own}
    others = [(name, one) for name, one in more.items() if name not in facts]
    return dict(others[: MOST_METADATA - len(facts)]) | facts


def add_attempts(observation: Any, record: CallRecord) -> None:
    """Make a child event of each attempt."""
    for attempt in record.attempts:
        observation.create_event(
            name=f"attempt {label(attempt.target)}",
            level="DEFAULT" if attempt.kind is None else "WARNING",
            status_message=None if attempt.kind is None else attempt_reason(attempt),
            metadata={
                **attempt_fields(attempt),
                "number": attempt.number,
                "is_fallback": attempt.is_fallback,
                "started_milliseconds": round(attempt.started * 1000),
                "waited_milliseconds": round(attempt.wait * 1000),
            },
        )


# What was asked and answered, as everybody writes it: dicts, lists and texts. It is the user's: it
# keeps its addresses, for a trace that rewrites a prompt lies about it, and a mask is there for
# whoever wants that.


def plain(value: Any) -> Any:
    """Return content as dicts, lists and scalars, each text cut where it is too long."""
    if isinstance(value, str):
        more = len(value) - _MOST_CHARACTERS
        # Inline media is cut out and uploaded by the SDK; half of it would be neither.
        if more > 0 and not value.startswith("data:"):
            value = f"{value[:_MOST_CHARACTERS]}... ({more} characters more)"
        # One lone surrogate, as of a stream that splits an emoji, would cost the whole export.
        return value if value.isascii() else value.encode("utf-8", "replace").decode()
    if isinstance(value, Mapping):
        entries = cast("Mapping[object, object]", value)
        return {str(key): plain(one) for key, one in entries.items()}
    if isinstance(value, list | tuple):
        return [plain(one) for one in cast("list[object]", value)]
    message = _message(value)
    if message is not None:
        return plain(message)
    dump = getattr(value, "model_dump", None)  # the SDKs' objects
    # What is left the SDK's serializer knows: texts, numbers, dates, dataclasses and the like.
    return plain(dump(exclude_none=True, warnings=False)) if callable(dump) else value


def _message(value: Any) -> dict[str, Any] | None:
    """Return LangChain's message as everybody else writes it, or None for anything else."""
    kind, content = getattr(value, "type", None), getattr(value, "content", None)
    more = getattr(value, "additional_kwargs", None)
    if not isinstance(kind, str) or content is None or not isinstance(more, dict):
        return None
    message: dict[str, Any] = {"role": _ROLES.get(kind, kind), "content": content}
    for name in ("tool_calls", "tool_call_id", "name"):
        detail = getattr(value, name, None)
        if detail:
            message[name] = detail
    return message


def answer_of(ended: EndedCall) -> Any:
    """Return a text of a text, a message of a message; else the output itself."""
    output, content = ended.output, ended.answer.content
    if content is None or isinstance(output, list):  # an answer of its own kind, no stream
        return cast("object", output)
    pieces = cast("tuple[object, ...]", output if isinstance(output, tuple) else (output,))
    if not isinstance(content, str) or all(isinstance(piece, str) for piece in pieces):
        return content
    return {"role": "assistant", "content": content}
