"""The command line: ``honcho-fallback explain``, ``show``, ``simulate`` and others.

Other distributions add commands by the entry-point group ``honcho_fallback.commands``: the name of
an entry point is the command's, its object a function with typer's annotations.
"""

from __future__ import annotations

import sys

_NEEDED = frozenset({"rich", "typer"})


def main() -> None:
    """Run the command line; with its extra missing, say so and exit with status 2."""
    try:
        from honcho_fallback.cli._app import app  # noqa: PLC0415 # the guard is the point
    except ModuleNotFoundError as missing:
        if (missing.name or "").partition(".")[0] not in _NEEDED:
            raise
        sys.stderr.write(
            f"honcho-fallback: {missing.name} is not installed: "
            "pip install 'honcho-fallback[cli]', in a checkout pip install '.[cli]'\n"
        )
        sys.exit(2)
    app(prog_name="honcho-fallback")
