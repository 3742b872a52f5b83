"""A model that asks a chain of models; who is asked, and when, is the policy's to say.

Pydantic AI's own ``FallbackModel`` knows how one of its models is asked on behalf of another:
with messages and parameters prepared for that model's profile, under its own deadlines, and with
the attributes of the request's span. Both classes here are such models: the chain inherits the
lifecycle of its models, each candidate is a chain of one that switches on nothing.
"""

from __future__ import annotations

from contextlib import aclosing, asynccontextmanager, contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from traceback import walk_tb
from typing import TYPE_CHECKING, Any, Literal, Unpack, cast

from pydantic_ai.exceptions import FallbackExceptionGroup
from pydantic_ai.messages import (
    ModelMessagesTypeAdapter,
    ModelRequestAttempt,
    ModelResponse,
    ThinkingPart,
    UserPromptPart,
)
from pydantic_ai.models import Model, infer_model
from pydantic_ai.models.fallback import FallbackModel as OwnFallbackModel
from pydantic_ai.usage import RequestUsage

from honcho_fallback import (
    AnswerRejected,
    Failure,
    FailureKind,
    FallbackConfigError,
    FallbackPolicy,
    Target,
)
from honcho_fallback.providers import (
    Provider,
    can_think,
    distinct_name,
    place_of,
    route_in,
    with_place,
)

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Generator, Iterable, Mapping

    from pydantic_ai.messages import ModelMessage, ModelResponseStreamEvent
    from pydantic_ai.models import ModelRequestParameters, StreamedResponse
    from pydantic_ai.settings import ModelSettings
    from pydantic_ai.tools import RunContext

    from honcho_fallback import (
        Attempt,
        CallRecord,
        ConfigOptions,
        FallbackConfig,
        FallbackObserver,
        FallbackRun,
    )
    from honcho_fallback.providers import CallIds

    Candidate = Model | Target | str

_ANTHROPIC = "anthropic"

# In the details of a response: the account that made it, where two may share one address. It is
# a digest, and stays with a history that is stored.
_MAKER = "honcho_fallback_account"

# What is told of usage, under the names that Pydantic AI and a record have in common.
_COUNTS = ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens")

# Settings that name what one provider keeps; a model of another ignores them, and with them the
# conversation. "auto" is safe: Pydantic AI then sends a stranger the whole history.
_KEPT_ELSEWHERE = ("openai_previous_response_id", "openai_conversation_id")

# Settings of a request that may hold the primary's keys and words.
_OF_THE_PRIMARY = ("extra_body", "extra_headers")


