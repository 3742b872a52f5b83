"""Delegated inference that cannot succeed: a tool calls a model that is gone for good."""

from __future__ import annotations

import re
from typing import Literal, get_args

from honcho_fallback import FailureKind, FallbackExhausted

Terminal = Literal["budget_exhausted", "provider_config"]
TERMINALS: dict[str, Terminal] = {name: name for name in get_args(Terminal)}

# Without one of these the words below are a tool's own business.
_ENVELOPE = re.compile(
    r"all (?:providers|models|providers/models|providers and models)(?: have)? failed"
    r"|may not be available on your provider|failed and did not complete"
)
_BUDGET = (
    "insufficient budget",
    "budget exceeded",
    "add credits",
    "insufficient balance",
    "no remaining credits",
    "credit balance is too low",
)
_PROVIDER = re.compile(
    r"model_not_found|model not found|does not exist|do(?:es)? not have access|no access"
    r"|invalid temperature|\bregion\b|does not support (?:tools|tool|chat|function)"
    r"|may not be available on your provider|invalid model|unsupported model"
)
_SETTINGS = frozenset(
    {
        FailureKind.AUTHENTICATION,
        FailureKind.PERMISSION,
        FailureKind.MODEL_UNAVAILABLE,
        FailureKind.INVALID_REQUEST,
    }
)


def terminal_text(text: str) -> Terminal | None:
    """Read a tool's text for a delegated call that cannot succeed."""
    if _ENVELOPE.search(text) is None:
        return None
    if any(words in text for words in _BUDGET):
        return "budget_exhausted"
    return "provider_config" if _PROVIDER.search(text) else None


def terminal_error(error: BaseException) -> Terminal | None:
    """Read an exception for the same: a policy of ours whose every target is gone for good."""
    exhausted: FallbackExhausted | None = None
    seen: set[int] = set()
    below: BaseException | None = error
    while below is not None and id(below) not in seen:
        seen.add(id(below))
        if isinstance(below, FallbackExhausted):
            exhausted = below
            break
        below = below.__cause__ or (None if below.__suppress_context__ else below.__context__)
    if exhausted is None:
        return None
    kinds = {attempt.kind for attempt in exhausted.attempts}
    if FailureKind.QUOTA in kinds and kinds <= {FailureKind.QUOTA, *_SETTINGS}:
        return "budget_exhausted"
    return "provider_config" if kinds and kinds <= _SETTINGS else None
