"""Honcho's settings as policies."""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from honcho_fallback import FallbackConfig, FallbackConfigError, FallbackPolicy
from honcho_fallback.settings._chain import PlannedTarget, build_chain
from honcho_fallback.settings._names import find_misnamed, nearest, toml_names
from honcho_fallback.settings._notices import Notice, merged
from honcho_fallback.settings._slots import SLOTS, Slot
from honcho_fallback.settings._sources import Sources, check_levels, read_sources

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from honcho_fallback import FallbackObserver

_logger = logging.getLogger("honcho_fallback.settings")


@dataclass(frozen=True, slots=True)
class AgentSettings:
    """Hold one agent's chain.

    Args:
        slot: Where it is configured.
        chain: The targets in order, the primary first.
    """

    slot: Slot
    chain: tuple[PlannedTarget, ...]


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


def read_settings(
    environ: Mapping[str, str], toml: str | os.PathLike[str] | Mapping[str, Any] | None = None
) -> HonchoSettings:
    """Read every agent's chain; return what is wrong as notices instead of logging it."""
    sources = read_sources(environ, toml)
    check_levels(sources)
    names = [*sources.environ, *toml_names(sources.toml)]
    notices = [*find_misnamed(names), *_unknown_in_levels(sources)]
    agents: list[AgentSettings] = []
    for slot in SLOTS:
        chain, problems = build_chain(slot, sources)
        agents.append(AgentSettings(slot, chain))
        notices += problems
    return HonchoSettings(tuple(agents), merged(notices), sources)


def load_policies(  # two sources, and what the policies should be
    environ: Mapping[str, str] = os.environ,
    toml: str | os.PathLike[str] | Mapping[str, Any] | None = None,
    strict: bool = False,  # noqa: FBT001, FBT002 # a fixed signature
    *,
    config: FallbackConfig | None = None,
    observers: Iterable[FallbackObserver] = (),
) -> dict[str, FallbackPolicy]:
    """Read Honcho's own names and return a policy for each of its nine agents.

    The names are those of Honcho's settings module (main, 2026-08-20) and of its pull request
    692; what Honcho would ignore without a word is a warning on logger
    ``honcho_fallback.settings``.

    Args:
        environ: Environment variables; they win over the file, key by key.
        toml: Path of a ``config.toml``, or its content as a mapping.
        strict: Whether to refuse what is otherwise a warning.
        config: Options of all the policies; default ``FallbackConfig.honcho()``. Without a
            timeout of its own it takes LLM_DEFAULT_TIMEOUT.
        observers: The observers of all the policies.

    Returns:
        Policies by ``deriver``, ``dialectic.minimal`` to ``dialectic.max``, ``summary``,
        ``dream.deduction`` and ``dream.induction``.

    Raises:
        FallbackConfigError: A value is not one that could be used, or, with ``strict``, something
            is missing or misnamed.
        ImportError: The extra ``settings`` is not installed.
    """
    settings = read_settings(environ, toml)
    wrong = [notice for notice in settings.notices if notice.kind != "note"]
    if strict and wrong:
        raise FallbackConfigError("\n".join(map(str, wrong)))
    for notice in wrong:
        agents = f" ({', '.join(notice.agents)})" if notice.agents else ""
        _logger.warning("%s%s", notice, agents)
    config = FallbackConfig.honcho() if config is None else config
    observers = tuple(observers)
    return {
        agent.slot.name: FallbackPolicy(
            [planned.target for planned in agent.chain],
            _timed(config, agent),
            agent=agent.slot.name,
            observers=observers,
        )
        for agent in settings.agents
    }


def _timed(config: FallbackConfig, agent: AgentSettings) -> FallbackConfig:
    if "timeout" in config.model_fields_set:
        return config
    # Each target's client has a timeout of its own; the attempt's must not cut the longest short.
    return config.replace(timeout=max(planned.endpoint.timeout for planned in agent.chain))


def _unknown_in_levels(sources: Sources) -> Iterator[Notice]:
    for name, level in sources.tree.dialectic_levels.items():
        for key in level.unknown:
            # A level has other settings, which are not ours.
            if nearest(key, ["model_config"]) is not None:
                wrong = f"DIALECTIC_LEVELS__{name}__{key}".upper()
                fix = f"the name is DIALECTIC_LEVELS__{name}__MODEL_CONFIG"
                yield Notice("ignored", wrong, "Honcho ignores it", fix, breaks_fallback=True)
