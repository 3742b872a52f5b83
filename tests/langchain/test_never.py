"""Errors that never switch, and whose they are: a chat model's own client asks a model."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest
from langchain_core.messages import AIMessage
from langchain_core.runnables import RunnableLambda
from langgraph.errors import GraphBubbleUp, GraphInterrupt, ParentCommand
from langgraph.types import Command

from honcho_fallback import FailureKind, FallbackConfig
from honcho_fallback_langchain import FallbackChatModel, FallbackRunnable
from tests.helpers.chat_models import alive, candidate, chat, with_fallbacks
from tests.helpers.chat_runs import VERBS, Runs
from tests.helpers.own_rules import of_provider
from tests.helpers.pairwise import in_turn

pytestmark = pytest.mark.filterwarnings("ignore::langchain_core._api.LangChainBetaWarning")

SWITCHABLE = frozenset(FailureKind) - {FailureKind.CANCELLED}
ASKING = ["invoke", "ainvoke", "stream", "astream"]


INTERRUPTS: list[BaseException] = [
    GraphInterrupt(),
    GraphBubbleUp(),
    ParentCommand(Command(goto="x")),
]
SIGNALS: list[BaseException] = [KeyboardInterrupt(), SystemExit(1), asyncio.CancelledError()]


@in_turn(verb=ASKING, error=INTERRUPTS)
async def test_control_flow_never_switches(error: BaseException, verb: str) -> None:
    """Whatever the config says, a graph's interrupt comes out, and a stray StopIteration."""
    options: Any = {"fallback_on": SWITCHABLE, "rules": of_provider(Exception)}
    for raised in (error, StopIteration()) if verb == "invoke" else (error,):
        runs, backup = Runs(), alive()

        def raise_it(_asked: Any, raised: BaseException = raised) -> Any:
            raise raised

        model = FallbackRunnable(RunnableLambda(raise_it), backup, **options)
        config: Any = {"callbacks": [runs]}
        with pytest.raises(type(raised)):
            _ = model.invoke("hi", config) if verb == "invoke" else None
            await VERBS[verb](model, "hi", config)
        assert backup.asked == []
        assert runs.check().ends == ["error"]


@in_turn(verb=["invoke", "stream", "batch"], error=SIGNALS)
async def test_signals_never_switch(error: BaseException, verb: str) -> None:
    """Ctrl-C and an exit are for the program; the run is closed all the same."""
    runs = Runs()
    model: Any = FallbackChatModel(chat("primary", error), alive(), fallback_on=SWITCHABLE)
    config: Any = {"callbacks": [runs]}
    asked = getattr(model, verb)
    with pytest.raises(type(error)):
        [*asked(["hi"] if verb == "batch" else "hi", config)]
    assert candidate(model, 1).asked == []
    (root,) = runs.roots
    assert root.ends == ["error"]


@pytest.mark.parametrize("verb", ["ainvoke", "astream", "abatch"])
async def test_a_cancellation_of_something_below_is_no_cancelled_call(verb: str) -> None:
    """Nobody cancelled the task: the backup is asked, though LangChain takes it for an answer."""
    model: Any = FallbackChatModel(chat("primary", asyncio.CancelledError()), alive())
    assert await VERBS[verb](model, "hi") == "from backup"


PAGE = httpx.Request("GET", "https://gateway.example/run")


def down() -> httpx.ConnectError:
    return httpx.ConnectError("All connection attempts failed", request=PAGE)


@pytest.mark.parametrize("bound", [False, True])
@pytest.mark.parametrize("own", [None, FallbackConfig(timeout=5)])
def test_a_chat_models_own_client_is_the_models(bound: bool, own: Any) -> None:
    """In-house chat models talk to gateways of any address; a config for the call leaves it so."""
    primary: Any = chat("primary", down())
    model = with_fallbacks(primary.bind(stop=["."]) if bound else primary, [alive()])
    config: Any = {"configurable": {"fallback_config": own}} if own else {}
    assert isinstance(model.invoke("hi", config), AIMessage)


def test_a_chain_may_ask_another_service() -> None:
    """What a step of it asks over HTTP is looked at as anywhere else."""

    def look_up(_: Any) -> Any:
        raise down()

    asking, backup = RunnableLambda(look_up), alive()
    with pytest.raises(httpx.ConnectError):
        with_fallbacks(asking | chat("primary", "hi"), [backup]).invoke("hi")
    assert backup.asked == []
    assert with_fallbacks(asking, [backup], only_models=True).invoke("hi").text == "from backup"
