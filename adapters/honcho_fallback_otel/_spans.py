"""The handler that makes one OpenTelemetry span of each call, for whoever has no Langfuse.

Names are those of the semantic conventions for generative AI (status: development), as released
in ``opentelemetry-semantic-conventions`` 0.66; what they do not know stands under
``honcho_fallback.``. They ask for one span per logical operation, retries included.
"""

from __future__ import annotations

from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from opentelemetry import trace

from honcho_fallback.redaction import label
from honcho_fallback.spans import SpanObserver, attempt_fields

if TYPE_CHECKING:
    from honcho_fallback import AttemptRecord, CallRecord, CallStart, TurnEnd
    from honcho_fallback.spans import EndedCall

# They require a provider's name; this is their word where none is known.
OTHER = "_OTHER"

# The caller who leaves is no error of the operation.
ERRORS = frozenset({"exhausted", "rejected", "interrupted"})

_OPERATION, _TURN_OPERATION = "chat", "invoke_agent"

# The settings that the conventions know, with their name for each.
_SETTINGS = {
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
                "gen_ai.provider.name": label(primary.provider or OTHER),
                "gen_ai.request.model": model,
                "gen_ai.agent.name": label(call.agent),
            },
        )
        return span if span.is_recording() else None

    def _open_turn(self, call: CallStart) -> Any:
        agent = label(call.agent)
        # Also one that is not sampled: its calls, under it, are not either.
        return self._tracer.start_span(
            f"{_TURN_OPERATION} {agent}",
            attributes={
                "gen_ai.operation.name": _TURN_OPERATION,
                "gen_ai.agent.name": agent,
                "honcho_fallback.turn_id": label(call.turn_id or ""),
            },
        )

    def _fill_turn(self, span: Any, turn: TurnEnd) -> None:
        span.set_attribute("honcho_fallback.outcome", turn.outcome)
        if turn.outcome == "failed":
            span.set_status(trace.StatusCode.ERROR)

    def _fill(self, span: Any, ended: EndedCall) -> None:
        # What the application says comes first: where a provider's limit on attributes is low,
        # the oldest go.
        for name, value in ended.metadata.items():
            span.set_attribute(f"honcho_fallback.metadata.{name}", value)
        for name, value in (_of_call(ended) | _of_answer(ended) | _settings(ended)).items():
            if value is not None:
                span.set_attribute(name, value)
        record = ended.record
        for attempt in record.attempts:
            if attempt.kind is not None and attempt.kind != "cancelled":
                span.add_event(
                    "honcho_fallback.attempt_failed",
                    attempt_fields(attempt),
                    _nanoseconds(record, attempt),
                )
        if record.outcome in ERRORS:
            span.set_status(trace.StatusCode.ERROR, ended.status_message)


def _of_call(ended: EndedCall) -> dict[str, Any]:
    record = ended.record
    first_token = record.time_to_first_token
    return {
        "gen_ai.provider.name": label(ended.target.provider or OTHER),
        "gen_ai.request.stream": None if first_token is None else True,
        "gen_ai.response.time_to_first_chunk": first_token,
        "error.type": error_type(record),
        "honcho_fallback.is_fallback": record.is_fallback,
        "honcho_fallback.fallback_reason": ended.fallback_reason,
        "honcho_fallback.attempt_count": len(record.attempts),
        "honcho_fallback.outcome": record.outcome,
        "honcho_fallback.call_id": record.call_id,
    }


def _of_answer(ended: EndedCall) -> dict[str, Any]:
    answer, counts = ended.answer, ended.usage or {}
    model = None
    if ended.record.answered_by is not None:
        model = label(answer.model or ended.target.model)
    return {
        "gen_ai.response.model": model,
        "gen_ai.response.finish_reasons": (
            [label(answer.finish_reason)] if answer.finish_reason else None
        ),
        "gen_ai.usage.input_tokens": counts.get("input_tokens"),
        "gen_ai.usage.output_tokens": counts.get("output_tokens"),
        "gen_ai.usage.cache_read.input_tokens": counts.get("cache_read_tokens"),
        "gen_ai.usage.cache_creation.input_tokens": counts.get("cache_write_tokens"),
        "gen_ai.usage.reasoning.output_tokens": counts.get("reasoning_tokens"),
    }


def _settings(ended: EndedCall) -> dict[str, Any]:
    return {
        f"gen_ai.request.{_SETTINGS[name]}": value
        for name, value in ended.settings.items()
        if name in _SETTINGS
    }


def _nanoseconds(record: CallRecord, attempt: AttemptRecord) -> int:
    return round((record.started_at + attempt.started + attempt.seconds) * 1e9)


def error_type(record: CallRecord) -> str | None:
    """Return the class of a call's last error, or None where the operation did not fail."""
    if record.outcome not in ERRORS:
        return None
    last = record.attempts[-1] if record.attempts else None
    return label(last.error or str(last.kind)) if last else record.outcome
