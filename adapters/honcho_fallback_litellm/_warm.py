"""Fail once before the first failure, so that LiteLLM has loaded what it loads only then.

Which modules those are differs from version to version and with what else is installed. So each
model is asked, and fails, by LiteLLM's own code: with a mock failure, and over clients whose
transport answers 500 out of memory.

Nobody else takes part. LiteLLM's ``completion`` is called below its decorator, where no callback,
hook, retry or cache of the user's is. There is no Router, which would ask every object in
``litellm.callbacks`` and add itself to LiteLLM's global lists. The key is no key, and the address
leads nowhere.
"""

# LiteLLM's objects and dicts have whatever shape they have.
# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false

from __future__ import annotations

import asyncio
import inspect
import logging
import threading
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import httpx
import litellm
import openai
from litellm.integrations.custom_logger import (  # pyright: ignore[reportMissingTypeStubs] # as below
    CustomLogger,
)
from litellm.litellm_core_utils.litellm_logging import (  # pyright: ignore[reportMissingTypeStubs] # as below
    Logging,
)
from litellm.llms.custom_httpx.http_handler import (  # pyright: ignore[reportMissingTypeStubs] # one stub
    AsyncHTTPHandler,
    HTTPHandler,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

logger = logging.getLogger("honcho_fallback")

# No transport knows the scheme: where LiteLLM makes a client of its own, that opens no socket.
_NOWHERE = "warm-up://nowhere"
_KEY = "not-a-key"
_SDK: dict[str, Any] = {
    "azure_endpoint": _NOWHERE,
    "api_key": _KEY,
    "api_version": "2024-10-21",
    "max_retries": 0,
}
_QUESTION = [{"role": "user", "content": "hi"}]
# Providers that are asked with a key at an address. Others sign in somewhere first, with what they
# find on this machine: they get the mock failure only.
_ASKED_WITH_A_KEY = frozenset(
    {"anthropic", "azure", "cerebras", "deepinfra", "deepseek", "fireworks_ai", "gemini", "groq"}
    | {"hosted_vllm", "litellm_proxy", "lm_studio", "mistral", "moonshot", "nvidia_nim"}
    | {"ollama_chat", "openai", "openrouter", "perplexity", "sambanova", "together_ai", "xai"}
)
# Settings of LiteLLM by which a call asks somebody else first: another model, or a sign-in.
_DETOURS = ("model_fallbacks", "model_alias_map", "proxy_auth")
_LOCK = threading.Lock()
_DONE: set[str] = set()  # the models; what was imported for them is imported for the process


class _Unheard(Logging):
    """Do what LiteLLM does to log a failure, and tell none of its callbacks."""

    def get_combined_callback_list(self, *_: Any, **__: Any) -> list[Any]:
        """Put one that does nothing in the place of all."""
        return [CustomLogger()]

    def should_run_prompt_management_hooks(self, *_: Any, **__: Any) -> bool:
        """Look no prompt up."""
        return False

    def pre_call(self, *_: Any, **__: Any) -> None:
        """Tell none of the input callbacks."""

    def post_call(self, *_: Any, **__: Any) -> None:
        """Tell none of the input callbacks."""


class _Transport(httpx.MockTransport):
    """Answer every request with status 500, and count them."""

    def __init__(self) -> None:
        super().__init__(self._fail)
        self.requests = 0

    def _fail(self, request: httpx.Request) -> httpx.Response:
        self.requests += 1
        return httpx.Response(500, json={"error": {"message": "warm-up"}}, request=request)

    def turns(self, models: list[str], clients: tuple[Any, Any]) -> Iterator[tuple[str, Any]]:
        """Yield each model with one client after the other, until a request has come of it."""
        for model in models:
            before = self.requests
            for client in clients:
                if self.requests == before:
                    yield model, client


def warm_up(models: Iterable[str] = ("openai/gpt-5.5", "anthropic/claude-sonnet-5")) -> None:
    """Load what LiteLLM imports at its first failure, so that no call pays for it.

    A second or two, once per process and model. No request leaves the process, no callback hears
    of it, and nothing stays behind but the modules. A model that cannot be exercised is left out.

    Args:
        models: As LiteLLM spells them, with the provider in front.
    """
    with _LOCK:
        new = [model for model in dict.fromkeys(models) if model not in _DONE]
        if not new:
            return
        if any(getattr(litellm, name, None) for name in _DETOURS):
            logger.debug("warm_up: left out, for one of litellm's %s is set", ", ".join(_DETOURS))
            return
        # A thread of its own may run an event loop even where the caller is in one.
        thread = threading.Thread(target=_exercise, args=(new,), name="honcho-fallback-warm-up")
        thread.start()
        thread.join()
        _DONE.update(new)


def _exercise(models: list[str]) -> None:
    response = httpx.Response(500, request=httpx.Request("POST", _NOWHERE))
    asked = [model for model in models if model.partition("/")[0] in _ASKED_WITH_A_KEY]
    try:
        for model in models:
            error = openai.InternalServerError("warm-up", response=response, body=None)
            _fail(model, mock_response=error)
        _fail_in_memory(asked)
        asyncio.run(_afail_in_memory(asked))
    except Exception as error:  # noqa: BLE001 # a LiteLLM with other clients is only not warm
        logger.debug("warm_up: ended by %s", type(error).__name__)


def _fail_in_memory(models: list[str]) -> None:
    transport = _Transport()
    with httpx.Client(transport=transport) as http:
        # LiteLLM takes the one or the other, by provider and version; the second is both of the
        # openai SDK's kinds.
        clients = HTTPHandler(client=http), openai.AzureOpenAI(http_client=http, **_SDK)
        for model, client in transport.turns(models, clients):
            _fail(model, client=client)


async def _afail_in_memory(models: list[str]) -> None:
    transport = _Transport()
    handler = AsyncHTTPHandler()
    async with handler.client, httpx.AsyncClient(transport=transport) as http:
        handler.client = http
        clients = handler, openai.AsyncAzureOpenAI(http_client=http, **_SDK)
        for model, client in transport.turns(models, clients):
            await _afail(model, client=client, acompletion=True)


def _fail(model: str, **options: Any) -> None:
    unheard = _unheard(model)
    try:
        _ask(model, unheard, **options)
    except Exception as error:  # noqa: BLE001 # it has to fail
        logger.debug("warm_up: %s raised %s", model, type(error).__name__)
        unheard.failure_handler(error, "")


async def _afail(model: str, **options: Any) -> None:
    unheard = _unheard(model)
    try:
        await _ask(model, unheard, **options)
    except Exception as error:  # noqa: BLE001 # it has to fail
        logger.debug("warm_up: %s raised %s", model, type(error).__name__)
        await unheard.async_failure_handler(error, "")


def _ask(model: str, unheard: _Unheard, **options: Any) -> Any:
    undecorated = inspect.unwrap(litellm.completion)
    return undecorated(
        model=model,
        messages=_QUESTION,
        api_key=_KEY,
        api_base=_NOWHERE,
        max_retries=0,
        litellm_logging_obj=unheard,
        **options,
    )


def _unheard(model: str) -> _Unheard:
    return _Unheard(model, _QUESTION, False, "completion", datetime.now(UTC), "warm-up", "warm-up")
