"""Calls share nothing: threads, tasks, turns, and what a call may change for itself alone."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest
from langchain_core.caches import InMemoryCache
from langchain_core.globals import set_llm_cache
from langchain_core.messages import AIMessageChunk
from langchain_core.rate_limiters import InMemoryRateLimiter

from honcho_fallback import (
    FallbackConfig,
    FallbackConfigError,
    FallbackObserver,
)
from honcho_fallback.testing import StatusError
from honcho_fallback_langchain import FallbackChatModel, FallbackRunnable
from tests.helpers.chat_models import (
    USAGE,
    Joke,
    ScriptedChat,
    alive,
    candidate,
    chat,
    dead,
    failing_over,
    look_up,
)
from tests.helpers.chat_runs import VERBS

if TYPE_CHECKING:
    from collections.abc import Iterator

# Single calls outside of turns are meant to stand alone here.
pytestmark = pytest.mark.filterwarnings("ignore:.*has no effect outside of a turn:UserWarning")


class Half(ScriptedChat):
    """Fail for whoever asks for it."""

    def _parts(self, messages: list[Any], kwargs: dict[str, Any]) -> list[Any]:
        super()._parts(messages, kwargs)
        return [StatusError(503) if "fail" in messages[-1].text else f"from {self.model}"]


def half() -> FallbackChatModel:
    return FallbackChatModel(Half(model="primary", script=[[""]]), alive(), reset="turn")


ASKED = [f"{'fail' if number % 2 else 'answer'} {number}" for number in range(100)]
WANTED = ["from backup" if number % 2 else "from primary" for number in range(100)]


@pytest.mark.parametrize("verb", ["ainvoke", "astream", "astream_events v2"])
async def test_concurrent_tasks_share_nothing(verb: str) -> None:
    """A hundred at once, half failing: no healthy one touches the backup."""
    model = half()
    said = await asyncio.gather(*(VERBS[verb](model, asked) for asked in ASKED))
    assert said == WANTED
    assert len(candidate(model, 1).asked) == 50


@pytest.mark.parametrize("verb", ["invoke", "stream"])
def test_concurrent_threads_share_nothing(verb: str) -> None:
    """The same for threads."""
    model = half()

    def ask(asked: str) -> str:
        return str(asyncio.run(VERBS[verb](model, asked)))

    with ThreadPoolExecutor(16) as pool:
        assert list(pool.map(ask, ASKED)) == WANTED
    assert len(candidate(model, 1).asked) == 50


async def test_batches_share_nothing() -> None:
    """Nor do the items of a batch, sync or async."""
    for batch in (half().batch(ASKED), await half().abatch(ASKED)):  # type: ignore[arg-type] # a list of str is fine
        assert [answer.text for answer in batch] == WANTED


def turning(**fields: Any) -> FallbackChatModel:
    """Make a chain that stays, for a turn, where it works."""
    return FallbackChatModel(chat("primary", StatusError(503), "from primary"), alive(), **fields)


@pytest.mark.parametrize("verb", VERBS)
async def test_a_turn_stays_where_it_works(verb: str) -> None:
    """The next turn starts on the primary again."""
    model = turning(reset="turn")
    with model.turn():
        said = [await VERBS[verb](model, "hi") for _ in range(2)]
    assert said == ["from backup", "from backup"]
    assert len(candidate(model, 0).asked) == 1
    async with model.turn():
        assert await VERBS[verb](model, "hi") == "from primary"


def test_a_turn_holds_for_what_was_derived_from_the_model() -> None:
    """Tools, bindings, other options: all of one user's turn."""
    model = turning(reset="turn")
    with model.turn():
        assert model.invoke("hi").text == "from backup"
        for made in (
            model.bind_tools([look_up]),
            model.bind(seed=1).with_fallback_config(agent="other"),
            model.with_config(tags=["t"]),
        ):
            assert made.invoke("hi").text == "from backup"
        assert model.with_fallback_config(reset="iteration").invoke("hi").text == "from primary"


@pytest.mark.parametrize("verb", VERBS)
async def test_a_turn_travels_in_a_config(verb: str) -> None:
    """To threads and tasks that no context variable reaches."""
    model = turning(reset="turn")
    config = {"configurable": {"fallback_turn": model.turn()}}
    assert [await VERBS[verb](model, "hi", config) for _ in range(2)] == ["from backup"] * 2
    assert await VERBS[verb](model, "hi") == "from primary"


@pytest.mark.parametrize("sent", [{"position": 1}, "turn", 1, None])
async def test_only_a_turn_is_one(sent: Any) -> None:
    """What a remote caller could send is no turn."""
    model = turning(reset="turn")
    config: Any = {"configurable": {"fallback_turn": sent}}
    said = [model.invoke("hi", config).text for _ in range(2)]
    assert said == ["from backup", "from primary"]


