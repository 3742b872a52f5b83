"""Run an example: ``python examples raw_sdk``; without a name, the demo.

Ctrl-C ends it quietly with status 130; a package that is missing is named with how to install it.
"""

from __future__ import annotations

import ast
import os
import runpy
import signal
import sys
from pathlib import Path

HERE = Path(__file__).parent
SHARED = {"endpoints", "simulated"}  # no examples, but what they have in common


def main(name: str = "demo") -> None:
    """Run the example of that name as if it had been started by itself."""
    path = HERE / f"{name}.py"
    if not path.is_file():
        places = ("[a-z]*.py", "durable/*.py", "frameworks/*.py")
        scripts = (path for place in places for path in HERE.glob(place))
        names = (one.relative_to(HERE).with_suffix("").as_posix() for one in scripts)
        known = sorted(one for one in names if one not in SHARED)
        sys.exit(f"There is no example {name!r}; choose from {', '.join(known)}")
    # A KeyboardInterrupt would come out of a half-finished import as some other error. A terminal
    # interrupts processes that the example started as well.
    signal.signal(signal.SIGINT, lambda *_: os._exit(130))
    try:
        runpy.run_path(str(path), run_name="__main__")
    except ImportError as missing:
        sys.exit(f"{name}: {missing}\n{how_to_install(path)}")


def how_to_install(path: Path) -> str:
    """Return the last line of the example's docstring."""
    docstring = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return docstring.splitlines()[-1]


if __name__ == "__main__":
    main(*sys.argv[1:2])
