"""The two frameworks behind one face."""

from __future__ import annotations

import json
from inspect import isfunction
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import agents
import openai
from pydantic import BaseModel
from pydantic_ai import Agent as PydanticAgent
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_ai.settings import ModelSettings

import honcho_fallback_openai_agents
import honcho_fallback_pydantic_ai
from tests.helpers import wire
from tests.helpers.provider import Reply

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.helpers.provider import Provider

LIMA = {"city": "Lima"}


class City(BaseModel):
    city: str


def thermometer(city: str) -> str:
    return f"{city}: 21"


def thinking(name: str, item: wire.Json | None = None) -> Reply:
    """Think, for the account alone that did so, before an item: by default a call of the tool."""
    thought = {"type": "reasoning", "id": f"rs_{name}", "encrypted_content": f"secret of {name}"}
    item = item or wire.response_call(f"fc_{name}", f"call_{name}", "thermometer", LIMA)
    answer = wire.responses_answer({**thought, "summary": []}, item)
    return Reply(body={**answer, "id": f"resp_{name}"})


def client_of(
    provider: Provider, *, host: str = "127.0.0.1", key: str = "", timeout: float | None = None
) -> openai.AsyncOpenAI:
    """Make the client of a model, with the SDK's own retries.

    Args:
        provider: Who is asked.
        host: The name of the machine in the address.
        key: The API key; by default one of the provider's own.
        timeout: The client's own patience, in seconds.
    """
    url = provider.url.replace("127.0.0.1", host)
    key = key or f"key of {provider.name}"
    return openai.AsyncOpenAI(api_key=key, base_url=url, timeout=timeout)


class Streamed(NamedTuple):
    """What a reader has at the end of a run that was streamed.

    Args:
        text: What it shows: an answer that begins anew takes the place of what was shown.
        said: The run's output.
        history: Its messages, as JSON.
        cost: Its requests, and the tokens that they took.
        model: Who answered last.
        void: What it showed before.
    """

    text: str
    said: str
    history: list[Any]
    cost: tuple[int, int]
    model: str | None
    void: str = ""


class OpenAIAgents:
    chain: Any = staticmethod(honcho_fallback_openai_agents.FallbackModel)

    def model(
        self, provider: Provider, *, api: str = "chat", name: str = "gpt-4o", **options: Any
    ) -> Any:
        """Return a model as a user would build it: of an API, with a client's options."""
        client = client_of(provider, **options)
        if api == "responses":
            return agents.OpenAIResponsesModel(name, client)
        return agents.OpenAIChatCompletionsModel(name, client)

    async def run(
        self, model: Any, *tools: Any, question: str = "hi", settings: Any = None, **options: Any
    ) -> str:
        """Run an agent, with the model's settings and the run's options; return its output."""
        made = [agents.function_tool(one) if isfunction(one) else one for one in tools]
        asked = agents.ModelSettings(**(settings or {}))
        prompt = options.pop("prompt", None)
        agent = agents.Agent("a", model=model, tools=made, model_settings=asked, prompt=prompt)
        return str((await agents.Runner.run(agent, question, **options)).final_output)

    def in_session(self, name: str) -> dict[str, Any]:
        """Return the options of a run that is a part of a conversation; the SDK has to trace."""
        agents.set_tracing_disabled(False)
        agents.set_trace_processors([])
        return {"run_config": agents.RunConfig(group_id=name)}

    async def stream(self, model: Any, *tools: Callable[..., Any], question: str = "hi") -> str:
        """Run an agent as a stream and return the text that is shown."""
        return (await self.read(model, *tools, question=question)).text

    async def read(self, model: Any, *tools: Callable[..., Any], question: str = "hi") -> Streamed:
        """Read the events of a run as the page says."""
        made: list[Any] = [agents.function_tool(tool) for tool in tools]
        settings = agents.ModelSettings(include_usage=True)
        agent = agents.Agent("a", model=model, tools=made, model_settings=settings)
        result = agents.Runner.run_streamed(agent, question)
        void, shown, name = "", "", None
        async for event in result.stream_events():
            if event.type != "raw_response_event":
                continue
            if event.data.type == "response.created":  # of the next step, or anew
                void, shown = void + shown, ""
            elif event.data.type == "response.output_text.delta":
                shown += event.data.delta
            elif event.data.type == "response.completed":
                name = event.data.response.model
        usage, history = result.context_wrapper.usage, result.to_input_list()
        cost = usage.requests, usage.input_tokens
        return Streamed(shown, result.final_output, [*history], cost, name, void)


class PydanticAI:
    chain: Any = staticmethod(honcho_fallback_pydantic_ai.FallbackModel)

    def model(
        self, provider: Provider, *, api: str = "chat", name: str = "gpt-4o", **options: Any
    ) -> Any:
        # A client that the provider makes itself is closed with it.
        client = client_of(provider, **options)
        place = OpenAIProvider(base_url=str(client.base_url), api_key=client.api_key)
        timeout = options.get("timeout")
        settings = None if timeout is None else ModelSettings(timeout=timeout)
        kind = OpenAIResponsesModel if api == "responses" else OpenAIChatModel
        return kind(name, provider=place, settings=settings)

    async def run(
        self, model: Any, *tools: Any, question: str = "hi", settings: Any = None, **options: Any
    ) -> str:
        agent = PydanticAgent(model, tools=tools, model_settings=settings)
        return str((await agent.run(question, **options)).output)

    def in_session(self, name: str) -> dict[str, Any]:
        return {"conversation_id": name}

    async def stream(self, model: Any, *tools: Callable[..., Any], question: str = "hi") -> str:
        return (await self.read(model, *tools, question=question)).text

    async def read(self, model: Any, *tools: Callable[..., Any], question: str = "hi") -> Streamed:
        async with PydanticAgent(model, tools=tools).run_stream(question) as result:
            text = "".join([text async for text in result.stream_text(delta=True)])
            cost = result.usage.requests, result.usage.input_tokens
            history = json.loads(result.all_messages_json())
            return Streamed(text, text, history, cost, result.response.model_name)


Framework: TypeAlias = OpenAIAgents | PydanticAI
FRAMEWORKS: dict[str, Framework] = {"openai-agents": OpenAIAgents(), "pydantic-ai": PydanticAI()}


def chain_of(
    framework: Framework,
    primary: Provider,
    *fallbacks: Provider,
    api: str = "chat",
    name: str = "gpt-4o",
    elsewhere: str = "127.0.0.1",
    **options: Any,
) -> Any:
    """Make a chain of models that are asked at these providers, the fallbacks at another host."""
    models = [framework.model(primary, api=api, name=name)]
    models += [framework.model(one, api=api, name=name, host=elsewhere) for one in fallbacks]
    return framework.chain(*models, **options)
