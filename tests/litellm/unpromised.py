"""What is used of LiteLLM that it does not promise, looked for in the installed release.

The methods that are replaced, and what happens without each, stand on the first page of
``_patches``; here are their parameters that are bound by name, and whatever else is read.
"""

from __future__ import annotations

import inspect
from importlib import import_module
from typing import Any

from honcho_fallback_litellm._patches import REPLACED
from honcho_fallback_litellm._router import core_of

_SEE_PATCHES = "as the table in _patches.py says"
# A method of the Router; the parameters that are passed by name; what happens without it.
_METHODS: dict[str, tuple[tuple[str, ...], str]] = {
    **dict.fromkeys(REPLACED, ((), _SEE_PATCHES)),
    "async_function_with_fallbacks_common_utils": (("e", "kwargs"), _SEE_PATCHES),
    "_filter_cooldown_deployments": (
        ("healthy_deployments", "cooldown_deployments"),
        _SEE_PATCHES,
    ),
    "get_model_list": (("model_name", "team_id"), "no chain is found, registration fails"),
    "has_model_id": ((), "a name that nobody has fails the request"),
    "get_routing_group": ((), "wildcards and aliases of a team fail the request"),
    "_try_early_resolve_deployments_for_model_not_in_names": (
        ("model", "request_team_id"),
        "a wildcard's chain holds everybody's deployments",
    ),
    "_get_first_default_fallback": ((), "a name that nobody has fails the request"),
    "async_get_healthy_deployments": (
        ("model", "request_kwargs", "messages", "input", "specific_deployment"),
        "a deployment cannot be chosen",
    ),
}


def probe() -> list[str]:
    """Return what the installed release lacks, each with what happens without it."""
    router: Any = import_module("litellm.router").Router(model_list=[])
    kind = type(core_of(router))
    router.discard()
    missing = [
        f"Router.{name}: {then}"
        for name, (parameters, then) in _METHODS.items()
        if not _has(kind, name, parameters)
    ]
    batch = import_module("litellm.router_utils.routing_read_batch").RoutingReadBatch
    if not (hasattr(batch, "scoped") and hasattr(batch, "for_strategy")):
        missing.append("RoutingReadBatch.scoped: cooldowns of other processes go unseen")
    return missing


def _has(kind: Any, name: str, parameters: tuple[str, ...]) -> bool:
    method = getattr(kind, f"_core_{name}", None) or getattr(kind, name, None)
    if method is None:
        return False
    known = inspect.signature(method).parameters
    takes_any = any(one.kind is one.VAR_KEYWORD for one in known.values())
    return takes_any or {*parameters} <= known.keys()
