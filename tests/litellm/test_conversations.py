"""`reset="session"`: a conversation stays with whom its prompt cache is warm, over many calls."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from honcho_fallback import FallbackConfig

if TYPE_CHECKING:
    from tests.helpers.provider import ProviderServer

MESSAGES = [{"role": "user", "content": "hello"}]
NAMES: dict[str, dict[str, Any]] = {
    "litellm_session_id": {"litellm_session_id": "s"},
    "metadata": {"metadata": {"session_id": "s"}},
}


@pytest.mark.parametrize("name", NAMES)
def test_a_session_stays(name: str, bench: Any, providers: ProviderServer, ask: Any) -> None:
    """By LiteLLM's own names for it; another conversation begins on the primary."""
    providers["primary"].fail(503, times=1)
    router, _ = bench.managed(FallbackConfig(reset="session"))
    for request in (NAMES[name], NAMES[name], {"litellm_session_id": "another"}):
        ask(router, "completion", model="deriver", messages=MESSAGES, **request)
    assert providers.order == ["primary", "backup", "backup", "primary"]
