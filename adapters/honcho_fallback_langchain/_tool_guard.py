"""A guard for ``create_agent``: tools that fail are explained, a run without progress is ended.

The guard's rules are the core's. What has been counted lives in the graph's state, so that all
runs may share one middleware and a checkpoint keeps the counts over an interrupt.
"""

from __future__ import annotations

import concurrent.futures
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, NotRequired, TypeVar, cast

import langgraph.errors
from langchain.agents.middleware.types import (
    AgentMiddleware,
    AgentState,
    ExtendedModelResponse,
    ModelResponse,
    PrivateStateAttr,
)
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.runnables.config import ensure_config
from langgraph.types import Command

from honcho_fallback.tools import (
    ToolFailure,
    ToolFailureKind,
    ToolLoopGuard,
    ToolLoopLimits,
    ToolLoopState,
    ToolOutcome,
)
from honcho_fallback_langchain._middleware import InRun, fail_turn, same_turn

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Sequence

    from langchain.agents.middleware.types import ModelRequest, ToolCallRequest
    from langchain_core.messages import BaseMessage, ToolCall

    from honcho_fallback.tools import ToolLoopVerdict

Returned = TypeVar("Returned")

# Of the graph's state: what has been counted, and whether this very run has put it there.
TOOL_LOOP, TOOL_LOOP_IN_RUN = "honcho_fallback_tool_loop", "honcho_fallback_tool_loop_in_run"

# Of a tool message's additional keywords.
FAILURE = "failure"
TERMINAL = "failure_terminal"  # what an exception said and its text does not

# Where artifacts keep the exit code of a command: LangChain's own shell, and a CompletedProcess.
_EXIT_CODES = ("exit_code", "returncode")

_NOT_MADE = "This call was not made: the run was stopped."
# No tool failed where a graph pauses, hands over or is cancelled.
_NO_FAILURES = (langgraph.errors.GraphBubbleUp, concurrent.futures.CancelledError)


class ToolLoopGraphState(AgentState[Any]):
    """Keep in the graph what the guard has counted; neither input nor output."""

    honcho_fallback_tool_loop: NotRequired[Annotated[dict[str, Any], PrivateStateAttr]]
    honcho_fallback_tool_loop_in_run: NotRequired[InRun]


class ToolLoopGuardMiddleware(AgentMiddleware[Any, Any, Any]):
    """Explain each failure of a tool, and end a turn that makes no progress with a reason.

    A tool that raises gives the model a ``ToolMessage`` with ``status="error"``; every such
    message says in ``additional_kwargs["failure"]`` what the failure means. A halt's answer, and a
    nudge, say in ``response_metadata["tool_loop"]`` which limit it was, and of which tool. Each
    turn counts anew, and calls that were made at once count once: no run ends before its model has
    heard of a failure, unless a model that a tool hands its work to is gone for good.

    What a command printed before it exited with a code says nothing about the failure: a test run
    that fails with "connection refused" in its output is a failed test. The code is read from the
    artifact of the tool's message (``exit_code``, ``returncode``; as ShellToolMiddleware has it),
    from an exception (``CalledProcessError``) or from the text ("Exit code: 1"). A result that is
    no error is a success, whatever it says. What a person declines in HumanInTheLoopMiddleware is
    a refusal; only the same call, asked for again and declined again, ends the run.

    A run that nobody waits for says so in its config, ``{"configurable": {"unattended": True}}``;
    then its cap on rounds is ``autonomous_max_iterations`` where that is more.

    Put it before a ToolRetryMiddleware, so that it sees what is left when the tries are used up,
    and before a FallbackMiddleware, to which an answer that no model gave would be an attempt's.

    Args:
        limits: When to nudge and when to halt.
        exempt_tools: Tools that may be called again and again, such as one that waits.

    Raises:
        FallbackConfigError: An argument has the wrong type.
    """

    state_schema = ToolLoopGraphState

    def __init__(
        self, limits: ToolLoopLimits | None = None, *, exempt_tools: Iterable[str] = ()
    ) -> None:
        super().__init__()
        is_name = isinstance(exempt_tools, str)
        self.limits = ToolLoopLimits() if limits is None else limits
        self.exempt_tools = exempt_tools if is_name else frozenset(exempt_tools)
        self.guard()  # refuses at once what it would refuse in a run

    def guard(self, state: ToolLoopState | None = None) -> ToolLoopGuard:
        """Return the guard of one run, the current one if there is any.

        Args:
            state: Where to go on from, or None for a new run.
        """
        unattended = ensure_config().get("configurable", {}).get("unattended") is True
        return ToolLoopGuard(
            self.limits, exempt_tools=self.exempt_tools, unattended=unattended, state=state
        )

    def wrap_tool_call(
        self,
        request: ToolCallRequest,
        handler: Callable[[ToolCallRequest], ToolMessage | Command[Any]],
    ) -> ToolMessage | Command[Any]:
        """Make a call of a tool, and say what its failure means."""
        try:
            result = handler(request)
        except Exception as error:  # noqa: BLE001 # what is no tool's failure is raised again
            return failure_message(request.tool_call, error)
        return explained(request.tool_call, result)

    async def awrap_tool_call(
        self,
        request: ToolCallRequest,
        handler: Callable[[ToolCallRequest], Awaitable[ToolMessage | Command[Any]]],
    ) -> ToolMessage | Command[Any]:
        try:
            result = await handler(request)
        except Exception as error:  # noqa: BLE001 # what is no tool's failure is raised again
            return failure_message(request.tool_call, error)
        return explained(request.tool_call, result)

    def wrap_model_call(
        self,
        request: ModelRequest[Any],
        handler: Callable[[ModelRequest[Any]], ModelResponse[Any]],
    ) -> ModelResponse[Any] | ExtendedModelResponse[Any]:
        """Ask the model for the next round, or end the run with a reason."""
        step = _Round(self, request)
        return step.halt or step.after(handler(step.request))

    async def awrap_model_call(
        self,
        request: ModelRequest[Any],
        handler: Callable[[ModelRequest[Any]], Awaitable[ModelResponse[Any]]],
    ) -> ModelResponse[Any] | ExtendedModelResponse[Any]:
        step = _Round(self, request)
        return step.halt or step.after(await handler(step.request))


