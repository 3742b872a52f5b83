"""The strategy: a Router's ranked groups are chains, where nothing is wrong with them."""

from __future__ import annotations

import logging
import weakref
from inspect import iscoroutinefunction
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

from honcho_fallback import FallbackConfig, FallbackConfigError, check_observers
from honcho_fallback_litellm._endpoints import Endpoints
from honcho_fallback_litellm._groups import (
    RANK,
    Chains,
    home_of,
    label_of,
    misplaced_rank,
    name_of,
    ordered,
    spelling_of,
)
from honcho_fallback_litellm._router import deployments_of, groups_of, setting
from honcho_fallback_litellm._warm import check_release, warm_up

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from honcho_fallback import FallbackObserver

logger = logging.getLogger("honcho_fallback")


class Registration(NamedTuple):
    """Hold what became of a Router's groups; nothing secret, neither key nor address.

    Args:
        chains: The models of each chain by its group, as LiteLLM spells them, the primary first.
        problems: What is wrong with each group that should be a chain, and what to do.
        others: How many groups stay LiteLLM's, those with a problem included.
    """

    chains: dict[str, list[str]]
    problems: dict[str, str]
    others: int

    def __str__(self) -> str:
        chains = [
            f"chain {group}: {' -> '.join(models)}{' (no fallback)' * (len(models) == 1)}"
            for group, models in self.chains.items()
        ]
        others = f"{self.others} ({len(self.problems)} for a mistake)"
        return f"active: {'; '.join(chains)}; groups that stay LiteLLM's: {others}"


class FallbackRoutingStrategy:
    """Make a model group whose deployments have a ``fallback_rank`` a chain.

    Args:
        config: The policy's options; those that LiteLLM leaves no room for are refused.
        observers: Objects that receive each call's events, beside those of ``set_observers``.
        respect_cooldown: Whether a deployment that LiteLLM cools down is passed over. By default
            it is, unless the config has a ``cooldown`` of its own; False without one starts every
            call on the primary.

    Raises:
        FallbackConfigError: An option is one that cannot work here.
    """

    def __init__(
        self,
        config: FallbackConfig | None = None,
        *,
        observers: Iterable[FallbackObserver] = (),
        respect_cooldown: bool | None = None,
    ) -> None:
        config = _checked(FallbackConfig() if config is None else config)
        if respect_cooldown is None:
            respect_cooldown = config.cooldown is None
        self._chains = Chains(
            config, check_observers(observers), respects_cooldown=respect_cooldown
        )
        self._router: Callable[[], Any] = lambda: None
        self.registration: Registration | None = None

    def register(self, router: Any, *, warm: bool = True) -> FallbackRoutingStrategy:
        """Take over the ranked model groups of a Router; everything else stays LiteLLM's.

        Args:
            router: A ``litellm.Router``; held weakly.
            warm: Whether to load what LiteLLM imports at the first failure (0.3 s).

        Returns:
            The strategy itself.

        Raises:
            FallbackConfigError: No model group is a chain, or every one that has a rank has a
                mistake in it; the message has all of them. Where one is left, the others are
                logged and stay LiteLLM's. Or it is no Router, or this LiteLLM is none that works.
        """
        if isinstance(router, type) or not hasattr(router, "acompletion"):
            problem = f"got a {type(router).__name__}"
            raise FallbackConfigError.about("router", problem, "pass a litellm.Router")
        registered = self._router()
        if registered is not None and registered is not router:
            raise FallbackConfigError.about(
                "router", "this strategy serves another Router", "make a strategy for each Router"
            )
        check_release()
        # Where labels are required and no group is a chain nobody without them may be asked.
        made = None if self._chains.config.require else _registered(router, self._chains)
        if registered is None:
            Endpoints(router, self._chains).install()
            self._router = weakref.ref(router)
        self.registration = made or _registered(router, self._chains)
        logger.info("%s", self.registration)
        if warm:
            warm_up(chain.from_iterable(self.registration.chains.values()))
        return self

    def is_registered(self, router: Any) -> bool:
        """Tell whether this strategy chooses for a Router."""
        return router is not None and self.registration is not None and self._router() is router


def _checked(config: FallbackConfig) -> FallbackConfig:
    """Return the options as they hold here; refuse those that LiteLLM leaves no room for."""
    if not isinstance(config, FallbackConfig):  # pyright: ignore[reportUnnecessaryIsInstance] # users without a type checker
        problem = f"got a {type(config).__name__}"
        raise FallbackConfigError.about("config", problem, "pass a FallbackConfig")
    if "connect_timeout" in config.model_fields_set:
        fix = "LiteLLM has one timeout for an attempt; set timeout instead"
        raise FallbackConfigError.about("connect_timeout", "it cannot work here", fix)
    if "on_exhausted" in config.model_fields_set and config.on_exhausted != "last":
        fix = "leave it out: the last error comes out, with the record attached"
        raise FallbackConfigError.about("on_exhausted", "it cannot work here", fix)
    if iscoroutinefunction(config.validate_answer):
        fix = "pass a plain function: the Router's sync methods cannot await it"
        raise FallbackConfigError.about("validate", "it is async", fix)
    if config.reset == "turn":  # as of FallbackConfig.resilient()
        logger.info('reset="iteration" in place of "turn": LiteLLM\'s calls know no turns')
        config = config.replace(reset="iteration")
    return config.replace(on_exhausted="last")


def _registered(router: Any, chains: Chains) -> Registration:
    """Check every group of a Router as requests see it, and log what is to be mended.

    A team's is apart, an alias is what it stands for.

    Raises:
        FallbackConfigError: No chain is left.
    """
    models: dict[str, list[str]] = {}
    problems: dict[str, str] = {}
    hints: list[str] = []
    aliases = setting(router, "model_group_alias") or {}
    rows = groups_of(router)
    homes = dict.fromkeys(home_of(one) for one in rows if one["model_name"] not in aliases)
    for group, team in homes:
        request = {"metadata": {"user_api_key_team_id": team}}
        deployments = deployments_of(router, group, request)
        label, made = label_of(group, deployments), chains.check(group, deployments)
        if isinstance(made, str):
            problems[label] = made
        elif made is not None:
            models[label] = [spelling_of(one) for one in ordered(deployments)]
        else:
            hints += [
                f"{name_of(one)} in group {label} has no {RANK}; {hint}"
                for one in deployments
                if (hint := misplaced_rank(one))
            ]
    if not models:
        lines = [f"group {label}: {problem}" for label, problem in problems.items()] + hints
        fix = f"give the deployments of a model group model_info: {{{RANK}: 0}}, 1, and so on"
        raise FallbackConfigError("\n".join(["this Router has no chain", *(lines or [fix])]))
    for hint in hints:
        logger.warning("%s", hint)
    return Registration(models, problems, len(homes) - len(models))
