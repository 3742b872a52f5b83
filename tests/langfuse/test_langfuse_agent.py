"""An agent's run in Langfuse: under one observation of ours, or in the tree of Langfuse's own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from honcho_fallback import set_observers
from honcho_fallback_langfuse import LangfuseCallbackHandler

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.helpers.langfuse_memory import Memory

pytest.importorskip("langchain")

from langchain_core.tools import tool
from langfuse.langchain import CallbackHandler

from honcho_fallback_langchain import FallbackMiddleware
from tests.helpers.agents import agent, calls, last, run
from tests.helpers.chat_models import chat, dead, look_up

VERBS = pytest.mark.parametrize("verb", ["invoke", "ainvoke"])


@tool
def add(a: int, b: int) -> int:
    """Add."""
    return a + b


def made() -> Any:
    """Return an agent with two tools and three rounds, whose primary is dead."""
    rounds = [calls("look_up", 1, city="Oslo"), calls("add", 2, a=1, b=2), "done"]
    return agent(dead(), FallbackMiddleware(chat("backup", *rounds)), tools=(look_up, add))


@pytest.fixture
def handler(memory: Memory) -> Iterator[LangfuseCallbackHandler]:
    """Give one handler to the whole process."""
    handler = LangfuseCallbackHandler(memory.client)
    set_observers([handler])
    yield handler
    set_observers(None)


@VERBS
async def test_the_calls_of_a_run_lie_under_one_agent(
    verb: str, handler: LangfuseCallbackHandler, memory: Memory
) -> None:
    """Each run is one trace: an agent that ends with it, and its three generations."""
    agent = made()
    assert last(await run(verb, agent)).text == "done"
    spans = memory.stored()
    (root,) = [span for span in spans if span.type == "AGENT"]
    generations = [span for span in spans if span.type == "GENERATION"]
    assert len(spans) == 4
    assert {(one.trace_id, one.parent_id) for one in generations} == {(root.trace_id, root.id)}
    assert all(one.metadata["is_fallback"] for one in generations)
    assert (root.parent_id, root.level) == (None, "DEFAULT")
    assert root.metadata["outcome"] == "completed"
    assert root.start <= min(one.start for one in generations)
    assert root.end >= max(one.end for one in generations)
    assert not handler._turns
    assert not handler._calls


@VERBS
async def test_langfuses_own_handler_keeps_its_tree(
    verb: str, handler: LangfuseCallbackHandler, memory: Memory
) -> None:
    """Its runs are the parents of the generations, and no agent of ours stands between them."""
    own = CallbackHandler(public_key="pk-memory")
    config = {"callbacks": [own], "metadata": {"workspace": "acme"}}
    assert last(await run(verb, made(), config=config)).text == "done"
    spans = memory.stored()
    by_id = {span.id: span for span in spans}
    generations = [span for span in spans if span.type == "GENERATION"]
    assert len(generations) == 3
    assert [by_id[one.parent_id or ""].name for one in generations] == ["model"] * 3
    assert len({span.trace_id for span in spans}) == 1
    assert {span.name for span in spans if span.type == "TOOL"} == {"look_up", "add"}
    assert not [span for span in spans if "turn_id" in span.metadata]
    assert {one.metadata["workspace"] for one in generations} == {"acme"}
    assert not handler._turns
    assert not handler._calls
