"""Who is asked at all: one request to a dead primary, and errors that never switch."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from langchain_core.runnables import RunnableLambda
from langgraph.errors import GraphBubbleUp, GraphInterrupt, ParentCommand
from langgraph.types import Command

from honcho_fallback import FailureKind
from honcho_fallback.testing import StatusError
from honcho_fallback_langchain import FallbackChatModel, FallbackRunnable
from tests.helpers.chat_models import alive, candidate, chat, model_at, serve
from tests.helpers.chat_runs import SILENT_VERBS, VERBS, Runs
from tests.helpers.own_rules import of_provider
from tests.helpers.pairwise import in_turn

if TYPE_CHECKING:
    from tests.helpers.provider import ProviderServer

pytestmark = pytest.mark.filterwarnings("ignore::langchain_core._api.LangChainBetaWarning")

SWITCHABLE = frozenset(FailureKind) - {FailureKind.CANCELLED}
ASKING = ["invoke", "ainvoke", "stream", "astream"]


class Fatal(Exception):  # noqa: N818 # a name that says nothing
    """An exception of the program's own."""


INTERRUPTS: list[BaseException] = [
    GraphInterrupt(),
    GraphBubbleUp(),
    ParentCommand(Command(goto="x")),
]
SIGNALS: list[BaseException] = [KeyboardInterrupt(), SystemExit(1), asyncio.CancelledError()]


@in_turn(verb=ASKING, error=INTERRUPTS)
async def test_control_flow_never_switches(error: BaseException, verb: str) -> None:
    """Whatever the config says, a graph's interrupt comes out."""
    runs, backup = Runs(), alive()

    def raise_it(_asked: Any) -> Any:
        raise error

    model = FallbackRunnable(
        RunnableLambda(raise_it), backup, fallback_on=SWITCHABLE, rules=of_provider(Exception)
    )
    with pytest.raises(type(error)):
        await VERBS[verb](model, "hi", {"callbacks": [runs]})

    assert backup.asked == []
    assert runs.check().ends == ["error"]


def test_the_end_of_an_iterator_never_switches() -> None:
    """A stray StopIteration is a bug of the program's, whatever may switch."""

    def end(_asked: Any) -> Any:
        raise StopIteration

    backup = alive()
    model = FallbackRunnable(
        RunnableLambda(end), backup, fallback_on=SWITCHABLE, rules=of_provider(Exception)
    )
    with pytest.raises(StopIteration):
        model.invoke("hi")
    assert backup.asked == []


@in_turn(verb=["invoke", "stream", "batch"], error=SIGNALS)
def test_signals_never_switch(error: BaseException, verb: str) -> None:
    """Ctrl-C and an exit are for the program; the run is closed all the same."""
    runs = Runs()
    model: Any = FallbackChatModel(chat("primary", error), alive(), fallback_on=SWITCHABLE)
    config: Any = {"callbacks": [runs]}
    asking: dict[str, Any] = {
        "invoke": lambda: model.invoke("hi", config),
        "stream": lambda: list(model.stream("hi", config)),
        "batch": lambda: model.batch(["hi"], config),
    }
    with pytest.raises(type(error)):
        asking[verb]()
    assert candidate(model, 1).asked == []
    (root,) = runs.roots
    assert root.ends == ["error"]


@pytest.mark.parametrize("verb", ["ainvoke", "astream", "abatch"])
async def test_a_cancellation_of_something_below_is_no_cancelled_call(verb: str) -> None:
    """Nobody cancelled the task: the backup is asked, though LangChain takes it for an answer."""
    model: Any = FallbackChatModel(chat("primary", asyncio.CancelledError()), alive())
    match verb:
        case "ainvoke":
            text = (await model.ainvoke("hi")).text
        case "abatch":
            text = (await model.abatch(["hi"]))[0].text
        case _:
            text = "".join([str(chunk.text) async for chunk in model.astream("hi")])
    assert text == "from backup"


