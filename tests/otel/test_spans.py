"""The GenAI span, for whoever has no Langfuse; and what no trace and no metric shows."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.semconv._incubating.attributes import gen_ai_attributes as names
from prometheus_client import CollectorRegistry, generate_latest

from honcho_fallback import (
    FallbackConfig,
    FallbackError,
    FallbackExhausted,
    FallbackObserver,
    FallbackPolicy,
    StreamInterrupted,
    Target,
)
from honcho_fallback.testing import StatusError
from honcho_fallback_langfuse import LangfuseCallbackHandler
from honcho_fallback_otel import OpenTelemetryHandler, OpenTelemetryMetrics
from honcho_fallback_prometheus import PrometheusObserver
from tests.helpers.canaries import PROMPT, canaries_in, provider_errors, run_into
from tests.helpers.langfuse_server import langfuse_memory
from tests.helpers.otlp import Traces
from tests.helpers.scripted import repeating
from tests.helpers.wire import chat_answer

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan


CHAIN = [
    Target("one", "openai", params={"temperature": 0.5, "api_key": "secret"}),
    Target("two", "anthropic", params={"max_tokens": 9}),
]
ANSWER = chat_answer("hello", model="two-20260101")


class Traced(Traces):
    """A policy, and the spans of its calls."""

    def __init__(self) -> None:
        super().__init__()
        self.handler = OpenTelemetryHandler(self.provider)
        self.policy = FallbackPolicy(
            CHAIN, FallbackConfig(wait=0), agent="deriver", observers=[self.handler]
        )

    def only(self) -> ReadableSpan:
        (span,) = self.finished()
        assert len(self.handler._calls) == 0
        return span


@pytest.fixture
def traced() -> Traced:
    return Traced()


def read(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


def test_a_fallback_is_one_client_span(traced: Traced) -> None:
    """One span over all attempts, with the conventions' names and one event per failed attempt."""
    assert isinstance(traced.handler, FallbackObserver)
    said: dict[str, Any] = {"openai/one": [StatusError(503)], "anthropic/two": [ANSWER]}
    run = traced.policy.start()
    run.report(input="a prompt", parameters={"top_p": 0.9})
    traced.policy.call(repeating(**said).ask, run=run)
    span = traced.only()
    assert (span.name, span.kind) == ("chat one", trace.SpanKind.CLIENT)
    assert read(span) == {
        names.GEN_AI_OPERATION_NAME: "chat",
        names.GEN_AI_PROVIDER_NAME: "anthropic",
        names.GEN_AI_REQUEST_MODEL: "one",
        names.GEN_AI_RESPONSE_MODEL: "two-20260101",
        names.GEN_AI_AGENT_NAME: "deriver",
        names.GEN_AI_REQUEST_MAX_TOKENS: 9,
        names.GEN_AI_REQUEST_TOP_P: 0.9,
        names.GEN_AI_RESPONSE_FINISH_REASONS: ("stop",),
        names.GEN_AI_USAGE_INPUT_TOKENS: 12,
        names.GEN_AI_USAGE_OUTPUT_TOKENS: 7,
        "gen_ai.usage.cache_read.input_tokens": 4,
        "gen_ai.usage.reasoning.output_tokens": 2,
        "honcho_fallback.is_fallback": True,
        "honcho_fallback.fallback_reason": "overloaded StatusError 503",
        "honcho_fallback.attempt_count": 2,
        "honcho_fallback.outcome": "success",
        "honcho_fallback.call_id": run.record.call_id,
    }
    assert span.status.status_code is trace.StatusCode.UNSET
    (event,) = span.events
    assert event.name == "honcho_fallback.attempt_failed"
    assert dict(event.attributes or {}) == {
        "provider": "openai",
        "model": "one",
        "kind": "overloaded",
        "error": "StatusError",
        "status": 503,
        "milliseconds": round(run.record.attempts[0].seconds * 1000),
        "reached": "unknown",
        "billed": "unknown",
    }
    failed_at = run.record.started_at + run.record.attempts[0].seconds
    assert event.timestamp == pytest.approx(failed_at * 1e9, abs=1e6)


