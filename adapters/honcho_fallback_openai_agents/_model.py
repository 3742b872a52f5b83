"""A model that asks a chain of models; who is asked, and when, is the policy's to say."""

from __future__ import annotations

from collections import OrderedDict
from contextlib import aclosing
from copy import copy
from dataclasses import replace
from inspect import isawaitable
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Unpack, cast
from weakref import WeakKeyDictionary

from agents import (
    CustomTool,
    FunctionTool,
    Model,
    ModelProvider,
    ModelRetryAdvice,
    ModelSettings,
    MultiProvider,
    OpenAIResponsesModel,
)
from agents.models._run_context import get_model_run_owner
from agents.models.fake_id import FAKE_RESPONSES_ID
from agents.tracing import get_current_trace
from openai.types.responses import ResponseCompletedEvent

from honcho_fallback import FallbackConfig, FallbackConfigError, FallbackPolicy, Target
from honcho_fallback.providers import (
    bound_to,
    can_think,
    distinct_name,
    owner_of,
    place_of,
    portable,
    route_in,
    with_place,
    without_retries,
)

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Iterable

    from agents import ModelResponse, ModelRetryAdviceRequest, Tool, TResponseInputItem
    from agents.items import TResponseStreamEvent

    from honcho_fallback import Attempt, ConfigOptions, FallbackObserver, FallbackRun, Turn

    Candidate = Model | Target | str

# What stands in settings for one provider: its keys and its words. A target's own are its params.
_EXTRA = ("extra_args", "extra_body", "extra_headers", "extra_query")
_OF_THE_PRIMARY: dict[str, Any] = dict.fromkeys((*_EXTRA, "metadata", "response_include"))

# The events that end a response, and what of it is whole before.
_ENDS = {f"response.{end}" for end in ("completed", "failed", "incomplete", "error")} | {"error"}
_ITEM_DONE = "response.output_item.done"

# Where a response or an item was made, by the id that its server gave it: whose what is kept or
# encrypted is. For the process, as the ids are: a session outlives the runs and chains that wrote
# it, and the agents of one run may have a chain each. It is a fact about the servers, no state of
# a call, and the oldest ids are forgotten.
_MADE_AT: OrderedDict[str, tuple[bool, str]] = OrderedDict()
_MOST_IDS = 20_000


