"""What tools do in round after round of an agent; the guard by itself stands in tests/tools."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple
from uuid import uuid4

import pytest
from langchain.agents.middleware import HumanInTheLoopMiddleware, ShellToolMiddleware
from langchain_core.messages import AIMessageChunk, HumanMessage, ToolMessage
from langchain_core.messages.tool import tool_call_chunk
from langchain_core.tools import InjectedToolCallId, tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command

from honcho_fallback.tools import (
    ToolBlockedError,
    ToolDeniedError,
    ToolLoopLimits,
)
from honcho_fallback_langchain import ToolLoopGuardMiddleware
from tests.helpers.agents import agent, calls, last, run
from tests.helpers.chat_models import chat

if TYPE_CHECKING:
    from collections.abc import Sequence

VERBS = pytest.mark.parametrize("verb", ["invoke", "ainvoke"])
ORDINARY, PASSING = ValueError("no such row"), ConnectionRefusedError("refused")
DENIED, BLOCKED = ToolDeniedError("no"), ToolBlockedError("no")
NO_SUCH_TOOL = object()


class Output(NamedTuple):
    """What a command printed before it exited, and how its tool reports that.

    Args:
        text: What it printed.
        code: What it exited with, or None where nobody says it.
    """

    text: str
    code: int | None = None


class Call(NamedTuple):
    """One call of a tool, and what comes of it.

    Args:
        tool: Its name.
        number: Its argument.
        result: An exception to raise, the output of a failed command, ``NO_SUCH_TOOL`` or None for
            success.
    """

    tool: str
    number: int = 0
    result: Any = None


Round = list[Call]


class Course(NamedTuple):
    """What the guard did.

    Args:
        nudges: After which rounds, from 1, the model was told of what limit.
        halt: After which round the run ended, for what limit, and about which tool.
    """

    nudges: tuple[tuple[int, str], ...] = ()
    halt: tuple[int, str, str] | None = None


def names(message: str, tools: str) -> bool:
    """Tell whether a message names all of some tools."""
    return bool(tools) and all(name in message for name in tools.split(", "))


async def by_an_agent(verb: str, rounds: Sequence[Round], options: dict[str, Any]) -> Course:
    """Have an agent whose model and tools play the rounds."""
    of_calls = {
        f"{number}_{at}": call
        for number, batch in enumerate(rounds)
        for at, call in enumerate(batch)
    }
    names_of_tools = {
        call.tool: None for call in of_calls.values() if call.result is not NO_SUCH_TOOL
    }
    tools = [playing(name, of_calls) for name in [*names_of_tools, "idle"]]
    script = [asking(number, batch) for number, batch in enumerate(rounds)]
    made = agent(chat("m", *script, "done"), ToolLoopGuardMiddleware(**options), tools=tools)
    config = {"recursion_limit": 200}
    return course(await run(verb, made, config=config))


def playing(name: str, of_calls: dict[str, Call]) -> Any:
    """Make a tool that gives each call its result."""

    @tool(name)
    def play(call_id: Annotated[str, InjectedToolCallId], n: int = 0) -> Any:
        """Play."""
        result = of_calls[call_id].result
        if isinstance(result, Exception):
            raise result
        if isinstance(result, Output):
            artifact = None if result.code is None else {"exit_code": result.code}
            return ToolMessage(
                result.text, tool_call_id=call_id, status="error", artifact=artifact
            )
        return "fine"

    return play


def asking(number: int, batch: Round) -> AIMessageChunk:
    """Make a model's answer that makes the calls of a round."""
    chunks = [
        tool_call_chunk(
            name=call.tool, args=f'{{"n": {call.number}}}', id=f"{number}_{at}", index=at
        )
        for at, call in enumerate(batch)
    ]
    return AIMessageChunk(content="", tool_call_chunks=chunks)


