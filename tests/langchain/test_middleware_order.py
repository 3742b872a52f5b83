"""LangChain's own middlewares around and inside ours: the order, and what follows from it.

| beside ours | outside of it | inside of it |
|---|---|---|
| ModelRetryMiddleware | tries the whole chain again | tries each model; its error switches |
| one that picks the model at run time | picks the primary | stands for the agent's own alone |
| ModelFallbackMiddleware | asks its models when our chain is exhausted | asks its models first |
| LLMToolSelectorMiddleware | selects once, with no fallback | selects in each attempt |
| ModelCallLimit, ToolCallLimit | count rounds, not attempts | the same |
| SummarizationMiddleware | its own call is not ours | the same |
| HumanInTheLoopMiddleware | a pause is no failure, and the turn goes on after it | the same |
| ToolRetryMiddleware | a tool's failure is no model's | the same |
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from langchain.agents.middleware import (
    HumanInTheLoopMiddleware,
    LLMToolSelectorMiddleware,
    ModelCallLimitMiddleware,
    ModelFallbackMiddleware,
    ModelRetryMiddleware,
    SummarizationMiddleware,
    ToolCallLimitMiddleware,
)
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command

from honcho_fallback import FallbackConfig, FallbackExhausted
from honcho_fallback.testing import StatusError
from honcho_fallback_langchain import (
    FallbackChatModel,
    FallbackMiddleware,
    ToolLoopGuardMiddleware,
)
from tests.helpers.agents import ROUNDS, VERBS, Around, agent, calls, last, run, thread
from tests.helpers.chat_models import alive, chat, dead, look_up
from tests.helpers.observers import Listener

if TYPE_CHECKING:
    from collections.abc import Sequence

PAGE = Path(__file__).resolve().parents[2] / "docs" / "langchain.md"
OUTSIDE = pytest.mark.parametrize("outside", [True, False])


def ordered(ours: Any, *theirs: Any, outside: bool) -> Sequence[Any]:
    """Put others before ours, which is around it, or after."""
    return (*theirs, ours) if outside else (ours, *theirs)


@VERBS
@pytest.mark.parametrize("on_failure", ["continue", "error"])
async def test_model_retry_inside(verb: str, on_failure: Any) -> None:
    """It must raise its error: as a message, its default, it is an answer."""
    primary, backup = dead(), alive()
    retry = ModelRetryMiddleware(max_retries=1, initial_delay=0, on_failure=on_failure)
    answered = await run(verb, agent(primary, FallbackMiddleware(backup), retry))
    text = last(answered).text
    if on_failure == "error":
        assert (text, len(primary.asked), len(backup.asked)) == ("from backup", 2, 1)
    else:
        assert text.startswith("Model call failed after 2 attempts")
        assert (len(primary.asked), len(backup.asked)) == (2, 0)


@VERBS
@pytest.mark.parametrize("on_failure", ["continue", "error"])
async def test_model_retry_outside(verb: str, on_failure: Any) -> None:
    """It asks the whole chain again, and only where all of it has failed."""
    primary, backup = dead(), dead("backup", 401)
    retry = ModelRetryMiddleware(max_retries=1, initial_delay=0, on_failure=on_failure)
    made = agent(primary, retry, FallbackMiddleware(backup))
    if on_failure == "error":
        with pytest.raises(FallbackExhausted):
            await run(verb, made)
    else:
        assert last(await run(verb, made)).text.startswith("Model call failed after 2 attempts")
    assert (len(primary.asked), len(backup.asked)) == (2, 2)

    primary = dead()
    answered = await run(verb, agent(primary, retry, FallbackMiddleware(alive())))
    assert (last(answered).text, len(primary.asked)) == ("from backup", 1)


@VERBS
async def test_model_fallback_inside_and_outside(verb: str) -> None:
    """LangChain's own takes part as any other middleware; each has its own models."""
    primary, theirs, ours = dead(), alive("theirs"), alive("ours")
    inside = agent(primary, FallbackMiddleware(ours), ModelFallbackMiddleware(theirs))
    assert last(await run(verb, inside)).text == "from theirs"
    assert ours.asked == []

    outside = agent(primary, ModelFallbackMiddleware(theirs), FallbackMiddleware(ours))
    assert last(await run(verb, outside)).text == "from ours"
    assert len(theirs.asked) == 1


@VERBS
@OUTSIDE
async def test_a_model_that_is_picked_at_run_time(verb: str, outside: bool) -> None:
    """It is asked once in place of the agent's own, and then the fallbacks are.

    Picked outside it is the primary, by its name; inside nobody knows of it.
    """
    own, picked, backup = alive("own"), dead("picked"), alive("backup")
    listener = Listener()
    fallback = FallbackMiddleware(backup, observers=[listener])
    # As LangChain's page on dynamic models does.
    picking = Around(lambda request: request.override(model=picked))
    stack = ordered(fallback, picking, outside=outside)
    assert last(await run(verb, agent(own, *stack))).text == "from backup"
    assert [len(one.asked) for one in (own, picked, backup)] == [0, 1, 1]
    assert listener.record.attempts[0].target == f"scripted/{'picked' if outside else 'own'}"


