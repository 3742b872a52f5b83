"""LangChain over a shared cooldown: what one process learned, the others know."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from honcho_fallback.redis import RedisCooldown
from honcho_fallback_langchain import FallbackChatModel, FallbackMiddleware
from tests.helpers.agents import agent, last, run
from tests.helpers.chat_models import model_at, serve
from tests.helpers.chat_runs import VERBS

if TYPE_CHECKING:
    import redis

    from tests.helpers.provider import ProviderServer


@pytest.mark.parametrize("verb", VERBS)
async def test_chains_of_other_processes_know_who_is_down(
    providers: ProviderServer, redis_url: str, redis_client: redis.Redis, verb: str
) -> None:
    """Nothing is shared but the server: what was learned is told before a call's end."""
    down, up = serve(providers, "openai", status=503), serve(providers, "anthropic", "hello")
    stores = [RedisCooldown(redis_url, after=1, base=60, timeout=5.0) for _ in range(2)]
    try:
        for store in stores:
            model: Any = FallbackChatModel(model_at(down), model_at(up), cooldown=store)
            assert await VERBS[verb](model.bind(stop=["x"]), "hi") == "hello"
            assert redis_client.keys()
    finally:
        for store in stores:
            await store.aclose()
            store.close()
    assert (len(down.requests), len(up.requests)) == (1, 2)


@pytest.mark.parametrize("verb", ["invoke", "ainvoke"])
async def test_agents_of_other_processes_know_it_too(
    providers: ProviderServer, redis_url: str, verb: str
) -> None:
    """The middleware goes the same way."""
    down, up = serve(providers, "anthropic", status=503), serve(providers, "openai", "hello")
    stores = [RedisCooldown(redis_url, after=1, base=60, timeout=5.0) for _ in range(2)]
    try:
        for store in stores:
            middleware = FallbackMiddleware(model_at(up), cooldown=store)
            assert last(await run(verb, agent(model_at(down), middleware))).text == "hello"
    finally:
        for store in stores:
            await store.aclose()
            store.close()
    assert (len(down.requests), len(up.requests)) == (1, 2)
