"""A whole agent whose primary dies at every point of its loop, in every way to read the agent."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from honcho_fallback import StreamInterrupted
from tests.helpers.agent_loop import (
    BACKUP,
    BEHIND_MODES,
    DEATHS,
    PRIMARY,
    SHORT_MODES,
    TOKEN_MODES,
    WAYS,
    WHOLE_MODES,
    Death,
    Page,
    agent_of,
    converse,
    fallback_at,
    inputs,
    items_of,
    requests_in,
    script,
    text_of,
    whole,
)
from tests.helpers.observers import Listener
from tests.helpers.provider import ROOT

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.helpers.provider import ProviderServer

pytestmark = pytest.mark.filterwarnings("ignore:The v3 streaming protocol:DeprecationWarning")

DOCUMENT = ROOT / "docs" / "langchain.md"
BLOCK = re.compile(r"(?<=<!-- agent-loop-table -->\n).*?(?=<!-- /agent-loop-table -->)", re.DOTALL)

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


def modes_for(point: str) -> list[str]:
    """Return the modes in which a death looks like no other.

    A body breaks in one place only. An error event is one more exception in a stream, and where
    nothing is lost there is little to see.
    """
    unstreamed = point.startswith(("never", "before"))
    whole_modes = WHOLE_MODES if unstreamed or point.startswith("in the text") else ()
    modes = [*whole_modes, *(() if unstreamed else BEHIND_MODES), *TOKEN_MODES]
    if point.endswith("error event") or not (unstreamed or DEATHS[point].kills):
        return [mode for mode in modes if mode in SHORT_MODES]
    return modes


# Each death in each mode; calls and ways take turns, so that each mode and each death meets all.
_TURNS = [(at, way) for at in (0, 1) for way in WAYS]
CASES = [
    Case(point, at if point != "never" else 0, way, mode)
    for place, point in enumerate(DEATHS)
    for number, mode in enumerate(modes_for(point))
    for at, way in [_TURNS[(place + number) % len(_TURNS)]]
]


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
        self._outcomes: dict[Case, Outcome] = {}

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

    async def outcome(self, case: Case) -> Outcome:
        if case not in self._outcomes:
            agent = self.agent(case.way, streaming=case.mode in BEHIND_MODES)
            self._outcomes[case] = await self.run(case, agent)
        return self._outcomes[case]

    async def run(
        self, case: Case, agent: Any, *, reviewed: bool = False, **configurable: Any
    ) -> Outcome:
        """Run a case on an agent, with more in its config if need be."""
        page, error, config = Page(), None, self.open(case)
        config["configurable"] |= configurable
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
    assert await bench.outcome(case) == contract(case)


REPLACED = [
    Case(point, at, way, mode)
    for point in (
        "in the text: cut",
        "in a tool's arguments: closed",
        "after the finish reason: cut",
    )
    for at in (0, 1)
    for way in WAYS
    for mode in ("stream messages", "astream_events v2", "astream_events v3")
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
    Case(point, at, way, mode)
    for point in ("in the text: cut", "in a tool's arguments: closed")
    for at in (0, 1)
    for way in WAYS
    for mode in ("invoke streaming=True", "astream messages")
]


@pytest.mark.parametrize("case", REVIEWED, ids=str)
async def test_the_loop_with_a_middleware_that_asks_the_person(bench: Bench, case: Case) -> None:
    """`HumanInTheLoopMiddleware` in place of the tool's interrupt changes nothing."""
    fallback = fallback_at(bench.server, case.way, streaming=case.mode in BEHIND_MODES)
    agent = agent_of(*fallback, reviewed=True)
    assert await bench.run(case, agent, reviewed=True) == contract(case)


COMBINED = [
    Case(point, at, way, "stream messages")
    for point in ("before: status 503", "after the first, empty chunk: cut", "in the text: cut")
    for at in (0, 1)
    for way in WAYS
]


@pytest.mark.parametrize("case", COMBINED, ids=str)
def test_two_stream_modes_at_once_agree(bench: Bench, case: Case) -> None:
    """`stream_mode=["messages", "updates"]` has the tokens of the updates' messages, by id."""
    agent, config = bench.agent(case.way), bench.open(case)
    pages = {"messages": Page(), "updates": Page()}
    error = None
    try:
        for given in inputs():
            for mode, item in agent.stream(given, config, stream_mode=[*pages]):
                pages[mode].read(mode, item)
    except StreamInterrupted as raised:
        error = type(raised).__name__
    expected = contract(case)
    tokens, updates = (page.messages for page in pages.values())
    assert error == expected.error
    assert [one.text for one in tokens.values()] == expected.shown
    assert [one.text for one in updates.values()] == expected.answers
    assert [*tokens][: len(updates)] == [*updates]


