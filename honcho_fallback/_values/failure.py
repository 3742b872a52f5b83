"""What a failure means: the kinds, the two questions, and one sentence each for a person."""

from __future__ import annotations

from enum import StrEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypedDict, Unpack

from honcho_fallback.redaction import CODE

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
    UNSUPPORTED = "unsupported"
    CONTENT_POLICY = "content_policy"
    REFUSAL = "refusal"
    INVALID_REQUEST = "invalid_request"
    CANCELLED = "cancelled"
    LOCAL = "local"


# The reason of a failure that an answer is: one that ``validate`` refused.
NOT_ACCEPTABLE = "the answer was not acceptable"

# What a failure says of its target: it is down, it is up and answered, or nothing.
Health = Literal["down", "up", "unknown"]
# Whom a failure reaches: this model, whoever is asked with this key, whoever is at this host, or
# nobody but the client at hand, as where its connections belong to an event loop that is closed.
Scope = Literal["model", "credential", "endpoint", "client"]
# What became of the request: it never arrived, the provider said no, or it may have had an effect.
Reached = Literal["no", "refused", "unknown"]


class KindFacts(NamedTuple):
    """What is true of every failure of one kind, unless facts say otherwise."""

    cause: str  # one sentence: what happened
    next_action: str  # one sentence: what a person should do
    switchable: bool = True  # may another target work?
    transient: bool = False  # may the same target work soon?
    states_wait: bool = False  # may the provider have said when to come back?
    health: Health = "down"
    scope: Scope = "model"
    reached: Reached = "refused"


# In the order of their severity: what forbids a switch comes before what allows one.
_TABLE = {
    FailureKind.CANCELLED: KindFacts(
        "The call was cancelled by its caller.",
        "Nothing to do.",
        switchable=False, health="unknown", reached="unknown",
    ),
    FailureKind.LOCAL: KindFacts(
        "The error came from the program itself, not from a provider.",
        "Read the traceback; name the class in a rule if a provider raises it.",
        switchable=False, health="unknown", reached="unknown",
    ),
    FailureKind.INVALID_REQUEST: KindFacts(
        "The request is not one that the provider accepts.",
        "Fix the request: its parameters, messages or tools are wrong for this target.",
        switchable=False, health="up",
    ),
    FailureKind.CONTENT_POLICY: KindFacts(
        "The provider refused the content.",
        "Change the content; add content_policy to fallback_on to ask another target.",
        switchable=False, health="up",
    ),
    FailureKind.REFUSAL: KindFacts(
        "The model answered that it does not answer this.",
        "Change the content; add refusal to fallback_on to ask another target.",
        switchable=False, health="up",
    ),
    FailureKind.UNSUPPORTED: KindFacts(
        "The model lacks something that the request needs.",
        "Leave out what this model does not take, or put a target first that takes it.",
        health="up",
    ),
    FailureKind.CONTEXT_OVERFLOW: KindFacts(
        "The input is longer than the model's context window.",
        "Shorten the input or add a target with a larger context_window.",
        health="up",
    ),
    FailureKind.PAYLOAD_TOO_LARGE: KindFacts(
        "The request is larger than the provider accepts.",
        "Send less or smaller attachments, or add a target with a larger context_window.",
        health="up",
    ),
    FailureKind.AUTHENTICATION: KindFacts(
        "The provider did not accept the credentials.",
        "Check that the key is set, current and meant for this endpoint.",
        scope="credential",
    ),
    FailureKind.PERMISSION: KindFacts(
        "The credentials are valid but may not use this model or region.",
        "Ask the account's owner for access to the model or choose another region.",
    ),
    FailureKind.QUOTA: KindFacts(
        "The account has no credit or no quota left.",
        "Top up the account or raise its spending limit.",
        states_wait=True, scope="credential",
    ),
    FailureKind.MODEL_UNAVAILABLE: KindFacts(
        "The endpoint does not offer this model.",
        "Check the model's name, load the model, or choose one that is still offered.",
        states_wait=True,
    ),
    FailureKind.MALFORMED_RESPONSE: KindFacts(
        "The provider answered with something that is not a usable answer.",
        "Check that the endpoint speaks the expected protocol and what the validator demands.",
        transient=True, health="unknown", reached="unknown",
    ),
    FailureKind.SERVER_ERROR: KindFacts(
        "The provider failed while it worked on the request.",
        "Wait, it usually passes; report it to the provider if it stays.",
        transient=True, states_wait=True, reached="unknown",
    ),
    FailureKind.OVERLOADED: KindFacts(
        "The provider has more work than it can take at the moment.",
        "Wait, it passes; watch the provider's status page if it stays.",
        transient=True, states_wait=True,
    ),
    FailureKind.RATE_LIMIT: KindFacts(
        "The provider received more requests than it allows for now.",
        "Send fewer requests at a time or raise the rate limit with the provider.",
        transient=True, states_wait=True,
    ),
    FailureKind.TIMEOUT: KindFacts(
        "No answer arrived within the time allowed.",
        "Raise the timeout if the model needs longer, otherwise check the provider.",
        transient=True, states_wait=True, reached="unknown",
    ),
    FailureKind.CONNECTION: KindFacts(
        "The connection to the provider could not be made or was lost.",
        "Check the network, the endpoint's address and, locally, that the server runs.",
        transient=True, reached="unknown",
    ),
}  # fmt: skip

