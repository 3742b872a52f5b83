"""Calls share nothing: items of a batch, caches, rate limiters, the messages of the caller."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from langchain_core.caches import InMemoryCache
from langchain_core.globals import set_llm_cache
from langchain_core.messages import AIMessageChunk
from langchain_core.rate_limiters import InMemoryRateLimiter

from honcho_fallback.testing import StatusError
from honcho_fallback_langchain import FallbackChatModel
from tests.helpers.chat_models import (
    USAGE,
    ScriptedChat,
    alive,
    candidate,
    chat,
    dead,
    failing_over,
)
from tests.helpers.chat_runs import VERBS
from tests.helpers.observers import Listener

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


async def test_batches_share_nothing() -> None:
    """Nor do the items of a batch, sync or async."""
    for batch in (half().batch(ASKED), await half().abatch(ASKED)):  # type: ignore[arg-type] # a list of str is fine
        assert [answer.text for answer in batch] == WANTED


@pytest.mark.parametrize("verb", ["stream", "astream"])
async def test_usage_told_in_pieces_is_added_up(verb: str) -> None:
    """As Anthropic tells it: the input with the first chunk, the output with the last."""
    heard = Listener()
    first = AIMessageChunk(content="", usage_metadata=USAGE)
    model = FallbackChatModel(chat("a", [first, "x"]), observers=[heard])
    await VERBS[verb](model, "hi")
    assert heard.record.usage is not None
    assert heard.record.usage["total_tokens"] == 30


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


def test_the_callers_messages_stay_as_they_were() -> None:
    """Nothing is written to what was passed in."""
    asked = [alive().invoke("hi")]
    before = asked[0].model_dump()
    failing_over().invoke(asked)
    assert asked[0].model_dump() == before


def test_each_candidate_keeps_its_own_rate_limiter() -> None:
    """The chain has none: a waiting primary would hold up the fallback."""
    limits: Any = {"requests_per_second": 1000, "check_every_n_seconds": 0.001}
    limiters = [InMemoryRateLimiter(**limits) for _ in range(2)]
    models = [chat("primary", StatusError(503)), alive()]
    for model, limiter in zip(models, limiters, strict=True):
        model.rate_limiter = limiter
    made = FallbackChatModel(*models)
    assert made.rate_limiter is None
    assert [target.client.rate_limiter for target in made.policy.targets] == limiters
    assert made.invoke("hi").text == "from backup"
