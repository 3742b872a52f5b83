"""Real Routers over scripted providers on loopback."""

from __future__ import annotations

import gc
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

HERE = Path(__file__).resolve().parent

# Before the first import of LiteLLM, which would fetch a price list.
pytest.importorskip("litellm")

# ruff: noqa: E402
from litellm import Router

from honcho_fallback_litellm import FallbackRoutingStrategy, warm_up
from tests.helpers.litellm_runs import (
    THEIRS,
    ask_in,
    deployment,
    litellm_left_clean,
    text_of,
)
from tests.helpers.observers import Listener
from tests.helpers.provider import Provider, ProviderServer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from honcho_fallback import FallbackConfig


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let LiteLLM and what it stands on warn."""
    for item in items:
        if item.path.is_relative_to(HERE):
            for warning in THEIRS:
                item.add_marker(pytest.mark.filterwarnings(warning))


GROUP = "deriver"


@dataclass
class Bench:
    """Make Routers over the scripted providers, of which each is had by its name."""

    providers: ProviderServer

    def __getitem__(self, name: str) -> Provider:
        return self.providers[name]

    @property
    def order(self) -> list[str]:
        return self.providers.order

    def deployment(
        self, name: str, rank: int | None, group: str = GROUP, info: Any = None, **more: Any
    ) -> dict[str, Any]:
        """Describe one provider to a Router."""
        more = {"api_key": f"key-of-{name}", **more}
        model = more.pop("model", f"openai/{name}-model")
        url = more.pop("api_base", f"{self.providers.url}/{name}")
        made = deployment(group, model, url, rank, name, **more)
        made["model_info"].update(info or {})
        return made

    def chain(self, *names: str, **more: Any) -> list[dict[str, Any]]:
        """Describe a group whose first member is the primary."""
        return [self.deployment(name, rank, **more) for rank, name in enumerate(names)]

    def router(self, models: list[dict[str, Any]] | None = None, **options: Any) -> Router:
        """Make a plain Router."""
        return Router(model_list=models or self.chain("primary", "backup"), **options)

    def managed(
        self,
        config: FallbackConfig | None = None,
        *,
        models: list[dict[str, Any]] | None = None,
        respect_cooldown: bool | None = None,
        listener: Listener | None = None,
        **options: Any,
    ) -> tuple[Router, Listener]:
        """Make a Router with a strategy."""
        listener = listener or Listener()
        router = self.router(models, **options)
        FallbackRoutingStrategy(
            config, observers=[listener], respect_cooldown=respect_cooldown
        ).register(router)
        return router, listener

    def with_a_spare(
        self, config: FallbackConfig | None = None, models: Any = None, **options: Any
    ) -> tuple[Router, Listener]:
        """Make a Router with a strategy, whose fallbacks name another group behind the chain."""
        models = models or self.chain("primary", "backup")
        models = [*models, self.deployment("spare", None, group="spares")]
        return self.managed(config, models=models, fallbacks=[{GROUP: ["spares"]}], **options)


@pytest.fixture(scope="session", autouse=True)
def warmed() -> None:
    """Pay LiteLLM's lazy imports once, before anything is timed out."""
    warm_up()
    gc.collect()
    gc.freeze()  # as after the collection of tests


@pytest.fixture(autouse=True)
def clean_litellm() -> Iterator[None]:
    """Leave LiteLLM as it was."""
    with litellm_left_clean():
        yield


@pytest.fixture
def providers() -> Iterator[ProviderServer]:
    """Serve scripted providers; under an address of their own, by which LiteLLM keeps clients."""
    with ProviderServer() as serving:
        yield serving


@pytest.fixture
def bench(providers: ProviderServer) -> Bench:
    """Make Routers over the scripted providers."""
    return Bench(providers)


ASKS = ("sync", "async", "sync in a loop")


@pytest.fixture(params=ASKS)
def ask(request: pytest.FixtureRequest) -> Any:
    """Ask a Router in each of the ways; ``ask(router, ...)`` for a completion."""
    return partial(ask_in, request.param)


@pytest.fixture
def say(ask: Any) -> Any:
    """Ask as ``ask`` does, and return what is said."""
    return lambda *args, **options: text_of(ask(*args, **options))
