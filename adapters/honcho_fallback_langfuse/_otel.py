"""The handler that makes one OpenTelemetry span of each call, for whoever has no Langfuse.

Names are those of the semantic conventions for generative AI (status: development), as released
in ``opentelemetry-semantic-conventions`` 0.66; what they do not know stands under
``honcho_fallback.``. They ask for one span per logical operation, retries included.
"""

from __future__ import annotations

from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from opentelemetry import trace

from honcho_fallback import read_answer
from honcho_fallback_langfuse import _facts
from honcho_fallback_langfuse._content import clean
from honcho_fallback_langfuse._generation import parameters
from honcho_fallback_langfuse._observer import SpanObserver
from honcho_fallback_langfuse._safe import attempted
from honcho_fallback_langfuse._usage import Usage, read_usage

if TYPE_CHECKING:
    from collections.abc import Callable

    from honcho_fallback import Answer, AttemptRecord, CallRecord, CallStart
    from honcho_fallback_langfuse._in_flight import CallInFlight

_OPERATION = "chat"

# The conventions require a provider's name; this is their word where none is known.
_OTHER = "_OTHER"

_REQUEST = {
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

_USAGE = {
    "gen_ai.usage.input_tokens": "input_tokens",
    "gen_ai.usage.output_tokens": "output_tokens",
    "gen_ai.usage.cache_read.input_tokens": "cache_read_tokens",
    "gen_ai.usage.cache_creation.input_tokens": "cache_write_tokens",
    "gen_ai.usage.reasoning.output_tokens": "reasoning_tokens",
}

# The caller who leaves is no error of the operation.
_ERRORS = frozenset({"exhausted", "rejected", "interrupted"})


class OpenTelemetryHandler(SpanObserver):
    """Make one GenAI client span of each call, with an event for each attempt that failed.

    The span is nested under the current one, covers the whole call and carries no prompt and no
    answer. Use this or ``LangfuseCallbackHandler``, not both on one provider: Langfuse takes GenAI
    spans for generations, too.

    Source: OpenTelemetry's semantic conventions for generative client AI spans.

    Args:
        tracer_provider: Where spans go; default the global one.
    """

    def __init__(self, tracer_provider: trace.TracerProvider | None = None) -> None:
        super().__init__(keep_input=False)
        self._tracer = trace.get_tracer(
            "honcho_fallback", version("honcho-fallback"), tracer_provider
        )

    def _open(self, call: CallStart) -> Any:
        primary = call.chain[0]
        span = self._tracer.start_span(
            f"{_OPERATION} {clean(primary.model)}",
            kind=trace.SpanKind.CLIENT,
            attributes={
                "gen_ai.operation.name": _OPERATION,
                "gen_ai.provider.name": clean(primary.provider or _OTHER),
                "gen_ai.request.model": clean(primary.model),
                "gen_ai.agent.name": clean(call.agent),
            },
        )
        return span if span.is_recording() else None

    def _end(self, call: CallInFlight, record: CallRecord) -> None:
        span: trace.Span = call.span
        try:
            answer = read_answer(call.output)
            usage = attempted(read_usage, "reading the usage", record.usage, answer)
            makers: tuple[Callable[[], dict[str, Any]], ...] = (
                lambda: _answerer(call, record, answer),
                lambda: _request(call, record),
                lambda: _tokens(usage),
                lambda: _facts_of(record, usage),
                lambda: {"gen_ai.response.finish_reasons": _finish_reasons(answer)},
            )
            for make in makers:
                attributes = attempted(make, "an attribute") or {}
                span.set_attributes(
                    {name: value for name, value in attributes.items() if value not in (None, [])}
                )
            for attempt in record.attempts:
                if attempt.kind is not None and attempt.kind != "cancelled":
                    span.add_event(
                        "honcho_fallback.attempt_failed",
                        _facts.attempt_facts(attempt),
                        _nanoseconds(record, attempt),
                    )
            if record.outcome in _ERRORS:
                span.set_attribute("error.type", _error_type(record))
                span.set_status(trace.StatusCode.ERROR, _facts.status_message(record))
        finally:
            span.end()


def _answerer(call: CallInFlight, record: CallRecord, answer: Answer) -> dict[str, Any]:
    target = _facts.named_target(call, record)
    attributes = {"gen_ai.provider.name": clean(target.provider or _OTHER)}
    if record.answered_by is not None:
        attributes["gen_ai.response.model"] = clean(answer.model or target.model)
    return attributes


def _request(call: CallInFlight, record: CallRecord) -> dict[str, Any]:
    settings = parameters(call, _facts.named_target(call, record)) or {}
    attributes: dict[str, Any] = {
        f"gen_ai.request.{name}": settings[key]
        for key, name in _REQUEST.items()
        if key in settings
    }
    first = record.time_to_first_token
    if first is not None:
        attributes["gen_ai.request.stream"] = True
        attributes["gen_ai.response.time_to_first_chunk"] = first
    return attributes


def _tokens(usage: Usage | None) -> dict[str, Any]:
    if usage is None:
        return {}
    return {name: usage.counts.get(count) for name, count in _USAGE.items()}


def _facts_of(record: CallRecord, usage: Usage | None) -> dict[str, Any]:
    return {
        "honcho_fallback.is_fallback": record.is_fallback,
        "honcho_fallback.fallback_reason": _facts.fallback_reason(record),
        "honcho_fallback.attempt_count": len(record.attempts),
        "honcho_fallback.outcome": record.outcome,
        "honcho_fallback.call_id": record.call_id,
        "honcho_fallback.usage_source": usage.source if usage else "none",
    }


def _finish_reasons(answer: Answer) -> list[str]:
    return [answer.finish_reason] if answer.finish_reason else []


def _error_type(record: CallRecord) -> str:
    last = record.attempts[-1] if record.attempts else None
    return (last.error or str(last.kind)) if last else record.outcome


def _nanoseconds(record: CallRecord, attempt: AttemptRecord) -> int:
    return round((record.started_at + attempt.started + attempt.seconds) * 1e9)
