"""A real redis-server on a free port, started by the tests and stopped after them."""

from __future__ import annotations

import gc
import warnings
from typing import TYPE_CHECKING

import pytest
import redis

from tests.helpers.redis_server import free_port, redis_server

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(autouse=True)
def _nothing_is_left_to_others() -> Iterator[None]:
    """Collect what redis-py leaves open where a caller or a loop is gone."""
    yield
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


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
