"""A guard for ``create_agent``: tools that fail are explained, a run without progress is ended.

The guard's rules are the core's. What has been counted lives in the graph's state, so that all
runs may share one middleware and a checkpoint keeps the counts over an interrupt.
"""

from __future__ import annotations

import concurrent.futures
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, NotRequired, TypeVar, cast

import langgraph.errors
from langchain.agents.middleware.types import (
    AgentMiddleware,
    AgentState,
    PrivateStateAttr,
    hook_config,
)
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langgraph.types import Command

from honcho_fallback import FallbackConfigError
from honcho_fallback.tools import (
    ToolFailure,
    ToolFailureKind,
    ToolLoopGuard,
    ToolLoopLimits,
    ToolLoopState,
    ToolOutcome,
    ToolUse,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Sequence

    from langchain.agents.middleware.types import ToolCallRequest
    from langchain_core.messages import ToolCall
    from langgraph.runtime import Runtime

    from honcho_fallback.tools import Verdict

Returned = TypeVar("Returned")

COUNTS = "honcho_fallback_tool_loop"
COUNTED = "honcho_fallback_tool_loop_counted"

# Of a tool message's additional keywords.
FAILURE = "failure"
TERMINAL = "failure_terminal"  # what an exception said and its text does not

_NOT_MADE = "This call was not made: the run was stopped."
# No tool failed where a graph pauses, hands over or is cancelled.
_NO_FAILURES = (langgraph.errors.GraphBubbleUp, concurrent.futures.CancelledError)


class ToolLoopGraphState(AgentState[Any]):
    """Keep in the graph what the guard has counted; neither input nor output."""

    honcho_fallback_tool_loop: NotRequired[Annotated[dict[str, Any], PrivateStateAttr]]
    honcho_fallback_tool_loop_counted: NotRequired[Annotated[str, PrivateStateAttr]]


class ToolLoopGuardMiddleware(AgentMiddleware[Any, Any, Any]):
    """Explain each failure of a tool, and end a turn that makes no progress with a reason.

    A tool that raises gives the model a ``ToolMessage`` with ``status="error"``; every such
    message says in ``additional_kwargs["failure"]`` what the failure means. A halt's answer, and a
    nudge, say in ``response_metadata["tool_loop"]`` which limit it was. Each turn counts anew.

    Put it before a ToolRetryMiddleware, so that it sees what is left when the tries are used up.

    Args:
        limits: When to nudge and when to halt.
        exempt_tools: Tools that may be called again and again, such as one that polls.
        autonomous: Whether nobody watches the runs.

    Raises:
        FallbackConfigError: An argument has the wrong type.
    """

    state_schema = ToolLoopGraphState

    def __init__(
        self,
        limits: ToolLoopLimits | None = None,
        *,
        exempt_tools: Iterable[str] = (),
        autonomous: bool = False,
    ) -> None:
        super().__init__()
        checked_limits: Any = ToolLoopLimits() if limits is None else limits
        if not isinstance(checked_limits, ToolLoopLimits):
            raise FallbackConfigError.about(
                "limits", f"got a {type(checked_limits).__name__}", "pass ToolLoopLimits(...)"
            )
        if isinstance(exempt_tools, str):
            raise FallbackConfigError.about(
                "exempt_tools", "got a single string", "pass a list of names"
            )
        self.limits = checked_limits
        self.exempt_tools = frozenset(exempt_tools)
        self.autonomous = autonomous

    def wrap_tool_call(
        self,
        request: ToolCallRequest,
        handler: Callable[[ToolCallRequest], ToolMessage | Command[Any]],
    ) -> ToolMessage | Command[Any]:
        """Make a call of a tool, and say what its failure means.

        Args:
            request: The agent's.
            handler: Makes the call.
        """
        try:
            result = handler(request)
        except Exception as error:
            if not is_failure(error):
                raise
            return failure_message(request.tool_call, error)
        return explained(request.tool_call, result)

    async def awrap_tool_call(
        self,
        request: ToolCallRequest,
        handler: Callable[[ToolCallRequest], Awaitable[ToolMessage | Command[Any]]],
    ) -> ToolMessage | Command[Any]:
        """Make a call of a tool in this task, and say what its failure means.

        Args:
            request: The agent's.
            handler: Makes the call.
        """
        try:
            result = await handler(request)
        except Exception as error:
            if not is_failure(error):
                raise
            return failure_message(request.tool_call, error)
        return explained(request.tool_call, result)

    def before_agent(self, state: Any, runtime: Runtime[Any]) -> dict[str, Any]:  # noqa: ARG002 # LangGraph looks for these names
        """Forget the last turn, its unanswered calls included."""
        message, _ = _last_round(state)
        return {COUNTS: ToolLoopState().to_dict(), COUNTED: _name_of(message)}

    async def abefore_agent(self, state: Any, runtime: Runtime[Any]) -> dict[str, Any]:
        """Forget the last turn, its unanswered calls included."""
        return self.before_agent(state, runtime)

    @hook_config(can_jump_to=["end"])
    def before_model(self, state: Any, runtime: Runtime[Any]) -> dict[str, Any]:  # noqa: ARG002 # LangGraph looks for these names
        """Take in what came of the calls that the model made at once."""
        message, results = _last_round(state)
        # Once only, however often the hook runs before the model answers.
        new = [] if _name_of(message) == state.get(COUNTED, "") else _calls_of(message)
        outcomes = [outcome_of(call, results.get(call["id"])) for call in new]
        guard = self._guard(state)
        verdict = guard.after_tools(outcomes)
        update = _update(guard.state, verdict, [call for call in new if call["id"] not in results])
        return {**update, COUNTED: _name_of(message)}

    @hook_config(can_jump_to=["end"])
    async def abefore_model(self, state: Any, runtime: Runtime[Any]) -> dict[str, Any]:
        """Take in what came of the calls that the model made at once."""
        return self.before_model(state, runtime)

    @hook_config(can_jump_to=["end"])
    def after_model(self, state: Any, runtime: Runtime[Any]) -> dict[str, Any] | None:  # noqa: ARG002 # LangGraph looks for these names
        """Take in what the model said, before its calls are made."""
        message, results = _last_round(state)
        calls = _calls_of(message)
        still_open = [call for call in calls if call["id"] not in results]
        # An answer in a schema may be a call, too, and it is the end of the run by itself.
        if message is None or (not still_open and state.get("structured_response") is not None):
            return None
        uses = [ToolUse(call["name"], call["args"]) for call in calls]
        guard = self._guard(state)
        verdict = guard.after_model(str(message.text), uses)
        return _update(guard.state, verdict, still_open)

    @hook_config(can_jump_to=["end"])
    async def aafter_model(self, state: Any, runtime: Runtime[Any]) -> dict[str, Any] | None:
        """Take in what the model said, before its calls are made."""
        return self.after_model(state, runtime)

    def _guard(self, state: Any) -> ToolLoopGuard:
        counts = ToolLoopState.from_dict(state.get(COUNTS))
        return ToolLoopGuard(
            self.limits, exempt_tools=self.exempt_tools, autonomous=self.autonomous, state=counts
        )


def _last_round(state: Any) -> tuple[AIMessage | None, dict[str | None, ToolMessage]]:
    """Return the model's last message, and what came of its calls by their ids."""
    results: dict[str | None, ToolMessage] = {}
    for message in reversed(state.get("messages", [])):
        if isinstance(message, AIMessage):
            return message, results
        if isinstance(message, ToolMessage):
            results.setdefault(message.tool_call_id, message)
    return None, results


def _name_of(message: AIMessage | None) -> str:
    return (message and message.id) or ""


def _calls_of(message: AIMessage | None) -> list[ToolCall]:
    return message.tool_calls if message else []


def _update(
    counts: ToolLoopState, verdict: Verdict, still_open: Sequence[ToolCall]
) -> dict[str, Any]:
    update: dict[str, Any] = {COUNTS: counts.to_dict()}
    why = {"tool_loop": {"action": verdict.action, "reason": verdict.reason}}
    if verdict.action == "nudge":
        update["messages"] = [HumanMessage(verdict.message, response_metadata=why)]
    if verdict.action == "halt":
        # A provider refuses a history with calls that nothing answers.
        answers = [not_made(call) for call in still_open]
        update["messages"] = [*answers, AIMessage(verdict.message, response_metadata=why)]
        update["jump_to"] = "end"
    return update


# A tool's failure in an agent's messages: the text for the model, the marks for the guard.


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
