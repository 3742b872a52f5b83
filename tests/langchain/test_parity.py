"""What `with_fallbacks` promises: the same here, or on purpose not.

The first half runs each case on theirs and on ours and compares; the second says each difference.
"""

from __future__ import annotations

from threading import Event
from typing import TYPE_CHECKING, Any

import pytest
from langchain_core.language_models import FakeListLLM
from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import PromptTemplate
from langchain_core.runnables import Runnable, RunnableGenerator, RunnableLambda
from langchain_core.runnables.config import ensure_config

from honcho_fallback import FallbackConfigError
from honcho_fallback.testing import StatusError
from honcho_fallback_langchain import FallbackChatModel, FallbackMiddleware, FallbackRunnable
from tests.helpers.chat_models import (
    Joke,
    ScriptedChat,
    alive,
    candidate,
    chat,
    dead,
    failing_over,
    with_fallbacks,
)
from tests.helpers.chat_runs import VERBS, Runs
from tests.helpers.pairwise import in_pairs

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

    from langchain_core.runnables import RunnableConfig


def theirs(primary: Any, fallbacks: list[Any], **options: Any) -> Any:
    return primary.with_fallbacks(fallbacks, **options)


def ours(primary: Any, fallbacks: list[Any], **options: Any) -> Any:
    options = {"exceptions_to_handle": (Exception,), "on_exhausted": "last", **options}
    return with_fallbacks(primary, fallbacks, **options)


BOTH = pytest.mark.parametrize("make", [theirs, ours])


def broken_llm() -> FakeListLLM:
    return FakeListLLM(responses=["never"], i=1)  # an IndexError on every call


def prompted(llm: Any) -> Any:
    return PromptTemplate.from_template("what is {thing}") | llm


def raises(error: BaseException) -> Any:
    def fail(_asked: Any) -> Any:
        raise error

    return RunnableLambda(fail)


CHAINS: dict[str, Callable[[Any], Any]] = {
    "language models": lambda make: make(broken_llm(), [FakeListLLM(responses=["yes"])]),
    "the third": lambda make: make(broken_llm(), [broken_llm(), FakeListLLM(responses=["yes"])]),
    "inside a chain": lambda make: (
        RunnableLambda(lambda thing: {"thing": thing})
        | make(prompted(broken_llm()), [prompted(FakeListLLM(responses=["yes"]))])
    ),
    "chat models": lambda make: (
        make(chat("nothing to say"), [alive("backup", "yes")]) | StrOutputParser()
    ),
    "a function at the end": lambda make: make(
        prompted(broken_llm()), [RunnableLambda(lambda _: "yes")]
    ),
}


@in_pairs(make=[theirs, ours], case=CHAINS, verb=sorted(VERBS.keys() - {"astream_events v2"}))
async def test_the_next_answers(verb: str, case: str, make: Any) -> None:
    """Language models, chat models and chains, alone and inside a chain, by every verb."""
    asked = {"thing": "x"} if case == "a function at the end" else "x"
    assert await VERBS[verb](CHAINS[case](make), asked) == "yes"


@BOTH
async def test_only_the_classes_given_are_handled(make: Any) -> None:
    """Another class comes out at once, and the fallback is not asked."""
    handled = {"exceptions_to_handle": (KeyError, ConnectionError)}
    backup = alive()
    assert make(chat("a", KeyError("k")), [backup], **handled).invoke("hi").text == "from backup"
    for verb in ("invoke", "ainvoke", "stream", "astream"):
        with pytest.raises(ValueError, match="a bug"):
            await VERBS[verb](make(chat("a", ValueError("a bug")), [backup], **handled), "hi")
    assert len(backup.asked) == 1


@BOTH
async def test_a_stream_switches_before_its_first_chunk(make: Any) -> None:
    """In a thread and in a task; what the fallback yields comes piece by piece."""

    def at_once(_: Iterator[Any]) -> Iterator[str]:
        raise ValueError("at once")
        yield ""

    async def aat_once(_: AsyncIterator[Any]) -> AsyncIterator[str]:
        raise ValueError("at once")
        yield ""

    def words(_: Iterator[Any]) -> Iterator[str]:
        yield from ("a", "b")

    async def awords(_: AsyncIterator[Any]) -> AsyncIterator[str]:
        for word in ("a", "b"):
            yield word

    chain = make(RunnableGenerator(at_once, aat_once), [RunnableGenerator(words, awords)])
    assert list(chain.stream({})) == ["a", "b"]
    assert [chunk async for chunk in chain.astream({})] == ["a", "b"]


