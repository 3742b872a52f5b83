"""A real Prometheus scrapes a service that lives through an incident: it answers what that was.

The dashboard's queries and the rules of the alerts are asked as they stand in docs/monitoring.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import threading
import time
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from prometheus_client import CollectorRegistry, start_http_server

from honcho_fallback import (
    Cooldown,
    DeadlineExceeded,
    FallbackConfig,
    FallbackExhausted,
    FallbackPolicy,
    Runtime,
    Target,
)
from honcho_fallback.testing import Clock, StatusError
from honcho_fallback_prometheus import PrometheusObserver
from tests.helpers.redis_server import free_port

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from prometheus_client import Metric

    from honcho_fallback import Attempt

MONITORING = Path(__file__).resolve().parents[2] / "docs" / "monitoring"
PROGRAM = shutil.which("prometheus")
WITHIN = 60.0  # seconds for what takes one or two
CONFIG = """
global: {{scrape_interval: 1s, evaluation_interval: 1s}}
rule_files: [{rules}]
scrape_configs:
  - job_name: service
    static_configs: [{{targets: ["127.0.0.1:{port}"]}}]
"""

pytestmark = [
    pytest.mark.skipif(PROGRAM is None, reason="prometheus is not installed"),
    pytest.mark.timeout(240),
]


class Rounds(CollectorRegistry):
    """Be scraped between two rounds of calls, never in the middle of one."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = threading.Lock()

    def collect(self) -> Iterator[Metric]:
        with self.gate:
            yield from super().collect()


class Service:
    """Make calls, in a time that goes on only where something is slow; count them for a scrape.

    The calls of each phase are counted twice, with a scrape in between: what appears and never
    counts again is no increase.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self.failing: dict[str, Exception] = {}
        self.slow = 0.0
        self.clock = Clock()
        self._observers = [PrometheusObserver(registry)]

    def call(self, agent: str, *, stream: bool = False, **options: Any) -> None:
        config = FallbackConfig(wait=0, **options)
        policy = self.policy(agent, config)
        with suppress(FallbackExhausted, DeadlineExceeded, StatusError):
            if stream:
                list(policy.stream(lambda attempt: iter([self._ask(attempt)["text"]])))
            else:
                policy.call(self._ask)

    def policy(self, agent: str, config: FallbackConfig) -> FallbackPolicy:
        chain = [Target("primary", identity="one"), Target("backup", identity="two")]
        runtime = replace(Runtime(), monotonic=self.clock)
        return FallbackPolicy(
            chain, config, agent=agent, observers=self._observers, runtime=runtime
        )

    def _ask(self, attempt: Attempt) -> dict[str, Any]:
        self.clock.advance(self.slow)
        if attempt.target.name in self.failing:
            raise self.failing[attempt.target.name]
        return {"text": "hello", "usage": {"input_tokens": 100, "output_tokens": 10}}


class Prometheus:
    """Ask the real one."""

    def __init__(self, url: str) -> None:
        self._client = httpx.Client(base_url=url, trust_env=False, timeout=10)

    def close(self) -> None:
        self._client.close()

    def is_ready(self) -> bool:
        """Tell whether it answers queries: it listens, and answers 503, while it still starts."""
        return self._client.get("/-/ready").status_code == 200

    def get(self, path: str, **parameters: str) -> Any:
        response = self._client.get(f"/api/v1/{path}", params=parameters)
        assert response.status_code == 200, response.text
        return response.json()["data"]

    def query(self, expression: str) -> dict[tuple[str, ...], float]:
        """Return the values by the values of the labels, in the order of the labels' names."""
        data = self.get("query", query=expression)
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

    def scraped(self, registry: CollectorRegistry) -> None:
        """Wait until it has seen every call that was counted."""
        calls = sum(
            sample.value
            for family in registry.collect()
            for sample in family.samples
            if sample.name == "honcho_fallback_calls_total"
        )
        self.wait_for(
            f"scrape of {calls} calls",
            lambda: self.query("sum(honcho_fallback_calls_total)") == {(): calls},
        )


@contextmanager
def prometheus(folder: Path, scraped: int) -> Generator[Prometheus, None, None]:
    """Run it until the block ends."""
    port = free_port()
    config = folder / "prometheus.yaml"
    rules = json.dumps(str(MONITORING / "alerts.yaml"))
    config.write_text(CONFIG.format(rules=rules, port=scraped), "utf-8")
    command = [
        str(PROGRAM),
        f"--config.file={config}",
        f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}",
        "--log.level=warn",
    ]
    with (folder / "prometheus.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    asked = Prometheus(f"http://127.0.0.1:{port}")
    try:
        asked.wait_for("Prometheus", asked.is_ready)
        yield asked
    finally:
        asked.close()
        process.terminate()
        process.wait(WITHIN)


@pytest.fixture(scope="module")
def incident(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    """All is well; then the primary is overloaded, then its key dead, then both are down."""
    registry = Rounds()
    service = Service(registry)
    cooldown = Cooldown(after=1, base=600)
    overloaded, refused, hangs = StatusError(503), StatusError(401), TimeoutError()
    phases: list[dict[str, Exception]] = [
        {},
        {"primary": overloaded},
        {"primary": refused},
        {"primary": overloaded, "backup": hangs},
    ]
    with ExitStack() as stack:
        port = free_port()
        server, thread = start_http_server(port, "127.0.0.1", registry)
        stack.callback(thread.join)
        stack.callback(server.server_close)
        stack.callback(server.shutdown)
        asked = stack.enter_context(prometheus(tmp_path_factory.mktemp("prometheus"), port))
        for _ in range(2):
            with registry.gate:
                for service.failing in phases:
                    service.call("chat")
                    service.call("chat", stream=True)
                service.slow = 10.0
                service.call("judge", deadline=5)  # while both are down
                service.slow = 0.0
                service.failing = phases[1]
                for seconds in (0, 0, 2000, 0):  # it fails, rests, is probed in vain, rests again
                    service.clock.advance(seconds)
                    service.call("rests", cooldown=cooldown)
            asked.scraped(registry)
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
        for panel in json.loads((MONITORING / "dashboard.json").read_text("utf-8"))["panels"]
    }


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


def test_the_rules_are_evaluated_and_fire(incident: Prometheus) -> None:
    """Prometheus takes the file as it stands; that somebody has to act is known at once."""
    fires = {"NobodyAnswered", "DeadlinePassed", "SomebodyMustAct"}

    def states() -> dict[str, set[str]]:
        (group,) = incident.get("rules")["groups"]
        assert {rule["health"] for rule in group["rules"]} == {"ok"}
        names: dict[str, set[str]] = {}
        for rule in group["rules"]:
            names.setdefault(rule["state"], set()).add(rule["name"])
        return names

    incident.wait_for(f"alert {fires}", lambda: states().get("firing") == fires)
    assert states()["inactive"] >= {"RetryBudgetUsedUp", "SlowFirstToken"}
