"""LiteLLM's own loop, resumed: what stands in for some methods of one Router instance.

LiteLLM has no public hook that sees the exception before it asks again; these methods are where it
decides. Each asks LiteLLM's own method for calls that are not ours.

=============================================  ============================================
``async_function_with_fallbacks``              a call begins and ends
``function_with_fallbacks``                    a broken sync stream is not started over
``should_retry_this_error``                    may the next target be asked?
``_time_to_sleep_before_retry``                how long before that: mostly 0
``async_function_with_fallbacks_common_utils``  the error goes out, or, where a stream broke
                                               before content, the call goes on
``_filter_cooldown_deployments``               may a deployment that LiteLLM cools down be asked?
``_reset_custom_routing_strategy``             ``update_settings`` must not remove the strategy
=============================================  ============================================
"""

# LiteLLM's objects and dicts have whatever shape they have; what comes out of here is typed.
# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false

from __future__ import annotations

import functools
import inspect
import weakref
from typing import TYPE_CHECKING, Any

from honcho_fallback_litellm._answers import add_headers, attach
from honcho_fallback_litellm._call import CURRENT, Call
from honcho_fallback_litellm._requests import begin, prepare, restore
from honcho_fallback_litellm._router import core_of, own
from honcho_fallback_litellm._streams import is_stream, managed_stream

if TYPE_CHECKING:
    from collections.abc import Callable

    from honcho_fallback_litellm._router import Deployment
    from honcho_fallback_litellm._strategy import FallbackRoutingStrategy

REPLACED = (
    "async_function_with_fallbacks",
    "function_with_fallbacks",
    "async_function_with_fallbacks_common_utils",
    "should_retry_this_error",
    "_time_to_sleep_before_retry",
    "_filter_cooldown_deployments",
    "_reset_custom_routing_strategy",
)
_REOPENED = "honcho_fallback_reopened"
# What this LiteLLM may lack without harm to a call.
OPTIONAL = frozenset({"_reset_custom_routing_strategy", "function_with_fallbacks"})


class StreamBrokeError(Exception):
    """Stop LiteLLM from starting a broken stream over at the primary (sync, before 1.106)."""


