"""The observer that counts with OpenTelemetry's metrics API."""

from __future__ import annotations

from importlib.metadata import version
from typing import TYPE_CHECKING

from opentelemetry import metrics

from honcho_fallback import FallbackObserver
from honcho_fallback.measurements import METRICS, SECONDS, Measurements

if TYPE_CHECKING:
    from collections.abc import Callable

    from honcho_fallback import CallRecord
    from honcho_fallback.measurements import Metric


class OpenTelemetryMetrics(FallbackObserver):
    """Count calls with OpenTelemetry's metrics, when they end.

    A call that two observers on one provider observe counts twice: give one to
    ``honcho_fallback.set_observers``, or one to each policy. SDKs before 1.45 export a gauge only
    in the interval in which it was set.

    Args:
        meter_provider: Where the measurements go; default the global one.
        most_labels: How many agents, and how many targets, are told apart; others are ``other``.

    Raises:
        FallbackConfigError: An argument is out of range.
    """

    def __init__(
        self, meter_provider: metrics.MeterProvider | None = None, *, most_labels: int = 100
    ) -> None:
        meter = metrics.get_meter("honcho_fallback", version("honcho-fallback"), meter_provider)
        self._measurements = Measurements(most_labels)
        self._record = {metric.name: _instrument(meter, metric) for metric in METRICS}
        self._attributes = {
            metric.name: tuple(map(_attribute, metric.labels)) for metric in METRICS
        }

    def on_finish(self, record: CallRecord, /) -> None:
        for name, labels, value in self._measurements.of(record):
            self._record[name](value, dict(zip(self._attributes[name], labels, strict=True)))


def _attribute(name: str) -> str:
    """Name a label as the spans do."""
    return "gen_ai.agent.name" if name == "agent" else f"honcho_fallback.{name}"


def _instrument(meter: metrics.Meter, metric: Metric) -> Callable[..., object]:
    name, unit, text = metric.opentelemetry_name, metric.unit, metric.help
    match metric.kind:
        case "counter":
            return meter.create_counter(name, unit, text).add
        case "gauge":
            return meter.create_gauge(name, unit, text).set
        case "histogram":
            return meter.create_histogram(
                name, unit, text, explicit_bucket_boundaries_advisory=SECONDS
            ).record
