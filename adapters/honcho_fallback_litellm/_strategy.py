"""The strategy: attempt n of a call goes to the n-th target of its model group."""

from __future__ import annotations

import logging
import weakref
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from litellm.types.router import (  # pyright: ignore[reportMissingTypeStubs] # a package with one stub
    CustomRoutingStrategyBase,
)

from honcho_fallback import FallbackConfig, FallbackConfigError, check_observers
from honcho_fallback_litellm._call import RouterCall, current_call
from honcho_fallback_litellm._chain import Chains, id_of, in_order
from honcho_fallback_litellm._failures import classifier_for
from honcho_fallback_litellm._patches import RouterPatches
from honcho_fallback_litellm._registration import (
    check_config,
    check_router,
    warn_about_missing_methods,
)
from honcho_fallback_litellm._request import begin, equip
from honcho_fallback_litellm._router import (
    attempt_in,
    cooldowns_read_ahead,
    core_of,
    deployments_of,
    function_of,
    gone,
    selects,
    setting,
)
from honcho_fallback_litellm._warm import warm_up

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator, Sequence

    from honcho_fallback import FallbackObserver
    from honcho_fallback_litellm._chain import Chain
    from honcho_fallback_litellm._registration import Registration
    from honcho_fallback_litellm._router import Deployment


logger = logging.getLogger("honcho_fallback")

# What LiteLLM tells its own selection by; what replaces the selection has to take them away, or
# they travel to the provider in the request's body.
_INTERNAL_KEYS = ("_target_order", "_excluded_deployment_ids", "_retry_skipped_deployment_ids")
# LiteLLM's strategies besides this one look at limits and loads, and count what they choose.
_UNLIMITED = "simple-shuffle"
_SELECTION = (
    "get_available_deployment",
    "async_get_available_deployment",
    "async_get_healthy_deployments",
)


class FallbackRoutingStrategy(CustomRoutingStrategyBase):
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
        config = FallbackConfig() if config is None else config
        check_config(config)
        observers = check_observers(observers)
        self._chains = Chains(
            config.replace(on_exhausted="last", classify=classifier_for(config)), observers
        )
        self._respect_cooldown = config.cooldown is None
        if respect_cooldown is not None:
            self._respect_cooldown = respect_cooldown
        self._core: weakref.ref[Any] | None = None
        # LiteLLM's own selection, as functions: a bound one would hold the core.
        self._own: dict[str, Callable[..., Any]] = {}
        self._warned_of_replacement = False
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
                logged and stay LiteLLM's.
        """
        core = core_of(router)
        registered = None if self._core is None else self._core()
        if registered is not None and registered is not core:
            raise FallbackConfigError.about(
                "router", "this strategy serves another Router", "make a strategy for each Router"
            )
        self.registration = check_router(core, self._chains)
        self._core = weakref.ref(core)
        self._own = {name: function_of(core, name) for name in _SELECTION}
        missing = RouterPatches(core, self._begin, self._in_rotation).install()
        register = getattr(router, "register_plugin", None) or router.set_custom_routing_strategy
        register(self)
        logger.info("%s", self.registration)
        warn_about_missing_methods(missing)
        if warm:
            warm_up()
        return self

    def is_registered(self, router: Any) -> bool:
        """Tell whether this strategy chooses for a Router.

        Args:
            router: A ``litellm.Router``.
        """
        core = core_of(router)
        return RouterPatches.are_installed(core) and selects(core, self)

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
        selection = self._selection(
            model=model,
            messages=messages,
            input=input,
            specific_deployment=specific_deployment,
            request_kwargs=request_kwargs,
        )
        core, chain, call = selection.core, selection.chain, selection.call
        select = self._own["get_available_deployment"]
        if chain is None or (call is not None and call.is_selecting):
            return select(core, **selection.options)
        if call is not None:
            call.blocking = True
            if chain.has_actions:
                call.settle()
        # LiteLLM's sync methods list no healthy deployments.
        for candidate in selection.candidates():
            with selection.trying(candidate):
                selection.eligible[candidate] = select(core, **selection.options)
        return selection.take()

    async def async_get_available_deployment(
        self,
        model: str,
        messages: list[dict[str, str]] | None = None,
        input: str | list[Any] | None = None,  # noqa: A002 # LiteLLM's name
        specific_deployment: bool | None = False,  # noqa: FBT001, FBT002 # LiteLLM's signature
        request_kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Choose the deployment of this attempt, for LiteLLM's async methods.

        The arguments are those of ``get_available_deployment``.
        """
        selection = self._selection(
            model=model,
            messages=messages,
            input=input,
            specific_deployment=specific_deployment,
            request_kwargs=request_kwargs,
        )
        core, chain, options = selection.core, selection.chain, selection.options
        select = self._own["async_get_available_deployment"]
        if chain is None:
            return await select(core, **options)
        if selection.call is not None and chain.has_actions:
            await selection.call.asettle()
        if setting(core, "routing_strategy") == _UNLIMITED:
            # One question instead of one for each deployment.
            with selection.trying(None), cooldowns_read_ahead():
                healthy = await self._own["async_get_healthy_deployments"](core, **options)
                if isinstance(healthy, dict):  # LiteLLM was asked for one deployment by its id
                    return healthy
                selection.eligible = {id_of(one): one for one in healthy}
            return selection.take()
        for candidate in selection.candidates():
            with selection.trying(candidate):
                selection.eligible[candidate] = await select(core, **options)
        return selection.take()

    def _selection(self, **options: Any) -> _Selection:
        core, model = None if self._core is None else self._core(), options["model"]
        if core is None:
            gone()
        if options["request_kwargs"] is None:
            options["request_kwargs"] = {}
        request = options["request_kwargs"]
        call = current_call(core)
        if call is not None and call.request.get("model") != model:
            call = None
        if call is not None and call.ended:
            # LiteLLM's loop asks once more than the machine allows: nobody is asked.
            raise call.last_error or ReferenceError("the call has ended")
        # A call keeps the chain that it began with, whatever the Router has learned since.
        chain = None if call is None else call.chain
        if call is None and not options["specific_deployment"]:
            chain = self._chain_of(core, model, request)
        return _Selection(core, chain, call, options, request)

    # What stands in for LiteLLM's methods asks these.

    def _begin(self, core: Any, request: dict[str, Any]) -> RouterCall | None:
        """Start the call of a request, or return None when it is LiteLLM's."""
        group = request.get("model")
        if not isinstance(group, str) or request.get("specific_deployment"):
            return None
        if not selects(core, self):
            if not self._warned_of_replacement:
                self._warned_of_replacement = True
                logger.error(
                    "the FallbackRoutingStrategy of this Router was replaced by another routing "
                    "strategy and does nothing now; register it after the other one"
                )
            return None
        chain = self._chain_of(core, group, request)
        return None if chain is None else begin(core, chain, request)

    def _chain_of(self, core: Any, group: str, request: dict[str, Any]) -> Chain | None:
        return self._chains.of(group, deployments_of(core, group, request))

    def _in_rotation(
        self, deployments: list[Deployment], kept: list[Deployment], call: RouterCall | None
    ) -> list[Deployment]:
        """Say which deployments may be asked, given those that LiteLLM does not cool down."""
        if len(kept) == len(deployments) or (call is None and not in_order(deployments)):
            return kept
        if not self._respect_cooldown:
            return deployments
        left: Sequence[object] = kept
        if call is not None and not call.ended:
            left = call.may_ask(id_of(one) for one in kept)
        # A target that may have recovered is better than an error that is certain.
        return kept if left else deployments


