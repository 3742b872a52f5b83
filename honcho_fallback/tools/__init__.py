"""Tool failures: what they mean, and when to stop an agent that makes no progress."""

from honcho_fallback.tools._classify import classify_tool_failure
from honcho_fallback.tools._failure import (
    ToolBlockedError,
    ToolDeniedError,
    ToolFailure,
    ToolFailureCategory,
    ToolFailureKind,
)
from honcho_fallback.tools._guard import ToolLoopGuard
from honcho_fallback.tools._outcome import ToolOutcome
from honcho_fallback.tools._state import ToolLoopLimits, ToolLoopState, ToolLoopVerdict

__all__ = [
    "ToolBlockedError",
    "ToolDeniedError",
    "ToolFailure",
    "ToolFailureCategory",
    "ToolFailureKind",
    "ToolLoopGuard",
    "ToolLoopLimits",
    "ToolLoopState",
    "ToolLoopVerdict",
    "ToolOutcome",
    "classify_tool_failure",
]
