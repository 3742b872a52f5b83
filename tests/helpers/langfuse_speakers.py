"""A speaker for each SDK, and providers that behave as their names say.

``ok``, ``busy``, ``denied``, ``broken`` (a stream that fails in the middle), ``quiet`` (reports no
usage), ``stopped`` (the user presses Ctrl-C while it is asked). Scenarios know speakers only;
another framework becomes another speaker.
"""

from __future__ import annotations

import signal
import threading
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, ClassVar

import anthropic
import openai

from honcho_fallback import FallbackConfig, FallbackPolicy, Target
from tests.helpers.provider import Reply

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from honcho_fallback import Attempt, FallbackObserver
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


class Raw(Speaker):
    """Ask over an SDK itself, in the loops that a service writes."""

    sdk: Any
    own: ClassVar[dict[str, Any]] = {}
    extra_streamed: ClassVar[dict[str, Any]] = {}

    def create(self, client: Any) -> Any:
        raise NotImplementedError

    def calls(self, chain: Sequence[str], observer: FallbackObserver) -> Any:
        targets = [self.target(behaviour) for behaviour in chain]
        config = FallbackConfig(max_attempts=2)
        policy = FallbackPolicy(targets, config, agent="deriver", observers=[observer])

        def asking(verb: str) -> Callable[[], Any]:
            kind = "AsyncClient" if verb.startswith("a") else "Client"
            more = {"stream": True, **self.extra_streamed} if "stream" in verb else {}
            options = {"has_content": self.has_content} if more else {}

            def ask(attempt: Attempt) -> Any:
                target = attempt.target
                create = self.create(target.client[kind])
                return create(model=target.model, messages=MESSAGES, **target.params, **more)

            def call() -> Any:
                run = policy.start()
                run.report(input=MESSAGES, parameters={"top_p": 0.9})
                return getattr(policy, verb)(ask, run=run, **options)

            return call

        verbs = ("call", "acall", "stream", "astream")
        return SimpleNamespace(**{verb: asking(verb) for verb in verbs})

    def target(self, behaviour: str) -> Target:
        # Nobody closes an asynchronous client whose loop is over.
        headers = {"x-key": SECRET, "connection": "close"}
        client = {
            kind: getattr(self.sdk, kind)(
                base_url=f"{self.url}/{behaviour}", api_key=SECRET, max_retries=0
            )
            for kind in ("Client", "AsyncClient")
        }
        params = {"extra_headers": headers, **self.own}
        return Target(f"{behaviour}-model", self.provider, client=client, params=params)


class RawOpenAI(Raw):
    provider, sdk = "openai", openai
    own: ClassVar[dict[str, Any]] = {"temperature": 0.5}
    parameters: ClassVar[dict[str, Any]] = {"temperature": 0.5, "top_p": 0.9}
    extra_streamed: ClassVar[dict[str, Any]] = {"stream_options": {"include_usage": True}}

    def create(self, client: Any) -> Any:
        return client.chat.completions.create

    def has_content(self, chunk: Any) -> object:
        return chunk.choices and chunk.choices[0].delta.content


class RawAnthropic(Raw):
    provider, sdk = "anthropic", anthropic
    own: ClassVar[dict[str, Any]] = {"max_tokens": 9}
    parameters: ClassVar[dict[str, Any]] = {"max_tokens": 9, "top_p": 0.9}

    def create(self, client: Any) -> Any:
        return client.messages.create

    def has_content(self, chunk: Any) -> object:
        return chunk.type == "content_block_delta"
