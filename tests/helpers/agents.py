"""Agents over scripted chat models, and what they are asked to do."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware
from langchain_core.messages import AIMessageChunk, HumanMessage
from langchain_core.messages.tool import tool_call_chunk
from langchain_core.tools import tool
from langgraph.types import interrupt

from honcho_fallback_langchain import FallbackChatModel, FallbackMiddleware
from tests.helpers.chat_models import look_up

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from langchain_core.messages import AIMessage

WAYS = ("middleware", "chat model")
VERBS = pytest.mark.parametrize("verb", ["invoke", "ainvoke"])


def at_once(*made: tuple[str, str, dict[str, Any]]) -> AIMessageChunk:
    """Answer with calls at once: of each its id, the tool and its arguments."""
    chunks = [
        tool_call_chunk(name=name, args=json.dumps(arguments), id=call_id, index=index)
        for index, (call_id, name, arguments) in enumerate(made)
    ]
    return AIMessageChunk(content="", tool_call_chunks=chunks)


def calls(name: str, number: int, **arguments: Any) -> AIMessageChunk:
    return at_once((f"call_{number}", name, arguments))


ROUNDS = [calls("look_up", 1, city="Oslo"), calls("look_up", 2, city="Rome"), "done"]


def agent(model: Any, *middleware: Any, tools: Sequence[Any] = (look_up,), **options: Any) -> Any:
    return create_agent(model, list(tools), middleware=list(middleware), **options)


def by(way: str, *models: Any, **options: Any) -> list[Any]:
    """Return an agent's model, and its middleware where its fallbacks stand in that."""
    if way == "middleware":
        return [models[0], FallbackMiddleware(*models[1:], **options)]
    return [FallbackChatModel(*models, **options)]


async def run(verb: str, agent: Any, given: Any = "hi", config: Any = None) -> dict[str, Any]:
    """Run an agent for one turn, or let it go on with a Command or None."""
    if isinstance(given, str):
        given = {"messages": [("user", given)]}
    state: dict[str, Any]
    if verb == "invoke":
        state = agent.invoke(given, config)
    else:
        state = await agent.ainvoke(given, config)
    return state


async def stream(
    verb: str, agent: Any, mode: str, config: Any = None, question: str = "hi"
) -> list[Any]:
    given = {"messages": [("user", question)]}
    if verb == "invoke":
        return list(agent.stream(given, config, stream_mode=mode))
    return [part async for part in agent.astream(given, config, stream_mode=mode)]


def last(state: dict[str, Any]) -> AIMessage:
    message: AIMessage = state["messages"][-1]
    return message


def thread(name: str = "t") -> dict[str, Any]:
    return {"configurable": {"thread_id": name}}


class Tool:
    """A tool that does what it is told to, and counts."""

    def __init__(self, act: Callable[[], Any]) -> None:
        self.count = 0

        @tool("work")
        def work(n: int = 0) -> Any:
            """Work."""
            self.count += 1
            return act()

        self.made = work


def raising(error: BaseException) -> Tool:
    """Make a tool that fails."""

    def act() -> Any:
        raise error

    return Tool(act)


@tool
def ask_user(what: str) -> str:
    """Ask the user."""
    return str(interrupt(what))


class Around(AgentMiddleware[Any, Any, Any]):
    """Do something to each request of the model, or to what comes of it."""

    def __init__(
        self,
        request: Callable[[Any], Any] = lambda request: request,
        response: Callable[[Any], Any] = lambda response: response,
    ) -> None:
        super().__init__()
        self.request, self.response = request, response

    def wrap_model_call(self, request: Any, handler: Any) -> Any:
        return self.response(handler(self.request(request)))

    async def awrap_model_call(self, request: Any, handler: Any) -> Any:
        return self.response(await handler(self.request(request)))


class BeforeModel(AgentMiddleware[Any, Any, Any]):
    """Change the messages before the agent's model is asked."""

    def __init__(self, change: Callable[[list[Any]], list[Any]]) -> None:
        super().__init__()
        self.change = change

    def before_model(self, state: Any, runtime: Any) -> Any:
        return {"messages": self.change(state["messages"])}


def as_a_person(messages: list[Any]) -> list[Any]:
    """Say something in a person's place after each round of tools that ask nobody."""
    return [HumanMessage("go on")] if messages[-1].name in {"look_up", "work"} else []
