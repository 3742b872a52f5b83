"""Count calls for dashboards and alerts: with Prometheus, or with OpenTelemetry's metrics.

Either class asks only for its own framework, and only when it is used: Prometheus needs the extra
``prometheus``, OpenTelemetry the extra ``otel``. ``METRICS`` lists what both count.
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from honcho_fallback_metrics._metrics import METRICS, Metric

if TYPE_CHECKING:
    from honcho_fallback_metrics._otel import OpenTelemetryMetrics
    from honcho_fallback_metrics._prometheus import PrometheusObserver

# Class: the module it stands in, the framework it needs, the extra that brings it.
_CLASSES = {
    "OpenTelemetryMetrics": ("_otel", "opentelemetry.metrics", "otel"),
    "PrometheusObserver": ("_prometheus", "prometheus_client", "prometheus"),
}

__all__ = ["METRICS", "Metric", "OpenTelemetryMetrics", "PrometheusObserver"]


def __getattr__(name: str) -> Any:
    if name not in _CLASSES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, framework, extra = _CLASSES[name]
    if not _is_installed(framework):
        raise ImportError(
            f"{name} needs {framework}: pip install 'honcho-fallback[{extra}]', "
            f"in a checkout pip install '.[{extra}]'"
        )
    attribute = globals()[name] = getattr(import_module(f"{__name__}.{module}"), name)
    return attribute


def __dir__() -> list[str]:
    return __all__


def _is_installed(framework: str) -> bool:
    # find_spec imports the parents of a dotted name, and raises where one is missing or blocked.
    try:
        return find_spec(framework) is not None
    except (ImportError, ValueError):
        return False
