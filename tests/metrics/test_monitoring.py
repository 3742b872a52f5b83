"""The dashboard and the alerts that ship in docs/monitoring, read, and asked of a real Prometheus.

It scrapes a service that lives through an incident: the panels and the rules answer what that was.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import time
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import httpx
import pytest
import yaml
from prometheus_client import CollectorRegistry, start_http_server

from honcho_fallback import (
    Cooldown,
    DeadlineExceeded,
    FailureKind,
    FallbackConfig,
    FallbackExhausted,
    FallbackPolicy,
    Outcome,
    Runtime,
    Target,
)
from honcho_fallback.measurements import METRICS
from honcho_fallback.testing import Clock, StatusError
from honcho_fallback_prometheus import PrometheusObserver
from tests.helpers.redis_server import free_port

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from honcho_fallback import Attempt


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


# What a histogram's names end with, and the labels that they have more.
PARTS: dict[str, set[str]] = {"_bucket": {"le"}, "_sum": set(), "_count": set()}
SERIES: dict[str, set[str]] = {
    f"{metric.prometheus_name}{ending}": {*metric.labels, *more}
    for metric in METRICS
    for ending, more in (PARTS if metric.kind == "histogram" else {"": set[str]()}).items()
}


def test_a_query_asks_for_metrics_labels_and_values_that_exist() -> None:
    """A name that nobody counts under would be an empty panel, or an alert that never fires."""
    for where, query in queries():
        names = re.findall(r"honcho_fallback_\w+", query)
        assert names, where
        assert SERIES.keys() >= {*names}, where
        labels = set[str]().union(*(SERIES[name] for name in names))
        matchers = " ".join(re.findall(r"honcho_fallback_\w+\{([^}]*)\}", query))
        for label, value in re.findall(r'(\w+)(?:=~|!~|!=|=)"([^"]*)"', matchers):
            assert label in labels, where
            values = set(value.split("|"))
            assert values <= VALUES.get(label, values), where
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


# By their names: the series of each incident, and by the minute what fires.
INCIDENTS: dict[str, Any] = yaml.safe_load(
    Path(__file__).with_name("incidents.yaml").read_text("utf-8")
)
IN_AN_OUTAGE = "a process is started in an outage"
SCRIPT = """
rule_files: [{rules}]
evaluation_interval: 30s
tests:
  - interval: 30s
    input_series: {series}
    promql_expr_test: {expected}
"""


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed")
@pytest.mark.parametrize("incident", INCIDENTS)
def test_the_alerts_of_an_incident(tmp_path: Path, incident: str) -> None:
    """What fires, and what stays quiet, where real processes begin, die and begin again.

    Where nobody ever answered, 0 % of the calls are answered from the first minute of a process
    that is started in an outage: that panel is not empty.
    """
    series, firing = (INCIDENTS[incident][what] for what in ("series", "firing"))
    expected = [
        {
            "expr": 'count by (alertname) (ALERTS{alertstate="firing"})',
            "eval_time": f"{int(minute * 60)}s",
            "exp_samples": [
                {"labels": f'{{alertname="{name}"}}', "value": 1} for name in sorted(names.split())
            ],
        }
        for minute, names in firing.items()
    ]
    if incident == IN_AN_OUTAGE:
        (query,) = panels()["Answered"]
        none = [{"labels": "{}", "value": 0}]
        expected.append({"expr": query, "eval_time": "8m", "exp_samples": none})
    given = [{"series": name, "values": values} for name, values in series.items()]
    script = tmp_path / "incident.yaml"
    rules = json.dumps(str(MONITORING / "alerts.yaml"))
    script.write_text(
        SCRIPT.format(rules=rules, series=json.dumps(given), expected=json.dumps(expected)),
        "utf-8",
    )
    command = ["promtool", "test", "rules", str(script)]
    result = subprocess.run(command, check=False, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout + result.stderr


PROGRAM = shutil.which("prometheus")
WITHIN = 60.0  # seconds for what takes one or two
scraped = pytest.mark.skipif(PROGRAM is None, reason="prometheus is not installed")
CONFIG = """
global: {{scrape_interval: 1s, evaluation_interval: 1s}}
rule_files: [{rules}]
scrape_configs:
  - job_name: service
    static_configs: [{{targets: ["127.0.0.1:{port}"]}}]
