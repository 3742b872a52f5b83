"""Agents over fake models: answers with tool calls, and every way to run them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from chat_fakes import ScriptedChat
from langchain.agents import create_agent
from langchain_core.language_models.chat_models import generate_from_stream
from langchain_core.messages import AIMessageChunk
from langchain_core.messages.tool import tool_call_chunk
from langchain_core.tools import tool
from pydantic import PrivateAttr
from honcho_fallback.testing import StatusError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from langchain_core.messages import AIMessage, BaseMessage
    from langchain_core.outputs import ChatResult

    from honcho_fallback import CallRecord, CallStart, Switch


class AgentChat(ScriptedChat):
    """Answer in whole what a stream would say, tool calls included; keep what was bound."""

    _bound: list[dict[str, Any]] = PrivateAttr(default_factory=list)

    @property
    def bound(self) -> list[dict[str, Any]]:
        """Return the keywords of each binding of tools."""
        return self._bound

    def bind_tools(self, tools: Sequence[Any], **kwargs: Any) -> Any:
        """Bind tools as any fake does, and remember with which keywords."""
        self._bound.append(kwargs)
        return super().bind_tools(tools, **kwargs)

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: Any = None,
        **kwargs: Any,
    ) -> ChatResult:
        return generate_from_stream(iter(self._chunks(messages, {**kwargs, "stop": stop})))


def agent_chat(model: str, *entries: Any, **fields: Any) -> AgentChat:
    """Make a fake; an entry that is no list stands for a list of one part."""
    script = [entry if isinstance(entry, list) else [entry] for entry in entries]
    return AgentChat(model=model, script=script, **fields)


def down(model: str = "primary", status: int = 503) -> AgentChat:
    """Make a fake that always fails."""
    return agent_chat(model, StatusError(status))


def up(model: str = "backup") -> AgentChat:
    """Make a fake that always answers."""
    return agent_chat(model, f"from {model}")


def calls(name: str, number: int, **arguments: Any) -> AIMessageChunk:
    """Make an answer that calls a tool."""
    made = tool_call_chunk(name=name, args=json.dumps(arguments), id=f"call_{number}", index=0)
    return AIMessageChunk(content="", tool_call_chunks=[made])


@tool
def look_up(city: str) -> str:
    """Tell the weather."""
    return f"rain in {city}"


ROUNDS = [calls("look_up", 1, city="Oslo"), calls("look_up", 2, city="Rome"), "done"]


def agent(model: Any, *middleware: Any, tools: Sequence[Any] = (look_up,), **options: Any) -> Any:
    """Make an agent."""
    return create_agent(model, list(tools), middleware=list(middleware), **options)


async def run(verb: str, made: Any, given: Any = "hi", config: Any = None) -> dict[str, Any]:
    """Run an agent for one turn, or let it go on with a Command or None."""
    if isinstance(given, str):
        given = {"messages": [("user", given)]}
    answered: dict[str, Any]
    if verb == "invoke":
        answered = made.invoke(given, config)
    else:
        answered = await made.ainvoke(given, config)
    return answered


def last(answered: dict[str, Any]) -> AIMessage:
    """Return the message that an agent ended with."""
    message: AIMessage = answered["messages"][-1]
    return message


class Told:
    """Keep what an observer is told."""

    def __init__(self) -> None:
        self.starts: list[CallStart] = []
        self.switches: list[Switch] = []
        self.records: list[CallRecord] = []

    def on_start(self, call: CallStart) -> None:
        self.starts.append(call)

    def on_switch(self, switch: Switch) -> None:
        self.switches.append(switch)

    def on_finish(self, record: CallRecord) -> None:
        self.records.append(record)
