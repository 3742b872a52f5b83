"""What a dead primary costs a supervisor with two agents, as the page says it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult

from honcho_fallback import FallbackConfig
from honcho_fallback.testing import StatusError
from honcho_fallback_langchain import FallbackMiddleware

PAGE = Path(__file__).resolve().parents[2] / "docs" / "langchain.md"


class Dead(BaseChatModel):
    """A model that is down, and counts its requests in a list that all share."""

    requests: Any  # a list, which pydantic would copy

    @property
    def _llm_type(self) -> str:
        return "dead"

    def _generate(self, *_: Any, **__: Any) -> ChatResult:
        self.requests.append(None)
        raise StatusError(503)

    def bind_tools(self, *_: Any, **__: Any) -> Any:
        return self


class Planned(Dead):
    """A model that calls tools in their order, then says that it is done."""

    plan: list[str]

    def _generate(self, messages: Any, **_: Any) -> ChatResult:  # type: ignore[override] # as it is called
        done = sum(isinstance(one, ToolMessage) for one in messages)
        calls: Any = [
            {"name": name, "args": {}, "id": name} for name in self.plan[done : done + 1]
        ]
        message = AIMessage("" if calls else "done", tool_calls=calls)
        return ChatResult(generations=[ChatGeneration(message=message)])


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
    seen: list[None] = []

    def agent(plan: list[str], tools: list[Any]) -> Any:
        backup = Planned(plan=plan, requests=[])
        middleware: Any = [FallbackMiddleware(backup, **options)]
        return create_agent(Dead(requests=seen), tools, middleware=middleware)

    def look_up() -> str:
        """Look something up."""
        return "a fact"

    workers = [agent(["look_up"], [look_up]) for _ in range(2)]

    def ask_first() -> str:
        """Ask the first agent."""
        return str(workers[0].invoke({"messages": [("user", "go")]})["messages"][-1].text)

    def ask_second() -> str:
        """Ask the second agent."""
        return str(workers[1].invoke({"messages": [("user", "go")]})["messages"][-1].text)

    supervisor = agent(["ask_first", "ask_second"], [ask_first, ask_second])
    answer = supervisor.invoke({"messages": [("user", "go")]})
    assert answer["messages"][-1].text == "done"
    assert len(seen) == requests


def test_the_page_has_these_figures() -> None:
    """They stand on its first screen."""
    first_screen = PAGE.read_text("utf-8").partition("On this page:")[0]
    assert "sends a dead primary 3 requests, not 7" in first_screen
