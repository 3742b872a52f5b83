"""The guard around an agent's tools: what the model is told, when a turn ends, what is kept.

The guard by itself stands in tests/tools.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import re
import threading
import tomllib
from collections.abc import Callable
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from uuid import uuid4

import pytest
from langchain.agents.middleware import (
    AgentMiddleware,
    HumanInTheLoopMiddleware,
    ShellToolMiddleware,
    ToolCallLimitMiddleware,
    hook_config,
)
from langchain.agents.structured_output import ToolStrategy
from langchain_core.messages import AIMessage, HumanMessage, RemoveMessage, ToolMessage
from langchain_core.tools import InjectedToolCallId, ToolException, tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command, interrupt

from honcho_fallback import FallbackConfigError
from honcho_fallback.testing import StatusError
from honcho_fallback.tools import (
    ToolBlockedError,
    ToolDeniedError,
    ToolLoopLimits,
    ToolLoopState,
    classify_tool_failure,
)
from honcho_fallback_langchain import (
    FallbackChatModel,
    FallbackMiddleware,
    ToolLoopGuardMiddleware,
)
from honcho_fallback_langchain._tool_guard import FAILURE, TERMINAL, TOOL_LOOP
from tests.helpers.agents import (
    VERBS,
    BeforeModel,
    Tool,
    agent,
    as_a_person,
    ask_user,
    at_once,
    calls,
    last,
    raising,
    run,
    stream,
    thread,
)
from tests.helpers.chat_models import Joke, chat, dead
from tests.helpers.observers import Listener

if TYPE_CHECKING:
    from langchain_core.messages import AIMessageChunk

SECRET = "sk-proj-abcdefghijklmnop1234"  # gitleaks:allow


def returning(answer: Any) -> Tool:
    """Make a tool that answers."""
    return Tool(lambda: answer)


def work(*numbers: int) -> list[Any]:
    """Make an answer for each number, which calls the tool with it."""
    return [calls("work", at, n=number) for at, number in enumerate(numbers)]


def results(answered: dict[str, Any]) -> list[ToolMessage]:
    """Return what the model was told of its calls."""
    return [one for one in answered["messages"] if isinstance(one, ToolMessage)]


def counts(made: Any) -> ToolLoopState:
    """Return what the checkpoint says has been counted."""
    kept = made.get_state(thread()).values.get(TOOL_LOOP, {})
    return ToolLoopState.from_dict(kept.get("counts"))


def nudges(answered: dict[str, Any]) -> list[str]:
    """Return what the guard told the model."""
    return [one.text for one in answered["messages"][1:] if isinstance(one, HumanMessage)]


def reason(answered: dict[str, Any]) -> Any:
    """Return why the guard ended the run, or None."""
    return last(answered).response_metadata.get("tool_loop", {}).get("reason")


@VERBS
async def test_an_exception_becomes_an_explained_error(verb: str) -> None:
    """The run goes on; the model reads what was said and what it means, and no secret.

    OH-002: whoever ran out of time did, whatever a server said before.
    """
    refused = ConnectionRefusedError(f"no, with api_key={SECRET}\nsecond line")
    late = TimeoutError("permission denied")
    late.status_code = 401  # type: ignore[attr-defined] # as an HTTP client's own class has
    found: list[ToolMessage] = []
    for error in (refused, late):
        script = chat("m", *work(1), "ok")
        made = agent(script, ToolLoopGuardMiddleware(), tools=[raising(error).made])
        answered = await run(verb, made)
        assert last(answered).text == "ok"
        found += results(answered)
    result, timeout = found
    assert (result.status, result.name, result.tool_call_id) == ("error", "work", "call_0")
    expected = classify_tool_failure(ConnectionRefusedError())
    assert result.additional_kwargs == {FAILURE: expected.to_dict()}
    assert expected.kind == "service_unavailable"
    assert result.text == (
        "Error: ConnectionRefusedError: no, with api_key=[redacted]\nsecond line\n"
        + expected.cause
    )
    assert timeout.additional_kwargs[FAILURE]["kind"] == "timeout"


@VERBS
async def test_whatever_form_a_failure_has_it_is_explained(verb: str) -> None:
    """A message, in a Command or a list too, wrong arguments, an unknown tool, a ToolException.

    The tool's message keeps its words and its own keys; the tool's object is not touched.
    """
    given = ToolMessage(
        "HTTP 401", tool_call_id="call_1", status="error", additional_kwargs={"own": 1}
    )

    @tool
    def odd(call_id: Annotated[str, InjectedToolCallId], n: int) -> Any:
        """Fail in many ways."""
        failed = ToolMessage("connection refused", tool_call_id=call_id, status="error")
        command: Command[Any] = Command(update={"messages": [failed]})
        if n == 4:
            raise ToolException("bad gateway")
        return {1: given, 2: command, 3: [command]}[n]

    odd.handle_tool_error = True
    script = [*(calls("odd", n, n=n) for n in (1, 2, 3, 4)), calls("odd", 5, n="x")]
    made = agent(
        chat("m", *script, calls("nobody", 6), "ok"),
        ToolLoopGuardMiddleware(ToolLoopLimits(varied_failures=9)),
        tools=[odd],
    )
    found = results(await run(verb, made))
    kinds = [one.additional_kwargs[FAILURE]["kind"] for one in found]
    assert kinds[:3] == ["bad_credentials", "service_unavailable", "service_unavailable"]
    assert [one.status for one in found] == ["error"] * 6
    assert (found[0].text, found[3].text) == ("HTTP 401", "bad gateway")
    own = {"own": 1, FAILURE: classify_tool_failure("HTTP 401").to_dict()}
    assert (found[0].additional_kwargs, given.additional_kwargs) == (own, {"own": 1})


@VERBS
async def test_the_same_failure_is_nudged_and_then_halted(verb: str) -> None:
    """At two the model is told, at three the person is, and the model is not asked again.

    The guard adds no node; what it says is streamed once, with what the model says.
    """
    failing = raising(ValueError("odd"))
    model = chat("m", *work(1, 1, 1, 1), "never")
    made = agent(model, ToolLoopGuardMiddleware(), tools=[failing.made])
    answered = await run(verb, made)
    assert (failing.count, len(model.asked)) == (3, 3)
    (nudge,) = nudges(answered)
    assert nudge.startswith("work has failed 2 times in the same way")
    assert model.asked[2].messages[-1].text == nudge
    reason = "I stopped: work failed 3 times in the same way (unknown failure)."
    assert last(answered).text.startswith(reason)
    assert last(answered).response_metadata == {
        "tool_loop": {"action": "halt", "reason": "identical_failures", "tool": "work"}
    }

    assert set(made.get_graph().nodes) == set(agent(chat("m")).get_graph().nodes)
    made = agent(chat("m", *work(1, 1, 1)), ToolLoopGuardMiddleware(), tools=[failing.made])
    parts = [message for message, _ in await stream(verb, made, "messages")]
    texts = [one.text for one in parts if "tool_loop" in one.response_metadata]
    assert [text.split(maxsplit=2)[:2] for text in texts] == [["work", "has"], ["I", "stopped:"]]


@VERBS
@pytest.mark.parametrize(
    ("status", "reason_"), [(401, "provider_config"), (402, "budget_exhausted")]
)
async def test_a_delegated_model_that_is_gone_ends_the_run_at_once(
    verb: str, status: int, reason_: str
) -> None:
    """Nobody whom the tool's own policy asks can answer, so no second try; all are asked once."""
    inner = [dead("a", status), dead("b", status)]
    delegated = Tool(lambda: FallbackChatModel(*inner, max_attempts=2).invoke("hi").text)
    model = chat("m", *work(1, 1), "never")
    backup, told = chat("backup"), Listener()
    fallback = FallbackMiddleware(backup, observers=[told])
    answered = await run(
        verb, agent(model, fallback, ToolLoopGuardMiddleware(), tools=[delegated.made])
    )
    assert (reason(answered), delegated.count) == (reason_, 1)
    assert results(answered)[0].additional_kwargs[TERMINAL] == reason_
    assert last(answered).text.startswith("I stopped: the model that work hands its work to")
    assert [len(one.asked) for one in (*inner, backup)] == [1, 1, 0]
    assert told.switches == []


