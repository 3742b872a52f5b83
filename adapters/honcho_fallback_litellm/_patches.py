"""LiteLLM's own loop, resumed: what stands in for some methods of one Router instance.

LiteLLM has no public hook that sees the exception before it asks again; these methods are where it
decides. They are replaced on the instance, never on LiteLLM's class; each asks LiteLLM's own
method for calls that are not ours. Where a LiteLLM lacks one, registration says so at ERROR,
except for the optional ones.

=============================================  ===================================================
method, and what its replacement is for        on a LiteLLM that lacks it
=============================================  ===================================================
``async_function_with_fallbacks``              LiteLLM retries as without the strategy; only the
a call begins and ends                         order of the ranks is kept, nothing is recorded
``should_retry_this_error``                    LiteLLM decides by class of error whether the next
may the next target be asked?                  target is asked
``_time_to_sleep_before_retry``                LiteLLM's back-off precedes a switch where a group
how long before that: mostly 0                 has one healthy deployment
``async_function_with_fallbacks_common_utils``  a stream that breaks before content goes to other
the error goes to the Router's own lists of    groups, not down the chain
other groups, or a broken stream goes on
``_filter_cooldown_deployments``               LiteLLM's cooldowns hold, also where all targets
may a deployment that cools down be asked?     cool down or ``respect_cooldown`` is False
``_async_get_healthy_deployments`` (optional)  a switch waits for a look at all deployments, in
the questions above need no deployments        Redis where the Router has one
``_maybe_run_weighted_failover`` (optional)    nothing: there is no weighted failover, which would
a chain at its end does not begin again        ask the deployments of the same group once more
``_reset_custom_routing_strategy`` (optional)  ``update_settings`` removes the strategy, or, where
the strategy stays when settings change        LiteLLM has no such method, leaves it alone
=============================================  ===================================================
"""

from __future__ import annotations

import functools
import inspect
import weakref
from types import MethodType
from typing import TYPE_CHECKING, Any

from honcho_fallback_litellm._answers import add_headers, attach, deployment_of
from honcho_fallback_litellm._call import (
    RouterCall,
    current_call,
    provider_error,
    working_for,
)
from honcho_fallback_litellm._request import prepare, restore
from honcho_fallback_litellm._router import function_of, gone
from honcho_fallback_litellm._stream import is_stream, managed_stream

if TYPE_CHECKING:
    from collections.abc import Callable

    from honcho_fallback_litellm._router import Deployment

# What a LiteLLM may lack without harm to a call.
OPTIONAL = (
    "_async_get_healthy_deployments",
    "_maybe_run_weighted_failover",
    "_reset_custom_routing_strategy",
)
REPLACED = (
    "async_function_with_fallbacks",
    "should_retry_this_error",
    "_time_to_sleep_before_retry",
    "async_function_with_fallbacks_common_utils",
    "_filter_cooldown_deployments",
    *OPTIONAL,
)
_REOPENED = "honcho_fallback_reopened"