"""


class Prometheus(httpx.Client):
    """Ask the real one."""

    def data(self, path: str, **parameters: str) -> Any:
        response = self.get(f"/api/v1/{path}", params=parameters)
        assert response.status_code == 200, response.text
        return response.json()["data"]

    def query(self, expression: str) -> dict[tuple[str, ...], float]:
        """Return the values by the values of the labels, in the order of the labels' names."""
        data = self.data("query", query=expression)
        assert data["resultType"] == "vector"
        return {
            tuple(one["metric"][name] for name in sorted(one["metric"])): float(one["value"][1])
            for one in data["result"]
        }

    def wait_for(self, what: str, is_there: Any) -> None:
        until = time.monotonic() + WITHIN
        while True:
            with suppress(httpx.TransportError):
                if is_there():
                    return
            assert time.monotonic() < until, f"there is no {what}"
            time.sleep(0.1)

    def wait_for_calls(self, number: int) -> None:
        calls = "sum(honcho_fallback_calls_total)"
        self.wait_for(f"scrape of {number} calls", lambda: self.query(calls) == {(): number})


@contextmanager
def prometheus(folder: Path, scraped: int) -> Generator[Prometheus, None, None]:
    """Run it until the block ends."""
    port, config = free_port(), folder / "prometheus.yaml"
    rules = json.dumps(str(MONITORING / "alerts.yaml"))
    config.write_text(CONFIG.format(rules=rules, port=scraped), "utf-8")
    command = [
        str(PROGRAM),
        f"--config.file={config}",
        f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}",
    ]
    url = f"http://127.0.0.1:{port}"
    quiet = subprocess.DEVNULL
    with (
        Prometheus(base_url=url, trust_env=False, timeout=10) as asked,
        subprocess.Popen(command, stdout=quiet, stderr=quiet) as process,
    ):
        try:
            # While it still starts it listens, and answers 503.
            asked.wait_for("Prometheus", lambda: asked.get("/-/ready").status_code == 200)
            yield asked
        finally:
            process.terminate()