@VERBS
@pytest.mark.parametrize("outermost", [True, False])
@pytest.mark.parametrize("reset", ["iteration", "turn"])
async def test_it_stands_on_either_side_of_the_fallbacks(
    verb: str, outermost: bool, reset: Any
) -> None:
    """The backup goes on where the primary fails; its tool's failures end the run all the same."""
    failing = raising(ValueError("odd"))
    primary, backup, told = dead(), chat("backup", *work(1, 1, 1), "never"), Listener()
    pair = [ToolLoopGuardMiddleware(), FallbackMiddleware(backup, reset=reset, observers=[told])]
    pair = pair if outermost else pair[::-1]
    answered = await run(verb, agent(primary, *pair, tools=[failing.made]))
    assert reason(answered) == "identical_failures"
    assert (failing.count, len(backup.asked)) == (3, 3)
    # Inside, the end of the run is an attempt's answer, though nobody was asked for it.
    assert len(told.records) == (3 if outermost else 4)
    assert len(primary.asked) == (1 if reset == "turn" else 3)


@VERBS
async def test_the_iteration_cap_ends_the_run(verb: str) -> None:
    """OH-023: the cap counts rounds of calls; every call has an answer, so providers take it."""
    busy = returning("fine")
    model = chat(
        "m",
        *work(1, 2),
        at_once(("both_0", "work", {"n": 1}), ("both_1", "work", {"n": 1})),
        "fine again",
    )
    guard = ToolLoopGuardMiddleware(ToolLoopLimits(max_iterations=2))
    made = agent(model, guard, tools=[busy.made], checkpointer=InMemorySaver())
    answered = await run(verb, made, config=thread())
    assert (busy.count, len(model.asked), reason(answered)) == (2, 3, "max_iterations")
    assert last(answered).text.startswith("I stopped after 2 rounds of tool calls")
    unmade = results(answered)[2:]
    assert [one.tool_call_id for one in unmade] == ["both_0", "both_1"]
    for one in unmade:
        assert (one.status, one.text) == ("error", "This call was not made: the run was stopped.")
        assert FAILURE in one.additional_kwargs
    assert last(await run(verb, made, config=thread())).text == "fine again"


