"""One logical call of a Router: whom LiteLLM keeps in rotation, its attempts, what came of it.

An attempt is one ordinary call of LiteLLM's own endpoint, narrowed to one deployment.
"""

from __future__ import annotations

from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import chain as joined
from typing import TYPE_CHECKING, Any

import litellm
from litellm.exceptions import Timeout
from litellm.litellm_core_utils.request_timeout_resolver import get_configured_request_timeout
from litellm.router_utils.fallback_event_handlers import attempted_fallback_targets_from

from honcho_fallback import (
    AnswerRejected,
    DeadlineExceeded,
    FallbackConfigError,
    OutcomeUnknown,
    StreamInterrupted,
)
from honcho_fallback_litellm._accepted_history import accepted_chat, accepted_items, as_it_thinks
from honcho_fallback_litellm._failures import is_refusal, provider_error
from honcho_fallback_litellm._groups import adapts_thinking, id_of, labels_of, model_of
from honcho_fallback_litellm._lists import NO_LISTS, named_in, walk
from honcho_fallback_litellm._request import ONE_REQUEST, PARAMETERS, REHEARSALS, options_of
from honcho_fallback_litellm._responses import (
    attach,
    carries,
    deployment_of,
    events_of,
    is_stream,
    refuse_made_up,
)
from honcho_fallback_litellm._router import NARROWED, LiteLLMsRests, deployments_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Generator, Iterator

    from honcho_fallback import Attempt, FallbackRun
    from honcho_fallback_litellm._groups import Chain, Chains
    from honcho_fallback_litellm._router import Deployment, Endpoint, Rotation

OUT_OF_ROTATION = "LiteLLM had taken it out of rotation"
_THINKING = ("thinking", "reasoning", "reasoning_effort")
_NO_USAGE = {"input_tokens": 0, "output_tokens": 0, "total_tokens": 0}
_TIMEOUTS = ("timeout", "request_timeout")


