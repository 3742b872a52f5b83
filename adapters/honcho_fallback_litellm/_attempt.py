"""One attempt: an ordinary call of LiteLLM's own endpoint, narrowed to one deployment."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import litellm

from honcho_fallback_litellm._chain import model_of
from honcho_fallback_litellm._failures import restore_context
from honcho_fallback_litellm._history import accepted_chat, accepted_items, has_unsigned_call
from honcho_fallback_litellm._request import NARROWED, ONE_REQUEST, REHEARSALS
from honcho_fallback_litellm._stream import carries, events_of, is_stream

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from honcho_fallback import Attempt
    from honcho_fallback_litellm._call import RouterCall
    from honcho_fallback_litellm._router import Deployment

_THINKING = ("thinking", "reasoning_effort")
_TIMEOUTS = ("timeout", "request_timeout")


class Asking:
    """Ask LiteLLM for the attempts of one call.

    Args:
        call: Whose they are.
    """

    __slots__ = ("_call",)

    def __init__(self, call: RouterCall) -> None:
        self._call = call

    async def whole_in_task(self, attempt: Attempt) -> Any:
        """Ask LiteLLM for one deployment's answer, in this task."""
        self._call.attempt = attempt
        try:
            return await self._call.own(**request_for(self._call, attempt))
        except Exception as error:
            self._call.note(attempt, error)
            raise

    def whole(self, attempt: Attempt) -> Any:
        """Ask LiteLLM for one deployment's answer, in this thread."""
        self._call.attempt = attempt
        try:
            return self._call.own(**request_for(self._call, attempt))
        except Exception as error:
            restore_context(error)
            self._call.note(attempt, error)
            raise

    async def stream_in_task(self, attempt: Attempt) -> AsyncIterator[Any]:
        """Ask LiteLLM for one deployment's stream, in this task."""
        self._call.opened = answer = await self.whole_in_task(attempt)
        if not is_stream(answer):
            return _once(answer)
        is_messages = "anthropic" in self._call.endpoint.name
        return events_of(answer, attempt) if is_messages else answer

    def stream(self, attempt: Attempt) -> Iterator[Any]:
        """Ask LiteLLM for one deployment's stream, in this thread."""
        self._call.opened = answer = self.whole(attempt)
        return answer if is_stream(answer) else iter((answer,))

    def is_content(self, chunk: Any) -> bool:
        """Tell whether a chunk is worth handing out; what came in place of a stream is."""
        return chunk is self._call.opened or carries(chunk)


async def _once(answer: Any) -> AsyncIterator[Any]:
    yield answer


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