@dataclass(eq=False, repr=False)
class _Selection:
    """Choose one attempt's deployment, by what LiteLLM's own selection says of each.

    LiteLLM's selection has filters for cooldowns, pauses, tags, teams and limits. It is shown one
    candidate at a time, the best first; who passes is eligible.
    """

    core: Any
    chain: Chain | None
    call: RouterCall | None
    options: dict[str, Any]  # LiteLLM's arguments
    request: dict[str, Any]  # the keyword arguments of the call
    eligible: dict[str, Deployment] = field(default_factory=dict[str, Any])
    refusal: Exception | None = None

    def candidates(self) -> Iterator[str]:
        """Go through whom the attempt may ask, until the choice is clear."""
        ids = self._candidate_ids()
        for one in ids:
            yield one
            # One that the machine passes over, as it cools down, needs the others as well.
            if self.eligible and (self.call is None or one == ids[0]):
                return

    @contextmanager
    def trying(self, candidate: str | None) -> Generator[None]:
        """Show LiteLLM's selection one candidate, or all of them; a refusal is no error yet."""
        excluded: list[str] = []
        if candidate is not None and self.chain is not None:
            excluded = [one for one in self.chain.ids if one != candidate]
        if self.call is not None:
            self.call.is_selecting = True
        try:
            with _selecting(self.request, excluded):
                yield
        except Exception as error:  # noqa: BLE001 # LiteLLM has many for "no deployment"
            self.refusal = self.refusal or error
        finally:
            if self.call is not None:
                self.call.is_selecting = False

    def take(self) -> Deployment:
        """Choose among the eligible, and prepare the request for that one.

        Raises:
            BaseException: Nobody is left: the last provider's error, or LiteLLM's refusal where
                no provider was asked.
        """
        call, eligible = self.call, self.eligible
        if call is None:
            ids = [*self._candidate_ids(), *reversed(eligible)]
            deployment = next((eligible[one] for one in ids if one in eligible), None)
        else:
            deployment = call.choose(eligible, self.refusal)
        if deployment is None:
            refusal = self.refusal or LookupError("no deployment of this group is in rotation")
            raise (call.last_error if call is not None else None) or refusal
        if call is not None:
            equip(call, self.core, deployment, self.request)
        return deployment

    def _candidate_ids(self) -> Sequence[str]:
        assert self.chain is not None  # noqa: S101 # for the type checker: the callers looked
        if self.call is not None:
            return self.call.candidate_ids
        return self.chain.ids[attempt_in(self.request) :] or self.chain.ids[-1:]


@contextmanager
def _selecting(request: dict[str, Any], excluded: Sequence[str]) -> Generator[None]:
    """Let LiteLLM's own selection choose among all but some ids; leave none of its keys there."""
    _forget_internals(request)
    logging_obj = None
    if excluded:
        request["_excluded_deployment_ids"] = [*excluded]
        # LiteLLM would log one candidate's refusal as the request's failure.
        logging_obj = request.pop("litellm_logging_obj", None)
    try:
        yield
    finally:
        _forget_internals(request)
        if logging_obj is not None:
            request["litellm_logging_obj"] = logging_obj


def _forget_internals(request: dict[str, Any]) -> None:
    for key in _INTERNAL_KEYS:
        request.pop(key, None)
