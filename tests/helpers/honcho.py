"""Stand-ins with the shapes that Honcho's call path has today; written anew, nothing is copied.

What is asked is real: the SDKs of OpenAI and Anthropic, wherever a test lets them ask.
"""

from __future__ import annotations

import json
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import anthropic
import openai
from pydantic import BaseModel, Field

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from honcho_fallback import Attempt

Json = dict[str, Any]
T = TypeVar("T")


class HonchoLLMCallResponse(BaseModel, Generic[T]):
    content: T
    input_tokens: int = 0
    output_tokens: int = 0
    finish_reasons: list[str] = Field(default_factory=list)
    tool_calls_made: list[dict[str, Any]] = Field(default_factory=list)
    thinking_blocks: list[dict[str, Any]] = Field(default_factory=list)


class HonchoLLMCallStreamChunk(BaseModel):
    """A chunk of a stream; its last one is done, and brings no content."""

    content: str
    is_done: bool = False
    finish_reasons: list[str] = Field(default_factory=list)
    output_tokens: int | None = None


class ResolvedFallbackConfig(BaseModel):
    """A fallback as a call gets it: complete in itself."""

    model: str
    transport: str
    api_key: str | None = None
    base_url: str | None = None
    temperature: float | None = None
    thinking_effort: str | None = None
    thinking_budget_tokens: int | None = None
    provider_params: dict[str, Any] = Field(default_factory=dict)


class ModelConfig(ResolvedFallbackConfig):
    fallback: ResolvedFallbackConfig | None = None


class CachePolicy(BaseModel):
    """What of a prompt is kept, and how long."""

    mode: str = "none"
    ttl_seconds: int | None = None
    key_version: str = "v1"


class Overrides(BaseModel):
    api_key: str | None = None
    api_key_env: str | None = None
    base_url: str | None = None
    provider_params: dict[str, Any] = Field(default_factory=dict)


class ConfiguredModelSettings(BaseModel):
    """A model as the settings have it: key and address are not where a client looks for them."""

    model: str
    transport: str
    thinking_effort: str | None = None
    thinking_budget_tokens: int | None = None
    stop_sequences: list[str] | None = None
    cache_policy: CachePolicy | None = None
    overrides: Overrides = Overrides()
    fallback: ConfiguredModelSettings | None = None


@dataclass(frozen=True)
class AttemptPlan:
    provider: str
    model: str
    client: Any
    thinking_budget_tokens: int | None
    reasoning_effort: str | None
    selected_config: ModelConfig
    attempt: int
    retry_attempts: int
    is_fallback: bool


@dataclass
class LLMTelemetryContext:
    """Whose call it is, what was captured of its messages by ``id()``, and each request's end."""

    call_purpose: str = "dialectic.answer"
    hash_memo: dict[int, str] | None = None
    # The attempt, was_fallback and the error of each request.
    events: list[tuple[int, bool, str]] = field(default_factory=list)


current_attempt: ContextVar[int] = ContextVar("current_attempt", default=0)


def resolve_runtime_model_config(settings: ModelConfig | ConfiguredModelSettings) -> ModelConfig:
    """Put key and address where a client looks for them."""
    if isinstance(settings, ModelConfig):
        return settings
    own = settings.model_dump(exclude={"overrides", "fallback"})
    fallback = settings.fallback and resolve_runtime_model_config(settings.fallback)
    return ModelConfig(
        **own,
        **settings.overrides.model_dump(),
        fallback=fallback and ResolvedFallbackConfig(**fallback.model_dump(exclude={"fallback"})),
    )


def client_for_model_config(transport: str, config: ModelConfig) -> Any:
    sdk: Any = {"openai": openai.AsyncOpenAI, "anthropic": anthropic.AsyncAnthropic}[transport]
    return sdk(api_key=config.api_key, base_url=config.base_url, max_retries=0)


def plan_attempt(
    *,
    runtime_model_config: ModelConfig,
    attempt: Attempt,
    retry_attempts: int,
    call_thinking_budget_tokens: int | None = None,
    call_reasoning_effort: str | None = None,
) -> AttemptPlan:
    """Say who is asked; a caller's own thinking is the primary's alone."""
    selected = runtime_model_config
    if attempt.is_fallback:
        assert runtime_model_config.fallback is not None
        selected = ModelConfig(**runtime_model_config.fallback.model_dump())
        call_thinking_budget_tokens = selected.thinking_budget_tokens
        call_reasoning_effort = selected.thinking_effort
    return AttemptPlan(
        selected.transport,
        selected.model,
        client_for_model_config(selected.transport, selected),
        call_thinking_budget_tokens,
        call_reasoning_effort,
        selected,
        attempt.number,
        retry_attempts,
        attempt.is_fallback,
    )


def effective_temperature(temperature: float | None) -> float | None:
    """Ask with a little variety where a request is not the call's first."""
    return 0.2 if temperature == 0.0 and current_attempt.get() > 1 else temperature


