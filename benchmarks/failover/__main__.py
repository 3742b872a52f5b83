"""How often a dead primary is asked, and how long until the fallback is: one family, real sockets.

Primary and fallback are in a process of their own, which notes when each request arrives and when
a failing answer is sent, on a clock that both processes share. Every subject makes a few calls
first, so that connections are open and whatever is loaded late is loaded.
"""

from __future__ import annotations

import argparse
import logging
from importlib import import_module

from failover.measure import FAMILIES, Effort, measured
from report.lines import write_lines
from standins import serving


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("family", choices=FAMILIES)
    parser.add_argument("--rounds", type=int, default=20, help="per cell (default 20)")
    parser.add_argument("--seconds", type=float, default=12, help="per cell (default 12)")
    parser.add_argument("--json", action="store_true", help="one JSON document a line")
    options = parser.parse_args()
    logging.disable(logging.CRITICAL)
    effort = Effort(options.rounds, options.seconds)
    subjects = import_module(f"failover.{FAMILIES[options.family]}").SUBJECTS
    with serving("failover.provider") as served:
        for cell in measured(served, subjects, effort):
            print(write_lines([cell]) if options.json else cell, flush=True)


if __name__ == "__main__":
    main()
