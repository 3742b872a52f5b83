"""The same on the LiteLLM Proxy: a callback that LiteLLM loads from its YAML.

It registers a FallbackRoutingStrategy with the Proxy's Router when the Proxy starts, and again
when the Proxy has made a new Router. Everything is as with a Router of one's own. That the Router
is found as a global of the Proxy is not documented.

What the start relies on: the Proxy (1.108 to 1.110) loads the callbacks of its YAML inside its
lifespan, on the event loop of the process that will serve, before it makes its Router. So the
handler loads there what the first failure would load, and leaves a task behind that registers as
soon as the Router exists. None of LiteLLM's hooks is called at the start. Where a handler is
made anywhere else, or the task finds no Router, ``async_pre_call_hook``, which LiteLLM calls
before it routes a request, registers; it does so as well for a Router that the Proxy makes later.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from contextlib import suppress
from functools import partial
from itertools import chain
from math import ceil
from typing import TYPE_CHECKING, Any

import litellm
from litellm.integrations.custom_logger import CustomLogger

from honcho_fallback import CallRecord, FallbackConfigError, check_observers
from honcho_fallback_litellm._responses import headers_of
from honcho_fallback_litellm._router import groups_of
from honcho_fallback_litellm._strategy import FallbackRoutingStrategy
from honcho_fallback_litellm._warm import warm_up

if TYPE_CHECKING:
    from collections.abc import Iterable

    from honcho_fallback import FallbackConfig, FallbackObserver

logger = logging.getLogger("honcho_fallback")

_PROXY = "litellm.proxy.proxy_server"
_HEADERS = "honcho_fallback_headers"
_NO_ROUTER = (
    "the Proxy has no Router, or this LiteLLM keeps it elsewhere than in "
    f"{_PROXY}.llm_router; give the YAML a model_list, use litellm>=1.108"
)
# As LiteLLM writes its own lines.
_LINES = "%(asctime)s - %(name)s:%(levelname)s: %(message)s"
_ROUTER_WITHIN = 60.0
_LOOKS_EVERY = 0.02


class FallbackProxyHandler(CustomLogger):
    """Make the ranked groups of a Proxy chains, from its YAML.

    The Proxy's ``/active/callbacks`` shows whether that worked. Where no chain can be made, an
    ERROR says so, and LiteLLM alone routes the ranked groups.

    Args:
        config: As for FallbackRoutingStrategy.
        observers: Objects that receive each call's events, beside those of ``set_observers``.
        respect_cooldown: As for FallbackRoutingStrategy.

    Raises:
        FallbackConfigError: An option is one that cannot work here.
    """

    def __init__(
        self,
        config: FallbackConfig | None = None,
        *,
        observers: Iterable[FallbackObserver] = (),
        respect_cooldown: bool | None = None,
    ) -> None:
        super().__init__()
        self._make_strategy = partial(
            FallbackRoutingStrategy,
            config,
            observers=check_observers(observers),
            respect_cooldown=respect_cooldown,
        )
        self._strategy = self._make_strategy()
        self._attached: Any = None
        self._refused: object = None
        self._trouble: str | None = None
        self._starting = self._begin()

    def __str__(self) -> str:
        """Say for ``/active/callbacks`` whether the chains are in force."""
        if self._trouble is not None:
            state = f"NO CHAINS, LiteLLM alone routes the ranked groups: {self._trouble}"
        elif self._attached is None:
            state = "waits for the Router"
        else:
            state = f"chains in force, {self._strategy.registration}"
        return f"{type(self).__name__}: {state}"

    def attach(self, router: Any) -> bool:
        """Register with the Proxy's Router, unless that is done; tell whether that worked."""
        if router is None:
            self._report(_NO_ROUTER)
            return False
        if self._strategy.is_registered(router):
            return True
        deployments = groups_of(router)
        if self._trouble is not None and deployments == self._refused:
            return False
        if router is not self._attached:
            self._strategy = self._make_strategy()  # the Proxy has a new Router
        try:
            # What is loaded ahead, and with whose callbacks silent, is loaded at the start alone.
            self._strategy.register(router, warm=False)
        except Exception as error:  # noqa: BLE001 # what a LiteLLM to come may raise must not fail requests
            is_ours = isinstance(error, FallbackConfigError)
            self._attached, self._refused = router, deployments
            self._report(str(error) if is_ours else f"{type(error).__name__} in register")
            return False
        if self._trouble is not None:
            logger.warning("the ranked groups of this Proxy are chains now")
        self._attached, self._refused, self._trouble = router, None, None
        return True

    async def async_pre_call_hook(self, *_: Any, **__: Any) -> None:
        """See to it that the strategy is registered before this request is routed."""
        self.attach(_router())

    async def async_post_call_failure_hook(
        self, request_data: dict[str, Any], original_exception: Exception, *_: Any, **__: Any
    ) -> None:
        """Keep what an error's record says for the hook below, which gets the same request."""
        record = getattr(original_exception, "record", None)
        if isinstance(record, CallRecord):
            request_data[_HEADERS] = headers = headers_of(record)
            # When the first of those that failed may answer again, where one has said so.
            waits = [one.retry_after for one in record.attempts if one.retry_after is not None]
            if waits:
                headers["retry-after"] = str(ceil(min(waits)))

    async def async_post_call_response_headers_hook(
        self, data: dict[str, Any], *_: Any, response: Any = None, **__: Any
    ) -> dict[str, str] | None:
        """Return the headers of an error's response; an answer brings its own."""
        return data.pop(_HEADERS, None) if response is None else None

    def _begin(self) -> asyncio.Task[None] | None:
        """Prepare for the first request, where the Proxy is starting."""
        if _PROXY not in sys.modules:
            return None
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            return None
        if not logger.hasHandlers():  # nobody would see when a line was written, nor an INFO
            handler = logging.StreamHandler()
            handler.setFormatter(logging.Formatter(_LINES))
            logger.addHandler(handler)
            logger.setLevel(logging.INFO)
        warm_up()  # before the Proxy listens: nobody waits for it
        return loop.create_task(self._start())

    async def _start(self) -> None:
        """Register once the Router is there, if this handler is one of the Proxy's callbacks."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_ROUTER_WITHIN):
                while _router() is None:  # noqa: ASYNC110 # LiteLLM sets no event
                    await asyncio.sleep(_LOOKS_EVERY)
        is_called = any(one is self for one in litellm.callbacks)
        if is_called and self.attach(_router()) and self._strategy.registration is not None:
            warm_up(chain.from_iterable(self._strategy.registration.chains.values()))

    def _report(self, trouble: str) -> None:
        if trouble != self._trouble:
            self._trouble = trouble
            logger.error("%s", self)


def _router() -> Any:
    return getattr(sys.modules.get(_PROXY), "llm_router", None)


proxy_handler = FallbackProxyHandler()
