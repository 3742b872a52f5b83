"""The same on the LiteLLM Proxy: a callback that LiteLLM loads from its YAML.

Two ways, the better one first:

the strategy (``proxy_handler``)
    Registers a FallbackRoutingStrategy with the Proxy's Router before a request is routed, and
    again when the Proxy has made a new Router. Everything is as with a Router of one's own. The
    hook is documented; that the Router is found as a global of the Proxy is not.
documented hooks only (``proxy_filter``, and what ``proxy_handler`` falls back to)
    Attempt n sees the n-th deployment alone. LiteLLM decides what is asked again, by class of
    error: the YAML has to say so with ``num_retries`` and ``retry_policy``. No records, no
    observers, and streams recover only where LiteLLM itself would.
"""

# LiteLLM's objects and dicts have whatever shape they have; what comes out of here is typed.
# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false

from __future__ import annotations

import logging
import sys
from typing import TYPE_CHECKING, Any

from litellm.integrations.custom_logger import CustomLogger

from honcho_fallback import FallbackConfigError
from honcho_fallback_litellm._chain import id_of, in_order
from honcho_fallback_litellm._router import attempt_in
from honcho_fallback_litellm._strategy import FallbackRoutingStrategy

if TYPE_CHECKING:
    from collections.abc import Iterable

    from honcho_fallback import FallbackConfig, FallbackObserver
    from honcho_fallback_litellm._router import Deployment


logger = logging.getLogger("honcho_fallback")


class FallbackDeploymentFilter(CustomLogger):
    """Show attempt n of a call the n-th deployment of a ranked group, by LiteLLM's public hook."""

    async def async_filter_deployments(  # LiteLLM's signature
        self,
        model: str,
        healthy_deployments: list[Deployment],
        messages: Any,
        request_kwargs: dict[str, Any] | None = None,
        parent_otel_span: Any = None,
    ) -> list[Deployment]:
        """Narrow the deployments that LiteLLM chooses from.

        Args:
            model: The model group.
            healthy_deployments: Those that may be asked.
            messages: What is asked; not read.
            request_kwargs: The keyword arguments of the call.
            parent_otel_span: LiteLLM's.
        """
        del model, messages, parent_otel_span
        ranked = in_order(healthy_deployments)
        if not ranked or len(ranked) != len(healthy_deployments):
            return healthy_deployments
        attempt = attempt_in(request_kwargs or {})
        ranks = {id_of(one): one["model_info"]["fallback_rank"] for one in ranked}
        later = [one for one in ranked if ranks[id_of(one)] >= attempt]
        return (later or ranked[-1:])[:1]


class FallbackProxyHandler(FallbackDeploymentFilter):
    """Make the ranked groups of a Proxy chains, from its YAML.

    Args:
        config: As for FallbackRoutingStrategy.
        observers: Objects that receive each call's events.
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
        self._config = config
        self._observers = tuple(observers)
        self._respect_cooldown = respect_cooldown
        self._strategy = self._make()
        self._attached: Any = None
        self._refused: Any = None

    def attach(self, router: Any) -> bool:
        """Register with a Router, unless that is done.

        Args:
            router: The Proxy's, or None.

        Returns:
            Whether the strategy is in force; otherwise the filter is.
        """
        if router is None or router is self._refused:
            return False
        if self._strategy.is_registered(router):
            return True
        if router is not self._attached:
            self._strategy = self._make()  # the Proxy has a new Router
        try:
            self._strategy.register(router)
        except FallbackConfigError as error:
            self._refused = router
            logger.error("no chain on this Proxy: %s", error)  # noqa: TRY400 # the message says it all
            return False
        self._attached = router
        return True

    async def async_pre_call_hook(self, *args: Any, **kwargs: Any) -> None:
        """See to it that the strategy is registered before this request is routed.

        Args:
            *args: LiteLLM's; not read.
            **kwargs: LiteLLM's; not read.
        """
        del args, kwargs
        proxy = sys.modules.get("litellm.proxy.proxy_server")
        self.attach(getattr(proxy, "llm_router", None))

    async def async_filter_deployments(
        self, model: str, healthy_deployments: list[Deployment], *args: Any, **kwargs: Any
    ) -> list[Deployment]:
        """Narrow the deployments where the strategy could not be registered.

        Args:
            model: The model group.
            healthy_deployments: Those that may be asked.
            *args: LiteLLM's.
            **kwargs: LiteLLM's.
        """
        if self._attached is not None and self._strategy.is_registered(self._attached):
            return healthy_deployments
        return await super().async_filter_deployments(model, healthy_deployments, *args, **kwargs)

    def _make(self) -> FallbackRoutingStrategy:
        return FallbackRoutingStrategy(
            self._config, observers=self._observers, respect_cooldown=self._respect_cooldown
        )


proxy_handler = FallbackProxyHandler()
proxy_filter = FallbackDeploymentFilter()
