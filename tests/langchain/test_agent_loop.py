"""A whole agent over the real SDKs, whose primary dies at any point of its loop, read in any way.

The agent asks its model twice: the first answer calls two tools at once, of which one waits for a
person; the second is the structured report. The primary is OpenAI's, the backup Anthropic's.
"""

from __future__ import annotations

import inspect
import json
from contextlib import nullcontext
from functools import cache
from itertools import cycle
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from langchain.agents.middleware import HumanInTheLoopMiddleware
from langchain.agents.structured_output import ToolStrategy
from langchain_core.messages import AIMessage, AIMessageChunk
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.config import get_stream_writer
from langgraph.types import Command, interrupt
from pydantic import BaseModel

from honcho_fallback import StreamInterrupted
from tests.helpers import wire
from tests.helpers.agents import WAYS, agent, by
from tests.helpers.chat_models import claude, gpt
from tests.helpers.pairwise import in_pairs, pairwise
from tests.helpers.provider import Reply

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

    from tests.helpers.provider import Provider, ProviderServer, SeenRequest
    from tests.helpers.wire import Json

pytestmark = pytest.mark.filterwarnings("ignore:The v3 streaming protocol:DeprecationWarning")

PRIMARY, BACKUP, CITY = "primary", "backup", "Oslo"
TOOLS = ["rain in Oslo", "Oslo: yes"]
REVIEWED = "beside HumanInTheLoopMiddleware"  # by which the person is asked once more
# Where nobody reads tokens, a model is asked for one body; with ``streaming=True`` it streams.
MODES = {
    "whole": ("invoke", "ainvoke", "stream values", "stream updates", "stream custom"),
    "behind": ("invoke streaming=True", "ainvoke streaming=True"),
    "tokens": (
        "stream messages", "astream messages",
        "stream_events v3", "astream_events v2", "astream_events v3",
    ),
}  # fmt: skip
# How the primary's answer ends, and how many of a stream's events come before it: of those of the
# arguments all but the last piece, of all but [DONE], or all.
DEATHS: dict[str, tuple[str, int | None]] = {
    "never": ("", None),
    "before: status 503": ("status", 0),
    "before: connection dropped": ("dropped", 0),
    "after the first, empty chunk: cut": ("cut", 1),
    "after the first, empty chunk: error event": ("error", 1),
    "after the first, empty chunk: closed": ("closed", 1),
    "in the text: cut": ("cut", 3),
    "in the text: error event": ("error", 3),
    "in the text: closed": ("closed", 3),
    "in a tool's arguments: cut": ("cut", -3),
    "in a tool's arguments: error event": ("error", -3),
    "in a tool's arguments: closed": ("closed", -3),
    "after the finish reason: cut": ("cut", -1),
    "after the finish reason: closed": ("closed", -1),
    "after the end: cut": ("cut", None),
}
WHOLE = {"never", "after the finish reason: closed", "after the end: cut"}  # nothing is lost


class Case(NamedTuple):
    """Name one run.

    Args:
        point: Where the primary dies, of ``DEATHS``.
        at: In which call of the model, from 0.
        way: How the agent has its fallback.
        mode: How the agent is read.
    """

    point: str
    at: int
    way: str
    mode: str

    @property
    def answers(self) -> list[str]:
        """Return what the agent's model says, whoever it is, where the call can go on."""
        lost = self.point not in WHOLE
        return [whole(BACKUP if lost and n == self.at else PRIMARY, n) for n in (0, 1)]

    @property
    def part(self) -> str:
        """Return what a page has written of the primary's answer when it breaks."""
        said = pieces(PRIMARY, self.at)
        return "".join(shown for _, shown in said[: DEATHS[self.point][1]])

    @property
    def broken(self) -> bool:
        """Tell whether the call cannot go on: a reader has seen a part of its answer."""
        return self.mode in MODES["tokens"] and self.point not in WHOLE and bool(self.part)

    def __str__(self) -> str:
        return f"{self.point}-{self.at + 1}-{self.way}-{self.mode}"


def kinds_of(point: str) -> tuple[str, ...]:
    """Name the kinds of modes in which a death looks like no other; a body breaks in one place."""
    if point.startswith(("never", "before")):
        return ("whole", "tokens")
    return tuple(MODES) if point.startswith("in the text") else ("behind", "tokens")


