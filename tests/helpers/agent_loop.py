"""A whole agent over the real SDKs, and a primary that dies at any point of its loop.

The agent asks its model twice: the first answer calls two tools at once, of which one waits for a
person; the second is the structured report. The primary is OpenAI's, the backup Anthropic's.
"""

from __future__ import annotations

import inspect
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from langchain.agents import create_agent
from langchain.agents.middleware import HumanInTheLoopMiddleware
from langchain.agents.structured_output import ToolStrategy
from langchain_core.messages import AIMessage, AIMessageChunk
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.config import get_stream_writer
from langgraph.types import Command, interrupt
from pydantic import BaseModel

from honcho_fallback_langchain import FallbackChatModel, FallbackMiddleware
from tests.helpers.chat_models import claude, gpt
from tests.helpers.provider import Reply
from tests.helpers.wire import (
    chat_answer,
    chat_call,
    chat_chunk,
    chat_word,
    event,
    message_answer,
    openai_error,
    text_block,
    tool_use,
    words_of,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from tests.helpers.provider import Provider, ProviderServer, SeenRequest
    from tests.helpers.wire import Json

PRIMARY, BACKUP = "primary", "backup"
CITY = "Oslo"
WAYS = ("middleware", "chat model")

# Where nobody reads tokens, a model is asked for one body; with ``streaming=True`` it streams.
WHOLE_MODES = (
    "invoke",
    "ainvoke",
    "stream values",
    "stream updates",
    "stream custom",
)
BEHIND_MODES = ("invoke streaming=True", "ainvoke streaming=True")
TOKEN_MODES = (
    "stream messages",
    "astream messages",
    "stream_events v3",
    "astream_events v2",
    "astream_events v3",
)


@tool
def weather(city: str) -> str:
    """Tell the weather."""
    get_stream_writer()(f"looking at {city}")
    return f"rain in {city}"


@tool
def approve(city: str) -> str:
    """Ask a person."""
    return f"{city}: {interrupt(city)}"


@tool("approve")
def approved(city: str) -> str:
    """Do what a person has approved before."""
    return f"{city}: yes"


class Report(BaseModel):
    """A report."""

    city: str
    author: str


def text_by(author: str, call: int) -> str:
    return f"{author} {('looks it up.', 'sums it up.')[call]}"


def calls_by(author: str, call: int) -> list[tuple[str, Json]]:
    if call == 0:
        return [("weather", {"city": CITY}), ("approve", {"city": CITY})]
    return [("Report", {"city": CITY, "author": author})]


def whole(author: str, call: int) -> str:
    """Return a provider's answer as a page writes it: the text, then each tool's call."""
    written = [name + json.dumps(given) for name, given in calls_by(author, call)]
    return text_by(author, call) + "".join(written)


# The primary's script.

_AT_ARGUMENTS, _AT_FINISH = -3, -1  # before the last piece of the arguments; before [DONE]


@dataclass(frozen=True, slots=True)
class Death:
    """Say how the primary's answer ends.

    Args:
        end: How: with a status, dropped before any answer, cut, an error event, or closed in
            good order although the answer is not whole; None where all is well.
        kept: How many of a stream's events come before it; None for all.
    """

    end: Literal["status", "dropped", "cut", "error", "closed"] | None = None
    kept: int | None = None

    @property
    def kills(self) -> bool:
        """Tell whether the answer is lost: an integration keeps nothing of a broken stream."""
        if self.end == "closed":
            return self.kept != _AT_FINISH
        return self.end in {"status", "dropped"} or self.kept is not None

    @property
    def shows(self) -> bool:
        """Tell whether content came before the end: the first event of a stream has none."""
        return self.end not in {"status", "dropped"} and self.kept != 1

    def part_by(self, author: str, call: int) -> str:
        """Return what a page has written of an answer when it breaks."""
        words = words_of(text_by(author, call))
        if self.kept is not None and self.kept > 0:
            return "".join(words[: self.kept - 1])
        all_of_it = whole(author, call)
        return all_of_it[:-_LAST_PIECE] if self.kept == _AT_ARGUMENTS else all_of_it

    def reply(self, answer: Json, *, streamed: bool) -> Reply:
        if self.end == "status":
            return Reply(status=503)
        if streamed:
            events = chat_events(answer)[: self.kept]
            if self.end == "error":
                events.append(event(openai_error()))
            return Reply(events=events, cut=self.end == "cut", drop=self.end == "dropped")
        if self.kills and self.end == "error":
            return Reply(body=openai_error())
        if self.kills and self.end == "closed":
            return Reply(body=json.dumps(answer)[: len(json.dumps(answer)) // 2])
        cut = self.kills and self.end == "cut"
        return Reply(body=answer, cut=cut, drop=self.end == "dropped")


DEATHS = {
    "never": Death(),
    "before: status 503": Death("status"),
    "before: connection dropped": Death("dropped"),
    "after the first, empty chunk: cut": Death("cut", 1),
    "after the first, empty chunk: error event": Death("error", 1),
    "after the first, empty chunk: closed": Death("closed", 1),
    "in the text: cut": Death("cut", 3),
    "in the text: error event": Death("error", 3),
    "in the text: closed": Death("closed", 3),
    "in a tool's arguments: cut": Death("cut", _AT_ARGUMENTS),
    "in a tool's arguments: error event": Death("error", _AT_ARGUMENTS),
    "in a tool's arguments: closed": Death("closed", _AT_ARGUMENTS),
    "after the finish reason: cut": Death("cut", _AT_FINISH),
    "after the finish reason: closed": Death("closed", _AT_FINISH),
    "after the end: cut": Death("cut"),
}

_LAST_PIECE = 4  # characters of the arguments; what is left could be taken for a shorter value


def chat_events(answer: Json) -> list[str]:
    """Write the events of a completion, the arguments of each call in two pieces."""
    message = answer["choices"][0]["message"]
    deltas: list[Json] = [{"content": word} for word in words_of(message["content"])]
    for index, call in enumerate(message["tool_calls"]):
        name, arguments = call["function"]["name"], call["function"]["arguments"]
        pieces = arguments[:-_LAST_PIECE], arguments[-_LAST_PIECE:]
        begun = {**call, "index": index, "function": {"name": name, "arguments": ""}}
        parts = [{"index": index, "function": {"arguments": piece}} for piece in pieces]
        deltas += [{"tool_calls": [part]} for part in (begun, *parts)]
    events = [chat_word(""), *(event(chat_chunk(delta)) for delta in deltas)]
    return [*events, event(chat_chunk({}, "tool_calls")), "data: [DONE]"]


def call_of(request: SeenRequest) -> int:
    """Return the call of the loop that a request belongs to: 0, or 1 once a tool has answered."""
    messages = json.dumps(request.body["messages"])
    return int('"tool_result"' in messages or '"role": "tool"' in messages)


def script(server: ProviderServer, death: Death, at: int | None) -> None:
    """Let the primary die in a call whenever it is asked, and both answer well otherwise."""
    primary, backup = server[PRIMARY], server[BACKUP]

    def by_primary(request: SeenRequest) -> Reply:
        call, number = call_of(request), len(primary.requests)
        calls = [
            chat_call(f"call_{number}{name}", name, given)
            for name, given in calls_by(PRIMARY, call)
        ]
        answer = chat_answer(text_by(PRIMARY, call), *calls)
        return (death if call == at else DEATHS["never"]).reply(
            answer, streamed=request.wants_stream
        )

    def by_backup(request: SeenRequest) -> Reply:
        call, number = call_of(request), len(backup.requests)
        calls = [
            tool_use(f"toolu_{number}{name}", name, given)
            for name, given in calls_by(BACKUP, call)
        ]
        answer = message_answer(text_block(text_by(BACKUP, call)), *calls)
        return Reply(body={**answer, "id": f"msg_{number}"})

    primary.standing, backup.standing = by_primary, by_backup


# The agent and who reads it.


def fallback_at(
    server: ProviderServer, way: str, *, streaming: bool = False, **options: Any
) -> tuple[Any, list[Any]]:
    """Return an agent's model and middlewares, with the fallback in one of two ways.

    Args:
        server: Where the models are.
        way: One of ``WAYS``.
        streaming: Whether the models stream although nobody reads tokens.
        **options: Of the fallback.
    """
    # Events have no tokens of a model that is given ``streaming=False``.
    given: Json = {"streaming": True} if streaming else {}
    primary = gpt(base_url=server[PRIMARY].url, **given)
    backup = claude(base_url=server[BACKUP].url, **given)
    if way == "middleware":
        return primary, [FallbackMiddleware(backup, **options)]
    return FallbackChatModel(primary, backup, **options), []


def agent_of(model: Any, middleware: list[Any], *, reviewed: bool = False) -> Any:
    """Make the agent.

    Args:
        model: Its model.
        middleware: Its middlewares.
        reviewed: Whether a middleware asks the person, before any tool runs, and not the tool.
    """
    review = [HumanInTheLoopMiddleware({"approve": True})] if reviewed else []
    return create_agent(
        model,
        [weather, approved if reviewed else approve],
        middleware=[*middleware, *review],
        response_format=ToolStrategy(Report),
        checkpointer=InMemorySaver(),
        name="reporter",
    )


@dataclass(slots=True)
class Shown:
    """Hold what a page shows of one message.

    Args:
        text: Its text and the calls of tools, in the order in which they came.
        metadata: What came with its first token.
    """

    text: str = ""
    metadata: dict[str, Any] = field(default_factory=dict[str, Any])


@dataclass(slots=True)
class Page:
    """Write down what a reader of an agent sees.

    Attributes:
        messages: The model's messages by their id, in the order in which they began.
        written: What tools wrote to the custom stream.
    """

    messages: dict[str, Shown] = field(default_factory=dict[str, Shown])
    written: list[str] = field(default_factory=list[str])

    def read(self, mode: str, item: Any) -> None:
        kind = mode.rpartition(" ")[2]
        if kind == "messages":
            self._add(item[0].id, text_of(item[0]), item[1], isinstance(item[0], AIMessage))
        elif kind == "v2":
            if item["event"] == "on_chat_model_stream":
                chunk = item["data"]["chunk"]
                self._add(chunk.id, text_of(chunk), item["metadata"])
        elif kind == "v3":
            data = item["params"]["data"]
            if item["method"] == "messages" and isinstance(data[0], dict):
                self._add(data[1]["run_id"], _event_text(data[0]), data[1])
        elif kind == "custom":
            self.written.append(item)
        else:
            states = item.values() if kind == "updates" else [item]
            for message in _whole_messages(states):
                self.messages[message.id or ""] = Shown(text_of(message))

    def _add(
        self, message_id: str, text: str, metadata: dict[str, Any], of_model: bool = True
    ) -> None:
        if of_model:
            shown = self.messages.setdefault(message_id, Shown(metadata=metadata))
            shown.text += text


def _whole_messages(states: Any) -> Iterator[AIMessage]:
    for state in states:
        for message in state.get("messages", ()) if isinstance(state, dict) else ():
            if isinstance(message, AIMessage):
                yield message


def text_of(message: Any) -> str:
    """Return the text of a message or a chunk, then what it writes of tools' calls."""
    if isinstance(message, AIMessageChunk):
        calls = [(call["name"] or "") + (call["args"] or "") for call in message.tool_call_chunks]
    else:
        calls = [
            call["name"] + json.dumps(call["args"]) for call in getattr(message, "tool_calls", ())
        ]
    return str(message.text) + "".join(calls)


def _event_text(data: dict[str, Any]) -> str:
    if data["event"] == "content-block-start":
        block = data["content"]
        return str(block.get("text", "") + block.get("name", "") + block.get("args", ""))
    if data["event"] == "content-block-delta":
        delta = data["delta"]
        return str(delta.get("text", "") + delta.get("args", ""))
    return ""


async def items_of(agent: Any, mode: str, given: Any, config: Any) -> AsyncIterator[Any]:
    """Run an agent in a mode, sync ones in this thread."""
    verb, _, kind = mode.partition(" ")
    read = {"version": kind} if "events" in verb else {"stream_mode": kind}
    items = getattr(agent, verb)(given, config, **({} if "invoke" in verb else read))
    if inspect.isawaitable(items):
        items = await items
    if "invoke" in verb:
        yield items
    elif verb.startswith("a"):
        async for item in items:
            yield item
    else:
        for item in items:
            yield item


def inputs(*, reviewed: bool = False) -> list[Any]:
    """Return what a person gives the agent: a question, then a yes when the agent asks back."""
    yes = {"decisions": [{"type": "approve"}]} if reviewed else "yes"
    return [{"messages": [("user", CITY)]}, Command(resume=yes)]


async def converse(
    agent: Any, mode: str, config: Any, page: Page, *, reviewed: bool = False
) -> None:
    """Give the agent what a person gives it, and read it in a mode."""
    for given in inputs(reviewed=reviewed):
        async for item in items_of(agent, mode, given, config):
            page.read(mode, item)


def requests_in(provider: Provider, call: int) -> int:
    return sum(call_of(request) == call for request in provider.requests)
