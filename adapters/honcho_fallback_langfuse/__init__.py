"""Langfuse generations for the fallback policy."""

from __future__ import annotations

from importlib.util import find_spec

if find_spec("langfuse") is None:
    message = "honcho_fallback_langfuse needs Langfuse: pip install 'honcho-fallback[langfuse]'"
    raise ImportError(message)

__all__: list[str] = []
