"""From Honcho's names for a model's parameters to those of each wire."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from honcho_fallback.settings._endpoint import Endpoint
    from honcho_fallback.settings._models import CachePolicy, ModelSettings

# Anthropic's SDK hands some of these on only in the body (since its version 2).
_PLAIN: Mapping[str, tuple[str, ...]] = {
    "openai": ("temperature", "top_p", "frequency_penalty", "presence_penalty", "seed"),
    "anthropic": (),
    "gemini": (
        "temperature",
        "top_p",
        "top_k",
        "frequency_penalty",
        "presence_penalty",
        "seed",
    ),
}
_IN_BODY: Mapping[str, tuple[str, ...]] = {
    "openai": (),
    "anthropic": ("temperature", "top_p", "top_k"),
    "gemini": (),
}
_STOP = {"openai": "stop", "anthropic": "stop_sequences", "gemini": "stop_sequences"}
_ANTHROPIC_EFFORTS = frozenset({"low", "medium", "high", "xhigh", "max"})
_GEMINI_LEVELS = {
    "minimal": "minimal",
    "low": "low",
    "medium": "medium",
    "high": "high",
    "xhigh": "high",
    "max": "high",
}
_NAMES = (
    "temperature",
    "top_p",
    "top_k",
    "frequency_penalty",
    "presence_penalty",
    "seed",
)
_SHORT_TTL = 300  # seconds; Anthropic keeps a prefix this long, or an hour


class Rendered(NamedTuple):
    """Hold a target's parameters as its wire wants them.

    Args:
        params: Keywords for the SDK's call.
        dropped: Honcho's names that this wire does not have.
    """

    params: dict[str, Any]
    dropped: tuple[str, ...]


def render(settings: ModelSettings, endpoint: Endpoint, default_max_tokens: int) -> Rendered:
    """Turn a model's parameters into keywords for the SDK's call."""
    wire = endpoint.wire
    values: dict[str, Any] = {name: getattr(settings, name) for name in _NAMES}
    values = {name: value for name, value in values.items() if value is not None}
    params = {name: values.pop(name) for name in _PLAIN[wire] if name in values}
    in_body = {name: values.pop(name) for name in _IN_BODY[wire] if name in values}
    if wire == "openai" and endpoint.transport != "openai" and "top_k" in values:
        in_body["top_k"] = values.pop("top_k")  # local servers know it
    if settings.stop_sequences:
        params[_STOP[wire]] = list(settings.stop_sequences)
    thinking, unknown = thinking_params(
        wire, settings.thinking_effort, settings.thinking_budget_tokens
    )
    params |= thinking
    # Where there is a budget for thinking, it counts towards the length of the answer.
    budget = 0 if wire == "openai" else settings.thinking_budget_tokens or 0
    params[endpoint.max_tokens_name] = settings.max_output_tokens or default_max_tokens + budget
    dropped = [*values, *unknown]
    if settings.cache_policy is not None and settings.cache_policy.mode != "none":
        cached = _cache(wire, settings.cache_policy)
        params |= cached
        if not cached:
            dropped.append("cache_policy")
    params |= _extras(wire, settings, in_body)
    return Rendered(params, tuple(dropped))


def thinking_params(
    wire: str, effort: str | None, budget: int | None
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return the thinking parameters of a wire, and the names that it does not have."""
    return _THINKING[wire](effort, budget)


_Thinking = tuple[dict[str, Any], tuple[str, ...]]


def _openai_thinking(effort: str | None, budget: int | None) -> _Thinking:
    dropped = () if budget is None else ("thinking_budget_tokens",)
    return ({} if effort is None else {"reasoning_effort": effort}), dropped


def _anthropic_thinking(effort: str | None, budget: int | None) -> _Thinking:
    params: dict[str, Any] = {}
    if budget is not None:
        params["thinking"] = (
            {"type": "enabled", "budget_tokens": budget} if budget else {"type": "disabled"}
        )
    elif effort == "none":
        params["thinking"] = {"type": "disabled"}
    if effort in _ANTHROPIC_EFFORTS:
        params["output_config"] = {"effort": effort}
    return params, (("thinking_effort",) if effort == "minimal" else ())


def _gemini_thinking(effort: str | None, budget: int | None) -> _Thinking:
    if budget is not None:  # Gemini takes one of the two
        return {"thinking_config": {"thinking_budget": budget}}, (
            () if effort is None else ("thinking_effort",)
        )
    if effort is None:
        return {}, ()
    if effort == "none":
        return {"thinking_config": {"thinking_budget": 0}}, ()
    return {"thinking_config": {"thinking_level": _GEMINI_LEVELS[effort]}}, ()


_THINKING: Mapping[str, Callable[[str | None, int | None], _Thinking]] = {
    "openai": _openai_thinking,
    "anthropic": _anthropic_thinking,
    "gemini": _gemini_thinking,
}


def _cache(wire: str, policy: CachePolicy) -> dict[str, Any]:
    # OpenAI caches prefixes by itself; Gemini's cached content is made beforehand, by the caller.
    if wire != "anthropic" or policy.mode != "prefix":
        return {}
    long = policy.ttl_seconds is not None and policy.ttl_seconds > _SHORT_TTL
    return {"cache_control": {"type": "ephemeral", "ttl": "1h" if long else "5m"}}


def _extras(wire: str, settings: ModelSettings, in_body: dict[str, Any]) -> dict[str, Any]:
    params = settings.overrides.provider_params
    body = {**in_body, **(params.extra_body or {})}
    extras: dict[str, Any] = {
        "extra_body": body,
        "extra_headers": dict(params.extra_headers or {}),
        "extra_query": dict(params.extra_query or {}),
    }
    if wire == "gemini":
        options = {"extra_body": body, "headers": extras["extra_headers"]}
        options = {name: value for name, value in options.items() if value}
        return {"http_options": options} if options else {}
    return {name: value for name, value in extras.items() if value}
