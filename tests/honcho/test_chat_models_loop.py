"""Honcho's agents call tools: switches in the middle, over providers that are strict."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest
from langchain.agents import create_agent
from langchain_core.tools import tool

from honcho_fallback.testing import StatusError
from tests.helpers import wire
from tests.helpers.pairwise import in_pairs
from tests.helpers.provider import Reply
from tests.helpers.strict import AnthropicRules, ChatRules
from tests.honcho.chat_models import FALLBACK, PRIMARY, deriver

if TYPE_CHECKING:
    from tests.helpers.provider import ProviderServer, SeenRequest

ROUNDS = 2


def thermometer(city: str) -> str:
    """Read one city."""
    return f"{city}: 21 degrees"


class Loop:
    """Two strict providers that call the tool twice, then answer; each may be down for a round."""

    def __init__(self, server: ProviderServer) -> None:
        self.bodies: list[dict[str, Any]] = []
        self.down: dict[str, list[int]] = {"openai": [], "anthropic": []}
        for name, rules in (("openai", ChatRules()), ("anthropic", AnthropicRules())):
            server[name].rules = rules
            server[name].standing = getattr(self, name)

    def openai(self, request: SeenRequest) -> Reply:
        number = self._round(request, "openai")
        if number is None or number >= ROUNDS:
            return Reply(status=503) if number is None else Reply(text="Lima")
        # Not an id that Anthropic takes, and the same again in every round.
        call = wire.chat_call("functions.thermometer:0", "thermometer", {"city": "Lima"})
        return Reply(body=wire.chat_answer(None, call))

    def anthropic(self, request: SeenRequest) -> Reply:
        number = self._round(request, "anthropic")
        if number is None or number >= ROUNDS:
            return Reply(status=503) if number is None else Reply(text="Lima")
        call = wire.tool_use(f"toolu_{number}", "thermometer", {"city": "Lima"})
        thought = {"type": "thinking", "thinking": "hm", "signature": "signed-by-anthropic"}
        blocks = [thought, call] if "thinking" in request.body else [call]
        return Reply(body=wire.message_answer(*blocks))

    def _round(self, request: SeenRequest, name: str) -> int | None:
        self.bodies.append(request.body)
        if self.down[name] and self.down[name].pop(0):
            return None
        roles = [message["role"] for message in request.body["messages"]]
        return roles.count("assistant")


@in_pairs(
    pair=[("openai", "anthropic"), ("anthropic", "openai")],
    down=[(1,), (0, 1), (1, 0, 1), (0, 1, 0)],
    thinks=[False, True],
    is_async=[False, True],
)
def test_after_a_switch_in_a_tool_loop_the_primary_accepts_the_history(
    providers: ProviderServer,
    pair: tuple[str, str],
    down: tuple[int, ...],
    thinks: bool,
    is_async: bool,
) -> None:
    """HOM-046 to HOM-049, HON-014, AN-011: each iteration starts on the primary, in its form."""
    primary, fallback = pair
    loop = Loop(providers)
    loop.down[primary] = list(down)
    anthropic = PRIMARY if primary == "anthropic" else FALLBACK
    more = {f"{anthropic}__THINKING_BUDGET_TOKENS": "1024"} if thinks else {}
    agent: Any = create_agent(deriver(providers, primary, fallback, **more), [thermometer])
    question = {"messages": [("user", "Which city is warm?")]}
    state = asyncio.run(agent.ainvoke(question)) if is_async else agent.invoke(question)
    assert state["messages"][-1].text == "Lima"
    # Two rounds of tools and the answer; each dead primary cost one more request, and no 400 any.
    who = [[primary, fallback] if dead else [primary] for dead in [*down, 0, 0][:3]]
    assert providers.order == [name for names in who for name in names]
    assert not providers[primary].refused + providers[fallback].refused


def test_thoughts_go_back_to_whom_they_came_from_and_nobody_else(
    providers: ProviderServer,
) -> None:
    """HOM-049: Anthropic's thinking blocks return to Anthropic as they are; OpenAI sees none."""
    loop = Loop(providers)
    loop.down["anthropic"] = [0, 0, 1]
    more = {f"{PRIMARY}__THINKING_BUDGET_TOKENS": "1024"}
    agent: Any = create_agent(deriver(providers, "anthropic", "openai", **more), [thermometer])
    agent.invoke({"messages": [("user", "Which city is warm?")]})
    assert providers.order == ["anthropic"] * 3 + ["openai"]
    back, seen = json.dumps(loop.bodies[2]), json.dumps(loop.bodies[3])
    assert back.count("signed-by-anthropic") == 2
    assert "thinking" not in seen


def test_thoughts_are_asked_for_wherever_they_can_be(providers: ProviderServer) -> None:
    """HOM-049: a new turn thinks again, whoever called the tools of the one before."""
    loop = Loop(providers)
    loop.down["openai"] = [0, 0, 0, 1]
    more = {f"{FALLBACK}__THINKING_BUDGET_TOKENS": "1024"}
    agent: Any = create_agent(deriver(providers, **more), [thermometer])
    state = agent.invoke({"messages": [("user", "Which city is warm?")]})
    agent.invoke({"messages": [*state["messages"], ("user", "Thanks.")]})
    assert providers.order == [*["openai"] * 4, "anthropic"]
    assert loop.bodies[-1]["thinking"] == {"type": "enabled", "budget_tokens": 1024}


def test_a_tool_that_fails_like_a_provider_switches_nothing(providers: ProviderServer) -> None:
    """HOM-044, G-18: a tool's error is the program's own, whatever status it has."""

    @tool
    def broken(city: str) -> str:
        """Read one city."""
        raise StatusError(503)

    call = wire.chat_call("call_1", "broken", {"city": "Lima"})
    providers["openai"].reply(Reply(body=wire.chat_answer(None, call)))
    agent: Any = create_agent(deriver(providers, "openai", "anthropic"), [broken])
    with pytest.raises(StatusError, match="503"):
        agent.invoke({"messages": [("user", "Which city is warm?")]})
    assert providers.order == ["openai"]
