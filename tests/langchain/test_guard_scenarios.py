"""What tools do in round after round of an agent; the guard by itself stands in tests/tools.

A course is written by its rounds. A call is a tool with its argument; calls of one round are
joined by a plus; a mark behind a call says what comes of it, if not a success.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any
from uuid import uuid4

import pytest
from langchain.agents.middleware import HumanInTheLoopMiddleware, ShellToolMiddleware
from langchain_core.messages import HumanMessage, ToolMessage
from langchain_core.tools import InjectedToolCallId, tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command

from honcho_fallback.tools import ToolBlockedError, ToolDeniedError, ToolLoopLimits
from honcho_fallback_langchain import ToolLoopGuardMiddleware
from tests.helpers.agents import VERBS, Tool, agent, at_once, calls, last, run, thread
from tests.helpers.chat_models import chat

if TYPE_CHECKING:
    from langchain_core.messages import AIMessageChunk

# What comes of a call: an error to raise, or what a command printed before it failed.
MARKS: dict[str, Any] = {
    "!": ValueError("no such row"),
    "~": ConnectionRefusedError("refused"),  # may pass by itself
    "x": ToolDeniedError("no"),
    "#": ToolBlockedError("no"),
    "1": ("E  timed out", {"exit_code": 1}),
    "2": ("error: blocked by policy", {"exit_code": 2}),
    "0": ("E  connection refused", None),  # nobody says the code
    "late": ("no end", {"timed_out": True, "exit_code": None}),
    "?": None,  # there is no such tool
}


def playing(name: str) -> Any:
    """Make a tool that gives each call what its mark says."""

    @tool(name)
    def play(call_id: Annotated[str, InjectedToolCallId], n: str = "", mark: str = "") -> Any:
        """Play."""
        result = MARKS.get(mark)
        if isinstance(result, Exception):
            raise result
        if result is None:
            return "fine"
        text, artifact = result
        return ToolMessage(text, tool_call_id=call_id, status="error", artifact=artifact)

    return play


def asking(number: int, batch: str) -> AIMessageChunk:
    """Make a model's answer that makes the calls of a round."""
    made = (re.fullmatch(r"([a-z_]+)(\d*):?(.*)", one) for one in batch.split("+"))
    parts = [one.groups() for one in made if one]
    return at_once(
        *(
            (f"{number}_{at}", name, {"n": n, "mark": mark})
            for at, (name, n, mark) in enumerate(parts)
        )
    )


async def by_an_agent(verb: str, rounds: str, **options: Any) -> str:
    """Have an agent whose model and tools play the rounds; return what the guard did."""
    script = [asking(number, batch) for number, batch in enumerate(rounds.split())]
    called = [call for answer in script for call in answer.tool_calls]
    names = {call["name"]: None for call in called if call["args"]["mark"] != "?"}
    tools = [playing(name) for name in [*names, "idle"]]
    made = agent(chat("m", *script, "done"), ToolLoopGuardMiddleware(**options), tools=tools)
    return course(await run(verb, made, config={"recursion_limit": 200}))


def course(answered: dict[str, Any]) -> str:
    """Tell after which rounds, from 1, the model was told of what limit.

    Of the limit that ended the run the tools are said as well.
    """
    said: list[str] = []
    rounds = 0
    for message in answered["messages"][1:]:
        if isinstance(message, HumanMessage):
            said.append(f"{rounds} {message.response_metadata['tool_loop']['reason']}")
        rounds += bool(getattr(message, "tool_calls", ()))
    why = last(answered).response_metadata.get("tool_loop")
    if why is None:
        assert last(answered).text == "done"
    else:
        assert why["action"] == "halt"
        assert all(name in last(answered).text for name in why["tool"].split(", "))
        said.append(f"{rounds} {why['reason']} of {why['tool']}")
    return "; ".join(said)


def each(call: str, count: int, first: int = 0) -> str:
    """Make calls with other arguments in rounds of their own."""
    return " ".join(call.format(number) for number in range(first, first + count)) + " "


