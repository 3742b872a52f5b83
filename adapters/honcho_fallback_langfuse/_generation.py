"""One generation of the Langfuse SDK: how it is opened, and what it carries."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from honcho_fallback_langfuse import _record_fields as record_fields
from honcho_fallback_langfuse._content import is_sequence, label, plain
from honcho_fallback_langfuse._safe import fields_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from langfuse import Langfuse
    from opentelemetry.context import Context
    from opentelemetry.trace import Span

    from honcho_fallback import Answer, CallRecord, CallStart
    from honcho_fallback_langfuse._record_fields import EndedCall

# A call without a label of its own; the policy's default label says nothing.
_UNNAMED, _NAME = "unknown", "LLM Call"

_SCOPE = "langfuse-sdk"
_TRACE_NAME = "langfuse.trace.name"

_MASKED = "<not shown: the mask raised>"

# Outcomes without an answer. Their token counts are zero: without counts Langfuse would tokenise
# the input and charge it.
_WITHOUT_ANSWER = frozenset({"exhausted", "rejected", "cancelled", "abandoned"})


class Parent(NamedTuple):
    """Name an observation.

    Args:
        trace_id: 32 hexadecimal digits.
        span_id: 16 hexadecimal digits.
    """

    trace_id: str
    span_id: str


def open_observation(
    client: Langfuse, call: CallStart, kind: Literal["agent", "generation"], parent: Parent | None
) -> Any:
    """Open a call's generation, or the observation of its turn; None where it is not sampled.

    Args:
        client: The client.
        call: The call.
        kind: What is opened.
        parent: What it is nested under; None for the current span.
    """
    # Imported here, where there is a client, it is a look into sys.modules.
    from opentelemetry import context, trace  # noqa: PLC0415 # see above

    name = _NAME if call.agent == _UNNAMED else label(call.agent)
    if parent is None:
        return _opened(client, name, kind, trace.get_current_span())
    token = context.attach(_context_of(parent))
    try:
        return _opened(client, name, kind, None)
    finally:
        context.detach(token)


def _opened(
    client: Langfuse, name: str, kind: Literal["agent", "generation"], enclosing: Span | None
) -> Any:
    if not _is_foreign(enclosing):
        # A root gives its trace its name; elsewhere in Langfuse's traces they have one.
        observation = client.start_observation(name=name, as_type=kind)
        span = getattr(observation, "_otel_span", None)
        return observation if span is None or span.is_recording() else None
    from opentelemetry import trace  # noqa: PLC0415 # comes with langfuse

    opening = client.start_as_current_observation(name=name, as_type=kind, end_on_exit=False)
    # Entered and left in this frame: a span that stays current in a generator or a task would
    # adopt whatever the consumer does meanwhile.
    with opening as observation:
        span = trace.get_current_span()
        if not span.is_recording():
            return None
        # The SDK has stamped here what the application propagated.
        attributes: Any = getattr(span, "attributes", None) or {}
        if _TRACE_NAME not in attributes:
            span.set_attribute(_TRACE_NAME, name)
    return observation


def _is_foreign(enclosing: Span | None) -> bool:
    # Langfuse never gets to see a web server's span, so it cannot name the trace.
    if enclosing is None or not enclosing.get_span_context().is_valid:
        return False
    scope: Any = getattr(enclosing, "instrumentation_scope", None)
    return getattr(scope, "name", None) != _SCOPE


def _context_of(parent: Parent) -> Context:
    from opentelemetry import trace  # noqa: PLC0415 # comes with langfuse

    span_context = trace.SpanContext(
        int(parent.trace_id, 16),
        int(parent.span_id, 16),
        is_remote=False,
        trace_flags=trace.TraceFlags(trace.TraceFlags.SAMPLED),
    )
    return trace.set_span_in_context(trace.NonRecordingSpan(span_context))


@dataclass(frozen=True, slots=True)
class Visibility:
    """Say what of a call is shown.

    Args:
        output: Whether the answer is.
        mask: Changes either before it is, or None.
        metadata: What the application adds to every call's.
    """

    output: bool
    mask: Callable[[Any], Any] | None
    metadata: dict[str, Any]

    def content(self, value: Any) -> Any:
        """Return content as it may be shown."""
        plain_value = plain(value)
        if self.mask is None:
            return plain_value
        try:
            return plain(self.mask(plain_value))
        except Exception:  # noqa: BLE001 # what cannot be masked is not shown
            return _MASKED


def generation_fields(ended: EndedCall, visibility: Visibility) -> dict[str, Any]:
    """Return the arguments for the SDK's ``update``; a hostile value costs its field only."""
    return fields_of(_FIELDS, ended, visibility)


def shown_output(output: Any, answer: Answer) -> Any:
    """Return a text of a text, a message of a message; else the output itself."""
    pieces = output if is_sequence(output) else (output,)
    # A list is an answer of its own kind, no stream.
    if answer.content is None or isinstance(pieces, list):
        return [*pieces] if is_sequence(output) else output
    if not isinstance(answer.content, str) or all(isinstance(piece, str) for piece in pieces):
        return answer.content
    return {"role": "assistant", "content": answer.content}


def _output(ended: EndedCall, visibility: Visibility) -> Any:
    shown = visibility.output and ended.call.output is not None
    return visibility.content(shown_output(ended.call.output, ended.answer)) if shown else None


def _buckets(ended: EndedCall, _: Visibility) -> dict[str, int] | None:
    if ended.usage is not None:
        return ended.usage.buckets()
    if ended.record.outcome in _WITHOUT_ANSWER and ended.call.output is None:
        return {"input": 0, "output": 0, "total": 0}
    return None


def _cost(ended: EndedCall, _: Visibility) -> dict[str, float] | None:
    return {"total": ended.usage.cost} if ended.usage and ended.usage.cost else None


def _first_token(ended: EndedCall, _: Visibility) -> datetime | None:
    seconds = ended.record.time_to_first_token
    if seconds is None:
        return None
    return datetime.fromtimestamp(ended.record.started_at, UTC) + timedelta(seconds=seconds)


_FIELDS: dict[str, Callable[[EndedCall, Visibility], Any]] = {
    "model": lambda ended, _: label(ended.target.model),
    "model_parameters": lambda ended, _: record_fields.parameters(ended),
    "input": lambda ended, visibility: (
        visibility.content(ended.call.input) if ended.call.input is not None else None
    ),
    "output": _output,
    "usage_details": _buckets,
    "cost_details": _cost,
    "completion_start_time": _first_token,
    "metadata": lambda ended, visibility: record_fields.metadata(ended, visibility.metadata),
    "level": lambda ended, _: record_fields.level(ended.record),
    "status_message": lambda ended, _: record_fields.status_message(ended.record),
}


def tell_attempts(observation: Any, record: CallRecord) -> None:
    """Make a child event of each attempt."""
    for attempt in record.attempts:
        failed = attempt.kind is not None
        observation.create_event(
            name=f"attempt {label(attempt.target)}",
            level="WARNING" if failed else "DEFAULT",
            status_message=record_fields.attempt_reason(attempt) if failed else None,
            metadata={
                **record_fields.attempt_fields(attempt),
                "number": attempt.number,
                "is_fallback": attempt.is_fallback,
                "started_milliseconds": round(attempt.started * 1000),
                "waited_milliseconds": round(attempt.wait * 1000),
            },
        )
