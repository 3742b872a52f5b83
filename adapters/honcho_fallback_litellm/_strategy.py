"""The strategy: attempt n of a call goes to the n-th target of its model group."""

from __future__ import annotations

import logging
import weakref
from typing import TYPE_CHECKING, Any

from honcho_fallback import FallbackConfig, FallbackConfigError, check_observers
from honcho_fallback_litellm._endpoints import Endpoints
from honcho_fallback_litellm._groups import Chains
from honcho_fallback_litellm._registration import check_config, check_router
from honcho_fallback_litellm._router import setting
from honcho_fallback_litellm._warm import check_release, warm_up

if TYPE_CHECKING:
    from collections.abc import Iterable

    from honcho_fallback import FallbackObserver
    from honcho_fallback_litellm._registration import Registration

logger = logging.getLogger("honcho_fallback")

_CONTINUES = "enable_mid_stream_fallback_continuation"


class FallbackRoutingStrategy:
    """Make a model group whose deployments have a ``fallback_rank`` a chain.

    Args:
        config: The policy's options; those that LiteLLM leaves no room for are refused.
        observers: Objects that receive each call's events, beside those of ``set_observers``.
        respect_cooldown: Whether a deployment that LiteLLM cools down is passed over. By default
            it is, unless the config has a ``cooldown`` of its own; False without one starts every
            call on the primary.

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
        config = check_config(FallbackConfig() if config is None else config)
        if respect_cooldown is None:
            respect_cooldown = config.cooldown is None
        self._chains = Chains(
            config.replace(on_exhausted="last"),
            check_observers(observers),
            respects_cooldown=respect_cooldown,
        )
        self._router: weakref.ref[Any] | None = None
        self.registration: Registration | None = None

    def register(self, router: Any, *, warm: bool = True) -> FallbackRoutingStrategy:
        """Take over the ranked model groups of a Router; everything else stays LiteLLM's.

        Args:
            router: A ``litellm.Router``; held weakly.
            warm: Whether to load what LiteLLM imports at the first failure (0.3 s).

        Returns:
            The strategy itself.

        Raises:
            FallbackConfigError: No model group is a chain, or every one that has a rank has a
                mistake in it; the message has all of them. Where one is left, the others are
                logged and stay LiteLLM's. Or this LiteLLM does not do what is relied on.
        """
        registered = None if self._router is None else self._router()
        if registered is not None and registered is not router:
            raise FallbackConfigError.about(
                "router", "this strategy serves another Router", "make a strategy for each Router"
            )
        check_release()
        # Where labels are required and no group is a chain nobody without them may be asked.
        made = None if self._chains.config.require else check_router(router, self._chains)
        if registered is None:
            Endpoints(router, self._chains).install()
            self._router = weakref.ref(router)
        self.registration = made or check_router(router, self._chains)
        logger.info("%s", self.registration)
        if setting(router, _CONTINUES) is True:
            logger.warning("%s does nothing for chains: an attempt asks nobody else", _CONTINUES)
        if warm:
            warm_up(self.registration.spellings)
        return self

    def is_registered(self, router: Any) -> bool:
        """Tell whether this strategy chooses for a Router.

        Args:
            router: A ``litellm.Router``.
        """
        if router is None or self._router is None or self.registration is None:
            return False
        return self._router() is router
