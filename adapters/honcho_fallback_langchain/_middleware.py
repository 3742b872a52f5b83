"""Fallbacks for ``create_agent``, around each call of its model.

An agent's middleware is shared by all its runs, so nothing of a run may stand on it: the turn's
place in the chain lives in the graph's state, where a checkpoint keeps it over an interrupt.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, NotRequired, Self, Unpack, cast

from langchain.agents.middleware.types import (
    AgentMiddleware,
    AgentState,
    ExtendedModelResponse,
    ModelRequest,
    ModelResponse,
    PrivateStateAttr,
)
from langchain.chat_models import init_chat_model
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage
from langchain_core.runnables.config import ensure_config, set_config_context
from langchain_core.runnables.utils import coro_with_context
from langgraph.types import Command

from honcho_fallback import FallbackConfigError, FallbackPolicy, Turn
from honcho_fallback_langchain._call import Call
from honcho_fallback_langchain._callbacks import ambient_config
from honcho_fallback_langchain._candidates import parameters_of
from honcho_fallback_langchain._history import for_provider
from honcho_fallback_langchain._metadata import attempt_metadata
from honcho_fallback_langchain._options import (
    FallbackOptions,
    Options,
    for_this_call,
    policy_over,
)
from honcho_fallback_langchain._providers import settings_for, tools_for
from honcho_fallback_langchain._sdk import in_time

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from langchain_core.messages import BaseMessage
    from langchain_core.runnables import RunnableConfig
    from langgraph.runtime import Runtime

    from honcho_fallback import Attempt

# Of the graph's state: how far down the chain a turn has gone, and from which primary.
POSITION, PRIMARY = "honcho_fallback_position", "honcho_fallback_primary"
_PRIMARIES = 32  # whose policies one middleware keeps; agents with a model per run need a bound


class FallbackState(AgentState[Any]):
    """Keep in the graph how far down the chain the turn has gone, and from which primary."""

    honcho_fallback_position: NotRequired[Annotated[int, PrivateStateAttr]]
    honcho_fallback_primary: NotRequired[Annotated[str, PrivateStateAttr]]


class AgentCall(Call[ModelRequest[Any]]):
    """Ask candidates by an agent's handler.

    Args:
        policy: Over the agent's model and the fallbacks.
        request: The agent's.
        handler: The agent's: asks the model of a request, in a thread or in a task.
        options: The middleware's.
    """

    __slots__ = ("around", "began_at", "config", "handler", "request", "turn")

    def __init__(
        self,
        policy: FallbackPolicy,
        request: ModelRequest[Any],
        handler: Callable[[ModelRequest[Any]], Any],
        options: Options,
    ) -> None:
        around = ensure_config()
        policy, turn = for_this_call(around, policy, options.observers)
        super().__init__(policy, options)
        self.request = request
        self.handler = handler
        self.turn: Turn | None = None
        self.began_at = 0
        if policy.config.reset == "turn":
            graph_turn = policy.turn()
            turn = turn or Turn.current(graph_turn.owner)
            if turn is None:  # the graph keeps it
                position = cast("int", request.state.get(POSITION, 0))
                graph_turn.advance(min(position, len(policy.targets) - 1))
                self.began_at = graph_turn.position
                self.turn = turn = graph_turn
        detached = ambient_config(options.observers)
        self.around = detached.config or around
        self.config = detached.config  # of an attempt, where it is not that around the call
        system = [request.system_message] if request.system_message else []
        self.start(turn, detached, [*system, *request.messages] if policy.wants_content else None)

    def request_for(self, attempt: Attempt, candidate: Any) -> ModelRequest[Any]:
        """Return the request as an attempt's provider takes it."""
        request, target, model = self.request, attempt.target, candidate
        if self.policy.wants_content:
            self.run.report(parameters=parameters_of(target.client, request.model_settings))
        changes: dict[str, Any] = {}
        model, callbacks = self.gated(model, self.around.get("callbacks"))
        if self.gate is not None:
            self.config = cast("RunnableConfig", {**self.around, "callbacks": callbacks})
        described: dict[str, Any] = {}
        if attempt.number > 1 or self.partial == "replace":
            metadata = attempt_metadata(self.run, attempt, self.policy.targets[0])
            described["metadata"] = {**(model.metadata or {}), **metadata}
        if attempt.number > 1:
            described["tags"] = [*(model.tags or []), f"fallback:attempt:{attempt.number}"]
        if described:
            model = model.model_copy(update=described)
        if model is not request.model:
            changes["model"] = model
        if target.provider is not None:
            history = cast("list[BaseMessage]", request.messages)
            messages = for_provider(history, target.provider)
            if messages is not history:
                changes["messages"] = messages
            if target.provider != self.policy.targets[0].provider:
                changes |= self._foreign(target.provider)
        return request.override(**changes) if changes else request

    def _foreign(self, provider: str) -> dict[str, Any]:
        # Settings, cache markers and the provider's own tools were made for the agent's model.
        request = self.request
        changes: dict[str, Any] = {
            "model_settings": settings_for(provider, request.model_settings),
            "tools": tools_for(provider, request.tools),
        }
        if request.system_message is not None:
            (changes["system_message"],) = for_provider([request.system_message], provider)
        return changes

    def send(self, request: ModelRequest[Any]) -> Any:
        """Return what the agent's model answers."""
        if self.config is None:
            return self.handler(request)
        with set_config_context(self.config) as context:
            return context.run(self.handler, request)

    async def asend(self, request: ModelRequest[Any]) -> Any:
        """Return what the agent's model answers."""
        if self.config is None:
            return await self.handler(request)
        with set_config_context(self.config) as context:
            return await coro_with_context(self.handler(request), context)

    def messages_of(self, answer: Any) -> list[Any]:
        """Return the messages of a response; a middleware inside may return one alone."""
        return [answer] if isinstance(answer, AIMessage) else answer.result

    def with_messages(self, answer: Any, messages: list[Any]) -> ModelResponse[Any]:
        """Return the response with other messages."""
        if isinstance(answer, AIMessage):
            return ModelResponse(result=messages)
        response: ModelResponse[Any] = replace(answer, result=messages)
        return response

    def with_position(
        self, response: ModelResponse[Any]
    ) -> ModelResponse[Any] | ExtendedModelResponse[Any]:
        """Return the response, with the turn's position for the graph's state if it changed."""
        if self.turn is None or self.turn.position == self.began_at:
            return response
        state_update = {POSITION: self.turn.position, PRIMARY: self.policy.targets[0].name}
        return ExtendedModelResponse(response, Command(update=state_update))


