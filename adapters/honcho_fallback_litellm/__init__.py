"""LiteLLM over the fallback policy."""

from __future__ import annotations

from importlib.util import find_spec

if find_spec("litellm") is None:
    message = "honcho_fallback_litellm needs LiteLLM: pip install 'honcho-fallback[litellm]'"
    raise ImportError(message)

__all__: list[str] = []
