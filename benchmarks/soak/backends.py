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
from typing import TYPE_CHECKING, Any, Protocol

import aiohttp
import httpx
from pydantic import SecretStr

from benchmarks.soak.plan import TARGETS, TIMEOUT
from honcho_fallback import FallbackConfig, FallbackPolicy, Target

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Generator, Iterator

    from honcho_fallback import Attempt, FallbackObserver

KEY = "not-a-key"
# Waits are short, as it is not patience that is tried here.
CONFIG = FallbackConfig(timeout=TIMEOUT, wait=0.01, retry_after_cap=0.02)
# More than calls at a time, so that none waits for another's connection.
_LIMITS = httpx.Limits(max_connections=1000, max_keepalive_connections=400)


class Backend(Protocol):
    """Ask by any of four ways; the text of the answer, or its parts."""

    def call(self, prompt: str, /) -> str: ...

    async def acall(self, prompt: str, /) -> str: ...

    def stream(self, prompt: str, /) -> Generator[str, None, None]: ...

    def astream(self, prompt: str, /) -> AsyncGenerator[str, None]: ...

    def unfinished(self) -> list[str]:
        """Describe the connections of its pools that wait for an answer's end."""
        ...

    async def close(self) -> None:
        """Close the clients."""
        ...


class Clients:
    """A sync HTTP client and an async one, whose pools can be looked into."""

    def __init__(self) -> None:
        self.sync = httpx.Client(limits=_LIMITS, timeout=TIMEOUT, trust_env=False)
        self.asynchronous = httpx.AsyncClient(limits=_LIMITS, timeout=TIMEOUT, trust_env=False)

    def unfinished(self) -> list[str]:
        return [*busy(self.sync), *busy(self.asynchronous)]

    async def close(self) -> None:
        self.sync.close()
        await self.asynchronous.aclose()


def busy(client: httpx.Client | httpx.AsyncClient) -> list[str]:
    """Describe the connections that a client counts as in use."""
    connections: Any = client._transport._pool.connections  # type: ignore[union-attr,attr-defined] # noqa: SLF001 # shown nowhere else
    return [repr(one) for one in connections if not (one.is_idle() or one.is_closed())]


class CoreBackend:
    """The policy itself over plain HTTP clients.

    The async one is aiohttp's, whose streams are no generators: of generators in a cycle the
    collector closes each by itself, as it does with an SDK's, and a dropped stream is collected.
    """

    def __init__(self, url: str, observer: FallbackObserver) -> None:
        self._sync = httpx.Client(limits=_LIMITS, timeout=TIMEOUT, trust_env=False)
        self._connector = aiohttp.TCPConnector(limit=0)
        self._asynchronous = aiohttp.ClientSession(
            connector=self._connector,
            timeout=aiohttp.ClientTimeout(total=None, sock_read=TIMEOUT),
            raise_for_status=True,
        )
        chain = [
            Target(name, provider="openai", endpoint=f"{url}/{name}/v1/chat/completions")
            for name in TARGETS
        ]
        self._policy = FallbackPolicy(chain, CONFIG, observers=[observer])

    def call(self, prompt: str) -> str:
        def ask(attempt: Attempt) -> Any:
            body = _body(attempt, prompt)
            answer = self._sync.post(attempt.target.endpoint or "", json=body)
            return answer.raise_for_status().json()

        return str(self._policy.call(ask)["choices"][0]["message"]["content"])

    async def acall(self, prompt: str) -> str:
        async def ask(attempt: Attempt) -> Any:
            body = _body(attempt, prompt)
            async with self._asynchronous.post(attempt.target.endpoint or "", json=body) as answer:
                return await answer.json()

        return str((await self._policy.acall(ask))["choices"][0]["message"]["content"])

    def stream(self, prompt: str) -> Generator[str, None, None]:
        def ask(attempt: Attempt) -> Iterator[Any]:
            body = _body(attempt, prompt, stream=True)
            with self._sync.stream("POST", attempt.target.endpoint or "", json=body) as answer:
                for line in answer.raise_for_status().iter_lines():
                    yield from _chunks(line)

        with closing(self._policy.stream(ask, has_content=_delta)) as chunks:
            for chunk in chunks:
                yield _delta(chunk)

    async def astream(self, prompt: str) -> AsyncGenerator[str, None]:
        async def ask(attempt: Attempt) -> AsyncIterator[Any]:
            body = _body(attempt, prompt, stream=True)
            async with self._asynchronous.post(attempt.target.endpoint or "", json=body) as answer:
                async for line in answer.content:
                    for chunk in _chunks(line.decode()):
                        yield chunk

        async with aclosing(self._policy.astream(ask, has_content=_delta)) as chunks:
            async for chunk in chunks:
                yield _delta(chunk)

    def unfinished(self) -> list[str]:
        acquired = self._connector._acquired  # noqa: SLF001 # shown nowhere else
        return [*busy(self._sync), *map(repr, acquired)]

    async def close(self) -> None:
        self._sync.close()
        await self._asynchronous.close()