def cases() -> list[Case]:
    """Return each pair of a death, a call, a way and a kind of modes, which take turns."""
    turns = {kind: cycle(modes) for kind, modes in MODES.items()}
    rows = (
        (point, at, way, kind)
        for point in DEATHS
        for at in ((0, 1) if point != "never" else (0,))
        for way in WAYS
        for kind in kinds_of(point)
    )
    return [
        *(Case(point, at, way, next(turns[kind])) for point, at, way, kind in pairwise(rows)),
        Case("in the text: cut", 0, REVIEWED, "invoke streaming=True"),
        Case("in a tool's arguments: closed", 1, REVIEWED, "astream messages"),
    ]


# What the providers say.


def calls_by(author: str, call: int) -> list[tuple[str, Json]]:
    if call == 0:
        return [("weather", {"city": CITY}), ("approve", {"city": CITY})]
    return [("Report", {"city": CITY, "author": author})]


def text_by(author: str, call: int) -> str:
    return f"{author} {('looks it up.', 'sums it up.')[call]}"


def pieces(author: str, call: int, number: int = 0) -> list[tuple[str, str]]:
    """Write the events of a completion, each with what it adds to a page.

    The arguments of a call come in two pieces: without the last four characters they could be
    taken for a shorter value.
    """
    said: list[tuple[Json, str]] = [({"role": "assistant", "content": ""}, "")]
    said += [({"content": word}, word) for word in wire.words_of(text_by(author, call))]
    for index, (name, given) in enumerate(calls_by(author, call)):
        written = json.dumps(given)
        begun = {**wire.chat_call(f"call_{number}{name}", name, {}), "index": index}
        begun["function"] = {"name": name, "arguments": ""}
        said.append(({"tool_calls": [begun]}, name))
        for part in (written[:-4], written[-4:]):
            delta = {"index": index, "function": {"arguments": part}}
            said.append(({"tool_calls": [delta]}, part))
    events = [(wire.event(wire.chat_chunk(delta)), shown) for delta, shown in said]
    return [*events, (wire.event(wire.chat_chunk({}, "tool_calls")), ""), ("data: [DONE]", "")]


def whole(author: str, call: int) -> str:
    """Return a provider's answer as a page writes it: the text, then each tool's call."""
    return "".join(shown for _, shown in pieces(author, call))


def reply_of_primary(point: str, call: int, request: SeenRequest, number: int) -> Reply:
    end, kept = DEATHS[point]
    how: Any = {"cut": end == "cut", "drop": end == "dropped"}
    if end == "status":
        return Reply(status=503)
    if request.wants_stream:
        events = [one for one, _ in pieces(PRIMARY, call, number)][:kept]
        return Reply(events=events + [wire.event(wire.openai_error())] * (end == "error"), **how)
    called = [wire.chat_call(f"c{number}{name}", name, it) for name, it in calls_by(PRIMARY, call)]
    answer = wire.chat_answer(text_by(PRIMARY, call), *called)
    broken = {"error": wire.openai_error(), "closed": json.dumps(answer)[:99]}
    return Reply(body=broken.get(end, answer), **how)


def call_of(request: SeenRequest) -> int:
    """Return the call of the loop that a request belongs to: 0, or 1 once a tool has answered."""
    messages = json.dumps(request.body["messages"])
    return int('"tool_result"' in messages or '"role": "tool"' in messages)


def script(server: ProviderServer, case: Case) -> dict[str, Any]:
    """Let the primary die in a call whenever it is asked; return the config of a new thread."""
    server.reset()
    primary, backup = server[PRIMARY], server[BACKUP]

    def by_primary(request: SeenRequest) -> Reply:
        call = call_of(request)
        point = case.point if call == case.at else "never"
        return reply_of_primary(point, call, request, len(primary.requests))

    def by_backup(request: SeenRequest) -> Reply:
        call, number = call_of(request), len(backup.requests)
        called = [
            wire.tool_use(f"t{number}{name}", name, it) for name, it in calls_by(BACKUP, call)
        ]
        answer = wire.message_answer(wire.text_block(text_by(BACKUP, call)), *called)
        return Reply(body={**answer, "id": f"msg_{number}"})

    primary.standing, backup.standing = by_primary, by_backup
    return {"configurable": {"thread_id": str(case)}, "recursion_limit": 6}


