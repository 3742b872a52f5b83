"""Honcho's own objects as policies."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from honcho_fallback import FallbackConfig, FallbackConfigError, FallbackPolicy, Target
from honcho_fallback_honcho._keys import api_key
from honcho_fallback_honcho._model_settings import read_parameters
from honcho_fallback_honcho._slots import DEFAULT_TIMEOUT, TRANSPORTS, Endpoint
from honcho_fallback_honcho._targets import make_target, with_own_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from honcho_fallback import FallbackObserver

# What Honcho raises for an answer that it cannot use, so that its fallback engages: known by name,
# as nothing of Honcho is imported. In provider_errors their texts would be read, which quote the
# answer: a filter's word would end the call. A settings object that is wrong is Honcho's own bug.
_JUNK = {"kind": "malformed_response", "source": "Honcho could not use the answer"}
_DEFAULT = FallbackConfig.honcho(
    rules=[
        {
            **_JUNK,
            "error": ["StructuredOutputError", "LLMError", "pydantic_core.ValidationError"],
            "unless": "for ModelConfig",
        },
        # Its backends take the first of what may be None or empty: an answer without a choice.
        {**_JUNK, "error": "TypeError", "text": "'NoneType' object is not subscriptable"},
        {**_JUNK, "error": "IndexError", "text": "list index out of range"},
    ]
)


def policy_from(  # noqa: PLR0913 # as Honcho's own call names them
    model_config: Any,
    *,
    agent: str = "unknown",
    retry_attempts: int = 3,
    enable_retry: bool = True,
    config: FallbackConfig | None = None,
    observers: Iterable[FallbackObserver] = (),
) -> FallbackPolicy:
    """Make a policy from Honcho's own ``ModelConfig`` or ``ConfiguredModelSettings``.

    The object and its ``fallback`` are read by attribute, and each is the ``client`` of its
    target: what executes a call takes it from ``attempt.target.client``. It costs a tenth of a
    millisecond, so that it may be made for each call; targets that are equal share a cooldown.

    Args:
        model_config: An object with ``model`` and ``transport``, and a ``fallback`` or None.
        agent: A label for logs and records.
        retry_attempts: Requests per call, all targets together; the first is the primary's.
        enable_retry: Whether anybody is asked after a failure.
        config: Options; default ``FallbackConfig.honcho()``. Without a timeout of its own it
            takes the longest of ``provider_params["timeout"]``, 180 s by default. After its own
            rules, Honcho's errors for an answer that it cannot use are ``malformed_response``.
        observers: Who hears of the calls.

    Raises:
        FallbackConfigError: The object has no model or an unknown transport, or an option is out
            of range.
    """
    targets: list[Target] = []
    while model_config is not None:
        targets.append(_target_from(model_config, targets))
        model_config = getattr(model_config, "fallback", None)
    if not targets:
        fix = "pass Honcho's ModelConfig or ConfiguredModelSettings"
        raise FallbackConfigError.about("model_config", "got None", fix)
    config = _DEFAULT if config is None else config.replace(rules=[*config.rules, *_DEFAULT.rules])
    if not enable_retry or retry_attempts == 1:
        # One request is the primary's, and its own error comes out.
        config = config.replace(max_attempts=1, must_not_degrade=True, on_exhausted="last")
    elif retry_attempts != config.max_attempts:
        config = config.replace(max_attempts=retry_attempts)
    longest = max(_timeout_from(target.client) for target in targets)
    return policy_of(targets, config, agent, observers, longest)


def _target_from(node: Any, before: list[Target]) -> Target:
    model, transport = getattr(node, "model", None), getattr(node, "transport", None)
    if not isinstance(model, str) or transport not in TRANSPORTS:
        problem = f"a {type(node).__name__} with transport {transport!r} and model {model!r}"
        fix = f"name a model and one of {', '.join(TRANSPORTS)}"
        raise FallbackConfigError.about("model_config", problem, fix)
    where = _overrides_of(node)
    key, variable = getattr(where, "api_key", None), getattr(where, "api_key_env", None)
    if key is None and variable:
        key = os.environ.get(variable)
    credential = api_key(key, f"the key of {model}") if key else None
    endpoint = Endpoint(transport, getattr(where, "base_url", None) or "")
    params = read_parameters(node)
    if more := getattr(where, "provider_params", None):
        params["provider_params"] = more
    target = make_target(model, endpoint, credential, params, client=node)
    return with_own_name(target, endpoint.host, before)


def _overrides_of(node: Any) -> Any:
    """Return who has key and address: the overrides of ConfiguredModelSettings, or ModelConfig."""
    return getattr(node, "overrides", None) or node


def _timeout_from(node: Any) -> float:
    params: Mapping[str, Any] = getattr(_overrides_of(node), "provider_params", None) or {}
    return float(params.get("timeout") or DEFAULT_TIMEOUT)


def policy_of(
    chain: Iterable[Target],
    config: FallbackConfig,
    agent: str,
    observers: Iterable[FallbackObserver],
    longest: float,
) -> FallbackPolicy:
    """Make a policy; options without a timeout of their own take the longest of the targets'."""
    # Each target's client has a timeout of its own; the attempt's must not cut the longest short.
    if "timeout" not in config.model_fields_set and config.timeout != longest:
        config = config.replace(timeout=longest)
    return FallbackPolicy(chain, config, agent=agent, observers=observers, only_models=True)