class Gates:
    """Stand in for methods of one Router.

    Args:
        router: Held weakly.
        strategy: Knows the chains.
    """

    def __init__(self, router: Any, strategy: FallbackRoutingStrategy) -> None:
        self._core = weakref.ref(core_of(router))
        self._strategy = strategy

    @property
    def core(self) -> Any:
        """Return the router's core."""
        core = self._core()
        if core is None:
            # Not a RuntimeError: LiteLLM's sync wrapper would run the whole call again.
            raise ReferenceError("the Router of this FallbackRoutingStrategy is gone")
        return core

    def install(self) -> list[str]:
        """Put the gates into their places and return the names that this LiteLLM does not have."""
        core = self.core
        missing: list[str] = []
        for name in REPLACED:
            if not hasattr(type(core), name):
                missing.append(name)
                continue
            setattr(core, name, getattr(self, name.removeprefix("_")))
        return missing

    def installed(self) -> bool:
        """Tell whether they are in their places."""
        method = vars(self.core).get("should_retry_this_error")
        return getattr(method, "__self__", None) is self

    async def async_function_with_fallbacks(self, *args: Any, **kwargs: Any) -> Any:
        """Begin a call of ours, and end it."""
        core = self.core
        # LiteLLM may run this in a thread of its own, where the ContextVar is unknown.
        reopened: Call | None = kwargs.pop(_REOPENED, None)
        if reopened is not None:
            token = CURRENT.set(reopened)
            try:
                return await self._ask(reopened, args, kwargs)
            finally:
                CURRENT.reset(token)
        self._refuse_restart()
        chain = self._strategy.chain_of(core, kwargs)
        if chain is None:
            token = CURRENT.set(None)
            try:
                return await own(core, "async_function_with_fallbacks")(*args, **kwargs)
            finally:
                CURRENT.reset(token)
        return await self._call(begin(core, chain, kwargs), args, kwargs)

    def function_with_fallbacks(self, *args: Any, **kwargs: Any) -> Any:
        """Begin a sync call, in this thread: inside a loop the rest runs in another one."""
        if _REOPENED not in kwargs:
            self._refuse_restart()
        return own(self.core, "function_with_fallbacks")(*args, **kwargs)

    def _refuse_restart(self) -> None:
        call = self._current()
        if call is not None and not call.ended and call.streaming:
            raise StreamBrokeError

    async def _call(self, call: Call, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        token = CURRENT.set(call)
        try:
            answer = await self._ask(call, args, kwargs)
        except BaseException as error:
            call.close(error)
            raise
        finally:
            CURRENT.reset(token)
            await call.leave()
        if is_stream(answer) and not call.ended:
            call.streaming = True
            attach(answer, call.record, call.run.attempt.target.name)
            return managed_stream(answer, call, self)
        attach(answer, call.record)
        return answer

    async def _ask(self, call: Call, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        prepare(call, kwargs)
        kwargs["original_function"] = _reporting(call, kwargs["original_function"])
        return await own(self.core, "async_function_with_fallbacks")(*args, **kwargs)

    async def areopen(self, call: Call) -> Any:
        """Ask the next target for a stream, in this task."""
        kwargs = dict(call.request)
        answer = await self._ask(call, (), kwargs)
        # The Proxy (since 1.106) takes its headers from here, where LiteLLM itself goes on.
        add_headers(answer, call.record, call.run.attempt.target.name)
        return answer

    def reopen(self, call: Call) -> Any:
        """Ask the next target for a stream, in this thread."""
        return self.core.function_with_fallbacks(**call.request, **{_REOPENED: call})

    def should_retry_this_error(self, error: Exception, *args: Any, **kwargs: Any) -> Any:
        """Let the machine decide whether another target is asked."""
        call = self._current()
        if call is None:
            return own(self.core, "should_retry_this_error")(error, *args, **kwargs)
        if call.report(error):
            return True
        raise error

    def time_to_sleep_before_retry(self, *args: Any, **kwargs: Any) -> Any:
        """Wait as long as the machine says: 0 on a switch."""
        call = self._current()
        if call is None:
            return own(self.core, "_time_to_sleep_before_retry")(*args, **kwargs)
        return 0 if call.ended else call.run.attempt.wait

    async def async_function_with_fallbacks_common_utils(
        self, e: Exception, *args: Any, **kwargs: Any
    ) -> Any:
        """Let the error out, or go on with a stream that broke before content."""
        call = self._current()
        original = own(self.core, "async_function_with_fallbacks_common_utils")
        if call is None:
            return await original(e, *args, **kwargs)
        goes_on = call.report(e)
        if goes_on and call.streaming:
            return await self.areopen(call)
        arguments = inspect.signature(original).bind(e, *args, **kwargs).arguments
        if not goes_on and _fallbacks_apply(call, e, arguments):
            restore(call, arguments["kwargs"])
            return await original(e, *args, **kwargs)
        raise call.last_error or e

    def filter_cooldown_deployments(
        self, healthy_deployments: list[Deployment], cooldown_deployments: Any
    ) -> list[Deployment]:
        """Apply LiteLLM's cooldowns, unless the strategy ignores them or no target is left."""
        original = own(self.core, "_filter_cooldown_deployments")
        available: list[Deployment] = original(
            healthy_deployments=healthy_deployments, cooldown_deployments=cooldown_deployments
        )
        return self._strategy.in_rotation(healthy_deployments, available, self._current())

    def reset_custom_routing_strategy(self) -> None:
        """Stay: a change of LiteLLM's own strategy is for the groups that are not ours."""

    def _current(self) -> Call | None:
        call = CURRENT.get()
        return call if call is not None and call.core is self.core else None


def _fallbacks_apply(call: Call, error: Exception, arguments: dict[str, Any]) -> bool:
    """Tell whether the user's own ``fallbacks`` to other groups are for this error."""
    if call.reach < len(call.chain.ids):
        return False  # it must not degrade
    kind = type(error).__name__
    if kind == "ContextWindowExceededError" and arguments.get("context_window_fallbacks"):
        return True
    if kind == "ContentPolicyViolationError" and arguments.get("content_policy_fallbacks"):
        return True
    return call.record.outcome == "exhausted" and bool(arguments.get("fallbacks"))


def _reporting(call: Call, original: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap the function of one attempt: tell the machine what became of it."""

    @functools.wraps(original)
    def ask(*args: Any, **kwargs: Any) -> Any:
        try:
            answer = original(*args, **kwargs)
        except Exception as error:
            call.report(error)
            raise
        return _awaited(call, answer) if inspect.isawaitable(answer) else _accepted(call, answer)

    return ask


async def _awaited(call: Call, awaitable: Any) -> Any:
    try:
        call.be_patient()
        answer = await call.bear(awaitable)
    except Exception as error:
        call.report(error)
        raise
    return _accepted(call, answer)


def _accepted(call: Call, answer: Any) -> Any:
    if not is_stream(answer):
        call.accept(answer)
    return answer
