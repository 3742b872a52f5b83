"""``honcho-fallback demo --via langchain``: an LCEL chain, a stream and agents with a tool."""

from __future__ import annotations

from dataclasses import replace
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final, Literal

if find_spec("langchain") is None:
    message = "the demo needs langchain: pip install 'honcho-fallback[agents]'"
    raise ImportError(message)

import openai
from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware
from langchain.chat_models import init_chat_model
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.tools import tool

from honcho_fallback.cli.demos import (
    Check,
    Demo,
    Scenario,
    check_loop,
    check_nobody,
    check_one_failover,
    played,
)
from honcho_fallback_langchain import (
    FallbackChatModel,
    FallbackMiddleware,
    ToolLoopGuardMiddleware,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import ExitStack

    from langchain.agents.middleware import ModelRequest, ModelResponse
    from langchain_core.language_models import BaseChatModel
    from langchain_core.runnables import Runnable

    from honcho_fallback import Target
    from honcho_fallback.cli.demos import Call, Endpoint, Ledger, Stage

_ITERATIONS: Final = 5
_CALLED: Final = "tool call"
_ROOM_FOR_A_CALL: Final = {"max_tokens": 128}  # the tiny model spells it letter by letter
_WISH: Final = {"number": "five"}
_TASK: Final = "Read the thermometer of four cities, one at a time, then say which is the warmest."
_PRESSURE: Final = "Read the barometer on the roof and tell me the pressure."
_PROMPT: Final = ChatPromptTemplate.from_messages([("human", "Say hello in {number} words.")])


def _model(endpoint: Endpoint, stack: ExitStack) -> BaseChatModel:
    # With the SDK's retries at their default: the adapter sees to them.
    if endpoint.base_url is None:
        return init_chat_model(endpoint.model, model_provider=endpoint.wire)
    # A proxy from the environment has no business between us and our own servers.
    transport = stack.enter_context(openai.DefaultHttpxClient(trust_env=False))
    model: BaseChatModel = init_chat_model(
        endpoint.model,
        model_provider=endpoint.wire,
        base_url=endpoint.base_url,
        api_key="not-needed",
        http_client=transport,
        http_socket_options=(),  # or it warns that its own would bypass that proxy
        **endpoint.params,
    )
    return model


def _connect(endpoint: Endpoint, stack: ExitStack) -> Target:
    model = _model(endpoint, stack)
    (target,) = FallbackChatModel(model).policy.targets  # named as the adapter names it
    return replace(target, client=model)


def _models(chain: Sequence[Target]) -> list[BaseChatModel]:
    return [target.client for target in chain]


def _chain(targets: Sequence[Target], ledger: Ledger) -> Runnable[Any, str]:
    model = FallbackChatModel(*_models(targets), agent="demo", observers=[ledger])
    return _PROMPT | model | StrOutputParser()


def _rate_limited(stage: Stage) -> list[Call]:
    stage.break_primary(lambda primary: primary.fail(429, retry_after=30, times=None))
    return played(stage, lambda ledger: [_chain(stage.chain, ledger).invoke(_WISH)])


def _cut_stream(stage: Stage) -> list[Call]:
    stage.break_primary(lambda primary: primary.cut_stream(times=None))
    return played(stage, lambda ledger: ["".join(_chain(stage.chain, ledger).stream(_WISH))])


def _nobody(stage: Stage) -> list[Call]:
    stage.break_primary(lambda primary: primary.fail(503, times=None))
    return played(stage, lambda ledger: [_chain(stage.dead_chain, ledger).invoke(_WISH)])


@tool
def read_thermometer(city: Literal["Oslo", "Lima", "Hanoi"]) -> str:
    """Read the temperature of one city."""
    return f"{len(city)} degrees"


@tool
def read_barometer(station: Literal["roof"]) -> str:
    """Read the air pressure of a station."""
    raise RuntimeError(f"the {station} does not answer the way it should")


class _Paced(AgentMiddleware[Any, Any, Any]):
    """Have a tool called four times and then no more: the tiny model cannot tell when to stop."""

    def wrap_model_call(
        self,
        request: ModelRequest[Any],
        handler: Callable[[ModelRequest[Any]], ModelResponse[Any]],
    ) -> ModelResponse[Any]:
        """Force a tool call, or take the tools away."""
        done = sum(isinstance(message, ToolMessage) for message in request.messages)
        if done < _ITERATIONS - 1:
            paced = request.override(tool_choice="required", model_settings=_ROOM_FOR_A_CALL)
            return handler(paced)
        return handler(request.override(tools=[], tool_choice=None))


def _agent(reset: Literal["iteration", "turn"]) -> Callable[[Stage], list[Call]]:
    def play(stage: Stage) -> list[Call]:
        stage.break_primary(lambda primary: primary.fail(503, times=None))
        primary, *fallbacks = _models(stage.chain)

        def ask(ledger: Ledger) -> list[str]:
            fallback = FallbackMiddleware(
                *fallbacks, reset=reset, agent="demo", observers=[ledger]
            )
            paced = [_Paced()] if stage.simulator is not None else []
            agent = create_agent(primary, [read_thermometer], middleware=[fallback, *paced])
            state = agent.invoke({"messages": [HumanMessage(_TASK)]})
            return [_said(one) for one in state["messages"] if isinstance(one, AIMessage)]

        return played(stage, ask)

    return play


def _failing_tool(stage: Stage) -> list[Call]:
    stage.break_primary(lambda primary: primary.fail(503, times=None))
    primary, *fallbacks = _models(stage.chain)

    def ask(ledger: Ledger) -> list[str]:
        fallback = FallbackMiddleware(*fallbacks, agent="demo", observers=[ledger])
        paced = [_Paced()] if stage.simulator is not None else []
        guarded = [fallback, ToolLoopGuardMiddleware(), *paced]
        agent = create_agent(primary, [read_barometer], middleware=guarded)
        messages = agent.invoke({"messages": [HumanMessage(_PRESSURE)]})["messages"]
        said = [_said(one) for one in messages if isinstance(one, AIMessage)]
        # The guard's answer is no model's: it takes the place of the call that it follows.
        halted = "tool_loop" in messages[-1].response_metadata
        return [*said[:-2], said[-1]] if halted else said

    return played(stage, ask)


def _said(message: AIMessage) -> str:
    if message.tool_calls:
        return f"{_CALLED} {message.tool_calls[0]['args']}"
    return str(message.text).strip()


def _check_agent(seen: Sequence[int]) -> Callable[[Sequence[Call]], list[Check]]:
    def check(calls: Sequence[Call]) -> list[Check]:
        called = [call.said.startswith(_CALLED) for call in calls]
        expected = [True] * (_ITERATIONS - 1) + [False]
        return [*check_loop(seen)(calls), Check("tool calls until the last", expected, called)]

    return check


def _check_stopped(calls: Sequence[Call]) -> list[Check]:
    found = [call.said.partition(" times")[0] for call in calls[-1:]]
    expected = ["I stopped: read_barometer failed 3"]
    return [*check_loop([1, 1, 1])(calls), Check("the reason for the end", expected, found)]


DEMO: Final = Demo(
    _connect,
    (
        Scenario(
            "chain",
            "An LCEL chain, prompt | model | parser",
            "the primary answers 429 with Retry-After 30",
            _rate_limited,
            check_one_failover("rate_limit", 429),
        ),
        Scenario(
            "stream",
            "The chain's stream",
            "the primary's connection drops before the first token",
            _cut_stream,
            check_one_failover("connection", None),
        ),
        Scenario(
            "agent, reset=iteration",
            "An agent with a tool, reset=iteration",
            "an outage; each iteration starts on the primary",
            _agent("iteration"),
            _check_agent([1, 1, 1, 1, 1]),
        ),
        Scenario(
            "agent, reset=turn",
            "The same agent, reset=turn",
            "an outage; the turn stays where it works",
            _agent("turn"),
            _check_agent([1, 0, 0, 0, 0]),
        ),
        Scenario(
            "agent, failing tool",
            "An agent whose tool keeps failing, with ToolLoopGuardMiddleware",
            "an outage, and a tool that never works: the guard ends the run and says why",
            _failing_tool,
            _check_stopped,
        ),
        Scenario(
            "nobody",
            "A last chain",
            "nobody answers: the primary is down, the fallback is not running",
            _nobody,
            check_nobody,
        ),
    ),
)
