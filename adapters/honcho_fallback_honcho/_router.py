"""Honcho's settings as a LiteLLM Router: one ranked model group for each agent."""

# LiteLLM's objects and dicts have whatever shape they have; what comes out of here is typed.
# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING, Any, Unpack

from honcho_fallback import CredentialError, FallbackConfigError
from honcho_fallback_honcho._keys import NO_KEY
from honcho_fallback_honcho._parameters import (
    anthropic_cache_control,
    anthropic_thinking,
    known_to,
    needs_completion_tokens,
)
from honcho_fallback_honcho._policies import logger, plan_agents
from honcho_fallback_litellm import FallbackRoutingStrategy

# isort: split
# After the adapter, which names the extra where LiteLLM is missing.
from litellm.exceptions import BadRequestError
from litellm.router import Router
from litellm.utils import get_optional_params

if TYPE_CHECKING:
    from collections.abc import Mapping

    from honcho_fallback import Credential
    from honcho_fallback_honcho._chain import PlannedTarget
    from honcho_fallback_honcho._policies import LoadOptions

_NAMES = {"thinking_effort": "reasoning_effort", "stop_sequences": "stop"}
_LENGTHS = ("max_tokens", "max_completion_tokens")
_HAS_VERSION = re.compile(r"/v\d\w*/?$")


def load_router(source: Mapping[str, str] | None = None, **options: Unpack[LoadOptions]) -> Router:
    """Read Honcho's own names and return a Router with a model group for each agent.

    A group is called after its agent (``deriver``, ``dialectic.low``); its deployments are ranked
    as the agent's chain is, and a record calls them ``agent/transport/model``. A target without a
    key is left out with a warning: LiteLLM would send the request all the same. A key that changes
    (OAuth) is taken anew for each request.

    Args:
        source: Environment variables; default: those of the process at the time of the call.
        **options: As for ``load_policies``: ``toml``, ``env_file``, ``strict``, ``config`` and
            ``observers``. LiteLLM leaves no room for some options of ``config``; they are refused.

    Returns:
        The Router; what LiteLLM would repeat by itself is off.

    Raises:
        FallbackConfigError: A value is not one that could be used, no target has a key, or, with
            ``strict``, something is missing or misnamed.
        ImportError: The extra ``honcho`` or ``litellm`` is not installed.
    """
    plans = plan_agents(source, **options)
    # A strategy has one config: with the longest timeout, and each deployment with its own.
    config = max((plan.config for plan in plans), key=lambda config: config.timeout or 0)
    strategy = _HonchoStrategy(config, observers=plans[0].observers)
    models: list[dict[str, Any]] = []
    for plan in plans:
        agent = plan.agent.slot.name
        usable = [planned for planned in plan.agent.chain if planned.key != "missing"]
        for planned in plan.agent.chain:
            if planned not in usable:
                message = "%s: %s is left out, it has no key; set %s__OVERRIDES__API_KEY"
                logger.warning(message, agent, planned.target.name, planned.env)
        if not usable:
            logger.warning("%s: no target has a key, so there is no model group", agent)
        for rank, planned in enumerate(usable):
            name = f"{agent}/{planned.target.name}"
            if planned.key == "OAuth" and planned.target.credential is not None:
                strategy.credentials[name] = planned.target.credential
            info = {"id": name, "fallback_rank": rank}
            params = _params(planned)
            models.append({"model_name": agent, "litellm_params": params, "model_info": info})
    if not models:
        fix = "set LLM_OPENAI_API_KEY, or the key of another transport"
        raise FallbackConfigError.about("load_router", "no agent has a target with a key", fix)
    # Without LiteLLM's cooldowns every call begins at the primary, as Honcho's own calls do.
    router = Router(model_list=models, num_retries=0, disable_cooldowns=True)
    strategy.register(router)
    return router


