"""One logical call: its request, whom LiteLLM keeps in rotation, and what each attempt asks."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import litellm
from litellm.exceptions import Timeout
from litellm.router_utils.fallback_event_handlers import (  # pyright: ignore[reportMissingTypeStubs] # a package with one stub
    AttemptedFallbackTargets,
)

from honcho_fallback import DeadlineExceeded, OutcomeUnknown, StreamInterrupted
from honcho_fallback_litellm._answers import attach
from honcho_fallback_litellm._chain import id_of
from honcho_fallback_litellm._failures import forget_loop_lookup, is_refusal, provider_error
from honcho_fallback_litellm._request import (
    NARROWED,
    ONE_REQUEST,
    PARAMETERS,
    options_of,
    plain_metadata_of,
    request_for,
)
from honcho_fallback_litellm._stream import carries, is_stream

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

    from honcho_fallback import Attempt, FallbackRun
    from honcho_fallback_litellm._chain import Chain
    from honcho_fallback_litellm._router import Deployment, Rotation

OUT_OF_ROTATION = "LiteLLM had taken it out of rotation"


class Endpoint(NamedTuple):
    """Name one endpoint of a Router.

    Args:
        name: Of the method.
        parameters: Those that may be passed by position, in their order.
        is_async: Whether it is awaited.
        is_generic: Whether LiteLLM keeps its metadata in a bucket of its own there.
    """

    name: str
    parameters: tuple[str, ...]
    is_async: bool
    is_generic: bool


class Selected(NamedTuple):
    """Hold a request to a chain before LiteLLM was asked who is in rotation.

    Args:
        chain: Of its group.
        router: LiteLLM's.
        endpoint: Which was called.
        own: LiteLLM's own endpoint.
        request: The keyword arguments.
        deployments: In the chain's order.
    """

    chain: Chain
    router: Any
    endpoint: Endpoint
    own: Callable[..., Any]
    request: dict[str, Any]
    deployments: list[Deployment]

    def call(self, rotation: Rotation, *, respects_cooldown: bool) -> RouterCall | dict[str, Any]:
        """Begin the call, or return the request for which LiteLLM itself says no.

        A deployment that cools down stays where nobody behind it is in rotation: one that may
        have recovered is better than an error that is certain.

        Args:
            rotation: Whom LiteLLM would choose from.
            respects_cooldown: Whether who cools down is passed over.
        """
        chain, config, ids = self.chain, self.chain.config, self.chain.ids
        options = options_of(self.request, config)
        degrades = not options.get("must_not_degrade", config.must_not_degrade)
        required = options.get("require", config.require)
        allowed = [
            position
            for position, target in enumerate(chain.policy.targets)
            if (degrades or not position) and target.labels >= required
        ]
        healthy, cooling = rotation.healthy, rotation.cooling
        preferred = healthy if respects_cooldown else healthy | cooling
        last = max((one for one in allowed if ids[one] in preferred), default=-1)
        fit = [
            one
            for one in allowed
            if ids[one] in preferred or (ids[one] in cooling and one > last)
        ]
        is_whole = len(allowed) == len(ids)
        if allowed and not fit:
            others = [ids[one] for one in range(len(ids)) if one not in allowed]
            return self.request if is_whole else {**self.request, **ONE_REQUEST, NARROWED: others}
        options["unfit"] = {one: OUT_OF_ROTATION for one in allowed if one not in fit} or None
        options["metadata"] = plain_metadata_of(self.request)
        run = chain.policy.start(**options)
        by_id = frozenset(ids[one] for one in fit) - healthy
        call = RouterCall(*self, run, by_id, is_whole)
        if chain.policy.wants_content:
            call.report_request()
        return call


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
    def wants_stream(self) -> bool:
        """Tell whether the caller reads a stream."""
        return self.request.get("stream") is True or self.endpoint.name.endswith("_stream")

    @property
    def blocking(self) -> bool:
        """Tell whether a sync method asks."""
        return not self.endpoint.is_async

    # One attempt.

    async def aask(self, attempt: Attempt) -> Any:
        """Ask LiteLLM for one deployment's answer, in this task."""
        self.attempt = attempt
        try:
            return await self.own(**request_for(self, attempt))
        except Exception as error:
            self._note(attempt, error)
            raise

    def ask(self, attempt: Attempt) -> Any:
        """Ask LiteLLM for one deployment's answer, in this thread."""
        self.attempt = attempt
        try:
            return self.own(**request_for(self, attempt))
        except Exception as error:
            forget_loop_lookup(error)
            self._note(attempt, error)
            raise

    async def aopen(self, attempt: Attempt) -> AsyncIterator[Any]:
        """Ask LiteLLM for one deployment's stream, in this task."""
        self.opened = answer = await self.aask(attempt)
        return answer if is_stream(answer) else _once(answer)

    def open(self, attempt: Attempt) -> Iterator[Any]:
        """Ask LiteLLM for one deployment's stream, in this thread."""
        self.opened = answer = self.ask(attempt)
        return answer if is_stream(answer) else iter((answer,))

    def is_content(self, chunk: Any) -> bool:
        """Tell whether a chunk is worth handing out; what came in place of a stream is."""
        return chunk is self.opened or carries(chunk)

    def _note(self, attempt: Attempt, error: Exception) -> None:
        """Tell LiteLLM's callbacks of the following attempts what became of this one."""
        self.errors.append(error)
        group, deployment = self.request["model"], self.deployments[attempt.position]
        bucket = "litellm_metadata" if self.endpoint.is_generic else "metadata"
        if "litellm_metadata" in self.request:
            bucket = "litellm_metadata"
        metadata = self.request[bucket] = self.request.get(bucket) or {}
        earlier = metadata.get("previous_models") if len(self.errors) > 1 else None
        failed = {
            "model_group": group,
            "deployment_id": id_of(deployment),
            "model": deployment["litellm_params"]["model"],
            "base_model": None,
            "exception_type": type(error).__name__,
            "exception_string": str(error),
            "attempted_retries": attempt.number - 1,
        }
        metadata["previous_models"] = (*(earlier or ())[-3:], failed)
        # LiteLLM drops them where a request is new, and keeps them where it is a hop of one.
        metadata["attempted_fallbacks"], metadata["original_model_group"] = 0, group
        self.stamps = {"attempted_targets": AttemptedFallbackTargets()}

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


async def _once(answer: Any) -> AsyncIterator[Any]:
    yield answer
