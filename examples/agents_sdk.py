"""A fallback model under an agent of OpenAI's Agents SDK, with a tool.

Run:     python examples/agents_sdk.py  (OPENAI_API_KEY, ANTHROPIC_API_KEY ask the real ones)
Install: pip install 'honcho-fallback[openai-agents]' anthropic
"""

from __future__ import annotations

from agents import Agent, OpenAIChatCompletionsModel, OpenAIResponsesModel, Runner
from agents.tracing import set_tracing_disabled
from openai import AsyncOpenAI

from endpoints import endpoints
from honcho_fallback import FallbackConfig
from honcho_fallback_openai_agents import FallbackModel


def main() -> None:
    """Run an agent twice; the second run does not ask the dead primary again."""
    set_tracing_disabled(disabled=True)  # or spans are sent to OpenAI
    with endpoints() as (first, second):
        # Anthropic speaks OpenAI's chat completions, too, under /v1.
        primary = AsyncOpenAI(base_url=first.base_url, api_key=first.api_key)
        backup = AsyncOpenAI(base_url=f"{second.base_url}/v1", api_key=second.api_key)
        # The clients stay as they are: the chain asks copies that do not retry.
        model = FallbackModel(
            OpenAIResponsesModel(first.model, primary),
            OpenAIChatCompletionsModel(second.model, backup),
            config=FallbackConfig.resilient(),
            agent="greeter",
        )
        agent = Agent("Greeter", instructions="Greet in one sentence.", model=model)
        for _ in range(2):
            print(Runner.run_sync(agent, "Good morning").final_output)


if __name__ == "__main__":
    main()
