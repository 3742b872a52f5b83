"""The Router's own lists of other groups: what stands behind a chain, and chains that stand there.

LiteLLM walks its lists itself, and a chain that came to its end has it start. A list that names a
chain is LiteLLM's up to there, as it would shuffle the chain's deployments; from there on each
target is asked here, with LiteLLM's checks of access and budget.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from litellm.exceptions import ContentPolicyViolationError, ContextWindowExceededError
from litellm.integrations.custom_guardrail import (  # pyright: ignore[reportMissingTypeStubs] # a package with one stub
    is_guardrail_intervention,
)
from litellm.router_utils.fallback_event_handlers import (  # pyright: ignore[reportMissingTypeStubs] # a package with one stub
    attempted_fallback_targets_from,
    check_non_standard_fallback_format,
    fallback_attempt_key,
    fallback_lookup_groups,
    get_fallback_model_group_for_lookup_groups,
    is_bad_request_without_fallback,
    log_failure_fallback_event,
    log_success_fallback_event,
)

from honcho_fallback_litellm._request import REHEARSALS
from honcho_fallback_litellm._responses import count_hops
from honcho_fallback_litellm._router import LISTS, setting

if TYPE_CHECKING:
    from collections.abc import Callable

    from honcho_fallback_litellm._router import Endpoint

    IsChain = Callable[[Any], bool]

# By error: LiteLLM's documented flag that rehearses it, and the list that it goes to.
_WAYS: tuple[tuple[type[Exception], str, str], ...] = (
    (ContextWindowExceededError, "mock_testing_context_fallbacks", "context_window_fallbacks"),
    (
        ContentPolicyViolationError,
        "mock_testing_content_policy_fallbacks",
        "content_policy_fallbacks",
    ),
    (Exception, "mock_testing_fallbacks", "fallbacks"),
)


class Lists:
    """Know the lists of other groups as a request finds them.

    Args:
        router: The Router.
        request: The keyword arguments of the call, whose own lists go before the Router's.
        is_chain: Tells whether a list's target is a chain.
    """

    def __init__(self, router: Any, request: dict[str, Any], is_chain: IsChain) -> None:
        self._router, self._request = router, request
        settings = router.settings() if hasattr(router, "settings") else router
        self._entries = {name: request.get(name, getattr(settings, name, None)) for name in LISTS}
        self._targets = {name: self._targets_in(name) for name in LISTS}
        # Up to the first chain a list is LiteLLM's.
        self._own = {
            name: next((n for n, one in enumerate(targets) if is_chain(one)), len(targets))
            for name, targets in self._targets.items()
        }

    def _targets_in(self, name: str) -> list[Any]:
        entries: list[Any] = self._entries[name] or []
        request = self._request
        if check_non_standard_fallback_format(fallbacks=entries):
            return entries
        groups = fallback_lookup_groups(kwargs=request, model_group=request["model"])
        found, _ = get_fallback_model_group_for_lookup_groups(
            fallbacks=entries, lookup_groups=groups
        )
        return found if isinstance(found, list) else []

    def cut(self) -> dict[str, Any]:
        """Return the lists that name a chain, up to there."""
        changed: dict[str, Any] = {}
        for name, own in self._own.items():
            entries: list[Any] = self._entries[name] or []
            targets = self._targets[name]
            if own == len(targets):
                continue
            changed[name] = (
                entries[:own]
                if targets is entries
                else [
                    {group: some[:own] if some is targets else some for group, some in one.items()}
                    if isinstance(one, dict)
                    else one
                    for one in entries
                ]
            )
        return changed

    def _way(self, error: Exception) -> tuple[str, str] | None:
        """Return how an error is rehearsed and to which list it goes; None where to none."""
        tolerant = setting(self._router, "fallback_on_unsupported_params") is not False
        if (
            self._request.get("disable_fallbacks") is True
            or is_guardrail_intervention(error)
            or is_bad_request_without_fallback(error, tolerant)
        ):
            return None
        flag, name = next((flag, name) for kind, flag, name in _WAYS if isinstance(error, kind))
        # The general list stands in for a special one that is absent.
        direct = check_non_standard_fallback_format(fallbacks=self._entries["fallbacks"])
        return flag, "fallbacks" if direct or self._entries[name] is None else name

    def rehearsal(self, error: Exception) -> dict[str, Any] | None:
        """Return the request that has LiteLLM walk its list for an error, None without one."""
        way = self._way(error)
        if way is None or not self._own[way[1]]:
            return None
        kept = {name: value for name, value in self._request.items() if name not in REHEARSALS}
        return {**kept, **self.cut(), way[0]: True}

    async def walk(self, endpoint: Endpoint, bucket: str, error: Exception) -> Any:
        """Ask the targets of the list for an error from the first chain on.

        Raises:
            Exception: The error, where nobody answered.
        """
        router, request, way = self._router, self._request, self._way(error)
        depth = request.get("fallback_depth") or 0
        most = request.get("max_fallbacks") or setting(router, "max_fallbacks") or 0
        targets = self._targets[way[1]][self._own[way[1]] :] if way is not None else []
        attempted = attempted_fallback_targets_from(request)
        attempted.record(request["model"])
        for target in targets if depth < most else ():
            given = {"model": target} if isinstance(target, str) else target
            key = fallback_attempt_key(target) or ""
            if key in attempted or not await _may_call(router, given.get("model"), request):
                continue
            attempted.record(key)
            depth += 1
            stamps = {"original_model_group": request["model"], "model_group": given.get("model")}
            hop = {
                **{name: value for name, value in request.items() if name not in REHEARSALS},
                **given,
                bucket: {**(request.get(bucket) or {}), **stamps, "attempted_fallbacks": depth},
                "fallback_depth": depth,
                "max_fallbacks": most,
                "attempted_targets": attempted,
            }
            event: dict[str, Any] = {
                "original_model_group": request["model"],
                "kwargs": hop,
                "original_exception": error,
            }
            try:
                answer = getattr(router, endpoint.name)(**hop)
                answer = await answer if endpoint.is_async else answer
            except Exception:  # noqa: BLE001 # the first error is what the caller gets
                await log_failure_fallback_event(**event)
                continue
            await log_success_fallback_event(**event)
            return count_hops(answer, depth)
        raise error


async def _may_call(router: Any, model: Any, request: dict[str, Any]) -> bool:
    """Ask LiteLLM's checks, such as the Proxy's, whether a caller may go to another group."""
    if hasattr(router, "settings"):
        from litellm.router_api import (  # noqa: PLC0415 # pyright: ignore[reportMissingTypeStubs] # absent before 1.109
            RoutingContext,
        )

        context = RoutingContext(router)
        asked: dict[str, Any] = {"model": model, "request_kwargs": request}
        return await context.fallback_access_allowed(
            **asked
        ) and await context.fallback_budget_allowed(**asked)
    for check in (router.fallback_access_check, router.fallback_budget_check):
        if check is not None and not await check(
            model=model, request_kwargs=request, llm_router=router
        ):
            return False
    return True
