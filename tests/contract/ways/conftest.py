"""Every way in, over scripted providers on loopback."""

from __future__ import annotations

import gc
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.contract.ways.cells import WAYS, Cell
from tests.helpers.litellm_runs import THEIRS

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.helpers.provider import ProviderServer

HERE = Path(__file__).resolve().parent
WARNINGS = (
    *THEIRS,
    "ignore::langchain_core._api.LangChainBetaWarning",
    # Single calls outside of turns are meant to stand alone here.
    "ignore:.*has no effect outside of a turn:UserWarning",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(HERE):
            for warning in WARNINGS:
                item.add_marker(pytest.mark.filterwarnings(warning))


@pytest.fixture(scope="session", autouse=True)
def warmed() -> None:
    """Pay LiteLLM's lazy imports once, before anything is timed out."""
    if "litellm" in sys.modules:
        from honcho_fallback_litellm import warm_up  # noqa: PLC0415 # where it is

        warm_up()
        gc.collect()
        gc.freeze()  # as after the collection of tests


@pytest.fixture
async def cell(request: pytest.FixtureRequest, providers: ProviderServer) -> AsyncIterator[Cell]:
    """Be one way in with one of its verbs."""
    way, verb = request.param
    assert way in WAYS
    with way.clean():
        yield Cell(way, verb, providers)
        await way.close()
