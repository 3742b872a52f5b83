"""What `with_fallbacks` does wrong, each beside what is done here.

Seventeen weaknesses of `RunnableWithFallbacks` in langchain-core 1.7.2. Where a test pins what
LangChain does, it fails on the day LangChain mends it, and the half about it can go.
"""

from __future__ import annotations

import asyncio
from threading import Event
from typing import TYPE_CHECKING, Any

import pytest
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import HumanMessage
from langchain_core.runnables import RunnableGenerator, RunnableLambda
from langgraph.errors import GraphInterrupt

from honcho_fallback import FailureKind, FallbackExhausted
from honcho_fallback.testing import StatusError
from honcho_fallback_langchain import FallbackChatModel, FallbackRunnable
from tests.helpers.chat_models import (
    Joke,
    ScriptedChat,
    Setting,
    alive,
    candidate,
    chat,
    dead,
    failing_over,
    model_at,
    serve,
    with_fallbacks,
)
from tests.helpers.chat_runs import Runs

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.helpers.provider import ProviderServer

SWITCHABLE = frozenset(FailureKind) - {FailureKind.CANCELLED}


def raising(error: BaseException) -> Any:
    def fail(_asked: Any) -> Any:
        raise error

    return RunnableLambda(fail)


def saying(text: str) -> Any:
    return RunnableLambda(lambda _asked: text)


@pytest.mark.parametrize("verb", ["invoke", "ainvoke"])
async def test_1_attempts_are_orphans(verb: str) -> None:
    """There each attempt is a trace of its own; here they are children of the call's run."""
    theirs, ours = Runs(), Runs()
    for model, runs in (
        (dead().with_fallbacks([alive()]), theirs),
        (failing_over(), ours),
    ):
        if verb == "invoke":
            model.invoke("hi", {"callbacks": [runs]})
        else:
            await model.ainvoke("hi", {"callbacks": [runs]})

    assert len(theirs.roots) == 3
    assert len(ours.children(ours.check())) == 2


@pytest.mark.parametrize("error", [TypeError("a bug"), KeyError("k"), StatusError(400)])
def test_2_bugs_are_hidden_by_the_backups_answer(error: Exception) -> None:
    """There every Exception switches; here the program's own errors and bad requests come out."""
    assert raising(error).with_fallbacks([saying("hidden")]).invoke("hi") == "hidden"

    backup = alive()
    with pytest.raises(type(error)) as caught:
        FallbackChatModel(chat("primary", error), backup).invoke("hi")
    assert caught.value is error
    assert backup.asked == []


def test_3_interrupts_of_a_graph_are_swallowed() -> None:
    """There `interrupt()` becomes a fallback; here it comes out, whatever may switch."""
    interrupt = GraphInterrupt()
    assert raising(interrupt).with_fallbacks([saying("hidden")]).invoke("hi") == "hidden"

    model = FallbackRunnable(raising(interrupt), saying("hidden"))
    with pytest.raises(GraphInterrupt):
        model.with_fallback_config(fallback_on=SWITCHABLE).invoke("hi")


async def test_4_a_cancelled_call_goes_on() -> None:
    """There BaseException as the type to handle swallows a cancellation; here nothing does."""

    async def cancelled(model: Any, started: asyncio.Event) -> Any:
        task = asyncio.create_task(model.ainvoke("hi"))
        await started.wait()
        task.cancel()
        return await task

    started = asyncio.Event()

    async def hang(_asked: Any) -> str:
        started.set()
        await asyncio.Event().wait()
        return "late"

    slow, backup = RunnableLambda(saying("").func, hang), saying("hidden")
    theirs = slow.with_fallbacks([backup], exceptions_to_handle=(BaseException,))
    assert await cancelled(theirs, started) == "hidden"

    started.clear()
    ours = FallbackRunnable(slow, backup).with_fallback_config(fallback_on=SWITCHABLE)
    with pytest.raises(asyncio.CancelledError):
        await cancelled(ours, started)


