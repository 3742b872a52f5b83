"""A speaker for each SDK, and providers that behave as their names say.

``ok``, ``busy``, ``denied``, ``broken`` (a stream that fails in the middle), ``quiet`` (reports no
usage), ``stopped`` (the user presses Ctrl-C while it is asked). Scenarios know speakers only;
another framework becomes another speaker.
"""

from __future__ import annotations

import signal
import threading
from functools import cached_property
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, ClassVar

import anthropic
import openai

from honcho_fallback import FallbackConfig, FallbackPolicy, Target
from tests.helpers.provider import Reply

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Iterator, Sequence

    from honcho_fallback import Attempt, FallbackObserver, FallbackRun
    from tests.helpers.provider import ProviderServer, SeenRequest

MESSAGES = [{"role": "user", "content": "Good morning"}]
SECRET = "sk-that-nobody-may-see"
TEXT = "Hello there"
WORDS = ("Hello ", "there")
# What the server stores of the usage below: every token in one bucket.
BUCKETS = {
    "openai": {
        "input": 8,
        "output": 5,
        "input_cached_tokens": 4,
        "output_reasoning_tokens": 2,
        "total": 19,
    },
    "anthropic": {
        "input": 8,
        "output": 7,
        "input_cached_tokens": 4,
        "input_cache_creation": 3,
        "total": 22,
    },
}

_WORDS_OF_AN_ERROR = f"the prompt of {SECRET} was too much"
_BUSY = Reply(status=503, error="overloaded_error", message=_WORDS_OF_AN_ERROR)


def _stopped(_: SeenRequest) -> Reply:
    # As a terminal does: KeyboardInterrupt in sync code, a cancelled task in asyncio.run.
    signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
    return _BUSY


BEHAVIOURS: dict[str, Reply | Callable[[SeenRequest], Reply]] = {
    "ok": Reply(text=TEXT),
    "busy": _BUSY,
    "busy2": _BUSY,
    "denied": Reply(status=400, message=_WORDS_OF_AN_ERROR),
    "broken": Reply(text=WORDS[0], error="overloaded_error", message=_WORDS_OF_AN_ERROR),
    "quiet": Reply(text=TEXT, usage=False),
    "stopped": _stopped,
}


def serve(providers: ProviderServer) -> None:
    """Let a server play a provider for each behaviour."""
    for name, behaviour in BEHAVIOURS.items():
        providers[name].standing = behaviour


class Speaker:
    """Ask chains over one framework.

    Attributes:
        provider: Whose wire it speaks.
        parameters: Those that a server is to show.
        raises: What it raises in place of this package's errors.
        blurred_kinds: The last failure's kind, where the framework blurs it, by ending.
    """

    provider: str
    parameters: ClassVar[dict[str, Any]] = {}
    raises: tuple[type[BaseException], ...] = ()
    blurred_kinds: ClassVar[dict[str, str]] = {}

    def __init__(self, url: str) -> None:
        self.url = url

    def calls(self, chain: Sequence[str], observer: FallbackObserver) -> Any:
        """Return the ways to ask a chain: call, acall, stream and astream."""
        raise NotImplementedError

    def has_content(self, chunk: Any) -> object:
        raise NotImplementedError


class Clients:
    """Make an SDK's clients when they are asked for; loopback needs no certificates."""

    def __init__(self, sdk: Any, plain: str, async_plain: str, base_url: str) -> None:
        self._sdk, self._plain, self._async = sdk, plain, async_plain
        self._options: dict[str, Any] = {
            "base_url": base_url,
            "api_key": SECRET,
            "max_retries": 0,
        }

    @cached_property
    def sync(self) -> Any:
        http = self._sdk.DefaultHttpxClient(trust_env=False, verify=False)
        return getattr(self._sdk, self._plain)(http_client=http, **self._options)

    @cached_property
    def asynchronous(self) -> Any:
        http = self._sdk.DefaultAsyncHttpxClient(trust_env=False, verify=False)
        return getattr(self._sdk, self._async)(http_client=http, **self._options)


class Raw(Speaker):
    """Ask over an SDK itself, in the loops that a service writes."""

    own: ClassVar[dict[str, Any]] = {}
    extra_streamed: ClassVar[dict[str, Any]] = {}

    def clients(self, base_url: str) -> Clients:
        raise NotImplementedError

    def create(self, client: Any) -> Any:
        raise NotImplementedError

    def calls(self, chain: Sequence[str], observer: FallbackObserver) -> Any:
        targets = [self.target(behaviour) for behaviour in chain]
        config = FallbackConfig(max_attempts=2)
        policy = FallbackPolicy(targets, config, agent="deriver", observers=[observer])
        streamed: Any = {"has_content": self.has_content}

        def run() -> FallbackRun:
            begun = policy.start()
            begun.report(input=MESSAGES, parameters={"top_p": 0.9})
            return begun

        return SimpleNamespace(
            call=lambda: policy.call(self.ask, run=run()),
            acall=lambda: policy.acall(self.aask, run=run()),
            stream=lambda: policy.stream(self.stream, run=run(), **streamed),
            astream=lambda: policy.astream(self.astream, run=run(), **streamed),
        )

    def target(self, behaviour: str) -> Target:
        clients = self.clients(f"{self.url}/{behaviour}")
        params = {"extra_headers": {"x-key": SECRET}, **self.own}
        return Target(f"{behaviour}-model", self.provider, client=clients, params=params)

    def ask(self, attempt: Attempt) -> Any:
        return self.create(attempt.target.client.sync)(**self._request(attempt))

    async def aask(self, attempt: Attempt) -> Any:
        async with attempt.target.client.asynchronous as client:
            return await self.create(client)(**self._request(attempt))

    def stream(self, attempt: Attempt) -> Iterator[Any]:
        request = self._request(attempt) | self.extra_streamed
        with self.create(attempt.target.client.sync)(stream=True, **request) as chunks:
            yield from chunks

    async def astream(self, attempt: Attempt) -> AsyncGenerator[Any]:
        request = self._request(attempt) | self.extra_streamed
        async with (
            attempt.target.client.asynchronous as client,
            await self.create(client)(stream=True, **request) as chunks,
        ):
            async for chunk in chunks:
                yield chunk

    def _request(self, attempt: Attempt) -> dict[str, Any]:
        target = attempt.target
        return {"model": target.model, "messages": MESSAGES, **target.params}


class RawOpenAI(Raw):
    """Ask over the openai SDK."""

    provider = "openai"
    own: ClassVar[dict[str, Any]] = {"temperature": 0.5}
    parameters: ClassVar[dict[str, Any]] = {"temperature": 0.5, "top_p": 0.9}
    extra_streamed: ClassVar[dict[str, Any]] = {"stream_options": {"include_usage": True}}

    def clients(self, base_url: str) -> Clients:
        return Clients(openai, "OpenAI", "AsyncOpenAI", base_url)

    def create(self, client: Any) -> Any:
        return client.chat.completions.create

    def has_content(self, chunk: Any) -> object:
        return chunk.choices and chunk.choices[0].delta.content


class RawAnthropic(Raw):
    """Ask over the anthropic SDK."""

    provider = "anthropic"
    own: ClassVar[dict[str, Any]] = {"max_tokens": 9}
    parameters: ClassVar[dict[str, Any]] = {"max_tokens": 9, "top_p": 0.9}

    def clients(self, base_url: str) -> Clients:
        return Clients(anthropic, "Anthropic", "AsyncAnthropic", base_url)

    def create(self, client: Any) -> Any:
        return client.messages.create

    def has_content(self, chunk: Any) -> object:
        return chunk.type == "content_block_delta"
