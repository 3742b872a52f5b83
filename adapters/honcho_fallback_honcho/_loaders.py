"""Honcho's settings as policies."""

from __future__ import annotations

import logging
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple, TypedDict, Unpack

from honcho_fallback import FallbackConfig, FallbackConfigError, check_observers
from honcho_fallback_honcho._notices import find_misnamed, merged
from honcho_fallback_honcho._policy_from import policy_of
from honcho_fallback_honcho._settings import checked, read_environ, read_file
from honcho_fallback_honcho._slots import SLOTS
from honcho_fallback_honcho._targets import read_chain

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Mapping

    from honcho_fallback import Credential, FallbackObserver, FallbackPolicy, Target
    from honcho_fallback_honcho._notices import Notice
    from honcho_fallback_honcho._settings import Settings, Toml

logger = logging.getLogger("honcho_fallback.honcho")
NO_CREDENTIALS: Mapping[str, Credential] = MappingProxyType({})


class Reading(NamedTuple):
    """Hold all agents' chains, in the order of Honcho's slots, and what is wrong, each once."""

    chains: dict[str, tuple[Target, ...]]
    notices: tuple[Notice, ...]
    settings: Settings  # that they were read from


class LoadOptions(TypedDict, total=False):
    """Name where Honcho's settings are read from, and how strictly.

    Args:
        toml: Path of a ``config.toml``, or its content as a mapping; the weakest of the three.
        env_file: Path of a ``.env`` file; it wins over the variables, as in Honcho.
        strict: Whether to refuse what is otherwise a warning.
        config: Options of all the agents' policies; default ``FallbackConfig.honcho()``. Without
            a timeout of its own it takes LLM_DEFAULT_TIMEOUT.
        observers: The observers of all the agents' calls.
        credentials: What is refreshed, by transport, such as ``{"nous": ...}``: objects with
            ``get`` and ``refresh``, in place of the transport's default key.
    """

    toml: Toml
    env_file: str | os.PathLike[str] | None
    strict: bool
    config: FallbackConfig | None
    observers: Iterable[FallbackObserver]
    credentials: Mapping[str, Credential]


def read_settings(
    source: Mapping[str, str] | None = None,
    toml: Toml = None,
    env_file: str | os.PathLike[str] | None = None,
    credentials: Mapping[str, Credential] = NO_CREDENTIALS,
) -> Reading:
    """Read every agent's chain; return what is wrong as notices instead of logging it."""
    environ, file = read_environ(source, env_file), read_file(toml)
    settings = checked(environ, file, credentials)
    notices = [*find_misnamed((*environ, *file))]
    chains: dict[str, tuple[Target, ...]] = {}
    for agent in SLOTS:
        chains[agent], wrong = read_chain(agent, settings)
        notices += wrong
    return Reading(chains, merged(notices), settings)


def _load(  # noqa: PLR0913 # LoadOptions, one by one: Python refuses any other
    source: Mapping[str, str] | None,
    *,
    toml: Toml = None,
    env_file: str | os.PathLike[str] | None = None,
    strict: bool = False,
    config: FallbackConfig | None = None,
    observers: Iterable[FallbackObserver] = (),
    credentials: Mapping[str, Credential] = NO_CREDENTIALS,
) -> dict[str, FallbackPolicy]:
    chains, notices, *_ = read_settings(source, toml, env_file, credentials)
    if notices and strict:
        raise FallbackConfigError("\n".join(map(str, notices)))
    for notice in notices:
        agents = f" ({', '.join(notice.agents)})" if notice.agents else ""
        logger.warning("%s%s", notice, agents)
    config = FallbackConfig.honcho() if config is None else config
    observers = check_observers(observers)
    return {
        agent: policy_of(chain, config, agent, observers, max(one.client.timeout for one in chain))
        for agent, chain in chains.items()
    }


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
    return _load(source, **options)
