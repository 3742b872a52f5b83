"""Real servers on loopback; llmock is behind `faults` and nowhere else."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from honcho_fallback.testing import fault_simulator
from tests.helpers.local_model import local_model_server

if TYPE_CHECKING:
    from collections.abc import Iterator

    from honcho_fallback.testing import FaultSimulator
    from tests.helpers.local_model import LocalModel


@pytest.fixture(scope="session")
def _simulator() -> Iterator[FaultSimulator]:
    with fault_simulator() as simulator:
        yield simulator


@pytest.fixture
def faults(_simulator: FaultSimulator) -> FaultSimulator:
    """Simulated providers that do as they are told; one server, clean for every test."""
    _simulator.reset()
    return _simulator


@pytest.fixture(scope="session")
def local_model() -> Iterator[LocalModel]:
    """A real model server: llama.cpp's own, on tiny random weights."""
    with local_model_server() as server:
        yield server
