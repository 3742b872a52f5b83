"""A real server on loopback."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.helpers.local_model import local_model_server

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.helpers.local_model import LocalModel


@pytest.fixture(scope="session")
def local_model() -> Iterator[LocalModel]:
    """A real model server: llama.cpp's own, on tiny random weights."""
    with local_model_server() as server:
        yield server
