"""A model that thinks, in the middle of a tool loop that another one has begun.

Claude refuses to think there, and without thinking it refuses the thoughts of that turn
(`tests.helpers.strict`); so a 400 here is a loop that could not move. LangChain's own cases stand
in `tests/langchain/test_thinking.py`, the SDKs' in `tests/providers/test_portable_wire.py`.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pydantic_ai
import pytest
from agents.extensions.models.litellm_model import LitellmModel
from litellm import Router
from openai.types.shared import Reasoning
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.google import GoogleModel
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.providers.google import GoogleProvider

from honcho_fallback import Target
from honcho_fallback_litellm import FallbackRoutingStrategy
from tests.agents.frameworks import FRAMEWORKS
from tests.helpers.litellm_runs import THEIRS, deployment, litellm_left_clean
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
    from collections.abc import Callable

    from tests.helpers.provider import Provider, ProviderServer

QUESTION = "Weather?"
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}}
# LiteLLM asks the older one to think in the mode that is strict.
CLAUDE, STRICT_CLAUDE = "claude-sonnet-4-6", "claude-sonnet-4-5"
GEMINI = "gemini-3-pro-preview"

pytestmark = [
    pytest.mark.filterwarnings(one)
    for one in (*THEIRS, "ignore:Inheritance class AiohttpClientSession:DeprecationWarning")
]


class LiteLLM:
    async def loop(self, speakers: list[Any], served: list[Provider]) -> str:
        models: list[Any] = []
        for rank, (speaker, provider) in enumerate(zip(speakers, served, strict=True)):
            params: dict[str, Any] = {"api_key": f"k{rank}"}
            if isinstance(speaker, Claude):
                params |= {"max_tokens": 2048}
                params |= {"thinking": speaker.thinking} if speaker.thinking else {}
            name = litellm_name(speaker)
            models.append(deployment("group", name, provider.url, rank, **params))
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


class OfFramework:
    """An agent of a framework, whose models of Claude and Gemini another function makes."""

    def __init__(
        self, name: str, other: Callable[[Any, str], Any], *, streams: bool = False
    ) -> None:
        self.framework, self.other, self.streams = FRAMEWORKS[name], other, streams

    async def loop(self, speakers: list[Any], served: list[Provider]) -> str:
        model = self.framework.chain(*map(self.model, speakers, served))
        if not self.streams:
            return await self.framework.run(model, look_up, question=QUESTION)
        async with pydantic_ai.Agent(model, tools=[look_up]).run_stream(QUESTION) as result:
            return str(await result.get_output())

    def model(self, speaker: Any, provider: Provider) -> Any:
        if not isinstance(speaker, Chat | Responses):
            return self.other(speaker, provider.url)
        api = "responses" if isinstance(speaker, Responses) else "chat"
        return self.framework.model(provider, name="gpt-5.5", api=api)


def over_litellm(speaker: Any, url: str) -> Any:
    """Make the Agents SDK's model over LiteLLM."""
    model = LitellmModel(litellm_name(speaker), base_url=url, api_key="k")
    if not isinstance(speaker, Claude):
        return model
    params: dict[str, Any] = {"max_tokens": 2048}
    if speaker.thinking:  # only so does the SDK send thoughts back
        params["reasoning"] = Reasoning(effort="low")
    name = f"claude-{speaker.mode}"
    return Target(name, "anthropic", f"{name} at {url}", client=model, params=params)


def of_pydantic_ai(speaker: Any, url: str) -> Any:
    if isinstance(speaker, Gemini):
        return GoogleModel(GEMINI, provider=GoogleProvider(base_url=url, api_key="k"))
    settings: Any = {"max_tokens": 2048}
    if speaker.thinking:
        settings["anthropic_thinking"] = speaker.thinking
    place = AnthropicProvider(base_url=url, api_key="k")
    return AnthropicModel(CLAUDE, provider=place, settings=settings)


WAYS: dict[str, Any] = {
    "litellm": LiteLLM(),
    "openai-agents": OfFramework("openai-agents", over_litellm),
    "pydantic-ai": OfFramework("pydantic-ai", of_pydantic_ai),
    "pydantic-ai streamed": OfFramework("pydantic-ai", of_pydantic_ai, streams=True),
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
    with litellm_left_clean():
        answer = await WAYS[way].loop(speakers, served)
    assert answer == "It rains."
    assert [one.refused for one in served] == [[], []]
    assert [len(one.requests) for one in served] == [ROUNDS, sum(down)]
