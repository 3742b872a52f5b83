"""The two frameworks behind one face."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import agents
import openai
from pydantic_ai import Agent as PydanticAgent
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.openai import OpenAIProvider

import honcho_fallback_openai_agents
import honcho_fallback_pydantic_ai
from honcho_fallback import FallbackObserver

if TYPE_CHECKING:
    from collections.abc import Callable

    from honcho_fallback import CallRecord, TurnEnd
    from tests.helpers.provider import Provider


class Records(FallbackObserver):
    """Keep the records of calls."""

    def __init__(self) -> None:
        self.calls: list[CallRecord] = []
        self.turns: list[TurnEnd] = []

    def on_finish(self, record: CallRecord, /) -> None:
        """Keep one."""
        self.calls.append(record)

    def on_turn_end(self, turn: TurnEnd, /) -> None:
        """Keep one."""
        self.turns.append(turn)


class Framework(Protocol):
    """Ask a framework's agents, as the tests need it."""

    def model(self, provider: Provider, *, api: str = "chat", host: str = "127.0.0.1") -> Any:
        """Return a model of the framework, as a user would build it."""

    def chain(self, *models: Any, **options: Any) -> Any:
        """Return the fallback model over models."""

    async def run(self, model: Any, *tools: Callable[..., Any], question: str = "hi") -> str:
        """Run an agent and return its output."""

    async def stream(self, model: Any) -> str:
        """Run an agent as a stream and return the text that came."""


class OpenAIAgents:
    """The Agents SDK."""

    def model(self, provider: Provider, *, api: str = "chat", host: str = "127.0.0.1") -> Any:
        """As its users build one."""
        address = provider.url.replace("127.0.0.1", host)
        client = openai.AsyncOpenAI(api_key=f"key of {provider.name}", base_url=address)
        if api == "responses":
            return agents.OpenAIResponsesModel("gpt-4o", client)
        return agents.OpenAIChatCompletionsModel("gpt-4o", client)

    def chain(self, *models: Any, **options: Any) -> Any:
        """The chain."""
        return honcho_fallback_openai_agents.FallbackModel(*models, **options)

    async def run(self, model: Any, *tools: Callable[..., Any], question: str = "hi") -> str:
        """Through the Runner."""
        made: list[Any] = [agents.function_tool(tool) for tool in tools]
        result = await agents.Runner.run(agents.Agent("a", model=model, tools=made), question)
        return str(result.final_output)

    async def stream(self, model: Any) -> str:
        """Through the Runner."""
        result = agents.Runner.run_streamed(agents.Agent("a", model=model), "hi")
        return "".join(
            [
                event.data.delta
                async for event in result.stream_events()
                if event.type == "raw_response_event"
                and event.data.type == "response.output_text.delta"
            ]
        )


class PydanticAI:
    """Pydantic AI."""

    def model(self, provider: Provider, *, api: str = "chat", host: str = "127.0.0.1") -> Any:
        """As its users build one."""
        address = provider.url.replace("127.0.0.1", host)
        place = OpenAIProvider(base_url=address, api_key=f"key of {provider.name}")
        return (OpenAIResponsesModel if api == "responses" else OpenAIChatModel)(
            "gpt-4o", provider=place
        )

    def chain(self, *models: Any, **options: Any) -> Any:
        """The chain."""
        return honcho_fallback_pydantic_ai.FallbackModel(*models, **options)

    async def run(self, model: Any, *tools: Callable[..., Any], question: str = "hi") -> str:
        """Through an agent."""
        result = await PydanticAgent(model, tools=tools).run(question)
        return result.output

    async def stream(self, model: Any) -> str:
        """Through an agent."""
        async with PydanticAgent(model).run_stream("hi") as result:
            return "".join([text async for text in result.stream_text(delta=True)])


FRAMEWORKS: dict[str, Framework] = {"openai-agents": OpenAIAgents(), "pydantic-ai": PydanticAI()}
