"""Routers in two processes share LiteLLM's cooldowns through its Redis."""

from __future__ import annotations

import gc
import json
import subprocess
import sys
import warnings
from typing import TYPE_CHECKING, Any

import pytest
import redis.asyncio

from tests.helpers.litellm_runs import run_async

if TYPE_CHECKING:
    from collections.abc import Iterator


# Another process imports LiteLLM first, which takes seconds.
pytestmark = pytest.mark.timeout(180)

MESSAGES = [{"role": "user", "content": "hello"}]
OTHER_PROCESS = """
import asyncio, json, sys
from litellm import Router
from honcho_fallback_litellm import FallbackRoutingStrategy

models, shared, messages = json.load(sys.stdin)
asked = []
router = Router(model_list=models, cooldown_time=60, **shared)
FallbackRoutingStrategy().register(router)
for group in ("sync", "async"):
    ask = {"model": group, "messages": messages}
    for answer in (router.completion(**ask), asyncio.run(router.acompletion(**ask))):
        told = answer._hidden_params["fallback"]
        # Where nobody is reached, LiteLLM has refused.
        asked.append([at["target"] for at in told["attempts"] if at["reached"] != "no"])
print(json.dumps(asked))
"""


@pytest.fixture(scope="module", autouse=True)
def connections_are_gone() -> Iterator[None]:
    """Let go of LiteLLM's Redis connections, which it never closes: another test would hear."""
    yield
    pools = [one for one in gc.get_objects() if isinstance(one, redis.asyncio.ConnectionPool)]
    for pool in pools:
        pool.reset()  # type: ignore[no-untyped-call] # redis-py types it in part only
    del pools
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


def test_a_cooldown_of_one_process_is_known_to_the_other(bench: Any, redis_port: int) -> None:
    """A primary that refused one process is not asked by the other."""
    bench["primary"].fail(429)
    models = [
        bench.deployment(f"{group}-{name}", rank, group=group, api_base=bench[name].url)
        for group in ("sync", "async")
        for rank, name in enumerate(("primary", "backup"))
    ]
    shared = {"redis_host": "127.0.0.1", "redis_port": redis_port}
    router, _ = bench.managed(models=models, cooldown_time=60, **shared)
    router.completion(model="sync", messages=MESSAGES)
    run_async(router.acompletion(model="async", messages=MESSAGES))
    assert bench.order == ["primary", "backup"] * 2

    sent = json.dumps([models, shared, MESSAGES])
    other = subprocess.check_output([sys.executable, "-c", OTHER_PROCESS], input=sent, text=True)
    asked = json.loads(other.splitlines()[-1])
    assert asked == [["sync-backup"]] * 2 + [["async-backup"]] * 2
    assert len(bench["primary"].requests) == 2
