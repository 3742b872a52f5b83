"""What a candidate answers: the chunks of a stream, and what they add up to."""

from __future__ import annotations

import re
import sys
from functools import reduce
from inspect import iscoroutinefunction
from operator import add
from traceback import walk_tb
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from langchain_core.exceptions import OutputParserException
from langchain_core.messages import AIMessage, AIMessageChunk
from langchain_core.messages.ai import add_ai_message_chunks
from pydantic import ValidationError

from honcho_fallback import (
    AnswerRejected,
    DeadlineExceeded,
    Failure,
    FailureKind,
    FallbackExhausted,
    OutcomeUnknown,
    classify,
)
from honcho_fallback import has_content as carries_content

if TYPE_CHECKING:
    from collections.abc import Mapping

    from honcho_fallback import Attempt, AttemptRecord, FallbackConfig, Target

# Stands for a stream that ended without a chunk: an answer for a chain, and no content.
NOTHING: Final = MappingProxyType[str, Any]({})


def has_content(chunk: Any) -> bool:
    """Tell whether a chunk says anything yet; what a chain makes of an answer is whole."""
    if isinstance(chunk, AIMessage) and not isinstance(chunk, AIMessageChunk):
        return True
    return isinstance(chunk, int | float) or carries_content(chunk)


def ends_message(chunk: Any) -> bool:
    """Tell whether a chunk is the last of its message, or a whole message."""
    if isinstance(chunk, AIMessageChunk):
        return chunk.chunk_position == "last"
    return isinstance(chunk, AIMessage)


def merged(chunks: list[Any]) -> Any:
    """Add chunks up, for the end of a run; where they do not add up, the last stands for all."""
    if not chunks:
        return None
    first, *others = chunks
    if all(isinstance(chunk, AIMessageChunk) for chunk in chunks):
        return add_ai_message_chunks(first, *others)
    try:
        return reduce(add, chunks)
    except TypeError:  # as everywhere in LangChain
        return chunks[-1]


def reading_messages(config: FallbackConfig) -> FallbackConfig:
    """Return a config whose ``validate`` is handed the message, also with ``include_raw=True``."""
    validate: Any = config.validate_answer
    if validate is None:
        return config

    def whole(answer: Any) -> object:
        return validate(_message_of(answer))

    async def whole_async(answer: Any) -> object:
        return await validate(_message_of(answer))

    is_async = any(map(iscoroutinefunction, (validate, type(validate).__call__)))
    return config.replace(validate=whole_async if is_async else whole)


def _message_of(answer: Any) -> Any:
    is_raw = isinstance(answer, dict) and isinstance(answer.get("raw"), AIMessage)
    return answer["raw"] if is_raw else answer


def unreadable(why: str) -> AnswerRejected:
    return AnswerRejected(Failure.of(FailureKind.MALFORMED_RESPONSE, reason=why))


# What an answer says about who gave it: ``response_metadata["fallback"]``.

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


def failed_attempt(attempt: AttemptRecord) -> dict[str, Any]:
    entry = _entry_of(attempt.target, attempt.model, attempt.provider)
    entry["kind"] = attempt.kind.value if attempt.kind else None
    entry["status"] = attempt.status
    entry["error"] = attempt.error
    entry["milliseconds"] = round(attempt.seconds * 1000, 1)
    return entry


def _entry_of(target: str, model: str, provider: str | None) -> dict[str, Any]:
    return {"target": target, "model": model, "provider": provider}


# Answers in a schema. LangChain's own chains for them (``model | parser``) raise ValueErrors of
# many classes where an answer does not fit, and so does the user's code in a chain. Whose it is,
# the traceback tells: the step that raised stands in it below what composes steps.

# What an integration raises that does not take a request, or that cannot read an answer.
_REFUSING: Final = (AssertionError, LookupError, NotImplementedError, TypeError, ValueError)
RAISED: Final = (*_REFUSING, AttributeError, UnboundLocalError)
# How a call ends that got no answer.
NO_ANSWER: Final = (AnswerRejected, DeadlineExceeded, FallbackExhausted, OutcomeUnknown)
_COMPOSES: Final = ("langchain_core.runnables.", "honcho_fallback_langchain")
_MODELS: Final = "langchain_core.language_models."
_CALLS: Final = ("langchain_core.runnables.config", "asyncio.", "concurrent.")  # also in a step
_NO_SDKS: Final = ("langchain", "pydantic", "honcho_fallback")
# Integrations' functions that write a request, by their names.
_WRITES: Final = re.compile(r"langchain_.*(messages?_(dicts|to)|params|payload|request)[^.]*")
# What an integration asks with: other code in it is the program's.
_SDKS: Final = {"anthropic", "google", "groq", "httpx", "litellm", "mistralai", "openai"}
_ASKS_WITH: Final = sys.stdlib_module_names | _SDKS | {"langchain_core", "pydantic"}