def test_a_failed_call_is_an_error(traced: Traced) -> None:
    """Where nobody answered there is an error type and a status without a provider's text."""
    said: dict[str, Any] = {
        "openai/one": [StatusError(503)],
        "anthropic/two": [StatusError(429)],
    }
    with pytest.raises(FallbackExhausted):
        traced.policy.call(repeating(**said).ask, max_attempts=2)
    span = traced.only()
    assert read(span)["error.type"] == "StatusError"
    assert names.GEN_AI_RESPONSE_MODEL not in read(span)
    assert span.status.status_code is trace.StatusCode.ERROR
    assert span.status.description == (
        "openai/one: overloaded StatusError 503; anthropic/two: rate_limit StatusError 429; "
        "exhausted"
    )
    assert [event.name for event in span.events] == ["honcho_fallback.attempt_failed"] * 2


@pytest.mark.skipif(
    not hasattr(names, "GEN_AI_REQUEST_STREAM"),
    reason="this release of the conventions has no such name yet",
)
def test_a_stream_tells_its_first_chunk(traced: Traced) -> None:
    """A stream says so, and when its first content came; a broken one is an error."""
    said: dict[str, Any] = {"openai/one": [["a", StatusError(503)]]}
    with pytest.raises(StreamInterrupted):
        list(traced.policy.stream(repeating(**said).stream))
    told = read(traced.only())
    assert told[names.GEN_AI_REQUEST_STREAM] is True
    assert told["gen_ai.response.time_to_first_chunk"] >= 0
    assert told["error.type"] == "StatusError"
    assert "secret" not in repr(told)


def test_a_cancelled_call_is_no_error(traced: Traced) -> None:
    """Who cancels gets a span that says so, without an error and without an event."""
    run = traced.policy.start()
    run.cancel()
    span = traced.only()
    assert read(span)["honcho_fallback.outcome"] == "cancelled"
    assert "error.type" not in read(span)
    assert span.events == ()


def test_it_nests_and_it_is_sampled(traced: Traced) -> None:
    """The span lies under the current one; where that is not sampled, nothing is kept."""
    tracer = traced.provider.get_tracer("web")
    unsampled = trace.SpanContext(1, 1, is_remote=False, trace_flags=trace.TraceFlags(0))
    with trace.use_span(trace.NonRecordingSpan(unsampled)):
        traced.policy.call(lambda _: "hello")
    with tracer.start_as_current_span("GET /") as outer:
        traced.policy.call(lambda _: "hello")
        span = traced.only()
    assert span.parent is not None
    assert span.parent.span_id == outer.get_span_context().span_id


def test_no_key_and_no_prompt_is_told() -> None:
    """In no span, no event of one and no label, whatever field it came in."""
    traces, registry, reader = Traces(), CollectorRegistry(), InMemoryMetricReader()
    with langfuse_memory("secrets") as memory:
        observers: list[Any] = [
            OpenTelemetryHandler(traces.provider),
            LangfuseCallbackHandler(memory.client),
            OpenTelemetryMetrics(MeterProvider([reader])),
            PrometheusObserver(registry=registry),
        ]
        errors = [*provider_errors()][::3]
        for _ in run_into(errors, observers):
            pass
        answer = {"error": {"message": PROMPT, "type": PROMPT, "code": PROMPT}}
        with suppress(FallbackError):
            FallbackPolicy([Target("a")], observers=observers).call(lambda _: answer, wait=0)
        spans, stored = traces.finished(), memory.spans()
    assert len(spans) > 1000
    assert len(stored) == len(spans)
    for span in spans:
        assert canaries_in(span.to_json()) == []
    assert canaries_in(stored) == []
    assert canaries_in(generate_latest(registry).decode()) == []
    measured = reader.get_metrics_data()
    assert measured is not None
    assert canaries_in(measured.to_json()) == []
