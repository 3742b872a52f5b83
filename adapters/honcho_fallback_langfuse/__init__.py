"""Langfuse generations for the fallback policy."""

from __future__ import annotations

try:
    import langfuse  # noqa: F401 # pyright: ignore[reportUnusedImport] # only asks whether it is there
except ModuleNotFoundError as error:
    message = (
        "honcho_fallback_langfuse needs Langfuse: pip install 'honcho-fallback[langfuse]'"
    )
    raise ImportError(message) from error

__all__: list[str] = []