class RouterPatches:
    """Stand in for methods of one Router.

    Args:
        core: The object that routes; held weakly.
        begin: Starts the call of a request, or returns None where it is LiteLLM's.
        in_rotation: Returns which deployments may be asked, given all of them, those that LiteLLM
            does not cool down, and the call.
    """

    def __init__(
        self,
        core: Any,
        begin: Callable[[Any, dict[str, Any]], RouterCall | None],
        in_rotation: Callable[
            [list[Deployment], list[Deployment], RouterCall | None], list[Deployment]
        ],
    ) -> None:
        self._core = weakref.ref(core)
        self._begin = begin
        self._in_rotation = in_rotation
        # LiteLLM's own methods, as functions: a bound one would hold the core.
        present = [name for name in REPLACED if hasattr(type(core), name)]
        self._own = {name: function_of(core, name) for name in present}

    @property
    def core(self) -> Any:
        """Return the router's core.

        Raises:
            ReferenceError: The Router is gone.
        """
        core = self._core()
        return gone() if core is None else core

    def install(self) -> list[str]:
        """Replace the methods, and return the names that this LiteLLM does not have."""
        core = self.core
        for name in self._own:
            setattr(core, name, getattr(self, name.removeprefix("_")))
        return [name for name in REPLACED if name not in self._own]

    def _original(self, name: str) -> Any:
        return MethodType(self._own[name], self.core)

    @classmethod
    def are_installed(cls, core: Any) -> bool:
        """Tell whether a Router's methods are replaced."""
        method = vars(core).get("should_retry_this_error")
        return isinstance(getattr(method, "__self__", None), cls)

    # A call.

    async def async_function_with_fallbacks(self, *args: Any, **kwargs: Any) -> Any:
        """Begin a call of ours, and end it."""
        core = self.core
        # LiteLLM may run this in a thread of its own, where the ContextVar is unknown.
        reopened: RouterCall | None = kwargs.pop(_REOPENED, None)
        if reopened is None:
            call = self._begin(core, kwargs)
            if call is not None:
                return await self._call(call, args, kwargs)
        with working_for(reopened):
            if reopened is not None:
                return await self._ask(reopened, args, kwargs)
            return await self._own["async_function_with_fallbacks"](core, *args, **kwargs)

    async def _call(self, call: RouterCall, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        try:
            with working_for(call):
                answer = await self._ask(call, args, kwargs)
        except BaseException as error:
            call.close(error)
            raise
        finally:
            await call.publish()
        if call.ended:
            # Of an answer that is not the chain's, one of the Router's own lists says whose it is.
            is_ours = call.run.outcome == "success"
            attach(answer, call.run.record, None if is_ours else deployment_of(answer))
            return answer
        call.streaming = True
        attach(answer, call.run.record, call.attempt.target.name)
        return managed_stream(answer, call, self._reopen, self._areopen)

    async def _ask(self, call: RouterCall, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        prepare(call, kwargs)
        kwargs["original_function"] = _reporting(call, kwargs["original_function"])
        return await self._original("async_function_with_fallbacks")(*args, **kwargs)

    async def _areopen(self, call: RouterCall) -> Any:
        """Ask the next target for a stream, in this task."""
        answer = await self._ask(call, (), dict(call.request))
        if not call.ended:
            # The Proxy takes its headers from here, where LiteLLM itself goes on.
            add_headers(answer, call.run.record, call.attempt.target.name)
        return answer

    def _reopen(self, call: RouterCall) -> Any:
        """Ask the next target for a stream, in this thread."""
        return self.core.function_with_fallbacks(**call.request, **{_REOPENED: call})

    # LiteLLM's questions after a failure.

    def should_retry_this_error(self, error: Exception, *args: Any, **kwargs: Any) -> Any:
        """Let the machine decide whether another target is asked."""
        call = current_call(self.core)
        if call is None:
            return self._original("should_retry_this_error")(error, *args, **kwargs)
        # Known already, unless LiteLLM raised it in place of an attempt (mock_testing_...).
        call.report(error)
        if call.goes_on:
            return True
        raise error

    def time_to_sleep_before_retry(self, *args: Any, **kwargs: Any) -> Any:
        """Wait as long as the machine says: 0 on a switch."""
        call = current_call(self.core)
        if call is None:
            return self._original("_time_to_sleep_before_retry")(*args, **kwargs)
        return 0 if call.ended else call.attempt.wait

    async def async_get_healthy_deployments(self, *args: Any, **kwargs: Any) -> Any:
        """Look nobody up for the two questions above: the machine has decided already."""
        if current_call(self.core) is not None:
            return [], []
        return await self._original("_async_get_healthy_deployments")(*args, **kwargs)

    async def async_function_with_fallbacks_common_utils(
        self, e: Exception, *args: Any, **kwargs: Any
    ) -> Any:
        """Go on with a stream that broke before content, or leave it to the Router's own lists."""
        call = current_call(self.core)
        original = self._original("async_function_with_fallbacks_common_utils")
        if call is None:
            return await original(e, *args, **kwargs)
        # LiteLLM reads its stream inside a stream of its own, which asks here; or it rehearses a
        # failure before any attempt (mock_testing_fallbacks).
        if call.streaming or call.last_error is None:
            call.report(e)
            if call.goes_on:
                return await self._areopen(call)
        if call.is_for_routers_fallbacks:
            restore(call, inspect.signature(original).bind(e, *args, **kwargs).arguments["kwargs"])
            return await original(e, *args, **kwargs)
        raise provider_error(e)

    def filter_cooldown_deployments(
        self, healthy_deployments: list[Deployment], cooldown_deployments: Any
    ) -> list[Deployment]:
        """Apply LiteLLM's cooldowns, unless the strategy ignores them or no target is left."""
        available: list[Deployment] = self._original("_filter_cooldown_deployments")(
            healthy_deployments=healthy_deployments, cooldown_deployments=cooldown_deployments
        )
        return self._in_rotation(healthy_deployments, available, current_call(self.core))

    async def maybe_run_weighted_failover(self, *args: Any, **kwargs: Any) -> Any:
        """Ask nobody of a chain again that has come to its end."""
        if current_call(self.core) is not None:
            return None
        return await self._original("_maybe_run_weighted_failover")(*args, **kwargs)

    def reset_custom_routing_strategy(self) -> None:
        """Stay: a change of LiteLLM's own strategy is for the groups that are not ours."""


def _reporting(call: RouterCall, original: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap the function of one attempt: tell the machine what became of it."""

    @functools.wraps(original)
    def attempt(*args: Any, **kwargs: Any) -> Any:
        try:
            answer = original(*args, **kwargs)
        except Exception as error:
            call.report(error)
            raise
        return _awaited(call, answer) if inspect.isawaitable(answer) else _accepted(call, answer)

    return attempt


async def _awaited(call: RouterCall, awaitable: Any) -> Any:
    try:
        call.restart_time_limit()
        answer = await call.within_time(awaitable)
    except Exception as error:
        call.report(error)
        raise
    return _accepted(call, answer)


def _accepted(call: RouterCall, answer: Any) -> Any:
    if not (call.wants_stream and is_stream(answer)):
        call.accept(answer)
    return answer
