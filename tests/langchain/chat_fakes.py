"""Fake chat models with a script, a handler that keeps the tree of runs, and every way to ask."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextvars import ContextVar
from dataclasses import dataclass, field
from threading import Lock
from typing import TYPE_CHECKING, Any, NamedTuple

from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, HumanMessage
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.tools import tool
from langchain_core.utils.function_calling import convert_to_openai_tool
from pydantic import BaseModel, Field, PrivateAttr

from honcho_fallback_langchain import FallbackChatModel
from honcho_fallback.testing import StatusError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Sequence
    from uuid import UUID

    from langchain_core.messages import BaseMessage

    from honcho_fallback import CallRecord, Restore
    from honcho_fallback_langchain import FallbackRunnable

USAGE = {"input_tokens": 5, "output_tokens": 10, "total_tokens": 15}


class Asked(NamedTuple):
    """Hold one request as a fake received it."""

    messages: list[BaseMessage]
    kwargs: dict[str, Any]


class ScriptedChat(BaseChatModel):
    """Say the entries of a script, the last again and again.

    An entry is a list of parts: words, whole chunks, functions to call in between, and errors to
    raise there. As with the SDKs, a stream begins with an empty chunk and ends with the usage.
    """

    model: str = "scripted"
    script: list[list[Any]] = Field(default_factory=list, exclude=True, repr=False)
    temperature: float | None = None

    _asked: list[Asked] = PrivateAttr(default_factory=list)
    _closed: list[str] = PrivateAttr(default_factory=list)

    @property
    def asked(self) -> list[Asked]:
        """Return what was asked so far; copies of a model share it."""
        return self._asked

    @property
    def closed(self) -> list[str]:
        """Return how its streams ended, in order."""
        return self._closed

    @property
    def _llm_type(self) -> str:
        return "scripted"

    @property
    def _identifying_params(self) -> dict[str, Any]:
        return {"model": self.model}  # the key of a cache

    def _parts(self, messages: list[BaseMessage], kwargs: dict[str, Any]) -> list[Any]:
        self._asked.append(Asked(messages, kwargs))
        place = min(len(self._asked), len(self.script)) - 1
        return self.script[place]

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: Any = None,
        **kwargs: Any,
    ) -> ChatResult:
        words: list[str] = []
        for part in self._parts(messages, {**kwargs, "stop": stop}):
            words.extend(_spoken(part))
        metadata = {"model_name": kwargs.get("model", self.model)}
        answer = AIMessage(
            content="".join(words), usage_metadata=USAGE, response_metadata=metadata
        )
        return ChatResult(generations=[ChatGeneration(message=answer)])

    def _stream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: Any = None,
        **kwargs: Any,
    ) -> Iterator[ChatGenerationChunk]:
        ended = "left"
        try:
            for chunk in self._chunks(messages, {**kwargs, "stop": stop}):
                if run_manager:
                    run_manager.on_llm_new_token(chunk.text, chunk=chunk)
                yield chunk
            ended = "whole"
        finally:
            self._closed.append(ended)

    async def _astream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: Any = None,
        **kwargs: Any,
    ) -> AsyncIterator[ChatGenerationChunk]:
        ended = "left"
        try:
            for chunk in self._chunks(messages, {**kwargs, "stop": stop}):
                if run_manager:
                    await run_manager.on_llm_new_token(chunk.text, chunk=chunk)
                yield chunk
            ended = "whole"
        finally:
            self._closed.append(ended)

    def _chunks(
        self, messages: list[BaseMessage], kwargs: dict[str, Any]
    ) -> Iterator[ChatGenerationChunk]:
        parts = self._parts(messages, kwargs)
        yield _chunk(AIMessageChunk(content=""))
        for part in parts:
            if isinstance(part, AIMessageChunk):
                yield _chunk(part)
            else:
                yield from (_chunk(AIMessageChunk(content=word)) for word in _spoken(part))
        metadata = {"model_name": kwargs.get("model", self.model)}
        yield _chunk(AIMessageChunk(content="", usage_metadata=USAGE, response_metadata=metadata))

    def bind_tools(self, tools: Sequence[Any], **kwargs: Any) -> Any:
        """Bind tools in a form that tells whose it is."""
        made = [{"for": self.model, **convert_to_openai_tool(one)} for one in tools]
        return self.bind(tools=made, **kwargs)


WHERE: ContextVar[str] = ContextVar("where", default="unset")


class Setting(ScriptedChat):
    """Set a context variable at a stream's start, as tracing libraries do, reset it at its end.

    What the variable held after each chunk is noted in ``closed``.
    """

    def _chunks(
        self, messages: list[BaseMessage], kwargs: dict[str, Any]
    ) -> Iterator[ChatGenerationChunk]:
        token = WHERE.set("generator")
        for chunk in super()._chunks(messages, kwargs):
            yield chunk
            self.closed.append(WHERE.get())
        try:
            WHERE.reset(token)
        except ValueError:  # made in another context
            self.closed.append("lost")
        else:
            self.closed.append("reset")


def _chunk(message: AIMessageChunk) -> ChatGenerationChunk:
    return ChatGenerationChunk(message=message)


def _spoken(part: Any) -> list[str]:
    if isinstance(part, BaseException):
        raise part
    if isinstance(part, str):
        return [part]
    if isinstance(part, AIMessageChunk):
        return [part.text]
    said = part()
    return [said] if isinstance(said, str) else []


def chat(model: str, *entries: Any, **fields: Any) -> ScriptedChat:
    """Make a fake; an entry that is no list stands for a list of one part."""
    script = [entry if isinstance(entry, list) else [entry] for entry in entries]
    return ScriptedChat(model=model, script=script, **fields)


def dead(model: str = "primary", status: int = 503) -> ScriptedChat:
    """Make a fake that always fails."""
    return chat(model, StatusError(status))


def alive(model: str = "backup", *words: str) -> ScriptedChat:
    """Make a fake that always answers."""
    return chat(model, list(words or ("from ", model)))


def failing_over(**options: Any) -> FallbackChatModel:
    """Make a chain whose primary is down."""
    return FallbackChatModel(dead(), alive(), **options)


def candidate(model: FallbackChatModel | FallbackRunnable[Any, Any], position: int) -> Any:
    """Return a candidate as it was given."""
    return model.candidates[position]


def asked_of(model: Any) -> list[Any]:
    """Return a chain's candidates as they are asked."""
    return [target.client for target in model.policy.targets]


