"""What a call's record means for a trace: who answered, why not the primary, how bad it is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from honcho_fallback import AttemptRecord, CallRecord, CallStart, Target
    from honcho_fallback_langfuse._in_flight import CallInFlight
    from honcho_fallback_langfuse._usage import Source

# A trace of a call that was tried over and over says enough with so many.
_MOST_ATTEMPTS = 20

# Langfuse's own limit is 128 attributes per observation, from which 4.x drops the type first.
_MOST_KEYS = 40


def named_target(call: CallInFlight, record: CallRecord) -> Target:
    """Return the target that answered, else the target of the last attempt."""
    last = record.attempts[-1].target if record.attempts else record.primary
    return call.target(record.answered_by or last) or call.start.chain[0]


def fallback_reason(record: CallRecord) -> str | None:
    """Say why the primary was left, in the words of the log line; None where it was not."""
    if not record.attempts or not record.attempts[-1].is_fallback:
        return None
    of_primary = [attempt for attempt in record.attempts if not attempt.is_fallback]
    if of_primary:
        return attempt_reason(of_primary[-1])
    return next((why for name, why in record.untried if name == record.primary), None)


def attempt_reason(attempt: AttemptRecord) -> str:
    """Say what went wrong in a few words: kind, class and status."""
    kind = attempt.kind.value if attempt.kind else None
    return " ".join(str(fact) for fact in (kind, attempt.error, attempt.status) if fact)


def attempt_facts(attempt: AttemptRecord) -> dict[str, Any]:
    """Return what metadata tells of one attempt; without what is not known."""
    facts = {
        "provider": attempt.provider,
        "model": attempt.model,
        "kind": attempt.kind.value if attempt.kind else None,
        "error": attempt.error,
        "status": attempt.status,
        "milliseconds": round(attempt.seconds * 1000),
    }
    return {name: fact for name, fact in facts.items() if fact is not None}


def metadata(
    start: CallStart, record: CallRecord, target: Target, source: Source, extra: dict[str, Any]
) -> dict[str, Any]:
    """Return the metadata of a call's generation."""
    primary = start.chain[0]
    facts: dict[str, Any] = {
        "is_fallback": record.is_fallback,
        "provider": target.provider,
        "primary_provider": primary.provider,
        "primary_model": primary.model,
        "fallback_provider": target.provider if record.is_fallback else None,
        "fallback_model": target.model if record.is_fallback else None,
        "fallback_reason": fallback_reason(record),
        "attempts": [attempt_facts(attempt) for attempt in record.attempts[:_MOST_ATTEMPTS]],
        "attempt_count": len(record.attempts),
        "outcome": record.outcome,
        "usage_source": source,
        "streaming": record.time_to_first_token is not None,
        "call_id": record.call_id,
    }
    entries = {name: fact for name, fact in facts.items() if fact is not None}
    # What is particular to the call comes first, where there is not room for everything.
    per_call = start.metadata or {}
    extra = {**per_call, **extra, **per_call}
    if not extra:
        return entries
    room = _MOST_KEYS - len(entries)
    more = [(name, value) for name, value in extra.items() if name not in entries][:room]
    return {**dict(more), **entries}


Level = Literal["DEFAULT", "WARNING", "ERROR"]

_LEVELS: dict[str, Level] = {
    "success": "DEFAULT",
    "cancelled": "WARNING",
    "abandoned": "WARNING",
}


def level(record: CallRecord) -> Level:
    """Return WARNING where a fallback answered or the caller left, ERROR where nobody answered."""
    return "WARNING" if record.is_fallback else _LEVELS.get(record.outcome, "ERROR")


def status_message(record: CallRecord) -> str | None:
    """Say in a line what was out of the ordinary; names and codes, never a provider's text."""
    answered = record.outcome == "success"
    if answered and not record.is_fallback:
        return None
    failed = [
        f"{attempt.target}: {attempt_reason(attempt)}"
        for attempt in record.attempts[:_MOST_ATTEMPTS]
        if attempt.kind is not None
    ]
    return "; ".join([*failed, f"{record.answered_by} answered" if answered else record.outcome])