@VERBS
@OUTSIDE
async def test_summarization(verb: str, outside: bool) -> None:
    """Its own call is none of ours, and has its own fallback; both models get what is left."""
    heard, primary, backup = Listener(), dead(), alive()
    writer = FallbackChatModel(dead("writer"), alive("second writer", "in short"))
    shorten = SummarizationMiddleware(writer, trigger=("messages", 3), keep=("messages", 1))
    ours = FallbackMiddleware(backup, observers=[heard])
    made = agent(primary, *ordered(ours, shorten, outside=outside))
    history = [("user", "a"), ("assistant", "b"), ("user", "c"), ("user", "d")]
    assert last(await run(verb, made, {"messages": history})).text == "from backup"
    assert len(heard.records) == 1
    assert [one.text.split()[-1] for one in backup.asked[0].messages] == ["short", "d"]
    assert backup.asked[0].messages == primary.asked[0].messages


@VERBS
@OUTSIDE
@pytest.mark.parametrize(("reset", "asked"), [("iteration", 2), ("turn", 1)])
async def test_a_person_in_the_loop(verb: str, outside: bool, reset: Any, asked: int) -> None:
    """A pause is no failure; with turns the run that is resumed stays where the switch led."""
    heard, primary, backup = Listener(), dead(), chat("backup", *ROUNDS[1:])
    ours = FallbackMiddleware(backup, reset=reset, observers=[heard])
    guard = ToolLoopGuardMiddleware()
    person = HumanInTheLoopMiddleware({"look_up": True})
    stack = ordered(ours, person, outside=outside)
    made = agent(primary, guard, *stack, checkpointer=InMemorySaver())
    assert "__interrupt__" in await run(verb, made, config=thread())
    approval: Command[Any] = Command(resume={"decisions": [{"type": "approve"}]})
    answered = await run(verb, made, approval, thread())
    assert [one.type for one in answered["messages"]] == ["human", "ai", "tool", "ai"]
    assert (last(answered).text, len(primary.asked)) == ("done", asked)
    assert {record.outcome for record in heard.records} == {"success"}


@VERBS
@OUTSIDE
@pytest.mark.parametrize(
    "limit",
    [
        ModelCallLimitMiddleware(run_limit=2),
        ToolCallLimitMiddleware(run_limit=1, exit_behavior="end"),
    ],
)
async def test_limits_count_rounds(verb: str, outside: bool, limit: Any) -> None:
    """An attempt is no call of the model's: two rounds are two, however many were asked."""
    primary, backup = dead(), chat("backup", *ROUNDS)
    stack = ordered(FallbackMiddleware(backup), limit, outside=outside)
    answered = await run(verb, agent(primary, *stack))
    assert "limit" in last(answered).text
    assert (len(primary.asked), len(backup.asked)) == (2, 2)


def choosing(*names: str) -> Any:
    """Make the selector's answer."""
    return calls("ToolSelectionResponse", 1, tools=[*names])


@VERBS
@OUTSIDE
async def test_tool_selection(verb: str, outside: bool) -> None:
    """By a model of its own it is made once, or in each attempt; each model gets its tools."""

    @tool
    def unused() -> str:
        """Do nothing."""
        return ""

    selector, primary, backup = chat("selector", choosing("look_up")), dead(), alive()
    select = LLMToolSelectorMiddleware(model=selector)
    stack = ordered(FallbackMiddleware(backup), select, outside=outside)
    await run(verb, agent(primary, *stack, tools=[look_up, unused]))
    assert len(selector.asked) == (1 if outside else 2)
    for model in (primary, backup):
        (request,) = model.asked
        assert [one["function"]["name"] for one in request.kwargs["tools"]] == ["look_up"]


@VERBS
async def test_tool_selection_by_the_model_that_is_asked(verb: str) -> None:
    """Inside, who answers selects as well; outside, the agent's own model does, or nobody."""
    primary, backup = dead(), chat("backup", choosing("look_up"), "answer")
    select = LLMToolSelectorMiddleware()
    inside = agent(primary, FallbackMiddleware(backup), select)
    assert last(await run(verb, inside)).text == "answer"
    assert (len(primary.asked), len(backup.asked)) == (1, 2)

    with pytest.raises(StatusError):
        await run(verb, agent(dead(), select, FallbackMiddleware(alive())))


@pytest.mark.parametrize(
    ("options", "requests"),
    [
        ({}, 7),
        ({"reset": "turn"}, 3),
        ({"fallback_config": FallbackConfig.resilient()}, 3),
    ],
)
def test_a_supervisor_of_two(options: dict[str, Any], requests: int) -> None:
    """Once per model call by default, once per agent and run with `reset="turn"`, per the page."""
    primaries: list[Any] = []

    def made(*tools: Any) -> Any:
        primaries.append(dead())
        rounds = [calls(one.name, at) for at, one in enumerate(tools)]
        backup = chat("backup", *rounds, "done")
        return agent(primaries[-1], FallbackMiddleware(backup, **options), tools=tools)

    def worker(name: str) -> Any:
        asked = made(look_up)

        @tool(name)
        def ask() -> str:
            """Ask an agent."""
            return str(last(asked.invoke({"messages": [("user", "go")]})).text)

        return ask

    supervisor = made(worker("first"), worker("second"))
    assert last(supervisor.invoke({"messages": [("user", "go")]})).text == "done"
    assert sum(len(primary.asked) for primary in primaries) == requests
    first_screen = PAGE.read_text("utf-8").partition("On this page:")[0]
    assert "sends a dead primary 3 requests, not 7" in first_screen