@VERBS
async def test_an_answer_in_a_schema_is_not_capped(verb: str) -> None:
    """The last call may be the answer itself; tries that do not fit the schema are rounds."""
    model = chat("m", *work(1), calls("Joke", 2, setup="Why?"))
    guard = ToolLoopGuardMiddleware(ToolLoopLimits(max_iterations=1))
    made = agent(model, guard, tools=[returning("fine").made], response_format=ToolStrategy(Joke))
    answered = await run(verb, made)
    assert answered["structured_response"] == Joke(setup="Why?")
    assert reason(answered) is None

    model = chat("m", *[calls("Joke", n, shade=n) for n in range(9)])
    answered = await run(verb, agent(model, guard, response_format=ToolStrategy(Joke)))
    assert (reason(answered), len(model.asked)) == ("max_iterations", 2)
    assert [one.tool_call_id for one in results(answered)] == ["call_0", "call_1"]


class Instead(AgentMiddleware[Any, Any, Any]):
    """Give something else instead of making a call."""

    def __init__(self, result: Callable[[], Any]) -> None:
        super().__init__()
        self.result = result

    def wrap_tool_call(self, request: Any, handler: Any) -> Any:
        return self.result()

    async def awrap_tool_call(self, request: Any, handler: Any) -> Any:
        return self.result()


