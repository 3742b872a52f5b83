"""A model that asks a chain of models; who is asked, and when, is the policy's to say."""

from __future__ import annotations

from contextlib import aclosing
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, Unpack
from weakref import WeakKeyDictionary

from agents import Model, ModelProvider, ModelRetryAdvice, MultiProvider
from agents.models._run_context import get_model_run_owner
from agents.tracing import get_current_trace

from honcho_fallback import ConfigOptions, FallbackConfigError, FallbackPolicy
from honcho_fallback_openai_agents import _sdk_models
from honcho_fallback_openai_agents._sdk_models import Request

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Iterable

    from agents import ModelResponse, ModelRetryAdviceRequest
    from agents.items import TResponseStreamEvent

    from honcho_fallback import Attempt, FallbackConfig, FallbackObserver, FallbackRun, Turn
    from honcho_fallback_openai_agents._sdk_models import Candidate


class FallbackModel(Model):
    """Ask the next model on the first failure of the one before.

    A model of the Agents SDK, for an ``Agent`` or ``RunConfig(model=...)``. SDKs send one request
    per attempt, and the Runner does not ask the chain again. With ``reset="turn"`` a run of the
    Runner is one turn.

    Args:
        primary: A model, a name such as ``"gpt-5.5"`` that ``MultiProvider`` resolves, or a
            ``Target`` whose ``client`` is one, for labels, a context window and, in ``params``,
            settings of its own.
        *fallbacks: As ``primary``, in order.
        config: The options; default ``FallbackConfig()``.
        observers: Objects with the hooks of ``FallbackObserver``, or some of them.
        agent: A label for logs and records.
        partial: With ``"replace"`` a stream that is cut after content begins anew at the next
            model, with a ``response.created``; with ``"final"`` it ends there.
        **options: Options of FallbackConfig, on top of ``config``.

    Attributes:
        policy: The chain and its options in the core.

    Raises:
        FallbackConfigError: An option is unknown or out of range, or a candidate is no model.
    """

    def __init__(
        self,
        primary: Candidate,
        *fallbacks: Candidate,
        config: FallbackConfig | None = None,
        observers: Iterable[FallbackObserver] = (),
        agent: str | None = None,
        partial: Literal["final", "replace"] = "final",
        **options: Unpack[ConfigOptions],
    ) -> None:
        if partial not in {"final", "replace"}:
            fix = "pass 'final' or 'replace'"
            raise FallbackConfigError.about("partial", f"got {partial!r}", fix)
        targets = _sdk_models.targets_of((primary, *fallbacks))
        label = agent or "unknown"
        options = {"only_models": True, **options}
        self.policy = FallbackPolicy(targets, config, agent=label, observers=observers, **options)
        self._partial: Literal["final", "replace"] = partial
        # Of the Runner's runs that go on.
        self._turns: WeakKeyDictionary[Any, Turn] = WeakKeyDictionary()

    async def get_response(self, *args: Any, **kwargs: Any) -> ModelResponse:
        """Ask the chain for a response, with what every model of the SDK takes.

        Raises:
            FallbackExhausted: Nobody answered.
            DeadlineExceeded: Time ran out.
            Exception: The provider's own where no other target could help, or with one target.
        """
        request = Request(*args, **kwargs)

        async def ask(attempt: Attempt) -> ModelResponse:
            model: Model = attempt.target.client
            response = await model.get_response(**self._fitted(request, attempt))
            _sdk_models.note_maker(attempt.target, response)
            return response

        return await self.policy.acall(ask, run=self._start(request))

    async def stream_response(
        self, *args: Any, **kwargs: Any
    ) -> AsyncGenerator[TResponseStreamEvent, None]:
        """Ask the chain for a stream, settled with its first content unless ``partial`` says no.

        Raises:
            StreamInterrupted: The stream broke after its first content, which was final.
            Exception: What ``get_response`` raises.
        """
        request = Request(*args, **kwargs)

        def ask(attempt: Attempt) -> AsyncIterator[TResponseStreamEvent]:
            events = attempt.target.client.stream_response(**self._fitted(request, attempt))
            is_replaceable = self._partial == "replace"
            return _sdk_models.in_order(events, attempt.target, is_replaceable=is_replaceable)

        call = self._start(request)
        async with aclosing(self.policy.astream(ask, run=call, partial=self._partial)) as events:
            async for event in events:
                yield event

    def get_retry_advice(self, request: ModelRetryAdviceRequest) -> ModelRetryAdvice | None:
        """Tell the Runner not to ask the whole chain again."""
        del request
        return ModelRetryAdvice(suggested=False, replay_safety="unsafe", reason="the chain ended")

    def _supports_default_prompt_cache_key(self) -> bool:
        # The Runner asks; it goes into ``extra_args``, which are the primary's.
        primary = self.policy.targets[0].client
        return bool(getattr(primary, "_supports_default_prompt_cache_key", bool)())

    async def close(self) -> None:
        """Close every model of the chain."""
        for target in self.policy.targets:
            await target.client.close()

    async def _cleanup_on_run_end(self, owner: object) -> None:
        # The Runner tells each model that a run is over.
        if (turn := self._turns.pop(owner, None)) is not None:
            turn.end()
        for target in self.policy.targets:
            await target.client._cleanup_on_run_end(owner)  # noqa: SLF001 # handed on as it came

    def _start(self, request: Request) -> FallbackRun:
        """Begin the call, without those who lack what the request names."""
        owner, turn = get_model_run_owner(), None
        if owner is not None:  # the Runner's run, which is one turn
            turn = self._turns.get(owner) or self._turns.setdefault(owner, self.policy.turn())
        unfit = _sdk_models.unfit_for(request, self.policy.targets, self.policy.config.require)
        session = request.conversation_id or getattr(get_current_trace(), "group_id", None)
        call = self.policy.start(turn=turn, session=session, unfit=unfit)
        if self.policy.wants_content:
            shown = request.model_settings.to_traceable_dict().items()
            parameters = {name: value for name, value in shown if value is not None}
            call.report(input=request.shown(), parameters=parameters or None)
        return call

    def _fitted(self, request: Request, attempt: Attempt) -> dict[str, Any]:
        """Return a request as the target of an attempt takes it."""
        target, targets = attempt.target, self.policy.targets
        items = _sdk_models.input_for(request.input, target, targets[0])
        settings = _sdk_models.settings_for(request.model_settings, target, targets[0], items)
        # The SDK asks for it at OpenAI's own address alone; who hears of content wants to know.
        if self.policy.wants_content and settings.include_usage is None:
            settings = replace(settings, include_usage=True)
        return request._replace(input=items, model_settings=settings)._asdict()


