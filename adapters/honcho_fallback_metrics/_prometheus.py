"""The observer that counts with prometheus_client, in one process or in several."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from prometheus_client import REGISTRY, CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.registry import Collector

from honcho_fallback import FallbackConfigError
from honcho_fallback_metrics._measurements import (
    FORGET_AFTER,
    MOST_LABELS,
    Measurements,
    MetricsObserver,
)
from honcho_fallback_metrics._metrics import CALLS, METRICS, SECONDS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from prometheus_client.metrics_core import Metric as Samples

    from honcho_fallback_metrics._measurements import Labels, Update
    from honcho_fallback_metrics._metrics import Metric


class PrometheusObserver(MetricsObserver):
    """Count calls on a Prometheus registry.

    Observers on one registry share its metrics, and the options of the first. A call that two of
    them observe counts twice: give one to ``honcho_fallback.set_observers``, or one to each
    policy. With ``PROMETHEUS_MULTIPROC_DIR`` the figures of several processes add up.

    Args:
        registry: Where the metrics are; default the global one.
        most_labels: How many agents, and how many targets, are told apart; others are ``other``.
        forget_after: Seconds after which a call that has not ended is no longer in flight.

    Raises:
        FallbackConfigError: An argument is out of range, or the registry has other metrics of
            these names.
    """

    def __init__(
        self,
        registry: CollectorRegistry | None = None,
        *,
        most_labels: int = MOST_LABELS,
        forget_after: float = FORGET_AFTER,
    ) -> None:
        registry = REGISTRY if registry is None else registry
        collectors = _Collectors(most_labels, forget_after)
        try:
            registry.register(collectors)
        except ValueError:
            collectors = _registered(registry)
        super().__init__(collectors.measurements)


class _Collectors(Collector):
    """Hold all metrics of a registry, and what counts on them."""

    def __init__(self, most_labels: int, forget_after: float) -> None:
        self._by_metric = {metric: _collector(metric) for metric in METRICS}
        self.measurements = Measurements(self._update, most_labels, forget_after)

    def describe(self) -> Iterable[Samples]:
        """Name the metrics, for the registry to refuse a second set of them."""
        for collector in self._by_metric.values():
            yield from collector.describe()

    def collect(self) -> Iterable[Samples]:
        """Return the figures."""
        for collector in self._by_metric.values():
            yield from collector.collect()

    def _update(self, metric: Metric, labels: Labels) -> Update:
        child = self._by_metric[metric].labels(*labels)
        if isinstance(child, Histogram):
            return child.observe
        if metric.kind == "gauge" and isinstance(child, Gauge):
            return child.set
        return child.inc


def _collector(metric: Metric) -> Counter | Gauge | Histogram:
    name, text, labels = metric.prometheus_name, metric.help, metric.labels
    match metric.kind:
        case "counter":
            return Counter(name, text, labels, registry=None)
        case "histogram":
            return Histogram(name, text, labels, registry=None, buckets=SECONDS)
        case "up_down_counter":  # what a dead process had in flight is gone with it
            return Gauge(name, text, labels, registry=None, multiprocess_mode="livesum")
        case "gauge":  # what a process saw last is true for all
            return Gauge(name, text, labels, registry=None, multiprocess_mode="mostrecent")


def _registered(registry: CollectorRegistry) -> _Collectors:
    """Return the metrics that an observer before has registered."""
    # A registry has no public way to ask for what it refuses to take twice.
    by_name = registry._names_to_collectors  # noqa: SLF001 # pyright: ignore[reportPrivateUsage] # see above
    existing: object = by_name.get(CALLS.prometheus_name)
    # By its module's name: once the module is loaded anew, the class is another.
    if type(existing).__module__ != __name__:
        problem = "it has other metrics that are named honcho_fallback_..."
        raise FallbackConfigError.about("registry", problem, "unregister those or pass another")
    return cast("_Collectors", existing)
