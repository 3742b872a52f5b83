"""Make very many calls, with faults and impatient readers, and see that the promises hold.

Every call has to end in its own answer or an error; no answer of a failed attempt may come out;
every record is begun and closed once and agrees with what the providers saw; memory stays flat;
nothing is left behind: no task, thread, socket, or call. What happens to a call is drawn from the
seed and its number.
"""

from __future__ import annotations

import argparse
import asyncio
import faulthandler
import logging
import sys
import warnings

from benchmarks.providers import ProviderProcess
from benchmarks.soak.backends import BACKENDS
from benchmarks.soak.run import Extent, soak


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--calls", type=int, default=50_000, help="default 50000")
    parser.add_argument("--at-a-time", type=int, default=200, help="default 200")
    parser.add_argument("--seconds", type=float, default=3000, help="then no call is begun")
    parser.add_argument("--seed", type=int, default=1, help="default 1")
    parser.add_argument("--backends", nargs="+", choices=BACKENDS, default=[*BACKENDS])
    parser.add_argument("--short", action="store_true", help="3000 calls, 70 seconds at most")
    options = parser.parse_args()
    extent = Extent(options.calls, options.at_a_time, options.seconds)
    if options.short:
        extent = Extent(3000, options.at_a_time, 70)
    faulthandler.enable()
    logging.disable(logging.CRITICAL)
    # LiteLLM makes them in an executor; where its caller is cancelled meanwhile, they are lost.
    warnings.filterwarnings("ignore", "coroutine 'OpenAIChatCompletion", RuntimeWarning)
    with ProviderProcess("benchmarks.soak.provider") as providers:
        report = asyncio.run(soak(providers, options.backends, options.seed, extent))
    print(report)
    if report.violations:
        violations = "\n  ".join(report.violations)
        print(f"\nseed {options.seed}: {report.count} violations\n  {violations}", file=sys.stderr)
    return bool(report.violations)


if __name__ == "__main__":
    sys.exit(main())
