"""The dashboard and the alerts of docs/monitoring, read, and asked of Prometheus' own tool."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import pytest
import yaml

from honcho_fallback import (
    FailureKind,
    Outcome,
)
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


# Incidents as a Prometheus that scrapes each 30 s sees them: the series, and by the minute what
# fires. `_` is a scrape without the series, `stale` the first one after a process has gone.
CALLS = 'honcho_fallback_calls_total{agent="chat",outcome="exhausted",target="nobody"}'
ENDED = 'honcho_fallback_calls_ended_by_limit_total{agent="chat",limit="%s"}'
TRIED = 'honcho_fallback_attempts_total{agent="chat",target="gpt",kind="%s"}'
ANSWERED = 'honcho_fallback_calls_total{agent="chat",outcome="success",target="%s"}'
BY_FALLBACK = 'honcho_fallback_answers_by_fallback_total{agent="chat",target="claude"}'
RESTS = 'honcho_fallback_cooldown_until_timestamp_seconds{target="gpt"}'
INCIDENTS: dict[str, tuple[dict[str, str], dict[float, set[str]]]] = {
    "the first call of a fresh process is answered by nobody": (
        {CALLS: "_x4 1x80"},
        {1.5: set(), 3: {"NobodyAnswered"}, 6: {"NobodyAnswered"}, 9: set()},
    ),
    "a fresh process runs out of time, and of its budget": (
        {ENDED % "deadline": "_x4 1x80", ENDED % "retry_budget": "_x4 1x80"},
        {3: {"DeadlinePassed", "RetryBudgetUsedUp"}, 9: set()},
    ),
    "it happens over again": (
        {CALLS: "0x4 1x40 2x40"},
        {1.5: set(), 3: {"NobodyAnswered"}, 15: set(), 24: {"NobodyAnswered"}, 35: set()},
    ),
    "a process dies of it": (
        {CALLS: "0x4 3x3 stale"},
        {3: {"NobodyAnswered"}, 5: {"NobodyAnswered"}, 12: set()},
    ),
    "a dead key, and a restart with the same key": (
        {TRIED % "authentication": "_x6 1x34 stale _x3 1x80"},
        {5: {"SomebodyMustAct"}, 20: set(), 25: {"SomebodyMustAct"}, 45: set()},
    ),
    "a restart behind which all is well": (
        {CALLS: "0x20 stale _x2 0x40", ANSWERED % "gpt": "0+30x20 stale _x2 0+30x40"},
        {5: set(), 10: set(), 12: set(), 25: set()},
    ),
    "a target rests for hours, and is probed ever more rarely": (
        {RESTS: "60x1 180x3 420x7 900x15 1860x31 3780x63 7620x61 0x40"},
        {
            3: set(),
            8: set(),
            30: {"ProbeFailing"},
            60: {"ProbeFailing"},
            85: {"ProbeFailing"},
            100: set(),
        },
    ),
    "one blip, which the fallback answered": (
        {
            TRIED % "answered": "0+30x80",
            TRIED % "overloaded": "_x10 1x70",
            ANSWERED % "gpt": "0+30x80",
            ANSWERED % "claude": "_x10 1x70",
            BY_FALLBACK: "_x10 1x70",
        },
        {6: set(), 8: set(), 20: set(), 35: set()},
    ),
    "the primary is gone for half an hour, and the fallback answers": (
        {
            TRIED % "answered": "0+30x20 600x60 630+30x60",
            # Asked once in its rests, which are of five minutes in the end.
            TRIED % "overloaded": "_x20 1+1x5 7x4 8x9 9x9 10x9 11x9 12x9 12x60",
            ANSWERED % "gpt": "0+30x20 600x60 630+30x60",
            ANSWERED % "claude": "_x20 30+30x60 1830x60",
            BY_FALLBACK: "_x20 30+30x60 1830x60",
            RESTS: "_x20 640x4 700x6 900x10 1200x10 1500x10 1800x10 2100x10 0x60",
        },
        {
            9: set(),
            28: {"FallbackShare", "ModelDown", "ProbeFailing"},
            45: {"FallbackShare"},
            62: set(),
        },
    ),
}
SCRIPT = """
rule_files: [{rules}]
evaluation_interval: 30s
tests:
  - interval: 30s
    input_series: {series}
    promql_expr_test: {expected}