def test_5_the_other_errors_are_lost() -> None:
    """There the first error alone comes out; here all do, or the last with a note of them."""
    errors = [StatusError(429), StatusError(503)]
    with pytest.raises(StatusError) as theirs:
        raising(errors[0]).with_fallbacks([raising(errors[1])]).invoke("hi")
    assert theirs.value is errors[0]
    assert not hasattr(theirs.value, "__notes__")

    chain = FallbackRunnable(raising(errors[0]), raising(errors[1]))
    chain = chain.with_fallback_config(max_attempts=2)
    with pytest.raises(FallbackExhausted) as ours:
        chain.invoke("hi")
    assert list(ours.value.exceptions) == errors
    assert [one.status for one in ours.value.attempts] == [429, 503]

    with pytest.raises(StatusError) as last:
        chain.with_fallback_config(on_exhausted="last").invoke("hi")
    assert last.value is errors[1]
    (note,) = last.value.__notes__
    assert "429" in note
    assert "503" in note


@pytest.mark.parametrize("name", ["openai", "anthropic"])
@pytest.mark.parametrize("verb", ["stream", "astream"])
async def test_6_a_stream_is_committed_by_its_empty_first_chunk(
    providers: ProviderServer, name: str, verb: str
) -> None:
    """There an overload told right after it is fatal, with either SDK; here it is recovered."""
    other = "anthropic" if name == "openai" else "openai"
    down = serve(providers, name, error="overloaded_error")
    up = serve(providers, other, "from backup")
    primary, backup = model_at(down, max_retries=0), model_at(up)

    async def said(model: Any) -> str:
        if verb == "stream":
            return "".join(chunk.text for chunk in model.stream("hi"))
        return "".join([chunk.text async for chunk in model.astream("hi")])

    with pytest.raises(Exception, match="in our own words"):
        await said(primary.with_fallbacks([backup]))
    assert (len(down.requests), len(up.requests)) == (1, 0)

    assert await said(FallbackChatModel(primary, backup)) == "from backup"
    assert (len(down.requests), len(up.requests)) == (2, 1)


def test_7_an_empty_stream_is_a_failure() -> None:
    """There it goes to the fallback, and without one crashes; here it is an empty answer."""

    def nothing(_asked: Any) -> Iterator[Any]:
        yield from ()

    empty: Any = RunnableGenerator(nothing)
    assert list(empty.with_fallbacks([saying("hidden")]).stream("hi")) == ["hidden"]
    with pytest.raises(RuntimeError, match="StopIteration"):
        list(empty.with_fallbacks([]).stream("hi"))

    assert list(FallbackRunnable(empty, saying("hidden")).stream("hi")) == []
    assert list(FallbackRunnable(empty).stream("hi")) == []


def test_8_a_stream_closed_at_its_first_chunk_leaves_its_run_open() -> None:
    """There the run never ends; here it ends once, and not as an error."""
    theirs, ours = Runs(), Runs()
    for model, runs in (
        (alive("a").with_fallbacks([alive()]), theirs),
        (FallbackChatModel(alive("a"), alive()), ours),
    ):
        chunks: Any = model.stream("hi", {"callbacks": [runs]})
        next(chunks)
        chunks.close()

    (root,) = theirs.roots
    assert root.ends == []
    assert ours.check().ends == ["end"]


async def test_9_the_first_chunk_is_made_in_another_context() -> None:
    """There what a candidate sets is gone after one chunk; here it stays to the last."""
    primary = Setting(model="primary", script=[["a"]])
    assert [one async for one in primary.with_fallbacks([alive()]).astream("hi")]
    assert primary.closed == ["unset", "unset", "unset", "lost", "whole"]

    primary.closed.clear()
    assert [one async for one in FallbackChatModel(primary, alive()).astream("hi")]
    assert primary.closed == ["generator", "generator", "generator", "reset", "whole"]


def test_10_a_transform_waits_for_all_its_input() -> None:
    """There and here: a second candidate needs the same input; the answer does stream."""

    def words() -> Iterator[str]:
        for word in ("a", "b"):
            said.append(word)
            yield word

    said: list[str] = []
    for model in (alive("x").with_fallbacks([alive()]), FallbackChatModel(alive("x"), alive())):
        said.clear()
        chunks: Any = model.transform(words())
        next(chunks)
        assert said == ["a", "b"]
        assert len(list(chunks)) > 1


