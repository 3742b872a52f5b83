"""A fallback's answer comes back as its own SDK made it, whatever the call was for."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from anthropic.types import Message, ToolUseBlock
from openai.types.chat import ChatCompletion
from openai.types.responses import Response

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.vcr


@pytest.mark.upstream("openai_chat")
async def test_a_primary_that_answers_is_the_only_one_asked(
    sdk: Any, text: Callable[[Any], str]
) -> None:
    """On the happy path the fallback sees nothing."""
    answer = await sdk.call(sdk.policy("openai", "anthropic"), sdk.asks.answer)

    assert isinstance(answer, ChatCompletion)
    assert "harbor" in text(answer).lower()
    assert answer.choices[0].finish_reason == "stop"
    assert sdk.asks.asked == ["openai/gpt-5.5"]
    assert not sdk.record.is_fallback


@pytest.mark.upstream("openai_rate_limit", "anthropic_tool_use")
async def test_anthropics_tool_use_stands_in_for_openai(sdk: Any) -> None:
    """A tool call of the fallback arrives whole."""
    answer = await sdk.call(sdk.policy("openai", "anthropic"), sdk.asks.tool)

    assert isinstance(answer, Message)
    (call,) = [block for block in answer.content if isinstance(block, ToolUseBlock)]
    assert (call.name, call.input) == ("get_weather", {"city": "Oslo"})
    assert answer.stop_reason == "tool_use"
    assert sdk.record.answered_by == "anthropic/claude-sonnet-5"


@pytest.mark.upstream("anthropic_overloaded", "openai_tool_call")
async def test_openais_tool_call_stands_in_for_anthropic(sdk: Any) -> None:
    """A tool call of the fallback arrives whole."""
    answer = await sdk.call(sdk.policy("anthropic", "openai"), sdk.asks.tool)

    assert isinstance(answer, ChatCompletion)
    (call,) = answer.choices[0].message.tool_calls or []
    assert call.type == "function"
    assert call.function.name == "get_weather"
    assert json.loads(call.function.arguments) == {"city": "Oslo"}
    assert answer.choices[0].finish_reason == "tool_calls"
    assert sdk.record.answered_by == "openai/gpt-5.5"


@pytest.mark.upstream("anthropic_rate_limit", "openai_responses")
async def test_the_responses_api_stands_in_for_anthropic(
    sdk: Any, text: Callable[[Any], str]
) -> None:
    """The policy minds no wire format: the fallback may speak another API altogether."""
    answer = await sdk.call(sdk.policy("anthropic", "openai"), sdk.asks.responses)

    assert isinstance(answer, Response)
    assert answer.status == "completed"
    assert "harbor" in text(answer).lower()
    assert sdk.record.answered_by == "openai/gpt-5.5"


@pytest.mark.upstream("openai_overloaded", "local_chat")
async def test_a_server_on_this_machine_stands_in_for_openai(
    sdk: Any, text: Callable[[Any], str]
) -> None:
    """The same SDK with another address is another target: model and host change together."""
    answer = await sdk.call(sdk.policy("openai", "local"), sdk.asks.answer)

    assert isinstance(answer, ChatCompletion)
    assert answer.model == "tiny-local"
    assert text(answer)
    assert sdk.asks.asked == ["openai/gpt-5.5", "local/tiny-local"]
    assert sdk.record.answered_by == "local/tiny-local"
