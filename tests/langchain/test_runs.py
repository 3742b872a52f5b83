"""What tracers see: one run per call, each attempt under it, tokens and usage once.

And what observers hear of it.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest
from langchain_core.caches import InMemoryCache
from langchain_core.callbacks import get_usage_metadata_callback
from langchain_core.globals import set_llm_cache
from langchain_core.messages import HumanMessage
from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompt_values import StringPromptValue
from langchain_core.runnables import RunnableLambda
from langgraph.checkpoint.memory import InMemorySaver

from honcho_fallback import FallbackExhausted, StreamInterrupted
from honcho_fallback.testing import StatusError
from honcho_fallback_langchain import FallbackChatModel
from tests.helpers import agents
from tests.helpers.agents import VERBS as VERBS_OF_AGENTS
from tests.helpers.agents import WAYS, agent, by, calls, run
from tests.helpers.chat_models import (
    USAGE,
    ScriptedChat,
    alive,
    candidate,
    chat,
    dead,
    failing_over,
    with_fallbacks,
)
from tests.helpers.chat_runs import SILENT_VERBS, VERBS, Runs, ainvoke, astream, invoke, stream
from tests.helpers.observers import ContentListener, Listener
from tests.helpers.pairwise import in_pairs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

# The third version of the events is in beta.
pytestmark = pytest.mark.filterwarnings("ignore::langchain_core._api.LangChainBetaWarning")

ALL = VERBS | SILENT_VERBS

SECRET = "the provider's own words"


@pytest.mark.parametrize("verb", VERBS)
async def test_each_attempt_is_a_run_under_the_calls_one_run(verb: str) -> None:
    """Whatever the verb, each run that started ends once, the failed ones as errors.

    In a chain the call's run lies under the chain's. Usage is counted once, under the model that
    answered.
    """
    for chained in (False, True):
        runs, model = Runs(), failing_over()
        prompt: Any = RunnableLambda(lambda text: [("human", text)])
        asked = prompt | model if chained else model
        with get_usage_metadata_callback() as told:
            assert await VERBS[verb](asked, "hi", {"callbacks": [runs]}) == "from backup"
        assert told.usage_metadata == {"backup": USAGE}
        root = runs.check()
        assert root.name == ("RunnableSequence" if chained else "FallbackChatModel")
        (call,) = [run for run in runs.all.values() if run.name == "FallbackChatModel"]
        assert call is root or call.parent == root.id
        assert (call.kind, call.ends) == ("chain", ["end"])
        assert runs.children(call) == runs.models
        assert [run.ends for run in runs.models] == [["error"], ["end"]]
        assert [run.metadata["ls_model_name"] for run in runs.models] == ["primary", "backup"]


@pytest.mark.parametrize("verb", VERBS)
async def test_what_the_runs_of_a_call_say(verb: str) -> None:
    """The name is the call's; tags and metadata are everybody's, as in LangChain.

    A later attempt says from its start what went before: class names, kinds and statuses; the
    provider's own words may quote a prompt.

    The same target asked again says its number, and that it is no fallback.
    """
    runs = Runs()
    failed = StatusError(429)
    failed.args = (SECRET,)
    own: Any = {"tags": ["own"], "metadata": {"own": 1}}
    model = FallbackChatModel(chat("primary", failed), alive(), **own)
    config = {"callbacks": [runs], "run_name": "asked", "tags": ["t"], "metadata": {"m": 1}}
    await VERBS[verb](model, "hi", config)

    root = runs.check()
    assert root.name == "asked"
    assert {"t", "own"} <= set(root.tags)
    assert (root.metadata["m"], root.metadata["own"]) == (1, 1)
    for one in runs.models:
        assert (one.name == "asked", "t" in one.tags, one.metadata["m"]) == (False, True, 1)
        assert "own" not in {*one.tags, *one.metadata}
    first, second = runs.models
    assert not [key for key in first.metadata if "fallback" in key]
    told = second.metadata
    assert (told["is_fallback"], told["fallback_attempt"]) == (True, 2)
    assert told["fallback_primary"] == "scripted/primary"
    assert told["fallback_call_id"]
    (attempt,) = told["fallback_attempts"]
    assert attempt.pop("milliseconds") >= 0
    assert attempt == {
        "target": "scripted/primary",
        "model": "primary",
        "provider": "scripted",
        "kind": "rate_limit",
        "status": 429,
        "error": "StatusError",
    }
    assert SECRET not in str([run.metadata for run in runs.all.values()])

    runs = Runs()
    alone = FallbackChatModel(chat("only", StatusError(503), "late"), wait=0)
    assert await VERBS[verb](alone, "hi", {"callbacks": [runs]}) == "late"
    again = runs.models[1].metadata
    assert (again["is_fallback"], again["fallback_attempt"]) == (False, 2)


@pytest.mark.parametrize("verb", ["invoke", "ainvoke", "stream", "astream", "batch", "abatch"])
async def test_where_nobody_answers_every_run_is_an_error(verb: str) -> None:
    """The call's own run as well; the error is what the caller sees, a stream's break included."""
    exhausted = FallbackChatModel(dead("a"), dead("b"), max_attempts=2)
    broken = FallbackChatModel(chat("primary", ["par", StatusError(503)]), alive())
    scenes: list[Any] = [(exhausted, FallbackExhausted, 2)]
    if "stream" in verb:
        scenes.append((broken, StreamInterrupted, 1))
    for model, error, attempts in scenes:
        runs = Runs()
        with pytest.raises(error):
            await VERBS[verb](model, "hi", {"callbacks": [runs]})
        assert isinstance(runs.check().error, error)
        assert [run.ends for run in runs.all.values()] == [["error"]] * (1 + attempts)


@pytest.mark.parametrize("verb", ["stream", "astream"])
async def test_a_reader_who_stops_early_ends_every_run_once(verb: str) -> None:
    """That is no error of the call's: its run ends with what was read.

    The candidate's stream is closed there and then, not when memory is collected.
    """
    runs, primary, backup = Runs(), dead(), alive("backup", "a", "b", "c")
    chunks: Any = getattr(FallbackChatModel(primary, backup), verb)("hi", {"callbacks": [runs]})
    said = ""
    while not said:
        said = (next(chunks) if verb == "stream" else await anext(chunks)).text
    if verb == "stream":
        chunks.close()
    else:
        await chunks.aclose()
    root = runs.check()
    assert (root.ends, root.output.text) == (["end"], said)
    assert (primary.closed, backup.closed) == (["left"], ["left"])


@VERBS_OF_AGENTS
@pytest.mark.parametrize("primary", [dead(), alive("backup")])
async def test_a_graph_streams_each_token_once(verb: str, primary: Any) -> None:
    """`stream_mode="messages"` turns an invoke into a stream of tokens; usage is told once."""
    made = agent(FallbackChatModel(primary, alive()), tools=[])
    with get_usage_metadata_callback() as told:
        chunks = [part for part, _ in await agents.stream(verb, made, "messages")]
    assert told.usage_metadata == {"backup": USAGE}
    assert "".join(chunk.text for chunk in chunks) == "from backup"
    assert [chunk.usage_metadata for chunk in chunks].count(None) == len(chunks) - 1


async def test_a_call_with_nobody_listening_opens_no_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Without a handler there is no run to open, and chunks are not kept for one."""
    opened: list[str] = []
    monkeypatch.setattr(
        "langchain_core.callbacks.CallbackManager.on_chain_start",
        lambda *args, **kwargs: opened.append("chain"),
    )
    assert failing_over().invoke("hi").text == "from backup"
    assert opened == []