class FallbackModel(OwnFallbackModel):
    """Ask the next model on the first failure of the one before.

    A Pydantic AI model, for an ``Agent`` or ``pydantic_ai.direct``. SDKs send one request per
    attempt, unless ``max_retries`` is in the settings of a model or a request. With
    ``reset="turn"`` a run of the agent is one turn.

    Args:
        primary: A model, a name such as ``"openai:gpt-5.5"``, or a ``Target`` whose ``client`` is
            one, for labels, a context window and, in ``params``, settings of its own.
        *fallbacks: As ``primary``, in order.
        config: The options; default ``FallbackConfig()``.
        observers: Objects with the hooks of ``FallbackObserver``, or some of them.
        agent: A label for logs and records.
        partial: With ``"replace"`` a stream that is cut after content begins anew at the next
            model, with a part 0; with ``"final"`` it ends there.
        **options: Options of FallbackConfig, on top of ``config``.

    Attributes:
        policy: The chain and its options in the core.

    Raises:
        FallbackConfigError: An option is unknown or out of range.
        pydantic_ai.exceptions.UserError: A name is not known.
    """

    policy: FallbackPolicy

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
        if partial not in ("final", "replace"):
            raise FallbackConfigError.about("partial", f"got {partial!r}", "pass final or replace")
        targets = list[Target]()
        for one in (primary, *fallbacks):
            targets.append(_target_of(one, [target.name for target in targets]))
        super().__init__(*(target.client for target in targets))
        chain = [replace(target, client=_Candidate(target.client, self)) for target in targets]
        label = agent or "unknown"
        options = {"only_models": True, **options}
        self.policy = FallbackPolicy(chain, config, agent=label, observers=observers, **options)
        self._partial: Literal["final", "replace"] = partial
        home = place_of(chain[0])
        self._is_at_home = [place_of(target) == home for target in chain]

    async def request(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
    ) -> ModelResponse:
        """Ask the chain for a response, with what every model takes.

        Raises:
            FallbackExhausted: Nobody answered.
            DeadlineExceeded: Time ran out.
            Exception: The provider's own where no other target could help, or with one target.
        """
        run = self._start(messages, model_settings)

        async def ask(attempt: Attempt) -> ModelResponse:
            candidate: _Candidate = attempt.target.client
            sent, settings = self._fitted(attempt, messages, model_settings)
            with _unwrapped():
                response = await candidate.request(sent, settings, model_request_parameters)
            return replace(response, provider_details=_signed(response, attempt.target))

        response = await self.policy.acall(ask, run=run)
        return replace(response, failed_attempts=_failed_attempts(run.record, response))

    @asynccontextmanager
    async def request_stream(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
        run_context: RunContext[Any] | None = None,
    ) -> AsyncGenerator[StreamedResponse]:
        """Ask the chain for a stream, settled with its first content unless ``partial`` says no.

        Raises:
            StreamInterrupted: The stream broke after its first content, which was final.
            Exception: What ``request`` raises.
        """
        run = self._start(messages, model_settings)
        opened: list[StreamedResponse] = []

        async def ask(attempt: Attempt) -> AsyncGenerator[ModelResponseStreamEvent]:
            candidate: _Candidate = attempt.target.client
            sent, settings = self._fitted(attempt, messages, model_settings)
            opening = candidate.request_stream(
                sent, settings, model_request_parameters, run_context
            )
            with _unwrapped():
                async with opening as stream:
                    stream.failed_attempts = _failed_attempts(run.record, stream)
                    opened.append(stream)
                    try:
                        async for event in stream:
                            yield event
                    except Exception:
                        if not stream.cancelled:  # else that is why it broke
                            raise
                    if stream.cancelled:
                        raise _StreamCancelled
                    stream.provider_details = _signed(stream, attempt.target)
                    yield _closing_chunk(stream.get())

        async with aclosing(self.policy.astream(ask, run=run, partial=self._partial)) as events:
            first = await anext(events, None)
            yield cast("StreamedResponse", _EventStream(opened, first, events))

    async def count_tokens(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
    ) -> RequestUsage:
        """Ask the chain to count; who counts is who would be asked now."""
        parameters = model_request_parameters

        async def ask(attempt: Attempt) -> RequestUsage:
            model = self.models[attempt.position]
            sent, settings = self._fitted(attempt, messages, model_settings)
            prepared = model.prepare_messages(sent, parameters)
            return await model.count_tokens(prepared, settings, parameters)

        return await self.policy.acall(ask, unfit=self._unfit(messages, model_settings))

    @asynccontextmanager
    async def _run_scope(self) -> AsyncGenerator[None]:
        # An agent holds this context around all requests of a run.
        async with self.policy.turn(), super()._run_scope():
            yield

    def _start(self, messages: list[ModelMessage], settings: ModelSettings | None) -> FallbackRun:
        named = (getattr(one, "conversation_id", None) for one in reversed(messages))
        session = next(filter(None, named), None)  # the last one's, as Pydantic AI has it
        run = self.policy.start(session=session, unfit=self._unfit(messages, settings))
        if self.policy.wants_content:
            content = ModelMessagesTypeAdapter.dump_python(messages, mode="json")
            plain = (str, int, float, bool)
            shown = {name: one for name, one in (settings or {}).items() if isinstance(one, plain)}
            run.report(input=content, parameters=shown or None)
        return run

    def _fitted(
        self, attempt: Attempt, messages: list[ModelMessage], settings: ModelSettings | None
    ) -> tuple[list[ModelMessage], ModelSettings]:
        """Return a request as a target takes it, without the thoughts that it would refuse.

        OpenAI's systems refuse what they have encrypted, or keep, for another account. Anthropic's
        model refuses to think in a turn whose tools another model has called: then it is not asked
        to. Where it does not think, it refuses the thoughts of that turn.
        """
        model, target = self.models[attempt.position], attempt.target
        provider = Provider.named(model.system)
        sent = self._sent_to(attempt.position, settings)
        if hasattr(getattr(model.provider, "client", None), "max_retries"):
            sent = {"max_retries": 0, **(model.settings or {}), **sent}  # the SDK's own are off
        sent |= target.params
        if provider.per_account:
            messages = [_for_account(one, model, target) for one in messages]
        elif model.system == _ANTHROPIC:
            mode, outlines = _thinking_mode(model, sent), [*map(_outline, messages)]
            if mode == "enabled" and not can_think(outlines, made_by="openai"):
                mode, sent["anthropic_thinking"] = "disabled", {"type": "disabled"}
            if mode == "disabled":  # in any other it takes either
                messages = [*map(_without_thoughts, messages)]
        if (ids := provider.call_ids()) is not None:
            messages = [_with_valid_ids(one, ids) for one in messages]
        return messages, cast("ModelSettings", sent)

    def _sent_to(self, position: int, settings: ModelSettings | None) -> dict[str, Any]:
        """Return those of a request's own settings that a target gets."""
        left = () if self._is_at_home[position] else _OF_THE_PRIMARY
        return {name: value for name, value in (settings or {}).items() if name not in left}

    def _unfit(
        self, messages: list[ModelMessage], settings: ModelSettings | None
    ) -> dict[int, str] | None:
        """Say who cannot take a request, and why: what it names is kept, or leads, elsewhere."""
        reasons: dict[int, str] = {}
        pinned, required = self._get_continuation_model(messages), self.policy.config.require
        kept: Mapping[str, Any] = settings or {}
        names = [name for name in _KEPT_ELSEWHERE if kept.get(name) not in {None, "auto"}]
        for position, target in enumerate(self.policy.targets):
            route = required and route_in(self._sent_to(position, settings), target.model)
            if pinned is not None and self.models[position] is not pinned:
                reasons[position] = "the response that goes on is another's"
            elif pinned is None and names and not self._is_at_home[position]:
                reasons[position] = f"{names[0]} is kept by the primary's provider"
            elif route:
                why = f"it lacks the label {min(required)!r} where {route} may lead elsewhere"
                reasons[position] = why
        return reasons or None


