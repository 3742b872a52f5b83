"""Haystack: its chat generators in a chain.

Run:     python examples frameworks/haystack_generator  (OPENAI_API_KEY=... asks the real one)
Install: pip install honcho-fallback haystack-ai anthropic-haystack
"""

import os
from typing import Any

from haystack.components.generators.chat import OpenAIChatGenerator
from haystack.dataclasses import ChatMessage
from haystack.utils import Secret
from haystack_integrations.components.generators.anthropic import AnthropicChatGenerator

from endpoints import endpoints
from honcho_fallback import Attempt, FallbackPolicy, Target

with endpoints() as (one, two):
    os.environ["ANTHROPIC_BASE_URL"] = two.base_url  # its generator takes no address
    key, other = Secret.from_token(one.api_key), Secret.from_token(two.api_key)
    primary = OpenAIChatGenerator(key, one.model, api_base_url=one.base_url, max_retries=0)
    backup = AnthropicChatGenerator(other, two.model, max_retries=0)
    policy = FallbackPolicy([Target(one.model, client=primary), Target(two.model, client=backup)])

    @policy.wrap
    def ask(attempt: Attempt, messages: list[ChatMessage]) -> Any:
        """Ask one model once."""
        return attempt.target.client.run(messages)["replies"][0]

    print(ask([ChatMessage.from_user("Say good morning.")]).text)
