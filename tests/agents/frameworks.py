"""The two frameworks behind one face."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, TypedDict, Unpack

import agents
import openai
from pydantic_ai import Agent as PydanticAgent
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_ai.settings import ModelSettings

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


class ModelOptions(TypedDict, total=False):
    """Say how a model is made.

    Args:
        api: The endpoint that is asked: ``chat`` or ``responses``.
        host: The name of the machine in the address.
        name: The model's.
        key: The API key.
        timeout: The client's own patience, in seconds.
    """

    api: str
    host: str
    name: str
    key: str
    timeout: float | None


def client_of(provider: Provider, options: ModelOptions) -> openai.AsyncOpenAI:
    """Make the client of a model, with the SDK's own retries."""
    return openai.AsyncOpenAI(
        api_key=options.get("key", f"key of {provider.name}"),
        base_url=provider.url.replace("127.0.0.1", options.get("host", "127.0.0.1")),
        timeout=options.get("timeout"),
    )


class Framework(Protocol):
    """Ask a framework's agents, as the tests need it."""

    def model(self, provider: Provider, **options: Unpack[ModelOptions]) -> Any:
        """Return a model of the framework, as a user would build it."""

    def chain(self, *models: Any, **options: Any) -> Any:
        """Return the fallback model over models."""

    async def run(self, model: Any, *tools: Callable[..., Any], question: str = "hi") -> str:
        """Run an agent and return its output."""

    async def stream(self, model: Any, *, question: str = "hi") -> str:
        """Run an agent as a stream and return the text that came."""


class OpenAIAgents:
    """The Agents SDK."""

    def model(self, provider: Provider, **options: Unpack[ModelOptions]) -> Any:
        """As its users build one."""
        name, client = options.get("name", "gpt-4o"), client_of(provider, options)
        if options.get("api") == "responses":
            return agents.OpenAIResponsesModel(name, client)
        return agents.OpenAIChatCompletionsModel(name, client)

    def chain(self, *models: Any, **options: Any) -> Any:
        """The chain."""
        return honcho_fallback_openai_agents.FallbackModel(*models, **options)

    async def run(self, model: Any, *tools: Callable[..., Any], question: str = "hi") -> str:
        """Through the Runner."""
        made: list[Any] = [agents.function_tool(tool) for tool in tools]
        result = await agents.Runner.run(agents.Agent("a", model=model, tools=made), question)
        return str(result.final_output)

    async def stream(self, model: Any, *, question: str = "hi") -> str:
        """Through the Runner."""
        result = agents.Runner.run_streamed(agents.Agent("a", model=model), question)
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

    def model(self, provider: Provider, **options: Unpack[ModelOptions]) -> Any:
        """As its users build one."""
        # A client that the provider makes itself is closed with it.
        client = client_of(provider, options)
        place = OpenAIProvider(base_url=str(client.base_url), api_key=client.api_key)
        timeout = options.get("timeout")
        settings = None if timeout is None else ModelSettings(timeout=timeout)
        kind = OpenAIResponsesModel if options.get("api") == "responses" else OpenAIChatModel
        return kind(options.get("name", "gpt-4o"), provider=place, settings=settings)

    def chain(self, *models: Any, **options: Any) -> Any:
        """The chain."""
        return honcho_fallback_pydantic_ai.FallbackModel(*models, **options)

    async def run(self, model: Any, *tools: Callable[..., Any], question: str = "hi") -> str:
        """Through an agent."""
        result = await PydanticAgent(model, tools=tools).run(question)
        return result.output

    async def stream(self, model: Any, *, question: str = "hi") -> str:
        """Through an agent."""
        async with PydanticAgent(model).run_stream(question) as result:
            return "".join([text async for text in result.stream_text(delta=True)])


FRAMEWORKS: dict[str, Framework] = {"openai-agents": OpenAIAgents(), "pydantic-ai": PydanticAI()}
