"""Fallbacks for ``create_agent``, around each call of its model.

An agent's middleware is shared by all its runs, so nothing of a run may stand on it: the turn's
name and place in the chain live in the graph's state, where a checkpoint keeps them over an
interrupt. They go there with the model's own update, because each hook of an agent or around its
model is a node with updates that no reader of them expects; and only where an observer knows what
to do with a turn's end, or a switch lasts for a turn.
"""

from __future__ import annotations

from collections import deque
from copy import copy
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Annotated, Any, NotRequired, Self, Unpack, cast
from weakref import WeakValueDictionary

from langchain.agents.middleware.types import (
    AgentMiddleware,
    AgentState,
    ExtendedModelResponse,
    ModelRequest,
    ModelResponse,
    PrivateStateAttr,
)
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.runnables.config import merge_configs
from langgraph.channels import UntrackedValue  # pyright: ignore[reportMissingTypeStubs] # the mark py.typed does not reach this folder
from langgraph.errors import GraphBubbleUp
from langgraph.types import Command

from honcho_fallback import (
    FailureKind,
    FallbackConfigError,
    FallbackObserver,
    FallbackPolicy,
    Turn,
    classify,
)
from honcho_fallback_langchain._call import Call, Request
from honcho_fallback_langchain._callbacks import detach_langfuse
from honcho_fallback_langchain._candidates import Chain, model_of
from honcho_fallback_langchain._labels import Boundary
from honcho_fallback_langchain._message_history import for_provider, tools_for
from honcho_fallback_langchain._options import FallbackOptions, Options

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from langchain_core.runnables import RunnableConfig

    from honcho_fallback import Attempt, FallbackRun
    from honcho_fallback_langchain._message_history import Reader

# Of the graph's state: where the turn stands, and whether this very run has put it there.
TURN, TURN_IN_RUN = "honcho_fallback_turn", "honcho_fallback_turn_in_run"
_CHAINS = 32  # that one middleware keeps; agents with a model per run need a bound
_TURNS = 1024  # that one middleware holds, so that each ends once

# By their ids, while a middleware holds them: a guard beside it knows a turn by its id alone. Who
# is not in here goes on under the same id all the same, as after a restart.
_OPEN_TURNS: WeakValueDictionary[str, Turn] = WeakValueDictionary()


# No checkpoint keeps it, so it is gone when another run goes on.
InRun = Annotated[bool, UntrackedValue, PrivateStateAttr]


class FallbackState(AgentState[Any]):
    """Keep in the graph how far down the chain the turn has gone, and from which primary."""

    honcho_fallback_turn: NotRequired[Annotated[dict[str, Any], PrivateStateAttr]]
    honcho_fallback_turn_in_run: NotRequired[InRun]


def same_turn(state: Mapping[str, Any], in_run: str) -> bool:
    """Tell whether a call of the model belongs to the turn that a graph's state is about.

    All calls of one run do, whatever tools and middlewares say in it in a person's place. A later
    run goes on with the turn, as after an interrupt, unless a person has said something that no
    answer follows.
    """
    if state.get(in_run):
        return True
    for message in reversed(state.get("messages", ())):
        if isinstance(message, AIMessage):
            return True
        if isinstance(message, HumanMessage):
            return False
    return True


def fail_turn(state: Mapping[str, Any]) -> None:
    """End the turn that a graph's state is about, where something else than a model ends it."""
    turn = _OPEN_TURNS.get((state.get(TURN) or {}).get("id", ""))
    if turn is not None:
        turn.end("failed")


class FallbackRequest(ModelRequest[Any]):
    """Ask a fallback: a model that is picked further inside stands for the agent's own alone."""

    def override(self, **overrides: Any) -> ModelRequest[Any]:
        """Return a request with other values, for the same model."""
        overrides.pop("model", None)
        return super().override(**overrides)


