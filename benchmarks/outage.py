"""What an outage costs: ten calls over sockets, and a day in virtual time."""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from benchmarks.competitors import FAMILIES, in_outages
from benchmarks.failover import counts
from benchmarks.measure import Figure, Interval, ratio
from benchmarks.measure import measure as measure_rounds
from benchmarks.providers import ProviderProcess
from benchmarks.report import Bar, Result, bar, table
from honcho_fallback import FallbackConfig
from honcho_fallback.simulate import Scenario, retry_then_next, simulate

if TYPE_CHECKING:
    from benchmarks.competitors import Client, Competitor
    from benchmarks.measure import Plan
    from honcho_fallback.simulate import Report

CALLS = 10
DOWN = {"status": 503}
# Each stands beside what its users would have without this package.
PEERS = {
    "openai SDK, `policy.acall`": "tenacity, another model from the second attempt",
    "openai SDK, `policy.acall`, resilient()": "tenacity, another model from the second attempt",
    "LangChain, `FallbackChatModel.ainvoke`": "LangChain `with_fallbacks`, defaults",
    "LiteLLM, `FallbackRoutingStrategy`, `acompletion`": "LiteLLM Router `fallbacks`, defaults",
}


@dataclass(frozen=True, slots=True)
class Outage:
    """Tell what came of the calls of one outage."""

    seconds: float
    requests: int  # that came to the dead provider
    answered: int


def sockets(plan: Plan, calls: int = CALLS) -> Result:
    """Make calls, one after another, while the primary answers 503."""
    logging.disable(logging.CRITICAL)
    families = (*(FAMILIES[name] for name in ("core", "langchain", "litellm")), in_outages)
    competitors = {
        one.name: one for family in families for one in family() if "outage" in one.parts
    }
    seen: dict[str, list[Outage]] = {name: [] for name in competitors}
    with ProviderProcess() as providers, asyncio.Runner() as runner:

        def meet(name: str, client: Client) -> Outage:
            seen[name].append(runner.run(outage(providers, client, calls)))
            return seen[name][-1]

        clients = {name: one.make(providers.url) for name, one in competitors.items()}
        for client in clients.values():  # opens connections, loads what is loaded late
            runner.run(outage(providers, client, calls=2))
        jobs = {name: partial(meet, name, client) for name, client in clients.items()}
        intervals = measure_rounds(jobs, _figures(competitors), plan)
    rows = list[list[str]]()
    for name in competitors:
        beside = intervals.get(("ratio", name))
        rows.append(
            [
                name,
                counts(one.requests for one in seen[name]),
                str(intervals["seconds", name]),
                f"{beside.as_ratio()}, {PEERS[name]}" if beside else "-",
                counts(one.answered for one in seen[name]),
            ]
        )
    head = [
        f"{calls} calls",
        "requests at the dead provider",
        "seconds",
        "seconds, of",
        "answered",
    ]
    ours, others = (
        {
            name: bar(intervals["seconds", name])
            for name, one in competitors.items()
            if one.is_ours is is_ours
        }
        for is_ours in (True, False)
    )
    return Result(table(head, rows), f"seconds for {calls} calls in an outage", ours, others)


def _figures(competitors: dict[str, Competitor]) -> dict[tuple[str, str], Figure]:
    seconds = {name: Figure((name,), attrgetter("seconds")) for name in competitors}
    beside = {name: Figure((name, peer), _ratio_of_seconds) for name, peer in PEERS.items()}
    return {("seconds", name): one for name, one in seconds.items()} | {
        ("ratio", name): one for name, one in beside.items()
    }


def _ratio_of_seconds(subject: Outage, peer: Outage) -> float:
    return ratio(subject.seconds, peer.seconds)


