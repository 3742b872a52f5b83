"""A fallback model under an agent of Pydantic AI.

Run:     python examples/pydantic_agent.py  (OPENAI_API_KEY, ANTHROPIC_API_KEY ask the real ones)
Install: pip install 'honcho-fallback[pydantic-ai]' 'pydantic-ai-slim[anthropic,openai]'
"""

from __future__ import annotations

from pydantic_ai import Agent
from pydantic_ai.messages import ModelResponse
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.providers.openai import OpenAIProvider

from endpoints import endpoints
from honcho_fallback_pydantic_ai import FallbackModel


def main() -> None:
    """Run an agent; the response says who failed before it."""
    with endpoints() as (first, second):
        openai = OpenAIProvider(base_url=first.base_url, api_key=first.api_key)
        anthropic = AnthropicProvider(base_url=second.base_url, api_key=second.api_key)
        model = FallbackModel(
            OpenAIChatModel(first.model, provider=openai),
            AnthropicModel(second.model, provider=anthropic),
            agent="greeter",
        )
        result = Agent(model, instructions="Greet in one sentence.").run_sync("Good morning")
        print(result.output)
        response = result.all_messages()[-1]
        if isinstance(response, ModelResponse):
            for attempt in response.failed_attempts or ():
                print(f"{attempt.provider_name}/{attempt.model_name}: {attempt.error}")


if __name__ == "__main__":
    main()
