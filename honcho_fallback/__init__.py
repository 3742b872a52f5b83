"""A thin fallback policy for LLM calls: one failed request, no wait, the second model."""

from honcho_fallback._classify import classify
from honcho_fallback._classify._answers import Answer, check_response, has_content, read_answer
from honcho_fallback._core.config import ConfigOptions, FallbackConfig
from honcho_fallback._core.drivers import Ask, HasContent
from honcho_fallback._core.observers import (
    CallContent,
    CallStart,
    FallbackObserver,
    Restore,
    Switch,
    TurnEnd,
    check_observers,
    set_observers,
)
from honcho_fallback._core.policy import CallOptions, FallbackPolicy
from honcho_fallback._core.recovery import PendingAction, TransportRecovery
from honcho_fallback._core.run import FallbackRun
from honcho_fallback._core.runtime import Runtime
from honcho_fallback._core.shared import (
    Cooldown,
    RetryBudget,
    Sessions,
)
from honcho_fallback._core.target import ApiKey, Attempt, Credential, Target
from honcho_fallback._core.turn import Turn
from honcho_fallback._values.errors import (
    AnswerRejected,
    CredentialError,
    FallbackConfigError,
    FallbackError,
    TargetUnavailable,
)
from honcho_fallback._values.failure import Failure, FailureKind
from honcho_fallback._values.record import (
    AttemptRecord,
    CallRecord,
    DeadlineExceeded,
    FallbackExhausted,
    Outcome,
    OutcomeUnknown,
    StreamInterrupted,
)
from honcho_fallback.redaction import call_metadata

__version__ = "0.2.0"

__all__ = [
    "Answer",
    "AnswerRejected",
    "ApiKey",
    "Ask",
    "Attempt",
    "AttemptRecord",
    "CallContent",
    "CallOptions",
    "CallRecord",
    "CallStart",
    "ConfigOptions",
    "Cooldown",
    "Credential",
    "CredentialError",
    "DeadlineExceeded",
    "Failure",
    "FailureKind",
    "FallbackConfig",
    "FallbackConfigError",
    "FallbackError",
    "FallbackExhausted",
    "FallbackObserver",
    "FallbackPolicy",
    "FallbackRun",
    "HasContent",
    "Outcome",
    "OutcomeUnknown",
    "PendingAction",
    "Restore",
    "RetryBudget",
    "Runtime",
    "Sessions",
    "StreamInterrupted",
    "Switch",
    "Target",
    "TargetUnavailable",
    "TransportRecovery",
    "Turn",
    "TurnEnd",
    "call_metadata",
    "check_observers",
    "check_response",
    "classify",
    "has_content",
    "read_answer",
    "set_observers",
]

# A traceback names an error as users import it, not by the room that it lives in.
for _error in (
    AnswerRejected,
    CredentialError,
    DeadlineExceeded,
    FallbackConfigError,
    FallbackError,
    FallbackExhausted,
    OutcomeUnknown,
    StreamInterrupted,
    TargetUnavailable,
):
    _error.__module__ = __name__
