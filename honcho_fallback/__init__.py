"""A thin fallback policy for LLM calls: one failed request, no wait, the second model.

PYTEST_DONT_REWRITE: pytest would rewrite and watch a whole distribution that brings a plugin.
"""

from honcho_fallback._budget import RetryBudget
from honcho_fallback._classify import classify
from honcho_fallback._classify._answers import (
    Answer,
    check_response,
    has_content,
    read_answer,
)
from honcho_fallback._config import ConfigOptions, FallbackConfig
from honcho_fallback._cooldown import Cooldown, CooldownStore
from honcho_fallback._errors import (
    AnswerRejected,
    DeadlineExceeded,
    FallbackConfigError,
    FallbackError,
    FallbackExhausted,
    StreamInterrupted,
)
from honcho_fallback._failure import Failure, FailureKind
from honcho_fallback._machine import FallbackRun
from honcho_fallback._observer import CallContent, CallStart, FallbackObserver, Restore, Switch
from honcho_fallback._policy import FallbackPolicy
from honcho_fallback._record import AttemptRecord, CallRecord
from honcho_fallback._recovery import Credential, RecoveryGuards, TransportRecovery
from honcho_fallback._target import Attempt, Target
from honcho_fallback._turn import Turn

__all__ = [
    "Answer",
    "AnswerRejected",
    "Attempt",
    "AttemptRecord",
    "CallContent",
    "CallRecord",
    "CallStart",
    "ConfigOptions",
    "Cooldown",
    "CooldownStore",
    "Credential",
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
    "RecoveryGuards",
    "Restore",
    "RetryBudget",
    "StreamInterrupted",
    "Switch",
    "Target",
    "TransportRecovery",
    "Turn",
    "check_response",
    "classify",
    "has_content",
    "read_answer",
]
