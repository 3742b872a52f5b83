"""What the words of a message mean: every alternative of every rule, and what is no such sentence."""

from __future__ import annotations

import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from honcho_fallback._classify import classify
from honcho_fallback._classify._texts import (
    NO_STATUS,
    PROGRAM,
    RULES,
    TEXTS,
    first_rule,
    sentences,
)
from honcho_fallback._core.failure import FailureKind as Kind


class ProviderError(Exception):
    """An in-house client's error: whatever it is given becomes an attribute."""

    def __init__(self, message: str = "", **facts: Any) -> None:
        super().__init__(message)
        self.__dict__.update(facts)


# The status, the sentence and the alternative that it fits; sentences of our own.
EXAMPLES = [
    (NO_STATUS, "The call was locally cancelled", Kind.CANCELLED, "cancelled_here"),
    (500, "goroutine panicked on a map", Kind.SERVER_ERROR, "panic"),
    (NO_STATUS, "the redis pool is closed", Kind.LOCAL, "other_service"),
    (500, "parsing the tool call stopped at column 3", Kind.MALFORMED_RESPONSE, "tool_call unparsed"),
]