class FallbackMiddleware(AgentMiddleware[Any, Any, Any]):
    """Ask the next chat model on the first failure of the agent's own.

    Put it first, so that whatever is made for one provider runs inside, for the model that is
    really asked. With ``reset="iteration"`` every call of the model starts on the agent's own;
    with ``reset="turn"`` a switch holds until the agent has answered (Hermes calls this
    turn-scoped restoration), over interrupts too. For one call its options may stand in the
    agent's config, as for a FallbackChatModel.

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

    def __new__(cls, *_fallbacks: Any, **options: Any) -> Self:
        kind = _kind_for(options) if cls is FallbackMiddleware else cls
        return super().__new__(cast("type[Self]", kind))

    def __init__(
        self, *fallbacks: BaseChatModel | str, **options: Unpack[FallbackOptions]
    ) -> None:
        super().__init__()
        updated_options = Options().updated(options)
        self.fallbacks = [_chat_model(one, position) for position, one in enumerate(fallbacks)]
        if not self.fallbacks:
            raise FallbackConfigError.about("fallbacks", "there is none", "pass a chat model")
        self._hold(updated_options, None)

    @property
    def name(self) -> str:
        """Return one name for both kinds: an agent takes only one of them."""
        return "FallbackMiddleware"

    def with_fallback_config(self, **options: Unpack[FallbackOptions]) -> FallbackMiddleware:
        """Return a copy with other options.

        Args:
            **options: As for ``FallbackChatModel.with_fallback_config``.

        Raises:
            FallbackConfigError: One is unknown, of the wrong type or out of range.
        """
        updated_options = self.options.updated(options)
        middleware = FallbackMiddleware(
            *self.fallbacks,
            fallback_config=updated_options.config,
            observers=updated_options.observers,
        )
        middleware._hold(updated_options, self._own)
        return middleware

    def turn(self) -> Turn:
        """Open a user turn, for ``with``: what a switch lasts for, and how the turn ended.

        With ``reset="turn"`` each run of an agent is a turn by itself; one that is opened here
        holds for all runs in it. To another thread, or over an interrupt and what resumes it, it
        travels as ``config={"configurable": {"fallback_turn": turn}}``.
        """
        return self._own.turn()

    def wrap_model_call(
        self,
        request: ModelRequest[Any],
        handler: Callable[[ModelRequest[Any]], ModelResponse[Any]],
    ) -> ModelResponse[Any] | ExtendedModelResponse[Any]:
        """Ask the agent's model, then the fallbacks.

        Args:
            request: The agent's.
            handler: Asks the request's model.

        Raises:
            FallbackExhausted: Nobody answered.
            Exception: The provider's own where no other model could help.
        """
        call = AgentCall(self._policy_of(request.model), request, handler, self.options)
        try:
            answer = call.policy.call(in_time(call.ask), run=call.run)
        except BaseException as error:
            call.settle(error)
            raise
        call.settle()
        return call.with_position(answer)

    async def awrap_model_call(
        self,
        request: ModelRequest[Any],
        handler: Callable[[ModelRequest[Any]], Awaitable[ModelResponse[Any]]],
    ) -> ModelResponse[Any] | ExtendedModelResponse[Any]:
        """Ask the agent's model, then the fallbacks, in this task.

        Args:
            request: The agent's.
            handler: Asks the request's model.

        Raises:
            FallbackExhausted: Nobody answered.
            Exception: The provider's own where no other model could help.
        """
        call = AgentCall(self._policy_of(request.model), request, handler, self.options)
        try:
            answer = await call.policy.acall(call.aask, run=call.run)
        except BaseException as error:
            await call.asettle(error)
            raise
        await call.asettle()
        return call.with_position(answer)

    def _hold(self, options: Options, before: FallbackPolicy | None) -> None:
        if options.config.reset == "turn" and not isinstance(self, _TurnMiddleware):
            raise FallbackConfigError.about(
                "reset",
                f"{type(self).__name__} is a subclass, and those have no turns",
                'use FallbackMiddleware itself, or reset="iteration"',
            )
        self.options = options
        # This policy has no primary: there is no agent yet. Others share its fallbacks and turns.
        own_options = replace(options, credentials=(None, *options.credentials[1:]))
        self._own = policy_over(
            [self.fallbacks[0], *self.fallbacks], own_options, before, replaced=1
        )
        self._fallback_models = [target.client for target in self._own.targets[1:]]
        for model in self._fallback_models:
            _ = model._serialized  # noqa: SLF001 # or each attempt's copy would make it anew
        # A cache by the model's id, not the state of a run: a missing policy is built again.
        self._policies: dict[int, tuple[BaseChatModel, FallbackPolicy]] = {}

    def _policy_of(self, primary: BaseChatModel) -> FallbackPolicy:
        entry = self._policies.get(id(primary))
        if entry is None:
            candidates = [primary, *self._fallback_models]
            entry = primary, policy_over(candidates, self.options, self._own, replaced=1)
            latest = list(self._policies.items())[1 - _PRIMARIES :]
            self._policies = {**dict(latest), id(primary): entry}
        return entry[1]


class _TurnMiddleware(FallbackMiddleware):
    """Begin every turn on the agent's own model."""

    state_schema = FallbackState

    def before_agent(self, state: Any, runtime: Runtime[Any]) -> dict[str, Any]:  # noqa: ARG002 # LangGraph looks for these names
        """Forget where the last turn ended."""
        return self._ended(state)

    async def abefore_agent(self, state: Any, runtime: Runtime[Any]) -> dict[str, Any]:  # noqa: ARG002 # LangGraph looks for these names
        """Forget where the last turn ended."""
        return self._ended(state)

    def _ended(self, state: Any) -> dict[str, Any]:
        position, primary = state.get(POSITION), state.get(PRIMARY)
        for _, policy in self._policies.values() if position else ():
            if policy.targets[0].name == primary:
                turn = policy.turn()
                turn.advance(position)
                turn.end()  # tells the observers
                break
        return {POSITION: 0}


