"""Everything that observes is dead at once: no call notices."""

from __future__ import annotations

import logging
import socket
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest
from langfuse import Langfuse
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.trace import TracerProvider
from prometheus_client import CollectorRegistry

from honcho_fallback import FallbackPolicy, Target
from honcho_fallback.records import JsonlObserver
from honcho_fallback.testing import StatusError
from honcho_fallback_langfuse import LangfuseCallbackHandler
from honcho_fallback_otel import OpenTelemetryMetrics
from honcho_fallback_prometheus import PrometheusObserver

if TYPE_CHECKING:
    from collections.abc import Iterator

    from honcho_fallback import Attempt, FallbackObserver


@pytest.fixture
def hanging_url() -> Iterator[str]:
    """Take connections, and never say anything."""
    with socket.create_server(("127.0.0.1", 0), backlog=64) as server:
        yield f"http://127.0.0.1:{server.getsockname()[1]}"


def test_no_call_is_lost_where_disk_langfuse_and_collector_are_dead(
    hanging_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A full disk, a Langfuse and a collector that hang: each call is answered and counted."""
    client = Langfuse(
        public_key="pk-dead",
        secret_key="sk-dead",
        base_url=hanging_url,
        timeout=1,
        tracer_provider=TracerProvider(shutdown_on_exit=False),
    )
    exporter = OTLPMetricExporter(endpoint=f"{hanging_url}/v1/metrics", timeout=1)
    reader = PeriodicExportingMetricReader(exporter, export_interval_millis=20)
    registry = CollectorRegistry()
    records = JsonlObserver("/dev/full")
    langfuse = LangfuseCallbackHandler(client)
    meters = MeterProvider([reader], shutdown_on_exit=False)
    observers: list[FallbackObserver] = [
        records,
        langfuse,
        OpenTelemetryMetrics(meters),
        PrometheusObserver(registry),
    ]
    policy = FallbackPolicy([Target("one"), Target("two")], agent="chat", observers=observers)

    def ask(attempt: Attempt) -> str:
        if attempt.position == 0:
            raise StatusError(503)
        return "hello"

    with caplog.at_level(logging.DEBUG, "honcho_fallback"), ThreadPoolExecutor(8) as pool:
        answers = [*pool.map(lambda _: policy.call(ask), range(400))]
        records.close()
        assert not langfuse.flush(0)
    assert answers == ["hello"] * 400
    labels = {"agent": "chat", "outcome": "success", "target": "two"}
    assert registry.get_sample_value("honcho_fallback_calls_total", labels) == 400
    assert records.lost == 400
    lines = [one.getMessage() for one in caplog.records if one.name == "honcho_fallback"]
    assert sum("calls are not saved" in line for line in lines) == 1
    assert len(lines) == 400 + 1  # and one for each switch
    langfuse.close(0)
    client.shutdown()
    reader.shutdown(timeout_millis=1000)