@pytest.mark.parametrize("verb", ALL)
@pytest.mark.parametrize("twice", [True, False])
async def test_a_models_own_callbacks_hear_of_its_candidates_once(verb: str, twice: bool) -> None:
    """Of starts, tokens and ends, as with any chat model; also where the call brings them, too.

    Where LangChain opens a model's run itself there is that one: candidates asked aloud would
    double it.
    """
    own = Runs()
    config = {"callbacks": [own]} if twice else {}
    assert await ALL[verb](failing_over(callbacks=[own]), "hi", config) == "from backup"
    root = own.check()
    if verb in VERBS:
        assert [run.ends for run in own.models] == [["error"], ["end"]]
    else:
        assert (root.kind, list(own.all)) == ("chat_model", [root.id])
    if verb in {"stream", "astream"}:
        assert "".join(own.models[-1].tokens) == "from backup"


# What observers hear of these calls, and what a config says of them.

WITH_A_CACHE: dict[str, Any] = {
    "a model": lambda models, observer: FallbackChatModel(*models, observers=[observer]),
    "chains": lambda models, observer: with_fallbacks(
        models[0] | StrOutputParser(), [models[1] | StrOutputParser()], observers=[observer]
    ),
    "an agent": lambda models, observer: agent(*by("middleware", *models, observers=[observer])),
}


@in_pairs(kind=WITH_A_CACHE, verb=["invoke", "ainvoke"], primary=["down", "up"])
async def test_what_a_cache_repeats_costs_nothing(kind: str, verb: str, primary: str) -> None:
    """The answer's usage was paid for by the call that asked; the record of a hit has none."""
    cache, listener = InMemoryCache(), Listener()
    first = ScriptedChat(model="a", script=[[StatusError(503) if primary == "down" else "hi"]])
    models = [first, ScriptedChat(model="b", script=[["hi"]])]
    asked = [model.model_copy(update={"cache": cache}) for model in models]
    made = WITH_A_CACHE[kind](asked, listener)
    given: Any = {"messages": [HumanMessage("hello")]} if kind == "an agent" else "hello"
    for _ in range(2):
        _ = made.invoke(given) if verb == "invoke" else await made.ainvoke(given)
    assert len(models[primary == "down"].asked) == 1
    paid = None if kind == "chains" else USAGE  # its answer is a text
    assert [record.usage for record in listener.records] == [paid, None]


class OfLangfuse(Runs):
    """Be one of Langfuse's own handlers, as far as its module says."""


OfLangfuse.__module__ = "langfuse.langchain.CallbackHandler"


