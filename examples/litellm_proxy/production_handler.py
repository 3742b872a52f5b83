"""What production.yaml loads in each worker: a cooldown in Redis, a deadline, figures, records.

Run:     litellm --config examples/litellm_proxy/production.yaml  (what it needs is said there)
Install: pip install 'honcho-fallback[litellm,prometheus,redis]' 'litellm[proxy]'
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

from honcho_fallback import FallbackConfig, FallbackObserver
from honcho_fallback.redis import RedisCooldown
from honcho_fallback_litellm import FallbackProxyHandler
from honcho_fallback_prometheus import PrometheusObserver

if TYPE_CHECKING:
    from honcho_fallback import CallRecord


class RecordObserver(FallbackObserver):
    """Append records to a file of this process: workers that share one would mix their lines."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / f"{os.getpid()}.jsonl"

    def on_finish(self, record: CallRecord) -> None:
        """Append one line; it holds no prompt, no answer and no key."""
        with self.path.open("a", encoding="utf-8") as lines:
            lines.write(json.dumps(record.to_dict()) + "\n")


# A silent Redis costs one call of each worker this second now and then, a dead one costs nothing.
cooldown = RedisCooldown(os.environ["REDIS_URL"], timeout=1.0)
# What LiteLLM serves under /metrics holds its figures, of all workers together.
observers: list[FallbackObserver] = [PrometheusObserver()]
if folder := os.environ.get("RECORDS_DIR"):
    observers.append(RecordObserver(Path(folder)))
handler = FallbackProxyHandler(FallbackConfig(cooldown=cooldown, deadline=60), observers=observers)