def _body(attempt: Attempt, prompt: str, *, stream: bool = False) -> dict[str, Any]:
    messages = [{"role": "user", "content": prompt}]
    return {"model": attempt.target.model, "messages": messages, "stream": stream}


def _chunks(line: str) -> list[Any]:
    data = line.removeprefix("data: ").strip()
    return [json.loads(data)] if data not in {"", "[DONE]"} else []


def _delta(chunk: Any) -> str:
    return "".join(choice["delta"].get("content") or "" for choice in chunk.get("choices", ()))


def _text(answer: Any) -> str:
    return str(answer.choices[0].message.content)


def _word(chunk: Any) -> str:
    return (chunk.choices[0].delta.content or "") if chunk.choices else ""


class LangChainBackend:
    """FallbackChatModel over ChatOpenAI."""

    def __init__(self, url: str, observer: FallbackObserver) -> None:
        from langchain_openai import ChatOpenAI

        from honcho_fallback_langchain import FallbackChatModel

        self._clients = Clients()
        models = [
            ChatOpenAI(
                model=name,
                base_url=f"{url}/{name}/v1",
                api_key=SecretStr(KEY),
                timeout=TIMEOUT,
                http_client=self._clients.sync,
                http_async_client=self._clients.asynchronous,
            )
            for name in TARGETS
        ]
        self._model = FallbackChatModel(*models).with_fallback_config(
            timeout=CONFIG.timeout,
            wait=CONFIG.wait,
            retry_after_cap=CONFIG.retry_after_cap,
            observers=[observer],
        )

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


class LiteLLMBackend:
    """FallbackRoutingStrategy in a Router."""

    def __init__(self, url: str, observer: FallbackObserver) -> None:
        os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"
        import litellm

        from honcho_fallback_litellm import FallbackRoutingStrategy

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

    def call(self, prompt: str) -> str:
        return _text(self._router.completion(**_question(prompt)))

    async def acall(self, prompt: str) -> str:
        return _text(await self._router.acompletion(**_question(prompt)))

    def stream(self, prompt: str) -> Generator[str, None, None]:
        with closing(self._router.completion(**_question(prompt), stream=True)) as chunks:
            for chunk in chunks:
                yield _word(chunk)

    async def astream(self, prompt: str) -> AsyncGenerator[str, None]:
        chunks = await self._router.acompletion(**_question(prompt), stream=True)
        async with aclosing(chunks):
            async for chunk in chunks:
                yield _word(chunk)

    def unfinished(self) -> list[str]:
        return []  # its clients are LiteLLM's own

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


def _question(prompt: str) -> dict[str, Any]:
    return {"model": "group", "messages": [{"role": "user", "content": prompt}]}


BACKENDS = {"core": CoreBackend, "langchain": LangChainBackend, "litellm": LiteLLMBackend}