"""


needs_promtool = pytest.mark.skipif(
    shutil.which("promtool") is None, reason="promtool is not installed"
)


@needs_promtool
@pytest.mark.parametrize("incident", INCIDENTS)
def test_the_alerts_of_an_incident(tmp_path: Path, incident: str) -> None:
    """What fires, and what stays quiet, where real processes begin, die and begin again."""
    series, firing = INCIDENTS[incident]
    expected = [
        {
            "expr": 'count by (alertname) (ALERTS{alertstate="firing"})',
            "eval_time": f"{int(minute * 60)}s",
            "exp_samples": [
                {"labels": f'{{alertname="{name}"}}', "value": 1} for name in sorted(names)
            ],
        }
        for minute, names in firing.items()
    ]
    check_incident(tmp_path, series, expected)


def check_incident(folder: Path, series: dict[str, str], expected: list[dict[str, Any]]) -> None:
    """Ask promtool whether Prometheus would answer as expected."""
    given = [{"series": name, "values": values} for name, values in series.items()]
    script = folder / "incident.yaml"
    rules = json.dumps(str(MONITORING / "alerts.yaml"))
    script.write_text(
        SCRIPT.format(rules=rules, series=json.dumps(given), expected=json.dumps(expected)),
        "utf-8",
    )
    command = ["promtool", "test", "rules", str(script)]
    result = subprocess.run(command, check=False, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout + result.stderr


# An incident that goes on: of five calls in a second four are answered, three of them by the
# fallback, and half of the requests fail.
STEADY = {
    ANSWERED % "gpt": "0+30x20",
    ANSWERED % "claude": "0+90x20",
    CALLS: "0+30x20",
    BY_FALLBACK: "0+90x20",
    TRIED % "overloaded": "0+120x20",
    TRIED % "answered": "0+120x20",
    ENDED % "deadline": "0+30x20",
    RESTS: "1000x20",
    'honcho_fallback_switches_total{agent="chat",target="gpt",kind="overloaded"}': "0+90x20",
    'honcho_fallback_probes_total{target="gpt",kind="overloaded"}': "0+1x20",
    'honcho_fallback_tokens_total{agent="chat",target="gpt",type="input"}': "0+30x20",
} | {
    f'honcho_fallback_{name}_seconds_bucket{{{labels},le="{le}"}}': "0+30x20"
    for name, labels in {
        "call_duration": 'agent="chat",outcome="success"',
        "attempt_duration": 'target="gpt"',
        "time_to_first_token": 'agent="chat",target="gpt"',
    }.items()
    for le in ("1", "+Inf")
}
# By panel, the labels of what it shows, and what each of its queries says of them.
PANELS: dict[str, tuple[dict[str, float], ...]] = {
    "Answered": ({"{}": 0.8},),
    "By a fallback": ({"{}": 0.75},),
    "Wasted requests": ({"{}": 0.5},),
    "Calls per second": ({"{}": 5},),
    "Calls by outcome": ({'{outcome="exhausted"}': 1, '{outcome="success"}': 4},),
    "Answers by target": ({'{target="claude"}': 3, '{target="gpt"}': 1},),
    "Failed requests by target and kind": ({'{kind="overloaded",target="gpt"}': 4},),
    "Switches": ({'{kind="overloaded",target="gpt"}': 3},),
    "Resting targets": ({'{target="gpt"}': 1},),
    "Probes": ({'{kind="overloaded",target="gpt"}': 16},),
    "Duration of calls": ({'{agent="chat"}': 0.5}, {'{agent="chat"}': 0.95}),
    "Duration of requests": ({'{target="gpt"}': 0.5}, {'{target="gpt"}': 0.95}),
    "Time to first token": ({'{agent="chat"}': 0.5}, {'{agent="chat"}': 0.95}),
    "Tokens": ({'{target="gpt",type="input"}': 60},),
    "Calls ended by a limit": ({'{agent="chat",limit="deadline"}': 1},),
}


def asked(query: str, values: dict[str, float]) -> dict[str, Any]:
    """Return a query of a panel, as Grafana asks it, with what is expected."""
    expression = query.replace("$agent", ".*").replace("$__rate_interval", "2m")
    samples = [{"labels": labels, "value": value} for labels, value in values.items()]
    return {"expr": expression, "eval_time": "8m", "exp_samples": samples}


@needs_promtool
def test_each_panel_shows_what_the_incident_is(tmp_path: Path) -> None:
    """No panel is empty or wrong; where nobody ever answered, 0 % of the calls are answered."""
    panels = {
        panel["title"]: [target["expr"] for target in panel["targets"]]
        for panel in dashboard()["panels"]
    }
    assert panels.keys() == PANELS.keys()
    expected = [
        asked(query, values)
        for title, shown in PANELS.items()
        for query, values in zip(panels[title], shown, strict=True)
    ]
    check_incident(tmp_path, STEADY, expected)
    check_incident(tmp_path, {CALLS: "0+30x20"}, [asked(panels["Answered"][0], {"{}": 0})])
