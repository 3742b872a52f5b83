"""What a Router must and must not have before a strategy takes its ranked groups over."""

from __future__ import annotations

import logging
from collections import Counter
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Any, NamedTuple

from honcho_fallback import FallbackConfig, FallbackConfigError
from honcho_fallback_litellm._groups import (
    RANK,
    Chain,
    configured_id,
    home_of,
    label_of,
    misplaced_rank,
    name_of,
    ordered,
    spelling_of,
)
from honcho_fallback_litellm._router import deployments_of, groups_of, setting

if TYPE_CHECKING:
    from collections.abc import Iterator

    from honcho_fallback_litellm._groups import Chains
    from honcho_fallback_litellm._router import Deployment

logger = logging.getLogger("honcho_fallback")

_REFUSED = {
    "connect_timeout": "LiteLLM has one timeout for an attempt; set timeout instead",
    "on_exhausted": "LiteLLM's callers expect one provider's error; leave it out, the last one "
    "comes out with the record attached",
}
_SHOWN = 10  # chains in the line that says which are active


def check_config(config: FallbackConfig) -> FallbackConfig:
    """Return the options as they hold here; refuse those that LiteLLM leaves no room for."""
    if not isinstance(config, FallbackConfig):  # pyright: ignore[reportUnnecessaryIsInstance] # users without a type checker
        problem = f"got a {type(config).__name__}"
        raise FallbackConfigError.about("config", problem, "pass a FallbackConfig")
    possible = {"on_exhausted": "last"}
    for field in sorted(config.model_fields_set & _REFUSED.keys()):
        value = getattr(config, field)
        if value != possible.get(field):
            raise FallbackConfigError.about(field, f"{value!r} cannot work here", _REFUSED[field])
    if iscoroutinefunction(config.validate_answer):
        fix = "pass a plain function: the Router's sync methods cannot await it"
        raise FallbackConfigError.about("validate", "it is async", fix)
    if config.reset == "turn":  # as of FallbackConfig.resilient()
        logger.info(
            'reset="iteration" in place of %r: LiteLLM\'s calls know no turns', config.reset
        )
        return config.replace(reset="iteration")
    return config


class Registration(NamedTuple):
    """Hold what became of a Router's groups; nothing secret, neither key nor address.

    Args:
        chains: The models of each chain by its group, the primary first.
        problems: What is wrong with each group that should be a chain, and what to do.
        hints: What may be wrong with the others.
        others: How many groups stay LiteLLM's, those with a problem included.
        spellings: Of the chains' models, as LiteLLM spells them.
    """

    chains: dict[str, list[str]]
    problems: dict[str, str]
    hints: list[str]
    others: int
    spellings: frozenset[str]

    def __str__(self) -> str:
        chains = [
            f"chain {group}: {' -> '.join(models)}" + " (no fallback)" * (len(models) == 1)
            for group, models in self.chains.items()
        ]
        more = len(chains) - _SHOWN
        if more > 0:
            chains[_SHOWN:] = [f"and {more} more"]
        return (
            f"{_count(len(self.chains), 'chain is', 'chains are')} active ({'; '.join(chains)}), "
            f"{_count(self.others, 'group stays', 'groups stay')} LiteLLM's"
            + (f", {len(self.problems)} of them because of a mistake" if self.problems else "")
        )


def _count(number: int, one: str, several: str) -> str:
    return f"{number} {one if number == 1 else several}"


def check_router(router: Any, chains: Chains) -> Registration:
    """Check every group of a Router, and log what is to be mended.

    Raises:
        FallbackConfigError: No chain is left.
    """
    spoilt: list[tuple[str, list[Deployment]]] = []
    registration = Registration({}, {}, [], 0, frozenset())
    others, spellings = 0, set[str]()
    for group, deployments in _groups_of(router):
        label, chain = label_of(group, deployments), chains.check(group, deployments)
        if isinstance(chain, Chain):
            registration.chains[label] = _models_of(ordered(deployments))
            spellings.update(map(spelling_of, deployments))
        else:
            others += 1
        if isinstance(chain, str):
            registration.problems[label] = chain
            spoilt.append((group, deployments))
        for one in deployments if chain is None else ():
            if hint := misplaced_rank(one):
                text = f"{name_of(one)} in group {label} has no {RANK}; {hint}"
                registration.hints.append(text)
    if not registration.chains:
        raise _no_chain(registration)
    for group, deployments in spoilt:
        chains.of(group, deployments)  # logs the mistake, here and not again at a request
    for hint in registration.hints:
        logger.warning("%s", hint)
    return registration._replace(others=others, spellings=frozenset(spellings))


def _groups_of(router: Any) -> Iterator[tuple[str, list[Deployment]]]:
    """Yield each group as requests see it: a team's apart, an alias as what it stands for."""
    aliases = setting(router, "model_group_alias") or {}
    rows = groups_of(router)
    homes = dict.fromkeys(home_of(one) for one in rows if one["model_name"] not in aliases)
    for group, team in homes:
        yield group, deployments_of(router, group, {"metadata": {"user_api_key_team_id": team}})


def _models_of(deployments: list[Deployment]) -> list[str]:
    """Spell the models as LiteLLM does, with what tells deployments of one model apart."""
    models = [spelling_of(one) for one in deployments]
    several = Counter(models)
    names = [configured_id(one) or f"#{position}" for position, one in enumerate(deployments)]
    return [
        f"{model} ({name})" if several[model] > 1 else model
        for model, name in zip(models, names, strict=True)
    ]


def _no_chain(registration: Registration) -> FallbackConfigError:
    problems = [f"group {group}: {text}" for group, text in registration.problems.items()]
    if problems:
        return FallbackConfigError("\n".join(["this Router has no chain:", *problems]))
    fix = f"give the deployments of a model group model_info: {{{RANK}: 0}}, 1, and so on"
    return FallbackConfigError.about(
        f"model_info.{RANK}",
        "no deployment of this Router has one",
        "\n".join([fix, *registration.hints]),
    )
