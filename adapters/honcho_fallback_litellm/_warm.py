"""Load before the first failure what LiteLLM and its transports import during it."""

from __future__ import annotations

import logging
from importlib import import_module

# Each pulls in the rest. Measured by what a first failing call adds to sys.modules.
logger = logging.getLogger("honcho_fallback")

_LATE = (
    "openai.resources.chat.completions",
    "openai.resources.embeddings",
    "anyio._backends._asyncio",
    "fastapi.exceptions",  # where it is installed: is the error one of FastAPI's?
    "httpcore",
    "httpcore._sync.http11",
    "httpcore._async.http11",
    "h2.connection",
    "tiktoken.load",
    "tiktoken_ext.openai_public",
    "litellm.litellm_core_utils.default_encoding",
    "litellm.litellm_core_utils.exception_mapping_utils",
    "litellm.integrations.otel.logger",
    "litellm.llms.anthropic.chat.handler",
    "litellm.llms.vertex_ai.context_caching.vertex_ai_context_caching",
    "litellm.llms.vertex_ai.vertex_ai_partner_models.anthropic.transformation",
    "litellm.proxy.guardrails.exception_utils",
    "litellm.proxy.openai_files_endpoints.common_utils",
)


def warm_up() -> None:
    """Import what LiteLLM imports lazily, so that the first failure does not pay for it.

    Takes a second or two, once per process; no request is made and no callback runs. What this
    LiteLLM does not have is left out.
    """
    for name in _LATE:
        try:
            import_module(name)
        except Exception as error:  # noqa: BLE001 # an optional integration may break in any way
            logger.debug("warm_up: no %s (%s)", name, type(error).__name__)
