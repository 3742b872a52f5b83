"""The strategy: attempt n of a call goes to the n-th target of its model group."""

# LiteLLM's objects and dicts have whatever shape they have; what comes out of here is typed.
# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false

from __future__ import annotations

import logging
import weakref
from typing import TYPE_CHECKING, Any

from litellm.types.router import (  # pyright: ignore[reportMissingTypeStubs] # a package with one stub
    CustomRoutingStrategyBase,
)

from honcho_fallback import FallbackConfig
from honcho_fallback_litellm._call import CURRENT, Call
from honcho_fallback_litellm._chain import Chains, id_of, in_order
from honcho_fallback_litellm._failures import classifier_for
from honcho_fallback_litellm._gates import Gates
from honcho_fallback_litellm._registration import (
    check_config,
    check_router,
    warn_about_callbacks,
    warn_about_gates,
)
from honcho_fallback_litellm._requests import equip
from honcho_fallback_litellm._router import (
    INTERNAL_KEYS,
    attempt_in,
    cooldowns_read_ahead,
    core_of,
    deployments_of,
    own,
)
from honcho_fallback_litellm._warm import warm_up

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from honcho_fallback import FallbackObserver
    from honcho_fallback_litellm._chain import Chain
    from honcho_fallback_litellm._router import Deployment


logger = logging.getLogger("honcho_fallback")


