"""What this package touches of a Router: it looks for features, not for versions.

LiteLLM 1.109 keeps the routing in a core behind ``Router``, renames members and warns about the
old names; before that they stand on the Router itself. Everything private is looked up here.
"""

# LiteLLM's objects and dicts have whatever shape they have; what comes out of here is typed.
# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false

from __future__ import annotations

from contextlib import nullcontext
from functools import cache
from importlib import import_module
from types import MethodType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from contextlib import AbstractContextManager

Deployment = dict[str, Any]

# What LiteLLM tells its own selection by; what replaces the selection has to take them away, or
# they travel to the provider in the request's body.
INTERNAL_KEYS = (
    "_target_order",
    "_excluded_deployment_ids",
    "_retry_skipped_deployment_ids",
    "honcho_fallback_hop",
)


def core_of(router: Any) -> Any:
    """Return the object that routes: the core behind a facade, or the Router itself."""
    return vars(router).get("_core", router)


def own(core: Any, name: str) -> Callable[..., Any]:
    """Return LiteLLM's own method, whatever replaces it on this instance."""
    kind = type(core)
    method = getattr(kind, f"_core_{name}", None) or getattr(kind, name)
    return MethodType(method, core)


def setting(core: Any, name: str, default: Any = None) -> Any:
    """Return a setting of the Router."""
    attributes = vars(core)
    return attributes.get(f"_core_{name}", attributes.get(name, default))


def metadata_of(request: Mapping[str, Any]) -> dict[str, Any]:
    """Return the metadata that LiteLLM writes into: for some endpoints a bucket of its own."""
    metadata = request.get("litellm_metadata", request.get("metadata"))
    return metadata if isinstance(metadata, dict) else {}


def deployments_of(core: Any, group: str, request: Mapping[str, Any]) -> list[Deployment]:
    """List the deployments of a model group, those of the caller's team included."""
    team = metadata_of(request).get("user_api_key_team_id")
    deployments: list[Deployment] | None = own(core, "get_model_list")(
        model_name=group, team_id=team
    )
    return deployments or []


def attempt_in(request: Mapping[str, Any]) -> int:
    """Read an attempt's number, from 0, where LiteLLM writes it just before it asks."""
    number = metadata_of(request).get("attempted_retries")
    return number if type(number) is int and number > 0 else 0


def cooldowns_read_ahead() -> AbstractContextManager[Any]:
    """Return a context in which LiteLLM takes the cooldowns that its Proxy has asked Redis for.

    Since 1.106 the Proxy declares that read before it routes a request, and a read outside of this
    context counts as one too many within a second: it returns nothing, and cooldowns that other
    processes have set would go unseen. LiteLLM's own selection enters it; what replaces the
    selection has to do so as well.
    """
    batch = _read_batch()
    return nullcontext() if batch is None else batch.scoped(batch.for_strategy(None, None))


@cache
def _read_batch() -> Any:
    try:
        return import_module("litellm.router_utils.routing_read_batch").RoutingReadBatch
    except (ImportError, AttributeError):
        return None
