"""Ask a policy's targets over their own SDKs: text, JSON, streams and tool loops.

The loop over tools is written once, as a generator that yields what to do next; the synchronous
and the asynchronous function feed it. Every iteration is a call of its own, so it starts on the
primary (or where the turn stays), with the history rendered anew for whoever is asked.
"""

from __future__ import annotations

import inspect
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple, TypedDict, Unpack

from honcho_fallback import FallbackConfigError
from honcho_fallback.settings import _wire_anthropic, _wire_gemini, _wire_openai
from honcho_fallback.settings._clients import build_client
from honcho_fallback.settings._endpoint import Endpoint, endpoint_of
from honcho_fallback.settings._messages import Message, ToolCall, canonical
from honcho_fallback.settings._request import Reply, Request, Tool, parsed

if TYPE_CHECKING:
    from collections.abc import (
        AsyncGenerator,
        Awaitable,
        Callable,
        Generator,
        Iterable,
        Mapping,
    )

    from honcho_fallback import Attempt, FallbackPolicy, FallbackRun, Turn

_WIRES: dict[str, Any] = {
    "openai": _wire_openai,
    "anthropic": _wire_anthropic,
    "gemini": _wire_gemini,
}
# As Honcho's tool loop ends at its cap, in our own words.
_MOST_ITERATIONS = 100  # as in Honcho
_WRAP_UP = "No more tools may be called. Answer now, from what the tools have said so far."


class CallOptions(TypedDict, total=False):
    """Name what a call may ask for beside its messages.

    Args:
        tools: What the model may call.
        tool_choice: ``auto``, ``none``, ``any``, ``required`` or a tool's name.
        response_model: A pydantic model, or ``dict`` for any JSON object.
        max_tokens: Of the answer; wins over every target's own.
        temperature: Wins over every target's own.
        stop: Stop sequences; win over every target's own.
        reasoning_effort: For the primary only; a fallback has its own.
        thinking_budget_tokens: For the primary only; a fallback has its own.
        bump_temperature: Whether 0.0 becomes 0.2 after the first attempt, as Honcho has it.
    """

    tools: Iterable[Tool | Mapping[str, Any]]
    tool_choice: str
    response_model: type[Any] | None
    max_tokens: int | None
    temperature: float | None
    stop: Iterable[str]
    reasoning_effort: str | None
    thinking_budget_tokens: int | None
    bump_temperature: bool


class _Ask(NamedTuple):
    request: Request


class _Execute(NamedTuple):
    call: ToolCall


def honcho_call(  # noqa: PLR0913 # what to ask, and how the loop over tools goes
    policy: FallbackPolicy,
    messages: Iterable[Message | Mapping[str, Any]],
    *,
    execute: Callable[[str, Mapping[str, Any]], object] | None = None,
    max_iterations: int = 10,
    turn: Turn | None = None,
    agent: str | None = None,
    **options: Unpack[CallOptions],
) -> Reply:
    """Ask for an answer; with ``execute``, call tools until there is one.

    Args:
        policy: From ``load_policies``.
        messages: The history: Message objects, or mappings with ``role`` and ``content``.
        execute: Calls a tool by name and arguments. What it raises is told to the model as the
            tool's result and never makes the policy switch.
        max_iterations: Rounds of tool calls, 1 to 100; then the model has to answer without.
        turn: Passed on from another thread or task.
        agent: A label for this call.
        **options: See ``CallOptions``.

    Returns:
        The answer, with the history that it ends.

    Raises:
        FallbackExhausted: Nobody answered.
        FallbackConfigError: A message or an option cannot be used.
        Exception: The provider's own where no other target could help.
    """
    steps = _loop(_request(messages, options), max_iterations, uses_tools=execute is not None)
    answer: Any = None
    while True:
        try:
            step = steps.send(answer)
        except StopIteration as done:
            reply: Reply = done.value
            return reply
        if isinstance(step, _Ask):
            run = _start(policy, turn, agent)
            answer = policy.call(_asker(step.request, run), run=run)
        elif execute is not None:
            try:
                answer = (str(execute(step.call.name, step.call.arguments)), False)
            except Exception as error:  # noqa: BLE001 # a tool's failure is the model's business
                answer = _failed_tool(error)


