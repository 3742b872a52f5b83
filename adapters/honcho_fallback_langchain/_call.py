"""One logical call: the steps of an attempt, once, and the ways to ask a candidate.

The loop over the chain is the core's. What an attempt takes under LangChain is the same whoever
asks, and stands in ``Call``: the key, the request as the candidate's provider takes it, the asking
itself, answers that could not be parsed, what it cost, and the mark that says who answered. Ways
to ask differ, and each is a subclass:

- ``ChainCall``: by the candidate's public methods, each attempt a child of one chain run; where no
  handler listens, without a run, because opening one for every candidate is most of what a call
  costs.
- ``InnerCall``: inside a run that LangChain has opened already (``generate``, the third version of
  ``stream_events``), by the methods that report nothing: the public ones would report each token
  and its cost once more.
- ``AgentCall``, beside the middleware: by an agent's handler.
"""

# pyright: reportPrivateUsage=false
# _generate and its kin are old, every integration overrides them, and no other way in has no run.

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage
from langchain_core.outputs import ChatGenerationChunk, ChatResult
from langchain_core.runnables.config import ensure_config, var_child_runnable_config

from honcho_fallback import AnswerRejected, check_response
from honcho_fallback_langchain._answers import (
    ato_its_end,
    ends_message,
    has_content,
    parsing_answers,
    to_its_end,
    unreadable,
)
from honcho_fallback_langchain._callbacks import (
    NOT_DETACHED,
    Gate,
    detach_langfuse,
    parented_like,
    show_tokens,
    shows_tokens_itself,
)
from honcho_fallback_langchain._candidates import (
    chat_model_of,
    may_be_asked_for_usage,
    parameters_of,
)
from honcho_fallback_langchain._direct import (
    Request,
    as_chunk,
    check_generations,
    direct_request,
    message_of,
    result_of,
    streams,
    unbound,
)
from honcho_fallback_langchain._fit import Question, messages_in, require_fit
from honcho_fallback_langchain._metadata import (
    attempt_metadata,
    describe,
    mark,
    mark_replacement,
    usage_of,
)
from honcho_fallback_langchain._options import for_this_call, metadata_for_this_call
from honcho_fallback_langchain._sdk import awith_key, with_key

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from langchain_core.callbacks import (
        AsyncCallbackManager,
        AsyncCallbackManagerForChainRun,
        CallbackManager,
        CallbackManagerForChainRun,
    )
    from langchain_core.runnables import RunnableConfig

    from honcho_fallback import Attempt, FallbackPolicy, FallbackRun, Turn
    from honcho_fallback_langchain._base import FallbackBase
    from honcho_fallback_langchain._options import Options, Partial

    Manager = CallbackManagerForChainRun | AsyncCallbackManagerForChainRun

CallbacksT = TypeVar("CallbacksT")
RequestT = TypeVar("RequestT")


