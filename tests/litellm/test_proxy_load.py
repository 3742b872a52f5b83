"""A Proxy with two workers, as examples/litellm_proxy/production.yaml has it, in an outage."""

from __future__ import annotations

import threading
from collections import Counter
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, as_completed, wait
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import islice, pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import httpx
import pytest

from honcho_fallback.records import read_records
from tests.helpers.litellm_proxy import KEY, PACKAGES, start_proxy, stop_proxies, wait_for_proxy
from tests.helpers.prometheus import prometheus_figures
from tests.helpers.provider import Provider, ProviderServer, Reply, SeenRequest
from tests.helpers.redis_server import free_port, redis_server

if TYPE_CHECKING:
    import subprocess
    from concurrent.futures import Future
    from contextlib import AbstractContextManager

    from honcho_fallback import CallRecord

for needed in PACKAGES:
    pytest.importorskip(needed, reason="the Proxy's own packages are not installed")
pytest.importorskip("prometheus_client", reason="the example of a Proxy needs it")

CONFIG = Path(__file__).resolve().parents[2] / "examples" / "litellm_proxy" / "production.yaml"
AT_ONCE = 50
REQUESTS = 1000
REST = 1  # seconds of each cooldown, as the primary says in its Retry-After

# Two workers import LiteLLM first, beside whatever else the machine does.
pytestmark = pytest.mark.timeout(450)


def told(answer: httpx.Response, what: str) -> str:
    return str(answer.headers[f"x-honcho-fallback-{what}"])


def check(answer: httpx.Response) -> None:
    """See that it is an answer, and that its headers tell the truth about it."""
    assert answer.status_code == 200, answer.text
    answered_by = told(answer, "answered-by")
    text = answer.json()["choices"][0]["message"]["content"]
    assert text == f"hello from {answered_by}"
    assert answer.headers["x-litellm-model-id"] == answered_by
    assert told(answer, "primary") == "primary"
    switched = "x-honcho-fallback-reason" in answer.headers
    assert int(told(answer, "attempts")) == 1 + switched
    if switched:
        assert (told(answer, "reason"), answered_by) == ("overloaded", "backup")


class Patient(threading.Event):
    """An event for which a provider waits longer than it otherwise would."""

    def wait(self, timeout: float | None = None) -> bool:
        return super().wait(55)


def asked(provider: Provider) -> list[SeenRequest]:
    """Return a provider's requests, without those by which LiteLLM lists its models."""
    return [one for one in provider.requests if one.path in {"chat/completions", "v1/messages"}]


