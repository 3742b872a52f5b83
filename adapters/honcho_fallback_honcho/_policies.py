"""Honcho's settings, and Honcho's own objects, as policies."""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

from honcho_fallback import (
    FallbackConfig,
    FallbackConfigError,
    FallbackPolicy,
    Target,
    check_observers,
)
from honcho_fallback_honcho._chain import AgentSettings, make_target, read_agent, with_own_name
from honcho_fallback_honcho._endpoint import Endpoint
from honcho_fallback_honcho._keys import api_key
from honcho_fallback_honcho._notices import Notice, find_misnamed, merged, toml_names
from honcho_fallback_honcho._parameters import read_parameters
from honcho_fallback_honcho._slots import DEFAULT_TIMEOUT, SLOTS, TRANSPORTS
from honcho_fallback_honcho._sources import Sources, check_levels, read_sources

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from honcho_fallback import FallbackObserver

logger = logging.getLogger("honcho_fallback.honcho")


@dataclass(frozen=True, slots=True)
class HonchoSettings:
    """Hold all agents' chains, and what is wrong with their configuration.

    Args:
        agents: In the order of Honcho's slots.
        notices: What is wrong, each once.
        sources: What was read.
    """

    agents: tuple[AgentSettings, ...]
    notices: tuple[Notice, ...]
    sources: Sources = field(repr=False)


class LoadOptions(TypedDict, total=False):
    """Name where Honcho's settings are read from, and how strictly.

    Args:
        toml: Path of a ``config.toml``, or its content as a mapping; the weakest of the three.
        env_file: Path of a ``.env`` file; it wins over the variables, as in Honcho.
        strict: Whether to refuse what is otherwise a warning.
        config: Options of all the agents' policies; default ``FallbackConfig.honcho()``. Without
            a timeout of its own it takes LLM_DEFAULT_TIMEOUT.
        observers: The observers of all the agents' calls.
    """

    toml: str | os.PathLike[str] | Mapping[str, Any] | None
    env_file: str | os.PathLike[str] | None
    strict: bool
    config: FallbackConfig | None
    observers: Iterable[FallbackObserver]


def read_settings(
    source: Mapping[str, str] | None = None,
    toml: str | os.PathLike[str] | Mapping[str, Any] | None = None,
    env_file: str | os.PathLike[str] | None = None,
) -> HonchoSettings:
    """Read every agent's chain; return what is wrong as notices instead of logging it."""
    sources = read_sources(source, toml, env_file)
    check_levels(sources)
    names = [*sources.environ, *toml_names(sources.toml)]
    notices = [*find_misnamed(names)]
    agents = tuple(read_agent(slot, sources) for slot in SLOTS)
    for agent in agents:
        notices += agent.notices
    return HonchoSettings(agents, merged(notices), sources)


@dataclass(frozen=True, slots=True)
class AgentPlan:
    """Hold what one agent's policy, chat model or model group is made of.

    Args:
        agent: Its chain.
        config: Its options, with a timeout that fits every target.
        observers: Its observers.
    """

    agent: AgentSettings
    config: FallbackConfig
    observers: tuple[FallbackObserver, ...]


def plan_agents(  # noqa: PLR0913 # LoadOptions, one by one: Python refuses any other
    source: Mapping[str, str] | None,
    *,
    toml: str | os.PathLike[str] | Mapping[str, Any] | None = None,
    env_file: str | os.PathLike[str] | None = None,
    strict: bool = False,
    config: FallbackConfig | None = None,
    observers: Iterable[FallbackObserver] = (),
) -> list[AgentPlan]:
    """Read the settings, log what is wrong with them, and return what each agent is made of."""
    settings = read_settings(source, toml, env_file)
    wrong = [notice for notice in settings.notices if notice.kind != "note"]
    if wrong and strict:
        raise FallbackConfigError("\n".join(map(str, wrong)))
    for notice in wrong:
        agents = f" ({', '.join(notice.agents)})" if notice.agents else ""
        logger.warning("%s%s", notice, agents)
    config = FallbackConfig.honcho() if config is None else config
    observers = check_observers(observers)
    return [
        AgentPlan(agent, _timed(config, (one.endpoint.timeout for one in agent.chain)), observers)
        for agent in settings.agents
    ]


def load_policies(
    source: Mapping[str, str] | None = None, **options: Unpack[LoadOptions]
) -> dict[str, FallbackPolicy]:
    """Read Honcho's own names and return a policy for each of its nine agents.

    The names are those of Honcho's settings module (main, 2026-08-20) and of its pull request
    692; what Honcho would ignore without a word is a warning on logger
    ``honcho_fallback.honcho``. Each target says where it is (``target.client``, an Endpoint),
    what it is asked with (``target.credential.get()``) and how (``target.params``, under Honcho's
    names).

    Args:
        source: Environment variables; default: those of the process at the time of the call.
        **options: Further sources, and what the policies should be: see LoadOptions.

    Returns:
        Policies by ``deriver``, ``dialectic.minimal`` to ``dialectic.max``, ``summary``,
        ``dream.deduction`` and ``dream.induction``.

    Raises:
        FallbackConfigError: A value is not one that could be used, or, with ``strict``, something
            is missing or misnamed.
        ImportError: The extra ``honcho`` is not installed.
    """
    return {
        plan.agent.slot.name: FallbackPolicy(
            [planned.target for planned in plan.agent.chain],
            plan.config,
            agent=plan.agent.slot.name,
            observers=plan.observers,
        )
        for plan in plan_agents(source, **options)
    }


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
            takes the longest of ``provider_params["timeout"]``, 180 s by default.
        observers: Who hears of the calls.

    Raises:
        FallbackConfigError: The object has no model or an unknown transport, or an option is out
            of range.
    """
    nodes: list[Any] = []
    while model_config is not None:
        nodes.append(model_config)
        model_config = getattr(model_config, "fallback", None)
    if not nodes:
        fix = "pass Honcho's ModelConfig or ConfiguredModelSettings"
        raise FallbackConfigError.about("model_config", "got None", fix)
    targets: list[Target] = []
    for node in nodes:
        targets.append(_target_from(node, targets))
    config = FallbackConfig.honcho() if config is None else config
    if not enable_retry or retry_attempts == 1:
        # One request is the primary's, and its own error comes out.
        config = config.replace(max_attempts=1, must_not_degrade=True, on_exhausted="last")
    elif retry_attempts != config.max_attempts:
        config = config.replace(max_attempts=retry_attempts)
    return FallbackPolicy(
        targets, _timed(config, map(_timeout_from, nodes)), agent=agent, observers=observers
    )


def _timed(config: FallbackConfig, timeouts: Iterable[float]) -> FallbackConfig:
    longest = max(timeouts)
    if "timeout" in config.model_fields_set or config.timeout == longest:
        return config
    # Each target's client has a timeout of its own; the attempt's must not cut the longest short.
    return config.replace(timeout=longest)


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
    target = make_target(model, endpoint, credential, read_parameters(node), client=node)
    return with_own_name(target, endpoint.host, before)


def _overrides_of(node: Any) -> Any:
    """Return who has key and address: the overrides of ConfiguredModelSettings, or ModelConfig."""
    return getattr(node, "overrides", None) or node


def _timeout_from(node: Any) -> float:
    params: Mapping[str, Any] = getattr(_overrides_of(node), "provider_params", None) or {}
    return float(params.get("timeout") or DEFAULT_TIMEOUT)