def course(answered: dict[str, Any]) -> Course:
    """Read from an agent's messages what the guard did."""
    nudges: list[tuple[int, str]] = []
    rounds = 0
    for message in answered["messages"][1:]:
        if isinstance(message, HumanMessage):
            nudges.append((rounds, message.response_metadata["tool_loop"]["reason"]))
        rounds += bool(getattr(message, "tool_calls", ()))
    why = last(answered).response_metadata.get("tool_loop")
    if why is None:
        assert last(answered).text == "done"
        return Course(tuple(nudges))
    assert why["action"] == "halt"
    assert names(last(answered).text, why["tool"])
    return Course(tuple(nudges), (rounds, why["reason"], why["tool"]))


def one_by_one(*made: Call) -> list[Round]:
    """Make each call in a round of its own."""
    return [[call] for call in made]


def each(name: str, result: Any, count: int, first: int = 0) -> list[Round]:
    """Make calls with other arguments in rounds of their own."""
    return one_by_one(*(Call(name, number, result) for number in range(first, first + count)))


def edited(result: Any, count: int) -> list[Round]:
    """Run the same tests again and again, with another edit after each."""
    return [
        one
        for number in range(count)
        for one in ([Call("test", 0, result)], [Call("edit", number)])
    ]


A, B, C = Call("read", 1), Call("list", 2), Call("look", 3)
GOES_ON = Course()

