"""Tool failures: what they mean, and when to stop an agent that makes no progress."""

from honcho_fallback.tools._classify import classify_tool_failure
from honcho_fallback.tools._errors import (
    POLICY_BLOCKED_MARKER,
    POLICY_DENIED_MARKER,
    ToolBlockedError,
    ToolDeniedError,
)
from honcho_fallback.tools._failure import ToolFailure, ToolFailureCategory, ToolFailureKind
from honcho_fallback.tools._guard import ToolLoopGuard
from honcho_fallback.tools._outcome import ToolOutcome, ToolUse
from honcho_fallback.tools._state import ToolLoopLimits, ToolLoopState, Verdict
from honcho_fallback.tools._transitions import after_model, after_tools

__all__ = [
    "POLICY_BLOCKED_MARKER",
    "POLICY_DENIED_MARKER",
    "ToolBlockedError",
    "ToolDeniedError",
    "ToolFailure",
    "ToolFailureCategory",
    "ToolFailureKind",
    "ToolLoopGuard",
    "ToolLoopLimits",
    "ToolLoopState",
    "ToolOutcome",
    "ToolUse",
    "Verdict",
    "after_model",
    "after_tools",
    "classify_tool_failure",
]