class Call(ABC, Generic[RequestT]):
    """The steps that are the same whichever way a candidate is asked."""

    run: FallbackRun

    def __init__(self, policy: FallbackPolicy, options: Options) -> None:
        self.policy = policy
        self.partial: Partial = options.partial
        self.detached = NOT_DETACHED
        self.metadata: dict[str, Any] | None = None
        self.gate: Gate | None = None  # of the attempt at hand

    def start(
        self, turn: Turn | None, call_input: Any, unfit: dict[int, str] | None
    ) -> FallbackRun:
        """Start the core's run, nested where the detached handlers would have nested it."""
        with parented_like(self.detached):
            self.run = run = self.policy.start(turn=turn, metadata=self.metadata, unfit=unfit)
        run.report(input=call_input)
        return run

    @abstractmethod
    def request_for(self, attempt: Attempt, candidate: Any) -> RequestT:
        """Return what an attempt sends."""

    @abstractmethod
    def send(self, request: RequestT) -> Any:
        """Return what the candidate answers."""

    @abstractmethod
    async def asend(self, request: RequestT) -> Any:
        """Return what the candidate answers, in this task."""

    def messages_of(self, answer: Any) -> list[Any]:
        """Return the messages of an answer: itself, or what a chain makes of one."""
        return [answer]

    def with_messages(self, answer: Any, messages: list[Any]) -> Any:  # noqa: ARG002 # it is the message
        """Return an answer with other messages."""
        return messages[0]

    def ask(self, attempt: Attempt) -> Any:
        """Ask one candidate."""
        if self.gate is not None:
            self.settle(unreadable("the answer was refused"))
        request = self.request_for(attempt, with_key(attempt.target))
        try:
            with parsing_answers():
                answer = self.send(request)
            return self.finish(attempt, answer)
        except BaseException as error:
            self.settle(error)
            raise

    async def aask(self, attempt: Attempt) -> Any:
        """Ask one candidate."""
        if self.gate is not None:
            await self.asettle(unreadable("the answer was refused"))
        request = self.request_for(attempt, await awith_key(attempt.target))
        try:
            with parsing_answers():
                answer = await self.asend(request)
            return self.finish(attempt, answer)
        except BaseException as error:
            await self.asettle(error)
            raise

    def gated(self, candidate: Any, callbacks: CallbacksT) -> tuple[Any, CallbacksT]:
        """Return a candidate and callbacks that show nothing before there is content to show."""
        own = shows_tokens_itself(candidate)
        if not own and not show_tokens(callbacks):
            return candidate, callbacks
        self.gate = gate = Gate(None if self.partial == "replace" else self.run)
        return (
            gate.before_own(candidate) if own else candidate,
            callbacks and gate.before(callbacks),
        )

    def settle(self, error: BaseException | None = None) -> None:
        """Report what the attempt at hand holds back: if it failed, only that it is over."""
        gate, self.gate = self.gate, None
        if gate is not None:
            gate.close(error)

    async def asettle(self, error: BaseException | None = None) -> None:
        """Report what the attempt at hand holds back, in this task."""
        gate, self.gate = self.gate, None
        if gate is not None:
            await gate.aclose(error)

    def finish(self, attempt: Attempt, answer: Any) -> Any:
        """Note what an answer cost, and return it marked."""
        messages = self.messages_of(answer)
        streamed = self.gate is not None and self.gate.streamed
        if streamed or getattr(chat_model_of(attempt.target.client), "streaming", None) is True:
            _check_ends(messages)
        for message in messages:
            if isinstance(message, dict):  # include_raw; of any other answer the core reads it
                self.run.report(usage=usage_of(message.get("raw")))
        description = describe(self.run, attempt)
        return self.with_messages(answer, [mark(message, description) for message in messages])


