"""What an exposition holds of the package's metrics, read with Prometheus's own parser."""

from __future__ import annotations

import pytest

from honcho_fallback.measurements import METRICS

# By a metric's name and its labels' values; of a histogram the number and the sum.
Figures = dict[tuple[str, ...], float | tuple[float, float]]


def prometheus_figures(exposition: str) -> Figures:
    """Return the figures; series of other metrics are passed over."""
    parser = pytest.importorskip("prometheus_client.parser")
    families = parser.text_string_to_metric_families(exposition)
    values = {
        (sample.name, *sorted(sample.labels.items())): sample.value
        for family in families
        for sample in family.samples
    }
    figures: Figures = {}
    for metric in METRICS:
        name, is_histogram = metric.prometheus_name, metric.kind == "histogram"
        shown = f"{name}_count" if is_histogram else name
        for (sample, *labels), value in values.items():
            if sample == shown:
                named = dict(labels)
                assert {*named} == {*metric.labels}
                key = (metric.name, *(named[label] for label in metric.labels))
                figures[key] = (value, values[f"{name}_sum", *labels]) if is_histogram else value
    return figures
