"""How the demo's calls should end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from honcho_fallback.cli._played import Check

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from honcho_fallback import CallRecord
    from honcho_fallback.cli._played import Call


def check_answered(calls: Sequence[Call]) -> list[Check]:
    """Expect an answer to every call, from any target."""
    return [Check("every call answered", ["success"] * len(calls), _outcomes(calls))]


def check_one_failover(kind: str, status: int | None) -> Callable[[Sequence[Call]], list[Check]]:
    """Expect one failed request at the primary, no wait, and the fallback's answer.

    Args:
        kind: Of the primary's failure.
        status: Of the primary's failure.
    """

    def check(calls: Sequence[Call]) -> list[Check]:
        failed = [(one.kind, one.status) for call in calls for one in call.record.attempts[:1]]
        return [
            Check("the primary's failure", [(kind, status)] * len(calls), failed),
            *_by_fallback(calls),
            Check("requests at the primary", [1] * len(calls), [call.seen for call in calls]),
        ]

    return check


def check_loop(seen: Sequence[int]) -> Callable[[Sequence[Call]], list[Check]]:
    """Expect the fallback's answer in every iteration.

    Args:
        seen: Requests that should reach the primary, per iteration.
    """

    def check(calls: Sequence[Call]) -> list[Check]:
        requests = [call.seen for call in calls]
        return [*_by_fallback(calls), Check("requests at the primary", list(seen), requests)]

    return check


def check_restored(calls: Sequence[Call]) -> list[Check]:
    """Expect one failure, a call that leaves the primary alone, a probe, and the primary again."""
    primary, fallback = (calls[0].record.chain[place] for place in (0, -1))
    notes = [call.record.attempts[-1].note for call in calls]
    answered = [call.record.answered_by for call in calls]
    return [
        Check("the end", ["success"] * 4, _outcomes(calls)),
        Check("the ones who answered", [fallback, fallback, primary, primary], answered),
        Check("the probe", [None, None, "a probe after its cooldown", None], notes),
        Check("requests at the primary", [1, 0, 1, 1], [call.seen for call in calls]),
    ]


def check_nobody(calls: Sequence[Call]) -> list[Check]:
    """Expect FallbackExhausted, and one request at the primary.

    Args:
        calls: What was called.
    """
    return [
        Check("the end", ["exhausted"], _outcomes(calls)),
        Check("the caller's exception", ["FallbackExhausted"], [call.error for call in calls]),
        Check("the one who answered", [None], [call.record.answered_by for call in calls]),
        Check("requests at the primary", [1], [call.seen for call in calls]),
    ]


def _by_fallback(calls: Sequence[Call]) -> list[Check]:
    fallbacks = [call.record.chain[-1] for call in calls]
    return [
        Check("the end", ["success"] * len(calls), _outcomes(calls)),
        Check("the one who answered", fallbacks, [call.record.answered_by for call in calls]),
        Check("words in the answer", [True] * len(calls), [bool(call.said) for call in calls]),
        Check("no wait", [0.0] * len(calls), [_waited(call.record) for call in calls]),
    ]


def _waited(record: CallRecord) -> float:
    return sum(attempt.wait for attempt in record.attempts)


def _outcomes(calls: Sequence[Call]) -> list[str]:
    return [call.record.outcome for call in calls]
