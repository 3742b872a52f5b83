"""What both metrics observers have counted, in one form."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import HistogramDataPoint, InMemoryMetricReader
from prometheus_client import CollectorRegistry, generate_latest

from honcho_fallback import FallbackConfig, FallbackPolicy, Target
from honcho_fallback.measurements import METRICS
from honcho_fallback_otel import OpenTelemetryMetrics
from honcho_fallback_prometheus import PrometheusObserver
from tests.helpers.prometheus import prometheus_figures

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from opentelemetry.sdk.metrics.export import Metric as Instrument

    from tests.helpers.prometheus import Figures


class Counted:
    """Both observers on one policy; ``figures`` sees to it that they agree."""

    def __init__(
        self,
        targets: Iterable[Target | str] = ("primary", "fallback"),
        *,
        most_labels: int = 100,
        **options: Any,
    ) -> None:
        self.registry = CollectorRegistry()
        self._reader = InMemoryMetricReader()
        self.provider = MeterProvider([self._reader], shutdown_on_exit=False)
        self.observers = [
            PrometheusObserver(self.registry, most_labels=most_labels),
            OpenTelemetryMetrics(self.provider, most_labels=most_labels),
        ]
        self.policy = FallbackPolicy(
            [Target(one) if isinstance(one, str) else one for one in targets],
            FallbackConfig(**{"wait": 0, **options}),
            agent="deriver",
            observers=self.observers,
        )

    def figures(self) -> Figures:
        """Return what both have counted; without what is shown before it counts."""
        prometheus = prometheus_figures(generate_latest(self.registry).decode())
        opentelemetry: Figures = {}
        for metric in METRICS:
            names = [_attribute(label) for label in metric.labels]
            for point in self.points(metric.opentelemetry_name):
                assert {*(point.attributes or {})} == {*names}
                labels = (str((point.attributes or {})[name]) for name in names)
                is_histogram = isinstance(point, HistogramDataPoint)
                value = (point.count, point.sum) if is_histogram else point.value
                opentelemetry[metric.name, *labels] = value
        assert prometheus == opentelemetry
        rare = {"calls", "calls_ended_by_limit"}
        return {key: value for key, value in prometheus.items() if value or key[0] not in rare}

    def of(self, name: str) -> dict[tuple[str, ...], Any]:
        return {key[1:]: value for key, value in self.figures().items() if key[0] == name}

    def counts(self, name: str) -> dict[tuple[str, ...], float]:
        return {labels: count for labels, (count, _) in self.of(name).items()}

    def points(self, name: str) -> list[Any]:
        return [
            point
            for one in self.instruments()
            if one.name == name
            for point in one.data.data_points
        ]

    def instruments(self) -> Iterator[Instrument]:
        data = self._reader.get_metrics_data()
        for resource in data.resource_metrics if data else ():
            for scope in resource.scope_metrics:
                yield from scope.metrics


def _attribute(label: str) -> str:
    return "gen_ai.agent.name" if label == "agent" else f"honcho_fallback.{label}"