@pytest.fixture(scope="module")
def incident(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    """All is well; then the primary is overloaded, then its key dead, then both are down.

    Time goes on only where something is slow. All of it happens twice, the second time under the
    eyes of Prometheus: what appears and never counts again is no increase.
    """
    registry, clock, cooldown = CollectorRegistry(), Clock(), Cooldown(after=1, base=600)
    observers = [PrometheusObserver(registry)]
    hello = {"text": "hello", "usage": {"input_tokens": 100, "output_tokens": 10}}
    overloaded, refused = StatusError(503), StatusError(401)
    down: list[Any] = [overloaded, TimeoutError()]

    def call(agent: str, replies: list[Any], slow: float = 0, **options: Any) -> None:
        chain = [Target("primary", identity="one"), Target("backup", identity="two")]
        policy = FallbackPolicy(
            chain,
            FallbackConfig(wait=0, **options),
            agent=agent,
            observers=observers,
            runtime=replace(Runtime(), monotonic=clock),
        )

        def ask(attempt: Attempt) -> Any:
            clock.advance(slow)
            reply = replies[attempt.position]
            if isinstance(reply, Exception):
                raise reply
            return reply

        with suppress(FallbackExhausted, DeadlineExceeded):
            policy.call(ask)
        if agent == "chat":
            with suppress(FallbackExhausted):
                list(policy.stream(lambda attempt: iter([ask(attempt)["text"]])))

    def play() -> None:
        for replies in ([hello], [overloaded, hello], [refused, hello], down):
            call("chat", replies)
        call("judge", down, slow=10, deadline=5)
        for seconds in (0, 0, 2000, 0):  # it fails, rests, is probed in vain, rests again
            clock.advance(seconds)
            call("rests", [overloaded, hello], cooldown=cooldown)

    play()
    with ExitStack() as stack:
        port = free_port()
        server, thread = start_http_server(port, "127.0.0.1", registry)
        stack.callback(thread.join)
        stack.callback(server.server_close)
        stack.callback(server.shutdown)
        asked = stack.enter_context(prometheus(tmp_path_factory.mktemp("prometheus"), port))
        asked.wait_for_calls(13)
        play()
        asked.wait_for_calls(26)
        yield asked


# By panel, for each of its queries: the values by labels in the order of their names; those that
# depend on how long a scrape takes are somewhere above 0. Of 13 calls in a round 10 are answered,
# 8 of them by the fallback; of 23 requests 13 fail.
SOME = None
PANELS: dict[str, list[dict[tuple[str, ...], float | None]]] = {
    "Answered": [{(): 10 / 13}],
    "By a fallback": [{(): 8 / 10}],
    "Wasted requests": [{(): 13 / 23}],
    "Calls per second": [{(): SOME}],
    "Calls by outcome": [{("exhausted",): SOME, ("success",): SOME}],
    "Answers by target": [{("backup",): SOME, ("primary",): SOME}],
    "Failed requests by target and kind": [
        {
            ("authentication", "primary"): SOME,
            ("overloaded", "primary"): SOME,
            ("timeout", "backup"): SOME,
        }
    ],
    "Switches": [{("authentication", "primary"): SOME, ("overloaded", "primary"): SOME}],
    "Resting targets": [{("primary",): 1}],
    "Probes": [{("overloaded", "primary"): SOME}],
    "Duration of calls": [{("chat",): SOME, ("judge",): SOME, ("rests",): SOME}] * 2,
    "Duration of requests": [{("backup",): SOME, ("primary",): SOME}] * 2,
    "Time to first token": [{("chat",): SOME}] * 2,
    "Tokens": [
        {(target, kind): SOME for target in ("backup", "primary") for kind in ("input", "output")}
    ],
    "Calls ended by a limit": [{("judge", "deadline"): SOME}],
}


def panels() -> dict[str, list[str]]:
    """Return the queries of the dashboard's panels, as Grafana asks them."""
    return {
        panel["title"]: [
            target["expr"].replace("$agent", ".*").replace("$__rate_interval", "1m")
            for target in panel["targets"]
        ]
        for panel in dashboard()["panels"]
    }


@scraped
@pytest.mark.timeout(240)
def test_each_panel_shows_what_the_incident_was(incident: Prometheus) -> None:
    """Who failed with what, who answered, what was slow, who rests: no panel is empty or wrong."""
    queries = panels()
    assert queries.keys() == PANELS.keys()
    for title, expected in PANELS.items():
        for query, values in zip(queries[title], expected, strict=True):
            shown = {labels: value for labels, value in incident.query(query).items() if value}
            assert shown.keys() == values.keys(), title
            for labels, value in values.items():
                assert shown[labels] > 0, title
                assert value is None or shown[labels] == pytest.approx(value, rel=0.1), title


@scraped
@pytest.mark.timeout(240)
def test_the_rules_are_evaluated_and_fire(incident: Prometheus) -> None:
    """Prometheus takes the file as it stands; that somebody has to act is known at once."""
    fires = {"NobodyAnswered", "DeadlinePassed", "SomebodyMustAct"}

    def states() -> dict[str, set[str]]:
        (group,) = incident.data("rules")["groups"]
        assert {rule["health"] for rule in group["rules"]} == {"ok"}
        names: dict[str, set[str]] = {}
        for rule in group["rules"]:
            names.setdefault(rule["state"], set()).add(rule["name"])
        return names

    incident.wait_for(f"alert {fires}", lambda: states().get("firing") == fires)
    assert states()["inactive"] >= {"RetryBudgetUsedUp", "SlowFirstToken"}