SCENARIOS: dict[str, tuple[list[Round], Course]] = {
    # Refusals.
    "two of three calls at once are declined": (
        [
            [Call("send", 1, DENIED), Call("pay", 1, DENIED), Call("read", 1)],
            *each("read", None, 2),
        ],
        GOES_ON,
    ),
    "all of three calls at once are declined": (
        [[Call("send", 1, DENIED), Call("send", 2, DENIED), Call("pay", 1, DENIED)]],
        GOES_ON,
    ),
    "the same call is declined twice at once": (
        [[Call("send", 1, DENIED), Call("send", 1, DENIED)]],
        GOES_ON,
    ),
    "a person declines one call after another": (
        each("send", DENIED, 6),
        Course(halt=(6, "varied_failures", "send"), nudges=((4, "varied_failures"),)),
    ),
    "policy blocks one call after another": (
        each("send", BLOCKED, 6),
        Course(halt=(6, "varied_failures", "send"), nudges=((4, "varied_failures"),)),
    ),
    "a blocked call is asked for again beside a success": (
        [[Call("send", 1, BLOCKED), A], [Call("send", 1, BLOCKED), B]],
        Course(halt=(2, "policy_rejections", "send")),
    ),
    "a declined call is asked for again after another": (
        one_by_one(Call("send", 1, DENIED), A, Call("send", 1, DENIED)),
        GOES_ON,
    ),
    # Streaks (OH-020).
    "an ordinary failure breaks a streak of those that may pass": (
        [*each("fetch", PASSING, 11), *each("read", ORDINARY, 1), *each("fetch", PASSING, 11)],
        GOES_ON,
    ),
    "another command in between starts a patient count anew": (
        one_by_one(*[Call("fetch", 1, PASSING)] * 7, A, *[Call("fetch", 1, PASSING)] * 7),
        GOES_ON,
    ),
    "another failure in between starts a patient count anew": (
        one_by_one(
            *[Call("fetch", 1, PASSING)] * 7,
            Call("fetch", 2, PASSING),
            *[Call("fetch", 1, PASSING)] * 3,
        ),
        GOES_ON,
    ),
    "another failure in between starts an identical count anew": (
        one_by_one(
            Call("read", 1, ORDINARY),
            Call("list", 1, ORDINARY),
            Call("read", 1, ORDINARY),
            Call("read", 2, ORDINARY),
            Call("read", 1, ORDINARY),
        ),
        Course(nudges=((4, "varied_failures"),)),
    ),
    "the same failures of two calls at once": (
        [[Call("read", 1, ORDINARY), Call("list", 1, ORDINARY)]] * 3,
        Course(((2, "identical_failures"),), (3, "identical_failures", "read")),
    ),
    "six failures at once": ([[Call("read", n, ORDINARY) for n in range(6)]], GOES_ON),
    "the same failure six times at once": ([[Call("read", 1, ORDINARY)] * 6], GOES_ON),
    # Rounds in turn (OH-020).
    "two successes in turn": (
        one_by_one(A, B) * 4,
        Course(((4, "repeated_cycle"),), (6, "repeated_cycle", "list")),
    ),
    "three successes in turn": (
        one_by_one(A, B, C) * 4,
        Course(((6, "repeated_cycle"),), (9, "repeated_cycle", "look")),
    ),
    "two rounds of calls at once in turn": (
        [[A, B], [B, C], [B, A], [C, B], [A, B], [B, C]],
        Course(((4, "repeated_cycle"),), (6, "repeated_cycle", "list, look")),
    ),
    "a failure and a success in turn": (
        one_by_one(Call("read", 1, ORDINARY), B) * 4,
        Course(((4, "repeated_cycle"),), (6, "repeated_cycle", "list")),
    ),
    "a failure and a success at once": (
        [[Call("read", 1, ORDINARY), B]] * 4,
        Course(halt=(3, "identical_batches", "read, list")),
    ),
    "three failures in turn": (
        one_by_one(*(call._replace(result=ORDINARY) for call in (A, B, C))) * 2,
        Course(((4, "varied_failures"),), (6, "varied_failures", "look")),
    ),
    "a failure that may pass and a wait in turn": (
        one_by_one(Call("fetch", 1, PASSING), Call("sleep", 5)) * 9,
        Course(((4, "repeated_cycle"),), (16, "repeated_cycle", "sleep")),
    ),
    "two calls in turn, with other arguments": (
        [one for n in range(8) for one in one_by_one(Call("read", n), B)],
        GOES_ON,
    ),
    # The output of a command (OH-020).
    "tests that fail between edits": (edited(Output("E  timed out", 1), 12), GOES_ON),
    "tests that fail between edits, nobody says the code": (
        edited(Output("E  connection refused"), 12),
        GOES_ON,
    ),
    "a command that prints what a policy would": (
        one_by_one(*[Call("test", 0, Output("error: blocked by policy", 2))] * 2),
        Course(nudges=((2, "identical_failures"),)),
    ),
    # Tools that are not there.
    "one unknown tool after another": (
        one_by_one(*(Call(f"tool_{n}", 0, NO_SUCH_TOOL) for n in range(8))),
        GOES_ON,
    ),
    "an unknown tool between tools that fail": (
        one_by_one(
            *(Call("read", n, ORDINARY) for n in range(3)),
            Call("tool", 0, NO_SUCH_TOOL),
            *(Call("read", n, ORDINARY) for n in range(3, 6)),
        ),
        Course(((5, "varied_failures"),), (7, "varied_failures", "read")),
    ),
    "the same unknown tool again and again": (
        one_by_one(*[Call("tool", 0, NO_SUCH_TOOL)] * 3),
        Course(((2, "identical_failures"),), (3, "identical_failures", "tool")),
    ),
    "six unknown tools at once": (
        [[Call(f"tool_{n}", 0, NO_SUCH_TOOL) for n in range(6)]],
        GOES_ON,
    ),
}


@pytest.mark.parametrize("name", SCENARIOS)
async def test_a_course_by_an_agent(name: str) -> None:
    """OH-016 to OH-022: when the model is told, when the run ends, why, and of which tool."""
    rounds, expected = SCENARIOS[name]
    verb = ("invoke", "ainvoke")[list(SCENARIOS).index(name) % 2]
    assert await by_an_agent(verb, rounds, {}) == expected


