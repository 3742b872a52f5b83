"""Requests per second through LiteLLM's Proxy, with this package's handler and without it.

Each Proxy is one process, started as a user starts it; primary and fallback are a process, too.
All of them share the machine's cores with the clients, so that only the ratios say something.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import aiohttp
import yaml

from benchmarks.measure import Figure, ratio
from benchmarks.measure import measure as measure_rounds
from benchmarks.providers import ProviderProcess
from benchmarks.report import Bar, Result, bar, table
from tests.helpers.litellm_proxy import KEY, start_proxy, stop_proxies, wait_for_proxy

if TYPE_CHECKING:
    from benchmarks.measure import Plan

AT_ONCE = 50
REQUESTS = 300
DOWN = {"status": 503}
SELF = "honcho_fallback_litellm.proxy_handler"
RESTING = "resting_handler.handler"
RESTING_SOURCE = """
from honcho_fallback import FallbackConfig
from honcho_fallback_litellm import FallbackProxyHandler

handler = FallbackProxyHandler(FallbackConfig.resilient(reset="iteration"))
"""
ORDER = {"fallbacks": [{"chat": ["backup"]}]}
PEER = "LiteLLM's `fallbacks`, num_retries: 0"
# The settings of each Proxy.
PROXIES: dict[str, dict[str, Any]] = {
    "`proxy_handler`": {"litellm_settings": {"callbacks": SELF}},
    "`FallbackProxyHandler`, resilient()": {"litellm_settings": {"callbacks": RESTING}},
    PEER: {"router_settings": {**ORDER, "num_retries": 0}},
    "LiteLLM's `fallbacks`, as it comes": {"router_settings": ORDER},
}
OURS = tuple(PROXIES)[:2]


@dataclass(frozen=True, slots=True)
class Burst:
    """Tell what came of a number of requests, so many at once."""

    per_second: float
    primary: float  # requests at the primary, for each of the clients'
    answered: int


def measure(plan: Plan, requests: int = REQUESTS) -> Result:
    """Measure with a primary that answers, then with one that does not."""
    rows: dict[str, list[str]] = {name: [name] for name in PROXIES}
    ours, others = dict[str, Bar](), dict[str, Bar]()
    with tempfile.TemporaryDirectory() as folder, ProviderProcess() as providers:
        place = Path(folder)
        place.joinpath("resting_handler.py").write_text(RESTING_SOURCE, "utf-8")
        started = []
        try:
            for number, (name, settings) in enumerate(PROXIES.items()):
                config = place / f"{number}.yaml"
                config.write_text(yaml.safe_dump(_config(name, settings, providers.url)), "utf-8")
                log = place / f"{number}.log"
                # The helper asks for its address alone, which both kinds of servers have.
                started.append(start_proxy(config, providers, log))  # type: ignore[arg-type]
            for proxy in started:
                wait_for_proxy(proxy)
            urls = dict(zip(PROXIES, (proxy.url for proxy in started), strict=True))
            for always in ({}, DOWN):
                seen: dict[str, list[Burst]] = {name: [] for name in PROXIES}

                def burst(
                    name: str, always: dict[str, Any], seen: dict[str, list[Burst]]
                ) -> Burst:
                    seen[name].append(_burst(providers, urls[name], always, requests))
                    return seen[name][-1]

                for name in PROXIES:  # opens connections, loads what is loaded late
                    _burst(providers, urls[name], always, AT_ONCE)
                jobs = {name: partial(burst, name, always, seen) for name in PROXIES}
                speed = attrgetter("per_second")
                figures = {("speed", name): Figure((name,), speed) for name in PROXIES} | {
                    ("ratio", name): Figure((name, PEER), _ratio) for name in OURS
                }
                intervals = measure_rounds(jobs, figures, plan)
                for name in PROXIES:
                    answered = sum(one.answered for one in seen[name])
                    wanted = len(seen[name]) * requests
                    asked = sum(one.primary for one in seen[name]) / len(seen[name])
                    beside = intervals.get(("ratio", name))
                    rows[name] += [
                        str(intervals["speed", name]),
                        beside.as_ratio() if beside else "-",
                        f"{asked:.3g}",
                    ]
                    if answered < wanted:
                        rows[name][-1] += f", {wanted - answered} of {wanted} lost"
                    if always:
                        drawn = ours if name in OURS else others
                        drawn[name] = bar(intervals["speed", name])
        finally:
            stop_proxies(*started)
    head = [f"{AT_ONCE} at a time"]
    for primary in ("answers", "answers 503"):
        head += [f"requests/s, the primary {primary}", f"of {PEER}", "at the primary, of one"]
    unit = "requests per second while the primary answers 503"
    return Result(table(head, list(rows.values())), unit, ours, others)


def _config(name: str, settings: dict[str, Any], url: str) -> dict[str, Any]:
    """Write a Proxy's config: one chain, or a group and the one behind it."""
    groups = ("chat", "chat") if name in OURS else ("chat", "backup")
    models = [
        {
            "model_name": group,
            "litellm_params": {
                "model": "openai/gpt-5.5",
                "api_base": f"{url}/{target}/v1",
                "api_key": "none",
            },
            "model_info": {"id": target} | ({"fallback_rank": rank} if name in OURS else {}),
        }
        for rank, (group, target) in enumerate(zip(groups, ("primary", "backup"), strict=True))
    ]
    return {"model_list": models, "general_settings": {"master_key": KEY}, **settings}


def _burst(providers: ProviderProcess, url: str, always: dict[str, Any], requests: int) -> Burst:
    """Send requests to a Proxy, so many at once, and count what reached the primary."""
    providers.control(reset=True, providers={"primary": {"always": always}} if always else {})
    start = time.monotonic()
    answered = asyncio.run(_ask(url, requests))
    seconds = time.monotonic() - start
    seen = len(providers.control()["requests"].get("primary", []))
    return Burst(requests / seconds, seen / requests, answered)


async def _ask(url: str, requests: int) -> int:
    """Return how many were answered."""
    body = {"model": "chat", "messages": [{"role": "user", "content": "Good morning"}]}
    pending = iter(range(requests))

    async def client(session: aiohttp.ClientSession) -> int:
        answered = 0
        for _ in pending:
            async with session.post(f"{url}/v1/chat/completions", json=body) as answer:
                await answer.read()
                answered += answer.status == 200
        return answered

    timeout, connector = aiohttp.ClientTimeout(total=300), aiohttp.TCPConnector(limit=AT_ONCE)
    headers = {"authorization": f"Bearer {KEY}"}
    async with aiohttp.ClientSession(
        headers=headers, timeout=timeout, connector=connector
    ) as session:
        return sum(await asyncio.gather(*(client(session) for _ in range(AT_ONCE))))


def _ratio(subject: Burst, peer: Burst) -> float:
    return ratio(subject.per_second, peer.per_second)