class AgentCall(Call):
    """Ask candidates by an agent's handler; turns that go on are held by the middleware."""

    response: ModelResponse[Any]  # of the attempt that was answered last
    turn: Turn | None = None  # that the graph keeps
    is_named = False  # whether it does so for its name alone
    is_heard = True
    reads = False  # an agent asks again itself

    def __init__(
        self,
        chain: Chain,
        request: ModelRequest[Any],
        handler: Callable[[ModelRequest[Any]], Any],
        turns: deque[Turn] | None,
    ) -> None:
        super().__init__(chain, request.messages, request.model_settings, None)
        self.named_turn = self.configure(self.config)
        self.request = request
        self.handler = handler
        self.turns = turns
        state: Any = request.state
        self.kept: dict[str, Any] = state.get(TURN) or {}

    def open(self) -> FallbackRun:
        request = self.request
        turn = self.named_turn or self._turn_around()
        run_id = getattr(getattr(request.runtime, "execution_info", None), "run_id", None)
        callbacks: Any = self.config.get("callbacks")
        if getattr(callbacks, "handlers", None):
            callbacks, self.detached = detach_langfuse(callbacks, self.policy)
        if self.detached:
            self.config = cast("RunnableConfig", {**self.config, "callbacks": callbacks})
        system = [request.system_message] if request.system_message else []
        return self.start(turn, {"run_id": run_id}, [*system, *request.messages])

    def _turn_around(self) -> Turn | None:
        """Return the turn around the agent's run, or that of the run itself, or None."""
        policy, observers = self.policy, self.policy.observers
        lasts = policy.config.reset != "iteration"
        self.is_named = lasts and bool(observers)
        for one in observers:  # some have some of the hooks
            hook = getattr(type(one), "on_turn_end", FallbackObserver.on_turn_end)
            if hook is not FallbackObserver.on_turn_end:
                self.is_named = True
        if self.turns is None or not (lasts or self.is_named):
            return None
        new_turn = policy.turn()
        around = Turn.current(new_turn.owner)
        if around is None:
            self.turn = around = self._turn_of_graph(new_turn)
        return around

    def _turn_of_graph(self, new_turn: Turn) -> Turn:
        """Return the turn that goes on in the graph, or a new one, and end the last."""
        state: Any = self.request.state
        turn_id, position = self.kept.get("id"), self.kept.get("position", 0)
        last_turn = None if turn_id is None else _OPEN_TURNS.get(turn_id)
        if turn_id is not None and (last_turn is None or last_turn.owner is not new_turn.owner):
            last_turn = self.policy.turn(turn_id)  # it began in another process, or long ago
        if not same_turn(state, TURN_IN_RUN):
            if last_turn is not None and self.kept.get("primary") == self._primary:
                last_turn.advance(position)
                last_turn.end("cancelled")  # tells the observers, unless they know
            return new_turn
        # One whose failure was told is over, also where an agent goes on all the same.
        goes_on = last_turn is not None and last_turn.outcome == "open"
        turn = last_turn if last_turn is not None and goes_on else new_turn
        turn.advance(min(position, len(self.chain.targets) - 1))
        return turn

    @property
    def _primary(self) -> str:
        return self.chain.targets[0].name

    def model_request(self, sent: Request) -> ModelRequest[Any]:
        request, attempt = self.request, sent.attempt
        reader = self.chain.links[attempt.position].reader
        changes = {} if reader is None or reader.is_primarys else self._foreign(reader)
        if sent.messages is not request.messages:
            changes["messages"] = sent.messages
        if sent.settings is not request.model_settings:
            changes["model_settings"] = sent.settings
        model = sent.candidate
        if sent.description:  # the model's run says which attempt it is, where that helps
            metadata = {**(model.metadata or {}), **sent.description}
            model = model.model_copy(update={"metadata": metadata})
        if model is not request.model:
            changes["model"] = model
        if attempt.position > 0:
            given = {one.name: getattr(request, one.name) for one in fields(request)}
            return FallbackRequest(**{**given, **changes})
        return request.override(**changes) if changes else request

    def _foreign(self, reader: Reader) -> dict[str, Any]:
        # Cache markers and the provider's own tools were made for the agent's model.
        request = self.request
        changes: dict[str, Any] = {}
        if request.tools:
            choice = {"tool_choice": request.tool_choice}
            tools, chosen = tools_for(reader, request.tools, choice)
            changes = {"tool_choice": None, **chosen, "tools": tools}
        if request.system_message is not None:
            (changes["system_message"],) = for_provider([request.system_message], reader)
        return changes

    def bounded(self, attempt: Attempt, callbacks: Any) -> Any:
        # A middleware inside may ask another model.
        boundary: Any = {"callbacks": [Boundary(self.required, self.config, attempt)]}
        return merge_configs({"callbacks": callbacks}, boundary).get("callbacks")

    def send(self, request: Request, _verb: str, /) -> Any:
        return self.handler(self.model_request(request))

    def finish(self, attempt: Attempt, answer: Any) -> Any:
        """Return the message in a response, for whoever judges it, and keep the response."""
        # A middleware inside may return a message alone.
        response = ModelResponse([answer]) if isinstance(answer, AIMessage) else answer
        messages = self.taken(attempt, response.result)
        self.response = replace(response, result=messages)
        for message in reversed(messages):
            if isinstance(message, AIMessage):
                return message
        return response

    def with_turn(self) -> ModelResponse[Any] | ExtendedModelResponse[Any]:
        """Return the response, with the turn for the graph's state if that changed."""
        turn, turns, response = self.turn, self.turns, self.response
        if turn is None or turns is None:
            return response
        if _is_final(response):
            turn.end()
        kept: dict[str, Any] = {}
        if turn.outcome == "open" and (turn.position or self.is_named):
            kept = {"id": turn.turn_id, "position": turn.position, "primary": self._primary}
        if kept == self.kept and (not kept or self.request.state.get(TURN_IN_RUN)):
            return response
        if kept and _OPEN_TURNS.setdefault(turn.turn_id, turn) is turn:
            turns.append(turn)
        return ExtendedModelResponse(response, Command(update={TURN: kept, TURN_IN_RUN: True}))

    def fail_turn(self, error: BaseException) -> None:
        """End the turn with the call; one that pauses goes on."""
        if self.turn is not None and not isinstance(error, GraphBubbleUp):
            is_cancelled = classify(error).kind is FailureKind.CANCELLED
            self.turn.end("cancelled" if is_cancelled else "failed")


