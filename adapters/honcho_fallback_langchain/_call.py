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
from collections.abc import AsyncGenerator, Generator
from dataclasses import dataclass
from inspect import isawaitable
from typing import TYPE_CHECKING, Any, Self, cast

from langchain_core.callbacks import AsyncCallbackManager, CallbackManager
from langchain_core.messages import AIMessage
from langchain_core.runnables.config import ensure_config, var_child_runnable_config

from honcho_fallback import (
    AnswerRejected,
    FallbackConfig,
    FallbackPolicy,
    Turn,
    call_metadata,
    check_response,
)
from honcho_fallback.providers import route_in
from honcho_fallback_langchain._callbacks import (
    AS_AROUND,
    Gate,
    detach_langfuse,
    show_tokens,
)
from honcho_fallback_langchain._candidates import parameters_of, streams
from honcho_fallback_langchain._labels import labels_of
from honcho_fallback_langchain._message_history import as_it_thinks, for_provider
from honcho_fallback_langchain._outputs import (
    NOTHING,
    RAISED,
    attempt_metadata,
    ends_message,
    failed_attempt,
    has_content,
    mark_replacement,
    marked,
    merged,
    raise_as_failure,
    reading_messages,
    unfit,
    unreadable,
)
from honcho_fallback_langchain._sdk import (
    ATTEMPTS,
    with_key,
    with_stream_usage,
    without_thinking,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from langchain_core.runnables import Runnable, RunnableConfig

    from honcho_fallback import Attempt, FallbackRun
    from honcho_fallback_langchain._callbacks import Detached
    from honcho_fallback_langchain._candidates import Chain
    from honcho_fallback_langchain._options import Partial

_END: Any = object()

# Where a call's own policy stands in a config. A remote caller can put strings and dicts there, so
# only the very classes count.
_CONFIG_KEY, _TURN_KEY = "fallback_config", "fallback_turn"
_AGENT_KEY = "lc_agent_name"  # where create_agent(name=...) puts it in a config's metadata
_NO_AGENT = "unknown"
# Of a config's metadata: what LangChain, LangGraph and this package say of a run, not its caller.
_THEIRS = ("__", "checkpoint_", "fallback_", "is_fallback", "langgraph_", "lc_", "ls_")
_THREAD = "thread_id"  # LangGraph copies it from what is configurable; it names the conversation
_SESSIONS = (_THREAD, "session_id")  # the second is RunnableWithMessageHistory's
# Per call they name another model of the primary's provider.
_OTHER_MODEL = frozenset({"model", "model_name"})


# A candidate is asked with its own config around it, for what asks for the config without having
# been handed one: a tool or a chain inside of a model. LangChain's own composites do the same for
# what they call, but in a copy of the context; here the context stays the reader's, and what a
# generator sets in it is still there at its last chunk.


@dataclass(slots=True, eq=False)
class Request:
    """What one attempt sends, as its provider takes it, and a context to send it in.

    Requests that are made in it end with the attempt. A stream enters it once for each chunk.
    """

    call: Call
    attempt: Attempt
    attempts: tuple[Attempt, ...]  # it and those around it: a candidate may be a chain
    candidate: Any
    messages: Any  # or what else is asked
    settings: dict[str, Any]
    config: RunnableConfig
    description: dict[str, Any]  # of the attempt, for tracers; empty where it helps nobody
    _tokens: Any = None

    def __enter__(self) -> Self:
        self._tokens = var_child_runnable_config.set(self.config), ATTEMPTS.set(self.attempts)
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        config, attempts = self._tokens
        ATTEMPTS.reset(attempts)
        var_child_runnable_config.reset(config)
        if error is not None and self.call.gate is not None:
            self.call.gate.shut()
            self.call.error = error  # until it is closed, no longer: its frames hold the call
        if isinstance(error, RAISED):
            raise_as_failure(error, reads=self.call.reads)


class Call(ABC):
    """The steps that are the same whichever way a candidate is asked."""

    run: FallbackRun
    # What most calls never have stands on the class.
    required: frozenset[str] = frozenset()  # labels of whom it may ask
    detached: Detached | None = None  # from the handlers of its config
    gate: Gate | None = None  # of the attempt at hand
    error: BaseException | None = None  # that failed what is behind it
    failed: list[dict[str, Any]] | None = None  # the attempts before it, once needed
    manager: Any = None  # of a run of this call's own, where somebody listens
    is_heard = False  # whether somebody may listen where it has none
    wants_content = False
    shows_tokens: bool | None = None  # to somebody, once it is known
    reads = True  # what a candidate makes of its answer: who cannot read one raises about it

    def __init__(
        self, chain: Chain, messages: Any, settings: dict[str, Any], config: RunnableConfig | None
    ) -> None:
        self.chain = chain
        self.messages = messages  # or what else is asked
        self.settings = settings  # of this call
        self.config = ensure_config(config)
        self.policy = chain.policy
        self.partial: Partial = chain.options.partial

    def configure(self, config: RunnableConfig) -> Turn | None:
        """Take the policy that a config asks for, and return the turn that it names, or None.

        A policy without a label of its own has the name of the agent that it is asked in.
        """
        policy, agent = self.policy, self.chain.options.agent
        if agent == _NO_AGENT:
            name = (config.get("metadata") or {}).get(_AGENT_KEY)
            if isinstance(name, str) and name:
                self.policy = policy.labelled(name)
                agent = name
        configurable = config.get("configurable")
        if not configurable:
            return None
        own, turn = configurable.get(_CONFIG_KEY), configurable.get(_TURN_KEY)
        if isinstance(own, FallbackConfig):
            require = own.require | policy.config.require  # as for any call
            own = own.replace(only_models=policy.config.only_models, require=require)
            own = reading_messages(own)
            self.policy = FallbackPolicy(
                policy.targets, own, agent=agent, observers=policy.observers, turns_of=policy
            )
        return turn if isinstance(turn, Turn) else None

    def start(self, turn: Turn | None, named: dict[str, Any], call_input: Any) -> FallbackRun:
        """Start the core's run, nested where the detached handlers would have nested it."""
        policy, config = self.policy, self.config
        metadata = metadata_of(config, named)
        self.wants_content = policy.wants_content
        self.required = policy.config.require
        unfit = self.rerouted() if self.required else None
        configurable = config.get("configurable") or {}
        session = next(filter(None, map(configurable.get, _SESSIONS)), None)
        session = session if session is None else str(session)
        with self.detached.parented() if self.detached else AS_AROUND:
            self.run = policy.start(turn=turn, session=session, metadata=metadata, unfit=unfit)
        if self.wants_content:
            self.run.report(input=call_input)
        return self.run

    def rerouted(self) -> dict[int, str] | None:
        """Say who has no label in this call, because its settings or its config pick another."""
        lacks, reasons = f"it lacks the label {min(self.required)!r}", dict[int, str]()
        picked = self.config.get("configurable") or {}
        for position, target in enumerate(self.chain.targets):
            route = route_in(self.settings_for(position), target.model)
            if picked and not target.labels <= (labels_of(target.client, picked) or frozenset()):
                route = "its config"
            if route:
                reasons[position] = f"{lacks} where {route} may lead elsewhere"
        return reasons or None

    def settings_for(self, position: int) -> dict[str, Any]:
        """Return the call's own settings as the provider of a candidate takes them."""
        reader, settings = self.chain.links[position].reader, self.settings
        if reader is None or not settings or position == 0:
            return settings
        settings = {name: settings[name] for name in settings.keys() - _OTHER_MODEL}
        return settings if reader.is_primarys else reader.provider.settings(settings)

    @abstractmethod
    def send(self, request: Request, verb: str, /) -> Any:
        """Ask the candidate, by the method of that name."""

    def bounded(self, _attempt: Attempt, callbacks: Any) -> Any:
        """Return an attempt's callbacks with what refuses whoever lacks the labels."""
        return callbacks

    @abstractmethod
    def finish(self, attempt: Attempt, answer: Any) -> Any:
        """Return an answer as it is handed out, its messages as they are taken."""

    def ask(self, attempt: Attempt) -> Any:
        with self.next_request(attempt) as request:
            return self.finish(attempt, self.send(request, "invoke"))

    async def aask(self, attempt: Attempt) -> Any:
        with await self.anext_request(attempt) as request:
            gate, model = self.gate, self.chain.links[attempt.position].model
            # Where somebody reads tokens they come as a stream's, and so do its limits on silence.
            is_limited = gate is not None and streams(model)
            async with gate.limit(attempt) if gate and is_limited else AS_AROUND:
                answer = await self.send(request, "ainvoke")
            return self.finish(attempt, answer)

    def next_request(self, attempt: Attempt) -> Request:
        """Return what an attempt sends; what failed before it is over."""
        if self.gate is not None:
            self.close_gate(unreadable("the answer was refused"))
        credential = attempt.target.credential
        return self.request_to(attempt, None if credential is None else credential.get())

    async def anext_request(self, attempt: Attempt) -> Request:
        if self.gate is not None:
            await self.aclose_gate(unreadable("the answer was refused"))
        credential = attempt.target.credential
        key = None if credential is None else credential.get()
        return self.request_to(attempt, await key if isawaitable(key) else key)

    def request_to(self, attempt: Attempt, key: Any) -> Request:
        """Return what an attempt sends with the key of its credential, if it has one."""
        target = attempt.target
        candidate = target.client if target.credential is None else with_key(target, key)
        self.failed = None
        reader = self.chain.links[attempt.position].reader
        messages, settings = self.messages, self.settings_for(attempt.position)
        # What a chain with a prompt is given is for its prompt, and a text is a text everywhere.
        if reader is not None and type(messages) is not str:
            messages = for_provider(messages, reader)
            messages, as_taken = as_it_thinks(messages, reader, settings)
            if as_taken is not settings:
                candidate, settings = without_thinking(candidate), as_taken
        if self.wants_content:  # and what it cost
            candidate = with_stream_usage(candidate)
            self.run.report(parameters=parameters_of(attempt.target.client, settings))
        config = self.config
        own = self.manager
        callbacks: Any = config.get("callbacks") if own is None else own.get_child()
        if self.shows_tokens is None:  # each attempt's have the same handlers
            handlers: Any = getattr(callbacks, "handlers", callbacks)
            self.shows_tokens = bool(handlers) and show_tokens(handlers)
        if self.shows_tokens:  # nothing before there is content to show
            self.gate = Gate(None if self.partial == "replace" else self.run)
            callbacks = self.gate.before(callbacks)
        if self.required:
            callbacks = self.bounded(attempt, callbacks)
        if callbacks is not config.get("callbacks"):
            config = cast("RunnableConfig", {**config, "callbacks": callbacks})
        description: dict[str, Any] = {}
        is_heard = self.is_heard or own is not None
        if is_heard and (attempt.number > 1 or self.partial == "replace" or self.required):
            failed = self.failed_before(attempt)
            description = attempt_metadata(attempt, self.chain.targets[0], failed)
            if own is not None:  # the run under its own says which attempt it is
                callbacks.add_metadata(description)
        attempts = (*ATTEMPTS.get(), attempt)
        return Request(self, attempt, attempts, candidate, messages, settings, config, description)

    def failed_before(self, attempt: Attempt) -> list[dict[str, Any]]:
        """Return what the record says of the attempts before this one; it is built once."""
        if self.failed is None:
            attempts = self.run.record.attempts if attempt.number > 1 else ()
            self.failed = [*map(failed_attempt, attempts[: attempt.number - 1])]
        return self.failed

    def close_gate(self, error: BaseException | None = None) -> None:
        """Report what the attempt at hand holds back: if it failed, only that it is over."""
        gate, self.gate = self.gate, None
        error, self.error = self.error or error, None
        if gate is not None:
            gate.close(error)

    async def aclose_gate(self, error: BaseException | None = None) -> None:
        gate, self.gate = self.gate, None
        error, self.error = self.error or error, None
        if gate is not None:
            await gate.aclose(error)

    def taken(self, attempt: Attempt, messages: list[Any]) -> list[Any]:
        """Return an answer's messages marked, if the stream that they came in was whole."""
        streamed = self.gate is not None and self.gate.streamed
        model = self.chain.links[attempt.position].model
        # Read where pydantic keeps fields: a class without this one would take long to say so.
        if streamed or (model is not None and vars(model).get("streaming") is True):
            _check_ends(messages)
        return marked(messages, attempt, self.failed_before(attempt))


class ChainCall(Call):
    """Ask candidates by their public methods, under one chain run: the runnable's own."""

    attempt: Attempt  # that streams
    attempt_of_chunks: Attempt | None = None
    unparsed: tuple[()] | tuple[Any] = ()  # the last answer that nothing was parsed of

    def __init__(
        self,
        chain: Chain,
        runnable: Runnable[Any, Any],
        call_input: Any,
        config: RunnableConfig | None,
        kwargs: dict[str, Any],
    ) -> None:
        super().__init__(chain, call_input, kwargs, config)
        self.runnable = runnable
        # Both are for this run and no child of it.
        self.run_name = self.config.pop("run_name", None)
        self.run_id = self.config.pop("run_id", None)
        self.handed_out: list[Any] = []  # of that attempt; without a run the last alone

    def __enter__(self) -> Self:
        self.manager = self.begin(CallbackManager)
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        self.close_gate(error)
        if self.manager is not None:
            self.end(error)

    async def __aenter__(self) -> Self:
        begun = self.begin(AsyncCallbackManager)
        if begun is not None:
            self.manager = await begun
        return self

    async def __aexit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        await self.aclose_gate(error)
        if self.manager is not None:
            await self.end(error)

    def end(self, error: BaseException | None) -> Any:
        """Close the chain run with what was handed out; in a task, return what closes it."""
        if error is None or isinstance(error, GeneratorExit):  # the reader has enough: no error
            return self.manager.on_chain_end(merged(self.handed_out))
        return self.manager.on_chain_error(error)

    def begin(self, kind: type[CallbackManager | AsyncCallbackManager]) -> Any:
        """Open the chain run, or in a task return what opens it; None where nobody listens."""
        config, own = self.config, vars(self.runnable)
        manager: Any = kind.configure(
            inheritable_callbacks=config.get("callbacks"),
            local_callbacks=own.get("callbacks"),
            verbose=own.get("verbose", False),
            inheritable_tags=config.get("tags"),
            local_tags=own.get("tags"),
            inheritable_metadata=config.get("metadata"),
            local_metadata=own.get("metadata"),
        )
        if not manager.handlers:
            return None
        # A chat model's own callbacks hear of its model, which here is each candidate.
        of_model: Any = own.get("callbacks") or ()
        for handler in getattr(of_model, "handlers", of_model):
            manager.add_handler(handler, inherit=True)
        manager, self.detached = detach_langfuse(manager, self.policy)
        config["callbacks"] = manager
        if not manager.handlers:  # a run that nobody hears of need not be opened at all
            return None
        name = self.run_name or self.runnable.get_name()
        return manager.on_chain_start(None, self.messages, name=name, run_id=self.run_id)

    def open(self) -> FallbackRun:
        turn = self.configure(self.config)
        named = {"run_name": self.run_name, "run_id": self.run_id}
        return self.start(turn, named, self.messages)

    def send(self, request: Request, verb: str, /) -> Any:
        ask = getattr(request.candidate, verb)
        return ask(request.messages, request.config, **request.settings)

    def finish(self, attempt: Attempt, answer: Any) -> Any:
        """Return an answer as it is handed out, if it holds what it was asked for."""
        lacks_parsed = _lacks_parsed(answer, parses=self.chain.links[attempt.position].parses)
        (answer,) = self.taken(attempt, [answer])
        if lacks_parsed:
            self.unparsed = (answer,)
            error = isinstance(answer, dict) and answer["parsing_error"]
            raise unfit("the answer holds nothing in its schema") from error or None
        return answer

    def unparsed_answer(self, error: Exception) -> Any:
        """Return the last answer that nothing was parsed of, where nobody gave a better one.

        LangChain hands those out: None, or with ``include_raw`` the message and the parser's
        error. Whoever asks for them reads them.
        """
        if not self.unparsed:
            raise error
        return self.unparsed[0]

    def ask_for_stream(self, attempt: Attempt) -> Iterator[Any]:
        """Pass a candidate's chunks on, or say that there was none."""
        request = self.next_request(attempt)
        self.attempt = attempt  # a stream without content is handed out after its call has ended
        chunks, last = self.send(request, "stream"), NOTHING
        try:
            while True:
                with request:
                    chunk = next(chunks, _END)
                if chunk is _END:
                    break
                yield (last := chunk)
            if last is NOTHING:
                yield NOTHING
        finally:
            if isinstance(chunks, Generator):
                chunks.close()

    async def ask_for_astream(self, attempt: Attempt) -> AsyncIterator[Any]:
        request = await self.anext_request(attempt)
        self.attempt = attempt  # as in ask_for_stream
        chunks, last = self.send(request, "astream"), NOTHING
        try:
            while True:
                with request:
                    chunk = await anext(chunks, _END)
                if chunk is _END:
                    break
                yield (last := chunk)
            if last is NOTHING:
                yield NOTHING
        finally:
            if isinstance(chunks, AsyncGenerator):
                await chunks.aclose()

    def shows(self, chunk: Any) -> bool:
        """Tell whether a chunk has content; it is final where none could say what it replaces."""
        if chunk is NOTHING and self.chain.links[self.attempt.position].parses:
            raise unfit("the answer holds nothing in its schema")
        content = has_content(chunk)
        if content and self.partial == "replace" and not isinstance(chunk, AIMessage):
            self.run.commit()
        return content

    def hand_out(self, chunk: Any) -> Any:
        """Mark an attempt's first chunk and a message's last."""
        replaced: Any = None
        if self.attempt_of_chunks is not self.attempt:
            replaced = getattr(self.handed_out[-1], "id", None) if self.handed_out else None
            self.attempt_of_chunks, self.handed_out = self.attempt, []
        if ends_message(chunk):
            (chunk,) = marked([chunk], self.attempt, self.failed_before(self.attempt))
        if replaced is not None:
            chunk = mark_replacement(chunk, replaced)
        if self.manager is None:
            self.handed_out.clear()
        self.handed_out.append(chunk)
        return chunk


def metadata_of(config: RunnableConfig, run: dict[str, Any]) -> dict[str, Any] | None:
    """Return what a record says of a call: its config's metadata, and the run's name and id."""
    metadata: dict[Any, Any] = config.get("metadata") or {}  # named by whoever called
    # What is configurable is for the models, keys included; older LangGraphs copy all of it.
    configurable = config.get("configurable") or {}
    given = {name: str(value) for name, value in run.items() if value} | {
        name: value
        for name, value in metadata.items()
        if isinstance(name, str)
        and (name == _THREAD or not (name.startswith(_THEIRS) or name in configurable))
    }
    return call_metadata(given) if given else None


def _check_ends(messages: list[Any]) -> None:
    """Refuse what a stream left unfinished."""
    for message in messages:
        if isinstance(message, AIMessage):
            fields = message.model_dump(exclude={"tool_call_chunks"})
            failure = check_response([{**fields, "type": "AIMessageChunk"}])
            if failure is not None:
                raise AnswerRejected(failure)


def _lacks_parsed(answer: Any, *, parses: bool) -> bool:
    """Tell whether an answer holds nothing in the schema, in a form that LangChain has for it."""
    if not isinstance(answer, dict):
        return parses and answer is None
    if answer.keys() != {"parsed", "parsing_error", "raw"}:  # include_raw=True
        return False
    # Beside a schema a model may have been given tools, and called one.
    is_call = answer["parsing_error"] is None and getattr(answer["raw"], "tool_calls", None)
    return answer["parsed"] is None and not is_call
