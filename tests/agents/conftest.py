"""Fixtures, where the two frameworks are: the lowest versions of the others exclude them."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

import pytest

from tests.helpers.observers import Listener

if TYPE_CHECKING:
    from tests.agents.frameworks import Framework
    from tests.helpers.provider import Provider, ProviderServer

MISSING = [name for name in ("agents", "pydantic_ai") if find_spec(name) is None]
collect_ignore_glob = ["test_*.py"] if MISSING else []


@pytest.fixture(params=["openai-agents", "pydantic-ai"])
def framework(request: pytest.FixtureRequest) -> Framework:
    """Be each framework once."""
    from tests.agents.frameworks import FRAMEWORKS  # noqa: PLC0415 # where they are

    return FRAMEWORKS[request.param]


@pytest.fixture
def listener() -> Listener:
    return Listener()


@pytest.fixture
def primary(providers: ProviderServer) -> Provider:
    return providers.new("primary")


@pytest.fixture
def fallback(providers: ProviderServer) -> Provider:
    return providers.new("fallback")


@pytest.fixture(autouse=True)
def no_traces_leave() -> None:
    """Write no spans, which the Agents SDK would send to OpenAI."""
    import agents  # noqa: PLC0415 # where it is

    agents.set_tracing_disabled(True)
