"""The tiny local model: a real server of it."""

from __future__ import annotations

import re
from typing import Any

import openai

from recording.local_model import local_model_server

WHERE = {"where": {"type": "string", "enum": ["up", "down"]}}
PARAMETERS = {"type": "object", "properties": WHERE, "required": ["where"]}
LOOK: Any = {"type": "function", "function": {"name": "look", "parameters": PARAMETERS}}
HELLO: Any = [{"role": "user", "content": "Hello"}]


def test_the_local_model_speaks_words_and_calls_tools() -> None:
    """The fallback is a real server: text, usage, and a tool call that its grammar allows."""
    with (
        local_model_server() as local_model,
        openai.DefaultHttpxClient(trust_env=False) as transport,
    ):
        client = openai.OpenAI(
            base_url=local_model.base_url, api_key="-", max_retries=0, http_client=transport
        )
        text = client.chat.completions.create(
            model=local_model.model, messages=HELLO, max_tokens=8
        )
        tool = client.chat.completions.create(
            model=local_model.model, messages=HELLO, tools=[LOOK], tool_choice="required"
        )
    assert re.fullmatch(r"( ?[a-z]+)+", text.choices[0].message.content or "")
    assert text.usage is not None
    assert text.usage.completion_tokens == 8
    assert [call.type for call in tool.choices[0].message.tool_calls or ()] == ["function"]
