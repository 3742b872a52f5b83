"""What is relied on of LiteLLM without its promise is tried out when a Router is registered."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import litellm
import pytest

from honcho_fallback import FallbackConfigError
from honcho_fallback_litellm import FallbackRoutingStrategy
from honcho_fallback_litellm._warm import check_release

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(autouse=True)
def untried() -> Iterator[None]:
    """Forget what was tried, before and after."""
    check_release.cache_clear()
    yield
    check_release.cache_clear()


def test_a_release_is_tried_once(bench: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """It does not change while a process runs."""
    FallbackRoutingStrategy().register(bench.router(), warm=False)
    router = bench.router()
    monkeypatch.setattr(litellm, "Router", None)
    FallbackRoutingStrategy().register(router, warm=False)


def test_a_release_that_asks_somebody_else_is_refused(
    bench: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One sentence says what it does not do, before a request goes to the wrong target."""
    router, own = bench.router(), litellm.Router

    def careless_router(*args: Any, **options: Any) -> Any:
        made: Any = own(*args, **options)
        ask = made.completion

        def narrowed_by_nobody(**request: Any) -> Any:
            request["_excluded_deployment_ids"] = []
            answer = ask(**request)
            answer._hidden_params["model_id"] = "first"
            return answer

        made.completion = narrowed_by_nobody
        return made

    monkeypatch.setattr(litellm, "Router", careless_router)
    with pytest.raises(FallbackConfigError, match="does not keep to the deployment"):
        FallbackRoutingStrategy().register(router, warm=False)
