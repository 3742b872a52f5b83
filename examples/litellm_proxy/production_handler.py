"""What production.yaml loads in each worker: a cooldown in Redis, a deadline, figures, records.

Run:     litellm --config examples/litellm_proxy/production.yaml  (what it needs is said there)
Install: pip install 'honcho-fallback[litellm,prometheus,redis]' 'litellm[proxy]'
"""

from __future__ import annotations

import os

from honcho_fallback import FallbackConfig, FallbackObserver
from honcho_fallback.records import JsonlObserver
from honcho_fallback.redis import RedisCooldown
from honcho_fallback_litellm import FallbackProxyHandler
from honcho_fallback_prometheus import PrometheusObserver

# A silent Redis costs one call of each worker this second now and then, a dead one costs nothing.
cooldown = RedisCooldown(os.environ["COOLDOWN_URL"], timeout=1.0)
# What LiteLLM serves under /metrics holds its figures, of all workers together.
observers: list[FallbackObserver] = [PrometheusObserver()]
if file := os.environ.get("RECORDS"):
    # One for all workers: each line is written whole, and holds no prompt, no answer and no key.
    observers.append(JsonlObserver(file))
# A primary that hangs is left after 30 s, one that sends no first token of a stream after 10 s.
config = FallbackConfig(cooldown=cooldown, timeout=30, first_token_timeout=10, deadline=60)
handler = FallbackProxyHandler(config, observers=observers)
