"""The handler that makes one OpenTelemetry span of each call, for whoever has no Langfuse.

Names are those of the semantic conventions for generative AI (status: development), as released
in ``opentelemetry-semantic-conventions`` 0.66; what they do not know stands under
``honcho_fallback.``. They ask for one span per logical operation, retries included.
"""

from __future__ import annotations

from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from opentelemetry import trace

from honcho_fallback_langfuse import _record_fields as record_fields
from honcho_fallback_langfuse._content import label
from honcho_fallback_langfuse._observer import SpanObserver
from honcho_fallback_langfuse._safe import attempted, fields_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from honcho_fallback import AttemptRecord, CallRecord, CallStart, TurnEnd
    from honcho_fallback_langfuse._record_fields import EndedCall

_OPERATION, _TURN_OPERATION = "chat", "invoke_agent"

# The conventions require a provider's name; this is their word where none is known.
_OTHER = "_OTHER"

# The caller who leaves is no error of the operation.
_ERRORS = frozenset({"exhausted", "rejected", "interrupted"})


class OpenTelemetryHandler(SpanObserver):
    """Make one GenAI client span of each call, with an event for each attempt that failed.

    The span is nested under the current one, covers the whole call and carries no prompt and no
    answer; the calls of a turn are nested under a span of the turn. Use this or
    ``LangfuseCallbackHandler``, not both on one provider: Langfuse takes GenAI spans for
    generations, too.

    Source: OpenTelemetry's semantic conventions for generative client AI spans.

    Args:
        tracer_provider: Where spans go; default the global one.
    """

    def __init__(self, tracer_provider: trace.TracerProvider | None = None) -> None:
        super().__init__(keep_input=False)
        self._tracer = trace.get_tracer(
            "honcho_fallback", version("honcho-fallback"), tracer_provider
        )

    def _open(self, call: CallStart, turn: Any) -> Any:
        primary = call.chain[0]
        model = label(primary.model)
        span = self._tracer.start_span(
            f"{_OPERATION} {model}",
            context=None if turn is None else trace.set_span_in_context(turn),
            kind=trace.SpanKind.CLIENT,
            attributes={
                "gen_ai.operation.name": _OPERATION,
                "gen_ai.provider.name": label(primary.provider or _OTHER),
                "gen_ai.request.model": model,
                "gen_ai.agent.name": label(call.agent),
            },
        )
        return span if span.is_recording() else None

    def _open_turn(self, call: CallStart) -> Any:
        agent = label(call.agent)
        span = self._tracer.start_span(
            f"{_TURN_OPERATION} {agent}",
            attributes={
                "gen_ai.operation.name": _TURN_OPERATION,
                "gen_ai.agent.name": agent,
                "honcho_fallback.turn_id": label(call.turn_id or ""),
            },
        )
        return span if span.is_recording() else None

    def _fill_turn(self, span: Any, turn: TurnEnd) -> None:
        span.set_attribute("honcho_fallback.outcome", turn.outcome)
        if turn.outcome == "failed":
            span.set_status(trace.StatusCode.ERROR)

    def _fill(self, span: Any, ended: EndedCall) -> None:
        # What the application says comes first: where a provider's limit on attributes is low,
        # the oldest go.
        span.set_attributes(attempted(_metadata, "the metadata", ended) or {})
        span.set_attributes(fields_of(_ATTRIBUTES, ended))
        span.set_attributes(attempted(_request, "the parameters", ended) or {})
        record = ended.record
        for attempt in record.attempts:
            if attempt.kind is not None and attempt.kind != "cancelled":
                span.add_event(
                    "honcho_fallback.attempt_failed",
                    record_fields.attempt_fields(attempt),
                    _nanoseconds(record, attempt),
                )
        if record.outcome in _ERRORS:
            span.set_status(trace.StatusCode.ERROR, record_fields.status_message(record))


def _metadata(ended: EndedCall) -> dict[str, Any]:
    entries = record_fields.labels(ended.call.start.metadata)
    first = [*entries.items()][: record_fields.MOST_KEYS]
    return {f"honcho_fallback.metadata.{name}": value for name, value in first}


def _request(ended: EndedCall) -> dict[str, Any]:
    settings = record_fields.parameters(ended) or {}
    return {
        f"gen_ai.request.{name}": settings[key]
        for key, name in record_fields.REQUEST.items()
        if key in settings
    }


def _response_model(ended: EndedCall) -> str | None:
    answered = ended.record.answered_by is not None
    return label(ended.answer.model or ended.target.model) if answered else None


def _finish_reasons(ended: EndedCall) -> list[str] | None:
    reason = ended.answer.finish_reason
    return [label(reason)] if reason else None


def _error_type(ended: EndedCall) -> str | None:
    record = ended.record
    if record.outcome not in _ERRORS:
        return None
    last = record.attempts[-1] if record.attempts else None
    return label((last.error or str(last.kind)) if last else record.outcome)


def _count(name: str) -> Callable[[EndedCall], int | None]:
    return lambda ended: ended.usage.counts.get(name) if ended.usage else None


_ATTRIBUTES: dict[str, Callable[[EndedCall], Any]] = {
    "gen_ai.provider.name": lambda ended: label(ended.target.provider or _OTHER),
    "gen_ai.response.model": _response_model,
    "gen_ai.response.finish_reasons": _finish_reasons,
    "gen_ai.request.stream": lambda ended: (
        None if ended.record.time_to_first_token is None else True
    ),
    "gen_ai.response.time_to_first_chunk": lambda ended: ended.record.time_to_first_token,
    "gen_ai.usage.input_tokens": _count("input_tokens"),
    "gen_ai.usage.output_tokens": _count("output_tokens"),
    "gen_ai.usage.cache_read.input_tokens": _count("cache_read_tokens"),
    "gen_ai.usage.cache_creation.input_tokens": _count("cache_write_tokens"),
    "gen_ai.usage.reasoning.output_tokens": _count("reasoning_tokens"),
    "error.type": _error_type,
    "honcho_fallback.is_fallback": lambda ended: ended.record.is_fallback,
    "honcho_fallback.fallback_reason": lambda ended: record_fields.fallback_reason(ended.record),
    "honcho_fallback.attempt_count": lambda ended: len(ended.record.attempts),
    "honcho_fallback.outcome": lambda ended: ended.record.outcome,
    "honcho_fallback.call_id": lambda ended: ended.record.call_id,
    "honcho_fallback.usage_source": lambda ended: ended.source,
}


def _nanoseconds(record: CallRecord, attempt: AttemptRecord) -> int:
    return round((record.started_at + attempt.started + attempt.seconds) * 1e9)
