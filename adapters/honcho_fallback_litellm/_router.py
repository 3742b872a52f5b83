"""What this package reads of a Router; features are looked for, not versions."""

from __future__ import annotations

from copy import deepcopy
from time import time
from typing import TYPE_CHECKING, Any, NamedTuple

from litellm.litellm_core_utils.asyncify import run_async_function
from litellm.router_utils.routing_read_batch import RoutingReadBatch

from honcho_fallback.stores import CooldownChoice

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from honcho_fallback.stores import Keys

# Runs a coroutine function in this thread, or in one of its own where a loop runs here.
in_a_loop: Callable[..., Any] = run_async_function

Deployment = dict[str, Any]
LISTS = ("fallbacks", "context_window_fallbacks", "content_policy_fallbacks")
# The key by which LiteLLM itself leaves out a deployment that has just failed; never sent on.
NARROWED = "_excluded_deployment_ids"
_HISTORIES = ("messages", "input")


class Endpoint(NamedTuple):
    """Describe one of a Router's methods that ask a provider."""

    name: str
    parameters: tuple[str, ...]  # that may be passed by position
    is_async: bool
    is_generic: bool  # LiteLLM keeps its metadata in a bucket of its own


def setting(router: Any, name: str) -> Any:
    if hasattr(router, "settings"):  # from 1.109 on the Router warns of some of its attributes
        if name == "model_group_alias":
            return router.registry().aliases()
        if name in LISTS:
            return getattr(router.settings(), name)
    return getattr(router, name, None)


def groups_of(router: Any) -> list[Deployment]:
    listed = (
        router.registry().deployments() if hasattr(router, "registry") else router.get_model_list()
    )
    return [*(listed or ())]


def deployments_of(router: Any, name: str, request: Mapping[str, Any]) -> list[Deployment]:
    """List the deployments that LiteLLM chooses from for a request, the team's if it has some.

    A name that nobody has is the first of ``default_fallbacks``, which LiteLLM keeps as ``*``.
    """
    metadata = request.get("litellm_metadata", request.get("metadata"))
    team = metadata.get("user_api_key_team_id") if isinstance(metadata, dict) else None
    if hasattr(router, "registry"):
        registry = router.registry()
        deployments = registry.deployments(name, source="for_request", request=request)
        deployments = deployments or registry.deployments(name, source="wildcard", team_id=team)
        known = registry.has_deployment(name)
    else:
        deployments = router.deployments_for_request(name, request)
        deployments = deployments or router.wildcard_route_deployments(name, team)
        known = router.has_model_id(name)
    if deployments or known:
        return [*deployments]
    lists = setting(router, "fallbacks") or ()
    defaults = [one["*"] for one in lists if isinstance(one, dict) and one.get("*")]
    default = defaults[0][0] if defaults else None
    return deployments_of(router, default, request) if default not in (None, name) else []


class Rotation:
    """Say which deployments of a request LiteLLM would choose from now, and which ones cool down.

    LiteLLM's own filters decide: pauses, tags, teams, windows, cooldowns.
    """

    __slots__ = ("cooling", "healthy")

    def __init__(self, router: Any, ids: tuple[str, ...], healthy: Any) -> None:
        # Where nobody looked, or the look itself failed, all are asked in turn.
        knows_nothing = healthy is None or isinstance(healthy, RuntimeError | OSError)
        self.healthy = {*ids} if knows_nothing else _ids_in(healthy)
        self.cooling = dict[str, float]()
        if not self.healthy.issuperset(ids):
            store = (
                router.health().cooldowns if hasattr(router, "health") else router.cooldown_cache
            )
            for name, rest in store.get_active_cooldowns(model_ids=[*ids], parent_otel_span=None):
                end = (rest.get("timestamp") or time()) + (rest.get("cooldown_time") or 5.0)
                self.cooling[name] = max(0.001, end - time())  # 5 s where it does not say


