"""LiteLLM over the fallback policy."""

from __future__ import annotations

try:
    import litellm  # noqa: F401 # pyright: ignore[reportUnusedImport] # only asks whether it is there
except ModuleNotFoundError as error:
    message = (
        "honcho_fallback_litellm needs LiteLLM: pip install 'honcho-fallback[litellm]'"
    )
    raise ImportError(message) from error

__all__: list[str] = []
