"""What a config changes: the policy and the turn for one call, and whose conversation it is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from langchain_core.messages import AIMessageChunk
from langchain_core.runnables import RunnableLambda
from langgraph.checkpoint.memory import InMemorySaver

from honcho_fallback import (
    Cooldown,
    FallbackConfig,
    FallbackConfigError,
    FallbackExhausted,
    OutcomeUnknown,
)
from honcho_fallback.testing import StatusError
from honcho_fallback_langchain import FallbackChatModel, FallbackMiddleware
from tests.helpers.agents import ROUNDS, WAYS, agent, by, last, run
from tests.helpers.chat_models import alive, candidate, chat, dead, look_up, with_fallbacks
from tests.helpers.chat_runs import SILENT_VERBS, VERBS
from tests.helpers.observers import Listener

if TYPE_CHECKING:
    from langchain_core.runnables import RunnableConfig

pytestmark = [
    pytest.mark.filterwarnings("ignore::langchain_core._api.LangChainBetaWarning"),
    # Single calls outside of turns are meant to stand alone here.
    pytest.mark.filterwarnings("ignore:.*has no effect outside of a turn:UserWarning"),
]

each_verb = pytest.mark.parametrize("verb", VERBS)
TASKS = pytest.mark.parametrize("verb", ["invoke", "ainvoke"])
MUST: Any = {"must_not_degrade": True, "max_attempts": 1}


def own(**options: Any) -> Any:
    """Make a config with a policy of the call's own."""
    return {"configurable": {"fallback_config": FallbackConfig(**options)}}


@each_verb
async def test_a_call_can_bring_its_own_policy(verb: str) -> None:
    """As a FallbackConfig object, for this call alone; it knows the same models.

    A cooldown in it: the primary is asked by the first call only.
    """
    primary, backup = dead(), alive()
    model, config = FallbackChatModel(primary, backup), own(cooldown=Cooldown(after=1, base=60))
    with pytest.raises(StatusError):
        await VERBS[verb](model, "hi", own(fallback_on={"rate_limit"}))
    for _ in range(3):
        assert await VERBS[verb](model, "hi", config) == "from backup"
    assert len(primary.asked) == 2
    assert await VERBS[verb](model, "hi") == "from backup"


@pytest.mark.parametrize("way", WAYS)
@TASKS
async def test_a_judge_is_never_degraded(way: str, verb: str) -> None:
    """`must_not_degrade` fails closed, whoever says so: a config of the call, or a copy."""
    primary, backup = dead(), alive()
    *model, given = by(way, primary, backup)
    for one, config in ((given, own(**MUST)), (given.with_fallback_config(**MUST), None)):
        with pytest.raises((FallbackExhausted, StatusError)):
            await run(verb, agent(*model, one), config=config)
        if way == "chat model":
            with pytest.raises((FallbackExhausted, StatusError)):
                await VERBS[verb](one, "hi", config)
    assert backup.asked == []


@pytest.mark.parametrize("verb", SILENT_VERBS)
async def test_what_is_asked_without_a_run_has_the_config_around_it(verb: str) -> None:
    """In a chain or a graph, `generate` and the events' third version are no way around a gate."""
    primary, backup = dead(), alive()
    judge = FallbackChatModel(primary, backup)

    async def ask(word: str) -> str:
        answer: str = await SILENT_VERBS[verb](judge, word)
        return answer

    with pytest.raises(FallbackExhausted):
        await RunnableLambda(ask).ainvoke("hi", own(**MUST))
    assert backup.asked == []


def test_one_call_is_careful_by_its_config() -> None:
    """What may have had an effect is not made again; who lacks a label is not asked.

    Where nobody is left nobody is, not even by a chain of models that are not its own.
    """
    backup = alive()
    model = FallbackChatModel(dead(status=500), backup)
    with pytest.raises(OutcomeUnknown):
        model.invoke("hi", config=own(replay="safe"))
    assert not backup.asked
    assert model.invoke("hi").text == "from backup"
    primary = alive("primary")
    chain = with_fallbacks(primary, [alive("near").model_copy(update={"tags": ["eu"]})])
    assert chain.invoke("hi", config=own(require={"eu"})).text == "from near"
    with pytest.raises(FallbackConfigError, match="near: it lacks the label 'us'"):
        chain.invoke("hi", config=own(require={"us"}))
    assert not primary.asked
    assert chain.invoke("hi").text == "from primary"


