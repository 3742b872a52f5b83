"""Try LiteLLM out before a call depends on it: does it do what is relied on, and is it loaded?"""

from __future__ import annotations

import gc
import threading
from concurrent.futures import wait
from contextlib import contextmanager, suppress
from functools import cache
from importlib.metadata import version
from itertools import product
from typing import TYPE_CHECKING, Any

import httpx
import litellm
import openai
from litellm.litellm_core_utils.thread_pool_executor import executor

from honcho_fallback import FallbackConfigError
from honcho_fallback_litellm._request import ONE_REQUEST
from honcho_fallback_litellm._router import NARROWED, rotation

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable
    from concurrent.futures import Future

_ANY_MODEL = "openai/gpt-5.5"
_MESSAGES = [{"role": "user", "content": "hello"}]
_CALLBACKS = (
    "callbacks",
    "input_callback",
    "success_callback",
    "failure_callback",
    "service_callback",
    "_async_input_callback",
    "_async_success_callback",
    "_async_failure_callback",
)
_LOCK = threading.Lock()
_THREADS: Any = executor  # in which LiteLLM logs
_LOGS_WITHIN = 10.0
_TRIED: set[str] = set()  # the models for which this process has loaded everything


def warm_up(models: Iterable[str] = (_ANY_MODEL,)) -> None:
    """Let models fail and answer in memory, so that LiteLLM has loaded what it loads for that.

    Without it the first failure of a process stops for 0.3 to 0.8 s; with it that is spent here.
    No request is made and no callback hears of it; a process tries a model once.

    Args:
        models: As LiteLLM spells them, with the provider in front.
    """
    cold = {*models} - _TRIED
    if not cold:
        return
    # Any: openai 2 asks for httpx's, openai 3 for httpx2's, and both take either.
    response: Any = httpx.Response(500, request=httpx.Request("POST", "http://localhost"))
    error = openai.InternalServerError("warm-up", response=response, body=None)
    with _unheard(), suppress(Exception):
        for model, mock, stream in product(cold, (error, "hello"), (False, True)):
            with suppress(Exception):  # one that cannot be tried is not warm
                answer: Any = litellm.completion(
                    model, _MESSAGES, mock_response=mock, stream=stream, api_key="none"
                )
                list(answer if stream else ())
        litellm.token_counter(model=_ANY_MODEL, text="hello")  # pyright: ignore[reportPrivateImportUsage] # shown, not exported
    _TRIED.update(cold)
    # A full collection is due after so many modules, and would stop the first call's event loop.
    gc.collect()


@cache
def check_release() -> None:
    """Try on a Router of its own what is relied on of LiteLLM without its promise, once.

    Raises:
        FallbackConfigError: This release does not do it.
    """
    params = {"model": _ANY_MODEL, "api_key": "none", "mock_response": "hello"}
    ids = ("first", "second")
    group = [
        {"model_name": "g", "litellm_params": params, "model_info": {"id": one}} for one in ids
    ]
    with _unheard():
        router: Any = litellm.Router(group)  # pyright: ignore[reportPrivateImportUsage] # shown, not exported
        request: dict[str, Any] = {"model": "g", "messages": _MESSAGES}
        where = rotation(router, ids, request)
        answered: list[str] = []
        for other in reversed(ids):
            with suppress(Exception):
                answer = router.completion(**request, **ONE_REQUEST, **{NARROWED: [other]})
                answered.append(answer._hidden_params.get("model_id"))  # noqa: SLF001 # where LiteLLM says it
    if where.healthy != {*ids} or answered != [*ids]:
        release = f"LiteLLM {version('litellm')}"
        problem = f"{release} does not keep to the deployment that it is told to ask"
        fix = "install a release that docs/litellm.md names, and report it"
        raise FallbackConfigError.about("router", problem, fix)


@contextmanager
def _unheard() -> Generator[None]:
    """Keep LiteLLM's callbacks, which are the process's, out of what is tried.

    Its threads look them up when they come to run. So they are waited for: a late one would find
    the user's, and load in the middle of a first failure what LiteLLM loads for these.
    """
    with _LOCK:
        kept = {name: getattr(litellm, name) for name in _CALLBACKS if hasattr(litellm, name)}
        logs: list[Future[Any]] = []
        submit = _THREADS.submit

        def noted(*args: Any, **kwargs: Any) -> Future[Any]:
            logs.append(submit(*args, **kwargs))
            return logs[-1]

        for name in kept:
            setattr(litellm, name, [])
        _THREADS.submit = noted
        try:
            yield
        finally:
            wait(logs, _LOGS_WITHIN)
            _THREADS.submit = submit
            for name, callbacks in kept.items():
                setattr(litellm, name, callbacks)
