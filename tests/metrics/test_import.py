"""Each class needs its own framework, and asks for it by the extra's name."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

CLASSES = {
    "OpenTelemetryMetrics": ("opentelemetry.metrics", "otel"),
    "PrometheusObserver": ("prometheus_client", "prometheus"),
}


@pytest.mark.parametrize("name", CLASSES)
def test_a_missing_framework_is_asked_for_and_the_other_class_works(
    name: str, tmp_path: Path
) -> None:
    """Nobody installs OpenTelemetry for Prometheus, nor the other way round."""
    framework, extra = CLASSES[name]
    (other,) = CLASSES.keys() - {name}
    code = (
        f"import sys; sys.modules[{framework!r}] = None; import honcho_fallback_metrics as it; "
        f"it.METRICS; it.{other}(); it.{name}"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, check=False
    )
    last = done.stderr.strip().splitlines()[-1]
    assert last == (
        f"ImportError: {name} needs {framework}: pip install 'honcho-fallback[{extra}]', "
        f"in a checkout pip install '.[{extra}]'"
    )


def test_what_is_not_there_is_an_attribute_error() -> None:
    """As with any module."""
    module = __import__("honcho_fallback_metrics")
    with pytest.raises(AttributeError, match="no attribute 'StatsdObserver'"):
        _ = module.StatsdObserver
