"""The policy itself over the least of a client."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from honcho_fallback import FallbackPolicy, Target
from soak.lanes.lane import CONFIG
from soak.provider import TARGETS
from standins import client

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Generator, Iterator

    from honcho_fallback import Attempt
    from soak.ledger import Ledger
    from standins import Served


def _question(attempt: Attempt, prompt: str, *, stream: bool = False) -> dict[str, Any]:
    messages = [{"role": "user", "content": prompt}]
    return {"model": attempt.target.model, "messages": messages, "stream": stream}


def _text(answer: Any) -> str:
    return str(answer["choices"][0]["message"]["content"])


def _word(chunk: Any) -> str:
    return "".join(choice["delta"].get("content") or "" for choice in chunk.get("choices", ()))


class CoreLane:
    """Ask through ``call``, ``acall``, ``stream`` and ``astream``."""

    def __init__(self, served: Served, ledger: Ledger) -> None:
        chain = [
            Target(name, provider="openai", client=port)
            for name, port in zip(TARGETS, served.ports, strict=False)
        ]
        self._policy = FallbackPolicy(chain, CONFIG, observers=[ledger])

    def call(self, prompt: str) -> str:
        def ask(attempt: Attempt) -> Any:
            question = _question(attempt, prompt)
            return client.ask(attempt.target.client, question, attempt.timeout)

        return _text(self._policy.call(ask))

    async def acall(self, prompt: str) -> str:
        def ask(attempt: Attempt) -> Awaitable[Any]:
            return client.aask(attempt.target.client, _question(attempt, prompt))

        return _text(await self._policy.acall(ask))

    def stream(self, prompt: str) -> Generator[str, None, None]:
        def ask(attempt: Attempt) -> Iterator[Any]:
            question = _question(attempt, prompt, stream=True)
            return client.ask_stream(attempt.target.client, question, attempt.timeout)

        chunks = self._policy.stream(ask, has_content=_word)
        try:
            for chunk in chunks:
                yield _word(chunk)
        finally:
            chunks.close()

    async def astream(self, prompt: str) -> AsyncGenerator[str, None]:
        def ask(attempt: Attempt) -> AsyncIterator[Any]:
            question = _question(attempt, prompt, stream=True)
            return client.aask_stream(attempt.target.client, question)

        chunks = self._policy.astream(ask, has_content=_word)
        try:
            async for chunk in chunks:
                yield _word(chunk)
        finally:
            await chunks.aclose()

    def unfinished(self) -> list[str]:
        return []  # it keeps no connection

    async def close(self) -> None:
        """Have nothing to close."""
