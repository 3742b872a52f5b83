"""The observer that counts with prometheus_client."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias
from weakref import WeakKeyDictionary

from prometheus_client import REGISTRY, CollectorRegistry, Counter, Gauge, Histogram

from honcho_fallback import FallbackConfigError, FallbackObserver
from honcho_fallback.measurements import METRICS, SECONDS, Measurements

if TYPE_CHECKING:
    from honcho_fallback import CallRecord
    from honcho_fallback.measurements import Metric

_Collector: TypeAlias = Counter | Gauge | Histogram

# A registry has no public way to ask for what it refuses to take twice.
_REGISTERED: WeakKeyDictionary[CollectorRegistry, tuple[dict[str, _Collector], Measurements]] = (
    WeakKeyDictionary()
)


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
        registry = REGISTRY if registry is None else registry
        if registry not in _REGISTERED:
            measurements = Measurements(most_labels)
            collectors = _collectors(registry)
            _REGISTERED[registry] = collectors, measurements
        self._collectors, self._measurements = _REGISTERED[registry]

    def on_finish(self, record: CallRecord, /) -> None:
        for name, labels, value in self._measurements.of(record):
            series = self._collectors[name].labels(*labels)
            if isinstance(series, Counter):
                series.inc(value)
            elif isinstance(series, Gauge):
                series.set(value)
            else:
                series.observe(value)


def _collectors(registry: CollectorRegistry) -> dict[str, _Collector]:
    """Register all metrics or, where the registry has others of a name, none."""
    collectors: dict[str, _Collector] = {}
    try:
        for metric in METRICS:
            collectors[metric.name] = _collector(metric, registry)
    except ValueError:
        for collector in collectors.values():
            registry.unregister(collector)
        problem = "it has other metrics that are named honcho_fallback_..."
        fix = "unregister those or pass another"
        raise FallbackConfigError.about("registry", problem, fix) from None
    return collectors


def _collector(metric: Metric, registry: CollectorRegistry) -> _Collector:
    name, text, labels = metric.prometheus_name, metric.help, metric.labels
    match metric.kind:
        case "counter":
            return Counter(name, text, labels, registry=registry)
        case "histogram":
            return Histogram(name, text, labels, registry=registry, buckets=SECONDS)
        case "gauge":  # what a process saw last is true for all
            return Gauge(name, text, labels, registry=registry, multiprocess_mode="mostrecent")