async def ahoncho_call(  # noqa: PLR0913 # as honcho_call
    policy: FallbackPolicy,
    messages: Iterable[Message | Mapping[str, Any]],
    *,
    execute: Callable[[str, Mapping[str, Any]], object | Awaitable[object]] | None = None,
    max_iterations: int = 10,
    turn: Turn | None = None,
    agent: str | None = None,
    **options: Unpack[CallOptions],
) -> Reply:
    """Ask as ``honcho_call`` does, in this task; ``execute`` may be a coroutine function.

    Args:
        policy: From ``load_policies``.
        messages: The history.
        execute: Calls a tool by name and arguments.
        max_iterations: Rounds of tool calls, 1 to 100.
        turn: Passed on from another thread or task.
        agent: A label for this call.
        **options: See ``CallOptions``.

    Raises:
        FallbackExhausted: Nobody answered.
        FallbackConfigError: A message or an option cannot be used.
        Exception: The provider's own where no other target could help.
    """
    steps = _loop(_request(messages, options), max_iterations, uses_tools=execute is not None)
    answer: Any = None
    while True:
        try:
            step = steps.send(answer)
        except StopIteration as done:
            reply: Reply = done.value
            return reply
        if isinstance(step, _Ask):
            run = _start(policy, turn, agent)
            answer = await policy.acall(_async_asker(step.request, run), run=run)
        elif execute is not None:
            try:
                said = execute(step.call.name, step.call.arguments)
                answer = (str(await said if inspect.isawaitable(said) else said), False)
            except Exception as error:  # noqa: BLE001 # a tool's failure is the model's business
                answer = _failed_tool(error)


def honcho_stream(
    policy: FallbackPolicy,
    messages: Iterable[Message | Mapping[str, Any]],
    *,
    turn: Turn | None = None,
    agent: str | None = None,
    **options: Unpack[CallOptions],
) -> Generator[str, None, None]:
    """Ask for an answer in pieces of text; the policy may switch until the first of them.

    Args:
        policy: From ``load_policies``.
        messages: The history.
        turn: Passed on from another thread or task.
        agent: A label for this call.
        **options: See ``CallOptions``; ``response_model`` shapes the text and checks nothing.

    Raises:
        StreamInterrupted: The stream broke after its first piece.
        FallbackExhausted: Nobody answered.
        Exception: The provider's own where no other target could help.
    """
    request = _request(messages, options)

    def ask(attempt: Attempt) -> Generator[str, None, None]:
        sending = _sending(request, attempt)
        for chunk in sending.send(build_client(attempt.target), stream=True):
            yield sending.wire.piece(chunk)

    return policy.stream(ask, turn=turn, agent=agent)


def ahoncho_stream(
    policy: FallbackPolicy,
    messages: Iterable[Message | Mapping[str, Any]],
    *,
    turn: Turn | None = None,
    agent: str | None = None,
    **options: Unpack[CallOptions],
) -> AsyncGenerator[str, None]:
    """Ask as ``honcho_stream`` does, in this task.

    Args:
        policy: From ``load_policies``.
        messages: The history.
        turn: Passed on from another thread or task.
        agent: A label for this call.
        **options: See ``CallOptions``.

    Raises:
        StreamInterrupted: The stream broke after its first piece.
        FallbackExhausted: Nobody answered.
        Exception: The provider's own where no other target could help.
    """
    request = _request(messages, options)

    async def ask(attempt: Attempt) -> AsyncGenerator[str, None]:
        sending = _sending(request, attempt)
        client = build_client(attempt.target, asynchronous=True)
        async for chunk in await sending.send(client, stream=True):
            yield sending.wire.piece(chunk)

    return policy.astream(ask, turn=turn, agent=agent)


