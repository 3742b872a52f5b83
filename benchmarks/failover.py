"""What a dead primary is asked, and how long until the fallback is: real sockets.

Primary and fallback are in a process of their own, which notes when each request arrives and when
a failing answer is sent, on a clock that both processes share. ``measure`` asks over connections
that are open; ``cold`` makes its one call, which fails, first of all in a fresh process.
"""

from __future__ import annotations

import asyncio
import gc
import inspect
import json
import logging
import subprocess
import sys
import time
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from itertools import pairwise
from math import inf, isfinite
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.competitors import FAMILIES
from benchmarks.measure import PAUSE, Figure, ratio
from benchmarks.measure import measure as measure_rounds
from benchmarks.providers import ProviderProcess
from benchmarks.report import Result, bar, table

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from benchmarks.competitors import Client, Competitor
    from benchmarks.measure import Interval, Plan

ROOT = Path(__file__).resolve().parent.parent
HEALTHY, HANG = "healthy", "hang"
# What the primary does, in the provider's own words.
MODES: dict[str, dict[str, Any]] = {
    "500": {"status": 500},
    "429": {"status": 429},
    "429, Retry-After 5": {"status": 429, "headers": {"retry-after": "5"}},
    "401": {"status": 401},
    "dropped": {"drop": True},
    HANG: {"hang": True},
}
CUT = "stream cut before content"  # of those that are asked for streams
ATTEMPT_TIMEOUT = 1.0
MOST_REQUESTS, MOST_MILLISECONDS = 1, 10.0
MOST_COLD_MILLISECONDS = 150.0
MOST_IMPORT_MILLISECONDS = 60.0
_MARK = "figures: "
# Packages of litellm[proxy] that LiteLLM imports at a failure where they are installed.
_PROXY_PACKAGES = ("fastapi", "starlette", "litellm_enterprise", "litellm_proxy_extras")


@dataclass(frozen=True, slots=True)
class Round:
    """Tell what the providers saw of one call."""

    requests: int  # that came to the primary before the fallback's
    # Milliseconds from the primary's first failing answer (where it hangs: from its first
    # request) to the fallback's request; None where one of them was never asked.
    gap: float | None
    error: str | None = None  # the class of what the call raised

    @property
    def milliseconds(self) -> float:
        """Return the gap; without one the fallback was never asked."""
        return inf if self.gap is None else self.gap

    @classmethod
    def of(cls, mode: str, seen: dict[str, Any], error: str | None = None) -> Round:
        """Read a round out of what the provider server has seen."""
        requests = seen["requests"].get("primary", [])
        backup = seen["requests"].get("backup", [])
        if not backup:
            return cls(len(requests), None, error)
        arrived: float = backup[0]["at"]
        before = [request for request in requests if request["at"] < arrived]
        since = before[0]["at" if mode == HANG else "answered"] if before else None
        return cls(len(before), None if since is None else (arrived - since) * 1e3, error)


def measure(family: str, plan: Plan, modes: Sequence[str] = tuple(MODES)) -> Result:
    """Measure one family; its plot is of the first mode."""
    logging.disable(logging.CRITICAL)
    competitors = _competitors(family, "failover")
    seen: dict[tuple[str, str], list[Round]] = {}
    intervals: dict[tuple[str, str, str], Interval] = {}
    with ProviderProcess() as providers, asyncio.Runner() as runner:
        usual = {name: one.make(providers.url) for name, one in competitors.items()}
        hasty = {
            name: one.make(providers.url, timeout=ATTEMPT_TIMEOUT)
            for name, one in competitors.items()
        }
        for client in (*usual.values(), *hasty.values()):
            for mode in (HEALTHY, "401", "401"):  # opens connections, loads what is loaded late
                ask(providers, runner, client, mode)
        gc.collect()
        gc.freeze()
        for mode in modes:
            clients = hasty if mode == HANG else usual

            def call(name: str, mode: str, client: Client) -> float:
                seen.setdefault((name, mode), []).append(ask(providers, runner, client, mode))
                return seen[name, mode][-1].milliseconds

            jobs = {name: partial(call, name, mode, client) for name, client in clients.items()}
            measured = measure_rounds(jobs, _figures(competitors), plan)
            intervals |= {(*key, mode): interval for key, interval in measured.items()}
    rows = list[list[str]]()
    for name, competitor in competitors.items():
        gaps = {mode: intervals["gap", name, mode] for mode in modes}
        cells = [_cell(seen[name, mode], gaps[mode]) for mode in modes]
        ratios = {
            mode: interval
            for mode in modes
            if (interval := intervals.get(("ratio", name, mode))) is not None
        }
        verdict = ""
        if competitor.is_ours:
            beside = ratios if competitor.follows_peer else {}
            verdicts = {
                mode: contract(mode, seen[name, mode], gaps[mode], beside.get(mode))
                for mode in modes
            }
            verdict = "; ".join(
                f"{verdict}: {', '.join(mode for mode in modes if verdicts[mode] == verdict)}"
                for verdict in sorted({*verdicts.values()})
            )
        rows.append([name, *cells, verdict])
        if ratios:
            rows.append(
                [
                    f"... of {competitor.peer}",
                    *(interval.as_ratio() for interval in ratios.values()),
                    "",
                ]
            )
    head = ["requests at the dead primary: ms to the fallback", *modes, "contract"]
    drawn = {name: intervals["gap", name, modes[0]] for name in competitors}
    return _result(table(head, rows), competitors, drawn)


