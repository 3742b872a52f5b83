"""Tool failures: what they mean, and when to stop an agent that makes no progress."""

from honcho_fallback.tools._classify import classify_tool_failure
from honcho_fallback.tools._errors import (
    POLICY_BLOCKED_MARKER,
    POLICY_DENIED_MARKER,
    ToolBlockedError,
    ToolDeniedError,
)
from honcho_fallback.tools._failure import ToolFailure, ToolFailureCategory, ToolFailureKind

__all__ = [
    "POLICY_BLOCKED_MARKER",
    "POLICY_DENIED_MARKER",
    "ToolBlockedError",
    "ToolDeniedError",
    "ToolFailure",
    "ToolFailureCategory",
    "ToolFailureKind",
    "classify_tool_failure",
]