def _loop(
    request: Request, max_iterations: int, *, uses_tools: bool
) -> Generator[_Ask | _Execute, Any, Reply]:
    if isinstance(max_iterations, bool) or not 1 <= max_iterations <= _MOST_ITERATIONS:
        raise FallbackConfigError.about(
            "max_iterations", f"got {max_iterations!r}", f"pass 1 to {_MOST_ITERATIONS}"
        )
    iteration = 0
    while True:
        reply: Reply = yield _Ask(request)
        request = replace(request, messages=(*request.messages, reply.message))
        if not (uses_tools and reply.calls):
            return reply._replace(history=request.messages)
        for call in reply.calls:
            text, is_error = yield _Execute(call)
            result = Message("tool", text, call_id=call.id, is_error=is_error)
            request = replace(request, messages=(*request.messages, result))
        iteration += 1
        # What had to be called once would otherwise be called for ever.
        request = replace(request, tool_choice="auto")
        if iteration >= max_iterations:
            # The tools stay named: a history that uses them is refused without.
            told = (*request.messages, Message("user", _WRAP_UP))
            request = replace(request, messages=told, tool_choice="none")
            uses_tools = False


def _request(messages: Iterable[Message | Mapping[str, Any]], options: CallOptions) -> Request:
    given: Any = dict(options)
    unknown = given.keys() - CallOptions.__annotations__.keys()
    if unknown:
        raise FallbackConfigError.about(
            min(unknown), "no such option", f"choose from {', '.join(CallOptions.__annotations__)}"
        )
    model = given.get("response_model")
    if model is not None and not (model is dict or hasattr(model, "model_validate")):
        raise FallbackConfigError.about(
            "response_model", f"got {model!r}", "pass a pydantic model, or dict"
        )
    given["tools"] = tuple(Tool.of(tool) for tool in given.get("tools", ()))
    given["stop"] = tuple(given.get("stop", ()))
    return Request(canonical(messages), **given)


def _start(policy: FallbackPolicy, turn: Turn | None, agent: str | None) -> FallbackRun:
    own = policy.config.validate_answer

    def validate(reply: Reply) -> object:
        return False if reply.problem else None if own is None else own(reply)

    return policy.start(turn=turn, agent=agent, validate=validate)


class _Sending(NamedTuple):
    """Hold a request as its target's wire has it."""

    wire: Any
    endpoint: Endpoint
    asked: dict[str, Any]

    def send(self, client: Any, *, stream: bool = False) -> Any:
        return self.wire.send(client, self.asked, stream=stream)


def _sending(request: Request, attempt: Attempt, run: FallbackRun | None = None) -> _Sending:
    endpoint = endpoint_of(attempt.target)
    wire = _WIRES[endpoint.wire]
    asked: dict[str, Any] = wire.render(request, attempt, endpoint)
    if run is not None:
        run.report(input=list(request.messages), parameters=request.params(attempt, endpoint))
    # The client has the target's own timeout; what is left of the call's may be less.
    if attempt.timeout is not None and attempt.timeout < endpoint.timeout:
        wire.bound(asked, attempt.timeout)
    return _Sending(wire, endpoint, asked)


def _asker(request: Request, run: FallbackRun) -> Callable[[Attempt], Reply]:
    def ask(attempt: Attempt) -> Reply:
        sending = _sending(request, attempt, run)
        answer = sending.send(build_client(attempt.target))
        return _read(request, attempt, sending, answer)

    return ask


def _async_asker(request: Request, run: FallbackRun) -> Callable[[Attempt], Awaitable[Reply]]:
    async def ask(attempt: Attempt) -> Reply:
        sending = _sending(request, attempt, run)
        answer = await sending.send(build_client(attempt.target, asynchronous=True))
        return _read(request, attempt, sending, answer)

    return ask


def _read(request: Request, attempt: Attempt, sending: _Sending, answer: Any) -> Reply:
    message, usage = sending.wire.read(answer, sending.endpoint)
    reply = Reply(message, usage, attempt.target.name)
    if request.response_model is None or message.calls:
        return reply
    value, problem = parsed(message.text, request.response_model)
    return reply._replace(value=value, problem=problem)


def _failed_tool(error: Exception) -> tuple[str, bool]:
    return f"The tool failed: {type(error).__name__}: {error}", True
