"""The Router's own lists of other groups, which stand behind a chain and may name another one.

LiteLLM's own walk goes down a list, with its checks of access and budget; each of its hops is a
call of the Router's endpoint, so that a chain is asked in its order and not shuffled.
"""

from __future__ import annotations

from contextlib import suppress
from inspect import signature
from typing import TYPE_CHECKING, Any

from litellm.exceptions import ContentPolicyViolationError, ContextWindowExceededError
from litellm.integrations.custom_guardrail import is_guardrail_intervention
from litellm.router_utils.fallback_event_handlers import (
    check_non_standard_fallback_format,
    fallback_lookup_groups,
    get_fallback_model_group_for_lookup_groups,
    is_bad_request_without_fallback,
    run_async_fallback,
)

from honcho_fallback_litellm._request import REHEARSALS
from honcho_fallback_litellm._router import LISTS, setting

if TYPE_CHECKING:
    from collections.abc import Callable

    from honcho_fallback_litellm._router import Endpoint

GENERAL, OVERFLOW, POLICY = LISTS
_down_a_list: Any = run_async_fallback  # whose decorator hides its type
NO_LISTS: dict[str, Any] = {name: [] for name in LISTS}


def named_in(name: str, router: Any, request: dict[str, Any]) -> list[Any] | None:
    """Return what a list has for a request's group; None where there is no such list."""
    entries: list[Any] | None = request.get(name, setting(router, name))
    if entries is None or check_non_standard_fallback_format(fallbacks=entries):
        return entries
    groups = fallback_lookup_groups(kwargs=request, model_group=request["model"])
    named, _ = get_fallback_model_group_for_lookup_groups(fallbacks=entries, lookup_groups=groups)
    return named if isinstance(named, list) else []


def _named_for(error: Exception, router: Any, request: dict[str, Any]) -> list[Any] | None:
    tolerant = setting(router, "fallback_on_unsupported_params") is not False
    if is_guardrail_intervention(error) or is_bad_request_without_fallback(error, tolerant):
        return None
    named: list[Any] | None = None
    general: Any = request.get(GENERAL, setting(router, GENERAL))
    if not check_non_standard_fallback_format(fallbacks=general):
        if isinstance(error, ContextWindowExceededError):
            named = named_in(OVERFLOW, router, request)
        elif isinstance(error, ContentPolicyViolationError):
            named = named_in(POLICY, router, request)
    # The general list stands in for a special one that is absent.
    return named_in(GENERAL, router, request) if named is None else named


class _Hops:
    """Be LiteLLM's context of a walk, each hop of which is a call of an endpoint."""

    def __init__(self, context: Any, ask: Callable[..., Any], *, is_async: bool) -> None:
        self._context, self._ask, self._is_async = context, ask, is_async

    def __getattr__(self, name: str) -> Any:
        return getattr(self._context, name)

    async def with_fallbacks(self, *, original_function: object, **request: Any) -> Any:  # noqa: ARG002 # by it LiteLLM finds its metadata
        answer = self._ask(**request)
        return await answer if self._is_async else answer

    async_function_with_fallbacks = with_fallbacks  # its name before 1.109


def _generic_api_call() -> None:
    """Be named as what LiteLLM keeps in a bucket of its own."""


async def walk(
    router: Any, endpoint: Endpoint, bucket: str, request: dict[str, Any], error: Exception
) -> Any:
    """Ask the groups that the lists name for an error.

    Raises:
        Exception: The error, where nobody answered.
    """
    named = _named_for(error, router, request)
    if not named:
        raise error
    ask = getattr(router, endpoint.name)
    place, context = "litellm_router", router
    if "litellm_routing_ctx" in signature(run_async_fallback).parameters:
        from litellm.router_api import RoutingContext  # noqa: PLC0415 # absent before 1.109

        place, context = "litellm_routing_ctx", RoutingContext(router)
    metadata = {**(request.get(bucket) or {})}
    if earlier := metadata.get("previous_models"):
        metadata["previous_models"] = earlier[:-1]  # LiteLLM adds this error itself
    hop: dict[str, Any] = {
        "max_fallbacks": setting(router, "max_fallbacks") or 0,
        "fallback_depth": 0,
        **{name: value for name, value in request.items() if name not in REHEARSALS},
        bucket: metadata,
        place: _Hops(context, ask, is_async=endpoint.is_async),
        "fallback_model_group": named,
        "original_model_group": request["model"],
        "original_exception": error,
        "original_function": _generic_api_call if endpoint.is_generic else ask,
    }
    with suppress(Exception):  # the first error says more
        return await _down_a_list(**hop)
    raise error
