"""Which deployments of a model group are ours, in which order, and as which targets."""

from __future__ import annotations

import logging
import re
from hashlib import sha256
from reprlib import repr as brief
from secrets import token_hex
from typing import TYPE_CHECKING, Any, NamedTuple

import litellm
from litellm.types.utils import all_litellm_params

from honcho_fallback import ApiKey, FallbackConfigError, FallbackPolicy, Target
from honcho_fallback.providers import distinct_name
from honcho_fallback_litellm._accepted_history import provider_of
from honcho_fallback_litellm._failures import classifier_for

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from honcho_fallback import FallbackConfig, FallbackObserver
    from honcho_fallback.providers import Provider
    from honcho_fallback_litellm._router import Deployment

logger = logging.getLogger("honcho_fallback")

RANK = "fallback_rank"
# LiteLLM hashes the parameters of a deployment without an id; no reader recognizes the hash.
_HASHED = re.compile(r"[0-9a-f]{64}")
_HERE = token_hex(8)
_ACCOUNT = ("api_base", "base_url", "api_key", "organization")


class Chain(NamedTuple):
    """Hold what the calls of a group have in common; its deployments are the policy's targets."""

    policy: FallbackPolicy
    ids: tuple[str, ...]
    config: FallbackConfig  # the policy's, and the timeout, which LiteLLM is handed
    providers: tuple[Provider, ...]  # whose messages each deployment writes
    strangers: frozenset[int]  # who has another account than the primary


class Chains:
    """Make the chain of each group, and make it anew when its deployments change.

    A group with a mistake in it stays LiteLLM's until it is mended.
    """

    def __init__(
        self,
        config: FallbackConfig,
        observers: tuple[FallbackObserver, ...],
        *,
        respects_cooldown: bool,
    ) -> None:
        self.config, self._observers = config, observers
        self.respects_cooldown = respects_cooldown  # who cools down is asked last
        # A chain is a pure function of its key: a race builds it twice and nothing else. A text
        # is what is wrong with the group.
        self._made: dict[tuple[Any, ...], Chain | str] = {}
        self._logged: set[tuple[tuple[str, str], ...]] = set()

    def of(self, group: str, deployments: Sequence[Deployment]) -> Chain | None:
        """Return the chain of a group; None where LiteLLM routes it, for a mistake also."""
        made = self.check(group, deployments)
        return None if isinstance(made, str) else made

    def check(self, group: str, deployments: Sequence[Deployment]) -> Chain | str | None:
        """Return the chain of a group, or what is wrong with it; None where nobody has a rank."""
        if all(_rank_in(one) is None for one in deployments):
            return None
        # By repr: True and 1.0 equal 1, and what stands in a YAML may have no hash.
        traits = sorted((id_of(one), repr(_rank_in(one)), _traits_of(one)) for one in deployments)
        key = (group, *traits)
        made = self._made.get(key)
        if made is None:
            if len(self._made) > 256:  # deployments came and went for a long time
                self._made.clear()
            try:
                made = self._make(group, ordered(deployments))
            except FallbackConfigError as error:
                made = str(error)
            self._made[key] = made
        # Not by the text: in a wildcard group it may name the model that a request asks for.
        mistake = tuple(trait[:2] for trait in traits)
        if isinstance(made, str) and mistake not in self._logged:
            self._logged.add(mistake)
            label = label_of(group, deployments)
            logger.error("group %s is no chain, LiteLLM routes it: %s", label, made)
        return made

    def _make(self, group: str, ranked: Sequence[Deployment]) -> Chain:
        config = self.config
        if config.max_attempts is None:
            config = config.replace(max_attempts=len(ranked) * (config.attempts_per_target or 1))
        targets = _targets_of(ranked)
        # LiteLLM is handed the timeout, and counts who runs into it; the policy's own is a call's.
        timeless = config.replace(timeout=None)
        who: Any = {"agent": group, "observers": self._observers}
        policy = FallbackPolicy(targets, timeless, classifier=classifier_for(config), **who)
        providers = tuple(map(provider_of, targets))
        accounts = [
            (provider.family, *map(one["litellm_params"].get, _ACCOUNT))
            for provider, one in zip(providers, ranked, strict=True)
        ]
        strangers = frozenset(at for at, one in enumerate(accounts) if one != accounts[0])
        return Chain(policy, tuple(map(id_of, ranked)), config, providers, strangers)


def ordered(deployments: Sequence[Deployment]) -> list[Deployment]:
    """List the deployments of a group where some have a rank, the primary first.

    Raises:
        FallbackConfigError: The ranks make no order; the message has every mistake.
    """
    by_rank: dict[int, Deployment] = {}
    problems: list[str] = []
    for one in deployments:
        rank = _rank_in(one)
        if rank is None:
            problem = f"{name_of(one)} has none, others there do"
            fix = misplaced_rank(one) or "give every deployment of the group one, or none"
        elif type(rank) is not int or rank < 0:
            problem = f"{brief(rank)} of {name_of(one)} is no whole number, 0 or more"
            fix = "give the primary 0, the first fallback 1, and so on, without quotes"
        elif rank in by_rank:
            problem = f"{name_of(by_rank[rank])} and {name_of(one)} both have {rank}"
            fix = "give each deployment of the group its own"
        elif _order_of(one) is not None:
            problem = f"{name_of(one)} has an order, too"
            fix = f"remove order: LiteLLM would hide all but the lowest from the {RANK}"
        else:
            by_rank[rank] = one
            continue
        problems.append(str(FallbackConfigError.about(f"model_info.{RANK}", problem, fix)))
    if problems:
        raise FallbackConfigError("; ".join(problems))
    return [by_rank[rank] for rank in sorted(by_rank)]