class FallbackRoutingStrategy(CustomRoutingStrategyBase):
    """Make a model group whose deployments have a ``fallback_rank`` a chain.

    Args:
        config: The policy's options; those that LiteLLM leaves no room for are refused.
        observers: Objects that receive each call's events.
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
        config = FallbackConfig() if config is None else config
        check_config(config)
        observers = tuple(observers)
        self._observed = bool(observers)
        own_cooldown = config.cooldown is not None
        self._respect_cooldown = not own_cooldown if respect_cooldown is None else respect_cooldown
        self._chains = Chains(
            config.replace(on_exhausted="last", classify=classifier_for(config)), observers
        )
        self._core: weakref.ref[Any] | None = None
        self._gates: Gates | None = None
        self._warned = False
        self._may_warn_of_callbacks = False

    def register(self, router: Any, *, warm: bool = True) -> FallbackRoutingStrategy:
        """Take over the ranked model groups of a Router; everything else stays LiteLLM's.

        Args:
            router: A ``litellm.Router``; held weakly.
            warm: Whether to load what LiteLLM imports at the first failure (a second or two).

        Returns:
            The strategy itself.

        Raises:
            FallbackConfigError: The Router's settings and the ranks do not go together.
        """
        core = core_of(router)
        check_router(core, self._core() if self._core is not None else None)
        self._core = weakref.ref(core)
        self._gates = Gates(router, self)
        missing = self._gates.install()
        self._select_here(router)
        warn_about_gates(missing)
        # Once: now, or at the first call, for who sets LiteLLM's callbacks after the Router.
        self._may_warn_of_callbacks = not warn_about_callbacks(observed=self._observed)
        if warm:
            warm_up()
        return self

    def is_registered(self, router: Any) -> bool:
        """Tell whether this strategy chooses for a Router.

        Args:
            router: A ``litellm.Router``.
        """
        core = core_of(router)
        if self._core is None or self._core() is not core or self._gates is None:
            return False
        return self._gates.installed() and self._is_selecting(core)

    def _select_here(self, router: Any) -> None:
        register = getattr(router, "register_plugin", None)
        if register is None:
            router.set_custom_routing_strategy(self)
        else:
            register(self)

    def _is_selecting(self, core: Any) -> bool:
        method = vars(core).get("get_available_deployment")
        method = getattr(method, "__wrapped__", method)
        return getattr(method, "__self__", None) is self

    def chain_of(self, core: Any, request: dict[str, Any]) -> Chain | None:
        """Return the chain that a call goes down, or None when it is LiteLLM's.

        Args:
            core: The router's core.
            request: The keyword arguments of the call.
        """
        group = request.get("model")
        if not isinstance(group, str) or request.get("specific_deployment"):
            return None
        if not self._is_selecting(core):
            if not self._warned:
                self._warned = True
                logger.error(
                    "the FallbackRoutingStrategy of this Router was replaced by another routing "
                    "strategy and does nothing now; register it after the other one"
                )
            return None
        chain = self._chains.of(group, deployments_of(core, group, request))
        if chain is not None and self._may_warn_of_callbacks:
            self._may_warn_of_callbacks = False
            warn_about_callbacks(observed=self._observed)
        return chain

    def in_rotation(
        self, deployments: list[Deployment], kept: list[Deployment], call: Call | None
    ) -> list[Deployment]:
        """Say which deployments may be asked, given those that LiteLLM does not cool down.

        Args:
            deployments: All, before LiteLLM's cooldown.
            kept: Those without a cooldown.
            call: Ours, or None.
        """
        if len(kept) == len(deployments) or not in_order(deployments):
            return kept
        if not self._respect_cooldown:
            return deployments
        left: Sequence[object] = kept
        if call is not None and not call.ended:
            left = call.may_ask(id_of(one) for one in kept)
        # A target that may have recovered is better than an error that is certain.
        return kept if left else deployments

    def get_available_deployment(
        self,
        model: str,
        messages: list[dict[str, str]] | None = None,
        input: str | list[Any] | None = None,  # noqa: A002 # LiteLLM's name
        specific_deployment: bool | None = False,  # noqa: FBT001, FBT002 # LiteLLM's signature
        request_kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Choose the deployment of this attempt, for LiteLLM's sync methods.

        Args:
            model: The model group.
            messages: What is asked.
            input: What is asked, for other endpoints.
            specific_deployment: Whether ``model`` names a deployment.
            request_kwargs: The keyword arguments of the call; changed in place.
        """
        core = self._bound_core()
        request = {} if request_kwargs is None else request_kwargs
        select = own(core, "get_available_deployment")
        options = {
            "model": model,
            "messages": messages,
            "input": input,
            "specific_deployment": specific_deployment,
            "request_kwargs": request,
        }
        chain = None if specific_deployment else self._chain(core, model, request)
        if chain is None:
            return select(**options)
        call = self._current(chain)
        if call is not None:
            call.blocking = True
            call.settle()
        _forget_internals(request)
        # LiteLLM's sync methods list no healthy deployments; its own selection, with all of its
        # filters, returns the same when it gets one candidate at a time.
        ids = call.in_question if call else chain.ids[attempt_in(request) :] or chain.ids[-1:]
        healthy: list[Deployment] = []
        first: Exception | None = None
        for one in ids:
            request["_excluded_deployment_ids"] = [other for other in chain.ids if other != one]
            try:
                healthy.append(select(**options))
            except Exception as error:  # noqa: BLE001 # LiteLLM has many errors for "no deployment"
                first = first or error
            finally:
                _forget_internals(request)
            if healthy and (call is None or one == ids[0]):
                break
        return (
            self._chosen(core, chain, call, healthy, request)
            if healthy
            else self._nobody(call, first)
        )

    async def async_get_available_deployment(
        self,
        model: str,
        messages: list[dict[str, str]] | None = None,
        input: str | list[Any] | None = None,  # noqa: A002 # LiteLLM's name
        specific_deployment: bool | None = False,  # noqa: FBT001, FBT002 # LiteLLM's signature
        request_kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Choose the deployment of this attempt, for LiteLLM's async methods.

        Args:
            model: The model group.
            messages: What is asked.
            input: What is asked, for other endpoints.
            specific_deployment: Whether ``model`` names a deployment.
            request_kwargs: The keyword arguments of the call; changed in place.
        """
        core = self._bound_core()
        request = {} if request_kwargs is None else request_kwargs
        options = {
            "model": model,
            "messages": messages,
            "input": input,
            "specific_deployment": specific_deployment,
            "request_kwargs": request,
        }
        chain = None if specific_deployment else self._chain(core, model, request)
        if chain is None:
            return await own(core, "async_get_available_deployment")(**options)
        call = self._current(chain)
        if call is not None:
            await call.asettle()
        _forget_internals(request)
        try:
            with cooldowns_read_ahead():
                healthy = await own(core, "async_get_healthy_deployments")(**options)
        finally:
            _forget_internals(request)
        if isinstance(healthy, dict):  # LiteLLM was asked for one deployment by its id
            return healthy
        return self._chosen(core, chain, call, healthy, request)

    def _chain(self, core: Any, model: str, request: dict[str, Any]) -> Chain | None:
        return self._chains.of(model, deployments_of(core, model, request))

    def _current(self, chain: Chain) -> Call | None:
        call = CURRENT.get()
        if call is None or call.chain is not chain:
            return None
        if call.ended:
            # LiteLLM's loop asks once more than the machine allows: nobody is asked.
            raise call.last_error or ReferenceError("the call has ended")
        return call

    def _chosen(
        self,
        core: Any,
        chain: Chain,
        call: Call | None,
        healthy: list[Deployment],
        request: dict[str, Any],
    ) -> Deployment:
        eligible = {id_of(one): one for one in healthy}
        if call is None:
            attempt = attempt_in(request)
            ordered = [one for one in chain.ids if one in eligible]
            later = [one for one in ordered if chain.ids.index(one) >= attempt]
            deployment = eligible[(later or ordered[-1:])[0]] if ordered else None
        else:
            deployment = call.choose(eligible)
        if deployment is None:
            return self._nobody(call, None)
        equip(call, core, deployment, request)
        return deployment

    def _nobody(self, call: Call | None, error: Exception | None) -> Deployment:
        if call is not None and call.last_error is not None:
            call.choose({})
            raise call.last_error
        raise error or LookupError("no deployment of this group is in rotation")

    def _bound_core(self) -> Any:
        core = self._core() if self._core is not None else None
        if core is None:
            # Not a RuntimeError: LiteLLM's sync wrapper would run the whole call again.
            raise ReferenceError("the Router of this FallbackRoutingStrategy is gone")
        return core


def _forget_internals(request: dict[str, Any]) -> None:
    for key in INTERNAL_KEYS:
        request.pop(key, None)
