"""Answers and streams of LiteLLM: what is read of them, and the record that they carry."""

from __future__ import annotations

import json
from contextlib import aclosing, nullcontext
from typing import TYPE_CHECKING, Any

from litellm.exceptions import APIError

from honcho_fallback import check_response, has_content

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from honcho_fallback import Attempt, CallRecord

RECORD, _HIDDEN = "fallback", "_hidden_params"
_LONGEST = 200  # characters of a header's value: a server refuses a response of large headers


def attach(carrier: Any, record: CallRecord, answering: str | None = None) -> Any:
    """Let an answer or an error carry the record, and return it.

    An answer has it as ``_hidden_params["fallback"]``, with headers that the Proxy passes on; an
    error as ``error.record``.
    """
    if isinstance(carrier, BaseException):
        if getattr(carrier, "record", None) is None:
            carrier.record = record  # type: ignore[attr-defined] # errors take any attribute
        return carrier
    hidden = _hidden_params(carrier)
    if hidden is None or RECORD in hidden:
        return carrier
    headers = {**(hidden.get("additional_headers") or {}), **headers_of(record, answering)}
    failed = sum(one.kind is not None for one in record.attempts)
    if failed and record.outcome in {"running", "success"}:  # LiteLLM calls a switch a retry
        headers["x-litellm-attempted-retries"] = failed
    hidden["additional_headers"], hidden[RECORD] = headers, record.to_dict()
    return carrier


def count_hops(answer: Any, hops: int) -> Any:
    """Let an answer say how many groups were asked before, as LiteLLM says it, and return it."""
    hidden = _hidden_params(answer)
    if hidden is not None:
        headers = hidden.get("additional_headers") or {}
        hidden["additional_headers"] = {**headers, "x-litellm-attempted-fallbacks": hops}
    return answer


def renew(carrier: Any, record: CallRecord) -> None:
    """Replace the record of a stream, which was attached while it was still running."""
    hidden = _hidden_params(carrier)
    if hidden is not None:
        hidden[RECORD] = record.to_dict()


def headers_of(record: CallRecord, answering: str | None = None) -> dict[str, str]:
    """Say in HTTP headers who was asked and who answers."""
    failed = [one for one in record.attempts if one.kind is not None]
    headers = {
        "x-honcho-fallback-call-id": record.call_id,
        "x-honcho-fallback-primary": record.chain[0],
        "x-honcho-fallback-answered-by": answering or record.answered_by or "nobody",
        "x-honcho-fallback-attempts": str(len(record.attempts) + (answering is not None)),
    }
    if failed:
        headers["x-honcho-fallback-reason"] = ", ".join(str(one.kind) for one in failed)
    return {name: _field(value) for name, value in headers.items()}


def deployment_of(answer: Any) -> str:
    """Return the id of the deployment that LiteLLM has an answer from."""
    hidden = _hidden_params(answer) or {}
    return str(hidden.get("model_id") or "another group")


def is_stream(answer: Any) -> bool:
    """Tell a stream from an answer: an iterator, which is its own; a mock's is another object."""
    kind = type(answer)
    if hasattr(kind, "__anext__"):
        return answer.__aiter__() is answer
    return hasattr(kind, "__next__") and iter(answer) is answer


def carries(chunk: Any) -> bool:
    """Tell whether a chunk is worth handing out; no other target is asked after that."""
    # What Anthropic sends is passed on to Messages as it came over the wire.
    return b"content_block_delta" in chunk if isinstance(chunk, bytes) else has_content(chunk)


async def events_of(chunks: Any, attempt: Attempt) -> AsyncIterator[Any]:
    """Hand on a Messages stream, which LiteLLM passes on as it came; an error event is raised."""
    async with aclosing(chunks) if hasattr(chunks, "aclose") else nullcontext():
        async for chunk in chunks:
            if isinstance(chunk, bytes) and b"event: error" in chunk:
                _raise_event(chunk, attempt)
            yield chunk


def _raise_event(chunk: bytes, attempt: Attempt) -> None:
    for line in chunk.partition(b"event: error")[2].splitlines():
        body = json.loads(line[5:]) if line.startswith(b"data:") else None
        failure = check_response(body)
        if failure is not None:
            target = attempt.target
            error = APIError(
                failure.status or 500,
                failure.provider_message,
                target.provider or "",
                target.model,
            )
            error.body = body
            raise error


def _hidden_params(carrier: Any) -> dict[str, Any] | None:
    is_dict = isinstance(carrier, dict)  # as an answer of Messages is
    hidden = carrier.get(_HIDDEN) if is_dict else getattr(carrier, _HIDDEN, None)
    if isinstance(hidden, dict) or is_dict:
        return hidden if isinstance(hidden, dict) else None
    try:
        carrier._hidden_params = hidden = {}  # noqa: SLF001 # where LiteLLM itself keeps such things
    except (AttributeError, TypeError, ValueError):
        return None
    return hidden


def _field(value: str) -> str:
    """Return what HTTP takes as a header's value: short printable ASCII, no space at its ends."""
    text = "".join(char if " " <= char <= "~" else "?" for char in value).strip()
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3].rstrip()}..."