def test_12_a_batch_waits_for_its_slowest_primary() -> None:
    """There no item's fallback is asked before; here each item goes its own way."""
    backup_asked = Event()
    waited: list[bool] = []

    def primary(asked: str) -> str:
        if asked == "failing":
            raise StatusError(503)
        waited.append(backup_asked.wait(patience))
        return "slow"

    def backup(_asked: str) -> str:
        backup_asked.set()
        return "fallback"

    pair = RunnableLambda(primary), RunnableLambda(backup)
    patience = 0.2  # it waits in vain
    assert pair[0].with_fallbacks([pair[1]]).batch(["failing", "slow"]) == ["fallback", "slow"]
    patience, backup_asked = 30.0, Event()
    assert FallbackRunnable(*pair).batch(["failing", "slow"]) == ["fallback", "slow"]
    assert waited == [False, True]


def test_12_a_batch_that_fails_leaves_runs_open() -> None:
    """There an error that is not handled closes one run; here every run ends."""
    theirs, ours = Runs(), Runs()

    def fail(asked: str) -> str:
        raise KeyError(asked)

    primary, backup = RunnableLambda(fail), saying("")
    with pytest.raises(KeyError):
        primary.with_fallbacks([backup], exceptions_to_handle=(ValueError,)).batch(
            ["a", "b"], {"callbacks": [theirs]}
        )
    assert [] in [run.ends for run in theirs.all.values()]

    with pytest.raises(KeyError):
        FallbackRunnable(primary, backup).batch(["a", "b"], {"callbacks": [ours]})
    assert all(len(run.ends) == 1 for run in ours.all.values())


class Unannotated(ScriptedChat):
    """Bind tools without saying what comes back, as custom models do."""

    def bind_tools(self, tools, **kwargs):  # type: ignore[no-untyped-def] # noqa: ANN001, ANN003, ANN201 # the point
        return super().bind_tools(tools, **kwargs)


def test_13_a_method_without_annotations_drops_the_fallback() -> None:
    """There tools bound to a custom model leave the primary alone, silently; here nothing goes."""
    down = Unannotated(model="primary", script=[[StatusError(503)]])
    theirs: Any = down.with_fallbacks([alive()])
    with pytest.raises(StatusError):
        theirs.bind_tools([Joke]).invoke("hi")

    assert FallbackChatModel(down, alive()).bind_tools([Joke]).invoke("hi").text == "from backup"


def test_14_other_methods_reach_the_primary_alone() -> None:
    """There `generate_prompt` bypasses the fallback; here it is a call like any other."""
    prompt: Any = [GenericFakeChatModel(messages=iter([]))._convert_input("hi")]
    theirs: Any = dead().with_fallbacks([alive()])
    with pytest.raises(StatusError):
        theirs.generate_prompt(prompt)

    result = failing_over().generate_prompt(prompt)
    assert result.generations[0][0].text == "from backup"


def test_16_a_model_named_per_call_goes_to_everybody() -> None:
    """There the backup is asked for the primary's model; here only the primary is."""
    backup = alive()
    dead().with_fallbacks([backup]).invoke("hi", model="gpt-5.5", temperature=0.5)
    assert backup.asked[-1].kwargs["model"] == "gpt-5.5"

    model = failing_over()
    for named in ("model", "model_name"):
        model.invoke("hi", None, temperature=0.5, **{named: "gpt-5.5"})
        assert candidate(model, 0).asked[-1].kwargs[named] == "gpt-5.5"
        assert named not in candidate(model, 1).asked[-1].kwargs
        assert candidate(model, 1).asked[-1].kwargs["temperature"] == 0.5


def test_what_was_lost_is_told() -> None:
    """Who answered, who was asked before and with which result stand in the answer."""
    theirs = dead().with_fallbacks([alive()]).invoke("hi")
    assert "fallback" not in theirs.response_metadata

    told = failing_over().invoke([HumanMessage("hi")]).response_metadata["fallback"]
    assert told["attempts"][0]["status"] == 503


def test_exceptions_to_handle_means_the_same() -> None:
    """`a.with_fallbacks([b], ...)` becomes `FallbackChatModel(a, b, ...)`."""
    handled = with_fallbacks(
        chat("primary", ValueError("no such city")), [alive()], exceptions_to_handle=(ValueError,)
    )
    assert handled.invoke("hi").text == "from backup"
