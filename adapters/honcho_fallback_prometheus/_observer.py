"""The observer that counts with prometheus_client."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeAlias
from weakref import WeakKeyDictionary

from prometheus_client import REGISTRY, CollectorRegistry, Counter, Gauge, Histogram

from honcho_fallback import FallbackConfigError, FallbackObserver
from honcho_fallback.measurements import METRICS, SECONDS, Measurements

if TYPE_CHECKING:
    from honcho_fallback import CallRecord
    from honcho_fallback.measurements import Metric

_Collector: TypeAlias = Counter | Gauge | Histogram


class PrometheusObserver(FallbackObserver):
    """Count calls on a Prometheus registry, when they end.

    Observers on one registry share its metrics, and the options of the first. A call that two of
    them observe counts twice: give one to ``honcho_fallback.set_observers``, or one to each
    policy. With ``PROMETHEUS_MULTIPROC_DIR`` the figures of several processes add up.

    Args:
        registry: Where the metrics are; default the global one.
        most_labels: How many agents, and how many targets, are told apart; others are ``other``.

    Raises:
        FallbackConfigError: An argument is out of range, or the registry has other metrics of
            these names.
    """

    def __init__(
        self, registry: CollectorRegistry | None = None, *, most_labels: int = 100
    ) -> None:
        self._metrics = _metrics_of(REGISTRY if registry is None else registry, most_labels)

    def on_finish(self, record: CallRecord, /) -> None:
        """Count what became of a call."""
        for name, labels, value in self._metrics.measurements.of(record):
            series = self._metrics.by_name[name].labels(*labels)
            if isinstance(series, Counter):
                series.inc(value)
            elif isinstance(series, Gauge):
                series.set(value)
            else:
                series.observe(value)


class _Metrics(NamedTuple):
    """Hold the metrics of one registry."""

    by_name: dict[str, _Collector]
    measurements: Measurements


# A registry has no public way to ask for what it refuses to take twice.
_REGISTERED: WeakKeyDictionary[CollectorRegistry, _Metrics] = WeakKeyDictionary()


def _metrics_of(registry: CollectorRegistry, most_labels: int) -> _Metrics:
    """Return a registry's metrics, registered by the first observer that asks."""
    metrics = _REGISTERED.get(registry)
    if metrics is None:
        by_name = {metric.name: _collector(metric) for metric in METRICS}
        metrics = _Metrics(by_name, Measurements(most_labels))
        try:
            for collector in by_name.values():
                registry.register(collector)
        except ValueError:
            problem = "it has other metrics that are named honcho_fallback_..."
            fix = "unregister those or pass another"
            raise FallbackConfigError.about("registry", problem, fix) from None
        _REGISTERED[registry] = metrics
    return metrics


def _collector(metric: Metric) -> _Collector:
    name, text, labels = metric.prometheus_name, metric.help, metric.labels
    match metric.kind:
        case "counter":
            return Counter(name, text, labels, registry=None)
        case "histogram":
            return Histogram(name, text, labels, registry=None, buckets=SECONDS)
        case "gauge":  # what a process saw last is true for all
            return Gauge(name, text, labels, registry=None, multiprocess_mode="mostrecent")