@pytest.mark.parametrize("sent", [{"must_not_degrade": True}, "{}", ["x"], None, 3])
@TASKS
async def test_what_a_remote_caller_sends_is_ignored(sent: Any, verb: str) -> None:
    """Strings, dicts and lists travel over a wire: only the very classes count."""
    config: Any = {"configurable": {"fallback_config": sent, "fallback_turn": sent}}
    made = agent(dead(), FallbackMiddleware(alive()))
    assert last(await run(verb, made, config=config)).text == "from backup"
    model = turning(reset="turn")
    said = [await VERBS[verb](model, "hi", config) for _ in range(2)]
    assert said == ["from backup", "from primary"]


def test_a_policy_of_a_calls_own_keeps_label_observers_and_turn() -> None:
    """Only the options change."""
    heard = Listener()
    model = turning(agent="me", observers=[heard])
    with model.turn():
        said = [model.invoke("hi", own(reset="turn")).text for _ in range(2)]
    assert said == ["from backup"] * 2
    assert [one.agent for one in heard.starts] == ["me", "me"]
    assert len(heard.switches) == 1
    assert [one.usage and one.usage["total_tokens"] for one in heard.records] == [15, 15]


# Turns.


def turning(**fields: Any) -> FallbackChatModel:
    """Make a chain that stays, for a turn, where it works."""
    return FallbackChatModel(chat("primary", StatusError(503), "from primary"), alive(), **fields)


@each_verb
async def test_a_turn_stays_where_it_works(verb: str) -> None:
    """The next turn starts on the primary again.

    In a config it travels to threads and tasks that no context variable reaches.
    """
    model = turning(reset="turn")
    with model.turn():
        said = [await VERBS[verb](model, "hi") for _ in range(2)]
    assert said == ["from backup", "from backup"]
    assert len(candidate(model, 0).asked) == 1
    async with model.turn():
        assert await VERBS[verb](model, "hi") == "from primary"
    model = turning(reset="turn")
    config = {"configurable": {"fallback_turn": model.turn()}}
    assert [await VERBS[verb](model, "hi", config) for _ in range(2)] == ["from backup"] * 2
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


def test_a_turn_of_another_chain_is_refused() -> None:
    """Its position means nothing here."""
    turn = turning(reset="turn").turn()
    with pytest.raises(FallbackConfigError, match="another policy"):
        turning(reset="turn").invoke("hi", {"configurable": {"fallback_turn": turn}})


# With `reset="session"` a conversation stays with whom its prompt cache is warm, over many runs.


def uncached(rounds: Any) -> list[Any]:
    """Let each answer say that nothing was read from a cache."""
    counts = {"input_tokens": 5, "output_tokens": 1, "total_tokens": 6}
    usage: Any = counts | {"input_token_details": {"cache_read": 0}}
    parts = [one if isinstance(one, list) else [one] for one in rounds]
    return [[*one, AIMessageChunk(content="", usage_metadata=usage)] for one in parts]


def named(key: str, name: Any) -> RunnableConfig:
    return {"configurable": {key: name}}


@pytest.mark.parametrize("verb", ["invoke", "ainvoke"])
async def test_an_agents_thread_stays(verb: str) -> None:
    """Its next run begins with who answered the last one; another thread on the primary.

    Within a run nobody goes back, though nothing was cached; the next run does.
    """
    for script, names, asked in (
        (["from backup"], "ttu", (2, 2)),
        (uncached(ROUNDS), "tt", (2, 3)),
    ):
        primary, backup = chat("primary", StatusError(503), "again"), chat("backup", *script)
        middleware = FallbackMiddleware(backup, reset="session")
        made = agent(primary, middleware, checkpointer=InMemorySaver())
        for name in names:
            await run(verb, made, config=named("thread_id", name))
        assert (len(primary.asked), len(backup.asked)) == asked


@pytest.mark.parametrize("key", ["thread_id", "session_id"])
def test_a_chat_models_conversation_stays(key: str) -> None:
    """By LangGraph's name for it and by that of a history of messages; a number is a name, too."""
    primary, backup = chat("primary", StatusError(503), "again"), alive()
    model = FallbackChatModel(primary, backup).with_fallback_config(reset="session")
    for name in (7, 7, 8):
        model.invoke("hi", named(key, name))
    assert (len(primary.asked), len(backup.asked)) == (2, 2)