class Asking(Runnable[Any, Any]):
    """Do what a tool inside of a model does: ask for the config without having been handed one."""

    def invoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Any:  # noqa: A002 # LangChain's name
        inner: Any = RunnableLambda(lambda _: ensure_config()["tags"]).with_config(run_name="tool")
        return ",".join(sorted(inner.invoke(input)))


@pytest.mark.parametrize("verb", sorted(VERBS.keys() - {"astream_events v2"}))
async def test_a_candidate_is_asked_with_its_config_around_it(verb: str) -> None:
    """What it calls without a config is its child in the trace, with the call's tags."""
    runs = Runs()
    config: Any = {"tags": ["t"], "callbacks": [runs]}
    assert "t" in theirs(Asking(), [Asking()]).invoke("x", config)
    runs.all.clear()

    assert "t" in await VERBS[verb](ours(Asking(), [Asking()]), "x", config)
    (tool,) = runs.children(runs.check())
    assert (tool.name, tool.tags) == ("tool", ["t"])


async def test_the_config_around_a_candidate_ends_with_it() -> None:
    """Neither between two chunks nor after the call is it around the reader."""
    chain = FallbackRunnable(Asking(), Asking())
    config: Any = {"tags": ["t"]}
    chain.invoke("x", config)
    await chain.ainvoke("x", config)
    for _ in chain.stream("x", config):
        assert ensure_config()["tags"] == []
    async for _ in chain.astream("x", config):
        assert ensure_config()["tags"] == []
    assert ensure_config()["tags"] == []


# On purpose not the same: where a test pins what LangChain does, it fails on the day LangChain
# mends it, and that half can go.


def saying(text: str) -> Any:
    return RunnableLambda(lambda _asked: text)


def test_each_item_of_a_batch_goes_its_own_way() -> None:
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


class Unannotated(ScriptedChat):
    """Bind tools without saying what comes back, as custom models do."""

    def bind_tools(self, tools, **kwargs):  # type: ignore[no-untyped-def] # noqa: ANN001, ANN003, ANN201 # the point
        return super().bind_tools(tools, **kwargs)


def test_a_method_without_annotations_keeps_the_fallback() -> None:
    """There tools bound to a custom model leave the primary alone, silently; here nothing goes."""
    down = Unannotated(model="primary", script=[[StatusError(503)]])
    theirs: Any = down.with_fallbacks([alive()])
    with pytest.raises(StatusError):
        theirs.bind_tools([Joke]).invoke("hi")

    assert FallbackChatModel(down, alive()).bind_tools([Joke]).invoke("hi").text == "from backup"


def test_a_model_named_per_call_is_the_primarys() -> None:
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


def test_exceptions_to_handle_is_a_rule_by_default() -> None:
    """LangChain's name for what a provider raises; what is no class of exceptions is refused."""
    model = ours(alive("a"), [alive()], exceptions_to_handle=(KeyError,))
    (rule,) = model.policy.config.rules
    assert (rule.error, rule.kind, rule.default) == ((KeyError,), "server_error", True)
    for wrong in (int, ["ValueError"], (object(),)):
        with pytest.raises(FallbackConfigError, match="pass exception classes"):
            FallbackMiddleware(alive(), exceptions_to_handle=wrong)  # type: ignore[arg-type] # what is refused


def test_exceptions_to_handle_stands_until_it_is_given_anew() -> None:
    """Rules of the user's leave it, another tuple replaces it, an empty one takes it away."""
    model = ours(alive("a"), [alive()], exceptions_to_handle=(KeyError,))

    def named(changed: Any) -> list[Any]:
        return [rule.error for rule in changed.policy.config.rules]

    ruled = model.with_fallback_config(rules={"kind": "quota", "code": "TEAM_BUDGET"})
    assert named(ruled) == [(), (KeyError,)]
    assert named(ruled.with_fallback_config(exceptions_to_handle=(LookupError,))) == [
        (),
        (LookupError,),
    ]
    assert named(ruled.with_fallback_config(exceptions_to_handle=())) == [()]
    assert named(ruled.with_fallback_config(deadline=5)) == [(), (KeyError,)]
