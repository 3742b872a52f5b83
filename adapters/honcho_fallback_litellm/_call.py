"""One logical call: its request, whom LiteLLM keeps in rotation, and what came of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import litellm
from litellm.exceptions import Timeout
from litellm.router_utils.fallback_event_handlers import (  # pyright: ignore[reportMissingTypeStubs] # a package with one stub
    attempted_fallback_targets_from,
)

from honcho_fallback import (
    DeadlineExceeded,
    FallbackConfigError,
    OutcomeUnknown,
    StreamInterrupted,
)
from honcho_fallback_litellm._answers import attach
from honcho_fallback_litellm._chain import id_of, labels_of
from honcho_fallback_litellm._failures import is_refusal, provider_error
from honcho_fallback_litellm._lists import Lists
from honcho_fallback_litellm._request import (
    NARROWED,
    ONE_REQUEST,
    PARAMETERS,
    options_of,
)
from honcho_fallback_litellm._router import LiteLLMsRests, deployments_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from honcho_fallback import Attempt, FallbackRun
    from honcho_fallback_litellm._chain import Chain, Chains
    from honcho_fallback_litellm._router import Deployment, Endpoint, Rotation

OUT_OF_ROTATION = "LiteLLM had taken it out of rotation"


@dataclass(eq=False, repr=False, slots=True)
class Asked:
    """Hold a request that has to do with a chain: its own, or one in a list behind it."""

    chain: Chain | None  # of its group
    router: Any
    endpoint: Endpoint
    own: Callable[..., Any]  # LiteLLM's own endpoint
    request: dict[str, Any]  # the keyword arguments
    deployments: list[Deployment]  # in the chain's order
    chains: Chains
    required: frozenset[str]  # labels
    _lists: Lists | None = None

    @property
    def wants_stream(self) -> bool:
        """Tell whether the caller reads a stream."""
        return self.request.get("stream") is True or self.endpoint.name.endswith("_stream")

    @property
    def lists(self) -> Lists:
        """Return the lists of other groups that stand behind this one."""
        if self._lists is None:
            self._lists = Lists(self.router, self.request, self._is_chain)
        return self._lists

    def _is_chain(self, target: Any) -> bool:
        name = target.get("model") if isinstance(target, dict) else target
        if self.required or not isinstance(name, str):  # LiteLLM asks whom it likes
            return bool(self.required)
        return self.chains.of(name, deployments_of(self.router, name, self.request)) is not None

    def call(
        self, rotation: Rotation | None, *, respects_cooldown: bool
    ) -> RouterCall | dict[str, Any]:
        """Begin the call, or return what LiteLLM is asked: where it says no, or knows no chain.

        A deployment that cools down is asked after the others: one that may have recovered is
        better than an error that is certain.

        Args:
            rotation: Whom LiteLLM would choose from; None where the group is no chain.
            respects_cooldown: Whether who cools down is asked last.
        """
        chain = self.chain
        required = self.required
        if chain is None or rotation is None:
            narrowed = {NARROWED: self._unlabelled()} if required else {}
            return {**self.request, **self.lists.cut(), **narrowed}
        config, ids = chain.config, chain.ids
        options = options_of(self.request, config)
        degrades = not options.get("must_not_degrade", config.must_not_degrade)
        if required:
            options["require"] = required
        allowed = [
            position
            for position, target in enumerate(chain.policy.targets)
            if (degrades or not position) and target.labels >= required
        ]
        healthy, cooling = rotation.healthy, rotation.cooling
        fit = [one for one in allowed if ids[one] in healthy or ids[one] in cooling]
        if allowed and not fit:
            others = [ids[one] for one in range(len(ids)) if one not in allowed]
            request = {**self.request, **self.lists.cut()}
            if others:
                request |= {**({} if degrades else ONE_REQUEST), NARROWED: others}
            return request
        resting = [one for one in fit if ids[one] not in healthy]
        if config.cooldown is not None and respects_cooldown and len(resting) < len(fit):
            fit = [one for one in fit if ids[one] in healthy]  # two memories: LiteLLM's is obeyed
        unfit = {one: OUT_OF_ROTATION for one in allowed if one not in fit}
        if unfit:
            # One request less for each that is passed over: nobody else is asked again for it.
            most = options.get("max_attempts", config.max_attempts) or len(ids)
            options["unfit"], options["max_attempts"] = unfit, max(1, most - len(unfit))
        if resting and respects_cooldown and config.cooldown is None:
            # A memory orders, it never forbids: they are asked after the others.
            targets = chain.policy.targets
            left = {targets[one].identity: cooling[ids[one]] for one in resting}
            options["cooldown"] = LiteLLMsRests(left)
        if config.validate_answer is not None and self.wants_stream:
            options["validate"] = None  # it knows whole answers
        wants_content, run = chain.policy.wants_content, chain.policy.start(**options)
        call = RouterCall(
            chain,
            self.router,
            self.endpoint,
            self.own,
            self.request,
            self.deployments,
            run,
            frozenset(ids[one] for one in resting),
            degrades,
        )
        if wants_content:
            call.report_request()
        return call

    def _unlabelled(self) -> list[str]:
        """List the deployments that LiteLLM must not choose; somebody has to be left."""
        before: Any = self.request.get(NARROWED) or ()
        lacking = {id_of(one) for one in self.deployments if not labels_of(one) >= self.required}
        excluded = {*before, *lacking}
        if excluded.issuperset(map(id_of, self.deployments)):
            problem = f"nobody in {self.request['model']} has {sorted(self.required)}"
            raise FallbackConfigError.about("require", problem, "give a deployment these tags")
        return [*excluded]

    # Behind it.

    def rehearsal(
        self, call: RouterCall | dict[str, Any], error: Exception
    ) -> dict[str, Any] | None:
        """Return the request that has LiteLLM walk its lists behind a chain, or None."""
        if isinstance(call, RouterCall) and call.goes_elsewhere:
            return self.lists.rehearsal(error)
        return None

    async def walk(self, call: RouterCall | dict[str, Any], error: Exception) -> Any:
        """Ask the targets of a list from its first chain on, or raise the error."""
        goes_on = (
            call.goes_elsewhere
            if isinstance(call, RouterCall)
            else call.get("disable_fallbacks") is not True
        )
        if not goes_on:
            raise error
        return await self.lists.walk(self.endpoint, error)


@dataclass(eq=False, repr=False, slots=True)
class RouterCall:
    """Hold one request to a chain; each attempt is one call of LiteLLM's own endpoint."""

    chain: Chain
    router: Any
    endpoint: Endpoint
    own: Callable[..., Any]
    request: dict[str, Any]
    deployments: list[Deployment]
    run: FallbackRun
    by_id: frozenset[str]  # who cools down and is asked all the same
    goes_elsewhere: bool  # whether other groups may stand in for the chain
    stamps: dict[str, Any] = field(default_factory=dict[str, Any])  # for the attempts to come
    hides_usage: bool = False
    opened: Any = None  # LiteLLM's stream, or its answer in place of one
    attempt: Attempt | None = None  # the last one
    errors: list[Exception] = field(default_factory=list[Exception])

    def report_request(self) -> None:
        """Tell observers what is asked."""
        request = self.request
        messages = request.get("messages")
        self.run.report(
            input=request.get("input", request.get("prompt")) if messages is None else messages,
            parameters={name: request[name] for name in PARAMETERS if name in request},
        )

    @property
    def blocking(self) -> bool:
        """Tell whether a sync method asks."""
        return not self.endpoint.is_async

    def note(self, attempt: Attempt, error: Exception) -> None:
        """Tell LiteLLM's callbacks of the following attempts what became of this one."""
        self.errors.append(error)
        group, deployment = self.request["model"], self.deployments[attempt.position]
        bucket = self.endpoint.bucket(self.request)
        metadata = self.request[bucket] = self.request.get(bucket) or {}
        earlier = metadata.get("previous_models") if len(self.errors) > 1 else None
        failed = {
            "model_group": group,
            "deployment_id": self.chain.ids[attempt.position],
            "model": deployment["litellm_params"]["model"],
            "base_model": None,
            "exception_type": type(error).__name__,
            "exception_string": str(error),
            "attempted_retries": attempt.number - 1,
        }
        metadata["previous_models"] = (*(earlier or ())[-3:], failed)
        # LiteLLM drops them where a request is new, and keeps them where it is a hop of one.
        metadata["attempted_fallbacks"], metadata["original_model_group"] = 0, group
        self.stamps = {"attempted_targets": attempted_fallback_targets_from(self.request)}

    # The end.

    def final(self, error: Exception) -> Exception:
        """Return what the caller gets: the last error of a provider's, in LiteLLM's class.

        Args:
            error: What the policy raised.
        """
        if isinstance(error, DeadlineExceeded | OutcomeUnknown | StreamInterrupted):
            self.goes_elsewhere = False
            if isinstance(error.__cause__, Exception):
                error = error.__cause__
        if is_refusal(error):  # who was asked knows more
            error = next((one for one in reversed(self.errors) if not is_refusal(one)), error)
        if type(error) is TimeoutError and self.attempt is not None:
            target = self.attempt.target
            error = Timeout(str(error), model=target.model, llm_provider=target.provider or "")
        error, record = provider_error(error), self.run.record
        theirs = litellm.LITELLM_EXCEPTION_TYPES  # pyright: ignore[reportPrivateImportUsage] # shown, not exported
        if type(error) in theirs and len(record.attempts) > 1:
            # LiteLLM's text shows these.
            counted: Any = error
            counted.num_retries = counted.max_retries = len(record.attempts) - 1
        attach(error, record)
        return error
