"""LangChain over the fallback policy."""

from __future__ import annotations

try:
    import langchain_core  # noqa: F401 # pyright: ignore[reportUnusedImport] # only asks whether it is there
except ModuleNotFoundError as error:
    message = (
        "honcho_fallback_langchain needs LangChain: pip install 'honcho-fallback[langchain]'"
    )
    raise ImportError(message) from error

__all__: list[str] = []
