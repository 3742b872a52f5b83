"""What is changed in a request of ours, and what is read from it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import litellm

from honcho_fallback import call_metadata
from honcho_fallback_litellm._call import RouterCall
from honcho_fallback_litellm._chain import model_of
from honcho_fallback_litellm._history import accepted_chat, accepted_items, has_unsigned_call
from honcho_fallback_litellm._router import setting

if TYPE_CHECKING:
    from honcho_fallback import ConfigOptions, FallbackConfig
    from honcho_fallback_litellm._chain import Chain
    from honcho_fallback_litellm._router import Deployment

_PARAMETERS = (
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
_REHEARSALS = frozenset(
    {
        "mock_testing_fallbacks",
        "mock_testing_context_fallbacks",
        "mock_testing_content_policy_fallbacks",
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


NO_RETRIES = _Zero()


def begin(core: Any, chain: Chain, request: dict[str, Any]) -> RouterCall:
    """Start the run of a call.

    A request opts out of switching with ``num_retries=0`` or ``disable_fallbacks=True``, with
    ``must_not_degrade`` in its metadata of anything but the primary and with ``require`` there of
    deployments without some tags, and may ask for fewer attempts; more than the policy allows it
    cannot get.
    """
    config, wants_content = chain.config, chain.policy.wants_content
    options = _options_of(request, config)
    metadata = _metadata_of(request)
    if options or metadata:
        run = chain.policy.start(metadata=metadata, **options)
    else:
        run = chain.policy.start()
    if wants_content:
        messages = request.get("messages")
        run.report(
            input=request.get("input", request.get("prompt")) if messages is None else messages,
            parameters={name: request[name] for name in _PARAMETERS if name in request},
        )
    limit = options.get("max_attempts", config.max_attempts) or 1
    if options.get("transport_recovery", config.transport_recovery):
        limit += 1  # the one more request that a recovery is worth
    degrades = not options.get("must_not_degrade", config.must_not_degrade)
    # LiteLLM's rehearsals of a failure are for the first request; a stream may be opened again.
    kept = {name: value for name, value in request.items() if name not in _REHEARSALS}
    required = options.get("require", config.require)
    targets = chain.policy.targets if degrades else chain.policy.targets[:1]
    allowed = tuple(n for n, target in enumerate(targets) if target.labels >= required)
    return RouterCall(chain, run, core, kept, limit, allowed, wants_content)


def _options_of(request: dict[str, Any], config: FallbackConfig) -> ConfigOptions:
    """Read what a request wants otherwise."""
    options: ConfigOptions = {}
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
    return options


def _metadata_of(request: dict[str, Any]) -> dict[str, Any] | None:
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


def prepare(call: RouterCall, request: dict[str, Any]) -> None:
    """See to it that LiteLLM asks as often as the machine may want, and nobody else asks again."""
    group = str(request.get("model"))
    request["num_retries"] = max(0, call.limit - call.attempt.number)
    request["max_retries"] = NO_RETRIES
    # An empty policy of the group's own: the Router's retry_policy would skip the classifier.
    request["model_group_retry_policy"] = {group: litellm.RetryPolicy()}


def restore(call: RouterCall, request: dict[str, Any]) -> None:
    """Undo what was changed, before the request goes to a group that is not ours."""
    for name in ("num_retries", "max_retries", "model_group_retry_policy", "original_function"):
        if name in call.request:
            request[name] = call.request[name]
        else:
            request.pop(name, None)


def equip(call: RouterCall, core: Any, deployment: Deployment, request: dict[str, Any]) -> None:
    """Add to a request what depends on the target: history, timeout, the option for usage."""
    if call.chain.strangers:
        _give_history(call, deployment["litellm_params"], request)
    if call.time_limit is not None:
        call.restart_time_limit()
    _give_time(call, core, deployment["litellm_params"], request)
    if _tells_usage_if_asked(call, deployment, request):
        request["stream_options"] = {"include_usage": True}
        call.hides_usage = True


def _give_history(call: RouterCall, params: dict[str, Any], request: dict[str, Any]) -> None:
    """Write what was said before as this deployment's provider accepts it."""
    position = call.attempt.position
    provider, is_stranger = call.chain.providers[position], position in call.chain.strangers
    messages, items = call.request.get("messages"), call.request.get("input")
    # What stands in the request goes before the messages that LiteLLM passes on by themselves.
    if "original_generic_function" in call.request:
        if isinstance(items, list):
            request["input"] = accepted_items(items, provider, is_stranger=is_stranger)
    elif messages:
        request["messages"] = messages = accepted_chat(messages, provider)
        thinks = any(request.get(name) or params.get(name) for name in _THINKING)
        if thinks and provider.family == "anthropic" and has_unsigned_call(messages):
            request.update(dict.fromkeys(_THINKING))


def _give_time(
    call: RouterCall, core: Any, params: dict[str, Any], request: dict[str, Any]
) -> None:
    """Hand the attempt's time to LiteLLM, where nobody else has set one, or has set a longer one.

    The latter only where time is short: under a deadline, and in streams that LiteLLM reads in a
    thread, where nothing but its own timeout ends a silence.
    """
    attempt, config = call.attempt, call.chain.config
    streaming = request.get("stream") is True
    seconds, is_short = attempt.timeout, config.deadline is not None
    if streaming and call.blocking and config.first_token_timeout is not None:
        seconds, is_short = attempt.stream_timeout, True
    names = ("stream_timeout", *_TIMEOUTS) if streaming else _TIMEOUTS
    timeout = _timeout_of(core, names, params, request)
    if seconds is None or (
        timeout is not None and not (is_short and _is_longer(timeout, seconds))
    ):
        return
    # LiteLLM asks for the first of these names everywhere before it asks for the next.
    request[names[0]] = seconds


def _timeout_of(
    core: Any, names: tuple[str, ...], params: dict[str, Any], request: dict[str, Any]
) -> Any:
    """Find the timeout that LiteLLM would take."""
    # The Router fills in LiteLLM's own default where its user sets no timeout.
    default: Any = getattr(litellm, "request_timeout", None)
    for some in (names[:1], names[1:]) if len(names) > len(_TIMEOUTS) else (names,):
        timeouts = [place.get(name) for place in (request, params) for name in some]
        timeouts += [value for name in some if (value := setting(core, name)) != default]
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
    is_chat = "messages" in original and "original_generic_function" not in original
    if not is_chat or request.get("stream") is not True:
        return False
    if request.get("stream_options") or params.get("stream_options"):
        return False
    model, (_, provider) = str(params["model"]), model_of(deployment)
    return "stream_options" in (litellm.get_supported_openai_params(model, provider) or ())
