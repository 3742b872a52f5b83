"""One clean Langfuse generation per call."""

from __future__ import annotations

from importlib.util import find_spec

if find_spec("langfuse") is None:
    raise ImportError(
        "honcho_fallback_langfuse needs Langfuse: pip install 'honcho-fallback[langfuse]', "
        "in a checkout pip install '.[langfuse]'"
    )

from honcho_fallback_langfuse._handler import LangfuseCallbackHandler

__all__ = ["LangfuseCallbackHandler"]