class FallbackProvider(ModelProvider):
    """Give every model that an agent names the same fallbacks: ``RunConfig(model_provider=...)``.

    A model that an agent holds as an object is asked as it is: the SDK asks a provider for names.

    Args:
        *fallbacks: Models, names, or ``Target``s whose ``client`` is a model, in order.
        provider: Resolves names, also those of fallbacks; default ``MultiProvider()``.
        config: The options; default ``FallbackConfig()``.
        observers: Objects with the hooks of ``FallbackObserver``, or some of them.
        agent: A label for logs and records.
        partial: As for ``FallbackModel``.
        **options: Options of FallbackConfig, on top of ``config``.
    """

    def __init__(
        self,
        *fallbacks: Candidate,
        provider: ModelProvider | None = None,
        config: FallbackConfig | None = None,
        observers: Iterable[FallbackObserver] = (),
        agent: str | None = None,
        partial: Literal["final", "replace"] = "final",
        **options: Unpack[ConfigOptions],
    ) -> None:
        self._provider = MultiProvider() if provider is None else provider
        self._fallbacks = fallbacks
        more = {"observers": tuple(observers), "agent": agent, "partial": partial, **options}
        self._more: dict[str, Any] = {"config": config, **more}
        # One policy for each name: what was learned of a provider has to outlive a run.
        self._models: dict[str | None, FallbackModel] = {}

    def get_model(self, model_name: str | None) -> Model:
        """Return the chain that begins with a model, or with the provider's default."""
        if model_name not in self._models:
            primary, *fallbacks = (
                self._provider.get_model(one) if one is None or isinstance(one, str) else one
                for one in (model_name, *self._fallbacks)
            )
            self._models[model_name] = FallbackModel(primary, *fallbacks, **self._more)
        return self._models[model_name]

    async def aclose(self) -> None:
        """Close the models, and what resolved their names."""
        for model in self._models.values():
            await model.close()
        await self._provider.aclose()
