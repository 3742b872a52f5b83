"""What a Router must and must not have before a strategy takes its ranked groups over."""

# LiteLLM's objects and dicts have whatever shape they have; what comes out of here is typed.
# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false

from __future__ import annotations

import logging
from collections import defaultdict
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Any

import litellm

from honcho_fallback import FallbackConfigError
from honcho_fallback_litellm._chain import RANK, name_of, rank_of
from honcho_fallback_litellm._patches import OPTIONAL
from honcho_fallback_litellm._router import own, setting

if TYPE_CHECKING:
    from collections.abc import Iterable

    from honcho_fallback import FallbackConfig
    from honcho_fallback_litellm._router import Deployment

logger = logging.getLogger("honcho_fallback")

_REFUSED = {
    "connect_timeout": "LiteLLM has one timeout for an attempt; set timeout instead",
    "on_exhausted": "LiteLLM's callers expect one provider's error; leave it out, the last one "
    "comes out with the record attached",
    "reset": "LiteLLM's calls know no turns; leave it out, or take "
    'FallbackConfig.resilient(reset="iteration"); its cooldown keeps a failed deployment away '
    "from the next iterations",
    "switch_wait": "LiteLLM asks the next deployment at once; leave it out",
}
_CALLBACKS = ("callbacks", "success_callback", "failure_callback", "_async_success_callback")
_TRACERS = frozenset({"langfuse", "langfuse_otel"})


def check_config(config: FallbackConfig) -> None:
    """Refuse the options that LiteLLM leaves no room for."""
    possible = {"on_exhausted": "last", "reset": "iteration"}
    for field in sorted(config.model_fields_set & _REFUSED.keys()):
        value = getattr(config, field)
        if value != possible.get(field):
            raise FallbackConfigError.about(field, f"{value!r} cannot work here", _REFUSED[field])
    hooks = {"validate": config.validate_answer, "classify": config.classify}
    for name, hook in {**hooks, "refine": config.refine}.items():
        if iscoroutinefunction(hook):
            fix = "pass a plain function: the Router's sync methods cannot await it"
            raise FallbackConfigError.about(name, "it is async", fix)


def check_router(core: Any, registered: Any) -> None:
    """Refuse a Router whose settings contradict the ranks; warn of what has no effect."""
    if registered is not None and registered is not core:
        raise FallbackConfigError.about(
            "router", "this strategy serves another Router", "make a strategy for each Router"
        )
    groups: dict[str, list[Deployment]] = defaultdict(list)
    for one in own(core, "get_model_list")() or []:
        groups[one["model_name"]].append(one)
    managed = {
        group: deployments
        for group, deployments in groups.items()
        if any(rank_of(one) is not None for one in deployments)
    }
    if not managed:
        raise FallbackConfigError.about(
            f"model_info.{RANK}",
            "no deployment of this Router has one",
            f"give the deployments of a model group model_info: {{{RANK}: 0}}, 1, and so on",
        )
    for group, deployments in managed.items():
        _check_group(group, deployments)
    _warn_about_settings(core, managed)


def _check_group(group: str, deployments: list[Deployment]) -> None:
    names: dict[int, str] = {}
    for one in deployments:
        rank, name = rank_of(one), name_of(one)
        if rank is None:
            raise FallbackConfigError.about(
                f"model_info.{RANK}",
                f"{name} in group {group!r} has none, others there do",
                "give every deployment of the group one, or move this one to another group",
            )
        if rank in names:
            raise FallbackConfigError.about(
                f"model_info.{RANK}",
                f"{names[rank]} and {name} in group {group!r} both have {rank}",
                "give each deployment of the group its own",
            )
        names[rank] = name
        info = one.get("model_info") or {}
        if one["litellm_params"].get("order") is not None or info.get("order") is not None:
            raise FallbackConfigError.about(
                "order",
                f"{name} in group {group!r} has one, and a {RANK}",
                f"remove order: LiteLLM would hide all but the lowest from the {RANK}",
            )


def _warn_about_settings(core: Any, managed: dict[str, list[Deployment]]) -> None:
    by_group = setting(core, "model_group_retry_policy") or {}
    names = ", ".join(sorted(managed))
    if setting(core, "retry_policy") is not None or by_group.keys() & managed.keys():
        logger.warning(
            "retry_policy has no say in the ranked groups (%s), FallbackConfig(fallback_on=...) "
            "has; remove it, or keep it for the other groups",
            names,
        )
    for group, deployments in managed.items():
        for one in deployments:
            if one["litellm_params"].get("max_retries"):
                logger.warning(
                    "max_retries of %s in group %s has no effect, each target is asked once; "
                    "remove it, or set FallbackConfig(switch_after=...)",
                    name_of(one),
                    group,
                )


def warn_about_gates(missing: Iterable[str]) -> None:
    """Say loudly what this LiteLLM has no more."""
    gone = sorted(set(missing) - OPTIONAL)
    if gone:
        logger.error(
            "this LiteLLM (%s) has no %s: switching works by class of error only, records are "
            "incomplete; use litellm>=1.98,<2",
            getattr(litellm, "__version__", "of unknown version"),
            ", ".join(gone),
        )


def warn_about_callbacks(*, observed: bool) -> bool:
    """Warn where LiteLLM would trace a call a second time; return whether it warned."""
    callbacks = [one for name in _CALLBACKS for one in getattr(litellm, name, None) or ()]
    on = sorted({name for one in callbacks if (name := _tracer(one)) is not None})
    if not observed or not on:
        return False
    logger.warning(
        "LiteLLM's own callback %s is on beside the strategy's observers: failed attempts "
        "become traces of their own; remove it from litellm's callbacks",
        ", ".join(on),
    )
    return True


def _tracer(callback: object) -> str | None:
    """Name Langfuse's callback, by its name or as the object that LiteLLM makes of it."""
    if isinstance(callback, str):
        return callback if callback in _TRACERS else None
    kind = type(callback)
    return kind.__name__ if kind.__module__.startswith("litellm.integrations.langfuse") else None
