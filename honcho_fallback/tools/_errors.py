"""What a host raises, or writes, when its own policy or its user stops a tool."""

from __future__ import annotations

from honcho_fallback import FallbackError

# For hosts that have only text to hand on. They beat every other rule, a timeout included.
POLICY_BLOCKED_MARKER = "[policy-blocked]"
POLICY_DENIED_MARKER = "[policy-denied]"


class ToolBlockedError(FallbackError):
    """Tell that the host's own policy forbids a tool call."""


class ToolDeniedError(FallbackError):
    """Tell that a person refused a tool call, or did not answer.

    Args:
        message: For the log.
        expired: Whether nobody answered in time.
    """

    def __init__(self, message: str = "", *, expired: bool = False) -> None:
        super().__init__(message)
        self.expired = expired