def requests_in(provider: Provider, call: int) -> int:
    return sum(call_of(request) == call for request in provider.requests)


# The agent and who reads it.


@tool
def weather(city: str) -> str:
    """Tell the weather."""
    get_stream_writer()(f"looking at {city}")
    return f"rain in {city}"


@tool
def approve(city: str) -> str:
    """Ask a person."""
    return f"{city}: {interrupt(city)}"


class Report(BaseModel):
    """A report."""

    city: str
    author: str


@pytest.fixture(scope="module")
def agent_of(provider_server: ProviderServer) -> Callable[..., Any]:
    """Return agents that are made once, by the way in which they have their fallback."""

    @cache
    def made(way: str, *, streaming: bool = False, **options: Any) -> Any:
        # Events have no tokens of a model that is given ``streaming=False``.
        given: Json = {"streaming": True} if streaming else {}
        model = gpt(base_url=provider_server[PRIMARY].url, **given)
        backup = claude(base_url=provider_server[BACKUP].url, **given)
        reviewed = way == REVIEWED
        return agent(
            *by("middleware" if reviewed else way, model, backup, **options),
            *[HumanInTheLoopMiddleware({"weather": True})] * reviewed,
            tools=[weather, approve],
            response_format=ToolStrategy(Report),
            checkpointer=InMemorySaver(),
            name="reporter",
        )

    return made


class Page:
    """Write down what a reader of an agent sees, by the message: its text, what came with it."""

    def __init__(self) -> None:
        self.texts: dict[Any, str] = {}
        self.metadata: dict[Any, Json] = {}

    async def read(self, agent: Any, mode: str, given: Any, config: Any) -> None:
        verb, _, kind = mode.partition(" ")
        read = {"version": kind} if "events" in verb else {"stream_mode": kind}
        items = getattr(agent, verb)(given, config, **({} if "invoke" in verb else read))
        async for item in each(items, is_state="invoke" in verb):
            for message, text, metadata in parts(kind, item):
                before = self.texts.get(message, "") if kind in TOKENS else ""
                self.texts[message] = before + text
                self.metadata.setdefault(message, metadata)

    async def converse(self, agent: Any, mode: str, config: Any) -> None:
        """Read what the agent says to a question, then to a yes whenever it asks back."""
        given: Any = {"messages": [("user", CITY)]}
        while given:
            await self.read(agent, mode, given, config)
            asked = [one.value for one in agent.get_state(config).interrupts]
            yes = "yes" if CITY in asked else {"decisions": [{"type": "approve"}]}
            given = asked and Command(resume=yes)

    @property
    def shown(self) -> list[str]:
        return [*self.texts.values()]


async def each(items: Any, *, is_state: bool) -> AsyncIterator[Any]:
    """Run an agent, a sync one in this thread."""
    if inspect.isawaitable(items):
        items = await items
    if is_state:
        yield items
    elif hasattr(items, "__aiter__"):
        async for item in items:
            yield item
    else:
        for item in items:
            yield item


TOKENS = {"messages", "v2", "v3", "custom"}  # kinds whose items add to what was shown


def parts(kind: str, item: Any) -> Iterator[tuple[Any, str, Json]]:
    """Yield what an item says of the model's messages: the id, text and what came with it."""
    if kind == "custom":
        yield kind, item, {}
    elif kind == "messages":
        if isinstance(item[0], AIMessage):
            yield item[0].id, text_of(item[0]), item[1]
    elif kind == "v2":
        if item["event"] == "on_chat_model_stream":
            chunk = item["data"]["chunk"]
            yield chunk.id, text_of(chunk), item["metadata"]
    elif kind == "v3":
        data = item["params"]["data"]
        if item["method"] == "messages" and isinstance(data[0], dict):
            piece = {"content-block-start": "content", "content-block-delta": "delta"}
            block: Json = data[0].get(piece.get(data[0]["event"], ""), {})
            texts = (block.get(name) or "" for name in ("text", "name", "args"))
            yield data[1]["run_id"], "".join(texts), data[1]
    else:
        states = [*item.values()] if kind == "updates" else [item]
        for state in states:
            messages = state.get("messages", ()) if isinstance(state, dict) else ()
            yield from ((one.id, text_of(one), {}) for one in messages if one.type == "ai")


