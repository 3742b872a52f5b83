"""A real redis-server on a free port, started by the tests and stopped after them."""

from __future__ import annotations

import shutil
import socket
import subprocess
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest
import redis

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator
    from pathlib import Path

SERVER = shutil.which("redis-server")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def redis_server(folder: Path, port: int) -> Generator[subprocess.Popen[bytes], None, None]:
    """Run a server without persistence until the block ends."""
    if SERVER is None:
        pytest.skip("redis-server is not installed; apt-get install redis-server")
    command = [
        SERVER,
        "--port",
        str(port),
        "--bind",
        "127.0.0.1",
        "--save",
        "",
        "--dir",
        str(folder),
    ]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as server:
        try:
            with redis.Redis(port=port) as client:
                for _ in range(500):
                    try:
                        client.ping()
                        break
                    except redis.ConnectionError:
                        time.sleep(0.01)  # until it listens
                else:
                    pytest.fail("redis-server did not come up")
            yield server
        finally:
            server.terminate()
            server.wait()


@pytest.fixture(scope="session")
def _redis_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    port = free_port()
    with redis_server(tmp_path_factory.mktemp("redis"), port):
        yield f"redis://127.0.0.1:{port}/0"


@pytest.fixture
def redis_client(_redis_url: str) -> Iterator[redis.Redis]:
    """An empty database."""
    with redis.Redis.from_url(_redis_url, decode_responses=True) as client:
        client.flushall()
        yield client


@pytest.fixture
def redis_url(_redis_url: str, redis_client: redis.Redis) -> str:
    """Where it is."""
    return _redis_url
