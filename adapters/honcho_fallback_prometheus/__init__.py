"""Count calls with prometheus_client, in one process or in several."""

from __future__ import annotations

from importlib.util import find_spec

if find_spec("prometheus_client") is None:
    raise ImportError(
        "honcho_fallback_prometheus needs prometheus_client: pip install "
        "'honcho-fallback[prometheus]', in a checkout pip install '.[prometheus]'"
    )

from honcho_fallback_prometheus._observer import PrometheusObserver

__all__ = ["PrometheusObserver"]