class _Round:
    """Count one round of an agent: what came of the last calls, and what the model says then."""

    def __init__(self, middleware: ToolLoopGuardMiddleware, request: ModelRequest[Any]) -> None:
        state: Any = request.state
        self.request = request
        self.kept: dict[str, Any] = state.get(TOOL_LOOP) or {}
        turn = self.kept if same_turn(state, TOOL_LOOP_IN_RUN) else {}
        self.guard = middleware.guard(ToolLoopState.from_dict(turn.get("counts")))
        message, results = _last_round(state.get("messages", []))
        self.counted = (message and message.id) or ""
        # Once only, however often the model is asked; what a turn begins with is not its own.
        is_new = bool(turn) and self.counted != turn.get("counted")
        calls = message.tool_calls if message and is_new else []
        verdict = self.guard.after_tools(outcome_of(one, results.get(one["id"])) for one in calls)
        self.halt: ModelResponse[Any] | ExtendedModelResponse[Any] | None = None
        self.nudge: list[HumanMessage] = []
        if verdict.action == "halt":
            still_open = [call for call in calls if call["id"] not in results]
            self.halt = self._with_counts(ModelResponse(_halted(verdict, still_open)))
            fail_turn(state)
        elif verdict.action == "nudge":
            self.nudge = [HumanMessage(verdict.message, response_metadata=_why(verdict))]
            self.request = request.override(messages=[*request.messages, *self.nudge])

    def after(
        self, answer: ModelResponse[Any] | AIMessage
    ) -> ModelResponse[Any] | ExtendedModelResponse[Any]:
        """Return what the model said, or the end of the run instead of its calls."""
        response = ModelResponse([answer]) if isinstance(answer, AIMessage) else answer
        message, results = _last_round(response.result)
        calls = message.tool_calls if message else []
        still_open = [call for call in calls if call["id"] not in results]
        ending: list[BaseMessage] = []
        # An answer without a call is the end of the run by itself; one in a schema may be a call.
        if message is not None and calls and (still_open or response.structured_response is None):
            made = [(call["name"], call["args"]) for call in calls]
            verdict = self.guard.before_tools(name for name, _ in made)
            if verdict.action != "halt":
                verdict = self.guard.after_model(str(message.text), made)
            if verdict.action == "halt":
                ending = _halted(verdict, still_open)
                fail_turn(cast("dict[str, Any]", self.request.state))
        if self.nudge or ending:
            response = replace(response, result=[*self.nudge, *response.result, *ending])
        return self._with_counts(response)

    def _with_counts(
        self, response: ModelResponse[Any]
    ) -> ModelResponse[Any] | ExtendedModelResponse[Any]:
        counts = self.guard.state
        if counts == ToolLoopState.from_dict(self.kept.get("counts")):
            return response
        kept = {"counts": counts.to_dict(), "counted": self.counted}
        update = {TOOL_LOOP: kept, TOOL_LOOP_IN_RUN: True}
        return ExtendedModelResponse(response, Command(update=update))