@pytest.mark.parametrize("verb", ["ainvoke", "astream", "abatch"])
@pytest.mark.parametrize("listening", [False, True])
async def test_a_cancelled_call_stays_cancelled(verb: str, listening: bool) -> None:
    """No switch, and the call's run ends once; the candidate's own LangChain leaves open."""
    started, runs = asyncio.Event(), Runs()

    class Hangs(type(alive())):  # type: ignore[misc] # a fake that never answers
        async def _agenerate(self, *args: Any, **kwargs: Any) -> Any:
            started.set()
            await asyncio.Event().wait()

        async def _astream(self, *args: Any, **kwargs: Any) -> Any:
            yield await self._agenerate()

    model = FallbackChatModel(Hangs(model="primary"), alive(), fallback_on=SWITCHABLE)
    config = {"callbacks": [runs]} if listening else {}
    task = asyncio.create_task({**VERBS, **SILENT_VERBS}[verb](model, "hi", config))
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert candidate(model, 1).asked == []
    if listening:
        (root,) = runs.roots
        assert len(root.ends) == 1


async def test_a_cancellation_that_a_client_disguises_stays_one() -> None:
    """Some SDKs turn it into a connection error of theirs; the task knows better."""
    started = asyncio.Event()

    async def disguise(_asked: Any) -> Any:
        started.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            raise ConnectionResetError from None

    backup = alive()
    model = FallbackRunnable(RunnableLambda(str, disguise), backup)
    task = asyncio.create_task(model.ainvoke("hi"))
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert backup.asked == []


ALL = VERBS | SILENT_VERBS


@in_turn(verb=ALL, error=[StatusError(400), Fatal("own"), ValueError("bug")])
async def test_what_another_model_cannot_mend_comes_out(error: Exception, verb: str) -> None:
    """A bad request and the program's own errors: the very object, and nobody else asked."""
    model = FallbackChatModel(chat("primary", error), alive())
    with pytest.raises(type(error)) as caught:
        await ALL[verb](model, "hi", {})
    assert caught.value is error
    assert len(candidate(model, 0).asked) == 1
    assert candidate(model, 1).asked == []


@in_turn(verb=ALL, status=[408, 429, 500, 503, 529, 401, 403, 404, 402])
async def test_a_first_failure_goes_to_the_fallback(status: int, verb: str) -> None:
    """Each candidate is asked once, whatever the verb."""
    model = FallbackChatModel(chat("primary", StatusError(status)), alive())
    assert await ALL[verb](model, "hi", {}) == "from backup"
    assert [len(candidate(model, position).asked) for position in (0, 1)] == [1, 1]


@pytest.mark.parametrize("verb", ALL)
async def test_a_healthy_primary_is_the_only_one_asked(verb: str) -> None:
    """The fallback costs nothing until it is wanted."""
    model = FallbackChatModel(alive("primary"), alive())
    assert await ALL[verb](model, "hi", {}) == "from primary"
    assert candidate(model, 1).asked == []


@pytest.mark.parametrize("name", ["openai", "anthropic"])
async def test_one_request_reaches_a_dead_primary(providers: ProviderServer, name: str) -> None:
    """Over real sockets and SDKs that would ask three times; the last candidate's, too."""
    other = "anthropic" if name == "openai" else "openai"
    down, up = serve(providers, name, status=503), serve(providers, other, "hello")
    primary, backup = model_at(down), model_at(up)
    model = FallbackChatModel(primary, backup)

    for done, verb in enumerate(ASKING, start=1):
        assert await VERBS[verb](model, "hi") == "hello"
        assert (len(down.requests), len(up.requests)) == (done, done)

    alone = FallbackChatModel(primary).with_fallback_config(max_attempts=1)
    with pytest.raises(Exception, match="503"):
        alone.invoke("hi")
    assert len(down.requests) == len(ASKING) + 1
    assert primary.max_retries == 2 or name == "openai"  # type: ignore[attr-defined] # as it was


async def test_an_async_attempt_ends_at_its_timeout() -> None:
    """The policy's timeout is the attempt's: the hanging candidate is left for the next."""

    async def hang(_asked: Any) -> str:
        await asyncio.Event().wait()
        return ""

    model = FallbackRunnable(RunnableLambda(str, hang), RunnableLambda(lambda _: "fallback"))
    assert await model.with_fallback_config(timeout=0.05).ainvoke("hi") == "fallback"


def test_an_answer_that_is_not_acceptable_goes_to_the_fallback() -> None:
    """`validate` sees the message, marked."""
    model = FallbackChatModel(alive("a", "refused"), alive("b", "fine"))
    asked = model.with_fallback_config(validate=lambda answer: answer.text == "fine")
    answer = asked.invoke("hi")
    assert answer.text == "fine"
    kinds = [one.get("kind") for one in answer.response_metadata["fallback"]["attempts"]]
    assert kinds == ["malformed_response", None]