KINDS: Mapping[FailureKind, KindFacts] = MappingProxyType(_TABLE)
# In a group of errors the kind with the lowest decides.
SEVERITY = {kind: place for place, kind in enumerate(_TABLE)}


class FailureFacts(TypedDict, total=False):
    """Name what ``Failure.of`` may be given beside the kind."""

    status: int | None
    code: str | None
    retry_after: float | None
    provider_message: str
    reason: str
    error: str
    by_rule: bool
    scope: Scope | None
    reached: Reached | None


class Failure(NamedTuple):
    """Say what an exception means for the policy; holds no reference to the exception.

    A tuple, because it is made between a failure and the next request.

    Args:
        kind: What went wrong.
        transient: May the same target work soon?
        switchable: May another target work? For context_overflow and payload_too_large: not one
            whose ``context_window`` is known to be no larger, which the rules check.
        status: HTTP status, 100 to 599, or None.
        code: The provider's own error code or type, or None.
        retry_after: Seconds the provider asked to wait, or None.
        provider_message: What the provider said, redacted, at most 200 characters.
        reason: Which rule decided.
        error: Class name of the exception.
        by_rule: Whether a rule of the user's decided (``FallbackConfig(rules=...)``).
        scope: Whom it reaches: ``"model"``, ``"credential"`` (whoever is asked with the same key),
            ``"endpoint"`` (whoever is at the same host) or ``"client"`` (nobody else: a client of
            this process is at fault, and no target rests).
        reached: What became of the request: ``"no"`` (it never arrived), ``"refused"`` (the
            provider said no) or ``"unknown"`` (it may have had an effect).
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
    by_rule: bool = False
    scope: Scope = "model"
    reached: Reached = "unknown"

    def __repr__(self) -> str:
        # Whoever logs a failure would log what the provider wrote, prompts included.
        fields = self._asdict() | {"code": self.code if CODE.fullmatch(self.code or "") else None}
        del fields["provider_message"]
        return f"Failure({', '.join(f'{name}={value!r}' for name, value in fields.items())})"

    def __reduce__(self) -> tuple[Any, ...]:
        return Failure, (*self._replace(provider_message=""),)  # a pickle is kept, too

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
        answer = known.transient if transient is None else transient
        if facts.get("scope") is None:
            facts["scope"] = known.scope
        if facts.get("reached") is None:
            facts["reached"] = known.reached
        return cls(kind, answer, known.switchable, **facts)  # type: ignore[arg-type] # no None is left

    @property
    def cause(self) -> str:
        """Say what happened, in one sentence for a person."""
        return KINDS[self.kind].cause

    @property
    def next_action(self) -> str:
        """Say what a person should do, in one sentence."""
        return KINDS[self.kind].next_action
