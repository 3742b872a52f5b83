"""What an answer says about who gave it: ``response_metadata["fallback"]``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from langchain_core.messages import AIMessage

if TYPE_CHECKING:
    from collections.abc import Mapping

    from honcho_fallback import Attempt, AttemptRecord, FallbackRun, Target

KEY = "fallback"
CALL_ID = "fallback_call_id"  # of an attempt's run, in its metadata


def marked(messages: list[Any], attempt: Attempt, failed: list[dict[str, Any]]) -> list[Any]:
    """Return an attempt's messages with what they say of it, without any provider's text."""
    target = attempt.target
    attempts = [*failed, _entry_of(target.name, target.model, target.provider)]
    description = {
        "is_fallback": attempt.position > 0,
        "model": target.model,
        "attempts": attempts,
    }
    return [_mark(message, description) for message in messages]


def _mark(answer: Any, description: Mapping[str, Any]) -> Any:
    """Return an answer with its description: a copy, because a cache may hold the original."""
    if isinstance(answer, AIMessage):
        inner = answer.response_metadata.get(KEY)
        if inner:  # a candidate may be a chain of its own: who answered is who answered there
            attempts = [*description["attempts"][:-1], *inner["attempts"]]
            is_fallback = description["is_fallback"] or inner["is_fallback"]
            description = {**inner, "is_fallback": is_fallback, "attempts": attempts}
        metadata = {**answer.response_metadata, KEY: description}
        return answer.model_copy(update={"response_metadata": metadata})
    if isinstance(answer, dict) and isinstance(answer.get("raw"), AIMessage):
        return {**answer, "raw": _mark(answer["raw"], description)}
    return answer


def mark_replacement(chunk: Any, message_id: str) -> Any:
    """Return the first chunk of a message that takes the place of one that broke off.

    The id stands in a list, because LangChain adds texts and numbers up.
    """
    fallback = chunk.response_metadata.get(KEY, {})
    fallback = {**fallback, "replaces": [*fallback.get("replaces", ()), message_id]}
    metadata = {**chunk.response_metadata, KEY: fallback}
    return chunk.model_copy(update={"response_metadata": metadata})


def attempt_metadata(
    attempt: Attempt, primary: Target, failed: list[dict[str, Any]]
) -> dict[str, Any]:
    """Tell tracers, at the start of a later attempt, what went before it."""
    return {
        "is_fallback": attempt.position > 0,
        "fallback_attempt": attempt.number,
        CALL_ID: attempt.call_id,
        "fallback_primary": primary.name,
        "fallback_attempts": failed,
    }


def failed_attempts(run: FallbackRun, count: int) -> list[dict[str, Any]]:
    """Describe the first attempts of a call: each has failed."""
    return [_failed(one) for one in run.record.attempts[:count]] if count else []


def _failed(attempt: AttemptRecord) -> dict[str, Any]:
    entry = _entry_of(attempt.target, attempt.model, attempt.provider)
    entry["kind"] = attempt.kind.value if attempt.kind else None
    entry["status"] = attempt.status
    entry["error"] = attempt.error
    entry["milliseconds"] = round(attempt.seconds * 1000, 1)
    return entry


def _entry_of(target: str, model: str, provider: str | None) -> dict[str, Any]:
    return {"target": target, "model": model, "provider": provider}
