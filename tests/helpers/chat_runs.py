"""Every way to ask a chain of LangChain's, and a handler that keeps the tree of runs."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass, field
from threading import Lock
from typing import TYPE_CHECKING, Any

from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.messages import HumanMessage

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine
    from uuid import UUID


@dataclass
class Run:
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
        return [run for run in self.all.values() if run.parent is None]

    @property
    def models(self) -> list[Run]:
        return [run for run in self.all.values() if run.kind == "chat_model"]

    def children(self, run: Run) -> list[Run]:
        return [one for one in self.all.values() if one.parent == run.id]

    def check(self) -> Run:
        """Return the one root, having seen that every run under it ended once, and before it."""
        assert [run.ends for run in self.all.values()].count([]) == 0, "a run is open"
        assert all(len(run.ends) == 1 for run in self.all.values()), "a run ended twice"
        for run in self.all.values():
            assert run.parent is None or self.ended[run.id] < self.ended[run.parent]
        (root,) = self.roots
        return root

    def _begin(
        self,
        kind: str,
        *,
        run_id: UUID,
        parent_run_id: UUID | None = None,
        tags: list[str] | None = None,
        metadata: dict[str, Any] | None = None,
        name: str | None = None,
        **_: Any,
    ) -> None:
        with self._lock:
            assert run_id not in self.all, "a run started twice"
            run = Run(run_id, parent_run_id, kind, name, tags or [], metadata or {})
            self.all[run_id] = run

    def _end(self, run_id: UUID, how: str) -> Run:
        with self._lock:
            self.ended[run_id] = len(self.ended)
        self.all[run_id].ends.append(how)
        return self.all[run_id]

    def on_chain_start(self, serialized: Any, inputs: Any, **run: Any) -> None:
        self._begin("chain", **run)

    def on_chat_model_start(self, serialized: Any, messages: Any, **run: Any) -> None:
        self._begin("chat_model", **run)

    def on_llm_new_token(self, token: Any, *, run_id: UUID, **kwargs: Any) -> None:
        self.all[run_id].tokens.append(token)

    def on_chain_end(self, outputs: Any, *, run_id: UUID, **kwargs: Any) -> None:
        self._end(run_id, "end").output = outputs

    def on_chain_error(self, error: BaseException, *, run_id: UUID, **kwargs: Any) -> None:
        self._end(run_id, "error").error = error

    on_llm_end: Any = on_chain_end
    on_llm_error: Any = on_chain_error


class Told(BaseCallbackHandler):
    """Note all that LangChain tells of a run."""

    def __init__(self) -> None:
        self.events: list[str] = []

    def __getattribute__(self, name: str) -> Any:
        if name.startswith("on_"):
            return lambda *args, **kwargs: self.events.append(repr((name, args, kwargs)))
        return super().__getattribute__(name)


def text_of(answer: Any) -> str:
    text = getattr(answer, "text", answer)
    return text if isinstance(text, str) else str(text)


async def parts_by(verb: str, model: Any, question: Any, config: Any = None) -> list[Any]:
    """Ask by this method, and return all that it gives: answers, or what comes of a stream."""

    async def given() -> AsyncIterator[Any]:
        yield question

    inputs: dict[str, Any] = {"transform": iter([question]), "atransform": given()}
    if "generate" in verb:
        messages = [[HumanMessage(content=question)]]
        answer = getattr(model, verb)(messages, callbacks=(config or {}).get("callbacks"))
    else:
        asked = inputs.get(verb, [question] if "batch" in verb else question)
        answer = getattr(model, verb)(asked, config)
    if hasattr(answer, "__aiter__"):
        answer = [part async for part in answer]
    elif verb.startswith("a"):
        answer = await answer
    if "generate" in verb:
        return [answer.generations[0][0].message]
    parts = [answer] if "invoke" in verb else [*answer]
    return [part for _, part in parts] if "as_completed" in verb else parts


def _verb(verb: str) -> Callable[..., Coroutine[Any, Any, str]]:
    """Return a function that asks by this method, and returns the text of all that it gives."""

    async def ask(model: Any, question: Any, config: Any = None) -> str:
        return "".join(map(text_of, await parts_by(verb, model, question, config)))

    ask.__name__ = verb
    return ask


async def events_v2(model: Any, question: Any, config: Any = None) -> str:
    events = [event async for event in model.astream_events(question, config, version="v2")]
    root = events[0]["run_id"]
    assert events[-1]["event"] == "on_chain_end"
    assert events[-1]["run_id"] == root
    counts = Counter(event["event"] for event in events if event["run_id"] == root)
    assert (counts["on_chain_start"], counts["on_chain_end"]) == (1, 1)
    streamed = [event for event in events if event["event"] == "on_chain_stream"]
    return "".join(text_of(one["data"]["chunk"]) for one in streamed if one["run_id"] == root)


VERBS: dict[str, Any] = {
    verb: _verb(verb)
    for sync in ("invoke", "stream", "batch", "batch_as_completed", "transform")
    for verb in (sync, f"a{sync}")
} | {"astream_events v2": events_v2}
invoke, ainvoke, stream, astream = [*VERBS.values()][:4]


async def stream_events_v3(model: Any, question: Any, config: Any = None) -> str:
    stream = model.stream_events(question, config, version="v3")
    list(stream)
    return text_of(stream.output)


async def astream_events_v3(model: Any, question: Any, config: Any = None) -> str:
    stream = await model.astream_events(question, config, version="v3")
    [event async for event in stream]
    text = text_of(await stream.output)
    await asyncio.gather(*asyncio.all_tasks() - {asyncio.current_task()})  # its run ends in a task
    return text


# These open a run of LangChain's own, and the candidates none.
SILENT_VERBS: dict[str, Any] = {
    "stream_events v3": stream_events_v3,
    "astream_events v3": astream_events_v3,
    "generate": _verb("generate"),
    "agenerate": _verb("agenerate"),
}
