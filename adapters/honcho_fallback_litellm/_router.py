"""What this package touches of a Router: it looks for features, not for versions.

LiteLLM 1.109 keeps the routing in a core behind ``Router``, renames members and warns about the
old names; before that they stand on the Router itself. Everything private is looked up here.
"""

from __future__ import annotations

from types import MethodType
from typing import TYPE_CHECKING, Any, NoReturn

from litellm.router_utils.routing_read_batch import (  # pyright: ignore[reportMissingTypeStubs] # a package with one stub
    RoutingReadBatch,
)

from honcho_fallback import FallbackConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from contextlib import AbstractContextManager

Deployment = dict[str, Any]


def core_of(router: Any) -> Any:
    """Return the object that routes: the core behind a facade, or the Router itself."""
    return vars(router).get("_core", router)


def gone() -> NoReturn:
    """Say that the Router is gone.

    Raises:
        ReferenceError: Not a RuntimeError: LiteLLM's sync wrapper would run the whole call again.
    """
    raise ReferenceError("the Router of this FallbackRoutingStrategy is gone")


def selects(core: Any, strategy: object) -> bool:
    """Tell whether a routing strategy is the one that chooses for a Router now."""
    method = vars(core).get("get_available_deployment")
    return getattr(getattr(method, "__wrapped__", method), "__self__", None) is strategy


def own(core: Any, name: str) -> Callable[..., Any]:
    """Return LiteLLM's own method, whatever replaces it on this instance."""
    return MethodType(function_of(core, name), core)


def function_of(core: Any, name: str) -> Callable[..., Any]:
    """Return LiteLLM's own method as a function, which does not hold the core."""
    kind = type(core)
    function: Callable[..., Any] | None = getattr(kind, f"_core_{name}", getattr(kind, name, None))
    if function is None:
        problem = f"this LiteLLM has no {name}: it routes in a core that nothing can be added to"
        raise FallbackConfigError.about("router", problem, "install 'litellm>=1.106,<1.110'")
    return function


def setting(core: Any, name: str) -> Any:
    """Return a setting of the Router, or None."""
    attributes = vars(core)
    return attributes.get(f"_core_{name}", attributes.get(name))


def metadata_of(request: Mapping[str, Any]) -> dict[str, Any]:
    """Return the metadata that LiteLLM writes into: for some endpoints a bucket of its own."""
    metadata = request.get("litellm_metadata", request.get("metadata"))
    return metadata if isinstance(metadata, dict) else {}


def deployments_of(core: Any, group: str, request: Mapping[str, Any]) -> list[Deployment]:
    """List the deployments that LiteLLM chooses from for a request, the team's if it has some.

    ``get_model_list`` joins a team's wildcards to everybody's, of which a request gets one. A name
    that nobody has is the first of ``default_fallbacks``.
    """
    alias = (setting(core, "model_group_alias") or {}).get(group, group)
    name = alias["model"] if isinstance(alias, dict) else alias
    team = metadata_of(request).get("user_api_key_team_id")
    unnamed = "_try_early_resolve_deployments_for_model_not_in_names"
    if hasattr(type(core), unnamed) and own(core, "get_routing_group")(name) is None:
        resolved = own(core, unnamed)(model=name, request_team_id=team)
        if resolved is not None:
            return [] if isinstance(resolved[1], dict) else resolved[1]
    deployments: list[Deployment] = own(core, "get_model_list")(model_name=name, team_id=team)
    if deployments or own(core, "has_model_id")(name):
        return deployments or []
    default: str | None = own(core, "_get_first_default_fallback")()
    return deployments_of(core, default, request) if default and default != group else []


def attempt_in(request: Mapping[str, Any]) -> int:
    """Read an attempt's number, from 0, where LiteLLM writes it just before it asks."""
    number = metadata_of(request).get("attempted_retries")
    return number if type(number) is int and number > 0 else 0


def cooldowns_read_ahead() -> AbstractContextManager[Any]:
    """Return a context in which LiteLLM takes the cooldowns that its Proxy has asked Redis for.

    The Proxy declares that read before it routes a request, and a read outside of this
    context counts as one too many within a second: it returns nothing, and cooldowns that other
    processes have set would go unseen. LiteLLM's own selection enters it; what replaces the
    selection has to do so as well.
    """
    return RoutingReadBatch.scoped(RoutingReadBatch.for_strategy(None, None))
