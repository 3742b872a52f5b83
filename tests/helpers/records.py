"""Calls of every outcome, made by the machine itself, to the second."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from honcho_fallback import FallbackError, FallbackPolicy, Target
from honcho_fallback.testing import Clock, StatusError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from honcho_fallback import CallRecord

HOSTILE = """<script>alert("x")</script>&'"><img src=http://127.0.0.1:9/x onerror=alert(1)>"""
RIGHT_TO_LEFT = "\u05de\u05d5\u05d3\u05dc \u202egnihton\u202c \x1b[31mred \ud800 \u6a21\u578b"

CHAIN = (
    Target("gpt-5.5", provider="openai"),
    Target("claude-sonnet-5", provider="anthropic", context_window=200_000),
    Target("qwen3-4b", provider="lmstudio"),
)
POLICY = FallbackPolicy(CHAIN, agent="greeter")

Step = tuple[str, float] | tuple[str, float, Any]


def call(
    *steps: Step, policy: FallbackPolicy = POLICY, waits: float = 2, switch_after: int = 1
) -> CallRecord:
    """Play a call and return its record.

    Args:
        *steps: A method of the run, when it is called in seconds from the start, what it is given.
        policy: The policy.
        waits: Seconds before a target is asked again.
        switch_after: Failures of one target before the next is asked.
    """
    with Clock().installed() as clock:
        run = policy.start(wait=waits, switch_after=switch_after)
        for method, at, *given in steps:
            with suppress(StatusError, FallbackError):
                getattr(run, method)(*given, now=clock.now + at)
        return run.record


LIMITED, DOWN = StatusError(429, retry_after=2), StatusError(503)

CALLS: Mapping[str, Sequence[Step]] = {
    "success": [("fail", 1, LIMITED), ("succeed", 4)],
    "exhausted": [("fail", 1, DOWN), ("fail", 2, DOWN), ("fail", 5, StatusError(401))],
    "rejected": [("fail", 2, StatusError(400))],
    "cancelled": [("fail", 1, DOWN), ("cancel", 3)],
    "interrupted": [("fail", 1, DOWN), ("commit", 2), ("fail", 4, DOWN)],
    "abandoned": [("commit", 1), ("cancel", 2, "abandoned")],
    "running": [("fail", 1, DOWN)],
}
EVERY_OUTCOME = {outcome: call(*steps) for outcome, steps in CALLS.items()}
# 0 to 1 failed, 1 to 3 waited, 3 to 4 failed, 4 to 8 answered.
WAITED = call(("fail", 1, DOWN), ("fail", 4, DOWN), ("succeed", 8), switch_after=2)
HOSTILE_CALL = call(
    ("fail", 1, DOWN),
    ("succeed", 4),
    policy=FallbackPolicy(
        [Target("m", name=HOSTILE), Target("m", name=RIGHT_TO_LEFT)], agent=HOSTILE
    ),
)


def with_attempts(record: CallRecord, **fields: Any) -> CallRecord:
    attempts = tuple(replace(attempt, **fields) for attempt in record.attempts)
    return replace(record, attempts=attempts)


def of_many_attempts(number: int) -> CallRecord:
    first = EVERY_OUTCOME["exhausted"].attempts[0]
    attempts = tuple(
        replace(first, number=each + 1, started=float(each)) for each in range(number)
    )
    return replace(EVERY_OUTCOME["exhausted"], attempts=attempts, seconds=float(number))