def unfit(why: str, raised: Exception | None = None, *, again: bool = True) -> AnswerRejected:
    """Return what stands for an answer that does not fit what a program asked for.

    Of one that LangChain hands out all the same nothing was raised: the next candidate is asked,
    but nobody is asked twice.
    """
    # One answer that a program cannot use says nothing about the model for others: no rest.
    failure = Failure.of(
        FailureKind.MALFORMED_RESPONSE,
        reason=why,
        error=type(raised or AnswerRejected("")).__name__,
        scope="client",
        transient=again and raised is not None,
    )
    return AnswerRejected(failure, raised=raised)


def raise_as_failure(error: Exception, *, reads: bool) -> None:
    """Raise what stands for an error about an answer, or about a request that was not sent.

    Nobody's code but an integration's may have raised it.
    """
    step, *below = _step_of(error)
    is_models = step.startswith(_MODELS)
    if is_models and isinstance(error, IndexError):  # no choices are no answer, whoever reads it
        raise unreadable("the answer has no choices") from error
    is_unparsed = isinstance(error, OutputParserException)
    if is_unparsed or _is_misfit(error, step, below):
        if reads:
            why = "could not be parsed" if is_unparsed else "does not fit its schema"
            raise unfit(f"the answer {why}", error) from error
        return
    is_plain = type(error).__module__ == "builtins" or isinstance(error, ValidationError)
    own = (_integrates(name) or name.partition(".")[0] in _ASKS_WITH for name in below)
    is_own = is_models and any(map(_integrates, below)) and all(own)
    if is_own and is_plain and classify(error, only_models=True).kind == "local":
        # An SDK's method that does not know a keyword was never entered. In doubt it was sent.
        is_unsent = any(map(_WRITES.fullmatch, below)) or "unexpected keyword" in str(error)
        if not is_unsent:
            raise unfit("its integration cannot read the answer", error, again=False) from error
        why, name = "its integration does not take the request", type(error).__name__
        failure = Failure.of(FailureKind.UNSUPPORTED, reason=why, error=name, reached="no")
        raise AnswerRejected(failure, raised=error) from error


def _is_misfit(error: Exception, step: str, below: list[str]) -> bool:
    """Tell whether an error means that an answer is not of the form that was asked for."""
    if not step:  # a function behind a parser that parsed nothing: LangChain trips over that
        return isinstance(error, UnboundLocalError)
    if step.startswith(_MODELS):
        # What a model says itself is about what it was asked; what its SDK says, about the answer.
        by_sdk = any(not name.startswith(_NO_SDKS) for name in below)
        # An SDK's own class of ValueErrors (a certificate that is not accepted) speaks for itself.
        is_plain = type(error).__module__ == "builtins" and any(map(_integrates, below))
        kinds = (ValueError, UnboundLocalError) if is_plain else ValidationError
        return by_sdk and isinstance(error, kinds)
    # An integration's functions in a chain read what its model has answered.
    reads = step.startswith("langchain_core.output_parsers.") or _integrates(step)
    return reads and isinstance(error, ValueError)


def _step_of(error: Exception) -> list[str]:
    """Name the functions of a traceback from the step on that raised, the innermost last."""
    steps = list[str]()
    for frame, _ in walk_tb(error.__traceback__):
        name = f"{frame.f_globals.get('__name__')}.{frame.f_code.co_name}"
        if not name.startswith(_CALLS):
            steps = [] if name.startswith(_COMPOSES) else [*steps, name]
    # An integration's model may override `invoke`: it is a model's step all the same.
    is_model = steps[1:] and _integrates(steps[0]) and steps[1].startswith(_MODELS)
    return (steps[1:] if is_model else steps) or [""]


def _integrates(module: str) -> bool:
    return module.startswith("langchain_") and not module.startswith("langchain_core.")
