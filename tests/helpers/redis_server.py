"""A real redis-server on a free port of loopback."""

from __future__ import annotations

import shutil
import socket
import subprocess
import time
from contextlib import contextmanager, suppress
from random import SystemRandom
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

PROGRAM = shutil.which("redis-server")
_STARTS_WITHIN = 10.0
# Below those of outgoing connections; so is the port 10,000 higher, where a cluster's nodes talk.
_NOT_GIVEN_OUT = range(20_000, 22_768)


def free_port() -> int:
    """Return a port on which nobody listens, and which no outgoing connection is given.

    A server may import for half a minute before it listens; until then a port of those is taken.
    """
    for port in SystemRandom().sample(_NOT_GIVEN_OUT, 100):
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    pytest.fail("no free port")


@contextmanager
def redis_server(
    folder: Path, port: int, *more: str
) -> Generator[subprocess.Popen[bytes], None, None]:
    """Run a server without persistence until the block ends; skip the test where there is none.

    Args:
        folder: Where it runs.
        port: From ``free_port``.
        *more: Further options of its command line.
    """
    if PROGRAM is None:
        pytest.skip("redis-server is not installed; apt-get install redis-server")
    options = {"--port": str(port), "--bind": "127.0.0.1", "--save": "", "--dir": str(folder)}
    command = [PROGRAM, *(word for option in options.items() for word in option), *more]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as server:
        try:
            _wait(port)
            yield server
        finally:
            server.terminate()


def _wait(port: int) -> None:
    until = time.monotonic() + _STARTS_WITHIN
    while time.monotonic() < until:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except ConnectionError:
            time.sleep(0.01)
        else:
            return
    pytest.fail("redis-server did not start")