def _competitors(family: str, part: str) -> dict[str, Competitor]:
    return {one.name: one for one in FAMILIES[family]() if part in one.parts}


def _figures(competitors: dict[str, Competitor]) -> dict[tuple[str, str], Figure]:
    """Return what is read out of a round: each one's milliseconds, and their ratio to a peer's."""
    figures = {("gap", name): Figure((name,), float) for name in competitors}
    for name, one in competitors.items():
        if one.peer in competitors:
            figures["ratio", name] = Figure((name, one.peer), ratio)
    return figures


def _result(text: str, competitors: dict[str, Competitor], drawn: dict[str, Interval]) -> Result:
    ours, others = (
        {
            name: bar(one)
            for name, one in drawn.items()
            if competitors[name].is_ours is is_ours and isfinite(one.high)
        }
        for is_ours in (True, False)
    )
    return Result(text, "ms from the failing answer to the fallback's request", ours, others)


def ask(providers: ProviderProcess, runner: asyncio.Runner, client: Client, mode: str) -> Round:
    """Make one call while the primary behaves like this, and tell what the providers saw."""
    client.forget()
    behaviours = {**MODES, CUT: {"events": [], "cut": True}}
    providers.control(reset=True, providers={"primary": {"always": behaviours.get(mode, {})}})
    error = None
    try:
        if client.is_sync:
            client.ask()
        else:
            runner.run(_awaited(client))
    except Exception as raised:  # noqa: BLE001 # what a peer raises is a figure, too
        error = type(raised).__name__
    time.sleep(PAUSE)
    return Round.of(mode, providers.control(), error)


async def _awaited(client: Client) -> None:
    answer = client.ask()
    if inspect.isawaitable(answer):
        await answer
    await asyncio.sleep(PAUSE)


def contract(
    mode: str, rounds: Sequence[Round], gap: Interval, beside: Interval | None = None
) -> str:
    """Say whether a cell reaches the contract.

    Args:
        mode: What the primary did.
        rounds: All of them.
        gap: Milliseconds to the fallback.
        beside: The ratio to its peer, where being no slower than that is the contract.
    """
    if max(one.requests for one in rounds) > MOST_REQUESTS or any(one.error for one in rounds):
        return "**missed**"
    if beside is not None:
        # Nobody can show that two are equally fast; that one is slower, a calm interval shows.
        if beside.low > 1:
            return "**missed**"
        return "undecided" if beside.is_wide and beside.high > 1 else "kept"
    return gap.verdict(MOST_MILLISECONDS + ATTEMPT_TIMEOUT * 1e3 * (mode == HANG))


def _cell(rounds: Sequence[Round], gap: Interval) -> str:
    errors = sorted({one.error for one in rounds if one.error})
    figure = str(gap) if isfinite(gap.median) else "never"
    return " ".join([f"{counts(one.requests for one in rounds)}: {figure}", *errors])


def counts(values: Iterable[int]) -> str:
    """Write every count that was seen."""
    seen = sorted({*values})
    return f"{seen[0]}" if len(seen) == 1 else f"{seen[0]} to {seen[-1]}"


