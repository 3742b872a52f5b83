"""Run every benchmark and write ``notebooks/benchmarks.md``."""

from __future__ import annotations

import argparse
from pathlib import Path

from report.page import BENCHMARKS, FULL, QUICK, write


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="few rounds: to try it out")
    page = BENCHMARKS.parent / "notebooks" / "benchmarks.md"
    parser.add_argument("--out", type=Path, default=page)
    options = parser.parse_args()
    command = "make bench" + (" ARGS=--quick" if options.quick else "")
    text = write(command, QUICK if options.quick else FULL)
    options.out.parent.mkdir(exist_ok=True)
    options.out.write_text(text, encoding="utf-8")
    print(f"wrote {options.out.name}")


if __name__ == "__main__":
    main()