@dataclass
class Outage:
    """Send clients through its phases, so many at once; each request may go to any worker.

    Attributes:
        unwarned: Failures of a primary that was not known to be down, up to the last look.
    """

    client: httpx.Client
    pool: ThreadPoolExecutor
    primary: Provider
    backup: Provider
    records: Path
    log: Path
    answers: list[httpx.Response] = field(default_factory=list[httpx.Response])
    unwarned: int = 0

    def nothing_is_wrong(self) -> None:
        assert self._answering(100) == {"primary"}
        assert len(asked(self.primary)) == 100

    def the_primary_dies(self) -> None:
        """Whoever is under way finds out; afterwards one call of all workers asks it per rest."""
        self.primary.fail(503, headers={"retry-after": str(REST)})
        assert self._answering(100) == {"backup"}
        assert 0 < self._new_unwarned() <= AT_ONCE
        known = len(asked(self.primary))
        while len(asked(self.primary)) < known + 3:
            self._answering(AT_ONCE)
        # No clock of the test's: Redis lets nobody ask before the rest after a failure is over.
        for earlier, later in pairwise(asked(self.primary)[known - 1 :]):
            assert earlier.answered is not None
            assert later.at - earlier.answered > 0.95 * REST
        assert self._new_unwarned() == 0

    def redis_dies(self, redis: subprocess.Popen[bytes]) -> None:
        """Each worker goes by its memory, and still knows of the primary."""
        pending = self._under_way(200)
        redis.kill()
        redis.wait()
        assert {told(answer, "answered-by") for answer in self._receive(pending)} == {"backup"}
        assert self._new_unwarned() == 0
        assert self._complaints() >= 1

    def redis_comes_back(self, redis: AbstractContextManager[object], stack: ExitStack) -> None:
        """It knows nothing: the calls under way may find out once more, and no others."""
        pending = self._under_way(100)
        stack.enter_context(redis)
        self._receive(pending)
        # A worker looks for Redis with the first call after a pause of a second.
        while self._lines("the cooldown in Redis is shared again") < self._complaints():
            assert self._answering(AT_ONCE) == {"backup"}
        assert self._new_unwarned() <= AT_ONCE
        assert self._complaints() >= 1

    def the_primary_comes_back(self) -> None:
        """Slowly: while one call probes it, no other one asks it. Then all are back on it.

        A worker that has said that it lost Redis, on a busy machine, and not yet that it is back
        knows of no other's probe.
        """
        returns = self._lines("the cooldown in Redis is shared again")
        probes: list[SeenRequest] = []
        probed, release = threading.Event(), Patient()

        def answer_slowly(request: SeenRequest) -> Reply:
            probes.append(request)
            probed.set()
            return Reply(hold=release)

        self.primary.standing = answer_slowly
        pending: list[Future[httpx.Response]] = []
        try:
            while not probed.is_set():
                self._receive([one for one in pending if one.done()])
                pending = [one for one in pending if not one.done()]
                pending += self._send(AT_ONCE - len(pending))
                wait(pending, return_when=FIRST_COMPLETED)
            assert self._answering(100) == {"backup"}
            assert len(probes) <= 1 + self._complaints() - returns
        finally:
            release.set()
        answering = Counter(told(answer, "answered-by") for answer in self._receive(pending))
        assert answering["primary"] == len(probes)
        assert self._answering(max(100, REQUESTS - len(self.answers))) == {"primary"}

    def the_books_agree(self) -> None:
        """Headers, providers, records and Prometheus's figures tell the same, to the request."""
        answers, records = self.answers, self._calls()
        assert len(answers) >= REQUESTS
        providers = Counter({each.name: len(asked(each)) for each in (self.primary, self.backup)})
        assert sum(int(told(answer, "attempts")) for answer in answers) == providers.total()

        calls = {call.call_id: call for call in records}
        assert len(calls) == len(records) == len(answers)
        for answer in answers:
            call = calls[told(answer, "call-id")]
            assert call.answered_by == told(answer, "answered-by")
            assert len(call.attempts) == int(told(answer, "attempts"))

        attempts = [attempt for call in calls.values() for attempt in call.attempts]
        assert Counter(attempt.target for attempt in attempts) == providers
        figures = prometheus_figures(self.client.get("/metrics/").raise_for_status().text)
        counted = Counter(
            (each.target, str(each.kind or "answered"), each.billed) for each in attempts
        )
        for labels, number in counted.items():
            assert figures["attempts", "deriver", *labels] == number
        answering = Counter(call.answered_by for call in calls.values())
        for name, number in answering.items():
            assert figures["calls", "deriver", "success", str(name)] == number
        probes = Counter(each.kind or "answered" for each in attempts if each.is_probe)
        for kind, number in probes.items():
            assert figures["probes", "primary", str(kind)] == number
        assert figures["cooldown_until_timestamp", "primary"] == 0

    def _send(self, requests: int) -> list[Future[httpx.Response]]:
        """Begin to ask."""
        return [self.pool.submit(self._ask) for _ in range(requests)]

    def _receive(self, pending: list[Future[httpx.Response]]) -> list[httpx.Response]:
        """Wait for the answers, and check each."""
        answers = [each.result() for each in pending]
        for answer in answers:
            check(answer)
        self.answers += answers
        return answers

    def _ask(self) -> httpx.Response:
        messages = [{"role": "user", "content": "hello"}]
        body = {"model": "deriver", "messages": messages}
        return self.client.post("/chat/completions", json=body)

    def _answering(self, requests: int) -> set[str]:
        return {told(answer, "answered-by") for answer in self._receive(self._send(requests))}

    def _under_way(self, requests: int) -> list[Future[httpx.Response]]:
        """Return requests of which some are answered, and as many as possible are not."""
        pending = self._send(requests)
        assert len([*islice(as_completed(pending), AT_ONCE)]) == AT_ONCE
        return pending

    def _calls(self) -> list[CallRecord]:
        """Return the records of both workers, who write to one file."""
        return [*read_records(self.records)]

    def _complaints(self) -> int:
        return self._lines("the cooldown in Redis cannot be shared")

    def _lines(self, text: str) -> int:
        return self.log.read_text("utf-8").count(text)

    def _new_unwarned(self) -> int:
        """Count the failures since the last look that were no probes."""
        before = self.unwarned
        self.unwarned = sum(
            attempt.kind is not None and attempt.note is None
            for call in self._calls()
            for attempt in call.attempts
        )
        return self.unwarned - before


def test_two_workers_lose_no_request_while_the_primary_and_redis_die_and_come_back(
    tmp_path: Path,
) -> None:
    """1,000 requests, 50 at a time: each is answered, its headers are right, one call probes."""
    records, figures, log = (tmp_path / name for name in ("calls.jsonl", "figures", "proxy.log"))
    figures.mkdir()
    port = free_port()
    environ = {
        "COOLDOWN_URL": f"redis://127.0.0.1:{port}/0",
        "RECORDS": str(records),
        "PROMETHEUS_MULTIPROC_DIR": str(figures),
    }
    with ExitStack() as stack:
        redis = stack.enter_context(redis_server(tmp_path, port))
        providers = stack.enter_context(ProviderServer())
        proxy = start_proxy(CONFIG, providers, log, environ, workers=2)
        stack.callback(stop_proxies, proxy)
        wait_for_proxy(proxy)
        key = {"authorization": f"Bearer {KEY}"}
        each_its_own = httpx.Limits(max_keepalive_connections=0)
        client = httpx.Client(
            base_url=proxy.url, headers=key, timeout=60, limits=each_its_own, trust_env=False
        )
        pool = ThreadPoolExecutor(AT_ONCE)
        stack.enter_context(client)
        stack.callback(pool.shutdown, cancel_futures=True)
        outage = Outage(client, pool, providers["primary"], providers["backup"], records, log)
        outage.nothing_is_wrong()
        outage.the_primary_dies()
        outage.redis_dies(redis)
        outage.redis_comes_back(redis_server(tmp_path, port), stack)
        outage.the_primary_comes_back()
        outage.the_books_agree()
        workers = {path.stem.rpartition("_")[2] for path in figures.glob("counter_*.db")}
        assert len(workers) == 2
