"""FallbackRoutingStrategy in a Router."""

# LiteLLM's objects and dicts have whatever shape they have; this is no part of the package.
# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false, reportPrivateImportUsage=false
# pyright: reportMissingTypeStubs=false

from __future__ import annotations

import inspect
import os
from typing import TYPE_CHECKING, Any

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"

import litellm  # after the variable that it reads
from litellm import Router  # as above
from litellm.llms.custom_httpx.async_client_cleanup import (  # as above
    close_litellm_async_clients,
)

from honcho_fallback_litellm import FallbackRoutingStrategy  # as above
from soak.lanes.lane import CONFIG, KEY  # as above
from soak.provider import TARGETS, TIMEOUT  # as above

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Generator

    from soak.ledger import Ledger
    from standins import Served

litellm.suppress_debug_info = True


def _question(prompt: str) -> dict[str, Any]:
    return {"model": "group", "messages": [{"role": "user", "content": prompt}]}


def _word(chunk: Any) -> str:
    return (chunk.choices[0].delta.content or "") if chunk.choices else ""


class LiteLLMLane:
    """Ask through ``completion`` and ``acompletion``, with and without a stream."""

    def __init__(self, served: Served, ledger: Ledger) -> None:
        models = [
            {
                "model_name": "group",
                "litellm_params": {
                    "model": f"openai/{name}",
                    "api_base": served.url(place, "/v1"),
                    "api_key": KEY,
                    "timeout": TIMEOUT,
                },
                "model_info": {"id": name, "fallback_rank": place},
            }
            for place, name in enumerate(TARGETS)
        ]
        # With cooldowns a primary that fails at random would hardly ever be asked.
        self._router = Router(model_list=models, disable_cooldowns=True)
        strategy = FallbackRoutingStrategy(CONFIG, observers=[ledger])
        self._strategy = strategy.register(self._router)

    def call(self, prompt: str) -> str:
        answer: Any = self._router.completion(**_question(prompt))
        return str(answer.choices[0].message.content)

    async def acall(self, prompt: str) -> str:
        answer: Any = await self._router.acompletion(**_question(prompt))
        return str(answer.choices[0].message.content)

    def stream(self, prompt: str) -> Generator[str, None, None]:
        chunks: Any = self._router.completion(**_question(prompt), stream=True)
        try:
            for chunk in chunks:
                yield _word(chunk)
        finally:
            chunks.close()

    async def astream(self, prompt: str) -> AsyncGenerator[str, None]:
        chunks: Any = await self._router.acompletion(**_question(prompt), stream=True)
        try:
            async for chunk in chunks:
                yield _word(chunk)
        finally:
            await chunks.aclose()

    def unfinished(self) -> list[str]:
        return []  # its clients are LiteLLM's own

    async def close(self) -> None:
        await close_litellm_async_clients()
        cache: Any = litellm.in_memory_llm_clients_cache
        for client in cache.cache_dict.values():
            close = getattr(client, "close", None)
            if close is not None and not inspect.iscoroutinefunction(close):
                close()
        cache.flush_cache()