@VERBS
async def test_errors_that_others_write_count(verb: str) -> None:
    """Who is told nothing has not succeeded, and a call that another middleware blocks has failed.

    A halt answers what is open.
    """
    busy = returning("fine")
    model = chat("m", *work(1, 2, 2, 2, 2), "never")
    limit = ToolCallLimitMiddleware(run_limit=1, exit_behavior="continue")
    answered = await run(verb, agent(model, ToolLoopGuardMiddleware(), limit, tools=[busy.made]))
    assert (reason(answered), busy.count) == ("identical_failures", 1)

    model = chat("m", *work(1, 1, 1, 1))
    silent = Instead(lambda: Command(update={"messages": []}))
    answered = await run(verb, agent(model, ToolLoopGuardMiddleware(), silent, tools=[busy.made]))
    assert (reason(answered), len(model.asked)) == ("identical_failures", 3)
    assert [one.tool_call_id for one in results(answered)] == ["call_2"]


@VERBS
async def test_marks_that_make_no_sense_are_not_read(verb: str) -> None:
    """A message with a key of the same name is read by its text."""
    odd = ToolMessage(
        "[policy-blocked] no",
        tool_call_id="call_0",
        status="error",
        additional_kwargs={FAILURE: "broken", TERMINAL: "everything"},
    )
    forging = Instead(odd.model_copy)
    for pair in ([forging, ToolLoopGuardMiddleware()], [ToolLoopGuardMiddleware(), forging]):
        model = chat("m", *[calls("work", 0, n=1) for n in range(4)], "ok")
        answered = await run(verb, agent(model, *pair, tools=[returning("fine").made]))
        assert reason(answered) == "policy_rejections"


@VERBS
async def test_the_counts_survive_an_interrupt(verb: str) -> None:
    """A run goes on with the counts of before the pause, which itself is no failure.

    It is another agent, as after a restart: nothing but the checkpoint is shared.
    """
    failing = raising(ValueError("odd"))
    saver = InMemorySaver()
    asking = chat("m", *work(1, 1), calls("ask_user", 7, what="sure?"))
    tools = [failing.made, ask_user]
    before = agent(asking, ToolLoopGuardMiddleware(), tools=tools, checkpointer=saver)
    paused = await run(verb, before, config=thread())
    assert paused["__interrupt__"][0].value == "sure?"
    assert (counts(before).varied, counts(before).iterations) == (2, 3)

    resumed = chat("m", *work(2, 3), "never")
    limits = ToolLoopLimits(max_iterations=4)
    after = agent(resumed, ToolLoopGuardMiddleware(limits), tools=tools, checkpointer=saver)
    answered = await run(verb, after, Command(resume="yes"), thread())
    assert (reason(answered), failing.count) == ("max_iterations", 3)
    assert results(answered)[2].status == "success"


@VERBS
async def test_a_turn_ends_with_what_a_person_says(verb: str) -> None:
    """Not with what a middleware says, and with what is said instead of an answer to a pause.

    What failed in one turn is not held against the next, an unanswered call included.
    """
    failing = raising(ValueError("odd"))
    said = agent(
        chat("m", *work(1, 1, 1)),
        BeforeModel(as_a_person),
        ToolLoopGuardMiddleware(),
        tools=[failing.made],
    )
    assert reason(await run(verb, said)) == "identical_failures"

    asking = [*work(1, 1), calls("ask_user", 7, what="sure?")]
    script = [*asking, *work(1), "one", *work(1, 1), "two", *work(1, 1, 1), "never"]
    tools = [failing.made, ask_user]
    saver = InMemorySaver()
    made = agent(chat("m", *script), ToolLoopGuardMiddleware(), tools=tools, checkpointer=saver)
    assert "__interrupt__" in await run(verb, made, config=thread())
    assert counts(made).iterations == 3
    answered = ToolMessage("never mind", tool_call_id="call_7")
    given = {"messages": [answered, HumanMessage("do something else")]}
    assert last(await run(verb, made, given, thread())).text == "one"
    assert counts(made).iterations == 1
    assert last(await run(verb, made, config=thread())).text == "two"
    assert reason(await run(verb, made, config=thread())) == "identical_failures"