@dataclass(eq=False, repr=False)
class RouterCall:
    """Hold a request that has to do with a chain: its own, or one in a list behind it."""

    of_group: Chain | None
    router: Any
    endpoint: Endpoint
    own: Callable[..., Any]  # LiteLLM's own endpoint
    request: dict[str, Any]  # the keyword arguments
    deployments: list[Deployment]  # in the chain's order
    chains: Chains
    required: frozenset[str]  # labels
    chain: Chain = field(init=False)  # which is asked, if one is
    run: FallbackRun = field(init=False)
    asks_chain: bool = False
    by_id: frozenset[str] = frozenset()  # who cools down and is asked all the same
    goes_elsewhere: bool = True  # whether other groups may stand in
    stamps: dict[str, Any] = field(default_factory=dict[str, Any])  # for the attempts to come
    hides_usage: bool = False
    opened: Any = None  # LiteLLM's stream, or its answer in place of one
    has_begun: bool = False  # that stream
    attempt: Attempt | None = None  # the last one
    errors: list[Exception] = field(default_factory=list[Exception])

    @property
    def wants_stream(self) -> bool:
        return self.request.get("stream") is True or self.endpoint.name.endswith("_stream")

    @property
    def bucket(self) -> str:
        """Name the metadata that LiteLLM writes into."""
        is_own = self.endpoint.is_generic or "litellm_metadata" in self.request
        return "litellm_metadata" if is_own else "metadata"

    def names_a_chain(self) -> bool:
        """Tell whether a list names a chain, or must be walked here since LiteLLM asks anybody."""
        request, metadata = self.request, self.request.get(self.bucket)
        if isinstance(metadata, dict):  # LiteLLM has left another group there, if it comes back
            request = {**request, self.bucket: {**metadata, "model_group": request["model"]}}
        named = (named_in(name, self.router, request) or () for name in NO_LISTS)
        return bool(self.required) or any(map(self._is_chain, joined.from_iterable(named)))

    def _is_chain(self, target: Any) -> bool:
        name = target.get("model") if isinstance(target, dict) else target
        if not isinstance(name, str):
            return False
        return self.chains.of(name, deployments_of(self.router, name, self.request)) is not None

    # The start.

    def begin(self, rotation: Rotation | None) -> dict[str, Any] | None:
        """Begin to ask the chain, or return what LiteLLM is asked: it says no, or knows no chain.

        A deployment that cools down is asked after the others: one that may have recovered is
        better than an error that is certain.
        """
        chain, required, request = self.of_group, self.required, self.request
        respects_cooldown = self.chains.respects_cooldown
        self.goes_elsewhere = request.get("disable_fallbacks") is not True
        if chain is None or rotation is None:
            narrowed = {NARROWED: self._unlabelled()} if required else {}
            return {**request, **NO_LISTS, **narrowed}
        config, ids = chain.config, chain.ids
        options = options_of(request, config)
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
            plain = {**request, **NO_LISTS}
            if others:
                self.goes_elsewhere = degrades and self.goes_elsewhere
                plain |= {**({} if degrades else ONE_REQUEST), NARROWED: others}
            return plain
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
            left = {chain.policy.targets[one].identity: cooling[ids[one]] for one in resting}
            options["cooldown"] = LiteLLMsRests(left)
        if config.validate_answer is not None and self.wants_stream:
            options["validate"] = None  # it knows whole answers
        options |= self._time_limit(config.timeout, fit)
        wants_content = chain.policy.wants_content
        self.chain, self.run = chain, chain.policy.start(**options)
        self.asks_chain, self.goes_elsewhere = True, self.goes_elsewhere and degrades
        self.by_id = frozenset(ids[one] for one in resting)
        if wants_content:
            messages = request.get("messages")
            shown = request.get("input", request.get("prompt")) if messages is None else messages
            parameters = {name: request[name] for name in PARAMETERS if name in request}
            self.run.report(input=shown, parameters=parameters)
        return None

    def _unlabelled(self) -> list[str]:
        """List the deployments that LiteLLM must not choose; somebody has to be left."""
        before: Any = self.request.get(NARROWED) or ()
        lacking = {id_of(one) for one in self.deployments if not labels_of(one) >= self.required}
        excluded = {*before, *lacking}
        if excluded.issuperset(map(id_of, self.deployments)):
            problem = f"nobody in {self.request['model']} has {sorted(self.required)}"
            raise FallbackConfigError.about("require", problem, "give a deployment these tags")
        return [*excluded]

    # Its attempts.

    async def aask(self, attempt: Attempt) -> Any:
        with self._request_for(attempt) as request:
            return self._with_cost(await self.own(**request))

    def ask(self, attempt: Attempt) -> Any:
        with self._request_for(attempt) as request:
            return self._with_cost(self.own(**request))

    @contextmanager
    def _request_for(self, attempt: Attempt) -> Generator[dict[str, Any]]:
        self.attempt = attempt
        try:
            yield self._narrowed(attempt)
        except Exception as error:
            self._note(attempt, error)
            raise

    def _with_cost(self, answer: Any) -> Any:
        """Report that an answer of LiteLLM's cache costs nothing: it has the first one's usage."""
        hidden = getattr(answer, "_hidden_params", None)
        if isinstance(hidden, dict) and hidden.get("cache_hit") is True:
            self.run.report(usage=_NO_USAGE)
        return answer

    async def aopen(self, attempt: Attempt) -> AsyncIterator[Any]:
        self.opened, self.has_begun = await self.aask(attempt), False
        if not is_stream(self.opened):
            return _once(self.opened)
        is_messages = "anthropic" in self.endpoint.name
        return events_of(self.opened, self.run) if is_messages else self.opened

    def open(self, attempt: Attempt) -> Iterator[Any]:
        self.opened, self.has_begun = self.ask(attempt), False
        return self.opened if is_stream(self.opened) else iter((self.opened,))

    def has_content(self, chunk: Any) -> bool:
        """Tell whether a chunk is worth handing out; what came in place of a stream is.

        Raises:
            AnswerRejected: LiteLLM made it up.
        """
        if chunk is self.opened or carries(chunk):
            return True
        if self.attempt and not self.has_begun and getattr(chunk, "choices", None):
            self.has_begun = True
            refuse_made_up(chunk, self.attempt.target)
        return False

    def _narrowed(self, attempt: Attempt) -> dict[str, Any]:
        """Return what LiteLLM is asked for one attempt: the request, narrowed to one deployment.

        History, timeout and the option for usage depend on whom it goes to.
        """
        chain, position = self.chain, attempt.position
        deployment, here = self.deployments[position], chain.ids[position]
        request = {**self.request, **self.stamps, **ONE_REQUEST}
        # An empty policy of the group's own: the Router's retry_policy would allow more than one.
        request["model_group_retry_policy"] = {str(request["model"]): litellm.RetryPolicy()}
        if here in self.by_id:
            request["model"] = here  # LiteLLM asks whom it is given by its id, also one that rests
        else:
            request[NARROWED] = [one for one in chain.ids if one != here]
        if attempt.number > 1:
            for name in REHEARSALS:  # of a failure: for the first request
                request.pop(name, None)
        params = deployment["litellm_params"]
        given = [one["litellm_params"] for one in self.deployments]
        some_think = any(one.get(name) for one in given for name in _THINKING)
        if chain.strangers or some_think:
            self._give_history(position, request, others_think=some_think)
        self._give_time(attempt.timeout, params, request)
        if self._tells_usage_if_asked(deployment, request):
            request["stream_options"] = {"include_usage": True}
            self.hides_usage = True
        return request

    def _give_history(self, position: int, request: dict[str, Any], *, others_think: bool) -> None:
        """Write what was said before as this deployment's provider accepts it."""
        chain, messages, items = self.chain, request.get("messages"), request.get("input")
        provider, is_generic = chain.providers[position], self.endpoint.is_generic
        if is_generic and isinstance(items, list):
            name, made_by = "input", "openai-responses"
            history = accepted_items(items, provider, is_stranger=position in chain.strangers)
        elif messages:
            name, made_by = "messages", "anthropic" if is_generic else "openai"
            history = messages if is_generic else accepted_chat(messages, provider)
        else:
            return
        if provider.family == "anthropic":
            deployment = self.deployments[position]
            params = deployment["litellm_params"]
            modes = {one: how for one in _THINKING if (how := request.get(one) or params.get(one))}
            thinking = modes.get("thinking")
            is_told = isinstance(thinking, dict) and thinking.get("type") == "enabled"
            if not modes or is_told or not adapts_thinking(deployment):
                history, switched_off = as_it_thinks(
                    history, modes, made_by=made_by, others_think=others_think
                )
                request.update(switched_off)
        request[name] = history

    def _time_limit(self, own: float | None, positions: list[int]) -> dict[str, float]:
        """Bound what LiteLLM still waits for, in a task, a second after it would have left itself.

        Its timeout is one between two reads: who keeps the connection warm never runs into it.
        One that is set for a stream is for its pauses: the first content has the config's, too.
        """
        limits: list[Any] = [own] if self.wants_stream else []
        for position in positions:
            theirs = self._timeout_of(self.deployments[position]["litellm_params"])
            limits.append(own if theirs is None else getattr(theirs, "read", theirs))
        with suppress(TypeError, ValueError):  # somebody has no limit
            return {"timeout": max(map(float, limits)) + 1} if self.endpoint.is_async else {}
        return {}

    def _timeout_of(self, params: dict[str, Any]) -> Any:
        router, request = self.router, self.request
        # The Router fills in LiteLLM's own default where nobody sets a timeout.
        is_set = get_configured_request_timeout() is not None
        default: Any = None if is_set else getattr(litellm, "request_timeout", None)
        tier = request.get("service_tier")
        streams = (("stream_timeout",),) if request.get("stream") is True else ()
        timeouts: list[Any] = []
        for some in (*streams, _TIMEOUTS):
            timeouts += [request.get(name) for name in some]
            timeouts += [(params.get(f"{name}_by_service_tier") or {}).get(tier) for name in some]
            timeouts += [params.get(name) for name in some]
            own = [getattr(router, name, None) for name in some]
            timeouts += [value for value in own if value != default]
        return next((value for value in timeouts if value is not None), None)

    def _give_time(
        self, seconds: float | None, params: dict[str, Any], request: dict[str, Any]
    ) -> None:
        """Hand an attempt's time to LiteLLM, where nobody has set one, or has set a longer one.

        The latter only where time is short: under a deadline, and up to the first chunk of a
        stream that is read in a thread, where nothing but LiteLLM's own timeout ends a silence.
        """
        streams = request.get("stream") is True
        if streams and self.endpoint.is_async:
            # In a task the policy ends an attempt to the point; LiteLLM's timeout is one between
            # two chunks there, where the time to the first one is no measure.
            seconds = None
        timeout = self._timeout_of(params)
        own = self.chain.config.timeout if timeout is None else None
        limits = [one for one in (seconds, own) if one is not None]
        with suppress(TypeError, ValueError):  # an httpx.Timeout says more than one number
            if limits and (timeout is None or float(timeout) > min(limits)):
                # LiteLLM asks for these names everywhere before it asks for the others.
                request["stream_timeout" if streams else "timeout"] = min(limits)

    def _tells_usage_if_asked(self, deployment: Deployment, request: dict[str, Any]) -> bool:
        params = deployment["litellm_params"]
        is_chat = "messages" in request and not self.endpoint.is_generic
        is_told = request.get("stream_options") or params.get("stream_options")
        if not is_chat or is_told or request.get("stream") is not True:
            return False
        model, (_, provider) = str(params["model"]), model_of(deployment)
        return "stream_options" in (litellm.get_supported_openai_params(model, provider) or ())

    def _note(self, attempt: Attempt, error: Exception) -> None:
        """Tell LiteLLM's callbacks of the following attempts what became of this one."""
        self.errors.append(error)
        group, request = self.request["model"], self.request
        metadata = request[self.bucket] = request.get(self.bucket) or {}
        earlier = metadata.get("previous_models") if len(self.errors) > 1 else None
        failed = {
            "model_group": group,
            "deployment_id": self.chain.ids[attempt.position],
            "model": self.deployments[attempt.position]["litellm_params"]["model"],
            "base_model": None,
            "exception_type": type(error).__name__,
            "exception_string": str(error),
            "attempted_retries": attempt.number - 1,
        }
        metadata["previous_models"] = (*(earlier or ())[-3:], failed)
        # LiteLLM drops them where a request is new, and keeps them where it is a hop of one.
        metadata["attempted_fallbacks"], metadata["original_model_group"] = 0, group
        self.stamps = {"attempted_targets": attempted_fallback_targets_from(request)}

    # The end.

    def final(self, error: Exception) -> Exception:
        """Return what the caller gets: the last error of a provider's, in LiteLLM's class."""
        if not self.asks_chain:
            return error
        if isinstance(error, DeadlineExceeded | OutcomeUnknown | StreamInterrupted):
            self.goes_elsewhere = False
            if isinstance(error.__cause__, Exception):
                error = error.__cause__
        if is_refusal(error):  # who was asked knows more
            error = next((one for one in reversed(self.errors) if not is_refusal(one)), error)
        if type(error) is TimeoutError and self.attempt is not None:
            target = self.attempt.target
            error = Timeout(str(error), model=target.model, llm_provider=target.provider or "")
        ours: Exception = attach(provider_error(error), self.run.record)
        if isinstance(ours, AnswerRejected) and ours.failure and ours.failure.kind == "refusal":
            vars(ours)["status_code"] = 400  # the Proxy's: clients ask again after its 500
        return ours

    # Behind it.

    async def walk(self, error: Exception) -> Any:
        if not self.goes_elsewhere:
            raise error
        answer = await walk(self.router, self.endpoint, self.bucket, self.request, error)
        if self.asks_chain:  # another group's answer carries the record of the chain before it
            attach(answer, self.run.record, deployment_of(answer))
        return answer


async def _once(answer: Any) -> AsyncIterator[Any]:
    yield answer
