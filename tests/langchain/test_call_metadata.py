"""What a config says of a call reaches its record; what LangChain adds, and secrets, do not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest
from langchain_core.prompt_values import StringPromptValue
from langchain_core.runnables import RunnableLambda
from langgraph.checkpoint.memory import InMemorySaver

from honcho_fallback_langchain import FallbackChatModel, FallbackMiddleware
from tests.helpers.agents import agent, calls, run
from tests.helpers.chat_models import alive, chat, dead
from tests.helpers.chat_runs import ainvoke, astream, invoke, stream
from tests.helpers.observers import Listener

if TYPE_CHECKING:
    from collections.abc import Callable

RUN_ID = UUID(int=17)
MINE = {"workspace": "acme", "namespace": "team-a", "purpose": "summary", "wave": 12, "paid": True}
CONFIG: Any = {
    "metadata": {
        **MINE,
        "nothing": None,
        "langfuse_session_id": "s-1",
        "langfuse_tags": ["a"],
        "ls_provider": "x",
        "lc_versions": "1",
        "langgraph_step": 3,
        "checkpoint_ns": "model:1",
        "__private": "x",
        "fallback_attempt": 2,
        "is_fallback": True,
        "a list": [1],
        "a dict": {"b": 1},
        "openai_api_key": "short",
        "note": "sent with sk-proj-abcdefghijklmnop1234",  # gitleaks:allow
        "where": "https://me:hunter2@internal.example/x",
        "long": "word " * 100,
        7: "x",
    },
}
EXPECTED = {
    **MINE,
    "nothing": None,
    "langfuse_session_id": "s-1",
    "note": "sent with [redacted]",
    "where": "https://[redacted]@internal.example/x",
    "long": ("word " * 40)[:199] + "…",
}


async def by_prompt(model: Any, question: Any, config: Any = None) -> str:
    """Ask by a method that is given no config: what the chain around it runs in counts."""
    given = StringPromptValue(text=question)
    ask: Any = RunnableLambda(lambda _: model.generate_prompt([given]))
    return str(ask.invoke(question, config))


@pytest.mark.parametrize("ask", [invoke, ainvoke, stream, astream, by_prompt])
async def test_a_chat_model_s_call_says_what_its_config_says(ask: Callable[..., Any]) -> None:
    """The start and the record have the caller's plain values, under the caller's names.

    Bound or given per call, it is one config; what is configurable is for the models.
    """
    observer = Listener()
    model: Any = FallbackChatModel(dead(), alive(), observers=[observer])
    await ask(model, "hi", CONFIG)
    assert observer.record.metadata == EXPECTED
    assert observer.starts[0].metadata == EXPECTED

    bound = model.with_config(metadata={"workspace": "acme", "region": "eu"})
    configurable = {"region": "eu", "temperature": 0.5}
    metadata = {"purpose": "summary"}
    bound.invoke("hi", {"metadata": metadata, "configurable": configurable})
    assert observer.records[-1].metadata == {"workspace": "acme", "purpose": "summary"}


def test_a_run_that_has_a_name_or_an_id_is_named() -> None:
    """Those that the caller gave, not what LangChain makes up; the metadata's own come first."""
    observer = Listener()
    model = FallbackChatModel(dead(), alive(), observers=[observer])
    model.invoke("hi", {"run_id": RUN_ID, "run_name": "wave"})
    model.invoke("hi", {"run_id": RUN_ID, "metadata": {"run_id": "r-17"}})
    model.invoke("hi")
    named = {"run_id": str(RUN_ID), "run_name": "wave"}
    assert [one.metadata for one in observer.records] == [named, {"run_id": "r-17"}, None]


@pytest.mark.parametrize("verb", ["invoke", "ainvoke"])
@pytest.mark.parametrize("way", ["middleware", "chat model"])
async def test_an_agent_s_calls_say_what_the_agent_s_config_says(verb: str, way: str) -> None:
    """Each round has it, with the thread and the run; LangGraph's own entries stay out."""
    observer = Listener()
    model: Any = dead()
    backup = chat("backup", calls("look_up", 1, city="Oslo"), "done")
    beside = [FallbackMiddleware(backup, observers=[observer])]
    if way == "chat model":
        model, beside = FallbackChatModel(dead(), backup, observers=[observer]), []
    made = agent(model, *beside, checkpointer=InMemorySaver(), name="reporter")
    configurable = {"thread_id": "t-1", "openai_api_key": "short"}
    config = {"metadata": {**MINE}, "configurable": configurable, "run_id": RUN_ID}
    await run(verb, made, config=config)
    named = {"run_id": str(RUN_ID)} if way == "middleware" else {}
    expected = {**MINE, "thread_id": "t-1", **named}
    assert [one.metadata for one in observer.records] == [expected] * 2
