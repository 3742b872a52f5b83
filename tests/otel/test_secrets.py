"""Nothing of what a provider wrote is in a trace, for Langfuse or others, or in a metric."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from prometheus_client import CollectorRegistry, generate_latest

from honcho_fallback import FallbackError, FallbackPolicy, Target
from honcho_fallback_langfuse import LangfuseCallbackHandler
from honcho_fallback_otel import OpenTelemetryHandler, OpenTelemetryMetrics
from honcho_fallback_prometheus import PrometheusObserver
from tests.helpers.canaries import PROMPT, canaries_in, provider_errors, run_into
from tests.helpers.langfuse_memory import langfuse_memory


def test_no_key_and_no_prompt_is_told() -> None:
    """In no span, no event of one and no label, whatever field it came in."""
    exporter, provider, reader = InMemorySpanExporter(), TracerProvider(), InMemoryMetricReader()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    registry = CollectorRegistry()
    with langfuse_memory("secrets") as memory:
        observers: list[Any] = [
            OpenTelemetryHandler(provider),
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
        spans, stored = exporter.get_finished_spans(), memory.spans()
    assert len(spans) > 1000
    assert len(stored) == len(spans)
    for span in spans:
        assert canaries_in(span.to_json()) == []
    assert canaries_in(stored) == []
    assert canaries_in(generate_latest(registry).decode()) == []
    measured = reader.get_metrics_data()
    assert measured is not None
    assert canaries_in(measured.to_json()) == []