@tool
def look_up(word: str) -> str:
    """Look a word up."""
    return word


class Joke(BaseModel):
    """A joke."""

    setup: str


@dataclass
class Run:
    """Hold one run as a tracer would see it."""

    id: UUID
    parent: UUID | None
    kind: str
    name: str | None
    tags: list[str]
    metadata: dict[str, Any]
    ends: list[str] = field(default_factory=list)
    tokens: list[str] = field(default_factory=list)
    output: Any = None
    error: BaseException | None = None


class Runs(BaseCallbackHandler):
    """Keep every run that starts, and how often it ended."""

    raise_error = True

    def __init__(self) -> None:
        self.all: dict[UUID, Run] = {}
        self.ended: dict[UUID, int] = {}
        self._lock = Lock()

    @property
    def roots(self) -> list[Run]:
        """Return the runs without a parent."""
        return [run for run in self.all.values() if run.parent is None]

    @property
    def models(self) -> list[Run]:
        """Return the models' runs, in the order they started."""
        return [run for run in self.all.values() if run.kind == "chat_model"]

    def children(self, run: Run) -> list[Run]:
        """Return the runs right under another."""
        return [one for one in self.all.values() if one.parent == run.id]

    def check(self) -> Run:
        """Return the one root, having seen that every run under it ended once, and before it."""
        assert [run.ends for run in self.all.values()].count([]) == 0, "a run is open"
        assert all(len(run.ends) == 1 for run in self.all.values()), "a run ended twice"
        for run in self.all.values():
            assert run.parent is None or self.ended[run.id] < self.ended[run.parent]
        (root,) = self.roots
        return root

    def _start(self, run: Run) -> None:
        with self._lock:
            assert run.id not in self.all, "a run started twice"
            self.all[run.id] = run

    def _end(self, run_id: UUID, how: str) -> Run:
        with self._lock:
            self.ended[run_id] = len(self.ended)
        self.all[run_id].ends.append(how)
        return self.all[run_id]

    def on_chain_start(
        self,
        serialized: Any,
        inputs: Any,
        *,
        run_id: UUID,
        parent_run_id: UUID | None = None,
        tags: list[str] | None = None,
        metadata: dict[str, Any] | None = None,
        name: str | None = None,
        **kwargs: Any,
    ) -> None:
        self._start(Run(run_id, parent_run_id, "chain", name, tags or [], metadata or {}))

    def on_chat_model_start(
        self,
        serialized: Any,
        messages: Any,
        *,
        run_id: UUID,
        parent_run_id: UUID | None = None,
        tags: list[str] | None = None,
        metadata: dict[str, Any] | None = None,
        name: str | None = None,
        **kwargs: Any,
    ) -> None:
        self._start(Run(run_id, parent_run_id, "chat_model", name, tags or [], metadata or {}))

    def on_llm_new_token(self, token: Any, *, run_id: UUID, **kwargs: Any) -> None:
        self.all[run_id].tokens.append(token)

    def on_chain_end(self, outputs: Any, *, run_id: UUID, **kwargs: Any) -> None:
        self._end(run_id, "end").output = outputs

    def on_llm_end(self, response: Any, *, run_id: UUID, **kwargs: Any) -> None:
        self._end(run_id, "end").output = response

    def on_chain_error(self, error: BaseException, *, run_id: UUID, **kwargs: Any) -> None:
        self._end(run_id, "error").error = error

    def on_llm_error(self, error: BaseException, *, run_id: UUID, **kwargs: Any) -> None:
        self._end(run_id, "error").error = error