async def honcho_llm_call_inner(
    provider: str,
    model: str,
    *,
    messages: list[Json],
    stream: bool = False,
    tools: list[Json] | None = None,
    tool_choice: str | None = None,
    temperature: float | None = None,
    reasoning_effort: str | None = None,
    thinking_budget_tokens: int | None = None,
    response_model: type[BaseModel] | None = None,
    client_override: Any,
    selected_config: ModelConfig,
    plan: AttemptPlan,
    telemetry: LLMTelemetryContext,
) -> Any:
    """Ask one model once, and tell telemetry how that ended; a stream ends when it is read."""
    if telemetry.hash_memo is not None:
        telemetry.hash_memo |= {id(message): json.dumps(message) for message in messages}
    request: Json = {"model": model, "messages": messages, "temperature": temperature}
    request |= {"tools": tools, "reasoning_effort": reasoning_effort}
    if thinking_budget_tokens is None:
        thinking_budget_tokens = selected_config.thinking_budget_tokens
    request |= {"thinking_budget_tokens": thinking_budget_tokens, "tool_choice": tool_choice}
    request = {name: value for name, value in request.items() if value is not None}
    backend = _BACKENDS[provider]
    if stream:
        return _with_event(plan, telemetry, backend.stream(client_override, request))
    with _event(plan, telemetry):
        response = await backend.complete(client_override, request)
        if response_model is not None:
            content = response_model.model_validate_json(response.content)
            response = response.model_copy(update={"content": content})
        return response


async def _with_event(
    plan: AttemptPlan, telemetry: LLMTelemetryContext, chunks: AsyncIterator[Any]
) -> AsyncIterator[HonchoLLMCallStreamChunk]:
    with _event(plan, telemetry):
        async for chunk in chunks:
            yield chunk


@contextmanager
def _event(plan: AttemptPlan, telemetry: LLMTelemetryContext) -> Iterator[None]:
    error = "cancelled"
    try:
        yield
        error = ""
    except Exception as failure:
        error = type(failure).__name__
        raise
    finally:
        telemetry.events.append((plan.attempt, plan.is_fallback, error))


class _OpenAI:
    async def complete(self, client: Any, request: Json) -> Any:
        answer = await client.chat.completions.create(**self._converted(request))
        choice = answer.choices[0]
        calls = [
            {
                "id": call.id,
                "name": call.function.name,
                "input": json.loads(call.function.arguments),
            }
            for call in choice.message.tool_calls or ()
        ]
        return HonchoLLMCallResponse(
            content=choice.message.content or "",
            finish_reasons=[choice.finish_reason],
            tool_calls_made=calls,
        )

    async def stream(self, client: Any, request: Json) -> Any:
        chunks = await client.chat.completions.create(stream=True, **self._converted(request))
        async for chunk in chunks:
            for choice in chunk.choices:
                yield HonchoLLMCallStreamChunk(
                    content=choice.delta.content or "",
                    is_done=bool(choice.finish_reason),
                    finish_reasons=[choice.finish_reason] if choice.finish_reason else [],
                )

    def _converted(self, request: Json) -> Json:
        tools = [{"type": "function", "function": one} for one in request.get("tools", ())]
        return request | ({"tools": tools} if tools else {})


class _Anthropic:
    async def complete(self, client: Any, request: Json) -> Any:
        answer = await client.messages.create(**self._converted(request))
        calls = [
            {"id": block.id, "name": block.name, "input": block.input}
            for block in answer.content
            if block.type == "tool_use"
        ]
        return HonchoLLMCallResponse(
            content="".join(block.text for block in answer.content if block.type == "text"),
            finish_reasons=[answer.stop_reason],
            tool_calls_made=calls,
            thinking_blocks=[
                block.model_dump() for block in answer.content if block.type == "thinking"
            ],
        )

    async def stream(self, client: Any, request: Json) -> Any:
        async with client.messages.stream(**self._converted(request)) as events:
            async for text in events.text_stream:
                yield HonchoLLMCallStreamChunk(content=text)
        yield HonchoLLMCallStreamChunk(content="", is_done=True, finish_reasons=["end_turn"])

    def _converted(self, request: Json) -> Json:
        request = {"max_tokens": 2000, **request}
        messages = request.pop("messages")
        # The newest SDK takes no temperature by name.
        request["extra_body"] = {"temperature": request.pop("temperature", 1.0)}
        if budget := request.pop("thinking_budget_tokens", 0):
            request["thinking"] = {"type": "enabled", "budget_tokens": budget}
        if system := [one["content"] for one in messages if one["role"] == "system"]:
            request["system"] = "\n\n".join(system)
        if "tools" in request:
            request["tools"] = [
                {"name": one["name"], "input_schema": one["parameters"]}
                for one in request["tools"]
            ]
        if "tool_choice" in request:
            request["tool_choice"] = {"type": request["tool_choice"]}
        turns = [one for one in messages if one["role"] != "system"]
        return {**request, "messages": turns}


_BACKENDS: dict[str, Any] = {"openai": _OpenAI(), "anthropic": _Anthropic()}


def format_assistant_tool_message(
    provider: str, content: Any, tool_calls: list[Json], thinking_blocks: list[Json]
) -> Json:
    if provider == "openai":
        calls = [
            {
                "id": one["id"],
                "type": "function",
                "function": {"name": one["name"], "arguments": json.dumps(one["input"])},
            }
            for one in tool_calls
        ]
        return {"role": "assistant", "content": content, "tool_calls": calls}
    text = [{"type": "text", "text": content}] if content else []
    uses = [{"type": "tool_use", **one} for one in tool_calls]
    return {"role": "assistant", "content": [*thinking_blocks, *text, *uses]}


def append_tool_results(transport: str, results: list[Json], messages: list[Json]) -> None:
    if transport == "openai":
        messages += [
            {"role": "tool", "tool_call_id": one["tool_id"], "content": one["result"]}
            for one in results
        ]
        return
    blocks = [
        {"type": "tool_result", "tool_use_id": one["tool_id"], "content": one["result"]}
        for one in results
    ]
    messages.append({"role": "user", "content": blocks})
