"""Which deployments of a model group are ours, in which order, and as which targets."""

# LiteLLM's objects and dicts have whatever shape they have; what comes out of here is typed.
# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

import litellm

from honcho_fallback import FallbackConfigError, FallbackPolicy, Target
from honcho_fallback_litellm._identity import identity_of, traits_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from honcho_fallback import FallbackConfig, FallbackObserver
    from honcho_fallback_litellm._router import Deployment

RANK = "fallback_rank"
# LiteLLM hashes the parameters of a deployment without an id; no reader recognizes the hash.
_HASHED = re.compile(r"[0-9a-f]{64}")


class Chain(NamedTuple):
    """Hold a group's deployments as a chain.

    Args:
        policy: Over one target per deployment.
        ids: The deployments' ids, in the policy's order.
    """

    policy: FallbackPolicy
    ids: tuple[str, ...]


class Chains:
    """Make the chain of each group, and make it anew when its deployments change.

    Args:
        config: The policy's options.
        observers: Objects that receive each call's events.
    """

    def __init__(self, config: FallbackConfig, observers: Iterable[FallbackObserver]) -> None:
        self._config = config
        self._observers = tuple(observers)
        # A chain is a pure function of its key: a race builds it twice and nothing else.
        self._made: dict[tuple[Any, ...], Chain] = {}

    def of(self, group: str, deployments: Sequence[Deployment]) -> Chain | None:
        """Return the chain of a group, or None when LiteLLM routes it."""
        ranked = in_order(deployments)
        if not ranked:
            return None
        key = (group, *((id_of(one), rank_of(one), traits_of(one)) for one in ranked))
        chain = self._made.get(key)
        if chain is None:
            if len(self._made) > 256:  # deployments came and went for a long time
                self._made.clear()
            chain = self._made[key] = self._make(group, ranked)
        return chain

    def _make(self, group: str, ranked: Sequence[Deployment]) -> Chain:
        config = self._config
        if config.max_attempts is None:
            config = config.replace(max_attempts=len(ranked) * (config.attempts_per_target or 1))
        policy = FallbackPolicy(targets_of(ranked), config, agent=group, observers=self._observers)
        return Chain(policy, tuple(id_of(one) for one in ranked))


def rank_of(deployment: Deployment) -> int | None:
    """Return a deployment's rank, or None."""
    rank = (deployment.get("model_info") or {}).get(RANK)
    if rank is None:
        return None
    if type(rank) is not int or rank < 0:
        raise FallbackConfigError.about(
            f"model_info.{RANK}",
            f"{name_of(deployment)} has {rank!r}",
            "give the primary 0, the first fallback 1, and so on",
        )
    return rank


def id_of(deployment: Deployment) -> str:
    """Return a deployment's id."""
    return str((deployment.get("model_info") or {}).get("id", ""))


def name_of(deployment: Deployment) -> str:
    """Return what logs and records call a deployment: its configured id, or its model."""
    deployment_id = id_of(deployment)
    if deployment_id and not _HASHED.fullmatch(deployment_id):
        return deployment_id
    return str(deployment["litellm_params"]["model"])


def in_order(deployments: Iterable[Deployment]) -> list[Deployment]:
    """List the ranked deployments, the primary first."""
    ranked = [(rank, one) for one in deployments if (rank := rank_of(one)) is not None]
    return [one for _, one in sorted(ranked, key=lambda pair: pair[0])]


def targets_of(deployments: Sequence[Deployment]) -> list[Target]:
    """Describe deployments as targets: nothing secret, neither key nor address."""
    targets: list[Target] = []
    for position, one in enumerate(deployments):
        model, provider = _model_of(one)
        name = name_of(one)
        if name in {target.name for target in targets}:
            name = f"{name}#{position}"
        # Not through credential=: the key is LiteLLM's, there is nothing here to refresh.
        identity = identity_of(one, model, provider)
        window = _window_of(one)
        targets.append(Target(model, provider, name, context_window=window, identity=identity))
    return targets


def provider_of(deployment: Deployment) -> str | None:
    """Name the provider of a deployment, or None."""
    return _model_of(deployment)[1]


def models_of(deployments: Iterable[Deployment]) -> list[str]:
    """Spell the models of the ranked deployments, with the provider in front."""
    models = [_model_of(one) for one in in_order(deployments)]
    return [f"{provider}/{model}" for model, provider in models if provider is not None]


def _model_of(deployment: Deployment) -> tuple[str, str | None]:
    params = deployment["litellm_params"]
    spelled = str(params["model"])
    try:
        model, provider, _, _ = litellm.get_llm_provider(
            model=spelled,
            custom_llm_provider=params.get("custom_llm_provider"),
            api_base=params.get("api_base"),
        )
    except Exception:  # noqa: BLE001 # a name that LiteLLM does not know is still a name
        return spelled, None
    return model, provider


def _window_of(deployment: Deployment) -> int | None:
    window = (deployment.get("model_info") or {}).get("max_input_tokens")
    if window is None:
        model, provider = _model_of(deployment)
        entry = (
            litellm.model_cost.get(f"{provider}/{model}") or litellm.model_cost.get(model) or {}
        )
        window = entry.get("max_input_tokens")
    return window if type(window) is int and window > 0 else None