def _is_final(response: ModelResponse[Any]) -> bool:
    """Tell whether an agent ends with a response by itself."""
    answers = [one for one in response.result if isinstance(one, AIMessage)]
    calls = answers[-1].tool_calls if answers else []
    return not calls or response.structured_response is not None


class FallbackMiddleware(AgentMiddleware[Any, Any, Any]):
    """Ask the next chat model on the first failure of the agent's own.

    Put it first, so that whatever is made for one provider runs inside, for the model that is
    really asked. With ``reset="iteration"`` every call of the model starts on the agent's own;
    with ``reset="turn"`` a switch holds until the agent has answered (Hermes calls this
    turn-scoped restoration), over interrupts too. A turn ends with an answer that calls no tool;
    one that was broken off ends when a person says the next thing. For one call its options may
    stand in the agent's config, as for a FallbackChatModel.

    A ModelRetryMiddleware inside needs ``on_failure="error"``: what it turns into a message, as it
    does by default, is an answer.

    Args:
        *fallbacks: Chat models, or names for ``init_chat_model``, asked in order after the
            agent's own.
        **options: As for ``FallbackChatModel.with_fallback_config``; the first of ``credentials``
            is that of the agent's own model.

    Raises:
        FallbackConfigError: There is no fallback, one is no chat model, or an option is wrong.
    """

    state_schema: type[Any] = FallbackState

    def __init__(
        self, *fallbacks: BaseChatModel | str, **options: Unpack[FallbackOptions]
    ) -> None:
        super().__init__()
        updated_options = Options().updated(options)
        models: list[BaseChatModel] = []
        for position, given in enumerate(fallbacks):
            what = f"fallbacks[{position}]"
            model = model_of(given, what)
            if not isinstance(model, BaseChatModel):
                fix = "pass a chat model without tools bound (the agent binds them) or its name"
                raise FallbackConfigError.about(what, f"got a {type(given).__name__}", fix)
            models.append(model)
        if not models:
            raise FallbackConfigError.about("fallbacks", "there is none", "pass a chat model")
        self.fallbacks = models
        self._turns: deque[Turn] = deque(maxlen=_TURNS)  # copies of this middleware share them
        self._hold(updated_options, None)

    @property
    def name(self) -> str:
        """Return one name for subclasses, too: an agent takes only one, as they share its turn."""
        return "FallbackMiddleware"

    def with_fallback_config(self, **options: Unpack[FallbackOptions]) -> Self:
        """Return a copy with other options.

        Args:
            **options: As for ``FallbackChatModel.with_fallback_config``.

        Raises:
            FallbackConfigError: One is unknown, of the wrong type or out of range.
        """
        middleware = copy(self)
        middleware._hold(self.options.updated(options), self._own)  # noqa: SLF001 # its own class
        return middleware

    def turn(self) -> Turn:
        """Open a user turn, for ``with``: what a switch lasts for, and how the turn ended.

        With ``reset="turn"``, and where an observer has ``on_turn_end``, each run of an agent is
        a turn by itself; one that is opened here holds for all runs in it, and its end is told
        whatever breaks a run off, a tool included. To another thread, or over an interrupt
        and what resumes it, it travels as ``config={"configurable": {"fallback_turn": turn}}``.
        """
        return self._own.turn()

    def wrap_model_call(
        self,
        request: ModelRequest[Any],
        handler: Callable[[ModelRequest[Any]], ModelResponse[Any]],
    ) -> ModelResponse[Any] | ExtendedModelResponse[Any]:
        """Ask the agent's model, then the fallbacks.

        Raises:
            FallbackExhausted: Nobody answered.
            Exception: The provider's own where no other model could help.
        """
        call = self._call(request, handler)
        try:
            call.policy.call(call.ask, run=call.open())
        except BaseException as error:
            call.close_gate(error)
            call.fail_turn(error)
            raise
        if call.gate is not None:
            call.close_gate()
        return call.with_turn()

    async def awrap_model_call(
        self,
        request: ModelRequest[Any],
        handler: Callable[[ModelRequest[Any]], Awaitable[ModelResponse[Any]]],
    ) -> ModelResponse[Any] | ExtendedModelResponse[Any]:
        call = self._call(request, handler)
        try:
            await call.policy.acall(call.aask, run=call.open())
        except BaseException as error:
            await call.aclose_gate(error)
            call.fail_turn(error)
            raise
        if call.gate is not None:
            await call.aclose_gate()
        return call.with_turn()

    def _call(self, request: ModelRequest[Any], handler: Callable[..., Any]) -> AgentCall:
        turns = self._turns if self._has_place else None
        return AgentCall(self._chain_of(request.model), request, handler, turns)

    @property
    def _has_place(self) -> bool:
        return TURN in self.state_schema.__annotations__

    def _hold(self, options: Options, before: FallbackPolicy | None) -> None:
        if options.config.reset != "iteration" and not self._has_place:
            raise FallbackConfigError.about(
                "state_schema",
                f"that of {type(self).__name__} has no place for a turn",
                'derive it from FallbackMiddleware.state_schema, or pass reset="iteration"',
            )
        self.options = options
        # This policy has no primary: there is no agent yet. Others share its fallbacks and turns.
        # Who has the labels that are required is known with the agent's model.
        own_options = replace(
            options,
            config=options.config.replace(require=frozenset()),
            credentials=(None, *options.credentials[1:]),
        )
        candidates = [self.fallbacks[0], *self.fallbacks]
        chain = Chain.over(candidates, own_options, before, replaced=1)
        self._own = chain.policy
        self._fallback_models = [target.client for target in chain.targets[1:]]
        for model in self._fallback_models:
            _ = model._serialized  # noqa: SLF001 # or each attempt's copy would make it anew
        # A cache by the model's id, not the state of a run: a missing chain is built again.
        self._chains: dict[int, tuple[BaseChatModel, Chain]] = {}

    def _chain_of(self, primary: BaseChatModel) -> Chain:
        entry = self._chains.get(id(primary))
        if entry is None:
            candidates = [model_of(primary, "the agent's model"), *self._fallback_models]
            entry = primary, Chain.over(candidates, self.options, self._own, replaced=1)
            latest = list(self._chains.items())[1 - _CHAINS :]
            self._chains = {**dict(latest), id(primary): entry}
        return entry[1]