@pytest.mark.parametrize(
    ("limits", "rounds", "expected"),
    [
        ({"identical_batches": 2}, one_by_one(A, B) * 2, (4, "repeated_cycle", "list")),
        ({"identical_batches": 4}, one_by_one(A, B) * 4, (8, "repeated_cycle", "list")),
        (
            {"recoverable_identical": 2},
            one_by_one(Call("fetch", 1, PASSING), B) * 2,
            (4, "repeated_cycle", "list"),
        ),
        ({"identical_batches": 9}, one_by_one(*[A] * 5), (4, "identical_outputs", "read")),
        ({"identical_outputs": 2}, [[A, B], [B, A]], (2, "identical_outputs", "list, read")),
        ("sleep", one_by_one(Call("fetch"), Call("sleep")) * 10, None),
        ("fetch", one_by_one(Call("fetch"), Call("sleep")) * 10, None),
    ],
    ids=str,
)
async def test_limits_of_a_course(
    limits: dict[str, int] | str, rounds: list[Round], expected: tuple[int, str, str] | None
) -> None:
    """OH-023: the limits hold for turns, too, and every halt names its tool.

    OH-018: a round of exempt calls only starts the search for turns anew.
    """
    options: dict[str, Any] = {"exempt_tools": [limits]}
    if not isinstance(limits, str):
        options = {"limits": ToolLoopLimits(**limits)}
    assert (await by_an_agent("ainvoke", rounds, options)).halt == expected


Answer = Callable[[int], Any]


def block(text: str) -> list[dict[str, str]]:
    """Make a block of a tool's result as a server's adapter does, with an id of its own."""
    return [{"type": "text", "text": text, "id": f"lc_{uuid4()}"}]


async def polled(
    verb: str, answer: Answer, times: int, guard: Any, config: Any = None
) -> tuple[int, str]:
    """Have an agent ask for a state again and again; return how often, and its last words."""
    polls = 0

    @tool
    def checks(pr: int) -> Any:
        """Look at the checks."""
        nonlocal polls
        polls += 1
        return answer(polls)

    script = [calls("checks", number, pr=7) for number in range(times)]
    made = agent(chat("m", *script, "all green"), guard, tools=[checks])
    answered = await run(verb, made, config=config)
    why = last(answered).response_metadata.get("tool_loop", {"reason": last(answered).text})
    return polls, why["reason"]


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


def thread() -> dict[str, Any]:
    return {"configurable": {"thread_id": "t"}}


@VERBS
async def test_what_a_person_declines(verb: str) -> None:
    """OH-020 to OH-022: a no ends no run; the same call declined again does, whatever its id."""
    rounds = [
        [Call("send", 1), Call("pay", 2), Call("read", 3)],
        *one_by_one(Call("send", 2), Call("send", 2)),
    ]
    script = [asking(number, batch) for number, batch in enumerate(rounds)]
    of_calls = {f"{number}_{at}": A for number in range(2) for at in range(3)}
    model = chat("m", *script, "never")
    person = HumanInTheLoopMiddleware(interrupt_on={"send": True, "pay": True})
    tools = [playing(name, of_calls) for name in ("send", "pay", "read")]
    saver = InMemorySaver()
    made = agent(model, ToolLoopGuardMiddleware(), person, tools=tools, checkpointer=saver)
    no: dict[str, str] = {"type": "reject"}
    answered = await run(verb, made, config=thread())
    for decisions in ([no, {**no, "message": "it timed out"}], [no], [no]):
        assert "__interrupt__" in answered
        given: Command[Any] = Command(resume={"decisions": decisions})
        answered = await run(verb, made, given, thread())
    assert course(answered).halt == (3, "policy_rejections", "send")
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
    expected = Course(((2, "identical_failures"),), (3, "identical_failures", "shell"))
    assert course(answered) == expected
    for reader in threading.enumerate():  # of those pipes: a late one would warn in another test
        if "_enqueue_stream" in reader.name:
            reader.join(10)


@VERBS
async def test_a_command_that_was_stopped_has_timed_out(verb: str) -> None:
    """OH-002: a tool's artifact says that it was stopped; that may pass by itself."""

    @tool
    def work(call_id: Annotated[str, InjectedToolCallId], n: int = 0) -> Any:
        """Work."""
        artifact = {"timed_out": True, "exit_code": None}
        return ToolMessage("no end", tool_call_id=call_id, status="error", artifact=artifact)

    script = [calls("work", number, n=1) for number in range(9)]
    made = agent(chat("m", *script, "never"), ToolLoopGuardMiddleware(), tools=[work])
    answered = await run(verb, made)
    assert course(answered) == Course(halt=(8, "recoverable_identical", "work"))
