"""A whole agent whose primary dies at every point of its loop, in every way to read the agent."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import cycle, product
from typing import TYPE_CHECKING, Any

import pytest

from honcho_fallback import StreamInterrupted
from tests.helpers.agent_loop import (
    BACKUP,
    BEHIND_MODES,
    DEATHS,
    PRIMARY,
    TOKEN_MODES,
    WAYS,
    WHOLE_MODES,
    Death,
    Page,
    agent_of,
    converse,
    fallback_at,
    items_of,
    requests_in,
    script,
    text_of,
    whole,
)
from tests.helpers.pairwise import pairwise

if TYPE_CHECKING:
    from tests.helpers.provider import ProviderServer

pytestmark = pytest.mark.filterwarnings("ignore:The v3 streaming protocol:DeprecationWarning")

TOOLS = ["rain in Oslo", "Oslo: yes"]


@dataclass(frozen=True, slots=True)
class Case:
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
    def death(self) -> Death:
        return DEATHS[self.point]

    @property
    def broken(self) -> bool:
        """Tell whether the call cannot go on: a reader has seen a part of its answer."""
        return self.mode in TOKEN_MODES and self.death.kills and self.death.shows

    def __str__(self) -> str:
        return f"{self.point}-{self.at + 1}-{self.way}-{self.mode}"


MODES = {"whole": WHOLE_MODES, "behind": BEHIND_MODES, "tokens": TOKEN_MODES}


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
    return [Case(point, at, way, next(turns[kind])) for point, at, way, kind in pairwise(rows)]


CASES = cases()


@dataclass(frozen=True, slots=True)
class Outcome:
    """Hold what a run came to.

    Args:
        error: The class of the error that came out.
        answers: The model's answers as the agent keeps them.
        tools: What the tools answered.
        author: Who wrote the structured report.
        shown: The model's messages as a reader saw them, in order.
        requests: At the primary and at the backup, in the call in which the primary dies.
    """

    error: str | None
    answers: list[str]
    tools: list[str]
    author: str | None
    shown: list[str]
    requests: tuple[int, int]


class Bench:
    """Run cases, each once, on agents that are made once.

    Args:
        server: Where the providers are.
    """

    def __init__(self, server: ProviderServer) -> None:
        self.server = server
        self._agents: dict[Any, Any] = {}

    def agent(self, way: str, **options: Any) -> Any:
        key = (way, *options.items())
        if key not in self._agents:
            self._agents[key] = agent_of(*fallback_at(self.server, way, **options))
        return self._agents[key]

    def open(self, case: Case) -> dict[str, Any]:
        """Script the providers, and return the config of a new thread."""
        self.server.reset()
        script(self.server, case.death, case.at)
        return {"configurable": {"thread_id": repr(case)}, "recursion_limit": 6}

    async def run(self, case: Case, agent: Any, *, reviewed: bool = False) -> Outcome:
        page, error, config = Page(), None, self.open(case)
        try:
            await converse(agent, case.mode, config, page, reviewed=reviewed)
        except Exception as raised:  # noqa: BLE001 # whatever comes out is what is observed
            error = type(raised).__name__
        state = agent.get_state(config).values
        messages = state["messages"]
        report = state.get("structured_response")
        return Outcome(
            error,
            [text_of(one) for one in messages if one.type == "ai"],
            [one.text for one in messages if one.type == "tool" and one.name != "Report"],
            report and report.author,
            [*page.written, *(one.text for one in page.messages.values())],
            (
                requests_in(self.server[PRIMARY], case.at),
                requests_in(self.server[BACKUP], case.at),
            ),
        )


@pytest.fixture(scope="module")
def bench(provider_server: ProviderServer) -> Bench:
    return Bench(provider_server)


def contract(case: Case) -> Outcome:
    """Return what a run should come to."""
    authors = [PRIMARY, PRIMARY]
    if case.death.kills:
        authors[case.at] = BACKUP
    answers = [whole(author, call) for call, author in enumerate(authors)]
    shown = ["looking at Oslo"] if case.mode == "stream custom" else answers
    if not case.broken:
        requests = (1, int(case.death.kills))
        return Outcome(None, answers, TOOLS, authors[1], shown, requests)
    part = case.death.part_by(PRIMARY, case.at)
    before, tools = answers[: case.at], TOOLS if case.at else []
    return Outcome("StreamInterrupted", before, tools, None, [*before, part], (1, 0))


@pytest.mark.parametrize("case", CASES, ids=str)
async def test_the_loop(bench: Bench, case: Case) -> None:
    """One request at the dead primary, no tool twice, no text twice; what was shown stays."""
    agent = bench.agent(case.way, streaming=case.mode in BEHIND_MODES)
    assert await bench.run(case, agent) == contract(case)


REPLACED = [
    Case(*row)
    for row in pairwise(
        product(
            (
                "in the text: cut",
                "in a tool's arguments: closed",
                "after the finish reason: cut",
            ),
            (0, 1),
            WAYS,
            ("stream messages", "astream_events v2", "astream_events v3"),
        )
    )
]


@pytest.mark.parametrize("case", REPLACED, ids=str)
async def test_a_page_takes_back_what_a_failed_attempt_said(bench: Bench, case: Case) -> None:
    """With `partial="replace"` the call goes on, and each token says which attempt it is of."""
    agent = bench.agent(case.way, partial="replace")
    page, config = Page(), bench.open(case)
    await converse(agent, case.mode, config, page)
    authors = [PRIMARY, PRIMARY]
    authors[case.at] = BACKUP
    answers = [whole(author, call) for call, author in enumerate(authors)]
    part = case.death.part_by(PRIMARY, case.at)
    shown = [*page.messages.values()]
    assert [one.text for one in shown] == [*answers[: case.at], part, *answers[case.at :]]
    failed, kept = (one.metadata for one in shown[case.at : case.at + 2])
    assert (failed["fallback_attempt"], kept["fallback_attempt"]) == (1, 2)
    assert failed["fallback_call_id"] == kept["fallback_call_id"]
    latest = {one.metadata.get("fallback_call_id", one.text): one.text for one in shown}
    assert [*latest.values()] == answers
    assert agent.get_state(config).values["structured_response"].author == authors[1]


@pytest.mark.parametrize("way", WAYS)
async def test_an_interrupted_agent_goes_on_from_its_checkpoint(bench: Bench, way: str) -> None:
    """After `StreamInterrupted` the same thread answers without calling its tools again."""
    agent = bench.agent(way)
    case = Case("in a tool's arguments: cut", 1, way, "astream messages")
    page, config = Page(), bench.open(case)
    with pytest.raises(StreamInterrupted):
        await converse(agent, case.mode, config, page)
    script(bench.server, DEATHS["never"], None)
    page = Page()
    async for item in items_of(agent, case.mode, None, config):
        page.read(case.mode, item)
    assert [one.text for one in page.messages.values()] == [whole(PRIMARY, 1)]
    messages = agent.get_state(config).values["messages"]
    assert [one.text for one in messages if one.type == "tool"][:-1] == TOOLS


REVIEWED = [
    Case("in the text: cut", 0, "middleware", "invoke streaming=True"),
    Case("in the text: cut", 1, "chat model", "astream messages"),
    Case("in a tool's arguments: closed", 1, "middleware", "astream messages"),
    Case("in a tool's arguments: closed", 0, "chat model", "invoke streaming=True"),
]


@pytest.mark.parametrize("case", REVIEWED, ids=str)
async def test_the_loop_with_a_middleware_that_asks_the_person(bench: Bench, case: Case) -> None:
    """`HumanInTheLoopMiddleware` in place of the tool's interrupt changes nothing."""
    fallback = fallback_at(bench.server, case.way, streaming=case.mode in BEHIND_MODES)
    agent = agent_of(*fallback, reviewed=True)
    assert await bench.run(case, agent, reviewed=True) == contract(case)
