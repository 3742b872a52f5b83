"""Load before the first failure what LiteLLM would load in it, while an event loop waits."""

from __future__ import annotations

import gc
import logging
from contextlib import suppress
from importlib import import_module
from typing import Any

import httpx
import litellm
import openai

logger = logging.getLogger("honcho_fallback")

# What a fallback of another provider needs: a tokenizer, OpenAI's client.
_LAZY = ("litellm.litellm_core_utils.default_encoding", "openai.resources", "jiter")


def warm_up() -> None:
    """Map one error as LiteLLM maps those of providers, and load what a fallback needs.

    Without it the first failure of a process stops for 0.2 to 0.5 s; with it 0.3 s are spent here.
    No request is made and no callback hears of it.
    """
    # Any: openai 2 asks for httpx's, openai 3 for httpx2's, and both take either.
    response: Any = httpx.Response(500, request=httpx.Request("POST", "http://localhost"))
    error = openai.InternalServerError("warm-up", response=response, body=None)
    with suppress(Exception):  # it raises what the error is mapped to
        litellm.exception_type(  # pyright: ignore[reportPrivateImportUsage] # shown, not exported
            model="warm-up", original_exception=error, custom_llm_provider="openai"
        )
    for name in _LAZY:
        try:
            import_module(name)
        except Exception as gone:  # noqa: BLE001 # a release that keeps it elsewhere is not warm
            logger.debug("warm_up: no %s (%s)", name, type(gone).__name__)
    # A full collection is due after so many modules, and would stop the first call's event loop.
    gc.collect()