def cold(family: str, plan: Plan) -> Result:
    """Measure first calls in fresh processes, of one family."""
    competitors = _competitors(family, "cold")
    numbers = {one.name: str(place) for place, one in enumerate(FAMILIES[family]())}
    rows: list[list[str]] = []
    drawn: dict[str, Interval] = {}
    variants: dict[str, Competitor] = {}
    with ProviderProcess() as providers:
        for suffix, hidden in _surroundings(family):

            def call(name: str, hidden: tuple[str, ...]) -> tuple[float, float]:
                providers.control(reset=True, providers={"primary": {"always": MODES["500"]}})
                ticks = _child("cold_call", family, numbers[name], providers.url, *hidden)
                seen = providers.control()
                failed = seen["requests"]["primary"][0]["answered"]
                stall = max((b - a for a, b in pairwise(ticks) if b > failed), default=0.0)
                return Round.of("500", seen).milliseconds, stall * 1e3

            figures = {("stall", name): Figure((name,), itemgetter(1)) for name in competitors}
            for key, (names, of) in _figures(competitors).items():
                figures[key] = Figure(names, partial(_of_gaps, of))
            jobs = {name: partial(call, name, hidden) for name in competitors}
            intervals = measure_rounds(jobs, figures, plan)
            for name, one in competitors.items():
                gap, stall = intervals["gap", name], intervals["stall", name]
                longest = max(gap, stall, key=lambda interval: interval.high)
                beside = intervals.get(("ratio", name))
                variants[name + suffix], drawn[name + suffix] = one, gap
                rows.append(
                    [
                        name + suffix,
                        str(gap),
                        beside.as_ratio() if beside else "-",
                        str(stall) if stall.high else "-",  # nothing stalls without a loop
                        longest.verdict(MOST_COLD_MILLISECONDS) * one.is_ours,
                    ]
                )
    head = ("first call of a process", "ms to the fallback", "of its peer")
    text = table((*head, "ms the event loop stalled", "contract"), rows)
    return _result(text, variants, drawn)


def _of_gaps(of: Callable[..., float], *values: tuple[float, float]) -> float:
    return of(*(gap for gap, _ in values))


def _surroundings(family: str) -> list[tuple[str, tuple[str, ...]]]:
    """Name what a first call is measured with, and which packages are hidden from it."""
    installed = tuple(name for name in _PROXY_PACKAGES if find_spec(name) is not None)
    if family != "litellm" or not installed:
        return [("", ())]
    names = " and ".join(name for name in installed if name != "starlette")
    return [(f", with {names}", ()), (f", {names} hidden", installed)]


def imports(plan: Plan) -> Result:
    """Measure import times in fresh processes."""
    jobs = {"import": partial(_child, "_import_times")}
    figures = {place: Figure(("import",), itemgetter(place)) for place in range(3)}
    others, model, ours = measure_rounds(jobs, figures, plan).values()
    rows = [
        ["pydantic and tenacity", str(others), ""],
        ["a first pydantic model", str(model), ""],
        ["honcho_fallback beyond them", str(ours), ours.verdict(MOST_IMPORT_MILLISECONDS)],
    ]
    return Result(table(("import in a fresh process", "ms", "contract"), rows))


def _child(function: str, *arguments: str) -> list[float]:
    """Run one of the functions below in a fresh process, and return what it printed."""
    code = f"import sys; from benchmarks.failover import {function} as f; f(*sys.argv[1:])"
    if function == "_import_times":  # nothing of this module is to be loaded before
        code = _IMPORT_TIMES
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    (line,) = [line for line in done.stdout.splitlines() if line.startswith(_MARK)]
    figures: list[float] = json.loads(line.removeprefix(_MARK))
    return figures


_IMPORT_TIMES = f"""
import time
start = time.perf_counter()
import pydantic, tenacity
pydantic.BaseModel, pydantic.field_validator
imported = time.perf_counter()
# pydantic looks for plugins and loads most of itself when the first model is defined.
pydantic.create_model("First", name=(str, ...))
built = time.perf_counter()
import honcho_fallback
end = time.perf_counter()
print({_MARK!r} + str([1e3 * (imported - start), 1e3 * (built - imported), 1e3 * (end - built)]))
"""


def cold_call(family: str, number: str, url: str, *hidden: str) -> None:
    """Make the first call of this process, and print when its event loop was free."""
    logging.disable(logging.CRITICAL)
    # None is how Python marks a module whose import fails, as if it were not installed.
    sys.modules.update(dict.fromkeys(hidden))  # type: ignore[arg-type] # as the line above says
    client = [*FAMILIES[family]()][int(number)].make(url)
    ticks: list[float] = []

    async def tick() -> None:
        while True:
            ticks.append(time.monotonic())
            await asyncio.sleep(0.001)

    async def call() -> None:
        ticking = asyncio.ensure_future(tick())
        await client.ask()
        await asyncio.sleep(0)
        ticking.cancel()
        ticks.append(time.monotonic())

    if client.is_sync:
        client.ask()
    else:
        asyncio.run(call())
    print(_MARK + json.dumps(ticks))