SCENARIOS: dict[str, tuple[str, str]] = {
    # Refusals.
    "two of three calls at once are declined": ("send1:x+pay1:x+read1 read0 read1", ""),
    "all of three calls at once are declined": ("send1:x+send2:x+pay1:x", ""),
    "the same call is declined twice at once": ("send1:x+send1:x", ""),
    "a person declines one call after another": (
        each("send{}:x", 6),
        "4 varied_failures; 6 varied_failures of send",
    ),
    "policy blocks one call after another": (
        each("send{}:#", 6),
        "4 varied_failures; 6 varied_failures of send",
    ),
    "a blocked call is asked for again beside a success": (
        "send1:#+read1 send1:#+list2",
        "2 policy_rejections of send",
    ),
    "a declined call is asked for again after another": ("send1:x read1 send1:x", ""),
    # Streaks (OH-020).
    "an ordinary failure breaks a streak of those that may pass": (
        each("fetch{}:~", 11) + "read0:! " + each("fetch{}:~", 11),
        "",
    ),
    "another command in between starts a patient count anew": (
        "fetch1:~ " * 7 + "read1 " + "fetch1:~ " * 7,
        "",
    ),
    "another failure in between starts a patient count anew": (
        "fetch1:~ " * 7 + "fetch2:~ " + "fetch1:~ " * 3,
        "",
    ),
    "another failure in between starts an identical count anew": (
        "read1:! list1:! read1:! read2:! read1:!",
        "4 varied_failures",
    ),
    "the same failures of two calls at once": (
        "read1:!+list1:! " * 3,
        "2 identical_failures; 3 identical_failures of read",
    ),
    "six failures at once": ("read0:!+read1:!+read2:!+read3:!+read4:!+read5:!", ""),
    "the same failure six times at once": ("+".join(["read1:!"] * 6), ""),
    # Rounds in turn (OH-020).
    "two successes in turn": (
        "read1 list2 " * 4,
        "4 repeated_cycle; 6 repeated_cycle of list",
    ),
    "three successes in turn": (
        "read1 list2 look3 " * 4,
        "6 repeated_cycle; 9 repeated_cycle of look",
    ),
    "two rounds of calls at once in turn": (
        "read1+list2 list2+look3 list2+read1 look3+list2 read1+list2 list2+look3",
        "4 repeated_cycle; 6 repeated_cycle of list, look",
    ),
    "a failure and a success in turn": (
        "read1:! list2 " * 4,
        "4 repeated_cycle; 6 repeated_cycle of list",
    ),
    "a failure and a success at once": (
        "read1:!+list2 " * 4,
        "3 identical_batches of read, list",
    ),
    "three failures in turn": (
        "read1:! list2:! look3:! " * 2,
        "4 varied_failures; 6 varied_failures of look",
    ),
    "a failure that may pass and a wait in turn": (
        "fetch1:~ sleep5 " * 9,
        "4 repeated_cycle; 16 repeated_cycle of sleep",
    ),
    "two calls in turn, with other arguments": (each("read{} list2", 8), ""),
    # The output of a command (OH-020).
    "tests that fail between edits": (each("test0:1 edit{}", 12), ""),
    "tests that fail between edits, nobody says the code": (each("test0:0 edit{}", 12), ""),
    "a command that prints what a policy would": ("test0:2 " * 2, "2 identical_failures"),
    # Tools that are not there.
    "one unknown tool after another": (
        "ta:? tb:? tc:? td:? te:? tf:? tg:? th:?",
        "",
    ),
    "an unknown tool between tools that fail": (
        each("read{}:!", 3) + "tool:? " + each("read{}:!", 3, first=3),
        "5 varied_failures; 7 varied_failures of read",
    ),
    "the same unknown tool again and again": (
        "tool:? " * 3,
        "2 identical_failures; 3 identical_failures of tool",
    ),
    "six unknown tools at once": ("ta:?+tb:?+tc:?+td:?+te:?+tf:?", ""),
}


@pytest.mark.parametrize("name", SCENARIOS)
async def test_a_course_by_an_agent(name: str) -> None:
    """OH-016 to OH-022: when the model is told, when the run ends, why, and of which tool."""
    rounds, expected = SCENARIOS[name]
    verb = ("invoke", "ainvoke")[list(SCENARIOS).index(name) % 2]
    assert await by_an_agent(verb, rounds) == expected


@pytest.mark.parametrize(
    ("limits", "rounds", "expected"),
    [
        ({"identical_batches": 2}, "read1 list2 " * 2, "4 repeated_cycle of list"),
        ({"identical_batches": 4}, "read1 list2 " * 4, "8 repeated_cycle of list"),
        ({"recoverable_identical": 2}, "fetch1:~ list2 " * 2, "4 repeated_cycle of list"),
        ({"identical_batches": 9}, "read1 " * 5, "4 identical_outputs of read"),
        ({"identical_outputs": 2}, "read1+list2 list2+read1", "2 identical_outputs of list, read"),
        ("sleep", "fetch sleep " * 10, ""),
        ("fetch", "fetch sleep " * 10, ""),
    ],
    ids=str,
)
async def test_limits_of_a_course(
    limits: dict[str, int] | str, rounds: str, expected: str
) -> None:
    """OH-023: the limits hold for turns, too, and every halt names its tool.

    OH-018: a round of exempt calls only starts the search for turns anew.
    """
    options: dict[str, Any] = {"exempt_tools": [limits]}
    if not isinstance(limits, str):
        options = {"limits": ToolLoopLimits(**limits)}
    assert (await by_an_agent("ainvoke", rounds, **options)).split("; ")[-1] == expected


