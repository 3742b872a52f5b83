"""Honcho's settings as a LiteLLM Router: one ranked model group for each agent."""

# LiteLLM's objects and dicts have whatever shape they have; what comes out of here is typed.
# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING, Any, Unpack

from honcho_fallback import CredentialError, FallbackConfigError
from honcho_fallback_honcho._parameters import known_to, needs_completion_tokens
from honcho_fallback_honcho._policies import logger, plan_agents
from honcho_fallback_litellm import FallbackRoutingStrategy

# isort: split
import litellm  # after the adapter, which names the extra where LiteLLM is missing

if TYPE_CHECKING:
    from collections.abc import Mapping

    from honcho_fallback import Credential
    from honcho_fallback_honcho._chain import PlannedTarget
    from honcho_fallback_honcho._policies import LoadOptions

_NAMES = {"thinking_effort": "reasoning_effort", "stop_sequences": "stop"}
_LENGTHS = ("max_tokens", "max_completion_tokens")
_SHORT_TTL_SECONDS = 300  # Anthropic keeps a prefix this long, or an hour
_HAS_VERSION = re.compile(r"/v\d\w*/?$")


def load_router(
    source: Mapping[str, str] | None = None, **options: Unpack[LoadOptions]
) -> litellm.Router:
    """Read Honcho's own names and return a Router with a model group for each agent.

    A group is called after its agent (``deriver``, ``dialectic.low``); its deployments are ranked
    as the agent's chain is, and a record calls them ``agent/transport/model``. A target without a
    key is left out with a warning: LiteLLM would send the request all the same.

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
    deployments: list[dict[str, Any]] = []
    credentials: dict[str, Credential] = {}
    for plan in plans:
        agent, chain = plan.agent.slot.name, plan.agent.chain
        usable = [planned for planned in chain if _has_key(agent, planned)]
        if not usable:
            logger.warning("%s: no target has a key, so there is no model group for it", agent)
        for rank, planned in enumerate(usable):
            name = f"{agent}/{planned.target.name}"
            info = {"id": name, "fallback_rank": rank}
            if planned.key == "OAuth" and planned.target.credential is not None:
                credentials[name] = planned.target.credential
            deployments.append(
                {"model_name": agent, "litellm_params": _params(planned), "model_info": info}
            )
    if not deployments:
        fix = "set LLM_OPENAI_API_KEY or the key of another transport"
        raise FallbackConfigError.about("load_router", "no agent has a target with a key", fix)
    # A strategy has one config: the longest timeout cuts no agent's target short, since each
    # deployment has its own.
    config = max((plan.config for plan in plans), key=lambda config: config.timeout or 0)
    strategy = _HonchoStrategy(config, credentials, plans[0].observers)
    # Without LiteLLM's cooldowns every call begins at the primary, as Honcho's own calls do.
    router = litellm.Router(model_list=deployments, num_retries=0, disable_cooldowns=True)
    strategy.register(router)
    return router


class _HonchoStrategy(FallbackRoutingStrategy):
    """Choose as the policy says, and complete what is chosen with what only the call knows."""

    def __init__(self, config: Any, credentials: Mapping[str, Credential], observers: Any) -> None:
        super().__init__(config, observers=observers)
        self._credentials = credentials

    def get_available_deployment(self, *args: Any, **kwargs: Any) -> Any:
        return self._completed(super().get_available_deployment(*args, **kwargs), kwargs)

    async def async_get_available_deployment(self, *args: Any, **kwargs: Any) -> Any:
        deployment = await super().async_get_available_deployment(*args, **kwargs)
        if deployment["model_info"]["id"] in self._credentials:  # may fetch a token
            return await asyncio.to_thread(self._completed, deployment, kwargs)
        return self._completed(deployment, kwargs)

    def _completed(self, deployment: dict[str, Any], kwargs: dict[str, Any]) -> dict[str, Any]:
        params = dict(deployment["litellm_params"])
        credential = self._credentials.get(deployment["model_info"]["id"])
        if credential is not None:
            params["api_key"] = _key_of(credential)
        request = kwargs.get("request_kwargs") or {}
        # HON-012: the call's own limit counts, under whichever name; both at once are refused.
        limits = [limit for name in _LENGTHS if (limit := request.pop(name, None)) is not None]
        for name in _LENGTHS if limits else ():
            if name in params:
                params[name] = limits[0]
        return {**deployment, "litellm_params": params}


def _key_of(credential: Credential) -> str:
    try:
        return str(credential.get())
    except CredentialError:
        credential.refresh()
        return str(credential.get())


def _has_key(agent: str, planned: PlannedTarget) -> bool:
    if planned.key == "missing":
        message = "%s: %s is left out, it has no key; set %s__OVERRIDES__API_KEY"
        logger.warning(message, agent, planned.target.name, planned.env)
    return planned.key != "missing"


def _params(planned: PlannedTarget) -> dict[str, Any]:
    """Return a target as LiteLLM's parameters."""
    target, endpoint = planned.target, planned.endpoint
    provider, base_url = endpoint.wire, endpoint.base_url.rstrip("/")
    if provider == "gemini" and not _HAS_VERSION.search(base_url):
        base_url += "/v1beta"
    fingerprint = getattr(target.credential, "fingerprint", None)
    is_fixed = target.credential is not None and planned.key != "OAuth"
    params: dict[str, Any] = {
        "model": f"{provider}/{target.model}",
        "api_base": base_url,
        # Never empty: LiteLLM would take OPENAI_API_KEY or its like, whatever the host.
        "api_key": target.credential.get() if is_fixed else fingerprint,
        "timeout": endpoint.timeout,
        # A call's own parameters go to every target; what its provider lacks is left out.
        "drop_params": True,
    }
    if endpoint.extra_headers:
        params["extra_headers"] = dict(endpoint.extra_headers)
    if provider != "anthropic":
        params["extra_body"] = dict(endpoint.extra_body)
    else:  # LiteLLM would send a field of that name; what it does not know it puts into the body
        params |= endpoint.extra_body
        params["allowed_openai_params"] = [*endpoint.extra_body, "thinking"]
    known, missing = known_to(provider, endpoint.transport, target.params)
    for name, value in known.items():
        spelled = _spelled(name, value, planned)
        if spelled is not None and all(_passes(params, *one) for one in spelled.items()):
            params |= spelled
        else:
            missing.append(name)
    if endpoint.extra_query:  # LiteLLM would put it into the body
        missing.append("overrides__provider_params__extra_query")
    for name in missing:
        transport = endpoint.transport
        logger.debug("%s__%s: %s has no such parameter", planned.env, name.upper(), transport)
    return params


