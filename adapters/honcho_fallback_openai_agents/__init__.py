"""OpenAI's Agents SDK over the fallback policy."""

from __future__ import annotations

from importlib.util import find_spec

if find_spec("agents") is None:
    raise ImportError(
        "honcho_fallback_openai_agents needs OpenAI's Agents SDK: pip install "
        "'honcho-fallback[openai-agents]', in a checkout pip install '.[openai-agents]'"
    )

from honcho_fallback_openai_agents._model import FallbackModel, FallbackProvider

__all__ = ["FallbackModel", "FallbackProvider"]

for _public in (FallbackModel, FallbackProvider):
    _public.__module__ = __name__
