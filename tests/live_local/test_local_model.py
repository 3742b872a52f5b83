"""The tiny local model: a real server of it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import openai

if TYPE_CHECKING:
    from openai.types.chat import ChatCompletionFunctionToolParam

    from tests.helpers.local_model import LocalModel


def test_the_local_model_speaks_words_and_calls_tools(local_model: LocalModel) -> None:
    """The fallback is a real server: text, usage, and a tool call that its grammar allows."""
    look: ChatCompletionFunctionToolParam = {
        "type": "function",
        "function": {
            "name": "look",
            "parameters": {
                "type": "object",
                "properties": {"where": {"type": "string", "enum": ["up", "down"]}},
                "required": ["where"],
            },
        },
    }
    with openai.DefaultHttpxClient(trust_env=False) as transport:
        client = openai.OpenAI(
            base_url=local_model.base_url, api_key="-", max_retries=0, http_client=transport
        )
        text = client.chat.completions.create(
            model=local_model.model, messages=[{"role": "user", "content": "Hello"}], max_tokens=8
        )
        tool = client.chat.completions.create(
            model=local_model.model,
            messages=[{"role": "user", "content": "Hello"}],
            tools=[look],
            tool_choice="required",
        )
    assert re.fullmatch(r"( ?[a-z]+)+", text.choices[0].message.content or "")
    assert text.usage is not None
    assert text.usage.completion_tokens == 8
    calls = tool.choices[0].message.tool_calls
    assert calls is not None
    assert [call.type for call in calls] == ["function"]