class _Request(NamedTuple):
    """Hold what every model of the SDK is asked with, in its order and under its names."""

    system_instructions: str | None
    input: str | list[TResponseInputItem]
    model_settings: ModelSettings
    tools: list[Tool]
    output_schema: Any
    handoffs: list[Any]
    tracing: Any
    previous_response_id: str | None = None
    conversation_id: str | None = None
    prompt: Any = None


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
        if partial not in ("final", "replace"):
            raise FallbackConfigError.about("partial", f"got {partial!r}", "pass final or replace")
        targets = list[Target]()
        for one in (primary, *fallbacks):
            targets.append(_target_of(one, [target.name for target in targets]))
        label = agent or "unknown"
        options = {"only_models": True, **options}
        self.policy = FallbackPolicy(targets, config, agent=label, observers=observers, **options)
        self._partial: Literal["final", "replace"] = partial
        # By API, address and account: who shares all three may have what a server keeps.
        self._places = [(isinstance(t.client, OpenAIResponsesModel), place_of(t)) for t in targets]
        # Of the Runner's runs that go on.
        self._turns: WeakKeyDictionary[Any, Turn] = WeakKeyDictionary()

    async def get_response(self, *args: Any, **kwargs: Any) -> ModelResponse:
        """Ask the chain for a response, with what every model of the SDK takes.

        Raises:
            FallbackExhausted: Nobody answered.
            DeadlineExceeded: Time ran out.
            Exception: The provider's own where no other target could help, or with one target.
        """
        request, made = _Request(*args, **kwargs), list[Any]()

        async def ask(attempt: Attempt) -> ModelResponse:
            made.append(await attempt.target.client.get_response(**self._fitted(request, attempt)))
            _note_maker(self._places[attempt.position], made[-1])
            return cast("ModelResponse", made[-1])

        try:
            return await self.policy.acall(ask, run=self._start(request))
        except Exception as error:
            # To the Runner a refusal is an answer: it has an error, and handlers, of its own.
            if getattr(getattr(error, "failure", None), "kind", None) == "refusal":
                return cast("ModelResponse", made[-1])
            raise

    async def stream_response(
        self, *args: Any, **kwargs: Any
    ) -> AsyncGenerator[TResponseStreamEvent, None]:
        """Ask the chain for a stream, settled with its first content unless ``partial`` says no.

        Raises:
            StreamInterrupted: The stream broke after its first content, which was final.
            Exception: What ``get_response`` raises.
        """
        request = _Request(*args, **kwargs)

        def ask(attempt: Attempt) -> AsyncIterator[TResponseStreamEvent]:
            events = attempt.target.client.stream_response(**self._fitted(request, attempt))
            return _in_order(events, self._places[attempt.position], self._partial)

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

    def _start(self, request: _Request) -> FallbackRun:
        """Begin the call, without those who lack what the request names."""
        owner, turn = get_model_run_owner(), None
        if owner is not None:  # the Runner's run, which is one turn
            turn = self._turns.get(owner) or self._turns.setdefault(owner, self.policy.turn())
        session = request.conversation_id or getattr(get_current_trace(), "group_id", None)
        call = self.policy.start(turn=turn, session=session, unfit=self._unfit(request))
        if self.policy.wants_content:
            system, question = request.system_instructions, request.input
            items: list[Any] = [{"role": "system", "content": system}] if system else []
            is_text = isinstance(question, str)
            items += [{"role": "user", "content": question}] if is_text else question
            shown = request.model_settings.to_traceable_dict().items()
            parameters = {name: value for name, value in shown if value is not None}
            call.report(input=items, parameters=parameters or None)
        return call

    def _unfit(self, request: _Request) -> dict[int, str] | None:
        """Say who cannot take a request: what it names is kept, or leads, elsewhere."""
        require, home = self.policy.config.require, self._places[0]
        # A response that nobody here made is taken for the primary's.
        keeper = _MADE_AT.get(request.previous_response_id or "")
        keeper = keeper if keeper in self._places else home
        fields = {**request._asdict(), "conversation": request.conversation_id}
        routing = {name: getattr(request.model_settings, name) for name in _EXTRA if require}
        reasons = dict[int, str]()
        for position, target in enumerate(self.policy.targets):
            is_responses, _ = place = self._places[position]
            own = (FunctionTool, CustomTool) if is_responses else (FunctionTool,)
            tools = [{"type": one.name} for one in request.tools if not isinstance(one, own)]
            why = None if place == keeper else bound_to({**fields, "tools": tools})
            route = route_in(routing, target.model) if place == home else None
            if why or route:
                reasons[position] = why or (
                    f"it lacks the label {min(require)!r} where {route} may lead elsewhere"
                )
        return reasons or None

    def _fitted(self, request: _Request, attempt: Attempt) -> dict[str, Any]:
        """Return a request as the target of an attempt takes it.

        Elsewhere than at the primary's place it has none of the primary's words, and nothing that
        only its maker can read; what nobody here is known to have made is taken for the primary's.
        """
        target, items, settings = attempt.target, request.input, request.model_settings
        here, home = self._places[attempt.position], self._places[0]
        form = "openai-responses"
        history: list[Any] = [] if isinstance(items, str) else items
        if any(
            _MADE_AT.get(_id_of(one), home) != here and not isinstance(one.get("content"), str)
            for one in history
        ):
            items = history = cast("list[Any]", portable(history, made_by=form, for_=form))
        if here != home:
            settings = replace(settings, **_OF_THE_PRIMARY)
        settings = settings.resolve(ModelSettings(**target.params)) if target.params else settings
        # Anthropic's model refuses to think in a turn whose tools another model has called.
        is_claude = "claude" in str(getattr(target.client, "model", target.model)).lower()
        if settings.reasoning and is_claude and not can_think(history, made_by=form):
            settings = replace(settings, reasoning=None)
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
        _ = (config or FallbackConfig()).replace(**options)  # refused here, not in the first run
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


