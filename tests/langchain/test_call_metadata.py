"""What a config says of a call reaches its record; what LangChain adds, and secrets, do not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest
from langchain_core.runnables import RunnableLambda
from langgraph.checkpoint.memory import InMemorySaver

from honcho_fallback.testing import StatusError
from honcho_fallback_langchain import FallbackChatModel, FallbackMiddleware, FallbackRunnable
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


async def generate(model: Any, question: Any, config: Any = None) -> str:
    """Ask by a method that is given no config: what the chain around it runs in counts."""
    ask = RunnableLambda(lambda text: model.generate_prompt([_prompt(text)]))
    return str(ask.invoke(question, config))


def _prompt(text: str) -> Any:
    from langchain_core.prompt_values import StringPromptValue  # noqa: PLC0415 # for one test

    return StringPromptValue(text=text)


VERBS: dict[str, Callable[..., Any]] = {
    verb.__name__: verb for verb in (invoke, ainvoke, stream, astream, generate)
}


def raising(_: str) -> str:
    raise StatusError(503)


def answering(_: str) -> str:
    return "hello"


@pytest.mark.parametrize("verb", VERBS)
async def test_a_chat_model_s_call_says_what_its_config_says(verb: str) -> None:
    """The start and the record have the caller's plain values, under the caller's names."""
    observer = Listener()
    model = FallbackChatModel(dead(), alive(), observers=[observer])
    await VERBS[verb](model, "hi", CONFIG)
    assert observer.record.metadata == EXPECTED
    assert observer.starts[0].metadata == EXPECTED


@pytest.mark.parametrize("verb", [verb for verb in VERBS if verb != "generate"])
async def test_a_runnable_s_call_says_so_too(verb: str) -> None:
    """Bound or given per call, it is one config; what is configurable is for the models."""
    observer = Listener()
    chain = FallbackRunnable(
        RunnableLambda(raising), RunnableLambda(answering), observers=[observer]
    ).with_config(metadata={"workspace": "acme", "region": "eu"})
    configurable = {"region": "eu", "temperature": 0.5}
    config = {"metadata": {"purpose": "summary"}, "configurable": configurable}
    await VERBS[verb](chain, "hi", config)
    assert observer.record.metadata == {"workspace": "acme", "purpose": "summary"}


def test_a_run_that_has_a_name_or_an_id_is_named() -> None:
    """Those that the caller gave, not what LangChain makes up; the metadata's own come first."""
    observer = Listener()
    model = FallbackChatModel(dead(), alive(), observers=[observer])
    model.invoke("hi", {"run_id": RUN_ID, "run_name": "wave"})
    model.invoke("hi", {"run_id": RUN_ID, "metadata": {"run_id": "r-17"}})
    model.invoke("hi")
    assert [one.metadata for one in observer.records] == [
        {"run_id": str(RUN_ID), "run_name": "wave"},
        {"run_id": "r-17"},
        None,
    ]


@pytest.mark.parametrize("verb", ["invoke", "ainvoke"])
@pytest.mark.parametrize("way", ["middleware", "chat model"])
async def test_an_agent_s_calls_say_what_the_agent_s_config_says(verb: str, way: str) -> None:
    """Each round has it, with the thread and the run; LangGraph's own entries stay out."""
    observer = Listener()
    backup = chat("backup", calls("look_up", 1, city="Oslo"), "done")
    model: Any
    beside: list[Any]
    if way == "middleware":
        model, beside = dead(), [FallbackMiddleware(backup, observers=[observer])]
    else:
        model, beside = FallbackChatModel(dead(), backup, observers=[observer]), []
    made = agent(model, *beside, checkpointer=InMemorySaver(), name="reporter")
    configurable = {"thread_id": "t-1", "openai_api_key": "short"}
    config = {"metadata": {**MINE}, "configurable": configurable, "run_id": RUN_ID}
    await run(verb, made, config=config)
    named = {"run_id": str(RUN_ID)} if way == "middleware" else {}
    expected = {**MINE, "thread_id": "t-1", **named}
    assert [one.metadata for one in observer.records] == [expected] * 2
