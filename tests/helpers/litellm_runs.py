"""What every test with a real Router needs: LiteLLM leaves things open, and warns of them."""

from __future__ import annotations

import asyncio
import inspect
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import litellm
from litellm.llms.custom_httpx.async_client_cleanup import close_litellm_async_clients

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterator

ASKED: Any = {"model": "deriver", "messages": [{"role": "user", "content": "hello"}]}
# Other people's warnings, which would become errors in the middle of LiteLLM's own error handling.
THEIRS = (
    "ignore::UserWarning:pydantic",
    "ignore::DeprecationWarning:litellm",
    "ignore:Router\\.:DeprecationWarning",
    "ignore::DeprecationWarning:aiohttp",
    # LiteLLM keeps its aiohttp sessions beyond the event loop they belong to.
    "ignore:unclosed:ResourceWarning",
    "ignore::pytest.PytestUnraisableExceptionWarning",
)


@contextmanager
def litellm_left_clean() -> Iterator[None]:
    """Leave LiteLLM's global lists as they were (every Router adds to them), and no client."""
    names = [name for name in vars(litellm) if name.endswith("callback") or name == "callbacks"]
    before = {
        name: list(value) for name in names if isinstance(value := getattr(litellm, name), list)
    }
    yield
    for name, value in before.items():
        getattr(litellm, name)[:] = value
    cache = litellm.in_memory_llm_clients_cache
    for client in cache.cache_dict.values():
        close = getattr(client, "close", None)
        if close is not None and not inspect.iscoroutinefunction(close):
            close()
    cache.flush_cache()


def run_async(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """Run in a loop of its own, and close what LiteLLM leaves open in it."""

    async def inside() -> Any:
        try:
            return await coroutine
        finally:
            await close_litellm_async_clients()

    return asyncio.run(inside())
