"""A tool loop's and an agent's calls lie under one parent, whichever handler is used."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from itertools import chain, repeat
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Literal

import pytest
from langchain_core.tools import tool
from langfuse.langchain import CallbackHandler
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ALWAYS_ON, ParentBased, Sampler

from honcho_fallback import FallbackConfig, FallbackObserver, FallbackPolicy, Target, set_observers
from honcho_fallback_langchain import FallbackMiddleware
from honcho_fallback_langfuse import LangfuseCallbackHandler
from honcho_fallback_otel import OpenTelemetryHandler
from tests.helpers.agents import agent, calls, last, run
from tests.helpers.chat_models import chat, dead, look_up
from tests.helpers.langfuse_server import langfuse_memory, stored
from tests.helpers.otlp import Traces

if TYPE_CHECKING:
    from collections.abc import Iterator

    from opentelemetry.sdk.trace.sampling import SamplingResult

    from honcho_fallback import Attempt
    from tests.helpers.langfuse_server import Memory, Stored


def loop(
    observer: FallbackObserver, reset: Literal["iteration", "turn"] = "iteration"
) -> FallbackPolicy:
    return FallbackPolicy(
        [Target("one", "openai")], FallbackConfig(reset=reset), agent="chat", observers=[observer]
    )


def hello(_: Attempt) -> str:
    return "hello"


def split(spans: list[Stored]) -> tuple[list[Stored], list[Stored]]:
    """Return the observations of turns, and those of calls."""
    agents = [span for span in spans if span.type == "AGENT"]
    return agents, [span for span in spans if span.type == "GENERATION"]


def one_turn(spans: list[Stored]) -> tuple[Stored, list[Stored]]:
    """Return the observation of a turn that went well, and those of its calls, which are in it."""
    (root,), calls = split(spans)
    assert {(call.trace_id, call.parent_id) for call in calls} == {(root.trace_id, root.id)}
    assert root.start <= min(call.start for call in calls)
    assert root.end >= max(call.end for call in calls)
    assert (root.parent_id, root.level) == (None, "DEFAULT")
    assert root.metadata["outcome"] == "completed"
    return root, calls


@pytest.mark.parametrize("reset", ["iteration", "turn"])
def test_the_calls_of_a_turn_lie_under_one_observation(
    memory: Memory, reset: Literal["iteration", "turn"]
) -> None:
    """HON-071, HON-076: three iterations are three generations of one trace, under the turn."""
    policy = loop(LangfuseCallbackHandler(memory.client), reset)
    with policy.turn() as turn:
        for step in range(3):
            policy.call(hello, metadata={"workspace": "acme", "step": step})
        assert len(memory.stored()) == 3  # the turn goes on
    root, calls = one_turn(memory.stored())
    assert (root.name, root.trace_name) == ("chat", "chat")
    assert [call.metadata["step"] for call in calls] == [0, 1, 2]
    assert {call.trace_name for call in calls} == {None}
    assert {"workspace": "acme", "turn_id": turn.turn_id}.items() <= root.metadata.items()


def test_a_turn_lies_under_what_is_current(memory: Memory) -> None:
    """The turn is a child of the application's observation; a call without a turn is one, too."""
    policy = loop(LangfuseCallbackHandler(memory.client))
    with memory.client.start_as_current_observation(name="request", as_type="span"):
        with policy.turn():
            policy.call(hello)
            with memory.client.start_as_current_observation(name="tool", as_type="tool"):
                policy.call(hello)
        policy.call(hello)
        with policy.turn():
            pass  # a turn without a call leaves nothing
    (request,) = [span for span in memory.stored() if span.name == "request"]
    (turn,), calls = split(memory.stored())
    assert turn.parent_id == request.id
    assert [call.parent_id for call in calls] == [turn.id, turn.id, request.id]
    assert {call.trace_id for call in calls} == {request.trace_id}


async def test_a_turn_over_threads_and_tasks_is_one(memory: Memory) -> None:
    """Calls that begin together, wherever they run, share one parent."""
    policy = loop(LangfuseCallbackHandler(memory.client))
    with policy.turn() as turn, ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: policy.call(hello, turn=turn), range(4)))

        async def ask(_: Attempt) -> str:
            return "hello"

        await asyncio.gather(*(policy.acall(ask) for _ in range(4)))
    _, calls = one_turn(memory.stored())
    assert len(calls) == 8


@pytest.mark.parametrize(
    ("error", "outcome", "level"),
    [(KeyError(), "failed", "ERROR"), (KeyboardInterrupt(), "cancelled", "WARNING")],
)
def test_a_turn_that_breaks_says_so(
    memory: Memory, error: BaseException, outcome: str, level: str
) -> None:
    """The turn's observation ends with it, and carries how it ended and nothing of the error."""
    policy = loop(LangfuseCallbackHandler(memory.client))
    with pytest.raises(type(error)), policy.turn():
        policy.call(hello)
        raise error
    (root,), _ = split(memory.stored())
    assert (root.metadata["outcome"], root.level, root.status_message) == (outcome, level, None)


