"""A model's parameters under Honcho's names, and which of them each wire has."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from honcho_fallback_honcho._model_settings import ModelSettings

if TYPE_CHECKING:
    from collections.abc import Mapping

# The attributes of Honcho's ModelConfig, of its fallback and of ConfiguredModelSettings alike.
_ABOUT_THE_TARGET = {"transport", "model", "overrides", "api_key", "base_url", "fallback"}
PARAMETERS = tuple(name for name in ModelSettings.model_fields if name not in _ABOUT_THE_TARGET)
_CACHE = ("mode", "ttl_seconds", "key_version")
# OpenAI caches prefixes by itself; Gemini's cached content is made beforehand, by the caller.
_MISSING = {
    "openai": {"thinking_budget_tokens", "cache_policy"},
    "anthropic": {"frequency_penalty", "presence_penalty", "seed", "structured_output_mode"},
    "gemini": {"structured_output_mode", "cache_policy"},
}


def read_parameters(settings: Any) -> dict[str, Any]:
    """Read the parameters that are set, from our settings or from one of Honcho's own objects."""
    values = {name: getattr(settings, name, None) for name in PARAMETERS}
    policy = values["cache_policy"]
    if policy is not None:
        values["cache_policy"] = None if policy.mode == "none" else _cache_policy(policy)
    return {name: value for name, value in values.items() if value is not None}


def _cache_policy(policy: Any) -> dict[str, Any]:
    return {name: getattr(policy, name, None) for name in _CACHE}


def known_to(wire: str, transport: str, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters that a wire has.

    The provider would refuse the whole request for the others (Honcho's pull request 692: a
    fallback on another transport has parameters of its own).
    """
    missing = set(_MISSING[wire])
    if transport == "openai":
        missing.add("top_k")  # other servers of its wire know it
    if wire == "anthropic" and parameters.get("thinking_effort") == "minimal":
        missing.add("thinking_effort")
    if parameters.get("cache_policy", {}).get("mode") != "prefix":
        missing.add("cache_policy")
    if wire == "gemini" and "thinking_budget_tokens" in parameters:
        missing.add("thinking_effort")  # it takes one of the two
    return {name: value for name, value in parameters.items() if name not in missing}
