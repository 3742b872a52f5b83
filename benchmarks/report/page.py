"""The page: every benchmark run once, in a process of its own, and put where it belongs."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from failover.measure import FAMILIES as PLACES
from report.failover import gap_table, missed, whole_table
from report.lines import read_lines
from report.machine import facts
from report.markdown import block, table
from report.overhead import overhead_table

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

BENCHMARKS = Path(__file__).resolve().parent.parent
FAMILIES = ("core", "langchain", "litellm", "pydantic-ai", "haystack")
# Program, what is said about it, and its arguments where a quick look is enough.
PRINTED = (
    ("overhead.py", "The core beside tenacity and stamina", ("--calls", "200", "--rounds", "2")),
    ("classifying.py", "What `classify` and `check_response` cost", ("--rounds", "4")),
    ("outage.py", "What an outage costs, and how late a deadline is", ()),
    ("langchain_calls.py", "Under LangChain", ("--calls", "60", "--rounds", "2")),
    ("langfuse_observer.py", "With the Langfuse handler", ("--calls", "100", "--rounds", "2")),
    (
        "litellm_router.py",
        "Under LiteLLM's Router",
        ("--calls", "30", "--rounds", "1", "--gaps", "3"),
    ),
)

_TITLE = """# Benchmarks

Written by `make bench`. Absolute times differ from machine to machine and with what else runs on
it; the ratios of one run are what counts. Rows in bold are this package's."""
_OVERHEAD = """## Overhead beside every peer

Median microseconds that a layer adds to the bare call of its family (its own chat model, Router or
function), all in one process per family, on fakes that take no time. On failover the primary fails
once with status 503, nobody waits, and the fallback answers. Retry libraries know no second model:
they are given a function that asks another one the second time."""
_FAILOVER = """## Failover over real sockets

A primary that fails and a fallback that answers, both on loopback in a process of their own; one
call at a time over connections that are open. Each cell: requests that reached the dead primary,
then the time from its first failing answer (where it hangs: from its first request, with a timeout
of 1 s per attempt) until the fallback's request arrived, as median and (worst) of the rounds. What
a library remembers across calls (LiteLLM's cooldowns) is forgotten before each round.

To reach in the rows of ours: 1 request, and at most 10 ms, or 10 ms beyond the timeout, as a
median."""
_WHOLE = """### From the start of the call

The same rounds, from the start of the call until the fallback's request arrived. In the first
column the primary is healthy, and it is the primary's request that is waited for: what the library
takes before it sends anything at all."""
_REST = """## Each part by itself

As printed by the programs in `benchmarks/`."""


@dataclass(frozen=True, slots=True)
class Effort:
    """Say how thoroughly everything is measured.

    Args:
        overhead: Arguments of ``peers.py``.
        failover: Arguments of ``failover``.
        quick: Whether the others take their short arguments.
    """

    overhead: tuple[str, ...]
    failover: tuple[str, ...]
    quick: bool


FULL = Effort((), (), quick=False)
QUICK = Effort(
    ("--calls", "60", "--rounds", "2", "--warm-up", "20"),
    ("--rounds", "2", "--seconds", "1"),
    quick=True,
)


def run(command: Sequence[str]) -> str:
    """Run one program of ``benchmarks/`` and return what it printed.

    Raises:
        RuntimeError: It failed; what it said stands in the message.
    """
    print(" ".join(command), file=sys.stderr, flush=True)
    done = subprocess.run(
        [sys.executable, *command],
        cwd=BENCHMARKS,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} failed:\n{done.stderr}")
    return done.stdout


def write(command: str, effort: Effort, run: Callable[[Sequence[str]], str] = run) -> str:
    """Measure everything and write the page.

    Args:
        command: What is said to have made it.
        effort: How thoroughly.
        run: Runs one program.
    """
    said = facts(command)
    overhead = _figures(run, [["peers.py", name, *effort.overhead] for name in FAMILIES])
    cells = _figures(run, [["-m", "failover", name, *effort.failover] for name in PLACES])
    parts = [
        _TITLE,
        table(("", "this run"), said),
        _OVERHEAD,
        overhead_table(overhead),
        _FAILOVER,
        gap_table(cells),
        _beyond(missed(cells)),
        _WHOLE,
        whole_table(cells),
        _REST,
    ]
    for program, title, short in PRINTED:
        printed = run([program, *(short if effort.quick else ())])
        parts += [f"### {title}", block(printed)]
    return "\n\n".join(parts) + "\n"


def _figures(
    run: Callable[[Sequence[str]], str], commands: Iterable[list[str]]
) -> list[dict[str, Any]]:
    return [figure for command in commands for figure in read_lines(run([*command, "--json"]))]


def _beyond(cells: list[str]) -> str:
    if not cells:
        return "Every row of ours reached that."
    listed = "\n".join(f"- {cell}" for cell in cells)
    return f"Beyond that in this run:\n\n{listed}"
