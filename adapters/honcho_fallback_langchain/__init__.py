"""LangChain over the fallback policy."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if find_spec("langchain_core") is None:
    raise ImportError(
        "honcho_fallback_langchain needs LangChain: pip install 'honcho-fallback[langchain]', "
        "in a checkout pip install '.[langchain]'"
    )

from honcho_fallback_langchain._base import FallbackRunnable
from honcho_fallback_langchain._chat_model import FallbackChatModel
from honcho_fallback_langchain._options import ChatModelOptions, FallbackOptions
from honcho_fallback_langchain._sdk import without_sdk_retries

if TYPE_CHECKING:
    from honcho_fallback_langchain._middleware import FallbackMiddleware
    from honcho_fallback_langchain._tool_guard import ToolLoopGuardMiddleware

__all__ = [
    "ChatModelOptions",
    "FallbackChatModel",
    "FallbackMiddleware",
    "FallbackOptions",
    "FallbackRunnable",
    "ToolLoopGuardMiddleware",
    "without_sdk_retries",
]


def __getattr__(name: str) -> Any:
    # Agents need langchain and langgraph; who has but a chain should not have to wait for them.
    if name not in {"FallbackMiddleware", "ToolLoopGuardMiddleware"}:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if find_spec("langchain") is None:
        raise ImportError(
            f"{name} needs langchain: pip install 'honcho-fallback[agents]', "
            "in a checkout pip install '.[agents]'"
        )
    from honcho_fallback_langchain._middleware import FallbackMiddleware  # noqa: PLC0415 # see above
    from honcho_fallback_langchain._tool_guard import ToolLoopGuardMiddleware  # noqa: PLC0415 # see above

    classes = {one.__name__: one for one in (FallbackMiddleware, ToolLoopGuardMiddleware)}
    globals().update(classes)
    return classes[name]