TURNS = [
    Case(point, 0, way, mode)
    for point, mode in (
        ("before: status 503", "invoke"),
        ("before: connection dropped", "astream messages"),
        ("after the first, empty chunk: closed", "astream_events v3"),
        ("in the text: cut", "ainvoke streaming=True"),
    )
    for way in WAYS
]


@pytest.mark.parametrize("case", TURNS, ids=str)
async def test_a_turn_stays_at_the_backup(bench: Bench, case: Case) -> None:
    """With `reset="turn"` the second call, after the interrupt, asks the backup alone."""
    streaming = case.mode in BEHIND_MODES
    model, middleware = fallback_at(bench.server, case.way, streaming=streaming, reset="turn")
    turn = {} if middleware else {"fallback_turn": model.turn()}  # the graph keeps its own
    outcome = await bench.run(case, agent_of(model, middleware), **turn)
    answers = [whole(BACKUP, call) for call in (0, 1)]
    requests = [requests_in(bench.server[name], 1) for name in (PRIMARY, BACKUP)]
    assert (outcome.error, outcome.answers, outcome.author) == (None, answers, BACKUP)
    assert (outcome.requests, requests) == ((1, 1), [0, 1])


@pytest.mark.parametrize("way", WAYS)
async def test_records_name_the_agent(bench: Bench, way: str) -> None:
    """The `agent` of each record is the name that `create_agent` was given."""
    listener = Listener()
    agent = agent_of(*fallback_at(bench.server, way, observers=[listener]))
    await bench.run(Case("before: status 503", 0, way, "astream messages"), agent)
    assert [record.agent for record in listener.records] == ["reporter", "reporter"]


# The table in the documentation.


def who_answered(outcome: Outcome, case: Case) -> str:
    """Name who answered the call in which the primary dies, or the error, and the requests."""
    if outcome.error is not None:
        name = f"`{outcome.error}`"
    else:
        answer = outcome.answers[case.at] if case.at < len(outcome.answers) else ""
        names = {whole(author, case.at): author for author in (PRIMARY, BACKUP)}
        name = names.get(answer, "a part, as if it were all")
    return "{} {}/{}".format(name, *outcome.requests)


def shown_of_failed(outcome: Outcome, case: Case) -> str:
    """Tell what a reader of tokens saw of the attempt that failed."""
    failed = [
        text
        for text in outcome.shown[case.at :]
        if whole(PRIMARY, case.at).startswith(text) and text not in outcome.answers
    ]
    if not failed:
        return "nothing"
    return "what came before" if any(failed) else "an empty chunk"


def one_cell(values: dict[Case, str]) -> str:
    """Return what all cases say, or what each says where they differ."""
    of_dimensions: list[Callable[[Case], str]] = [
        lambda case: case.way,
        lambda case: f"call {case.at + 1}",
    ]
    if len({*values.values()}) == 1:
        return next(iter(values.values()))
    for of in of_dimensions:
        groups: dict[str, set[str]] = {}
        for case, value in values.items():
            groups.setdefault(of(case), set()).add(value)
        if all(len(group) == 1 for group in groups.values()):
            return ", ".join(f"{group.pop()} ({name})" for name, group in groups.items())
    return " or ".join(sorted({*values.values()}))


def table_of(outcomes: dict[Case, Outcome]) -> str:
    """Write what was observed as a table, a line for each point of death."""
    titles = ["the primary dies", "without tokens", "with tokens", "shown of it"]
    lines = [titles, ["---"] * len(titles)]
    for point in DEATHS:
        runs = {case: one for case, one in outcomes.items() if case.point == point}
        answers = {case: who_answered(one, case) for case, one in runs.items()}
        tokens = {case: one for case, one in runs.items() if case.mode in TOKEN_MODES}
        cells = [
            one_cell({case: one for case, one in answers.items() if case not in tokens}),
            one_cell({case: answers[case] for case in tokens}),
            one_cell({case: shown_of_failed(one, case) for case, one in tokens.items()}),
        ]
        lines.append([point, *cells])
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


@pytest.mark.timeout(180)  # alone, it makes every run of this module
async def test_the_table_is_what_is_observed(bench: Bench) -> None:
    """`docs/langchain.md` shows what the runs came to; `WRITE_TABLES=1` writes it anew."""
    table = table_of({case: await bench.outcome(case) for case in CASES})
    document = DOCUMENT.read_text(encoding="utf-8")
    if os.environ.get("WRITE_TABLES"):
        document = BLOCK.sub(lambda _: table, document)
        DOCUMENT.write_text(document, encoding="utf-8")
    assert BLOCK.findall(document) == [table], "run this module with WRITE_TABLES=1"