Answer = Callable[[int], Any]


def block(text: str) -> list[dict[str, str]]:
    """Make a block of a tool's result as a server's adapter does, with an id of its own."""
    return [{"type": "text", "text": text, "id": f"lc_{uuid4()}"}]


async def polled(
    verb: str, answer: Answer, times: int, guard: Any, config: Any = None
) -> tuple[int, str]:
    """Have an agent ask for a state again and again; return how often, and its last words."""
    checks = Tool(lambda: answer(checks.count))
    script = [calls("work", number, n=7) for number in range(times)]
    made = agent(chat("m", *script, "all green"), guard, tools=[checks.made])
    answered = await run(verb, made, config=config)
    why = last(answered).response_metadata.get("tool_loop", {"reason": last(answered).text})
    return checks.count, why["reason"]


@VERBS
@pytest.mark.parametrize(
    ("answer", "polls", "expected"),
    [
        (lambda n: f"{n} of 6", 50, (6, "all green")),
        (lambda n: block(f"{n} of 6"), 50, (6, "all green")),
        (lambda n: "queued" if n < 3 else f"{n} of 6", 50, (6, "all green")),
        (lambda _: "queued", 50, (3, "identical_batches")),
        (lambda _: block("queued"), 50, (3, "identical_batches")),
        (lambda n: f"{n // 4}", 50, (3, "identical_batches")),
        (str, 5, (5, "polls")),
    ],
)
async def test_a_poll_goes_on_while_its_result_changes(
    verb: str, answer: Answer, polls: int, expected: tuple[int, str]
) -> None:
    """OH-016, OH-017: by what the model sees of it; one that stays the same ends the turn.

    One that changes for ever has a cap.
    """
    guard = ToolLoopGuardMiddleware(ToolLoopLimits(polls=polls))
    assert await polled(verb, answer, 6, guard) == expected


@VERBS
@pytest.mark.parametrize(
    ("configurable", "polls"),
    [({}, 2), ({"unattended": True}, 4), ({"unattended": False}, 2), ({"unattended": "no"}, 2)],
)
async def test_a_run_says_that_it_is_unattended(
    verb: str, configurable: dict[str, Any], polls: int
) -> None:
    """OH-023: by its config, so that one agent serves both; the runs before it change nothing.

    What is counted stands in the graph, never on the middleware: runs at once share nothing.
    """
    guard = ToolLoopGuardMiddleware(ToolLoopLimits(max_iterations=2, autonomous_max_iterations=4))
    held = dict(vars(guard))
    assert await polled(verb, str, 9, guard, {"configurable": {"unattended": True}}) == (
        4,
        "max_iterations",
    )
    config = {"configurable": configurable}
    assert await polled(verb, str, 9, guard, config) == (polls, "max_iterations")
    assert vars(guard) == held


@VERBS
async def test_what_a_person_declines(verb: str) -> None:
    """OH-020 to OH-022: a no ends no run; the same call declined again does, whatever its id."""
    rounds = ["send1+pay2+read3", "send2", "send2"]
    script = [asking(number, batch) for number, batch in enumerate(rounds)]
    model = chat("m", *script, "never")
    person = HumanInTheLoopMiddleware(interrupt_on={"send": True, "pay": True})
    tools = [playing(name) for name in ("send", "pay", "read")]
    saver = InMemorySaver()
    made = agent(model, ToolLoopGuardMiddleware(), person, tools=tools, checkpointer=saver)
    no: dict[str, str] = {"type": "reject"}
    answered = await run(verb, made, config=thread())
    for decisions in ([no, {**no, "message": "it timed out"}], [no], [no]):
        assert "__interrupt__" in answered
        given: Command[Any] = Command(resume={"decisions": decisions})
        answered = await run(verb, made, given, thread())
    assert course(answered) == "3 policy_rejections of send"
    assert len(model.asked) == 3


# LangChain's shell leaves the pipes of its process open.
@pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")
@VERBS
async def test_langchains_own_shell(verb: str) -> None:
    """OH-020: what its commands print counts for nothing, their exit codes do."""
    failing = "echo 'connection refused, timed out'; (exit 3)"
    script = [calls("shell", number, command=failing) for number in range(4)]
    made = agent(chat("m", *script, "never"), ToolLoopGuardMiddleware(), ShellToolMiddleware())
    answered = await run(verb, made)
    assert course(answered) == "2 identical_failures; 3 identical_failures of shell"
    for reader in threading.enumerate():  # of those pipes: a late one would warn in another test
        if "_enqueue_stream" in reader.name:
            reader.join(10)


@VERBS
async def test_a_command_that_was_stopped_has_timed_out(verb: str) -> None:
    """OH-002: a tool's artifact says that it was stopped; that may pass by itself."""
    assert await by_an_agent(verb, "work1:late " * 9) == "8 recoverable_identical of work"
