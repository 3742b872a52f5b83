"""What is changed in a request of ours, and what is read from it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import litellm

from honcho_fallback import call_metadata
from honcho_fallback_litellm._chain import model_of
from honcho_fallback_litellm._history import accepted_chat, accepted_items, has_unsigned_call

if TYPE_CHECKING:
    from honcho_fallback import Attempt, FallbackConfig
    from honcho_fallback_litellm._call import RouterCall
    from honcho_fallback_litellm._router import Deployment

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
    {
        "mock_testing_fallbacks",
        "mock_testing_context_fallbacks",
        "mock_testing_content_policy_fallbacks",
        "mock_testing_rate_limit_error",
    }
)
_THINKING = ("thinking", "reasoning_effort")
_TIMEOUTS = ("timeout", "request_timeout")
_CLIENTS_OWN = ("api_key", "api_base", "base_url")
_STAYS, _REQUIRES = "must_not_degrade", "require"
# LiteLLM keeps its own metadata and the caller's apart for some endpoints, and elsewhere writes
# into the caller's own dict, which may come back with the next call.
_BUCKETS = ("metadata", "litellm_metadata")
_ROUTERS = frozenset(
    {
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
    }
)
_THEIRS = ("_", "fallback_", "litellm_", "routing_plugin", "spend_logs", "user_api_key")
# What the Proxy puts beside the caller's metadata, of which it leaves a copy.
_PROXYS, _REQUESTERS = "user_api_key", "requester_metadata"


class _Zero(int):
    """Be 0 and true: LiteLLM's embeddings read ``max_retries or 2``."""

    def __bool__(self) -> bool:
        return True


# The key by which LiteLLM itself leaves out a deployment that has just failed; never sent on.
NARROWED = "_excluded_deployment_ids"
# An attempt is one request: nobody below asks again or elsewhere.
ONE_REQUEST = {"num_retries": 0, "max_retries": _Zero(), "disable_fallbacks": True}


def options_of(request: dict[str, Any], config: FallbackConfig) -> dict[str, Any]:
    """Read what a request wants otherwise, and what it says of itself.

    A request opts out of switching with ``num_retries=0`` or ``disable_fallbacks=True``, with
    ``must_not_degrade`` in its metadata of anything but the primary and with ``require`` there of
    deployments without some tags, and may ask for fewer attempts; more than the policy allows it
    cannot get.
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
    for required in (one[_REQUIRES] for one in metadata if _REQUIRES in one):
        listed = isinstance(required, list | tuple | set | frozenset)
        known = options.get("require", config.require)
        options["require"] = known.union(required) if listed else required  # refused, then
    if any(request.get(name) is not None for name in _CLIENTS_OWN):
        # What a caller's own key or address brings on says nothing of the deployment.
        options["cooldown"] = options["retry_budget"] = None
    plain = plain_metadata_of(request) if metadata else None
    if plain is not None:
        options["metadata"] = plain
    return options


def plain_metadata_of(request: dict[str, Any]) -> dict[str, Any] | None:
    """Return what a record says of a call: what the caller wrote, nothing that LiteLLM adds."""
    given = (request.get(name) for name in _BUCKETS)
    buckets: list[dict[Any, Any]] = [one for one in given if isinstance(one, dict)]
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


def request_for(call: RouterCall, attempt: Attempt) -> dict[str, Any]:
    """Return what LiteLLM is asked for one attempt: the request, narrowed to one deployment.

    History, timeout and the option for usage depend on whom it goes to.
    """
    position = attempt.position
    deployment, here = call.deployments[position], call.chain.ids[position]
    request = {**call.request, **call.stamps, **ONE_REQUEST}
    # An empty policy of the group's own: the Router's retry_policy would allow more than one.
    request["model_group_retry_policy"] = {str(request["model"]): litellm.RetryPolicy()}
    if here in call.by_id:
        request["model"] = here  # LiteLLM asks whom it is given by its id, also one that rests
    else:
        request[NARROWED] = [one for one in call.chain.ids if one != here]
    if attempt.number > 1:
        for name in REHEARSALS:  # of a failure: for the first request
            request.pop(name, None)
    params = deployment["litellm_params"]
    if call.chain.strangers:
        _give_history(call, attempt, params, request)
    _give_time(call, attempt, params, request)
    if _tells_usage_if_asked(call, deployment, request):
        request["stream_options"] = {"include_usage": True}
        call.hides_usage = True
    return request


def _give_history(
    call: RouterCall, attempt: Attempt, params: dict[str, Any], request: dict[str, Any]
) -> None:
    """Write what was said before as this deployment's provider accepts it."""
    position = attempt.position
    provider, is_stranger = call.chain.providers[position], position in call.chain.strangers
    messages, items = call.request.get("messages"), call.request.get("input")
    if call.endpoint.is_generic:
        if isinstance(items, list):
            request["input"] = accepted_items(items, provider, is_stranger=is_stranger)
    elif messages:
        request["messages"] = messages = accepted_chat(messages, provider)
        thinks = any(request.get(name) or params.get(name) for name in _THINKING)
        if thinks and provider.family == "anthropic" and has_unsigned_call(messages):
            request.update(dict.fromkeys(_THINKING))


def _give_time(
    call: RouterCall, attempt: Attempt, params: dict[str, Any], request: dict[str, Any]
) -> None:
    """Hand the attempt's time to LiteLLM, where nobody else has set one, or has set a longer one.

    The latter only where time is short: under a deadline, and up to the first chunk of a stream
    that is read in a thread, where nothing but LiteLLM's own timeout ends a silence.
    """
    config, streaming = call.chain.config, request.get("stream") is True
    # In a task the policy ends an attempt to the point; LiteLLM's timeout is one between two
    # chunks there, where the time to the first one is no measure.
    seconds = None if streaming and not call.blocking else attempt.timeout
    is_short = seconds is not None
    seconds = min((one for one in (seconds, config.timeout) if one is not None), default=None)
    names = ("stream_timeout", *_TIMEOUTS) if streaming else _TIMEOUTS
    timeout = _timeout_of(call.router, names, params, request)
    if seconds is None or (
        timeout is not None and not (is_short and _is_longer(timeout, seconds))
    ):
        return
    # LiteLLM asks for the first of these names everywhere before it asks for the next.
    request[names[0]] = seconds


def _timeout_of(
    router: Any, names: tuple[str, ...], params: dict[str, Any], request: dict[str, Any]
) -> Any:
    """Find the timeout that LiteLLM would take."""
    # The Router fills in LiteLLM's own default where its user sets no timeout.
    default: Any = getattr(litellm, "request_timeout", None)
    for some in (names[:1], names[1:]) if len(names) > len(_TIMEOUTS) else (names,):
        timeouts = [place.get(name) for place in (request, params) for name in some]
        timeouts += [value for name in some if (value := getattr(router, name, None)) != default]
        for value in timeouts:
            if value is not None:
                return value
    return None


def _is_longer(timeout: Any, seconds: float) -> bool:
    try:
        return float(timeout) > seconds
    except (TypeError, ValueError):
        return False  # an httpx.Timeout says more than one number


def _tells_usage_if_asked(
    call: RouterCall, deployment: Deployment, request: dict[str, Any]
) -> bool:
    params, original = deployment["litellm_params"], call.request
    is_chat = "messages" in original and not call.endpoint.is_generic
    if not is_chat or request.get("stream") is not True:
        return False
    if request.get("stream_options") or params.get("stream_options"):
        return False
    model, (_, provider) = str(params["model"]), model_of(deployment)
    return "stream_options" in (litellm.get_supported_openai_params(model, provider) or ())