class ChainCall(Call[Request]):
    """Ask candidates by their public methods, each under one chain run."""

    attempt: Attempt  # that streams
    wants_content: bool

    def __init__(
        self,
        owner: FallbackBase[Any, Any, Any],
        call_input: Any,
        config: RunnableConfig | None,
        kwargs: dict[str, Any],
    ) -> None:
        super().__init__(owner.policy, owner.options)
        self.owner = owner
        self.input = call_input
        self.kwargs = kwargs
        self.config = ensure_config(config)
        # Both are for this run and no child of it.
        self.run_name = self.config.pop("run_name", None)
        self.run_id = self.config.pop("run_id", None)
        self.manager: Manager | None = None
        self.usage: dict[str, int] = {}
        self.passing_attempt: Attempt | None = None
        self.passed: list[Any] = []  # of the attempt that passes; without a run the last alone

    def managed(self, kind: type[CallbackManager | AsyncCallbackManager]) -> Any:
        """Return the callback manager, or None where nobody listens.

        A run that nobody hears of need not be opened at all.
        """
        config = self.config
        callbacks, verbose, tags, metadata = self.owner.own_callbacks()
        manager: Any = kind.configure(
            config.get("callbacks"),
            callbacks,
            verbose,
            config.get("tags"),
            tags,
            config.get("metadata"),
            metadata,
        )
        manager, self.detached = detach_langfuse(manager, self.policy)
        if manager.handlers or self.detached.handlers:
            config["callbacks"] = manager
        return manager if manager.handlers else None

    def named(self) -> dict[str, Any]:
        """Return the run's name and id."""
        return {"name": self.run_name or self.owner.get_name(), "run_id": self.run_id}

    def open(self, manager: Manager | None) -> FallbackRun:
        """Start the core's run under a chain run, or under none."""
        self.manager = manager
        self.policy, turn = for_this_call(self.config, self.policy)
        named = {"run_name": self.run_name, "run_id": self.run_id}
        self.metadata = metadata_for_this_call(self.config, **named)
        self.wants_content = self.policy.wants_content
        given, unfit = self.input, None
        if self.owner.options.fit == "check":
            models = isinstance(self.owner, BaseChatModel)
            messages = messages_in(given, convert=models)
            if messages is not None:
                configurable = self.config.get("configurable")
                question = Question(messages, configurable=configurable, translated=models)
                unfit = require_fit(self.policy, question, self.kwargs, models=models)
                if models and not isinstance(given, str):
                    self.input = messages  # no attempt has to convert them again
        return self.start(turn, given, unfit)

    def request_for(self, attempt: Attempt, candidate: Any) -> Request:
        """Return the input, config and keywords for a candidate."""
        candidate_input, kwargs = self.owner.request_for(attempt, self.input, self.kwargs)
        if self.wants_content:
            self.run.report(parameters=parameters_of(attempt.target.client, kwargs))
        config = self.config
        if self.manager is None:
            candidate, _ = self.gated(candidate, None)
            return Request(candidate, candidate_input, config, kwargs)
        child = self.manager.get_child()
        if attempt.number > 1 or self.partial == "replace":
            child.add_metadata(attempt_metadata(self.run, attempt, self.policy.targets[0]))
        if attempt.number > 1:
            child.add_tags([f"fallback:attempt:{attempt.number}"])
        candidate, callbacks = self.gated(candidate, child)
        config = cast("RunnableConfig", {**config, "callbacks": callbacks})
        return Request(candidate, candidate_input, config, kwargs)

    def send(self, request: Request) -> Any:
        direct = direct_request(request) if self.manager is None else None
        if direct is not None:
            model = cast("BaseChatModel", direct.candidate)
            return message_of(model._generate_with_cache(direct.input, **direct.kwargs))  # noqa: SLF001 # see above
        token = var_child_runnable_config.set(request.config)
        try:
            return request.candidate.invoke(request.input, request.config, **request.kwargs)
        finally:
            var_child_runnable_config.reset(token)

    async def asend(self, request: Request) -> Any:
        direct = direct_request(request) if self.manager is None else None
        if direct is not None:
            model = cast("BaseChatModel", direct.candidate)
            return message_of(await model._agenerate_with_cache(direct.input, **direct.kwargs))  # noqa: SLF001 # see above
        token = var_child_runnable_config.set(request.config)
        try:
            return await request.candidate.ainvoke(request.input, request.config, **request.kwargs)
        finally:
            var_child_runnable_config.reset(token)

    def ask_for_stream(self, attempt: Attempt) -> Iterator[Any]:
        if self.gate is not None:
            self.settle(unreadable("the answer was refused"))
        request = self._stream_request(attempt, with_key(attempt.target))
        chunks = request.candidate.stream(request.input, request.config, **request.kwargs)
        return to_its_end(chunks, request.config, self.settle)

    async def ask_for_astream(self, attempt: Attempt) -> AsyncIterator[Any]:
        if self.gate is not None:
            await self.asettle(unreadable("the answer was refused"))
        request = self._stream_request(attempt, await awith_key(attempt.target))
        chunks = request.candidate.astream(request.input, request.config, **request.kwargs)
        return ato_its_end(chunks, request.config, self.asettle)

    def _stream_request(self, attempt: Attempt, candidate: Any) -> Request:
        """Prepare a stream, which is asked what it cost where somebody wants to know."""
        self.attempt = attempt  # a stream without content is handed out after its call has ended
        request = self.request_for(attempt, candidate)
        if self.wants_content and may_be_asked_for_usage(attempt.target.client):
            return request._replace(kwargs={"stream_usage": True, **request.kwargs})
        return request

    def shows(self, chunk: Any) -> bool:
        """Tell whether a chunk has content; it is final where none could say what it replaces."""
        content = has_content(chunk)
        if content and self.partial == "replace" and not isinstance(chunk, AIMessage):
            self.run.commit()
        return content

    def passing(self, chunk: Any) -> Any:
        """Note what a chunk says of its cost, and mark an attempt's first and a message's last."""
        replaced: Any = None
        if self.passing_attempt is not self.attempt:
            replaced = getattr(self.passed[-1], "id", None) if self.passed else None
            self.passing_attempt, self.passed, self.usage = self.attempt, [], {}
        usage = usage_of(chunk)
        if usage is not None:
            # Each chunk of a message carries its share.
            before = self.usage
            self.usage = before | {name: before.get(name, 0) + usage[name] for name in usage}
            self.run.report(usage=self.usage)
        if ends_message(chunk):
            chunk = mark(chunk, describe(self.run, self.attempt))
        if replaced is not None:
            chunk = mark_replacement(chunk, replaced)
        if self.manager is None:
            self.passed.clear()
        self.passed.append(chunk)
        return chunk


