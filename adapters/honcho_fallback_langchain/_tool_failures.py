"""A tool's failure in an agent's messages: the text for the model, the marks for the guard."""

from __future__ import annotations

import concurrent.futures
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar, cast

import langgraph.errors
from langchain_core.messages import ToolMessage
from langgraph.types import Command

from honcho_fallback.tools import ToolFailure, ToolFailureKind, ToolOutcome

if TYPE_CHECKING:
    from collections.abc import Callable

    from langchain_core.messages import ToolCall

Returned = TypeVar("Returned")

FAILURE = "failure"
TERMINAL = "failure_terminal"  # what an exception said and its text does not

_NOT_MADE = "This call was not made: the run was stopped."
# No tool failed where a graph pauses, hands over or is cancelled.
_NO_FAILURES = (langgraph.errors.GraphBubbleUp, concurrent.futures.CancelledError)


def _never(_error: BaseException) -> bool:
    return False


# Older releases of langgraph have no schema for what a person answers, so no such error.
_is_invalid_resume: Callable[[BaseException], bool] = getattr(
    langgraph.errors, "is_invalid_resume", _never
)


def is_failure(error: Exception) -> bool:
    """Tell whether an exception is a tool's failure, which the model should hear of."""
    return not isinstance(error, _NO_FAILURES) and not _is_invalid_resume(error)


def failure_message(call: ToolCall, error: Exception) -> ToolMessage:
    """Tell the model of an exception that ends the run by default, redacted and explained."""
    outcome = ToolOutcome(call["name"], call["args"], error, isinstance(error, TimeoutError))
    # The tool's own words come first: the guard tells failures apart by their first line.
    headline = ": ".join(filter(None, ("Error", type(error).__name__, outcome.shown)))
    message = ToolMessage(
        f"{headline}\n{outcome.failure.cause}",
        name=call["name"],
        tool_call_id=cast("str", call["id"]),
        status="error",
    )
    return _marked(message, outcome)


def explained(call: ToolCall, result: Returned) -> Returned:
    """Return what a tool gave back with its failures explained, in a Command or a list, too."""
    output: Any = result
    if isinstance(output, ToolMessage) and output.status == "error":
        output = _marked(output, ToolOutcome(call["name"], call["args"], str(output.text)))
    elif isinstance(output, list):
        output = [explained(call, one) for one in output]
    elif isinstance(output, Command) and isinstance(output.update, dict):
        messages = explained(call, output.update.get("messages"))
        output = (
            replace(output, update={**output.update, "messages": messages}) if messages else output
        )
    return cast("Returned", output)


def outcome_of(call: ToolCall, result: ToolMessage | None) -> ToolOutcome:
    """Say what came of a call; nothing is a failure."""
    name, arguments = call["name"], call["args"]
    if result is None:
        return ToolOutcome(name, arguments, "")
    if result.status != "error":
        return ToolOutcome(name, arguments)
    marks = result.additional_kwargs
    try:
        failure = ToolFailure(ToolFailureKind(marks[FAILURE]["kind"]))
    except (KeyError, TypeError, ValueError):  # a message that no tool of the agent's gave
        failure = None
    return ToolOutcome(
        name,
        arguments,
        str(result.text),
        known_failure=failure,
        known_terminal=str(marks.get(TERMINAL, "")),
    )


def not_made(call: ToolCall) -> ToolMessage:
    """Answer a call of a run that was stopped."""
    message = ToolMessage(
        _NOT_MADE,
        name=call["name"],
        tool_call_id=cast("str", call["id"]),
        status="error",
    )
    return _marked(message, ToolOutcome(call["name"], call["args"], _NOT_MADE))


def _marked(message: ToolMessage, outcome: ToolOutcome) -> ToolMessage:
    marks: dict[str, Any] = {**message.additional_kwargs, FAILURE: outcome.failure.to_dict()}
    marks.pop(TERMINAL, None)
    if outcome.terminal is not None:
        marks[TERMINAL] = outcome.terminal
    return message.model_copy(update={"additional_kwargs": marks})
