"""A model that thinks, in the middle of a tool loop that another one has begun.

Claude refuses to think there, and without thinking it refuses the thoughts of that turn
(`tests.helpers.strict`); so a 400 here is a loop that could not move. LangChain's own cases stand
in `tests/langchain/test_thinking.py`.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import agents
import anthropic
import openai
import pydantic_ai
import pytest
from agents.extensions.models.litellm_model import LitellmModel
from google import genai
from google.genai.types import HttpOptions
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
from honcho_fallback import FallbackPolicy, Target
from honcho_fallback.providers import can_think, portable
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
    """Leave LiteLLM as it was."""
    with litellm_left_clean():
        yield


def thinking_of(speaker: Any) -> dict[str, Any]:
    return {"thinking": speaker.thinking} if getattr(speaker, "thinking", None) else {}


class Kit:
    """Raw SDKs: the history has the primary's format, and an answer of another is moved to it."""

    async def loop(self, speakers: list[Any], urls: list[str]) -> str:
        home = speakers[0].format
        policy = FallbackPolicy([Target(f"m{at}", str(at)) for at in range(len(speakers))])
        history = portable([{"role": "user", "content": QUESTION}], made_by="openai", for_=home)

        async def ask(attempt: Any) -> Any:
            speaker = speakers[attempt.position]
            messages = history
            if attempt.is_fallback:
                messages = portable(history, made_by=home, for_=speaker.format)
            answer = await getattr(self, _VERBS[speaker.format])(
                speaker, urls[attempt.position], messages
            )
            return speaker.format, answer

        for _ in range(ROUNDS):
            maker, (said, text, calls) = await policy.acall(ask)
            if not calls:
                return str(text)
            said += results_in(maker, calls)
            history += said if maker == home else portable(said, made_by=maker, for_=home)
        raise AssertionError(history)

    async def anthropic(self, speaker: Any, url: str, messages: list[Any]) -> Any:
        client = anthropic.AsyncAnthropic(base_url=url, api_key="k", max_retries=0)
        thinking: Any = speaker.thinking or {"type": "disabled"}
        if thinking["type"] != "adaptive" and not can_think(messages):
            messages = portable(messages, made_by="anthropic", for_="anthropic")
            thinking = {"type": "disabled"}
        tool: Any = {"name": "look_up", "input_schema": SCHEMA}
        answer = await client.messages.create(
            model="m", max_tokens=2048, messages=messages, tools=[tool], thinking=thinking
        )
        calls = [(one.id, one.input) for one in answer.content if one.type == "tool_use"]
        text = "".join(one.text for one in answer.content if one.type == "text")
        return [{"role": "assistant", "content": answer.content}], text, calls

    async def chat(self, _: Any, url: str, messages: list[Any]) -> Any:
        client = openai.AsyncOpenAI(base_url=url, api_key="k", max_retries=0)
        tool: Any = {"type": "function", "function": {"name": "look_up", "parameters": SCHEMA}}
        answer = await client.chat.completions.create(model="m", messages=messages, tools=[tool])
        message: Any = answer.choices[0].message
        calls = [(one.id, json.loads(one.function.arguments)) for one in message.tool_calls or ()]
        return [message], message.content, calls

    async def responses(self, _: Any, url: str, messages: list[Any]) -> Any:
        client = openai.AsyncOpenAI(base_url=url, api_key="k", max_retries=0)
        tool: Any = {"type": "function", "name": "look_up", "parameters": SCHEMA}
        answer: Any = await client.responses.create(
            model="m", input=messages, tools=[tool], store=False
        )
        calls = [
            (one.call_id, json.loads(one.arguments))
            for one in answer.output
            if one.type == "function_call"
        ]
        return [*answer.output], answer.output_text, calls

    async def google(self, _: Any, url: str, messages: list[Any]) -> Any:
        client = genai.Client(api_key="k", http_options=HttpOptions(base_url=url))
        function = {"name": "look_up", "parameters_json_schema": SCHEMA}
        config: Any = {"tools": [{"function_declarations": [function]}]}
        answer: Any = await client.aio.models.generate_content(
            model="m", contents=messages, config=config
        )
        content = answer.candidates[0].content
        calls = [("", part.function_call.args) for part in content.parts if part.function_call]
        return [content], answer.text, calls


_VERBS = {
    "anthropic": "anthropic",
    "google": "google",
    "openai": "chat",
    "openai-responses": "responses",
}


def results_in(maker: str, calls: list[tuple[str, Any]]) -> list[Any]:
    """Answer calls of tools in the format that they came in."""
    results = [(call_id, look_up(**arguments)) for call_id, arguments in calls]
    if maker == "anthropic":
        blocks = [
            {"type": "tool_result", "tool_use_id": call_id, "content": text}
            for call_id, text in results
        ]
        return [{"role": "user", "content": blocks}]
    if maker == "google":
        parts = [
            {"function_response": {"name": "look_up", "response": {"result": text}}}
            for _, text in results
        ]
        return [{"role": "user", "parts": parts}]
    if maker == "openai":
        return [
            {"role": "tool", "tool_call_id": call_id, "content": text} for call_id, text in results
        ]
    return [
        {"type": "function_call_output", "call_id": call_id, "output": text}
        for call_id, text in results
    ]


class LiteLLM:
    """A Router with a history of chat messages."""

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
    """An agent, whose run is read as a whole or as a stream."""

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
    "kit": Kit(),
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
