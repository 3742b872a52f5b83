"""The dashboard and the alerts that ship in docs/monitoring ask for what there is."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import pytest
import yaml

from honcho_fallback import FailureKind, Outcome
from honcho_fallback.measurements import METRICS, Metric

if TYPE_CHECKING:
    from collections.abc import Iterator

MONITORING = Path(__file__).resolve().parents[2] / "docs" / "monitoring"
OPERATIONS = MONITORING.parent / "operations.md"

# What a label may be, where the package and not the user says so.
VALUES: dict[str, set[str]] = {
    "kind": {"answered", *FailureKind},
    "outcome": set(get_args(Outcome)) - {"running"},
    "limit": {"deadline", "retry_budget"},
}


def dashboard() -> Any:
    return json.loads((MONITORING / "dashboard.json").read_text("utf-8"))


def alerts() -> list[Any]:
    (group,) = yaml.safe_load((MONITORING / "alerts.yaml").read_text("utf-8"))["groups"]
    rules: list[Any] = group["rules"]
    return rules


def queries() -> Iterator[tuple[str, str]]:
    """Yield every query with where it stands."""
    for panel in dashboard()["panels"]:
        for target in panel["targets"]:
            yield f"panel {panel['title']}", target["expr"]
    for variable in dashboard()["templating"]["list"]:
        if variable["type"] == "query":
            yield f"variable {variable['name']}", variable["definition"]
    for rule in alerts():
        yield f"alert {rule['alert']}", rule["expr"]


def series(metric: Metric) -> dict[str, set[str]]:
    """Return the names of a metric's series with their labels."""
    labels = set(metric.labels)
    name = metric.prometheus_name
    if metric.kind != "histogram":
        return {name: labels}
    return {f"{name}_bucket": labels | {"le"}, f"{name}_sum": labels, f"{name}_count": labels}


SERIES = {name: labels for metric in METRICS for name, labels in series(metric).items()}


def test_a_query_asks_for_metrics_labels_and_values_that_exist() -> None:
    """A name that nobody counts under would be an empty panel, or an alert that never fires."""
    for where, query in queries():
        check(where, query)


def check(where: str, query: str) -> None:
    names = re.findall(r"honcho_fallback_\w+", query)
    assert names, where
    for name in names:
        assert name in SERIES, where
    labels = set[str]().union(*(SERIES[name] for name in names))
    for matchers in re.findall(r"honcho_fallback_\w+\{([^}]*)\}", query):
        for label, value in re.findall(r'(\w+)(?:=~|!~|!=|=)"([^"]*)"', matchers):
            assert label in labels, where
            if label in VALUES:
                assert set(value.split("|")) <= VALUES[label], where
    for grouping in re.findall(r"\bby \(([^)]*)\)", query):
        assert set(re.split(r",\s*", grouping)) <= labels, where


def test_every_metric_is_shown_or_watched() -> None:
    """A metric that no panel and no alert asks for is there for nobody."""
    all_queries = " ".join(query for _, query in queries())
    assert [one.name for one in METRICS if one.prometheus_name not in all_queries] == []


def test_the_page_names_every_metric_and_every_alert() -> None:
    """Who reads docs/operations.md learns of all of them, with their labels."""
    page = OPERATIONS.read_text("utf-8")
    for metric in METRICS:
        (row,) = re.findall(rf"^\| `{metric.prometheus_name}` .*$", page, re.MULTILINE)
        assert f"| {' '.join(metric.labels)} |" in row
    for rule in alerts():
        assert f"| {rule['alert']} |" in page


# How a target that is dead for 90 minutes looks: it is probed after 1, 3, 7, 15, 31 and 63.
# A key that is refused once, by a target that then rests for hours, is a series that begins at 1.
INCIDENT = """
rule_files: [{rules}]
evaluation_interval: 30s
tests:
  - interval: 1m
    input_series:
      - series: 'honcho_fallback_cooldown_until_timestamp_seconds{{target="dead"}}'
        values: '60 180 180 420 420 420 420 900x7 1860x15 3780x31 7620x30 0x20'
      - series: 'honcho_fallback_attempts_total{{agent="a",target="t",kind="authentication"}}'
        values: '_x4 1x110'
    promql_expr_test:
      - expr: count by (alertname) (ALERTS{{alertstate="firing"}})
        eval_time: {minute}m
        exp_samples: [{samples}]
"""


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed")
@pytest.mark.parametrize(
    ("minute", "firing"),
    [
        (3, ()),
        (8, ("SomebodyMustAct",)),
        (30, ("ProbeFailing",)),
        (60, ("ProbeFailing",)),
        (85, ("ProbeFailing",)),
        (100, ()),
    ],
)
def test_an_alert_fires_for_as_long_as_a_target_rests(
    tmp_path: Path, minute: int, firing: tuple[str, ...]
) -> None:
    """Rare probes do not silence it, and one refused key is seen though its series begins at 1."""
    samples = ", ".join(f"{{labels: '{{alertname=\"{name}\"}}', value: 1}}" for name in firing)
    script = tmp_path / "incident.yaml"
    rules = json.dumps(str(MONITORING / "alerts.yaml"))
    script.write_text(INCIDENT.format(rules=rules, minute=minute, samples=samples), "utf-8")
    command = ["promtool", "test", "rules", str(script)]
    result = subprocess.run(command, check=False, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout + result.stderr
