"""What a dead primary costs a supervisor with two agents, as the page says it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessageChunk

from honcho_fallback import FallbackConfig
from honcho_fallback_langchain import FallbackMiddleware
from tests.helpers.chat_models import ScriptedChat, chat, dead

PAGE = Path(__file__).resolve().parents[2] / "docs" / "langchain.md"


def calling(tool: str) -> AIMessageChunk:
    """Return an answer that calls a tool."""
    call: Any = {"name": tool, "args": "{}", "id": tool, "index": 0}
    return AIMessageChunk(content="", tool_call_chunks=[call])


@pytest.mark.parametrize(
    ("options", "requests"),
    [
        ({}, 7),
        ({"reset": "turn"}, 3),
        ({"fallback_config": FallbackConfig.resilient()}, 3),
    ],
)
def test_a_supervisor_of_two(options: dict[str, Any], requests: int) -> None:
    """Once per model call by default, once per agent and run with `reset="turn"`."""
    primaries: list[ScriptedChat] = []

    def agent(tools: list[Any]) -> Any:
        primaries.append(dead())
        backup = chat("backup", *(calling(tool.__name__) for tool in tools), "done")
        middleware: Any = [FallbackMiddleware(backup, **options)]
        return create_agent(primaries[-1], tools, middleware=middleware)

    def look_up() -> str:
        """Look something up."""
        return "a fact"

    workers = [agent([look_up]) for _ in range(2)]

    def ask_first() -> str:
        """Ask the first agent."""
        return str(workers[0].invoke({"messages": [("user", "go")]})["messages"][-1].text)

    def ask_second() -> str:
        """Ask the second agent."""
        return str(workers[1].invoke({"messages": [("user", "go")]})["messages"][-1].text)

    answer = agent([ask_first, ask_second]).invoke({"messages": [("user", "go")]})
    assert answer["messages"][-1].text == "done"
    assert sum(len(primary.asked) for primary in primaries) == requests


def test_the_page_has_these_figures() -> None:
    """They stand on its first screen."""
    first_screen = PAGE.read_text("utf-8").partition("On this page:")[0]
    assert "sends a dead primary 3 requests, not 7" in first_screen
