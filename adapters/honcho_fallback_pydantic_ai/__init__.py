"""Pydantic AI over the fallback policy."""

from __future__ import annotations

from importlib.util import find_spec

if find_spec("pydantic_ai") is None:
    raise ImportError(
        "honcho_fallback_pydantic_ai needs Pydantic AI: pip install "
        "'honcho-fallback[pydantic-ai]', in a checkout pip install '.[pydantic-ai]'"
    )

from honcho_fallback_pydantic_ai._fallback_model import FallbackModel

__all__ = ["FallbackModel"]

FallbackModel.__module__ = __name__
