"""LangChain over the fallback policy."""

from __future__ import annotations

from importlib.util import find_spec

if find_spec("langchain_core") is None:
    message = "honcho_fallback_langchain needs LangChain: pip install 'honcho-fallback[langchain]'"
    raise ImportError(message)

__all__: list[str] = []
