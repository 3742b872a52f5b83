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


def deployment(
    group: str, model: str, url: str, rank: int | None, name: str = "", **params: Any
) -> dict[str, Any]:
    """Describe a member of a group to a Router, by its rank in a chain or without one."""
    info = {"id": name or str(rank), **({} if rank is None else {"fallback_rank": rank})}
    params = {"model": model, "api_base": url, "api_key": "k", **params}
    return {"model_name": group, "litellm_params": params, "model_info": info}


def run_async(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """Run in a loop of its own, and close what LiteLLM leaves open in it."""

    async def inside() -> Any:
        try:
            return await coroutine
        finally:
            await close_litellm_async_clients()

    return asyncio.run(inside())


def ask_in(
    way: str,
    router: Any,
    method: str = "completion",
    received: list[Any] | None = None,
    **options: Any,
) -> Any:
    """Ask a Router, for a completion where nothing else is said; a stream is a list of chunks.

    Args:
        way: ``sync``, ``async`` or ``sync in a loop``.
        router: Who is asked.
        method: Which of its endpoints, without the a of those for a task.
        received: Where the chunks of a stream go as they come; the stream itself is returned.
        options: Of the request.
    """
    options = {**(ASKED if method == "completion" else {"model": ASKED["model"]}), **options}
    chunks: list[Any] = [] if received is None else received

    def in_a_thread() -> Any:
        answer = getattr(router, method)(**options)
        if not options.get("stream"):
            return answer
        for one in answer:
            chunks.append(one)  # noqa: PERF402 # what came before an error counts
        return chunks if received is None else answer

    async def inside() -> Any:
        if way != "async":
            return in_a_thread()
        answer = await getattr(router, f"a{method}")(**options)
        if not options.get("stream"):
            return answer
        async for one in answer:
            chunks.append(one)  # noqa: PERF401 # what came before an error counts
        return chunks if received is None else answer

    return in_a_thread() if way == "sync" else run_async(inside())


def text_of(answer: Any) -> str:
    """Return what was said, however."""
    if isinstance(answer, list):
        return "".join(one.choices[0].delta.content or "" for one in answer if one.choices)
    if isinstance(answer, dict):
        return "".join(part["text"] for part in answer["content"])
    output = getattr(answer, "output", None)
    if output is not None:
        return "".join(part.text for item in output for part in item.content)
    return answer.choices[0].message.content or ""