async def outage(providers: ProviderProcess, client: Client, calls: int = CALLS) -> Outage:
    """Make the calls of one outage; what a client remembers lasts as long."""
    client.forget()
    providers.control(reset=True, providers={"primary": {"always": DOWN}})
    answered, start = 0, time.monotonic()
    for _ in range(calls):
        try:
            await client.ask()
        except Exception:  # noqa: BLE001 # a call without an answer is a figure
            continue
        answered += 1
    seconds = time.monotonic() - start
    return Outage(seconds, len(providers.control()["requests"].get("primary", [])), answered)


DAY = 86_400.0
PRIMARY = "openai/gpt-5.5"
# What the primary does from the first second to the last; prices are round figures of our own.
DAYS: dict[str, dict[str, Any]] = {
    "refuses: 503 after 0.3 s": {"kind": "failing", "status": 503, "delay": 0.3},
    "breaks streams off": {"kind": "dropped", "delay": 1.0, "after_content": True, "share": 0.5},
    "is 15 times as slow": {"kind": "slow", "factor": 15},
}
CONTENDERS: dict[str, FallbackConfig] = {
    "FallbackConfig()": FallbackConfig(),
    "FallbackConfig.resilient()": FallbackConfig.resilient(),
    "SDK's retries, then the next": retry_then_next(),
}
PEER = "SDK's retries, then the next"


def day(phase: dict[str, Any] | None) -> Scenario:
    """Return a day on which the primary does nothing else; None is a day without an incident."""
    primary: dict[str, Any] = {
        "name": PRIMARY,
        "latency": {"median": 2.0, "p99": 9.0},
        "price": {"per_million_input": 2.0, "per_million_output": 10.0},
        "phases": [phase] if phase else [],
    }
    backup: dict[str, Any] = {
        "name": "anthropic/claude-sonnet-5",
        "latency": {"median": 2.5, "p99": 11.0},
        "price": {"per_million_input": 3.0, "per_million_output": 15.0},
    }
    traffic = {"kind": "poisson", "per_second": 0.02, "stream": True}
    tokens = {"input_tokens": 4000, "output_tokens": 300}
    return Scenario.parse(
        {
            "name": "day",
            "seconds": DAY,
            "traffic": {**traffic, **tokens},
            "targets": [primary, backup],
        }
    )


def money(seeds: int = 15) -> Result:
    """Play days with several seeds; a round is a seed, which all policies and days share."""
    usual = [simulate(day(None), CONTENDERS[PEER], seed=seed) for seed in range(seeds)]
    rows = [["answers", "all", *_cells(usual, usual, usual)]]
    ours: dict[str, Bar] = {}
    others: dict[str, Bar] = {}
    for incident, phase in DAYS.items():
        played = {
            name: [simulate(day(phase), one, seed=seed) for seed in range(seeds)]
            for name, one in CONTENDERS.items()
        }
        for name, reports in played.items():
            rows.append([incident, name, *_cells(reports, usual, played[PEER])])
            drawn = others if name == PEER else ours
            drawn[f"{incident}; {name}"] = bar(_extra(reports, usual))
    head = ["the primary, all day", "policy", "requests to it", "answered calls", "money"]
    head += ["beyond a usual day", "money, of the SDK's retries", "paid for nothing"]
    return Result(table(head, rows), "money beyond a usual day", ours, others)


def _cells(reports: list[Report], usual: list[Report], peers: list[Report]) -> list[str]:
    shares = [
        ratio(one.money or 0.0, peer.money or 0.0)
        for one, peer in zip(reports, peers, strict=True)
    ]
    return [
        str(Interval.of([one.requests[PRIMARY] for one in reports])),
        str(Interval.of([one.answered / one.calls for one in reports])),
        str(Interval.of([one.money or 0.0 for one in reports])),
        "-" if reports is usual else _extra(reports, usual).as_difference(),
        "-" if reports is peers else Interval.of(shares).as_ratio(),
        str(Interval.of([one.lost or 0.0 for one in reports])),
    ]


def _extra(reports: list[Report], usual: list[Report]) -> Interval:
    pairs = zip(reports, usual, strict=True)
    return Interval.of([(one.money or 0.0) - (other.money or 0.0) for one, other in pairs])
