"""What a call may go through; each has the same four ways to ask."""

# LiteLLM's objects and dicts have whatever shape they have; this is no part of the package.
# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false, reportPrivateImportUsage=false
# pyright: reportMissingTypeStubs=false
# ruff: noqa: PLC0415 # a backend loads its own framework and no other

from __future__ import annotations

import inspect
import json
import os
from contextlib import aclosing, closing
from typing import TYPE_CHECKING, Any

import aiohttp
import httpx
from pydantic import SecretStr

from benchmarks.soak.plan import TARGETS, TIMEOUT
from honcho_fallback import FallbackConfig, FallbackPolicy, Target

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator, Iterator

    from honcho_fallback import Attempt, FallbackObserver

KEY = "not-a-key"
# Waits are short, as it is not patience that is tried here.
CONFIG = FallbackConfig(timeout=TIMEOUT, wait=0.01, retry_after_cap=0.02)
# More than calls at a time, so that none waits for another's connection.
_LIMITS = httpx.Limits(max_connections=1000, max_keepalive_connections=400)


class Backend:
    """Ask by any of four ways; the text of the answer, or its parts."""

    def __init__(self) -> None:
        self.clients: list[httpx.Client | httpx.AsyncClient] = []

    def ask(self, prompt: str, *, stream: bool = False) -> Any:
        """Return an answer, or a generator of chunks."""
        raise NotImplementedError

    def aask(self, prompt: str, *, stream: bool = False) -> Any:
        """Return an awaitable of an answer, or of an async generator, or such a generator."""
        raise NotImplementedError

    def text(self, answer: Any) -> str:
        """Read an answer or a chunk."""
        if not answer.choices:
            return ""
        part = getattr(answer.choices[0], "delta", None) or answer.choices[0].message
        return part.content or ""

    def call(self, prompt: str) -> str:
        return self.text(self.ask(prompt))

    async def acall(self, prompt: str) -> str:
        return self.text(await self.aask(prompt))

    def stream(self, prompt: str) -> Generator[str, None, None]:
        with closing(self.ask(prompt, stream=True)) as chunks:
            for chunk in chunks:
                yield self.text(chunk)

    async def astream(self, prompt: str) -> AsyncGenerator[str, None]:
        chunks = self.aask(prompt, stream=True)
        async with aclosing(await chunks if inspect.isawaitable(chunks) else chunks) as opened:
            async for chunk in opened:
                yield self.text(chunk)

    def unfinished(self) -> list[str]:
        """Describe the connections of its pools that wait for an answer's end."""
        pools: list[Any] = [client._transport for client in self.clients]  # noqa: SLF001 # pyright: ignore[reportPrivateUsage] # shown nowhere else
        connections = [one for pool in pools for one in pool._pool.connections]  # noqa: SLF001 # as above
        return [repr(one) for one in connections if not (one.is_idle() or one.is_closed())]

    async def close(self) -> None:
        """Close the clients."""
        for client in self.clients:
            if isinstance(client, httpx.Client):
                client.close()
            else:
                await client.aclose()


class CoreBackend(Backend):
    """The policy itself over plain HTTP clients.

    The async one is aiohttp's, whose streams are no generators: of generators in a cycle the
    collector closes each by itself, as it does with an SDK's, and a dropped stream is collected.
    """

    def __init__(self, url: str, observer: FallbackObserver) -> None:
        super().__init__()
        self._sync = httpx.Client(limits=_LIMITS, timeout=TIMEOUT, trust_env=False)
        self.clients = [self._sync]
        self._connector = aiohttp.TCPConnector(limit=0)
        timeout = aiohttp.ClientTimeout(total=None, sock_read=TIMEOUT)
        self._async = aiohttp.ClientSession(
            connector=self._connector, timeout=timeout, raise_for_status=True
        )
        chain = [
            Target(name, provider="openai", endpoint=f"{url}/{name}/v1/chat/completions")
            for name in TARGETS
        ]
        self._policy = FallbackPolicy(chain, CONFIG, observers=[observer])

    def text(self, answer: Any) -> str:
        choices = answer.get("choices", ())
        parts = (choice.get("delta") or choice.get("message", {}) for choice in choices)
        return "".join(part.get("content") or "" for part in parts)

    def ask(self, prompt: str, *, stream: bool = False) -> Any:
        def ask(attempt: Attempt) -> Any:
            answer = self._sync.post(attempt.target.endpoint or "", json=_body(prompt))
            return answer.raise_for_status().json()

        def ask_stream(attempt: Attempt) -> Iterator[Any]:
            body = _body(prompt, stream=True)
            with self._sync.stream("POST", attempt.target.endpoint or "", json=body) as answer:
                for line in answer.raise_for_status().iter_lines():
                    yield from _chunks(line)

        if stream:
            return self._policy.stream(ask_stream)
        return self._policy.call(ask)

    def aask(self, prompt: str, *, stream: bool = False) -> Any:
        async def ask(attempt: Attempt) -> Any:
            async with self._async.post(
                attempt.target.endpoint or "", json=_body(prompt)
            ) as answer:
                return await answer.json()

        async def ask_stream(attempt: Attempt) -> AsyncIterator[Any]:
            body = _body(prompt, stream=True)
            async with self._async.post(attempt.target.endpoint or "", json=body) as answer:
                async for line in answer.content:
                    for chunk in _chunks(line.decode()):
                        yield chunk

        if stream:
            return self._policy.astream(ask_stream)
        return self._policy.acall(ask)

    def unfinished(self) -> list[str]:
        acquired = self._connector._acquired  # noqa: SLF001 # pyright: ignore[reportPrivateUsage] # shown nowhere else
        return [*super().unfinished(), *map(repr, acquired)]

    async def close(self) -> None:
        await super().close()
        await self._async.close()


