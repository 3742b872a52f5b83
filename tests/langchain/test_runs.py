"""What tracers see: one run per call, each attempt under it, tokens and usage once."""

from __future__ import annotations

from typing import Any

import pytest
from langchain_core.callbacks import get_usage_metadata_callback
from langchain_core.messages import AIMessageChunk, HumanMessage
from langchain_core.runnables import RunnableLambda
from langgraph.graph import START, MessagesState, StateGraph

from honcho_fallback import FallbackExhausted, StreamInterrupted
from honcho_fallback.testing import StatusError
from honcho_fallback_langchain import FallbackChatModel
from tests.helpers.chat_models import USAGE, alive, chat, dead, failing_over
from tests.helpers.chat_runs import SILENT_VERBS, VERBS, Runs

# The third version of the events is in beta.
pytestmark = pytest.mark.filterwarnings("ignore::langchain_core._api.LangChainBetaWarning")

ALL = VERBS | SILENT_VERBS

SECRET = "the provider's own words"


@pytest.mark.parametrize("verb", VERBS)
async def test_each_attempt_is_a_run_under_the_calls_one_run(verb: str) -> None:
    """Whatever the verb, each run that started ends once, the failed ones as errors.

    In a chain the call's run lies under the chain's.
    """
    for chained in (False, True):
        runs, model = Runs(), failing_over()
        prompt: Any = RunnableLambda(lambda text: [("human", text)])
        asked = prompt | model if chained else model
        assert await VERBS[verb](asked, "hi", {"callbacks": [runs]}) == "from backup"
        root = runs.check()
        assert root.name == ("RunnableSequence" if chained else "FallbackChatModel")
        (call,) = [run for run in runs.all.values() if run.name == "FallbackChatModel"]
        assert call is root or call.parent == root.id
        assert (call.kind, call.ends) == ("chain", ["end"])
        assert runs.children(call) == runs.models
        assert [run.ends for run in runs.models] == [["error"], ["end"]]
        assert [run.metadata["ls_model_name"] for run in runs.models] == ["primary", "backup"]


@pytest.mark.parametrize("verb", ["stream_events v3", "astream_events v3"])
async def test_where_langchain_opens_the_run_there_is_one(verb: str) -> None:
    """v3 events are one model run; candidates asked aloud would double it."""
    runs = Runs()

    assert await SILENT_VERBS[verb](failing_over(), "hi", {"callbacks": [runs]}) == "from backup"

    root = runs.check()
    assert (root.kind, list(runs.all)) == ("chat_model", [root.id])


@pytest.mark.parametrize("verb", VERBS)
async def test_a_later_attempt_says_from_its_start_what_went_before(verb: str) -> None:
    """Class names, kinds and statuses; the provider's own words may quote a prompt.

    The same target asked again says its number, and that it is no fallback.
    """
    runs = Runs()
    failed = StatusError(429)
    failed.args = (SECRET,)
    model = FallbackChatModel(chat("primary", failed), alive())

    await VERBS[verb](model, "hi", {"callbacks": [runs]})

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


@pytest.mark.parametrize("verb", VERBS)
async def test_name_tags_metadata_and_id_of_a_call(verb: str) -> None:
    """The name and the id are the call's; tags and metadata are everybody's, as in LangChain."""
    runs = Runs()
    model = FallbackChatModel(dead(), alive(), tags=["own"], metadata={"own": 1})
    config = {"callbacks": [runs], "run_name": "asked", "tags": ["t"], "metadata": {"m": 1}}

    await VERBS[verb](model, "hi", config)

    root = runs.check()
    assert root.name == "asked"
    assert {"t", "own"} <= set(root.tags)
    assert (root.metadata["m"], root.metadata["own"]) == (1, 1)
    for run in runs.models:
        assert run.name != "asked"
        assert "t" in run.tags
        assert run.metadata["m"] == 1
        assert "own" not in run.tags
        assert "own" not in run.metadata


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


@pytest.mark.parametrize("verb", VERBS)
async def test_usage_is_counted_once(verb: str) -> None:
    """Under the model that answered, whatever was asked before it."""
    with get_usage_metadata_callback() as told:
        await ALL[verb](failing_over(), "hi", {})
    assert told.usage_metadata == {"backup": USAGE}


def graph(model: Any) -> Any:
    """Make a graph of one node that asks a model, as agents do."""
    given: Any = RunnableLambda(lambda state: state["messages"])
    built: Any = StateGraph(MessagesState)
    built.add_node("ask", given | model | (lambda answer: {"messages": [answer]}))
    built.add_edge(START, "ask")
    return built.compile()


ASKED: Any = {"messages": [HumanMessage(content="hi")]}


def read(chunks: list[Any]) -> tuple[str, int]:
    """Return what was said, and how often usage was told."""
    parts = [part for part, _ in chunks if isinstance(part, AIMessageChunk)]
    said = "".join(part.text for part in parts)
    return said, sum(part.usage_metadata is not None for part in parts)


@pytest.mark.parametrize("primary", ["dead", "alive"])
async def test_a_graph_streams_each_token_once(primary: str) -> None:
    """`stream_mode="messages"` turns an invoke into a stream of tokens; usage is told once."""
    first = dead() if primary == "dead" else alive("backup")
    made = graph(FallbackChatModel(first, alive()))

    with get_usage_metadata_callback() as told:
        sync = list(made.stream(ASKED, stream_mode="messages"))
    assert told.usage_metadata == {"backup": USAGE}
    with get_usage_metadata_callback() as told:
        chunks = [one async for one in made.astream(ASKED, stream_mode="messages")]
    assert told.usage_metadata == {"backup": USAGE}

    assert read(sync) == read(chunks) == ("from backup", 1)


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
    """Of starts, tokens and ends, as with any chat model; also where the call brings them, too."""
    own = Runs()
    config = {"callbacks": [own]} if twice else {}
    assert await ALL[verb](failing_over(callbacks=[own]), "hi", config) == "from backup"
    own.check()
    if verb in VERBS:
        assert [run.ends for run in own.models] == [["error"], ["end"]]
    if verb in {"stream", "astream"}:
        assert "".join(own.models[-1].tokens) == "from backup"