def misplaced_rank(deployment: Deployment) -> str | None:
    """Say what to do about a key that may be meant for a rank, where there is one."""
    from difflib import get_close_matches  # noqa: PLC0415 # for a mistake only

    for place in ("model_info", "litellm_params"):
        for key in deployment.get(place) or {}:
            plain = str(key).lower()
            is_near = plain == "rank" or get_close_matches(plain, [RANK], cutoff=0.85)
            if is_near and (place, key) != ("model_info", RANK):
                return f"write {place}.{key} as model_info.{RANK} if that is meant"
    return None


def label_of(group: str, deployments: Iterable[Deployment]) -> str:
    """Name a group as its YAML does, also where an alias or a wildcard was asked for."""
    homes = {home_of(one) for one in deployments}
    names = {name for name, _ in homes}
    teams = sorted({str(team) for _, team in homes if team is not None})
    name = next(iter(names)) if len(names) == 1 else group
    return f"{name} (team {', '.join(teams)})" if teams else str(name)


def home_of(deployment: Deployment) -> tuple[Any, Any]:
    info = deployment.get("model_info") or {}
    team = info.get("team_id")
    public = info.get("team_public_model_name") if team is not None else None
    return public or deployment["model_name"], team


def _rank_in(deployment: Deployment) -> Any:
    return (deployment.get("model_info") or {}).get(RANK)


def _order_of(deployment: Deployment) -> Any:
    order = deployment["litellm_params"].get("order")
    return order if order is not None else (deployment.get("model_info") or {}).get("order")


def id_of(deployment: Deployment) -> str:
    return str((deployment.get("model_info") or {}).get("id", ""))


def name_of(deployment: Deployment) -> str:
    """Return what logs and records call a deployment: its configured id, or its model."""
    own_id = id_of(deployment)
    is_configured = own_id and not _HASHED.fullmatch(own_id)
    return own_id if is_configured else str(deployment["litellm_params"]["model"])


def labels_of(deployment: Deployment) -> frozenset[str]:
    """Return a deployment's labels, which are tags in LiteLLM's words."""
    return frozenset(deployment["litellm_params"].get("tags") or ())


def _targets_of(deployments: Sequence[Deployment]) -> list[Target]:
    """Describe deployments as targets: nothing secret, neither key nor address."""
    targets: list[Target] = []
    for one in deployments:
        model, provider = model_of(one)
        name = distinct_name(name_of(one), [target.name for target in targets])
        window = (one.get("model_info") or {}).get("max_input_tokens")
        if window is None:
            window = _known_of(model, provider).get("max_input_tokens")
        # What goes into the request: all but what LiteLLM itself takes.
        params = {
            key: value
            for key, value in one["litellm_params"].items()
            if value is not None and key not in all_litellm_params
        }
        target = Target(
            model,
            provider,
            name,
            params=params,
            context_window=window if type(window) is int and window > 0 else None,
            # Not through credential=: the key is LiteLLM's, there is nothing here to refresh.
            identity=_identity_of(one, model, provider),
            labels=labels_of(one),
        )
        targets.append(target)
    return targets


def spelling_of(deployment: Deployment) -> str:
    """Spell a deployment's model as LiteLLM does, with the provider in front."""
    model, provider = model_of(deployment)
    return f"{provider}/{model}" if provider else model


def model_of(deployment: Deployment) -> tuple[str, str | None]:
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


def adapts_thinking(deployment: Deployment) -> bool:
    """Tell whether LiteLLM has a deployment think adaptively where it is not told otherwise."""
    return _known_of(*model_of(deployment)).get("supports_adaptive_thinking") is True


def _known_of(model: str, provider: str | None) -> dict[str, Any]:
    """Return what LiteLLM's list of prices says of a model."""
    costs: Any = litellm.model_cost
    return costs.get(f"{provider}/{model}") or costs.get(model) or {}


def _identity_of(deployment: Deployment, model: str, provider: str | None) -> str:
    """Return a deployment's identity in a shared cooldown: a hash, the same in every process.

    Without a readable address or key (a role, a file, an environment variable that only LiteLLM
    reads) it is this process's alone, of all parameters.
    """
    params = deployment["litellm_params"]
    endpoint = params.get("api_base") or params.get("base_url")
    key = params.get("api_key")
    if provider and endpoint and key and isinstance(endpoint, str) and isinstance(key, str):
        organization = params.get("organization")
        credential = ApiKey(f"{organization}\0{key}" if organization else key)
        return Target(model, provider=provider, endpoint=endpoint, credential=credential).identity
    text = repr((_HERE, sorted(params.items(), key=str)))
    return f"here:{sha256(text.encode()).hexdigest()[:24]}"


def _traits_of(deployment: Deployment) -> int:
    """Return a hash that changes when the Router replaces the deployment under its id."""
    window = (deployment.get("model_info") or {}).get("max_input_tokens")
    params = deployment["litellm_params"]
    texts = [value for value in params.values() if isinstance(value, str)]
    return hash((window, repr(_order_of(deployment)), repr(params.get("tags")), *texts))
