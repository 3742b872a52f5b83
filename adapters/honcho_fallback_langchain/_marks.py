"""What an answer says about who gave it: ``response_metadata["fallback"]``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from langchain_core.messages import AIMessage

from honcho_fallback import read_answer

if TYPE_CHECKING:
    from collections.abc import Mapping

    from honcho_fallback import Attempt, AttemptRecord, FallbackRun, Target

KEY = "fallback"


def describe(run: FallbackRun, attempt: Attempt) -> dict[str, Any]:
    """Tell who answers and who was asked before: classes and statuses, no provider's text."""
    target = attempt.target
    attempts = [
        *_failed_attempts(run, attempt),
        _asked(target.name, target.model, target.provider),
    ]
    return {"is_fallback": attempt.is_fallback, "model": target.model, "attempts": attempts}


def mark(answer: Any, told: Mapping[str, Any]) -> Any:
    """Return an answer that says who gave it; the object given may sit in a cache and stays."""
    if isinstance(answer, AIMessage):
        inner = answer.response_metadata.get(KEY)
        metadata = {**answer.response_metadata, KEY: _around(inner, told) if inner else told}
        return answer.model_copy(update={"response_metadata": metadata})
    if isinstance(answer, dict) and isinstance(answer.get("raw"), AIMessage):
        return {**answer, "raw": mark(answer["raw"], told)}
    return answer


def _around(inner: Mapping[str, Any], told: Mapping[str, Any]) -> dict[str, Any]:
    # A candidate may be a chain of its own: who answered is who answered there.
    return {
        "is_fallback": told["is_fallback"] or inner["is_fallback"],
        "model": inner["model"],
        "attempts": [*told["attempts"][:-1], *inner["attempts"]],
    }


def attempt_metadata(run: FallbackRun, attempt: Attempt, primary: Target) -> dict[str, Any]:
    """Tell tracers, at the start of a later attempt, what went before it."""
    return {
        "is_fallback": attempt.position > 0,
        "fallback_attempt": attempt.number,
        "fallback_call_id": attempt.call_id,
        "fallback_primary": primary.name,
        "fallback_attempts": _failed_attempts(run, attempt),
    }


def usage_of(answer: Any) -> Mapping[str, int] | None:
    """Find what an answer cost, as the provider reported it, or None."""
    if isinstance(answer, dict):
        answer = answer.get("raw")
    return read_answer(answer).usage if isinstance(answer, AIMessage) else None


def _failed_attempts(run: FallbackRun, attempt: Attempt) -> list[dict[str, Any]]:
    # Of a call that is still running the record holds those that failed.
    return [_failed(one) for one in run.record.attempts] if attempt.number > 1 else []


def _failed(attempt: AttemptRecord) -> dict[str, Any]:
    told = _asked(attempt.target, attempt.model, attempt.provider)
    told["kind"] = attempt.kind.value if attempt.kind else None
    told["status"] = attempt.status
    told["error"] = attempt.error
    told["milliseconds"] = round(attempt.seconds * 1000, 1)
    return told


def _asked(target: str, model: str, provider: str | None) -> dict[str, Any]:
    return {"target": target, "model": model, "provider": provider}