class _Candidate(OwnFallbackModel):
    """One model, asked as Pydantic AI asks the models of its own chain."""

    def __init__(self, model: Model, chain: FallbackModel) -> None:
        super().__init__(model, fallback_on=Exception)
        self._owner = chain

    @property
    def model_name(self) -> str:
        """Return the chain's: by it the span of the request is known."""
        return self._owner.model_name


def _closing_chunk(response: ModelResponse) -> Any:
    """Return what the policy learns of a stream at its end: how it ended and what it cost.

    No event of Pydantic AI says so; the form is one that ``read_answer`` knows.
    """
    finish = response.finish_reason or (response.provider_details or {}).get("finish_reason")
    if response.parts and response.state != "incomplete":  # not every model says why it ended
        finish = finish or "stop"
    elif finish == "stop" and not (response.provider_details or {}).get("finish_reason"):
        finish = None  # so says Pydantic AI where a provider has said nothing at all
    return {
        "type": "message_delta",
        "delta": {"stop_reason": finish},
        "usage": response.usage if response.usage.has_values() else None,
        "model": response.model_name,
    }


class _EventStream:
    """Stand for the stream of whoever answers, whose chunks come through the policy.

    Everything else is the own of the stream that was opened last: its response, its usage, its
    state, and its class.
    """

    _opened: list[StreamedResponse]
    _event_iterator: AsyncIterator[ModelResponseStreamEvent]

    def __init__(
        self, opened: list[StreamedResponse], first: Any, chunks: AsyncGenerator[Any, None]
    ) -> None:
        # Under this name Pydantic AI puts an iterator of its own around it, to look at the first.
        own = self._read(first, chunks)
        vars(self).update(_opened=opened, _chunks=chunks, _event_iterator=own)

    @property  # type: ignore[misc] # object's can be written
    def __class__(self) -> type:  # pyright: ignore[reportIncompatibleMethodOverride] # the same
        return type(self._opened[-1])

    def __getattr__(self, name: str) -> Any:
        return getattr(self._opened[-1], name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in vars(self):
            vars(self)[name] = value
        else:
            setattr(self._opened[-1], name, value)

    def __aiter__(self) -> AsyncIterator[ModelResponseStreamEvent]:
        return self._event_iterator

    async def cancel(self) -> None:
        """End the stream; the call is one that its reader abandoned."""
        await self._opened[-1].cancel()
        # Another task may be reading: for that one the stream just ends.
        with suppress(RuntimeError):
            await self._chunks.aclose()

    async def close_stream(self) -> None:
        """Cancel the model's stream, for which Pydantic AI's stream around this one closes it."""
        await self._opened[-1].cancel()

    @staticmethod
    async def _read(chunk: Any, chunks: AsyncIterator[Any]) -> AsyncIterator[Any]:
        with suppress(_StreamCancelled):
            while chunk is not None:
                if not isinstance(chunk, dict):
                    yield chunk
                chunk = await anext(chunks, None)


class _StreamCancelled(BaseException):
    """End a call whose stream was cancelled while it was read: nobody else is to be asked."""


@contextmanager
def _unwrapped() -> Generator[None]:
    """Raise what a candidate met as it is: there is nobody else in its group."""
    try:
        yield
    except FallbackExceptionGroup as group:
        error = group.exceptions[0]
    else:
        return
    if isinstance(error, NotImplementedError):
        *_, (frame, _line) = walk_tb(error.__traceback__)
        if str(frame.f_globals.get("__name__")).startswith("pydantic_ai."):
            why, name = "its model does not take the request", type(error).__name__
            failure = Failure.of(FailureKind.UNSUPPORTED, reason=why, error=name, reached="no")
            raise AnswerRejected(failure, raised=error) from error
    raise error


def _thinking_mode(model: Model, settings: Mapping[str, Any]) -> str:
    """Name the mode in which settings have Anthropic's model think; some do so without any."""
    if own := settings.get("anthropic_thinking"):
        return str(own["type"])
    if not settings.get("thinking", model.profile.get("thinking_enabled_by_default")):
        return "disabled"
    adapts = model.profile.get("anthropic_supports_adaptive_thinking", False)
    return "adaptive" if adapts else "enabled"


def _outline(message: ModelMessage) -> dict[str, Any]:
    """Say whose a message is, and of an answer whose its calls are and whether it thought."""
    if not isinstance(message, ModelResponse):
        begins_turn = any(isinstance(part, UserPromptPart) for part in message.parts)
        return {"role": "user" if begins_turn else "tool"}
    calls = [{"id": call.tool_call_id} for call in message.tool_calls]
    thinks = any(map(_is_thought, message.parts))
    return {"role": "assistant", "tool_calls": calls, "thinking_blocks": thinks}


def _without_thoughts(message: ModelMessage) -> ModelMessage:
    if not isinstance(message, ModelResponse):
        return message
    return replace(message, parts=[one for one in message.parts if not _is_thought(one)])


def _is_thought(part: Any, system: str = _ANTHROPIC) -> bool:
    """Tell a thought that a system reads; another provider's is a text to it."""
    return isinstance(part, ThinkingPart) and part.provider_name == system


def _with_valid_ids(message: ModelMessage, ids: CallIds) -> ModelMessage:
    """Return a message whose calls, or their results, have ids that a provider takes."""
    if isinstance(message, ModelResponse):
        named: list[Any] = message.tool_calls
        valid_ids = ids.of_calls([one.tool_call_id for one in named])
    else:
        named = [one for one in message.parts if hasattr(one, "tool_call_id")]
        valid_ids = [ids.of_result(one.tool_call_id) for one in named]
    if valid_ids == [one.tool_call_id for one in named]:
        return message
    pairs = zip(named, valid_ids, strict=True)
    renamed = {id(one): replace(one, tool_call_id=valid_id) for one, valid_id in pairs}
    parts: Any = [renamed.get(id(one), one) for one in message.parts]
    return replace(message, parts=parts)


def _signed(made: ModelResponse | StreamedResponse, target: Target) -> dict[str, Any] | None:
    """Return a response's details with whose account it is for, where others refuse it."""
    maker = target.keys.get("credential")
    if maker is None or not Provider.named(target.provider or "").per_account:
        return made.provider_details
    return {**(made.provider_details or {}), _MAKER: maker}


def _for_account(message: ModelMessage, model: Model, target: Target) -> ModelMessage:
    """Return a message without what only another account of the same system can read."""
    if not isinstance(message, ModelResponse):
        return message
    maker, here = (message.provider_details or {}).get(_MAKER), target.keys.get("credential")
    is_here = message.provider_url in {None, model.base_url}
    if maker == here if maker and here else is_here:
        return message
    # Of what another provider made Pydantic AI sends no ids.
    kept = [one for one in message.parts if not _is_thought(one, model.system)]
    parts = [replace(one, provider_name=_MAKER) for one in kept]
    return replace(message, parts=parts, provider_name=_MAKER)


def _target_of(candidate: Candidate, taken: list[str]) -> Target:
    """Describe a candidate; a name that is taken gets a number."""
    given: Any = candidate.client if isinstance(candidate, Target) else candidate
    if not isinstance(given, Model | str):
        problem = f"got a {type(given).__name__}"
        raise FallbackConfigError.about("candidates", problem, "pass models, or their names")
    model = infer_model(given)
    known = Target(model.model_name, model.system or None)
    named = replace(known, name=distinct_name(known.name, taken))
    target = candidate if isinstance(candidate, Target) else named
    client = getattr(model.provider, "client", None)
    return with_place(replace(target, client=model), client, model.base_url, known.provider)


def _failed_attempts(
    record: CallRecord, made: ModelResponse | StreamedResponse
) -> list[ModelRequestAttempt] | None:
    """Write down, as Pydantic AI does, the attempts that an answer came after, its own last."""
    began = datetime.fromtimestamp(record.started_at, UTC)
    failed = [
        ModelRequestAttempt(
            model_name=one.model,
            provider_name=one.provider,
            outcome="rejected" if one.usage else "error",
            error=None if one.usage else f"{one.error}: {one.kind}",
            timestamp=began + timedelta(seconds=one.started),
            duration=timedelta(seconds=one.seconds),
            usage=RequestUsage(**{name: one.usage.get(name, 0) for name in _COUNTS})
            if one.usage
            else None,
        )
        for one in record.attempts
        if one.kind is not None
    ]
    return [*failed, *(made.failed_attempts or ())] or None
