"""Measure everything, each part in a process of its own, and write it down.

The page is for figures of a quiet machine: a run that begins under load, a quick run and a run of
some parts are printed and not kept.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import subprocess
import sys
import warnings
from contextlib import redirect_stdout
from functools import partial
from typing import TYPE_CHECKING

from benchmarks import competitors, failover, overhead
from benchmarks.report import machine

if TYPE_CHECKING:
    from collections.abc import Callable

PAGE = failover.ROOT / "notebooks" / "benchmarks.md"
MOST_LOAD = 0.5
TITLE = """# Benchmarks

Written by `make bench`. Absolute times differ from machine to machine and with what else runs on
it; the ratios of one run are what counts. The contract is what a row of this package has to reach.
"""
SECTIONS = {
    "overhead": """## What a layer adds to a call

Microseconds beyond the bare call of the same kind, in the quietest of alternating rounds, on fakes
that take no time. On failover the primary fails once with status 503, nobody waits, and the
fallback answers. Retry libraries are given a function that asks another model the second time.
""",
    "memory": "## Memory\n",
    "import": "## Import\n",
    "failover": """## Failover over sockets

A primary that fails and a fallback that answers, on loopback in a process of their own; one call
at a time over connections that are open. Each cell: requests that reached the dead primary, then
milliseconds from its first failing answer (where it hangs: from its first request, with a timeout
of 1 s per attempt) until the fallback's request arrived, median and (worst). What a library
remembers across calls (LiteLLM's cooldowns) is forgotten before each round.
""",
    "cold": """## The first call of a process

Each round is a fresh process whose first call meets a primary that answers 500: milliseconds from
that answer until the fallback's request arrived, and the longest time for which the event loop ran
nothing else since then; median and (worst). LiteLLM imports packages of its Proxy at a failure
where they are installed: "hidden" are rows whose process cannot import them.
""",
}


def parts(*, quick: bool, rounds: int | None = None) -> dict[str, Callable[[], str]]:
    """Return what can be measured, by name; of failover, as many rounds as are asked for."""
    timed = partial(overhead.measure, rounds=2, seconds=0.02) if quick else overhead.measure
    measure = partial(failover.measure, rounds=2, seconds=1) if quick else failover.measure
    if rounds is not None:
        measure = partial(failover.measure, rounds=rounds, seconds=float("inf"))
    cold = partial(failover.cold, rounds=1) if quick else failover.cold
    imports = partial(failover.imports, 3) if quick else failover.imports
    return {
        **{f"overhead/{name}": partial(timed, name) for name in overhead.FAMILIES},
        "memory": lambda: asyncio.run(overhead.memory()),
        "import": imports,
        **{f"failover/{name}": partial(measure, name) for name in competitors.FAMILIES},
        **{f"cold/{name}": partial(cold, name) for name in competitors.FAMILIES},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    names = [*parts(quick=False)]
    parser.add_argument("parts", nargs="*", choices=[*names, []], help="default: all")
    parser.add_argument("--quick", action="store_true", help="few rounds, to try it out")
    parser.add_argument("--force", action="store_true", help="write the page on a busy machine")
    parser.add_argument("--rounds", type=int, help="of a failover part, however long they take")
    options = parser.parse_args()
    if len(options.parts) == 1:
        print(alone(parts(quick=options.quick, rounds=options.rounds)[options.parts[0]]))
        # Some clients wait at exit for hosts that were made to hang.
        sys.stdout.flush()
        os._exit(0)
    load = os.getloadavg()[0]
    if load >= MOST_LOAD:
        print(f"load {load:.2f}: other programs run, only ratios mean something", file=sys.stderr)
    pieces = [TITLE, machine(load)]
    for name in options.parts or names:
        section = SECTIONS[name.partition("/")[0]]
        pieces += [section] * (section not in pieces)
        pieces += [f"\n{in_a_process(name, *['--quick'] * options.quick)}"]
        print(pieces[-1], flush=True)
    if options.parts or options.quick:
        return
    if load >= MOST_LOAD and not options.force:
        print(f"{PAGE.name} is left as it is: load {load:.2f} at the start", file=sys.stderr)
        return
    PAGE.write_text("\n".join(pieces) + "\n", encoding="utf-8")
    print(f"wrote {PAGE.name}")


def alone(part: Callable[[], str]) -> str:
    """Measure one part; what a peer prints meanwhile goes to the error output."""
    warnings.simplefilter("ignore")
    with redirect_stdout(sys.stderr):
        return part()


def in_a_process(*arguments: str) -> str:
    """Measure one part in a fresh process, and return its table."""
    print(" ".join(arguments), file=sys.stderr, flush=True)
    command = [sys.executable, "-m", "benchmarks", *arguments]
    done = subprocess.run(
        command,
        cwd=failover.ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} failed:\n{done.stderr}")
    return done.stdout


if __name__ == "__main__":
    main()
