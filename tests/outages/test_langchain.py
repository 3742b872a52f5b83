"""LangChain over a shared cooldown: what one process learned, the others know."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from agent_fakes import agent, last, run
from chat_fakes import VERBS
from loopback import Provider, dead_provider

from honcho_fallback.redis import RedisCooldown
from honcho_fallback_langchain import FallbackChatModel, FallbackMiddleware

if TYPE_CHECKING:
    import redis
    from pytest_httpserver import HTTPServer


@pytest.mark.parametrize("verb", VERBS)
async def test_chains_of_other_processes_know_who_is_down(
    httpserver: HTTPServer, redis_url: str, redis_client: redis.Redis, verb: str
) -> None:
    """Nothing is shared but the server: what was learned is told before a call's end."""
    down, up = dead_provider(httpserver, "openai"), Provider(httpserver, "anthropic", "hello")
    stores = [RedisCooldown(redis_url, timeout=5.0) for _ in range(2)]
    try:
        for store in stores:
            model: Any = FallbackChatModel(down.model(), up.model(), cooldown=store)
            assert await VERBS[verb](model.bind(stop=["x"]), "hi") == "hello"
            assert redis_client.keys()
    finally:
        for store in stores:
            await store.aclose()
            store.close()
    assert (down.requests, up.requests) == (1, 2)


@pytest.mark.parametrize("verb", ["invoke", "ainvoke"])
async def test_agents_of_other_processes_know_it_too(
    httpserver: HTTPServer, redis_url: str, verb: str
) -> None:
    """The middleware goes the same way."""
    down, up = dead_provider(httpserver, "anthropic"), Provider(httpserver, "openai", "hello")
    stores = [RedisCooldown(redis_url, timeout=5.0) for _ in range(2)]
    try:
        for store in stores:
            middleware = FallbackMiddleware(up.model(), cooldown=store)
            assert last(await run(verb, agent(down.model(), middleware))).text == "hello"
    finally:
        for store in stores:
            await store.aclose()
            store.close()
    assert (down.requests, up.requests) == (1, 2)
