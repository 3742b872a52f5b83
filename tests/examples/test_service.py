"""examples/service.py under load, while its primary dies and comes back: the books agree."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from honcho_fallback.records import read_records
from tests.helpers.langfuse_server import stored
from tests.helpers.otlp import otlp_receiver
from tests.helpers.provider import Provider, ProviderServer, Reply
from tests.helpers.redis_server import free_port

if TYPE_CHECKING:
    from collections.abc import Generator

SERVICE = Path(__file__).resolve().parents[2] / "examples" / "service.py"
REQUESTS = 2000
AT_ONCE = 100
REST = 1  # seconds of each cooldown, as the primary says in its Retry-After
STARTS_WITHIN, ENDS_WITHIN = 120, 60

# A process that imports LangChain and Langfuse, beside whatever else the machine does.
pytestmark = pytest.mark.timeout(300)


class Answer(NamedTuple):
    """What a client of the service gets."""

    status: int
    text: str
    attempts: tuple[str, ...]  # whom the service says that it asked
    workspace: str


@contextmanager
def service(
    folder: Path, providers: ProviderServer, langfuse_url: str
) -> Generator[tuple[subprocess.Popen[bytes], str], None, None]:
    """Run the example until the block ends."""
    port = free_port()
    environ = {name: text for name, text in os.environ.items() if "proxy" not in name.lower()}
    environ |= {
        "PORT": str(port),
        "RECORDS": str(folder / "calls.jsonl"),
        "OPENAI_API_KEY": "not-a-key",
        "OPENAI_BASE_URL": f"{providers.url}/primary",
        "ANTHROPIC_API_KEY": "not-a-key",
        "ANTHROPIC_BASE_URL": f"{providers.url}/backup",
        "LANGFUSE_PUBLIC_KEY": "pk-service",
        "LANGFUSE_SECRET_KEY": "sk-service",
        "LANGFUSE_BASE_URL": langfuse_url,
        "LANGFUSE_TIMEOUT": "30",  # the receiver shares this process with a hundred clients
    }
    log = folder / "service.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, SERVICE],
            env=environ,
            cwd=folder,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        until = time.monotonic() + STARTS_WITHIN
        while b"Application startup complete" not in log.read_bytes():
            if process.poll() is not None or time.monotonic() > until:
                pytest.fail(f"the service did not start:\n{log.read_text('utf-8')[-3000:]}")
            time.sleep(0.1)
        yield process, f"http://127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()


class Clients:
    """Ask the service, so many at once."""

    def __init__(self, url: str) -> None:
        self.answers: list[Answer] = []
        self._client = httpx.Client(base_url=url, timeout=60, trust_env=False)
        self._pool = ThreadPoolExecutor(AT_ONCE)

    def send(self, requests: int) -> list[Answer]:
        """Ask so often, and return the answers."""
        first = len(self.answers)
        answers = [*self._pool.map(self._ask, range(first, first + requests))]
        self.answers += answers
        return answers

    def scrape(self) -> dict[str, Counter[tuple[str, ...]]]:
        """Return the counters by name, each with its values by the values of its labels."""
        counters: dict[str, Counter[tuple[str, ...]]] = {}
        text = self._client.get("/metrics").raise_for_status().text
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                values = tuple(sample.labels[name] for name in sorted(sample.labels))
                counter = counters.setdefault(sample.name, Counter())
                counter[values] += int(sample.value)
        return counters

    def close(self) -> None:
        self._pool.shutdown()
        self._client.close()

    def _ask(self, number: int) -> Answer:
        workspace = f"workspace-{number % 7}"
        body = {"text": "hello", "workspace": workspace}
        response = self._client.post("/chat", json=body)
        if response.status_code != 200:
            return Answer(response.status_code, response.text, (), workspace)
        answer = response.json()
        attempts = tuple(each["target"] for each in answer["fallback"]["attempts"])
        return Answer(200, answer["text"], attempts, workspace)


def live_through_an_outage(clients: Clients, primary: Provider) -> None:
    """Send all requests: while nothing is wrong, while the primary is dead, and afterwards."""
    assert {one.text for one in clients.send(300)} == {"hello from primary"}
    dead = Reply(status=503, headers={"retry-after": str(REST)})
    # In the middle of the calls under way.
    primary.standing = lambda _: Reply() if len(primary.requests) < 450 else dead
    clients.send(300)
    while len(clients.answers) < 1200:
        assert {one.text for one in clients.send(100)} == {"hello from backup"}
    primary.standing = Reply()
    while clients.answers[-1].text != "hello from primary":
        clients.send(100)
    clients.send(max(0, REQUESTS - len(clients.answers)))


def test_metrics_records_and_generations_agree_to_the_call(tmp_path: Path) -> None:
    """2,000 requests, 100 at a time: none is lost, and every book tells the same of each."""
    with ProviderServer() as providers, otlp_receiver() as langfuse:
        with service(tmp_path, providers, langfuse.base_url) as (process, url):
            clients = Clients(url)
            live_through_an_outage(clients, providers["primary"])
            figures = clients.scrape()
            clients.close()
            process.terminate()  # uvicorn ends well
            process.wait(ENDS_WITHIN)
        requests = Counter(providers.order)
        generations = [stored(span) for span in langfuse.spans]

    answers = clients.answers
    assert len(answers) >= REQUESTS
    assert {one.status for one in answers} == {200}
    attempts = Counter(target for one in answers for target in one.attempts)
    primary, backup = "openai/gpt-5.5", "anthropic/claude-sonnet-5"
    assert attempts == {primary: requests["primary"], backup: requests["backup"]}

    records = {one.call_id: one for one in read_records(tmp_path / "calls.jsonl")}
    assert len(records) == len(answers)
    assert Counter(
        (tuple(each.target for each in one.attempts), (one.metadata or {})["workspace"])
        for one in records.values()
    ) == Counter((one.attempts, one.workspace) for one in answers)

    calls = records.values()
    attempted = [(call, attempt) for call in calls for attempt in call.attempts]
    expected = {
        "calls": Counter((call.agent, call.outcome, str(call.answered_by)) for call in calls),
        "answers_by_fallback": Counter(("chat", backup) for call in calls if call.is_fallback),
        "call_duration_seconds_count": Counter((call.agent, call.outcome) for call in calls),
        "attempts": Counter(
            (call.agent, one.billed, one.kind or "answered", one.target) for call, one in attempted
        ),
        "switches": Counter(
            (call.agent, str(call.attempts[0].kind), primary)
            for call in calls
            if len(call.attempts) == 2
        ),
        "probes": Counter(
            (one.kind or "answered", one.target) for _, one in attempted if one.is_probe
        ),
    }
    for name, counter in expected.items():
        total = "" if name.endswith("count") else "_total"
        assert figures[f"honcho_fallback_{name}{total}"] == counter, name

    assert len(generations) == len(records)
    for generation in generations:
        record = records.pop(generation.metadata["call_id"])
        assert generation.metadata["is_fallback"] is record.is_fallback
        assert generation.metadata["attempt_count"] == len(record.attempts)
        assert generation.metadata["workspace"] == (record.metadata or {})["workspace"]
    assert records == {}