class TakingBack(AgentMiddleware[Any, Any, Any]):
    """Take an answer back, and have the model asked again, until it is the right one."""

    @hook_config(can_jump_to=["model"])
    def after_model(self, state: Any, runtime: Any) -> Any:
        answer = state["messages"][-1]
        if answer.text != "wrong":
            return None
        return {"messages": [RemoveMessage(answer.id)], "jump_to": "model"}


@VERBS
async def test_a_round_is_counted_once(verb: str) -> None:
    """However often the model is asked after it; what an earlier turn ended with is not."""
    made = agent(
        chat("m", *work(1), "wrong", "wrong", "ok", "ok"),
        TakingBack(),
        ToolLoopGuardMiddleware(),
        tools=[raising(ValueError("odd")).made],
        checkpointer=InMemorySaver(),
    )
    answered = await run(verb, made, config=thread())
    assert (last(answered).text, nudges(answered)) == ("ok", [])
    assert counts(made).varied == 1

    earlier = AIMessage("", tool_calls=[{"name": "work", "args": {}, "id": "old"}])
    failed = ToolMessage("odd", tool_call_id="old", status="error")
    given = {"messages": [("user", "a"), earlier, failed, ("user", "b")]}
    await run(verb, made, given, thread())
    assert counts(made) == ToolLoopState()


@VERBS
@pytest.mark.parametrize("error", [asyncio.CancelledError(), concurrent.futures.CancelledError()])
async def test_a_cancellation_is_no_failure(verb: str, error: BaseException) -> None:
    """It reaches the caller; the model hears nothing of it."""
    stopped = raising(error)
    model = chat("m", *work(1), "never")
    made = agent(model, ToolLoopGuardMiddleware(), tools=[stopped.made])
    with pytest.raises(BaseException) as caught:  # langgraph may rename it
        await run(verb, made)
    assert "Cancelled" in type(caught.value).__name__
    assert len(model.asked) == 1


async def test_an_answer_that_does_not_fit_an_interrupt_is_no_failure() -> None:
    """The person can answer again; the model is not told of it."""

    @tool
    def ask_number() -> str:
        """Ask for a number."""
        return str(interrupt("how many?", response_schema=Joke))

    made = agent(
        chat("m", calls("ask_number", 1), "ok"),
        ToolLoopGuardMiddleware(),
        tools=[ask_number],
        checkpointer=InMemorySaver(),
    )
    await run("invoke", made, config=thread())
    with pytest.raises(ValueError, match="Joke"):
        await run("invoke", made, Command(resume={"shade": 1}), thread())
    answered = await run("invoke", made, Command(resume={"setup": "Why?"}), thread())
    assert results(answered)[0].status == "success"


def test_wrong_arguments_are_refused() -> None:
    """At once, by name, and with what to do."""
    wrong: dict[str, Any] = {"limits": {"varied_failures": 3}, "exempt_tools": "work"}
    for field, given in wrong.items():
        with pytest.raises(FallbackConfigError, match=field):
            ToolLoopGuardMiddleware(**{field: given})


@VERBS
async def test_tool_errors_never_ask_the_fallback(verb: str) -> None:
    """HOM-044, G-18: a failing tool asks no other model; a switch inside one is its own."""
    failing, told = raising(StatusError(503)), Listener()
    inner = [dead("a"), chat("b", "inner answer")]
    delegated = Tool(lambda: FallbackChatModel(*inner).invoke("hi").text)
    for one, expected in ((failing, "error"), (delegated, "success")):
        model, backup = chat("m", *work(1, 2), "ok"), chat("backup")
        fallback = FallbackMiddleware(backup, observers=[told])
        made = agent(model, fallback, ToolLoopGuardMiddleware(), tools=[one.made])
        answered = await run(verb, made)
        assert [one.status for one in results(answered)] == [expected] * 2
        assert (results(answered)[0].text == "inner answer") == (one is delegated)
        assert (last(answered).text, len(model.asked), len(backup.asked)) == ("ok", 3, 0)
    assert told.switches == []


