"""An observer that is set once for the process observes as one that is given to each policy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from langchain_core.runnables import RunnableLambda

from honcho_fallback import set_observers
from honcho_fallback.testing import StatusError
from honcho_fallback_langchain import FallbackChatModel, FallbackMiddleware, FallbackRunnable
from tests.helpers.agents import agent, run
from tests.helpers.chat_models import alive, dead
from tests.helpers.chat_runs import ainvoke, astream, invoke, stream
from tests.helpers.observers import Noting, every_way

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

VERBS = {verb.__name__: verb for verb in (invoke, ainvoke, stream, astream)}


def raising(_: str) -> str:
    raise StatusError(503)


def answering(_: str) -> str:
    return "hello"


def chat_model(options: dict[str, Any]) -> Any:
    return FallbackChatModel(dead(), alive(), reset="turn", **options)


def runnable(options: dict[str, Any]) -> Any:
    candidates = RunnableLambda(raising), RunnableLambda(answering)
    return FallbackRunnable(*candidates, reset="turn", **options)


async def in_a_turn(made: Any, verb: str, config: Any = None) -> None:
    with made.turn():
        await VERBS[verb](made, "hi", config)


class Agent:
    """Ask an agent with the middleware; each run is a turn."""

    def __init__(self, options: dict[str, Any]) -> None:
        self.made = agent(dead(), FallbackMiddleware(alive(), reset="turn", **options))


async def in_an_agent(made: Agent, verb: str, config: Any = None) -> None:
    await run("ainvoke" if verb.startswith("a") else "invoke", made.made, config=config)


ADAPTERS: dict[str, tuple[Callable[[dict[str, Any]], Any], Callable[..., Any]]] = {
    "chat model": (chat_model, in_a_turn),
    "runnable": (runnable, in_a_turn),
    "middleware": (Agent, in_an_agent),
}
EVERYWHERE = pytest.mark.parametrize("adapter", ADAPTERS)
EVENTS = ["CallContent", "CallStart", "Switch", "CallRecord", "Restore", "TurnEnd"]


@pytest.fixture(autouse=True)
def nobody_left() -> Iterator[None]:
    """Leave the process without observers."""
    yield
    set_observers(None)


@EVERYWHERE
@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("way", every_way)
async def test_it_sees_the_same_and_each_once(adapter: str, verb: str, way: str) -> None:
    """Given to the policy, set once before or after, or both: the events are the same."""
    make, ask = ADAPTERS[adapter]
    observer = Noting()
    await ask(every_way[way](observer, make), verb)
    assert observer.kinds == EVENTS
