"""Fail once before the first failure, so that LiteLLM has loaded what it loads only then.

Which modules those are differs from version to version and with what else is installed. So each
model is asked, fails and answers by LiteLLM's own code: with its mock failures and mock answers,
and with clients that answer 500 out of memory, where no recorder of requests sees it.

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
import gc
import inspect
import logging
import threading
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import httpcore
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

from honcho_fallback_litellm._router import core_of, own

if TYPE_CHECKING:
    from collections.abc import Iterable

logger = logging.getLogger("honcho_fallback")

# No transport knows the scheme: where LiteLLM makes a client of its own, that opens no socket.
_NOWHERE = "warm-up://nowhere"
_KEY = "not-a-key"
# What httpx speaks on a connection, read from memory: no name is looked up, no socket is opened.
_LOCAL, _WIRE = "http://localhost/", (b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n",)
_NO_KEY = {"api_key": _KEY, "api_base": _NOWHERE}
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


class _Client(httpx.Client):
    """Answer every request with status 500, above any transport, and count them."""

    requests = 0

    def send(self, request: httpx.Request, **_: Any) -> httpx.Response:
        """Answer."""
        self.requests += 1
        return _failure(request)


class _AsyncClient(httpx.AsyncClient):
    """Do so for async calls."""

    requests = 0

    async def send(self, request: httpx.Request, **_: Any) -> httpx.Response:
        """Answer."""
        self.requests += 1
        return _failure(request)


def _failure(request: httpx.Request) -> httpx.Response:
    return httpx.Response(500, json={"error": {"message": "warm-up"}}, request=request)


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
        # A full collection is due after so many modules, and would stop the first call's event
        # loop for 0.2 s.
        gc.collect()
        _DONE.update(new)


def _exercise(models: list[str]) -> None:
    error = openai.InternalServerError(
        "warm-up", response=_failure(httpx.Request("POST", _NOWHERE)), body=None
    )
    with_a_key = [model for model in models if model.partition("/")[0] in _ASKED_WITH_A_KEY]
    try:
        for model in models:
            _ask(model, mock_response=error)
            _ask(model, mock_response="warm-up")
        with _Client() as http:
            # LiteLLM takes the one or the other, by provider and version; the second is both of
            # the openai SDK's kinds.
            clients = HTTPHandler(client=http), openai.AzureOpenAI(http_client=http, **_SDK)
            for model in with_a_key:
                before = http.requests
                for client in clients:
                    if http.requests == before:
                        _ask(model, client=client)
        _select()
        with httpcore.ConnectionPool(network_backend=httpcore.MockBackend([*_WIRE])) as pool:
            pool.request("GET", _LOCAL)
        asyncio.run(_aexercise(with_a_key))
    except Exception as error:  # noqa: BLE001 # a LiteLLM with other clients is only not warm
        logger.debug("warm_up: ended by %s", type(error).__name__)


def _select() -> None:
    """Let a Router of our own select, which asks nobody's callbacks; ``discard`` removes it."""
    params = {"model": f"openai/{_KEY}", **_NO_KEY}
    router = litellm.Router(  # pyright: ignore[reportPrivateImportUsage] # shown, not exported
        [{"model_name": _KEY, "litellm_params": params}]
    )
    try:
        own(core_of(router), "get_available_deployment")(model=_KEY, request_kwargs={})
    finally:
        router.discard()


async def _aexercise(models: list[str]) -> None:
    handler = AsyncHTTPHandler()
    async with handler.client, _AsyncClient() as http:
        handler.client = http
        clients = handler, openai.AsyncAzureOpenAI(http_client=http, **_SDK)
        for model in models:
            before = http.requests
            for client in clients:
                if http.requests == before:
                    await _aask(model, client=client, acompletion=True)
    backend = httpcore.AsyncMockBackend([*_WIRE])
    async with httpcore.AsyncConnectionPool(network_backend=backend) as pool:
        await pool.request("GET", _LOCAL)


def _ask(model: str, **options: Any) -> None:
    unheard, now = _unheard(model), datetime.now(UTC)
    try:
        answer = _completion(model, unheard, **options)
    except Exception as error:  # noqa: BLE001 # it has to fail
        logger.debug("warm_up: %s raised %s", model, type(error).__name__)
        unheard.failure_handler(error, "", now, now)
    else:
        unheard.success_handler(answer, now, now)


async def _aask(model: str, **options: Any) -> None:
    unheard, now = _unheard(model), datetime.now(UTC)
    try:
        await _completion(model, unheard, **options)
    except Exception as error:  # noqa: BLE001 # it has to fail
        logger.debug("warm_up: %s raised %s", model, type(error).__name__)
        await unheard.async_failure_handler(error, "", now, now)


def _completion(model: str, unheard: _Unheard, **options: Any) -> Any:
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