class StandIn(Listener):
    """Report calls in place of Langfuse's own handlers."""

    replaces_langfuse_callbacks = True

    def in_place_of(self, _handlers: Any, _parent_run_id: Any) -> Any:
        return nullcontext()


@pytest.mark.parametrize("kind", ["a model", "an agent"])
@pytest.mark.parametrize("observer", [Listener, StandIn])
def test_only_a_stand_in_keeps_langfuses_handler_from_the_attempts(
    kind: str, observer: type[Listener]
) -> None:
    """Where nobody reports in its place it hears them all; every other handler always does."""
    langfuse, other = OfLangfuse(), Runs()
    made = WITH_A_CACHE[kind]([dead(), alive()], observer())
    given: Any = {"messages": [HumanMessage("hello")]} if kind == "an agent" else "hello"
    made.invoke(given, {"callbacks": [langfuse, other]})
    assert len(other.models) == 2
    assert len(langfuse.models) == (0 if observer is StandIn else 2)


def test_a_stream_is_asked_for_its_usage_where_somebody_wants_to_know() -> None:
    """LangChain leaves it off at other addresses than OpenAI's; the user's own choice stays."""
    wanted: list[bool | None] = []

    class Switched(ScriptedChat):
        stream_usage: bool | None = None

        def _stream(self, *args: Any, **kwargs: Any) -> Any:
            wanted.append(self.stream_usage)
            yield from super()._stream(*args, **kwargs)

    listener = ContentListener()
    for observers, chosen in (([listener], None), ([listener], False), ([], None)):
        options = {} if chosen is None else {"stream_usage": chosen}
        model = Switched(script=[["yes"]], **options)
        list(FallbackChatModel(model, alive(), observers=observers).stream("hello"))
    assert wanted == [True, False, None]


# Caches.


@pytest.fixture
def cache() -> Iterator[InMemoryCache]:
    kept = InMemoryCache()
    set_llm_cache(kept)
    yield kept
    set_llm_cache(None)


async def test_a_cached_message_is_not_changed(cache: InMemoryCache) -> None:
    """The mark is put on a copy; what the candidate's cache holds stays without one."""
    backup = alive()
    model = FallbackChatModel(dead(), backup)
    for _ in range(2):
        for answer in (model.invoke("hi"), await model.ainvoke("hi")):
            assert answer.response_metadata["fallback"]["is_fallback"] is True
    assert len(backup.asked) == 1
    ((generation,),) = cache._cache.values()
    assert "fallback" not in generation.message.response_metadata  # type: ignore[attr-defined] # a chat generation


async def test_the_chain_keeps_no_answers_of_its_own(cache: InMemoryCache) -> None:
    """A fallback's answer under the primary's key would outlive the outage."""
    model = FallbackChatModel(chat("primary", StatusError(503), "from primary"), alive())
    assert model.generate([[]]).generations[0][0].text == "from backup"
    assert model.generate([[]]).generations[0][0].text == "from primary"
    assert len(candidate(model, 0).asked) == 2
    assert len(cache._cache) == 2  # one each, under the candidate's own key


# What a config says of a call reaches its record; what LangChain adds, and secrets, do not.


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
        "openai_api_key": "short",
    },
}
EXPECTED = {**MINE, "nothing": None, "langfuse_session_id": "s-1"}


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


@VERBS_OF_AGENTS
@pytest.mark.parametrize("way", WAYS)
async def test_an_agent_s_calls_say_what_the_agent_s_config_says(verb: str, way: str) -> None:
    """Each round has it, with the thread and the run; LangGraph's own entries stay out.

    A later attempt's run says so from its start, beside the model's own tags and metadata.
    """
    observer, runs = Listener(), Runs()
    fields: Any = {"metadata": {"own": 1}, "tags": ["own"]}
    backup = chat("backup", calls("look_up", 1, city="Oslo"), "done", **fields)
    primary = chat("primary", StatusError(503), **fields)
    beside = by(way, primary, backup, observers=[observer])
    made = agent(*beside, checkpointer=InMemorySaver(), name="reporter")
    configurable = {"thread_id": "t-1", "openai_api_key": "short"}
    config: Any = {"metadata": {**MINE}, "configurable": configurable, "run_id": RUN_ID}
    await run(verb, made, config={**config, "callbacks": [runs]})
    named = {"run_id": str(RUN_ID)} if way == "middleware" else {}
    expected = {**MINE, "thread_id": "t-1", **named}
    assert [one.metadata for one in observer.records] == [expected] * 2
    runs.check()
    first, second, *_ = runs.models
    assert "fallback_attempt" not in first.metadata
    assert second.metadata["fallback_primary"] == "scripted/primary"
    assert [one["status"] for one in second.metadata["fallback_attempts"]] == [503]
    told = {"fallback_attempt": 2, "is_fallback": True, "own": 1}
    assert told.items() <= second.metadata.items()
    assert (first.metadata["own"], "own" in first.tags, "own" in second.tags) == (1, True, True)
    assert (backup.tags, "fallback_attempt" in (backup.metadata or {})) == (["own"], False)
