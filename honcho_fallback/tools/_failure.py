"""What a tool's failure means: the kinds, one sentence each for a person, and a host's errors."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from honcho_fallback import FallbackError

if TYPE_CHECKING:
    from collections.abc import Mapping


class ToolFailureKind(StrEnum):
    """Name what went wrong in a tool; the value is the word used in messages and records."""

    MISSING_PERMISSION = "missing_permission"
    MISSING_APP = "missing_app"
    MISSING_CONNECTION = "missing_connection"
    SERVICE_UNAVAILABLE = "service_unavailable"
    BAD_CREDENTIALS = "bad_credentials"
    BLOCKED_BY_POLICY = "blocked_by_policy"
    MODEL_CONNECTION = "model_connection"
    TIMEOUT = "timeout"
    DENIED = "denied"
    APPROVAL_EXPIRED = "approval_expired"
    UNKNOWN = "unknown"


class ToolFailureCategory(StrEnum):
    """Name who can do something about it."""

    RECOVERABLE = "recoverable"
    NEEDS_USER_CONFIRMATION = "needs_user_confirmation"
    BLOCKED_BY_POLICY = "blocked_by_policy"
    USER_DECLINED = "user_declined"


_C, _K = ToolFailureCategory, ToolFailureKind
_EXPLANATIONS: Mapping[ToolFailureKind, tuple[ToolFailureCategory, str, str]] = {
    _K.MISSING_PERMISSION: (
        _C.NEEDS_USER_CONFIRMATION,
        "The system has not given the permission that this needs.",
        "Grant the permission, then ask again.",
    ),
    _K.MISSING_APP: (
        _C.NEEDS_USER_CONFIRMATION,
        "A program that this needs is not there.",
        "Install or start the program, then ask again.",
    ),
    _K.MISSING_CONNECTION: (
        _C.NEEDS_USER_CONFIRMATION,
        "The service that this needs is not connected to your account.",
        "Connect the service in the settings, then ask again.",
    ),
    _K.SERVICE_UNAVAILABLE: (
        _C.RECOVERABLE,
        "A service that this needs does not answer at the moment.",
        "Nothing to do, it is tried again.",
    ),
    _K.BAD_CREDENTIALS: (
        _C.NEEDS_USER_CONFIRMATION,
        "The stored login is missing, expired or not enough for this.",
        "Log in to the service again, then ask again.",
    ),
    _K.BLOCKED_BY_POLICY: (
        _C.BLOCKED_BY_POLICY,
        "The safety settings forbid this.",
        "Change the setting if this should be allowed.",
    ),
    _K.MODEL_CONNECTION: (
        _C.RECOVERABLE,
        "The model that this needs could not be reached.",
        "Check the network and the model's settings; it is tried again.",
    ),
    _K.TIMEOUT: (
        _C.RECOVERABLE,
        "It took too long and was stopped.",
        "It is tried again; start it by hand if it stays like this.",
    ),
    _K.DENIED: (
        _C.USER_DECLINED,
        "The request was declined, and nothing was run.",
        "Nothing to do, unless it was declined by mistake.",
    ),
    _K.APPROVAL_EXPIRED: (
        _C.USER_DECLINED,
        "Nobody answered the request for approval in time, and nothing was run.",
        "Ask again when somebody can answer; it is not tried again by itself.",
    ),
    _K.UNKNOWN: (
        _C.RECOVERABLE,
        "Something went wrong, and nothing says what.",
        "Try once more, then look into the tool's own log.",
    ),
}


class ToolFailure(NamedTuple):
    """Say what a tool's failure means, in our own words; holds nothing of the tool's text.

    Args:
        kind: What went wrong.
        category: Who can do something about it.
        cause: What happened, in one sentence for a person.
        next_action: What a person should do, in one sentence.
    """

    kind: ToolFailureKind
    category: ToolFailureCategory
    cause: str
    next_action: str

    @classmethod
    def of(cls, kind: ToolFailureKind) -> ToolFailure:
        """Return what we say of a kind.

        Args:
            kind: What went wrong.
        """
        return cls(kind, *_EXPLANATIONS[kind])

    @property
    def recoverable(self) -> bool:
        """Tell whether it may pass without anybody's help."""
        return self.category is ToolFailureCategory.RECOVERABLE

    def to_dict(self) -> dict[str, str | bool]:
        """Return all five as plain values, for a message or a record."""
        values = {name: str(value) for name, value in self._asdict().items()}
        return {**values, "recoverable": self.recoverable}


class ToolBlockedError(FallbackError):
    """Tell that the host's own policy forbids a tool call.

    A host that has only text to hand on writes ``marker`` into it.
    """

    marker: ClassVar[str] = "[policy-blocked]"


class ToolDeniedError(FallbackError):
    """Tell that a person refused a tool call, or did not answer.

    A host that has only text to hand on writes ``marker`` into it.

    Args:
        message: For the log.
        expired: Whether nobody answered in time.
    """

    marker: ClassVar[str] = "[policy-denied]"

    def __init__(self, message: str = "", *, expired: bool = False) -> None:
        super().__init__(message)
        self.expired = expired
