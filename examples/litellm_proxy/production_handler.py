"""What production.yaml loads in each worker: a cooldown in Redis, a deadline, figures, records.

Run:     litellm --config examples/litellm_proxy/production.yaml  (what it needs is said there)
Install: pip install 'honcho-fallback[litellm,redis]' 'litellm[proxy]' prometheus_client
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

from prometheus_client import Counter, Histogram

from honcho_fallback import FallbackConfig
from honcho_fallback.redis import RedisCooldown
from honcho_fallback_litellm import FallbackProxyHandler

if TYPE_CHECKING:
    from honcho_fallback import CallRecord, CallStart, FallbackObserver, Switch


class FinishObserver:
    """Hear of ends only: a call's record holds every attempt, so nothing is missed."""

    def on_start(self, call: CallStart) -> None:
        """Do nothing."""

    def on_switch(self, switch: Switch) -> None:
        """Do nothing."""


class PrometheusObserver(FinishObserver):
    """Count on what LiteLLM serves under /metrics; every label has few values."""

    def __init__(self) -> None:
        self.calls = Counter("honcho_fallback_calls", "Calls", ["agent", "outcome", "target"])
        self.attempts = Counter(
            "honcho_fallback_attempts", "Requests to targets", ["agent", "target", "kind"]
        )
        self.seconds = Histogram("honcho_fallback_seconds", "Whole calls", ["agent", "outcome"])

    def on_finish(self, record: CallRecord) -> None:
        """Count a call under who answered, and its attempts under what went wrong."""
        agent, outcome = record.agent, record.outcome
        self.calls.labels(agent, outcome, record.answered_by or "nobody").inc()
        self.seconds.labels(agent, outcome).observe(record.seconds)
        for attempt in record.attempts:
            self.attempts.labels(agent, attempt.target, attempt.kind or "answered").inc()


class RecordObserver(FinishObserver):
    """Append records to a file of this process: workers that share one would mix their lines."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / f"{os.getpid()}.jsonl"

    def on_finish(self, record: CallRecord) -> None:
        """Append one line; it holds no prompt, no answer and no key."""
        with self.path.open("a", encoding="utf-8") as lines:
            lines.write(json.dumps(record.to_dict()) + "\n")


# A silent Redis costs one call of each worker this second now and then, a dead one costs nothing.
cooldown = RedisCooldown(os.environ["REDIS_URL"], timeout=1.0)
observers: list[FallbackObserver] = [PrometheusObserver()]
if folder := os.environ.get("RECORDS_DIR"):
    observers.append(RecordObserver(Path(folder)))
handler = FallbackProxyHandler(FallbackConfig(cooldown=cooldown, deadline=60), observers=observers)
