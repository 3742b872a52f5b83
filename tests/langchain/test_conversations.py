"""`reset="session"`: a conversation stays with whom its prompt cache is warm, over many runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from langchain_core.messages import AIMessageChunk
from langgraph.checkpoint.memory import InMemorySaver

from honcho_fallback.testing import StatusError
from honcho_fallback_langchain import FallbackChatModel, FallbackMiddleware
from tests.helpers.agents import ROUNDS, agent, run
from tests.helpers.chat_models import alive, chat

if TYPE_CHECKING:
    from langchain_core.runnables import RunnableConfig


def uncached(rounds: Any) -> list[Any]:
    """Let each answer say that nothing was read from a cache."""
    counts = {"input_tokens": 5, "output_tokens": 1, "total_tokens": 6}
    usage: Any = counts | {"input_token_details": {"cache_read": 0}}
    parts = [one if isinstance(one, list) else [one] for one in rounds]
    return [[*one, AIMessageChunk(content="", usage_metadata=usage)] for one in parts]


def named(key: str, name: Any) -> RunnableConfig:
    return {"configurable": {key: name}}


@pytest.mark.parametrize("verb", ["invoke", "ainvoke"])
async def test_an_agents_thread_stays(verb: str) -> None:
    """Its next run begins with who answered the last one; another thread on the primary.

    Within a run nobody goes back, though nothing was cached; the next run does.
    """
    for script, names, asked in (
        (["from backup"], "ttu", (2, 2)),
        (uncached(ROUNDS), "tt", (2, 3)),
    ):
        primary, backup = chat("primary", StatusError(503), "again"), chat("backup", *script)
        middleware = FallbackMiddleware(backup, reset="session")
        made = agent(primary, middleware, checkpointer=InMemorySaver())
        for name in names:
            await run(verb, made, config=named("thread_id", name))
        assert (len(primary.asked), len(backup.asked)) == asked


@pytest.mark.parametrize("key", ["thread_id", "session_id"])
def test_a_chat_models_conversation_stays(key: str) -> None:
    """By LangGraph's name for it and by that of a history of messages; a number is a name, too."""
    primary, backup = chat("primary", StatusError(503), "again"), alive()
    model = FallbackChatModel(primary, backup).with_fallback_config(reset="session")
    for name in (7, 7, 8):
        model.invoke("hi", named(key, name))
    assert (len(primary.asked), len(backup.asked)) == (2, 2)
