"""What is changed in a request of ours, and what is read from it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from honcho_fallback import FallbackConfigError, call_metadata
from honcho_fallback.providers import route_in
from honcho_fallback_litellm._router import LISTS

if TYPE_CHECKING:
    from honcho_fallback import FallbackConfig

PARAMETERS = (
    "temperature",
    "top_p",
    "max_tokens",
    "max_completion_tokens",
    "max_output_tokens",
    "n",
    "stop",
    "seed",
    "presence_penalty",
    "frequency_penalty",
    "reasoning_effort",
    "tool_choice",
    "dimensions",
    "encoding_format",
    "stream",
)
REHEARSALS = frozenset(
    (
        "mock_testing_fallbacks",
        "mock_testing_context_fallbacks",
        "mock_testing_content_policy_fallbacks",
        "mock_testing_rate_limit_error",
    )
)
_CLIENTS_OWN = ("api_key", "api_base", "base_url")
_STAYS, _REQUIRES = "must_not_degrade", "require"
_SESSION = "litellm_session_id"  # LiteLLM's own name for a conversation
# LiteLLM keeps its own metadata and the caller's apart for some endpoints, and elsewhere writes
# into the caller's own dict, which may come back with the next call.
_BUCKETS = ("metadata", "litellm_metadata")
_ROUTERS = frozenset(
    (
        "adaptive_router_chosen_model",
        "api_base",
        "attempted_fallbacks",
        "attempted_retries",
        "caching_groups",
        "cold_storage_object_key",
        "deployment",
        "deployment_model_name",
        "is_silent_experiment",
        "kubernetes_pod_routing",
        "max_retries",
        "model_group",
        "model_group_alias",
        "model_group_size",
        "original_model_group",
        "raw_request",
        "request_retry_count",
        "used_client_oauth_token",
        _STAYS,
        _REQUIRES,
    )
)
# What chooses among a Router's own deployments, or is LiteLLM's record of that.
_ROUTES_OF_OURS = REHEARSALS.union(
    LISTS,
    (
        "disable_fallbacks",
        "fallback_depth",
        "max_fallbacks",
        "model",
        "model_group_retry_policy",
        "model_info",
        "provider_specific_header",
        "proxy_server_request",
        "tags",
    ),
)
_THEIRS = ("_", "fallback_", "litellm_", "routing_plugin", "spend_logs", "user_api_key")
# What the Proxy puts beside the caller's metadata, of which it leaves a copy.
_PROXYS, _REQUESTERS = "user_api_key", "requester_metadata"


class _Zero(int):
    """Be 0 and true: LiteLLM's embeddings read ``max_retries or 2``."""

    def __bool__(self) -> bool:
        return True


# An attempt is one request: nobody below asks again or elsewhere.
ONE_REQUEST = {"num_retries": 0, "max_retries": _Zero(), "disable_fallbacks": True}


def options_of(request: dict[str, Any], config: FallbackConfig) -> dict[str, Any]:
    """Read what a request wants otherwise, and what it says of itself.

    A request opts out of switching with ``num_retries=0`` or ``disable_fallbacks=True``, with
    ``must_not_degrade`` in its metadata of anything but the primary, and may ask for fewer
    attempts; more than the policy allows it cannot get.
    """
    options: dict[str, Any] = {}
    retries, limit = request.get("num_retries"), config.max_attempts or 1
    if request.get("disable_fallbacks") is True or (isinstance(retries, int) and retries < 1):
        options["max_attempts"], options["transport_recovery"] = 1, None
    elif isinstance(retries, int) and retries + 1 < limit:
        options["max_attempts"] = retries + 1
    metadata = [one for name in _BUCKETS if isinstance(one := request.get(name), dict)]
    if any(str(one.get(_STAYS)).lower() == "true" for one in metadata):
        options["must_not_degrade"] = True
    if any(request.get(name) is not None for name in _CLIENTS_OWN):
        # What a caller's own key or address brings on says nothing of the deployment.
        options["cooldown"] = options["retry_budget"] = None
    sessions = request.get(_SESSION), *(one.get("session_id") for one in metadata)
    session = next((one for one in sessions if one and isinstance(one, str)), None)
    if session is not None:
        options["session"] = session
    plain = _plain_metadata(request, metadata) if metadata else None
    if plain is not None:
        options["metadata"] = plain
    return options


def required_in(request: dict[str, Any], config: FallbackConfig) -> frozenset[str]:
    """Return the labels that a request requires, those of the config among them.

    Raises:
        FallbackConfigError: They are no set of texts, or the request has settings of its own that
            choose who answers, such as an address: whom they lead to has no labels.
    """
    metadata = [one for name in _BUCKETS if isinstance(one := request.get(name), dict)]
    for required in (one[_REQUIRES] for one in metadata if _REQUIRES in one):
        is_list = isinstance(required, list | tuple | set | frozenset)
        given: Any = config.require.union(required) if is_list else required
        config = config.replace(require=given)
    settings = {name: value for name, value in request.items() if name not in _ROUTES_OF_OURS}
    route = config.require and route_in(settings)
    if route:
        problem = f"{route} of the request may lead to somebody without {sorted(config.require)}"
        raise FallbackConfigError.about("require", problem, "leave it out of such a request")
    return config.require


def _plain_metadata(request: dict[str, Any], buckets: list[Any]) -> dict[str, Any] | None:
    """Return what a record says of a call: what the caller wrote, nothing that LiteLLM adds."""
    if "proxy_server_request" in request or any(
        _PROXYS in one or _REQUESTERS in one for one in buckets
    ):
        theirs = (one.get(_REQUESTERS) for one in buckets)
        buckets = [one for one in theirs if isinstance(one, dict)]
    return call_metadata(
        {
            name: value
            for bucket in buckets
            for name, value in bucket.items()
            if isinstance(name, str) and name not in _ROUTERS and not name.startswith(_THEIRS)
        }
    )
