"""What a failure means: the kinds, the two questions, and one sentence each for a person."""

from __future__ import annotations

from enum import StrEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal, NamedTuple, TypedDict, Unpack

from honcho_fallback._shown import Shown
from honcho_fallback._tables import read

if TYPE_CHECKING:
    from collections.abc import Mapping


class FailureKind(StrEnum):
    """Name what went wrong; the value is the word used in logs and records."""

    RATE_LIMIT = "rate_limit"
    OVERLOADED = "overloaded"
    SERVER_ERROR = "server_error"
    TIMEOUT = "timeout"
    CONNECTION = "connection"
    MALFORMED_RESPONSE = "malformed_response"
    QUOTA = "quota"
    AUTHENTICATION = "authentication"
    PERMISSION = "permission"
    MODEL_UNAVAILABLE = "model_unavailable"
    CONTEXT_OVERFLOW = "context_overflow"
    PAYLOAD_TOO_LARGE = "payload_too_large"
    CONTENT_POLICY = "content_policy"
    INVALID_REQUEST = "invalid_request"
    CANCELLED = "cancelled"
    LOCAL = "local"


Health = Literal["down", "up", "unknown"]


class KindFacts(NamedTuple):
    """Hold what is true of every failure of one kind; the table is ``kinds.toml``.

    Args:
        transient: May the same target work soon?
        switchable: May another target work?
        states_wait: May the provider have said when to come back?
        health: What it says of the target: it is down, it is up and answered, or nothing.
        severity: In a group of errors the kind with the lowest decides.
        cause: One sentence: what happened.
        next_action: One sentence: what a person should do.
    """

    transient: bool
    switchable: bool
    states_wait: bool
    health: Health
    severity: int
    cause: str
    next_action: str


KINDS: Mapping[FailureKind, KindFacts] = MappingProxyType(
    {FailureKind(kind): KindFacts(**facts) for kind, facts in read("kinds").items()}
)


class FailureFacts(TypedDict, total=False):
    """Name what ``Failure.of`` may be told beside the kind."""

    status: int | None
    code: str | None
    retry_after: float | None
    provider_message: str
    reason: str
    error: str


class Failure(NamedTuple):
    """Say what an exception means for the policy; holds no reference to the exception.

    A tuple, because it is made between a failure and the next request.

    Args:
        kind: What went wrong.
        transient: May the same target work soon?
        switchable: May another target work? For context_overflow and payload_too_large: only one
            with a larger ``context_window``, which the machine checks.
        status: HTTP status, 100 to 599, or None.
        code: The provider's own error code or type, or None.
        retry_after: Seconds the provider asked to wait, or None.
        provider_message: What the provider said, redacted, at most 200 characters.
        reason: Which rule decided.
        error: Class name of the exception.
    """

    kind: FailureKind
    transient: bool
    switchable: bool
    status: int | None = None
    code: str | None = None
    retry_after: float | None = None
    provider_message: str = ""
    reason: str = ""
    error: str = ""

    # A NamedTuple has no other base, and type checkers know no such line in one.
    _repr_html_, __rich__ = Shown._repr_html_, Shown.__rich__  # type: ignore[misc] # pyright: ignore[reportPrivateUsage] # as above

    @classmethod
    def of(
        cls, kind: FailureKind, *, transient: bool | None = None, **facts: Unpack[FailureFacts]
    ) -> Failure:
        """Build a failure with its kind's own answers to the two questions.

        Args:
            kind: What went wrong.
            transient: Overrides the kind's own answer (a failed certificate check, a provider
                that said not to retry).
            **facts: The other fields; ``provider_message`` already redacted and cut.
        """
        known = KINDS[kind]
        again = known.transient if transient is None else transient
        return cls(kind, again, known.switchable, **facts)

    @property
    def cause(self) -> str:
        """Say what happened, in one sentence for a person."""
        return KINDS[self.kind].cause

    @property
    def next_action(self) -> str:
        """Say what a person should do, in one sentence."""
        return KINDS[self.kind].next_action
