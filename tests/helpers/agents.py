"""Agents over scripted chat models, and what they are asked to do."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from langchain.agents import create_agent
from langchain_core.messages import AIMessageChunk
from langchain_core.messages.tool import tool_call_chunk

from tests.helpers.chat_models import look_up

if TYPE_CHECKING:
    from collections.abc import Sequence

    from langchain_core.messages import AIMessage


def calls(name: str, number: int, **arguments: Any) -> AIMessageChunk:
    call = tool_call_chunk(name=name, args=json.dumps(arguments), id=f"call_{number}", index=0)
    return AIMessageChunk(content="", tool_call_chunks=[call])


ROUNDS = [calls("look_up", 1, city="Oslo"), calls("look_up", 2, city="Rome"), "done"]


def agent(model: Any, *middleware: Any, tools: Sequence[Any] = (look_up,), **options: Any) -> Any:
    return create_agent(model, list(tools), middleware=list(middleware), **options)


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