def text_of(message: AIMessage) -> str:
    """Return the text of a message or a chunk, then what it writes of tools' calls."""
    if isinstance(message, AIMessageChunk):
        calls = [(call["name"] or "") + (call["args"] or "") for call in message.tool_call_chunks]
    else:
        calls = [call["name"] + json.dumps(call["args"]) for call in message.tool_calls]
    return str(message.text) + "".join(calls)


@pytest.mark.parametrize("case", cases(), ids=str)
async def test_the_loop(
    provider_server: ProviderServer, agent_of: Callable[..., Any], case: Case
) -> None:
    """One request at the dead primary, no tool twice, no text twice; what was shown stays."""
    agent = agent_of(case.way, streaming=case.mode in MODES["behind"])
    page, config = Page(), script(provider_server, case)
    with pytest.raises(StreamInterrupted) if case.broken else nullcontext():
        await page.converse(agent, case.mode, config)
    answers, tools, report = case.answers, TOOLS, case.answers[1].split()[0]
    if case.broken:
        answers, tools, report = answers[: case.at], TOOLS * case.at, ""
    state = agent.get_state(config).values
    assert [text_of(one) for one in state["messages"] if one.type == "ai"] == answers
    assert results(state) == tools
    assert getattr(state.get("structured_response"), "author", "") == report
    if case.mode == "stream custom":
        assert page.shown == ["looking at Oslo"]
    else:
        assert page.shown == answers + [case.part] * case.broken
    asked = [requests_in(provider_server[name], case.at) for name in (PRIMARY, BACKUP)]
    assert asked == [1, case.point not in WHOLE and not case.broken]


def results(state: Json) -> list[str]:
    """Return what the tools answered."""
    messages = state["messages"]
    return [one.text for one in messages if one.type == "tool" and one.name != "Report"]


@in_pairs(
    point=["in the text: cut", "in a tool's arguments: closed", "after the finish reason: cut"],
    at=[0, 1],
    way=WAYS,
    mode=["stream messages", "astream_events v2", "astream_events v3"],
)
async def test_a_page_takes_back_what_a_failed_attempt_said(
    provider_server: ProviderServer,
    agent_of: Callable[..., Any],
    point: str,
    at: int,
    way: str,
    mode: str,
) -> None:
    """With `partial="replace"` the call goes on, and each token says which attempt it is of."""
    agent, case = agent_of(way, partial="replace"), Case(point, at, way, mode)
    page, config = Page(), script(provider_server, case)
    await page.converse(agent, mode, config)
    answers, metadata = case.answers, [*page.metadata.values()]
    assert page.shown == [*answers[:at], case.part, *answers[at:]]
    failed, kept = metadata[at : at + 2]
    assert (failed["fallback_attempt"], kept["fallback_attempt"]) == (1, 2)
    assert failed["fallback_call_id"] == kept["fallback_call_id"]
    told = zip(page.shown, metadata, strict=True)
    latest = {of.get("fallback_call_id", text): text for text, of in told}
    assert [*latest.values()] == answers
    report = agent.get_state(config).values["structured_response"]
    assert report.author == (PRIMARY, BACKUP)[at]


@pytest.mark.parametrize("way", WAYS)
async def test_an_interrupted_agent_goes_on_from_its_checkpoint(
    provider_server: ProviderServer, agent_of: Callable[..., Any], way: str
) -> None:
    """After `StreamInterrupted` the same thread answers without calling its tools again."""
    agent = agent_of(way)
    case = Case("in a tool's arguments: cut", 1, way, "astream messages")
    config = script(provider_server, case)
    with pytest.raises(StreamInterrupted):
        await Page().converse(agent, case.mode, config)
    script(provider_server, case._replace(point="never"))
    page = Page()
    await page.read(agent, case.mode, None, config)
    assert page.shown == [whole(PRIMARY, 1)]
    assert results(agent.get_state(config).values) == TOOLS
