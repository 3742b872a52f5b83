"""Trace and count calls with OpenTelemetry: a GenAI span of each call, and metrics."""

from __future__ import annotations

from importlib.util import find_spec

if find_spec("opentelemetry") is None:
    raise ImportError(
        "honcho_fallback_otel needs OpenTelemetry: pip install 'honcho-fallback[otel]', "
        "in a checkout pip install '.[otel]'"
    )

from honcho_fallback_otel._metrics import OpenTelemetryMetrics
from honcho_fallback_otel._spans import OpenTelemetryHandler

__all__ = ["OpenTelemetryHandler", "OpenTelemetryMetrics"]
