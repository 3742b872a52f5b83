"""What is changed in a request of ours, and what is read from it."""

# LiteLLM's objects and dicts have whatever shape they have; what comes out of here is typed.
# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import litellm

from honcho_fallback_litellm._call import Call
from honcho_fallback_litellm._chain import provider_of
from honcho_fallback_litellm._router import setting

if TYPE_CHECKING:
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
_TIMEOUTS = ("timeout", "request_timeout")


class _Zero(int):
    """Be 0 and true: LiteLLM's embeddings read ``max_retries or 2``."""

    def __bool__(self) -> bool:
        return True


NO_RETRIES = _Zero()


def begin(core: Any, chain: Chain, request: dict[str, Any]) -> Call:
    """Start the run of a call.

    A request opts out of switching with ``num_retries=0`` or ``disable_fallbacks=True``, and may
    ask for fewer attempts; more than the policy allows it cannot get.

    Args:
        core: The router's core.
        chain: Whom to ask.
        request: The keyword arguments of the call.
    """
    limit = chain.policy.config.max_attempts or 1
    asked = request.get("num_retries")
    wanted = limit
    if request.get("disable_fallbacks") is True:
        wanted = 1
    elif isinstance(asked, int):
        wanted = max(1, min(limit, asked + 1))
    run = chain.policy.start() if wanted == limit else chain.policy.start(max_attempts=wanted)
    if run.wants_content:
        told = request.get("messages")
        run.tell(
            input=request.get("input", request.get("prompt")) if told is None else told,
            parameters={name: request[name] for name in _PARAMETERS if name in request},
        )
    return Call(chain, run, core, dict(request), wanted)


def prepare(call: Call, request: dict[str, Any]) -> None:
    """See to it that LiteLLM asks as often as the machine may want, and nobody else asks again.

    Args:
        call: Ours.
        request: Its keyword arguments, as LiteLLM is about to take them; changed in place.
    """
    group = str(request.get("model"))
    request["num_retries"] = max(0, call.limit - call.run.attempt.number)
    request["max_retries"] = NO_RETRIES
    # An empty policy of the group's own: the Router's retry_policy would skip the classifier.
    request["model_group_retry_policy"] = {group: litellm.RetryPolicy()}


def restore(call: Call, request: dict[str, Any]) -> None:
    """Undo what was changed, before the request goes to a group that is not ours.

    Args:
        call: Ours, now over.
        request: Keyword arguments that LiteLLM goes on with; changed in place.
    """
    for name in ("num_retries", "max_retries", "model_group_retry_policy", "original_function"):
        if name in call.request:
            request[name] = call.request[name]
        else:
            request.pop(name, None)


def equip(call: Call | None, core: Any, deployment: Deployment, request: dict[str, Any]) -> None:
    """Add to a request what depends on the target: the timeout, and asking for a stream's usage.

    Args:
        call: Ours, or None.
        core: The router's core.
        deployment: That is asked.
        request: The keyword arguments of this attempt; changed in place.
    """
    if call is None:
        return
    params = deployment["litellm_params"]
    timeout = call.run.attempt.timeout
    if timeout is not None and not _has_timeout(core, params, request):
        request["timeout"] = timeout
    if _may_tell_usage(call, params, request) and _knows_usage(deployment):
        request["stream_options"] = {"include_usage": True}
        call.hides_usage = True


def _has_timeout(core: Any, params: dict[str, Any], request: dict[str, Any]) -> bool:
    names = (*_TIMEOUTS, "stream_timeout") if request.get("stream") else _TIMEOUTS
    if any(request.get(name) is not None or params.get(name) is not None for name in names):
        return True
    # The Router fills in LiteLLM's own default where it was given none.
    default: Any = getattr(litellm, "request_timeout", None)
    return any(setting(core, name) not in {None, default} for name in names)


def _may_tell_usage(call: Call, params: dict[str, Any], request: dict[str, Any]) -> bool:
    asked = call.request
    is_chat = "messages" in asked and "original_generic_function" not in asked
    return (
        is_chat
        and request.get("stream") is True
        and not (request.get("stream_options") or params.get("stream_options"))
    )


def _knows_usage(deployment: Deployment) -> bool:
    model = str(deployment["litellm_params"]["model"])
    known = litellm.get_supported_openai_params(model, provider_of(deployment)) or []
    return "stream_options" in known
