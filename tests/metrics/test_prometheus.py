"""What Prometheus sees: the list of metrics, shared registries, several processes."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import pytest
from prometheus_client import CollectorRegistry, Counter, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector, mark_process_dead
from prometheus_client.parser import text_string_to_metric_families

from honcho_fallback import FallbackConfigError, FallbackPolicy, Target
from honcho_fallback.measurements import METRICS
from honcho_fallback_prometheus import PrometheusObserver
from tests.helpers.prometheus import prometheus_figures

if TYPE_CHECKING:
    from tests.helpers.prometheus import Figures

WORKER = Path(__file__).resolve().parents[1] / "helpers" / "metrics_worker.py"


def figures_of(registry: CollectorRegistry) -> Figures:
    return prometheus_figures(generate_latest(registry).decode())


def call_with(observer: PrometheusObserver, agent: str = "deriver") -> None:
    FallbackPolicy([Target("one")], agent=agent, observers=[observer]).call(lambda _: "hello")


def test_the_list_is_what_a_fresh_registry_shows() -> None:
    """METRICS names every metric with its type and help, before the first call."""
    registry = CollectorRegistry()
    PrometheusObserver(registry)
    shown = {
        family.name: (family.type, family.documentation)
        for family in text_string_to_metric_families(generate_latest(registry).decode())
    }
    assert shown == {
        metric.prometheus_name.removesuffix("_total"): (
            metric.kind,
            metric.help,
        )
        for metric in METRICS
    }


def test_names_follow_prometheus_conventions() -> None:
    """Counters end in total, seconds in seconds; labels are those that are bounded."""
    for metric in METRICS:
        assert metric.prometheus_name.endswith("_total") == (metric.kind == "counter")
        assert ("_seconds" in metric.prometheus_name) == (metric.unit == "s")
        assert {*metric.labels} <= {
            "agent",
            "target",
            "outcome",
            "kind",
            "billed",
            "limit",
            "type",
        }


def test_observers_on_one_registry_share_its_metrics() -> None:
    """One per policy counts together, and their labels are bounded together."""
    registry = CollectorRegistry()
    for number in range(4):
        call_with(PrometheusObserver(registry, most_labels=2), f"user-{number}")
    figures = figures_of(registry)
    calls = {key[1]: count for key, count in figures.items() if key[0] == "calls"}
    assert calls == {"user-0": 1, "user-1": 1, "other": 2}


@pytest.mark.parametrize("name", ["honcho_fallback_calls", "honcho_fallback_tokens"])
def test_a_registry_with_other_metrics_of_the_name_is_refused(name: str) -> None:
    """Nothing is counted on what somebody else made."""
    registry = CollectorRegistry()
    Counter(name, "Calls", ["agent"], registry=registry)
    with pytest.raises(FallbackConfigError, match="registry: it has other metrics"):
        PrometheusObserver(registry)


class Worker:
    """A process of its own that calls as it is told."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, str(WORKER), *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PROMETHEUS_MULTIPROC_DIR": str(folder)},
        )
        self.pid = self._process.pid

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def do(self, command: str) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{command}\n")
        self._process.stdin.flush()
        assert self._process.stdout.readline() == "done\n"

    def kill(self) -> None:
        self._process.kill()
        self._process.communicate()


def test_the_figures_of_processes_add_up(tmp_path: Path) -> None:
    """Counters are sums, also over the dead; of a cooldown what was seen last counts."""
    registry = CollectorRegistry()
    MultiProcessCollector(registry, path=str(tmp_path))  # type: ignore[no-untyped-call] # untyped
    with ExitStack() as stack:
        one, two = (stack.enter_context(Worker(tmp_path)) for _ in range(2))
        for worker in (one, two):
            worker.do("call")
        two.do("rest")
        one.do("rest")
        figures: dict[tuple[str, ...], Any] = figures_of(registry)
        assert figures["calls", "deriver", "success", "primary"] == 2
        assert figures["calls", "deriver", "success", "fallback"] == 4
        assert figures["call.duration", "deriver", "success"][0] == 6
        assert figures["cooldown_until_timestamp", "primary"] > 1e9
        two.do("recover")
        assert figures_of(registry)["cooldown_until_timestamp", "primary"] == 0
        two.kill()
        mark_process_dead(two.pid, path=str(tmp_path))  # type: ignore[no-untyped-call] # untyped
        figures = figures_of(registry)
        assert figures["calls", "deriver", "success", "primary"] == 3
