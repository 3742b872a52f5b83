"""LlamaIndex: its LLM objects in a chain, with their own retries off.

Run:     python examples frameworks/llamaindex  (OPENAI_API_KEY=... asks the real one)
Install: pip install honcho-fallback llama-index-llms-{anthropic,openai} 'anthropic<2'
"""

from typing import Any

from llama_index.llms.anthropic import Anthropic
from llama_index.llms.openai import OpenAI

from endpoints import endpoints
from honcho_fallback import Attempt, FallbackPolicy, Target

with endpoints() as (one, two):
    primary = OpenAI(one.model, api_base=one.base_url, api_key=one.api_key, max_retries=0)
    backup = Anthropic(two.model, base_url=two.base_url, api_key=two.api_key, max_retries=0)
    policy = FallbackPolicy([Target(one.model, client=primary), Target(two.model, client=backup)])

    @policy.wrap
    def complete(attempt: Attempt, prompt: str) -> Any:
        """Ask one model once."""
        return attempt.target.client.complete(prompt)

    print(complete("Say good morning.").text)