def _spelled(name: str, value: Any, planned: PlannedTarget) -> dict[str, Any] | None:
    """Return a parameter as LiteLLM takes it, or None where it has no such thing."""
    if name == "max_output_tokens":
        is_new = needs_completion_tokens(planned.target.model, planned.endpoint)
        return {_LENGTHS[is_new]: value}
    if name == "thinking_budget_tokens":
        is_off = value == 0 and planned.endpoint.wire == "anthropic"
        budget = {"type": "enabled", "budget_tokens": value}
        return {"thinking": {"type": "disabled"} if is_off else budget}
    if name == "cache_policy":
        ttl = "1h" if (value["ttl_seconds"] or 0) > _SHORT_TTL_SECONDS else "5m"
        control = {"cache_control": {"type": "ephemeral", "ttl": ttl}}
        return control if value["mode"] == "prefix" else None
    if name == "structured_output_mode":
        return {} if value == "json_schema" else None  # the one that LiteLLM knows
    return {_NAMES.get(name, name): value}


def _passes(params: Mapping[str, Any], name: str, value: Any) -> bool:
    """Tell whether LiteLLM passes a parameter on, where it neither refuses nor drops it."""
    provider, _, model = params["model"].partition("/")
    plain = {"model": model, "custom_llm_provider": provider, "drop_params": True}
    plain["allowed_openai_params"] = params.get("allowed_openai_params")
    try:
        mapped = litellm.get_optional_params(**plain, **{name: value})
    except litellm.BadRequestError:
        return False
    return bool(mapped != litellm.get_optional_params(**plain))
