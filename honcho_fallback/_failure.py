"""What a failure means: the kinds, the two questions, and one sentence each for a person."""

from __future__ import annotations

from enum import StrEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

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


class KindFacts(NamedTuple):
    """Hold what is true of every failure of one kind.

    Args:
        transient: May the same target work soon?
        switchable: May another target work?
        cause: One sentence: what happened.
        next_action: One sentence: what a person should do.
    """

    transient: bool
    switchable: bool
    cause: str
    next_action: str


# Reads as a table: one row per kind, in the order of the enum.
KINDS: Mapping[FailureKind, KindFacts] = MappingProxyType(
    {
        FailureKind.RATE_LIMIT: KindFacts(
            True,
            True,
            "The provider received more requests than it allows for now.",
            "Send fewer requests at a time or raise the rate limit with the provider.",
        ),
        FailureKind.OVERLOADED: KindFacts(
            True,
            True,
            "The provider has more work than it can take at the moment.",
            "Wait, it passes; watch the provider's status page if it stays.",
        ),
        FailureKind.SERVER_ERROR: KindFacts(
            True,
            True,
            "The provider failed while it worked on the request.",
            "Wait, it usually passes; report it to the provider if it stays.",
        ),
        FailureKind.TIMEOUT: KindFacts(
            True,
            True,
            "No answer arrived within the time allowed.",
            "Raise the timeout if the model needs longer, otherwise check the provider.",
        ),
        FailureKind.CONNECTION: KindFacts(
            True,
            True,
            "The connection to the provider could not be made or was lost.",
            "Check the network, the endpoint's address and, locally, that the server runs.",
        ),
        FailureKind.MALFORMED_RESPONSE: KindFacts(
            True,
            True,
            "The provider answered with something that is not a usable answer.",
            "Check that the endpoint speaks the expected protocol and what the validator demands.",
        ),
        FailureKind.QUOTA: KindFacts(
            False,
            True,
            "The account has no credit or no quota left.",
            "Top up the account or raise its spending limit.",
        ),
        FailureKind.AUTHENTICATION: KindFacts(
            False,
            True,
            "The provider did not accept the credentials.",
            "Check that the key is set, current and meant for this endpoint.",
        ),
        FailureKind.PERMISSION: KindFacts(
            False,
            True,
            "The credentials are valid but may not use this model or region.",
            "Ask the account's owner for access to the model or choose another region.",
        ),
        FailureKind.MODEL_UNAVAILABLE: KindFacts(
            False,
            True,
            "The endpoint does not offer this model.",
            "Check the model's name, load the model, or choose one that is still offered.",
        ),
        FailureKind.CONTEXT_OVERFLOW: KindFacts(
            False,
            True,
            "The input is longer than the model's context window.",
            "Shorten the input or add a target with a larger context_window.",
        ),
        FailureKind.PAYLOAD_TOO_LARGE: KindFacts(
            False,
            True,
            "The request is larger than the provider accepts.",
            "Send less or smaller attachments, or add a target with a larger context_window.",
        ),
        FailureKind.CONTENT_POLICY: KindFacts(
            False,
            False,
            "The provider refused the content.",
            "Change the content; add content_policy to fallback_on to ask another target.",
        ),
        FailureKind.INVALID_REQUEST: KindFacts(
            False,
            False,
            "The request is not one that the provider accepts.",
            "Fix the request: its parameters, messages or tools are wrong for this target.",
        ),
        FailureKind.CANCELLED: KindFacts(
            False,
            False,
            "The call was cancelled by its caller.",
            "Nothing to do.",
        ),
        FailureKind.LOCAL: KindFacts(
            False,
            False,
            "The error came from the program itself, not from a provider.",
            "Read the traceback; name the class in provider_errors if a provider raises it.",
        ),
    }
)


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

    @classmethod
    def of(  # noqa: PLR0913 # one keyword per field
        cls,
        kind: FailureKind,
        *,
        status: int | None = None,
        code: str | None = None,
        retry_after: float | None = None,
        provider_message: str = "",
        reason: str = "",
        error: str = "",
        transient: bool | None = None,
    ) -> Failure:
        """Build a failure with its kind's own answers to the two questions.

        Args:
            kind: What went wrong.
            status: HTTP status or None.
            code: The provider's code or None.
            retry_after: Seconds or None.
            provider_message: Already redacted and cut.
            reason: Which rule decided.
            error: Class name of the exception.
            transient: Overrides the kind's own answer (a failed certificate check, a provider
                that said not to retry).
        """
        facts = KINDS[kind]
        return cls(
            kind,
            facts.transient if transient is None else transient,
            facts.switchable,
            status,
            code,
            retry_after,
            provider_message,
            reason,
            error,
        )

    @property
    def cause(self) -> str:
        """Say what happened, in one sentence for a person."""
        return KINDS[self.kind].cause

    @property
    def next_action(self) -> str:
        """Say what a person should do, in one sentence."""
        return KINDS[self.kind].next_action