def _body(prompt: str, *, stream: bool = False) -> dict[str, Any]:
    messages = [{"role": "user", "content": prompt}]
    return {"model": "group", "messages": messages, "stream": stream}


def _chunks(line: str) -> list[Any]:
    data = line.removeprefix("data: ").strip()
    return [json.loads(data)] if data not in {"", "[DONE]"} else []


class LangChainBackend(Backend):
    """FallbackChatModel over ChatOpenAI."""

    def __init__(self, url: str, observer: FallbackObserver) -> None:
        from langchain_openai import ChatOpenAI

        from honcho_fallback_langchain import FallbackChatModel

        super().__init__()
        options: dict[str, Any] = {"limits": _LIMITS, "timeout": TIMEOUT, "trust_env": False}
        models: list[ChatOpenAI] = []
        for name in TARGETS:
            # A pool of its own for each, as two providers have.
            sync, asynchronous = httpx.Client(**options), httpx.AsyncClient(**options)
            self.clients += [sync, asynchronous]
            both: dict[str, Any] = {"http_client": sync, "http_async_client": asynchronous}
            where = {"model": name, "base_url": f"{url}/{name}/v1"}
            models.append(ChatOpenAI(api_key=SecretStr(KEY), timeout=TIMEOUT, **where, **both))
        options = {name: getattr(CONFIG, name) for name in CONFIG.model_fields_set}
        self._model: Any = FallbackChatModel(*models).with_fallback_config(
            **options, observers=[observer]
        )

    def text(self, answer: Any) -> str:
        return str(answer.text)

    def ask(self, prompt: str, *, stream: bool = False) -> Any:
        return (self._model.stream if stream else self._model.invoke)(prompt)

    def aask(self, prompt: str, *, stream: bool = False) -> Any:
        return (self._model.astream if stream else self._model.ainvoke)(prompt)


class LiteLLMBackend(Backend):
    """FallbackRoutingStrategy in a Router, whose clients are LiteLLM's own."""

    def __init__(self, url: str, observer: FallbackObserver) -> None:
        os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"
        import litellm

        from honcho_fallback_litellm import FallbackRoutingStrategy

        super().__init__()
        litellm.suppress_debug_info = True
        models = [
            {
                "model_name": "group",
                "litellm_params": {
                    "model": f"openai/{name}",
                    "api_base": f"{url}/{name}/v1",
                    "api_key": KEY,
                    "timeout": TIMEOUT,
                },
                "model_info": {"id": name, "fallback_rank": place},
            }
            for place, name in enumerate(TARGETS)
        ]
        # With cooldowns a primary that fails at random would hardly ever be asked.
        self._router: Any = litellm.Router(model_list=models, disable_cooldowns=True)
        self._strategy = FallbackRoutingStrategy(CONFIG, observers=[observer])
        self._strategy.register(self._router)

    def ask(self, prompt: str, *, stream: bool = False) -> Any:
        return self._router.completion(**_body(prompt, stream=stream))

    def aask(self, prompt: str, *, stream: bool = False) -> Any:
        return self._router.acompletion(**_body(prompt, stream=stream))

    async def close(self) -> None:
        import litellm
        from litellm.llms.custom_httpx.async_client_cleanup import close_litellm_async_clients

        await close_litellm_async_clients()
        cache: Any = litellm.in_memory_llm_clients_cache
        for client in cache.cache_dict.values():
            close = getattr(client, "close", None)
            if close is not None and not inspect.iscoroutinefunction(close):
                close()
        cache.flush_cache()


BACKENDS: dict[str, Callable[[str, FallbackObserver], Backend]] = {
    "core": CoreBackend,
    "langchain": LangChainBackend,
    "litellm": LiteLLMBackend,
}
