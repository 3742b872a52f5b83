"""FallbackChatModel over ChatOpenAI."""

from __future__ import annotations

from contextlib import aclosing, closing
from typing import TYPE_CHECKING

from langchain_openai import ChatOpenAI
from pydantic import SecretStr

from honcho_fallback_langchain import FallbackChatModel
from soak.lanes.clients import Clients
from soak.lanes.lane import CONFIG, KEY
from soak.provider import TARGETS, TIMEOUT

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Generator

    from soak.ledger import Ledger
    from standins import Served


def _model(served: Served, ledger: Ledger, clients: Clients) -> FallbackChatModel:
    models = [
        ChatOpenAI(
            model=name,
            base_url=served.url(place, "/v1"),
            api_key=SecretStr(KEY),
            timeout=TIMEOUT,
            http_client=clients.sync,
            http_async_client=clients.asynchronous,
        )
        for place, name in enumerate(TARGETS)
    ]
    return FallbackChatModel(*models).with_fallback_config(
        timeout=CONFIG.timeout,
        wait=CONFIG.wait,
        retry_after_cap=CONFIG.retry_after_cap,
        observers=[ledger],
    )


class LangChainLane:
    """Ask through ``invoke``, ``ainvoke``, ``stream`` and ``astream``."""

    def __init__(self, served: Served, ledger: Ledger) -> None:
        self._clients = Clients()
        self._model = _model(served, ledger, self._clients)

    def call(self, prompt: str) -> str:
        return str(self._model.invoke(prompt).text)

    async def acall(self, prompt: str) -> str:
        return str((await self._model.ainvoke(prompt)).text)

    def stream(self, prompt: str) -> Generator[str, None, None]:
        with closing(self._model.stream(prompt)) as chunks:
            for chunk in chunks:
                yield str(chunk.text)

    async def astream(self, prompt: str) -> AsyncGenerator[str, None]:
        async with aclosing(self._model.astream(prompt)) as chunks:
            async for chunk in chunks:
                yield str(chunk.text)

    def unfinished(self) -> list[str]:
        return self._clients.unfinished()

    async def close(self) -> None:
        await self._clients.close()
