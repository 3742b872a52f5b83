"""A model that thinks, in the middle of a tool loop that another one has begun.

Claude refuses to think there, and without thinking it refuses the thoughts of that turn
(`tests.helpers.strict`); so a 400 here is a loop that could not move. LangChain's own cases stand
in `tests/langchain/test_thinking.py`, the SDKs' in `tests/providers/test_portable_wire.py`.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import agents
import openai
import pydantic_ai
import pytest
from agents.extensions.models.litellm_model import LitellmModel
from litellm import Router
from openai.types.shared import Reasoning
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.google import GoogleModel
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.providers.google import GoogleProvider
from pydantic_ai.providers.openai import OpenAIProvider

import honcho_fallback_openai_agents
import honcho_fallback_pydantic_ai
from honcho_fallback import Target
from honcho_fallback_litellm import FallbackRoutingStrategy
from tests.helpers.litellm_runs import THEIRS, litellm_left_clean
from tests.helpers.pairwise import in_pairs
from tests.helpers.speakers import (
    MODES,
    OTHERS,
    OUTAGES,
    ROUNDS,
    Chat,
    Claude,
    Gemini,
    Responses,
    look_up,
    serve_both,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.helpers.provider import ProviderServer

QUESTION = "Weather?"
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}}
# LiteLLM asks the older one to think in the mode that is strict.
CLAUDE, STRICT_CLAUDE = "claude-sonnet-4-6", "claude-sonnet-4-5"
GEMINI = "gemini-3-pro-preview"

pytestmark = [
    pytest.mark.filterwarnings(one)
    for one in (*THEIRS, "ignore:Inheritance class AiohttpClientSession:DeprecationWarning")
]


@pytest.fixture(autouse=True)
def clean_litellm() -> Iterator[None]:
    with litellm_left_clean():
        yield


def thinking_of(speaker: Any) -> dict[str, Any]:
    return {"thinking": speaker.thinking} if getattr(speaker, "thinking", None) else {}


class LiteLLM:
    async def loop(self, speakers: list[Any], urls: list[str]) -> str:
        models: list[Any] = []
        for rank, (speaker, url) in enumerate(zip(speakers, urls, strict=True)):
            params: dict[str, Any] = {
                "model": litellm_name(speaker),
                "api_base": url,
                "api_key": f"k{rank}",
            }
            if isinstance(speaker, Claude):
                params |= {"max_tokens": 2048, **thinking_of(speaker)}
            info = {"id": str(rank), "fallback_rank": rank}
            models.append({"model_name": "group", "litellm_params": params, "model_info": info})
        router = Router(model_list=models)
        FallbackRoutingStrategy().register(router)
        tool = {"type": "function", "function": {"name": "look_up", "parameters": SCHEMA}}
        history: list[Any] = [{"role": "user", "content": QUESTION}]
        for _ in range(ROUNDS):
            answer: Any = await router.acompletion("group", history, tools=[tool])
            message = answer.choices[0].message
            if not message.tool_calls:
                return str(message.content)
            history.append(message)
            history += [
                {
                    "role": "tool",
                    "tool_call_id": call.id,
                    "content": look_up(**json.loads(call.function.arguments)),
                }
                for call in message.tool_calls
            ]
        raise AssertionError(history)


def litellm_name(speaker: Any) -> str:
    match speaker:
        case Claude():
            return f"anthropic/{CLAUDE if speaker.mode == 'adaptive' else STRICT_CLAUDE}"
        case Gemini():
            return f"gemini/{GEMINI}"
        case Responses():
            return "openai/responses/gpt-5.5"
        case _:
            return "openai/gpt-5.5"


class OpenAIAgents:
    """The Runner; Claude and Gemini by the SDK's model over LiteLLM."""

    async def loop(self, speakers: list[Any], urls: list[str]) -> str:
        candidates = [self.model(one, url) for one, url in zip(speakers, urls, strict=True)]
        model = honcho_fallback_openai_agents.FallbackModel(*candidates)
        tool = agents.function_tool(look_up)
        made = agents.Agent("a", model=model, tools=[tool])
        config = agents.RunConfig(tracing_disabled=True)
        result = await agents.Runner.run(made, QUESTION, run_config=config)
        return str(result.final_output)

    def model(self, speaker: Any, url: str) -> Any:
        if isinstance(speaker, Chat | Responses):
            client = openai.AsyncOpenAI(base_url=url, api_key="k")
            is_chat = isinstance(speaker, Chat)
            kind = agents.OpenAIChatCompletionsModel if is_chat else agents.OpenAIResponsesModel
            return kind("gpt-5.5", client)
        model = LitellmModel(litellm_name(speaker), base_url=url, api_key="k")
        if not isinstance(speaker, Claude):
            return model
        params: dict[str, Any] = {"max_tokens": 2048}
        if speaker.thinking:  # only so does the SDK send thoughts back
            params["reasoning"] = Reasoning(effort="low")
        name = f"claude-{speaker.mode}"
        return Target(name, "anthropic", f"{name} at {url}", client=model, params=params)


class PydanticAI:
    def __init__(self, *, streams: bool = False) -> None:
        self.streams = streams

    async def loop(self, speakers: list[Any], urls: list[str]) -> str:
        candidates = [self.model(one, url) for one, url in zip(speakers, urls, strict=True)]
        model = honcho_fallback_pydantic_ai.FallbackModel(*candidates)
        agent = pydantic_ai.Agent(model, tools=[look_up])
        if not self.streams:
            return (await agent.run(QUESTION)).output
        async with agent.run_stream(QUESTION) as result:
            return await result.get_output()

    def model(self, speaker: Any, url: str) -> Any:
        match speaker:
            case Claude():
                settings: Any = {"max_tokens": 2048}
                if speaker.thinking:
                    settings["anthropic_thinking"] = speaker.thinking
                place = AnthropicProvider(base_url=url, api_key="k")
                return AnthropicModel(CLAUDE, provider=place, settings=settings)
            case Gemini():
                google = GoogleProvider(base_url=url, api_key="k")
                return GoogleModel(GEMINI, provider=google)
            case _:
                kind = OpenAIResponsesModel if isinstance(speaker, Responses) else OpenAIChatModel
                return kind("gpt-5.5", provider=OpenAIProvider(base_url=url, api_key="k"))


WAYS: dict[str, Any] = {
    "litellm": LiteLLM(),
    "openai-agents": OpenAIAgents(),
    "pydantic-ai": PydanticAI(),
    "pydantic-ai streamed": PydanticAI(streams=True),
}


@pytest.mark.parametrize("way", WAYS)
@in_pairs(mode=[*MODES], other=[*OTHERS], is_primary=[True, False], down=OUTAGES)
async def test_a_tool_loop_moves_between_a_model_that_thinks_and_others(
    providers: ProviderServer,
    way: str,
    mode: str,
    other: str,
    down: tuple[int, ...],
    *,
    is_primary: bool,
) -> None:
    """Each call of the model starts on the primary and is answered, whoever called the tools."""
    speakers, served = serve_both(providers, mode, other, down, is_primary=is_primary)
    answer = await WAYS[way].loop(speakers, [one.url for one in served])
    assert answer == "It rains."
    assert [one.refused for one in served] == [[], []]
    assert [len(one.requests) for one in served] == [ROUNDS, sum(down)]
