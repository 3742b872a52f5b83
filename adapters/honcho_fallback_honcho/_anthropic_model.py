"""Chat models of Anthropic's wire."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from langchain_anthropic import ChatAnthropic

from honcho_fallback_honcho._model_plan import DiscreetChatModel

if TYPE_CHECKING:
    from honcho_fallback_honcho._model_plan import ModelPlan

_NAMES = {
    "temperature": "temperature",
    "top_p": "top_p",
    "top_k": "top_k",
    "max_output_tokens": "max_tokens",
    "stop_sequences": "stop_sequences",
}
_SHORT_TTL_SECONDS = 300


class AnthropicChatModel(DiscreetChatModel, ChatAnthropic):
    """Ask Anthropic, or a server of its wire."""


def make_model(plan: ModelPlan) -> AnthropicChatModel:
    """Build a model that takes neither key nor address from the SDK's environment variables."""
    options: dict[str, Any] = {
        "model": plan.name,
        **plan.named(_NAMES),
        **_thinking(plan),
        "anthropic_proxy": None,
        "api_key": plan.key,
        "base_url": plan.endpoint.address,
        "default_headers": plan.headers,
        "max_retries": 0,
        "model_kwargs": _model_kwargs(plan),
        "timeout": plan.endpoint.timeout,
    }
    return AnthropicChatModel(**options)


def _thinking(plan: ModelPlan) -> dict[str, Any]:
    effort = plan.params.get("thinking_effort")
    budget = plan.params.get("thinking_budget_tokens", 0 if effort == "none" else None)
    options: dict[str, Any] = {} if effort in {None, "none"} else {"effort": effort}
    if budget is not None:
        enabled = {"type": "enabled", "budget_tokens": budget}
        options["thinking"] = enabled if budget else {"type": "disabled"}
    return options


def _model_kwargs(plan: ModelPlan) -> dict[str, Any]:
    options: dict[str, Any] = {
        "extra_body": dict(plan.endpoint.extra_body),
        "extra_query": dict(plan.endpoint.extra_query),
    }
    policy = plan.params.get("cache_policy")
    if policy is not None:
        # It keeps a prefix for five minutes or for an hour.
        is_long = (policy["ttl_seconds"] or 0) > _SHORT_TTL_SECONDS
        options["cache_control"] = {"type": "ephemeral", "ttl": "1h" if is_long else "5m"}
    return {name: value for name, value in options.items() if value}