class InnerCall(Call[Request]):
    """Ask candidates in a run that LangChain has opened, by the methods that report nothing."""

    def __init__(
        self,
        owner: FallbackBase[Any, Any, Any],
        messages: list[BaseMessage],
        kwargs: dict[str, Any],
    ) -> None:
        # LangChain hands no config on; what a graph or a chain runs in is around us.
        config = ensure_config()
        policy, turn = for_this_call(config, owner.policy)
        super().__init__(policy, owner.options)
        self.metadata = metadata_for_this_call(config)
        self.owner = owner
        self.messages = messages
        self.kwargs = kwargs
        unfit = None
        if owner.options.fit == "check":
            question = Question(messages, configurable=config.get("configurable"))
            unfit = require_fit(policy, question, kwargs, models=True)
        self.start(turn, messages, unfit)

    def request_for(self, attempt: Attempt, candidate: Any) -> Request:
        """Return the messages and keywords for the model inside a candidate."""
        messages, kwargs = self.owner.request_for(attempt, self.messages, self.kwargs)
        return unbound(Request(candidate, messages, {"callbacks": []}, kwargs))

    def send(self, request: Request) -> ChatResult:
        model, messages, config, kwargs = request
        if isinstance(model, BaseChatModel):
            return model._generate_with_cache(messages, **kwargs)  # noqa: SLF001 # see above
        return result_of(model.invoke(messages, config, **kwargs))

    async def asend(self, request: Request) -> ChatResult:
        model, messages, config, kwargs = request
        if isinstance(model, BaseChatModel):
            return await model._agenerate_with_cache(messages, **kwargs)  # noqa: SLF001 # see above
        return result_of(await model.ainvoke(messages, config, **kwargs))

    def messages_of(self, answer: ChatResult) -> list[Any]:
        """Return the messages of the generations, of which there has to be one."""
        check_generations(answer)
        return [generation.message for generation in answer.generations]

    def with_messages(self, answer: ChatResult, messages: list[Any]) -> ChatResult:
        """Return a copy of the result with other messages."""
        generations = [
            generation.model_copy(update={"message": message})
            for generation, message in zip(answer.generations, messages, strict=True)
        ]
        return answer.model_copy(update={"generations": generations})

    def ask_for_stream(self, attempt: Attempt) -> Iterator[ChatGenerationChunk]:
        request = self.request_for(attempt, with_key(attempt.target))
        model, messages, _, kwargs = request
        if not isinstance(model, BaseChatModel) or not streams(model, kwargs, async_api=False):
            yield as_chunk(self.ask(attempt))
            return
        if model.rate_limiter is not None:
            model.rate_limiter.acquire(blocking=True)
        chunk = None
        with parsing_answers():
            for chunk in model._stream(messages, **kwargs):  # noqa: SLF001 # see above
                yield chunk
        if chunk is not None:
            yield self._mark_after(chunk, attempt)

    async def ask_for_astream(self, attempt: Attempt) -> AsyncIterator[ChatGenerationChunk]:
        request = self.request_for(attempt, await awith_key(attempt.target))
        model, messages, _, kwargs = request
        if not isinstance(model, BaseChatModel) or not streams(model, kwargs, async_api=True):
            yield as_chunk(await self.aask(attempt))
            return
        if model.rate_limiter is not None:
            await model.rate_limiter.aacquire(blocking=True)
        chunk = None
        with parsing_answers():
            async for chunk in model._astream(messages, **kwargs):  # noqa: SLF001 # see above
                yield chunk
        if chunk is not None:
            yield self._mark_after(chunk, attempt)

    def _mark_after(self, chunk: ChatGenerationChunk, attempt: Attempt) -> ChatGenerationChunk:
        """Return an empty chunk that says who answered."""
        empty = AIMessageChunk(content="" if isinstance(chunk.message.content, str) else [])
        return ChatGenerationChunk(message=mark(empty, describe(self.run, attempt)))


def _check_ends(messages: list[Any]) -> None:
    """Refuse what a stream left unfinished."""
    for message in messages:
        if not isinstance(message, AIMessage):
            continue
        kept = {"content", "invalid_tool_calls", "response_metadata", "tool_calls"}
        failure = check_response([AIMessageChunk(**message.model_dump(include=kept))])
        if failure is not None:
            raise AnswerRejected(failure)