def _last_round(
    messages: Sequence[BaseMessage],
) -> tuple[AIMessage | None, dict[str | None, ToolMessage]]:
    """Return the model's last message, and what came of its calls by their ids."""
    results: dict[str | None, ToolMessage] = {}
    for message in reversed(messages):
        if isinstance(message, AIMessage):
            return message, results
        if isinstance(message, ToolMessage):
            results.setdefault(message.tool_call_id, message)
    return None, results


def _why(verdict: ToolLoopVerdict) -> dict[str, Any]:
    why = {"action": verdict.action, "reason": verdict.reason, "tool": verdict.tool}
    return {"tool_loop": why}


def _halted(verdict: ToolLoopVerdict, still_open: Sequence[ToolCall]) -> list[BaseMessage]:
    # A provider refuses a history with calls that nothing answers.
    ending = AIMessage(verdict.message, response_metadata=_why(verdict))
    return [*(_error_message(call, _NOT_MADE) for call in still_open), ending]


# A tool's failure in an agent's messages: the text for the model, the marks for the guard.


# Older releases of langgraph have no schema for what a person answers, so no such error.
_is_invalid_resume: Callable[[BaseException], bool] = getattr(
    langgraph.errors, "is_invalid_resume", lambda _error: False
)


def failure_message(call: ToolCall, error: Exception) -> ToolMessage:
    """Tell the model of a tool's failure, redacted and explained; raise what is none."""
    if isinstance(error, _NO_FAILURES) or _is_invalid_resume(error):
        raise error
    outcome = ToolOutcome(call["name"], call["args"], error, isinstance(error, TimeoutError))
    # The tool's own words come first: the guard tells failures apart by their first line.
    headline = ": ".join(filter(None, ("Error", type(error).__name__, outcome.shown)))
    return _error_message(call, f"{headline}\n{outcome.failure.cause}", outcome)


def explained(call: ToolCall, result: Returned) -> Returned:
    """Return what a tool gave back with its failures explained, in a Command or a list, too."""
    output: Any = result
    if isinstance(output, ToolMessage) and output.status == "error":
        output = _marked(output, _of_message(call, output))
    elif isinstance(output, list):
        output = [explained(call, one) for one in output]
    elif isinstance(output, Command) and isinstance(output.update, dict):
        messages = explained(call, output.update.get("messages"))
        if messages:
            output = replace(output, update={**output.update, "messages": messages})
    return cast("Returned", output)


def outcome_of(call: ToolCall, result: ToolMessage | None) -> ToolOutcome:
    """Say what came of a call; nothing is a failure."""
    if result is None:
        return ToolOutcome(call["name"], call["args"], "")
    if result.status != "error":
        content: Any = result.content
        if isinstance(content, list):  # each block may have an id that is new each time
            content = [{**one, "id": ""} if isinstance(one, dict) else one for one in content]
        return ToolOutcome(call["name"], call["args"], result=content)
    marks = result.additional_kwargs
    try:
        failure = ToolFailure.of(ToolFailureKind(marks[FAILURE]["kind"]))
    except (KeyError, TypeError, ValueError):  # a message that no tool of the agent's gave
        failure = None
    outcome = _of_message(call, result)
    return outcome._replace(known_failure=failure, known_terminal=str(marks.get(TERMINAL, "")))


def _of_message(call: ToolCall, message: ToolMessage) -> ToolOutcome:
    artifact: Any = message.artifact
    own = artifact if isinstance(artifact, Mapping) else getattr(artifact, "__dict__", {})
    codes = [own.get(name) for name in _EXIT_CODES]
    return ToolOutcome(
        call["name"],
        call["args"],
        str(message.text),
        timed_out=own.get("timed_out") is True,
        exit_code=next((code for code in codes if type(code) is int), None),
    )


def _error_message(call: ToolCall, text: str, outcome: ToolOutcome | None = None) -> ToolMessage:
    outcome = outcome or ToolOutcome(call["name"], call["args"], text)
    call_id = cast("str", call["id"])
    message = ToolMessage(text, name=call["name"], tool_call_id=call_id, status="error")
    return _marked(message, outcome)


def _marked(message: ToolMessage, outcome: ToolOutcome) -> ToolMessage:
    marks: dict[str, Any] = {**message.additional_kwargs, FAILURE: outcome.failure.to_dict()}
    marks.pop(TERMINAL, None)
    if outcome.terminal is not None:
        marks[TERMINAL] = outcome.terminal
    return message.model_copy(update={"additional_kwargs": marks})