def test_turns_that_never_end_do_not_pile_up(memory: Memory) -> None:
    """The oldest ends when there are too many, the others with the handler: no orphans."""
    handler = LangfuseCallbackHandler(memory.client)
    handler._most = 2
    policy = loop(handler)
    turns = [policy.turn() for _ in range(4)]
    for turn in turns:
        policy.call(hello, turn=turn)
    assert len(split(memory.stored())[0]) == 2
    handler.close()
    roots, calls = split(memory.stored())
    assert {call.parent_id for call in calls} == {root.id for root in roots}
    for turn in turns:
        turn.end()  # what comes late changes nothing
    assert len(split(memory.stored())[0]) == 4


class DropsFirst(Sampler):
    """Drop the first root, and keep the others."""

    def __init__(self) -> None:
        self._samplers = chain([ALWAYS_OFF], repeat(ALWAYS_ON))

    def should_sample(self, *args: Any, **kwargs: Any) -> SamplingResult:
        return next(self._samplers).should_sample(*args, **kwargs)

    def get_description(self) -> str:
        return "drops first"


def two_turns(policy: FallbackPolicy) -> None:
    for _ in range(2):
        with policy.turn():
            policy.call(hello)
            policy.call(hello)


def test_calls_are_sampled_with_their_turn() -> None:
    """A parent-based sampler decides for a whole turn: all of it is exported, or nothing.

    The calls of one that is not are no roots, sampled again.
    """
    provider = TracerProvider(sampler=ParentBased(DropsFirst()))
    traces = Traces(sampler=ParentBased(DropsFirst()))
    with langfuse_memory("sampled-turns", tracer_provider=provider) as memory:
        two_turns(loop(LangfuseCallbackHandler(memory.client)))
        two_turns(loop(OpenTelemetryHandler(traces.provider)))
        for *calls, turn in (memory.spans(), traces.received()):
            assert [call.parent_id for call in calls] == [turn.span_id] * 2


def test_calls_are_sampled_with_langchains_run() -> None:
    """Under a run of Langfuse's own handler that is not exported nothing else is, either."""
    provider = TracerProvider(sampler=ParentBased(DropsFirst()))
    with langfuse_memory("sampled-runs", tracer_provider=provider) as memory:
        handler = LangfuseCallbackHandler(memory.client)
        runs = [memory.client.start_observation(name="chain") for _ in range(2)]
        for run in runs:
            with handler.in_place_of([SimpleNamespace(_runs={"id": run})], "id"):
                loop(handler).call(hello)
        assert memory.only().parent_id == runs[1].id


def test_the_spans_of_a_turn_lie_under_one_span() -> None:
    """OpenTelemetry: the turn is an invoke_agent span, its calls are chat spans under it."""
    traces = Traces()
    policy = loop(OpenTelemetryHandler(traces.provider))
    with pytest.raises(KeyError), policy.turn() as turn:
        policy.call(hello)
        policy.call(hello)
        raise KeyError
    first, second, root = traces.received()
    assert (root.name, root.parent_id, root.status) == ("invoke_agent chat", None, "error")
    assert root.attributes == {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.agent.name": "chat",
        "honcho_fallback.turn_id": turn.turn_id,
        "honcho_fallback.outcome": "failed",
    }
    assert first.parent_id == second.parent_id == root.span_id
    assert stored(first).type == "GENERATION"


pytest.importorskip("langchain")


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
    """Give one handler to the whole process; it keeps nothing of what has ended."""
    handler = LangfuseCallbackHandler(memory.client)
    set_observers([handler])
    yield handler
    set_observers(None)
    assert not handler._turns
    assert not handler._calls


@VERBS
@pytest.mark.usefixtures("handler")
async def test_the_calls_of_a_run_lie_under_one_agent(verb: str, memory: Memory) -> None:
    """Each run is one trace: an agent that ends with it, and its three generations."""
    agent = made()
    assert last(await run(verb, agent)).text == "done"
    spans = memory.stored()
    _, generations = one_turn(spans)
    assert len(spans) == 4
    assert all(one.metadata["is_fallback"] for one in generations)


@VERBS
@pytest.mark.usefixtures("handler")
async def test_langfuses_own_handler_keeps_its_tree(verb: str, memory: Memory) -> None:
    """Its runs are the parents of the generations, and no agent of ours stands between them."""
    own = CallbackHandler(public_key="pk-memory")
    config = {"callbacks": [own], "metadata": {"workspace": "acme"}}
    assert last(await run(verb, made(), config=config)).text == "done"
    spans = memory.stored()
    by_id = {span.id: span for span in spans}
    agents, generations = split(spans)
    assert (agents, len(generations)) == ([], 3)
    assert [by_id[one.parent_id or ""].name for one in generations] == ["model"] * 3
    assert len({span.trace_id for span in spans}) == 1
    assert {span.name for span in spans if span.type == "TOOL"} == {"look_up", "add"}
    assert not [span for span in spans if "turn_id" in span.metadata]
    assert {one.metadata["workspace"] for one in generations} == {"acme"}
