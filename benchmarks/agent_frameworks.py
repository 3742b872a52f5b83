"""Failover and an outage in the agent frameworks, which need an environment of their own.

Run by ``make bench-agents``: it replaces one section of docs/benchmarks.md; with ``--print-only``
it prints it, whatever the load.
"""

# What the frameworks' objects are is theirs to say; they are installed where this runs.
# pyright: reportMissingImports=false, reportUnknownArgumentType=false
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# ruff: noqa: PLC0415 # see above

from __future__ import annotations

import asyncio
import logging
import os
import sys
from contextlib import redirect_stdout
from functools import partial
from typing import TYPE_CHECKING, Any

from benchmarks import competitors, failover, outage
from benchmarks.__main__ import MOST_LOAD, OVER_SOCKETS, PAGE
from benchmarks.competitors import KEY, PROMPT, Client, Competitor
from benchmarks.measure import QUICK, Figure
from benchmarks.measure import measure as measure_rounds
from benchmarks.providers import ProviderProcess
from benchmarks.report import AGENTS, machine, table
from honcho_fallback import FallbackConfig

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

TEXT = """
Written by `make bench-agents`, in an environment with openai 3; the words are those of
[Failover over sockets](#failover-over-sockets). Each framework asks OpenAI's chat completions
through an agent. "As it comes": the Agents SDK has no fallback, so `try` and `except` around its
Runner ask a second model; Pydantic AI has its own `FallbackModel`. The contract is 10 ms.
"""
PACKAGES = "honcho-fallback openai openai-agents pydantic-ai-slim"
MODES = ("500", "429, Retry-After 5", "401", "dropped", failover.HANG)


def openai_agents(*, streams: bool = False) -> Iterator[Competitor]:
    """The Runner over a chain, and as it comes."""
    import agents
    import openai

    from honcho_fallback_openai_agents import FallbackModel

    agents.set_tracing_disabled(disabled=True)

    def model(url: str, name: str, **options: Any) -> Any:
        client = competitors.sdk(openai.AsyncOpenAI, url, name, **options)
        return agents.OpenAIChatCompletionsModel("gpt-4o", client)

    async def run(agent: Any) -> object:
        if not streams:
            return await agents.Runner.run(agent, PROMPT)
        result = agents.Runner.run_streamed(agent, PROMPT)
        return [event async for event in result.stream_events()]

    def ours(url: str, config: FallbackConfig | None = None, **limit: Any) -> Client:
        chain = FallbackModel(model(url, "primary", **limit), model(url, "backup"), config=config)
        agent = agents.Agent("a", model=chain)
        return Client(lambda: run(agent))

    def theirs(url: str, **limit: Any) -> Client:
        first, second = (
            agents.Agent("a", model=model(url, name, **options))
            for name, options in (("primary", limit), ("backup", {}))
        )

        async def ask() -> object:
            try:
                return await run(first)
            except openai.OpenAIError:
                return await run(second)

        return Client(ask)

    yield from rows("Agents SDK", "`try`/`except`", ours, theirs)


def pydantic_ai(*, streams: bool = False) -> Iterator[Competitor]:
    """An agent over a chain of ours, and over its own."""
    from pydantic_ai import Agent
    from pydantic_ai.models.fallback import FallbackModel as OwnFallbackModel
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider

    from honcho_fallback_pydantic_ai import FallbackModel

    def model(url: str, name: str, **settings: Any) -> Any:
        provider = OpenAIProvider(base_url=f"{url}/{name}/v1", api_key=KEY)
        own: Any = settings or None
        return OpenAIChatModel("gpt-4o", provider=provider, settings=own)

    def client(chain: Any) -> Client:
        agent = Agent(chain)

        async def ask() -> object:
            if not streams:
                return await agent.run(PROMPT)
            async with agent.run_stream(PROMPT) as result:
                return await result.get_output()

        return Client(ask)

    def ours(url: str, config: FallbackConfig | None = None, **limit: Any) -> Client:
        first, second = model(url, "primary", **limit), model(url, "backup")
        return client(FallbackModel(first, second, config=config))

    def theirs(url: str, **limit: Any) -> Client:
        return client(OwnFallbackModel(model(url, "primary", **limit), model(url, "backup")))

    yield from rows("Pydantic AI", "its `FallbackModel`", ours, theirs)


def rows(
    framework: str, way: str, ours: Callable[..., Client], theirs: Callable[..., Client]
) -> Iterator[Competitor]:
    """Name the rows of one framework."""
    name = f"{framework}, `FallbackModel` of this package"
    peer = f"{framework} as it comes, {way}"

    def resilient(url: str) -> Client:
        return ours(url, FallbackConfig.resilient())

    yield Competitor(name, ours, is_ours=True, peer=peer)
    yield Competitor(
        f"{name}, resilient()",
        resilient,
        is_ours=True,
        parts=competitors.OUTAGE,
    )
    yield Competitor(peer, theirs, parts=competitors.WARM | competitors.OUTAGE)


def outages(*, quick: bool) -> str:
    """Make ten calls while the primary answers 503."""
    logging.disable(logging.CRITICAL)
    rounds = QUICK if quick else OVER_SOCKETS
    ready = [*openai_agents(), *pydantic_ai()]
    seen: dict[str, list[outage.Outage]] = {one.name: [] for one in ready}
    with ProviderProcess() as providers, asyncio.Runner() as runner:

        def job(one: Competitor) -> Callable[[], float]:
            def meet() -> float:
                # What it remembers, it remembers within one outage.
                client = one.make(providers.url)
                seen[one.name].append(runner.run(outage.outage(providers, client)))
                return seen[one.name][-1].seconds

            return meet

        jobs = {one.name: job(one) for one in ready}
        figures = {name: Figure((name,), float) for name in jobs}
        measured = measure_rounds(jobs, figures, rounds)
    head = [f"{outage.CALLS} calls", "requests at the dead primary", "seconds", "answered"]
    lines = [
        [
            name,
            failover.counts(one.requests for one in seen[name]),
            str(measured[name]),
            failover.counts(one.answered for one in seen[name]),
        ]
        for name in jobs
    ]
    return table(head, lines)


def main() -> None:
    """Measure, then publish or print."""
    quick = "--quick" in sys.argv
    load = os.getloadavg()[0]
    is_published = not quick and "--print-only" not in sys.argv
    if is_published and load > MOST_LOAD:
        sys.exit(f"load {load:.2f} at the start, above {MOST_LOAD}. Wait, or pass --print-only")
    plan = QUICK if quick else OVER_SOCKETS
    tables: list[str] = []
    with redirect_stdout(sys.stderr):
        for family in (openai_agents, pydantic_ai):
            competitors.FAMILIES["agents"] = family
            tables.append(failover.measure("agents", plan, MODES).table)
            competitors.FAMILIES["agents"] = partial(family, streams=True)
            tables.append(failover.measure("agents", plan, [failover.CUT]).table)
        tables.append(outages(quick=quick))
    section = "\n\n".join([f"{AGENTS}{TEXT}\n{machine(load, PACKAGES)}", *tables])
    if is_published:
        before = PAGE.read_text("utf-8").partition(AGENTS)[0].rstrip("\n") + "\n"
        PAGE.write_text(f"{before}{section}\n", encoding="utf-8")
    else:
        print(section)


if __name__ == "__main__":
    main()
