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
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.competitors import FAMILIES
from benchmarks.report import table
from tests.helpers.provider import ProviderProcess

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.competitors import Client, Competitor

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
ATTEMPT_TIMEOUT = 1.0
MOST_REQUESTS, MOST_MILLISECONDS = 1, 10.0
MOST_COLD_MILLISECONDS = 150.0
MOST_IMPORT_MILLISECONDS = 60.0
# Long enough for what a library does behind a call's back, so that it is not in the next one.
_PAUSE = 0.02
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


def measure(family: str, rounds: int = 20, seconds: float = 12) -> str:
    """Return the table of one family."""
    logging.disable(logging.CRITICAL)
    with ProviderProcess() as providers, asyncio.Runner() as runner:
        competitors = [*FAMILIES[family]()]
        usual = {one.name: one.make(providers.url) for one in competitors}
        hasty = {one.name: one.make(providers.url, timeout=ATTEMPT_TIMEOUT) for one in competitors}
        for client in (*usual.values(), *hasty.values()):
            for mode in (HEALTHY, "401", "401"):  # opens connections, loads what is loaded late
                ask(providers, runner, client, mode)
        gc.collect()
        gc.freeze()
        results: dict[str, dict[str, list[Round]]] = {}
        for mode in MODES:
            clients = hasty if mode == HANG else usual
            results[mode] = {name: [] for name in clients}
            spent = dict.fromkeys(clients, 0.0)
            for _ in range(rounds):
                for name, client in clients.items():
                    if spent[name] < seconds:
                        start = time.monotonic()
                        results[mode][name].append(ask(providers, runner, client, mode))
                        spent[name] += time.monotonic() - start
    rows = [
        [one.name, *(_cell(results[mode][one.name]) for mode in MODES), _verdict(one, results)]
        for one in competitors
    ]
    return table(["requests at the dead primary: ms to the fallback", *MODES, "contract"], rows)


def ask(providers: ProviderProcess, runner: asyncio.Runner, client: Client, mode: str) -> Round:
    """Make one call while the primary behaves like this, and tell what the providers saw."""
    client.forget()
    providers.control(reset=True, providers={"primary": {"always": MODES.get(mode, {})}})
    error = None
    try:
        if client.is_sync:
            client.ask()
        else:
            runner.run(_awaited(client))
    except Exception as raised:  # noqa: BLE001 # what a peer raises is a figure, too
        error = type(raised).__name__
    time.sleep(_PAUSE)
    return Round.of(mode, providers.control(), error)


async def _awaited(client: Client) -> None:
    answer = client.ask()
    if inspect.isawaitable(answer):
        await answer
    await asyncio.sleep(_PAUSE)


def keeps_contract(mode: str, rounds: Sequence[Round], peers: Sequence[Round] = ()) -> bool:
    """Tell whether the rounds of one cell reach the contract, by their median."""
    gaps, most = _gaps(rounds), MOST_MILLISECONDS + ATTEMPT_TIMEOUT * 1e3 * (mode == HANG)
    if peers:
        most = statistics.median(_gaps(peers) or [0.0])
    return (
        len(gaps) == len(rounds)
        and not any(one.error for one in rounds)
        and max(one.requests for one in rounds) <= MOST_REQUESTS
        and statistics.median(gaps) <= most
    )


def _verdict(competitor: Competitor, results: dict[str, dict[str, list[Round]]]) -> str:
    if not competitor.is_ours:
        return ""
    missed = [
        mode
        for mode, rounds in results.items()
        if not keeps_contract(
            mode, rounds[competitor.name], rounds[competitor.peer] if competitor.peer else ()
        )
    ]
    return f"**missed**: {', '.join(missed)}" if missed else "kept"


def _gaps(rounds: Sequence[Round]) -> list[float]:
    return [one.gap for one in rounds if one.gap is not None]


def _cell(rounds: Sequence[Round]) -> str:
    requests = "-".join(str(one) for one in sorted({one.requests for one in rounds}))
    errors = sorted({one.error for one in rounds if one.error})
    return " ".join([f"{requests}: {_spread(_gaps(rounds))}", *errors])


def _spread(milliseconds: Sequence[float]) -> str:
    if not milliseconds:
        return "-"
    return f"{statistics.median(milliseconds):.1f} ({max(milliseconds):.1f})"


def cold(family: str, rounds: int = 5) -> str:
    """Return the table of first calls in fresh processes, of one family."""
    rows: list[list[str]] = []
    with ProviderProcess() as providers:
        for number, competitor in enumerate(FAMILIES[family]()):
            if not competitor.is_cold:
                continue
            for suffix, hidden in _surroundings(family):
                gaps, stalls = list[float](), list[float]()
                for _ in range(rounds):
                    providers.control(reset=True, providers={"primary": {"always": MODES["500"]}})
                    ticks = _child("cold_call", family, str(number), providers.url, *hidden)
                    seen = providers.control()
                    gaps.append(Round.of("500", seen).gap or float("inf"))
                    failed = seen["requests"]["primary"][0]["answered"]
                    late = [b - a for a, b in pairwise(ticks) if b > failed]
                    stalls += [max(late) * 1e3] if late else []
                slowest = statistics.median(gaps)
                verdict = "kept" if slowest <= MOST_COLD_MILLISECONDS else "**missed**"
                name = competitor.name + suffix
                rows.append([name, _spread(gaps), _spread(stalls), verdict * competitor.is_ours])
    head = (
        "first call of a process",
        "ms to the fallback",
        "ms the event loop stalled",
        "contract",
    )
    return table(head, rows)


def _surroundings(family: str) -> list[tuple[str, tuple[str, ...]]]:
    """Name what a first call is measured with, and which packages are hidden from it."""
    installed = tuple(name for name in _PROXY_PACKAGES if find_spec(name) is not None)
    if family != "litellm" or not installed:
        return [("", ())]
    names = " and ".join(name for name in installed if name != "starlette")
    return [(f", with {names}", ()), (f", {names} hidden", installed)]


def imports(rounds: int = 9) -> str:
    """Return the table of import times in fresh processes."""
    spent = [_child("_import_times") for _ in range(rounds)]
    quiet = [min(times) * 1e3 for times in zip(*spent, strict=True)]
    verdict = "kept" if quiet[1] <= MOST_IMPORT_MILLISECONDS else "**missed**"
    rows = [
        ["pydantic and tenacity", f"{quiet[0]:.1f}", ""],
        ["honcho_fallback beyond them", f"{quiet[1]:.1f}", verdict],
    ]
    return table(("import", "ms, the quietest of fresh processes", "contract"), rows)


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
middle = time.perf_counter()
import honcho_fallback
print({_MARK!r} + str([middle - start, time.perf_counter() - middle]))
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


if __name__ == "__main__":
    print(imports())
