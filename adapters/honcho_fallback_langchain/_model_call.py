"""One call of an agent's model: its turn, its request for each provider, its answer."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

from langchain.agents.middleware.types import ExtendedModelResponse, ModelRequest, ModelResponse
from langchain_core.messages import AIMessage
from langchain_core.runnables.config import ensure_config
from langgraph.types import Command

from honcho_fallback import Turn
from honcho_fallback_langchain._candidates import parameters_of
from honcho_fallback_langchain._marks import attempt_metadata, describe, mark, usage_of
from honcho_fallback_langchain._messages import for_provider
from honcho_fallback_langchain._options import for_this_call
from honcho_fallback_langchain._providers import settings_for, tools_for
from honcho_fallback_langchain._reported_once import in_place_of, surroundings

if TYPE_CHECKING:
    from langchain_core.language_models import BaseChatModel
    from langchain_core.messages import BaseMessage

    from honcho_fallback import Attempt, FallbackObserver, FallbackPolicy

# Of the graph's state: how far down the chain a turn has gone, and from which primary.
POSITION, PRIMARY = "honcho_fallback_position", "honcho_fallback_primary"


class ModelCall:
    """Hold one call while it runs.

    Args:
        policy: Over the agent's model and the fallbacks.
        request: The agent's.
        observers: The observers of the call.
    """

    __slots__ = ("began_at", "policy", "request", "run", "surroundings", "turn")

    def __init__(
        self,
        policy: FallbackPolicy,
        request: ModelRequest[Any],
        observers: tuple[FallbackObserver, ...],
    ) -> None:
        self.policy, turn = for_this_call(ensure_config(), policy, observers)
        self.request = request
        self.turn: Turn | None = None
        self.began_at = 0
        if self.policy.config.reset == "turn":
            graph_turn = self.policy.turn()
            turn = turn or Turn.current(graph_turn.owner)
            if turn is None:  # the graph keeps it
                position = cast("int", request.state.get(POSITION, 0))
                graph_turn.advance(min(position, len(policy.targets) - 1))
                self.began_at = graph_turn.position
                self.turn = turn = graph_turn
        self.surroundings = around = surroundings(observers)
        with in_place_of(around.handlers, around.parent_run_id, observers):
            self.run = self.policy.start(turn=turn)
        if self.policy.wants_content:
            system = request.system_message
            self.run.report(input=[*([system] if system else []), *request.messages])

    def request_for(self, attempt: Attempt, model: BaseChatModel) -> ModelRequest[Any]:
        """Return the request as an attempt's provider takes it."""
        request, target = self.request, attempt.target
        if self.policy.wants_content:
            self.run.report(parameters=parameters_of(target.client, request.model_settings))
        changes: dict[str, Any] = {}
        if attempt.number > 1:
            metadata = attempt_metadata(self.run, attempt, self.policy.targets[0])
            model = model.model_copy(
                update={
                    "metadata": {**(model.metadata or {}), **metadata},
                    "tags": [*(model.tags or []), f"fallback:attempt:{attempt.number}"],
                }
            )
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

    def finish(self, attempt: Attempt, answer: Any) -> ModelResponse[Any]:
        """Note what an answer cost, and mark its message."""
        response = ModelResponse(result=[answer]) if isinstance(answer, AIMessage) else answer
        description = describe(self.run, attempt)
        result = [mark(message, description) for message in response.result]
        for message in result:
            usage = usage_of(message)
            if usage is not None:
                self.run.report(usage=usage)
        return replace(response, result=result)

    def with_position(
        self, response: ModelResponse[Any]
    ) -> ModelResponse[Any] | ExtendedModelResponse[Any]:
        """Return the response, with the turn's position for the graph's state if it changed."""
        if self.turn is None or self.turn.position == self.began_at:
            return response
        state_update = {POSITION: self.turn.position, PRIMARY: self.policy.targets[0].name}
        return ExtendedModelResponse(response, Command(update=state_update))