def _target_of(candidate: Candidate, taken: list[str]) -> Target:
    """Describe a candidate; a name that is taken gets a number."""
    given: Any = candidate.client if isinstance(candidate, Target) else candidate
    model = MultiProvider().get_model(given) if isinstance(given, str) else given
    if not isinstance(model, Model):
        problem = f"got a {type(model).__name__}"
        raise FallbackConfigError.about("candidates", problem, "pass models, or their names")
    clients = {key: one for key, one in vars(model).items() if owner_of(one) is one is not None}
    client = next(iter(clients.values()), None)
    # Of a copy of the model the client sends one request; the model is left as it is.
    copied = copy(model)
    vars(copied).update({key: without_retries(one) for key, one in clients.items()})
    name = str(getattr(model, "model", "") or type(model).__name__)
    known = Target(name, None if client is None else "openai")
    named = replace(known, name=distinct_name(known.name, taken))
    target = candidate if isinstance(candidate, Target) else named
    return with_place(replace(target, client=copied), client, provider=known.provider)


def _note_maker(place: tuple[bool, str], made: Any) -> None:
    """Remember where a response, or what an event of a stream brings, was made."""
    whole = getattr(made, "response", made)
    items = getattr(whole, "output", None) or [getattr(made, "item", whole)]
    response_id = str(getattr(whole, "response_id", None) or _id_of(whole))
    ids = {response_id, *map(_id_of, items)} - {"", FAKE_RESPONSES_ID}
    _MADE_AT.update(dict.fromkeys(ids, place))
    while len(_MADE_AT) > _MOST_IDS:
        _MADE_AT.popitem(last=False)


async def _in_order(
    events: AsyncIterator[TResponseStreamEvent], place: tuple[bool, str], partial: str
) -> AsyncGenerator[TResponseStreamEvent, None]:
    """Hand on a model's events, and what settles the answer not before its end is known.

    The Runner raises at a failure's event, where the SDK's models raise, too, if one reads on; of
    an answer that names no items it takes those that were done, so that in a response that may
    still be replaced none is done before the response is.
    """
    late: list[Any] = []
    has_begun = False
    try:
        try:
            async for event in events:
                kind = getattr(event, "type", None)
                if kind in _ENDS or kind == _ITEM_DONE:
                    _note_maker(place, event)
                if kind in _ENDS or (partial == "replace" and kind == _ITEM_DONE):
                    late.append(event)
                    continue
                has_begun = True
                yield event
        except Exception:
            # A connection that is lost after the whole answer has cost nothing.
            if not late or not isinstance(late[-1], ResponseCompletedEvent):
                raise
        for event in late:
            # The SDK makes up an empty answer where a provider sent nothing at all.
            is_empty = isinstance(event, ResponseCompletedEvent) and not event.response.output
            if has_begun or not is_empty:
                yield event
    finally:
        # Generators have aclose; a model may as well hand on an SDK's stream, which has close.
        close: Any = getattr(events, "aclose", None) or getattr(events, "close", bool)
        if isawaitable(closing := close()):
            await closing


def _id_of(item: Any) -> str:
    """Return the id of an item; what a chat completion brought has that of the whole answer."""
    extra = getattr(item, "model_extra", None) or {}
    fields = item if isinstance(item, dict) else {**getattr(item, "__dict__", {}), **extra}
    origin = fields.get("provider_data") or {"response_id": fields.get("id")}
    return str(origin.get("response_id") or "")
