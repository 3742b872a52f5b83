"""A server process that lives as long as a ``with`` block."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.request
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Generator

_HERE = Path(__file__).resolve().parent.parent
_DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class Served(NamedTuple):
    """Tell where a server process listens.

    Args:
        ports: In the order of its handlers.
    """

    ports: tuple[int, ...]

    def url(self, number: int, path: str = "") -> str:
        return f"http://127.0.0.1:{self.ports[number]}{path}"

    def ask(self, number: int, path: str) -> Any:
        """Get a JSON document from one of its ports."""
        with _DIRECT.open(self.url(number, path), timeout=60) as answer:
            return json.load(answer)


@contextmanager
def serving(module: str) -> Generator[Served, None, None]:
    """Run a module that calls ``serve``, until the block ends.

    Raises:
        RuntimeError: It ended before it listened.
    """
    command = [sys.executable, "-m", module]
    with subprocess.Popen(
        command, cwd=_HERE, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        told = process.stdout.readline()
        if not told:
            raise RuntimeError(f"{module} ended before it listened")
        try:
            yield Served(tuple(json.loads(told)))
        finally:
            process.stdin.close()
