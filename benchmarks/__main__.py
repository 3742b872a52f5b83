"""Measure everything, each part in a process of its own, and publish it.

Only a whole run of a quiet machine is published: under load it is refused, and a quick run, one of
some parts and one with --print-only are printed and not kept.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import warnings
from contextlib import redirect_stdout
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING

from benchmarks import competitors, failover, outage, overhead, proxy
from benchmarks.measure import LEAST_ROUNDS, NO_DIFFERENCE, QUICK, Plan
from benchmarks.report import Result, publish

if TYPE_CHECKING:
    from collections.abc import Callable

PAGE = failover.ROOT / "docs" / "benchmarks.md"
MOST_LOAD = 0.5
TIMED = Plan()
OVER_SOCKETS = Plan(series=2, seconds=10)
SLOW = Plan(rounds=9, series=2, seconds=40)
OUTAGE = Plan(rounds=9, series=1, seconds=40)
INTRODUCTION = f"""# Benchmarks

Written by `make bench`, which refuses to on a machine that has a load above {MOST_LOAD}. Every
round asks everybody, every other round in reverse order. A figure is the median over the rounds,
in brackets the interval that holds it with 95 % confidence (order statistics). A ratio is taken
within each round, and where its interval contains 1 (that of an amount: 0) the page says
"{NO_DIFFERENCE}". What is wider than {TIMED.widest:.0%} of its median is measured anew with
twice the rounds, {TIMED.series} times in all at most (over sockets {OVER_SOCKETS.series} times, an
outage once); "wide" is what stays so.

Absolute times differ from machine to machine: the ratios are what counts. The contract is what a
row of this package has to reach; "undecided" is a limit that lies within an interval.
"""
SECTIONS = {
    "overhead": """## What a layer adds to a call

Microseconds beyond the bare call of the same kind, on fakes that take no time. On failover the
primary fails once with status 503, nobody waits, and the fallback answers. Retry libraries are
given a function that asks another model the second time. The peers: tenacity, LangChain's
`with_fallbacks` and `ModelFallbackMiddleware`, LiteLLM's Router without retries, the bare Langfuse
SDK, a policy without observers. The plot shows the ratios on the happy path.
""",
    "failover": """## Failover over sockets

A primary that fails and a fallback that answers, on loopback in a process of their own; one call
at a time over connections that are open. Each cell: requests that reached the dead primary, then
milliseconds from its first failing answer (where it hangs: from its first request, with a timeout
of 1 s per attempt) until the fallback's request arrived. What a library remembers across calls
(LiteLLM's cooldowns) is forgotten before each round. The contract is 10 ms, beside LiteLLM not to
be slower than its Router without retries. The plot shows a primary that answers 500.
""",
    "cold": """## The first call of a process

Each round is a fresh process whose first call meets a primary that answers 500: milliseconds from
that answer until the fallback's request arrived, and the longest time for which the event loop ran
nothing else since then. The contract is 150 ms for both. LiteLLM imports packages of its Proxy at
a failure where they are installed: "hidden" are rows whose process cannot import them.
""",
    "outage": f"""## Ten calls in an outage

{outage.CALLS} calls, one after another, over sockets; the primary answers 503 to each request.
What a library remembers from call to call it keeps until the last.
""",
    "proxy": f"""## Through LiteLLM's Proxy

Requests per second through `litellm --config`, one process, {proxy.AT_ONCE} at a time, beside
LiteLLM's own `fallbacks`. Clients, Proxy and providers share the machine's cores, so only the
ratios say something. "At the primary": requests that reached it, for each of the clients'.
LiteLLM's retries wait, which is where "as it comes" spends its time.
""",
    "money": """## What a day-long outage costs

Played by `honcho_fallback.simulate` in virtual time: about 1,730 streamed calls a day, of 4,000
tokens in and 300 out; a round is a seed. The primary's tokens cost 2 and 10 per million, the
fallback's 3 and 15: round figures of our own, not any provider's. A refusal costs nothing, what
was written is paid for. Half of the streams break off where they do. The policy that is not this
package's models an SDK that retries twice and then asks the next model.
""",
}


def parts(*, quick: bool) -> dict[str, Callable[[], Result]]:
    """Return what can be measured, by name: its section, then what of it."""
    timed, over_sockets, slow, long = (
        QUICK if quick else plan for plan in (TIMED, OVER_SOCKETS, SLOW, OUTAGE)
    )
    added = partial(overhead.measure, plan=timed, seconds=0.005 if quick else 0.1)
    return {
        **{f"overhead/{name}": partial(added, name) for name in overhead.FAMILIES},
        "overhead/memory": lambda: asyncio.run(overhead.memory()),
        **{
            f"failover/{name}": partial(failover.measure, name, over_sockets, *[["500"]] * quick)
            for name in competitors.FAMILIES
        },
        **{f"cold/{name}": partial(failover.cold, name, slow) for name in competitors.FAMILIES},
        "cold/import": partial(failover.imports, timed),
        "outage/sockets": partial(outage.sockets, long, *[2] * quick),
        "proxy/sockets": partial(proxy.measure, long, *[proxy.AT_ONCE] * quick),
        "money/simulated": partial(outage.money, *[LEAST_ROUNDS] * quick),
    }


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    names = [*parts(quick=False)]
    parser.add_argument("parts", nargs="*", choices=[*names, []], help="default: all")
    parser.add_argument("--quick", action="store_true", help="few rounds, to try it out")
    parser.add_argument("--print-only", action="store_true", help="whatever the load; not kept")
    parser.add_argument("--json", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.json:
        print(json.dumps(asdict(alone(parts(quick=options.quick)[options.parts[0]]))))
        # Some clients wait at exit for hosts that were made to hang.
        sys.stdout.flush()
        os._exit(0)
    load, is_whole = os.getloadavg()[0], not (options.parts or options.quick)
    is_published = is_whole and not options.print_only
    if load > MOST_LOAD:
        problem = f"load {load:.2f} at the start, above {MOST_LOAD}: other programs run"
        if is_published:
            parser.exit(1, f"{problem}. Wait, or pass --print-only\n")
        print(f"{problem}, only ratios mean something", file=sys.stderr)
    results: dict[str, Result] = {}
    for name in options.parts or names:
        results[name] = in_a_process(name, *["--quick"] * options.quick)
        print(f"\n{name}\n\n{results[name].table}", flush=True)
    if is_published:
        publish(PAGE, INTRODUCTION, SECTIONS, results, load)
        print(f"wrote {PAGE.name}")


def alone(part: Callable[[], Result]) -> Result:
    """Measure one part; what a peer prints meanwhile goes to the error output."""
    warnings.simplefilter("ignore")
    with redirect_stdout(sys.stderr):
        return part()


def in_a_process(*arguments: str) -> Result:
    """Measure one part in a fresh process."""
    print(" ".join(arguments), file=sys.stderr, flush=True)
    command = [sys.executable, "-m", "benchmarks", "--json", *arguments]
    done = subprocess.run(
        command,
        cwd=failover.ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} failed:\n{done.stderr}")
    return Result(**json.loads(done.stdout))


if __name__ == "__main__":
    main()