def test_a_turn_of_another_chain_is_refused() -> None:
    """Its position means nothing here."""
    turn = turning(reset="turn").turn()
    with pytest.raises(FallbackConfigError, match="another policy"):
        turning(reset="turn").invoke("hi", {"configurable": {"fallback_turn": turn}})


def test_runnables_have_turns_as_well() -> None:
    """A turn on a chain of chains, and a chat model's for its structured output."""
    primary, backup = dead(), alive()
    chain = FallbackRunnable(primary, backup, reset="turn")
    with chain.turn():
        chain.invoke("hi")
        chain.with_fallback_config(agent="a").invoke("hi")
    assert (len(primary.asked), len(backup.asked)) == (1, 2)

    call: Any = {"name": "Joke", "args": '{"setup": "a"}', "id": "c1", "index": 0}
    primary, backup = (
        dead(),
        chat("backup", "hi", AIMessageChunk(content="", tool_call_chunks=[call])),
    )
    model = FallbackChatModel(primary, backup, reset="turn")
    structured = model.with_structured_output(Joke)
    with model.turn():
        model.invoke("hi")
        assert structured.invoke("hi") == Joke(setup="a")
    assert (len(primary.asked), len(backup.asked)) == (1, 2)


@pytest.mark.parametrize("verb", VERBS)
async def test_a_call_can_bring_its_own_policy(verb: str) -> None:
    """As a FallbackConfig object, for this call alone."""
    model = failing_over()
    only = FallbackConfig(fallback_on={"rate_limit"})
    with pytest.raises(StatusError):
        await VERBS[verb](model, "hi", {"configurable": {"fallback_config": only}})
    assert await VERBS[verb](model, "hi") == "from backup"


@pytest.mark.parametrize("sent", [{"fallback_on": ["rate_limit"]}, "{}", ["x"], None, 3])
@pytest.mark.parametrize("verb", ["invoke", "astream"])
async def test_what_a_remote_caller_sends_is_ignored(sent: Any, verb: str) -> None:
    """Strings, dicts and lists travel over a wire; the policy is not for them to change."""
    config = {"configurable": {"fallback_config": sent}}
    assert await VERBS[verb](failing_over(), "hi", config) == "from backup"


def test_a_policy_of_a_calls_own_keeps_label_observers_and_turn() -> None:
    """Only the options change."""
    told: list[Any] = []

    class Notes(FallbackObserver):
        def on_start(self, call: Any) -> None:
            told.append(call.agent)

        def on_switch(self, switch: Any) -> None:
            told.append(switch.failure.kind.value)

        def on_finish(self, record: Any) -> None:
            told.append((record.outcome, record.usage and record.usage["total_tokens"]))

    model = turning(agent="me", observers=[Notes()])
    config: Any = {"configurable": {"fallback_config": FallbackConfig(reset="turn")}}
    with model.turn():
        assert [model.invoke("hi", config).text for _ in range(2)] == ["from backup"] * 2
    one = ["me", "overloaded", ("success", 15)]
    assert told == [*one, "me", ("success", 15)]


@pytest.mark.parametrize("verb", ["stream", "astream"])
async def test_usage_told_in_pieces_is_added_up(verb: str) -> None:
    """As Anthropic tells it: the input with the first chunk, the output with the last."""
    told: list[Any] = []

    class Notes(FallbackObserver):
        def on_start(self, call: Any) -> None: ...

        def on_switch(self, switch: Any) -> None: ...

        def on_finish(self, record: Any) -> None:
            told.append(record.usage)

    first = AIMessageChunk(content="", usage_metadata=USAGE)
    model = FallbackChatModel(chat("a", [first, "x"]), observers=[Notes()])
    await VERBS[verb](model, "hi")
    assert [usage["total_tokens"] for usage in told] == [30]


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
    model = turning()
    assert model.generate([[]]).generations[0][0].text == "from backup"
    assert model.generate([[]]).generations[0][0].text == "from primary"
    assert len(candidate(model, 0).asked) == 2
    assert len(cache._cache) == 2  # one each, under the candidate's own key


def test_each_candidate_keeps_its_own_rate_limiter() -> None:
    """The wrapper has none: a waiting primary would hold up the fallback."""
    limiter = InMemoryRateLimiter(requests_per_second=1000, check_every_n_seconds=0.001)
    model = FallbackChatModel(dead(), alive(), rate_limiter=limiter)
    assert model.rate_limiter is None
    assert [target.client.rate_limiter for target in model.policy.targets] == [limiter, limiter]
    assert model.invoke("hi").text == "from backup"


def test_the_callers_messages_stay_as_they_were() -> None:
    """Nothing is written to what was passed in."""
    asked = [alive().invoke("hi")]
    before = asked[0].model_dump()
    failing_over().invoke(asked)
    assert asked[0].model_dump() == before