class Told:
    """Keep what an observer is told."""

    def __init__(self) -> None:
        self.records: list[CallRecord] = []
        self.restored: list[Restore] = []

    def on_start(self, call: Any) -> None:
        pass

    def on_switch(self, switch: Any) -> None:
        pass

    def on_finish(self, record: CallRecord) -> None:
        self.records.append(record)

    def on_restore(self, restore: Restore) -> None:
        self.restored.append(restore)

    @property
    def kinds(self) -> list[str | None]:
        """Return what went wrong in each attempt of the last call, None for an answer."""
        attempts = self.records[-1].attempts
        return [attempt.kind and attempt.kind.value for attempt in attempts]


def text_of(answer: Any) -> str:
    """Return what a message, a chunk or a plain answer says."""
    said = getattr(answer, "text", answer)
    return said if isinstance(said, str) else str(said)


async def invoke(model: Any, asked: Any, config: Any = None) -> str:
    return text_of(model.invoke(asked, config))


async def ainvoke(model: Any, asked: Any, config: Any = None) -> str:
    return text_of(await model.ainvoke(asked, config))


async def stream(model: Any, asked: Any, config: Any = None) -> str:
    return "".join(text_of(chunk) for chunk in model.stream(asked, config))


async def astream(model: Any, asked: Any, config: Any = None) -> str:
    return "".join([text_of(chunk) async for chunk in model.astream(asked, config)])


async def batch(model: Any, asked: Any, config: Any = None) -> str:
    (answer,) = model.batch([asked], config)
    return text_of(answer)


async def abatch(model: Any, asked: Any, config: Any = None) -> str:
    (answer,) = await model.abatch([asked], config)
    return text_of(answer)


async def batch_as_completed(model: Any, asked: Any, config: Any = None) -> str:
    ((_, answer),) = model.batch_as_completed([asked], config)
    return text_of(answer)


async def abatch_as_completed(model: Any, asked: Any, config: Any = None) -> str:
    ((_, answer),) = [pair async for pair in model.abatch_as_completed([asked], config)]
    return text_of(answer)


async def transform(model: Any, asked: Any, config: Any = None) -> str:
    return "".join(text_of(chunk) for chunk in model.transform(iter([asked]), config))


async def atransform(model: Any, asked: Any, config: Any = None) -> str:
    async def given() -> AsyncIterator[Any]:
        yield asked

    return "".join([text_of(chunk) async for chunk in model.atransform(given(), config)])


async def events_v2(model: Any, asked: Any, config: Any = None) -> str:
    events = [event async for event in model.astream_events(asked, config, version="v2")]
    root = events[0]["run_id"]
    assert events[-1]["event"] == "on_chain_end"
    assert events[-1]["run_id"] == root
    told = Counter(event["event"] for event in events if event["run_id"] == root)
    assert (told["on_chain_start"], told["on_chain_end"]) == (1, 1)
    streamed = [event for event in events if event["event"] == "on_chain_stream"]
    return "".join(text_of(one["data"]["chunk"]) for one in streamed if one["run_id"] == root)


VERBS: dict[str, Any] = {
    "invoke": invoke,
    "ainvoke": ainvoke,
    "stream": stream,
    "astream": astream,
    "batch": batch,
    "abatch": abatch,
    "batch_as_completed": batch_as_completed,
    "abatch_as_completed": abatch_as_completed,
    "transform": transform,
    "atransform": atransform,
    "astream_events v2": events_v2,
}


async def stream_events_v3(model: Any, asked: Any, config: Any = None) -> str:
    stream = model.stream_events(asked, config, version="v3")
    list(stream)
    return text_of(stream.output)


async def astream_events_v3(model: Any, asked: Any, config: Any = None) -> str:
    stream = await model.astream_events(asked, config, version="v3")
    [event async for event in stream]
    said = text_of(await stream.output)
    await asyncio.gather(*asyncio.all_tasks() - {asyncio.current_task()})  # its run ends in a task
    return said


async def generate(model: Any, asked: Any, config: Any = None) -> str:
    callbacks = (config or {}).get("callbacks")
    return str(
        model.generate([[HumanMessage(content=asked)]], callbacks=callbacks).generations[0][0].text
    )


async def agenerate(model: Any, asked: Any, config: Any = None) -> str:
    callbacks = (config or {}).get("callbacks")
    result = await model.agenerate([[HumanMessage(content=asked)]], callbacks=callbacks)
    return str(result.generations[0][0].text)


# These open a run of LangChain's own, and the candidates none.
SILENT_VERBS: dict[str, Any] = {
    "stream_events v3": stream_events_v3,
    "astream_events v3": astream_events_v3,
    "generate": generate,
    "agenerate": agenerate,
}