class _ToldTurnMiddleware(_TurnMiddleware):
    """Tell observers of a turn's end when it ends; of one that failed, when the next begins."""

    def after_agent(self, state: Any, runtime: Runtime[Any]) -> dict[str, Any]:  # noqa: ARG002 # LangGraph looks for these names
        """Tell that the primary is back."""
        return self._ended(state)

    async def aafter_agent(self, state: Any, runtime: Runtime[Any]) -> dict[str, Any]:  # noqa: ARG002 # LangGraph looks for these names
        """Tell that the primary is back."""
        return self._ended(state)


def _kind_for(options: dict[str, Any]) -> type[FallbackMiddleware]:
    # A hook that a class has costs a node in every agent. What is wrong is said later.
    reset = options.get("reset") or getattr(options.get("fallback_config"), "reset", None)
    if reset != "turn":
        return FallbackMiddleware
    return _ToldTurnMiddleware if options.get("observers") else _TurnMiddleware


def _chat_model(fallback: object, position: int) -> BaseChatModel:
    model = init_chat_model(fallback) if isinstance(fallback, str) else fallback
    if not isinstance(model, BaseChatModel):
        raise FallbackConfigError.about(
            f"fallbacks[{position}]",
            f"got a {type(fallback).__name__}",
            "pass a chat model without tools bound (the agent binds them) or its name",
        )
    return model