# Courses of an agent, written by their rounds. A call is a tool with its argument; calls of one
# round are joined by a plus; a mark behind a call says what comes of it, if not a success.

# What comes of a call: an error to raise, or what a command printed before it failed.
MARKS: dict[str, Any] = {
    "!": ValueError("no such row"),  # will not pass
    "~": ConnectionRefusedError("refused"),  # may pass by itself
    "x": ToolDeniedError("no"),  # by a person
    "#": ToolBlockedError("no"),  # by a policy
    "1": ("E  timed out", {"exit_code": 1}),
    "2": ("error: blocked by policy", {"exit_code": 2}),
    "uncoded": ("E  connection refused", None),  # nobody says how it exited
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

    Of the limit that ended the run, after the last of them, the tools are said as well.
    """
    said: list[tuple[int, str]] = []
    rounds = 0
    for message in answered["messages"][1:]:
        if isinstance(message, HumanMessage):
            said.append((rounds, message.response_metadata["tool_loop"]["reason"]))
        rounds += bool(getattr(message, "tool_calls", ()))
    why, by = last(answered).response_metadata.get("tool_loop"), ""
    if why is None:
        assert last(answered).text == "done"
    else:
        assert why["action"] == "halt"
        assert all(name in last(answered).text for name in why["tool"].split(", "))
        said.append((rounds, why["reason"]))
        by = f" of {why['tool']}"
    by_limit = groupby(said, lambda one: one[1])
    told = [f"{', '.join(str(at) for at, _ in some)} {limit}" for limit, some in by_limit]
    return "; ".join(told) + by


def written_out(rounds: str) -> str:
    """Write out the rounds that come several times, as courses.toml says."""

    def each(some: re.Match[str]) -> str:
        return " ".join(some[2].replace("{}", str(number)) for number in range(int(some[1])))

    return re.sub(r"(\d+)\((.*?)\)", each, rounds)


# The rounds of each course, and what the model is told.
COURSES: dict[str, Any] = tomllib.loads(
    Path(__file__).with_name("courses.toml").read_text("utf-8")
)
SCENARIOS: dict[str, tuple[str, str]] = {
    name: (written_out(rounds), expected)
    for expected, some in {"": COURSES["quiet"], **COURSES["told"]}.items()
    for name, rounds in some.items()
}


@pytest.mark.parametrize("name", SCENARIOS)
async def test_a_course_by_an_agent(name: str) -> None:
    """OH-002, OH-016 to OH-022: when the model is told, when the run ends, why, by which tool."""
    rounds, expected = SCENARIOS[name]
    verb = ("invoke", "ainvoke")[list(SCENARIOS).index(name) % 2]
    assert await by_an_agent(verb, rounds) == expected


@pytest.mark.parametrize(
    ("limits", "rounds", "expected"),
    [
        ({"identical_batches": 2}, "read1 list2 " * 2, "4 repeated_cycle of list"),
        ({"identical_batches": 4}, "read1 list2 " * 4, "4, 8 repeated_cycle of list"),
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
    assert await by_an_agent("ainvoke", rounds, **options) == expected


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
    return checks.count, reason(answered) or last(answered).text


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
    for given, expected in (({"unattended": True}, 4), (configurable, polls)):
        counted = await polled(verb, str, 9, guard, {"configurable": given})
        assert counted == (expected, "max_iterations")
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
    assert course(answered) == "2, 3 identical_failures of shell"
    for reader in threading.enumerate():  # of those pipes: a late one would warn in another test
        if "_enqueue_stream" in reader.name:
            reader.join(10)