class LiteLLMsRests:
    """Be LiteLLM's memory of who is down to one call: it orders the targets and forbids none."""

    shared = None  # LiteLLM shares it

    def __init__(self, left: Mapping[str, float]) -> None:
        self._left = left  # seconds of each target's rest, by its identity

    def update_and_select(
        self, _reports: object, offered: Sequence[Keys], _now: float, _lease: float | None, /
    ) -> CooldownChoice:
        """Choose the first that does not rest, or who is due first; LiteLLM learns by itself."""
        rests = [max((self._left.get(key, 0.0) for key in keys), default=0.0) for keys in offered]
        place = min(range(len(rests)), key=rests.__getitem__, default=0)
        before = rests if rests and rests[place] else rests[:place]
        passed = tuple((n, left) for n, left in enumerate(before) if n != place)
        is_forced = bool(rests and rests[place])
        return CooldownChoice(place, "litellm" if is_forced else None, passed, forced=is_forced)


def _ids_in(healthy: Any) -> set[str]:
    """Read whom LiteLLM names; an error names nobody."""
    rows = () if isinstance(healthy, Exception) else healthy
    rows = [rows] if isinstance(rows, dict) else rows
    return {str((row.get("model_info") or {}).get("id")) for row in rows}


async def _healthy(router: Any, request: dict[str, Any]) -> Any:
    """Return the deployments that LiteLLM would choose from, or the error that says nobody."""
    # LiteLLM writes into what it is given, and logs a refusal where it finds a logging object.
    seen = {name: value for name, value in request.items() if name != "litellm_logging_obj"}
    for name in ("metadata", "litellm_metadata"):
        if isinstance(seen.get(name), dict):
            seen[name] = {**seen[name]}
    arguments = {one: request.get(one) for one in _HISTORIES} | {"specific_deployment": False}
    try:
        if hasattr(router, "select"):
            return await router.select(request["model"], seen, kind="healthy", **arguments)
        return await router.async_get_healthy_deployments(
            model=request["model"], request_kwargs=seen, **arguments
        )
    except Exception as error:  # noqa: BLE001 # LiteLLM has many for "no deployment"
        return error


async def _look(router: Any, ids: tuple[str, ...], request: dict[str, Any]) -> Rotation:
    """Ask LiteLLM who is in rotation.

    Affinity names only whom a session, a key or a prompt is pinned to: whoever stands behind it
    is asked for without those that were named, which is how LiteLLM gets past a pin itself.
    """
    where = Rotation(router, ids, await _healthy(router, request))
    named = where.healthy
    while named and not where.healthy.union(where.cooling).issuperset(ids):
        # LiteLLM takes encrypted reasoning out of the lists that it is given.
        histories = {one: deepcopy(request[one]) for one in _HISTORIES if one in request}
        without = {**request, **histories, NARROWED: [*where.healthy]}
        named = _ids_in(await _healthy(router, without)) - where.healthy
        where.healthy |= named
    return where


async def arotation(router: Any, ids: tuple[str, ...], request: dict[str, Any]) -> Rotation:
    """Ask LiteLLM in this task who is in rotation."""
    # The Proxy asks Redis for cooldowns before it routes a request. A read outside of this
    # context is one too many within a second: what other processes have set would go unseen.
    with RoutingReadBatch.scoped(RoutingReadBatch.for_strategy(None, None)):
        return await _look(router, ids, request)


def rotation(router: Any, ids: tuple[str, ...], request: dict[str, Any]) -> Rotation:
    """Ask LiteLLM in this thread who is in rotation.

    Where it would have to ask Redis nothing is known: a second look within a second would find
    nothing there, so the one look is left to LiteLLM, which refuses whoever rests.
    """
    store = router.health().store if hasattr(router, "health") else router.cache
    if getattr(store() if callable(store) else store, "redis_cache", None) is None:
        looking = _look(router, ids, request)
        try:
            looking.send(None)
        except StopIteration as ended:
            where: Rotation = ended.value
            return where
        looking.close()
    return Rotation(router, ids, None)
