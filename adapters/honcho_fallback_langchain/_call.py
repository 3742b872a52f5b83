"""One logical call: the steps of an attempt, once, and the ways to ask a candidate.

The loop over the chain is the core's. What an attempt takes under LangChain is the same whoever
asks, and stands in ``Call``: the key, the request as the candidate's provider takes it, the asking
itself, what it cost, and the mark that says who answered. Ways to ask differ, and each is a
subclass:

- ``ChainCall``: by the candidate's public methods, each attempt a child of one chain run.
- ``AgentCall``, beside the middleware: by an agent's handler.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar, cast

from langchain_core.messages import AIMessage, AIMessageChunk
from langchain_core.runnables.config import ensure_config, var_child_runnable_config

from honcho_fallback import AnswerRejected, check_response
from honcho_fallback_langchain._answers import (
    ato_its_end,
    ends_message,
    has_content,
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
    from collections.abc import AsyncIterator, Callable, Iterator

    from langchain_core.callbacks import (
        AsyncCallbackManager,
        AsyncCallbackManagerForChainRun,
        CallbackManager,
        CallbackManagerForChainRun,
    )
    from langchain_core.runnables import Runnable, RunnableConfig

    from honcho_fallback import Attempt, FallbackPolicy, FallbackRun, Turn
    from honcho_fallback_langchain._options import Options, Partial

    Manager = CallbackManagerForChainRun | AsyncCallbackManagerForChainRun

CallbacksT = TypeVar("CallbacksT")
RequestT = TypeVar("RequestT")


class Chain(NamedTuple):
    """What a runnable over a chain is to its calls.

    Args:
        policy: The chain and its options in the core.
        options: What stands beside them.
        prepare: Returns input and keywords for one attempt, as its provider takes them.
        name: Of the chain run, where a config has no other.
        own: Callbacks, verbosity, tags and metadata of the chain run, not of candidates.
    """

    policy: FallbackPolicy
    options: Options
    prepare: Callable[[Attempt, Any, dict[str, Any]], tuple[Any, dict[str, Any]]]
    name: str
    own: tuple[Any, bool, list[str] | None, dict[str, Any] | None]


class Request(NamedTuple):
    """What one attempt of a chain sends."""

    candidate: Runnable[Any, Any]
    input: Any
    config: RunnableConfig
    kwargs: dict[str, Any]


class Call(ABC, Generic[RequestT]):
    """The steps that are the same whichever way a candidate is asked."""

    run: FallbackRun

    def __init__(self, policy: FallbackPolicy, options: Options) -> None:
        self.policy = policy
        self.partial: Partial = options.partial
        self.detached = NOT_DETACHED
        self.metadata: dict[str, Any] | None = None
        self.gate: Gate | None = None  # of the attempt at hand

    def start(self, turn: Turn | None, call_input: Any) -> FallbackRun:
        """Start the core's run, nested where the detached handlers would have nested it."""
        if self.detached.stand_ins:
            with parented_like(self.detached):
                self.run = run = self.policy.start(turn=turn, metadata=self.metadata)
        else:
            self.run = run = self.policy.start(turn=turn, metadata=self.metadata)
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
        request = self.request_for(attempt, _candidate_of(attempt) or with_key(attempt.target))
        try:
            answer = self.send(request)
            return self.finish(attempt, answer)
        except BaseException as error:
            self.settle(error)
            raise

    async def aask(self, attempt: Attempt) -> Any:
        """Ask one candidate."""
        if self.gate is not None:
            await self.asettle(unreadable("the answer was refused"))
        candidate = _candidate_of(attempt) or await awith_key(attempt.target)
        request = self.request_for(attempt, candidate)
        try:
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
        chain: Chain,
        call_input: Any,
        config: RunnableConfig | None,
        kwargs: dict[str, Any],
    ) -> None:
        super().__init__(chain.policy, chain.options)
        self.chain = chain
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
        callbacks, verbose, tags, metadata = self.chain.own
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
        return {"name": self.run_name or self.chain.name, "run_id": self.run_id}

    def open(self, manager: Manager | None) -> FallbackRun:
        """Start the core's run under a chain run, or under none."""
        self.manager = manager
        self.policy, turn = for_this_call(self.config, self.policy)
        named = {"run_name": self.run_name, "run_id": self.run_id}
        self.metadata = metadata_for_this_call(self.config, **named)
        self.wants_content = self.policy.wants_content
        return self.start(turn, self.input)

    def request_for(self, attempt: Attempt, candidate: Any) -> Request:
        """Return the input, config and keywords for a candidate."""
        candidate_input, kwargs = self.chain.prepare(attempt, self.input, self.kwargs)
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
        token = var_child_runnable_config.set(request.config)
        try:
            return request.candidate.invoke(request.input, request.config, **request.kwargs)
        except IndexError as error:  # of a chat model alone: a chain's prompt may raise it, too
            if chat_model_of(request.candidate) is None:
                raise
            raise unreadable("the answer has no choices") from error
        finally:
            var_child_runnable_config.reset(token)

    async def asend(self, request: Request) -> Any:
        token = var_child_runnable_config.set(request.config)
        try:
            return await request.candidate.ainvoke(request.input, request.config, **request.kwargs)
        except IndexError as error:  # of a chat model alone: a chain's prompt may raise it, too
            if chat_model_of(request.candidate) is None:
                raise
            raise unreadable("the answer has no choices") from error
        finally:
            var_child_runnable_config.reset(token)

    def ask_for_stream(self, attempt: Attempt) -> Iterator[Any]:
        if self.gate is not None:
            self.settle(unreadable("the answer was refused"))
        request = self._stream_request(attempt, _candidate_of(attempt) or with_key(attempt.target))
        chunks = request.candidate.stream(request.input, request.config, **request.kwargs)
        return to_its_end(chunks, request.config, self.settle)

    async def ask_for_astream(self, attempt: Attempt) -> AsyncIterator[Any]:
        if self.gate is not None:
            await self.asettle(unreadable("the answer was refused"))
        request = self._stream_request(
            attempt, _candidate_of(attempt) or await awith_key(attempt.target)
        )
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


def _candidate_of(attempt: Attempt) -> Any:
    """Return an attempt's candidate, or None where a credential has to give it a key."""
    return attempt.target.client if attempt.target.credential is None else None


def _check_ends(messages: list[Any]) -> None:
    """Refuse what a stream left unfinished."""
    for message in messages:
        if not isinstance(message, AIMessage):
            continue
        kept = {"content", "invalid_tool_calls", "response_metadata", "tool_calls"}
        failure = check_response([AIMessageChunk(**message.model_dump(include=kept))])
        if failure is not None:
            raise AnswerRejected(failure)
