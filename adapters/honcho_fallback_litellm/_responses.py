"""Answers and streams of LiteLLM: what is read of them, and the record that they carry."""

from __future__ import annotations

import json
import re
from contextlib import aclosing, nullcontext, suppress
from typing import TYPE_CHECKING, Any

import litellm
from litellm.exceptions import APIError

from honcho_fallback import (
    AnswerRejected,
    Failure,
    FailureKind,
    check_response,
    has_content,
    read_answer,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from honcho_fallback import Attempt, CallRecord, FallbackRun, Target

RECORD, _HIDDEN = "fallback", "_hidden_params"
_LONGEST = 200  # characters of a header's value: a server refuses a response of large headers
# Who speaks OpenAI's protocol.
_OPENAIS: Any = litellm.openai_compatible_providers  # pyright: ignore[reportPrivateImportUsage] # shown, not exported
_NAME_THE_ROLE = frozenset({"openai", "azure", "mistral", "openrouter", *_OPENAIS})
# Of the events of a stream over HTTP: where one ends, and its name.
_EVENT_ENDS = re.compile(rb"(?<=\n\n)|(?<=\n\r\n)")
_EVENT_NAME = re.compile(rb'^(?:event: ?|data: ?\{\s*"type": ?")(\w+)', re.MULTILINE)


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
    if RECORD in hidden:
        return carrier
    headers = {**(hidden.get("additional_headers") or {}), **headers_of(record, answering)}
    failed = sum(one.kind is not None for one in record.attempts)
    if failed and record.outcome in {"running", "success"}:  # LiteLLM calls a switch a retry
        headers["x-litellm-attempted-retries"] = failed
    hidden["additional_headers"], hidden[RECORD] = headers, record.to_dict()
    return carrier


def renew(carrier: Any, record: CallRecord) -> None:
    """Replace the record of a stream, which was attached while it was still running."""
    _hidden_params(carrier)[RECORD] = record.to_dict()


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
    return str(_hidden_params(answer).get("model_id") or "another group")


def is_stream(answer: Any) -> bool:
    """Tell a stream from an answer: an iterator, which is its own; a mock's is another object."""
    kind = type(answer)
    if hasattr(kind, "__anext__"):
        return answer.__aiter__() is answer
    return hasattr(kind, "__next__") and iter(answer) is answer


def carries(chunk: Any) -> bool:
    """Tell whether a chunk is worth handing out; no other target is asked after that."""
    is_event = isinstance(chunk, bytes)
    return _name_of(chunk) == b"content_block_delta" if is_event else has_content(chunk)


def refuse_made_up(chunk: Any, target: Target) -> None:
    """Refuse a first chunk that LiteLLM makes up, a stop, for a stream that said nothing.

    OpenAI's protocol names the role first. LiteLLM leaves that out of an empty answer in any
    other; where it says beside the chunk what an answer cost, a real one did cost something.

    Raises:
        AnswerRejected: It is one.
    """
    choice = chunk.choices[0]
    delta: Any = getattr(choice, "delta", None)
    if delta is None or choice.finish_reason != "stop" or any(value for _, value in delta):
        return
    is_free = target.provider in _NAME_THE_ROLE or "usage" in _hidden_params(chunk)
    if is_free and read_answer(chunk).usage is None:
        raise _malformed(f"{target.name} sent a stream that says nothing")


async def events_of(chunks: Any, run: FallbackRun) -> AsyncIterator[Any]:
    """Hand on a Messages stream event by event: LiteLLM passes it on as the network cut it.

    What it cost is reported to the run, which cannot read bytes.

    Raises:
        APIError: It says of an error.
        AnswerRejected: It is no such stream, or has no end.
    """
    event, rest, is_whole, counted = b"", b"", False, list[Any]()
    async with aclosing(chunks) if hasattr(chunks, "aclose") else nullcontext():
        async for chunk in chunks:
            if not isinstance(chunk, bytes):
                yield chunk
                is_whole = True
                continue
            *events, rest = _EVENT_ENDS.split(rest + chunk)
            for event in events:
                if (name := _name_of(event)) == b"error":
                    raise _error_in(event, run.attempt)
                if name in {b"message_start", b"message_delta"}:  # which say what it costs
                    counted.append(_body_of(event))
                    run.report(usage=read_answer(counted).usage)
                is_whole |= name == b"message_stop"
                yield event
    if not is_whole and _name_of(rest) != b"message_stop":
        raise _error_in(rest or event, run.attempt)
    if rest:
        yield rest


def _name_of(event: bytes) -> bytes:
    named = _EVENT_NAME.search(event)
    return named[1] if named else b""


def _body_of(event: bytes) -> Any:
    data = b"".join(line[5:] for line in event.splitlines() if line.startswith(b"data:"))
    try:
        return json.loads(data or event)
    except ValueError:
        return None


def _error_in(event: bytes, attempt: Attempt) -> Exception:
    """Return what an error event stands for, or what came in place of a stream's end."""
    body, target = _body_of(event), attempt.target
    failure = check_response(body)
    if failure is None:
        return _malformed(f"{target.name} sent no whole stream of Messages")
    status, message = failure.status or 500, failure.provider_message
    error = APIError(status, message, target.provider or "", target.model)
    error.body = body
    return error


def _malformed(why: str) -> AnswerRejected:
    return AnswerRejected(Failure.of(FailureKind.MALFORMED_RESPONSE, reason=why))


def _hidden_params(carrier: Any) -> dict[str, Any]:
    """Return what LiteLLM keeps beside an answer; a dict for nobody where there is no place."""
    is_dict = isinstance(carrier, dict)  # as an answer of Messages is
    hidden = carrier.get(_HIDDEN) if is_dict else getattr(carrier, _HIDDEN, None)
    if isinstance(hidden, dict):
        return hidden
    kept: dict[str, Any] = {}
    with suppress(AttributeError, TypeError, ValueError):
        if not is_dict:
            carrier._hidden_params = kept  # noqa: SLF001 # where LiteLLM itself keeps such things
    return kept


def _field(value: str) -> str:
    """Return what HTTP takes as a header's value: short printable ASCII, no space at its ends."""
    text = "".join(char if " " <= char <= "~" else "?" for char in value).strip()
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3].rstrip()}..."
