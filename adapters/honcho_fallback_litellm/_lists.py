"""The Router's own lists of other groups: what stands behind a chain, and a chain that stands there.

LiteLLM walks its lists itself, with its checks of access and budget. Two things are done here: a
chain that came to its end has LiteLLM start that walk, and where a list names a chain, its
deployments are named in their order, as LiteLLM would shuffle them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from litellm.exceptions import ContentPolicyViolationError, ContextWindowExceededError
from litellm.integrations.custom_guardrail import (  # pyright: ignore[reportMissingTypeStubs] # a package with one stub
    is_guardrail_intervention,
)
from litellm.router_utils.fallback_event_handlers import (  # pyright: ignore[reportMissingTypeStubs] # a package with one stub
    check_non_standard_fallback_format,
    fallback_lookup_groups,
    get_fallback_model_group_for_lookup_groups,
    is_bad_request_without_fallback,
)

from honcho_fallback_litellm._request import NARROWED, ONE_REQUEST, REHEARSALS
from honcho_fallback_litellm._router import LISTS, setting

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from honcho_fallback_litellm._chain import Chain

    ChainOf = Callable[[str], Chain | None]

# By what LiteLLM's documented flags rehearse, and which of its lists that failure goes to.
_WAYS = (
    (ContextWindowExceededError, "mock_testing_context_fallbacks", "context_window_fallbacks"),
    (ContentPolicyViolationError, "mock_testing_content_policy_fallbacks", "content_policy_fallbacks"),
    (Exception, "mock_testing_fallbacks", "fallbacks"),
)


def with_chains_in_order(router: Any, request: dict[str, Any], chain_of: ChainOf) -> dict[str, Any]:
    """Return a request whose lists name each deployment of a chain in its place.

    Args:
        router: The Router.
        request: What LiteLLM is to be asked; left as it is.
        chain_of: Returns a group's chain, or None.
    """
    lists = {name: request.get(name, setting(router, name)) for name in LISTS}
    named = {
        name: _in_order(entries, chain_of)
        for name, entries in lists.items()
        if isinstance(entries, list)
    }
    changed = {name: entries for name, entries in named.items() if entries != lists[name]}
    return {**request, **changed} if changed else request


def _in_order(entries: Sequence[Any], chain_of: ChainOf) -> list[Any]:
    if check_non_standard_fallback_format(fallbacks=[*entries]):
        return _targets(entries, chain_of)
    return [
        {group: _targets(targets, chain_of) for group, targets in one.items()}
        if isinstance(one, dict)
        else one
        for one in entries
    ]


def _targets(targets: Any, chain_of: ChainOf) -> Any:
    if not isinstance(targets, list):
        return targets
    found: list[Any] = []
    for target in targets:
        given = {"model": target} if isinstance(target, str) else target
        name = given.get("model") if isinstance(given, dict) else None
        chain = chain_of(name) if isinstance(name, str) and NARROWED not in given else None
        found += [
            {**given, **ONE_REQUEST, NARROWED: [two for two in chain.ids if two != one]}
            for one in chain.ids
        ] if chain else [target]
    if all(isinstance(one, str) for one in found):
        return found
    return [{"model": one} if isinstance(one, str) else one for one in found]


def rehearsed(router: Any, request: dict[str, Any], error: Exception) -> dict[str, Any] | None:
    """Return the request that has LiteLLM walk its lists as behind an error, without asking anew.

    Args:
        router: The Router.
        request: What the caller asked.
        error: What the chain ended with.

    Returns:
        None where no list is for that group and that error.
    """
    tolerant = setting(router, "fallback_on_unsupported_params") is not False
    if request.get("disable_fallbacks") is True or is_guardrail_intervention(error):
        return None
    if is_bad_request_without_fallback(error, tolerant):
        return None
    lists = {name: request.get(name, setting(router, name)) for name in LISTS}
    flag, name = next((flag, name) for kind, flag, name in _WAYS if isinstance(error, kind))
    entries = lists["fallbacks"] if lists[name] is None else lists[name]
    if not entries or not (
        check_non_standard_fallback_format(fallbacks=lists["fallbacks"])
        or get_fallback_model_group_for_lookup_groups(
            fallbacks=entries,
            lookup_groups=fallback_lookup_groups(kwargs=request, model_group=request["model"]),
        )[0]
    ):
        return None
    kept = {name: value for name, value in request.items() if name not in REHEARSALS}
    return {**kept, flag: True}