class _HonchoStrategy(FallbackRoutingStrategy):
    """Choose as the policy says, and complete the choice with what only the call knows."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.credentials: dict[str, Credential] = {}  # by deployment, where the key changes

    def get_available_deployment(self, *args: Any, **kwargs: Any) -> Any:
        return self._completed(super().get_available_deployment(*args, **kwargs), kwargs)

    async def async_get_available_deployment(self, *args: Any, **kwargs: Any) -> Any:
        deployment = await super().async_get_available_deployment(*args, **kwargs)
        if deployment["model_info"]["id"] not in self.credentials:
            return self._completed(deployment, kwargs)
        return await asyncio.to_thread(self._completed, deployment, kwargs)  # may fetch a token

    def _completed(self, deployment: dict[str, Any], kwargs: dict[str, Any]) -> dict[str, Any]:
        params, request = dict(deployment["litellm_params"]), kwargs.get("request_kwargs") or {}
        credential = self.credentials.get(deployment["model_info"]["id"])
        if credential is not None:
            try:
                params["api_key"] = credential.get()
            except CredentialError:
                credential.refresh()
                params["api_key"] = credential.get()
        # The call's own limit counts, as in Honcho; a provider refuses one under both names.
        limits = [request.pop(name, None) for name in _LENGTHS]
        for name in params.keys() & {*_LENGTHS}:
            params[name] = limits[0] or limits[1] or params[name]
        return {**deployment, "litellm_params": params}


def _params(planned: PlannedTarget) -> dict[str, Any]:
    """Return a target as LiteLLM's parameters."""
    target, endpoint = planned.target, planned.endpoint
    provider, base_url = endpoint.wire, endpoint.base_url.rstrip("/")
    if provider == "gemini" and not _HAS_VERSION.search(base_url):
        base_url += "/v1beta"
    credential = None if planned.key == "OAuth" else target.credential
    # LiteLLM puts a field that it does not know into Anthropic's body, and extra_body as well.
    params: dict[str, Any] = {} if provider != "anthropic" else {**endpoint.extra_body}
    params |= {
        "model": f"{provider}/{target.model}",
        "api_base": base_url,
        # Never empty: LiteLLM would take OPENAI_API_KEY or its like, whatever the host.
        "api_key": NO_KEY if credential is None else credential.get(),
        "timeout": endpoint.timeout,
        "extra_headers": {**endpoint.extra_headers},
        "allowed_openai_params": [*params, "thinking"] if provider == "anthropic" else [],
        # A call's own parameters go to every target; what its provider lacks is left out.
        "drop_params": True,
    }
    if provider != "anthropic":
        params["extra_body"] = {**endpoint.extra_body}
    if endpoint.extra_query:
        name = f"{planned.env}__OVERRIDES__PROVIDER_PARAMS__EXTRA_QUERY"
        logger.warning("%s: LiteLLM sends no query; use load_chat_models", name)
    known, missing = known_to(provider, endpoint.transport, target.params)
    for name, value in known.items():
        spelled = _spelled(name, value, planned)
        if spelled is not None and all(_passes(params, *one) for one in spelled.items()):
            params |= spelled
        else:
            missing.append(name)
    for name in missing:
        transport = endpoint.transport
        logger.debug("%s__%s: %s has no such parameter", planned.env, name.upper(), transport)
    return params


def _spelled(name: str, value: Any, planned: PlannedTarget) -> dict[str, Any] | None:
    """Return a parameter as LiteLLM takes it, or None where it has no such thing."""
    if name == "max_output_tokens":
        is_new = needs_completion_tokens(planned.target.model, planned.endpoint)
        return {"max_completion_tokens" if is_new else "max_tokens": value}
    if name == "thinking_budget_tokens":
        is_gemini = planned.endpoint.wire == "gemini"
        enabled = {"type": "enabled", "budget_tokens": value}  # which may be 0
        return {"thinking": enabled if is_gemini else anthropic_thinking(value)}
    if name == "cache_policy":
        return {"cache_control": anthropic_cache_control(value)}
    if name == "structured_output_mode":
        return {} if value == "json_schema" else None  # the one that LiteLLM knows
    return {_NAMES.get(name, name): value}


def _passes(params: Mapping[str, Any], name: str, value: Any) -> bool:
    """Tell whether LiteLLM passes a parameter on, where it neither refuses nor drops it."""
    provider, _, model = params["model"].partition("/")
    plain: dict[str, Any] = {
        "model": model,
        "custom_llm_provider": provider,
        "drop_params": True,
        "allowed_openai_params": params["allowed_openai_params"],
    }
    try:
        mapped = get_optional_params(**plain, **{name: value})
    except (BadRequestError, ValueError):  # the second from older versions
        return False
    return bool(mapped != get_optional_params(**plain))
