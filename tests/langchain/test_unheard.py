"""Where nobody listens, candidates are asked without a run; nothing else may differ."""

from __future__ import annotations

from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage
from langchain_core.prompt_values import ChatPromptValue
from langchain_core.rate_limiters import InMemoryRateLimiter

from honcho_fallback.testing import StatusError
from honcho_fallback_langchain import FallbackChatModel, FallbackRunnable
from tests.helpers.chat_models import (
    ScriptedChat,
    alive,
    candidate,
    chat,
    dead,
    failing_over,
    look_up,
)
from tests.helpers.chat_runs import Runs

VERBS = ["invoke", "ainvoke"]


async def ask(verb: str, model: Any, asked: Any = "hi", config: Any = None) -> Any:
    if verb == "invoke":
        return model.invoke(asked, config)
    return await model.ainvoke(asked, config)


IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
ASKED: dict[str, Any] = {
    "text": "hi",
    "pairs": [("system", "be brief"), ("human", "hi")],
    "messages": [SystemMessage("be brief"), HumanMessage("hi"), AIMessage("yes")],
    "prompt": ChatPromptValue(messages=[HumanMessage("hi")]),
    "blocks": [HumanMessage([{"type": "text", "text": "what is this"}, IMAGE])],
    "v1 blocks": [
        HumanMessage([{"type": "image", "base64": "AAAA", "mime_type": "image/png"}]),
    ],
}


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("asked", ASKED)
async def test_a_candidate_is_asked_the_same(asked: str, verb: str) -> None:
    """With a listener or without: the same messages, keywords and answer, whatever the input."""
    seen: list[Any] = []
    for config in ({}, {"callbacks": [Runs()]}):
        model = failing_over()
        bound: Any = model.bind_tools([look_up]).bind(stop=["x"]).with_config(tags=["t"])
        answer = await ask(verb, bound, ASKED[asked], config)
        assert answer.id.startswith("lc_run-")
        told = answer.model_dump(exclude={"id": True, "response_metadata": {"fallback"}})
        seen.append((told, *(candidate(model, position).asked for position in (0, 1))))
    assert seen[0] == seen[1]


@pytest.mark.parametrize("verb", VERBS)
async def test_each_answer_has_an_id_of_its_own(verb: str) -> None:
    """Graphs tell messages apart by it; an id that the provider gave stays."""
    model = failing_over()
    first, second = await ask(verb, model), await ask(verb, model)
    assert first.id != second.id

    class Named(ScriptedChat):
        def _generate(self, *args: Any, **kwargs: Any) -> Any:
            result = super()._generate(*args, **kwargs)
            result.generations[0].message.id = "given"
            return result

    named = FallbackChatModel(dead(), Named(model="backup", script=[["a"]]))
    assert (await ask(verb, named)).id == "given"


@pytest.mark.parametrize("verb", VERBS)
async def test_a_candidates_own_handlers_hear_of_its_runs(verb: str) -> None:
    """On the model itself, or bound to it."""
    attached: list[Any] = [
        lambda runs: chat("backup", "from backup", callbacks=[runs]),
        lambda runs: alive().with_config(callbacks=[runs]),
        lambda runs: alive().bind(seed=1).with_config(callbacks=[runs], tags=["t"]),
    ]
    for attach in attached:
        runs = Runs()
        await ask(verb, FallbackChatModel(dead(), attach(runs)))
        assert [run.ends for run in runs.models] == [["end"]]


@pytest.mark.parametrize("verb", VERBS)
async def test_verbs_that_a_class_overrides_are_used(verb: str) -> None:
    """A class that wraps its invoke is asked through it; a nested chain falls over by itself."""

    class Wraps(ScriptedChat):
        def invoke(self, *args: Any, **kwargs: Any) -> Any:
            answer = super().invoke(*args, **kwargs)
            return answer.model_copy(update={"content": f"wrapped {answer.text}"})

        async def ainvoke(self, *args: Any, **kwargs: Any) -> Any:
            return self.invoke(*args, **kwargs)

    wraps = Wraps(model="backup", script=[["words"]])
    assert (await ask(verb, FallbackChatModel(dead(), wraps))).text == "wrapped words"
    assert (await ask(verb, FallbackChatModel(dead(), wraps.bind(a=1)))).text == "wrapped words"

    nested = FallbackChatModel(dead("a"), FallbackChatModel(dead("b"), alive("c")))
    answer = await ask(verb, nested)
    assert answer.text == "from c"
    told = answer.response_metadata["fallback"]
    assert told["is_fallback"]
    assert told["model"] == "c"
    assert [attempt["model"] for attempt in told["attempts"]] == ["a", "b", "c"]


class Slow(InMemoryRateLimiter):
    """Count who waited, and let everybody through."""

    def __init__(self) -> None:
        super().__init__()
        self.waited = 0

    def acquire(self, *, blocking: bool = True) -> bool:
        self.waited += 1
        return True

    async def aacquire(self, *, blocking: bool = True) -> bool:
        return self.acquire(blocking=blocking)


async def test_generate_asks_what_does_more_than_hold_keywords() -> None:
    """A candidate's own retry and its rate limiter count where LangChain opened the run, too."""
    limiter = Slow()
    twice = chat("backup", StatusError(503), "yes", rate_limiter=limiter)
    retried = twice.with_retry(stop_after_attempt=2, wait_exponential_jitter=False)
    model = FallbackChatModel(dead(), retried)
    asked: list[list[Any]] = [[HumanMessage("hello")]]
    assert model.generate(asked).generations[0][0].text == "yes"
    assert len(twice.asked) == 2
    limited = chat("backup", "yes", rate_limiter=limiter)
    before = limiter.waited
    assert [chunk.text for chunk in FallbackChatModel(dead(), limited)._stream(asked[0])]
    assert limiter.waited == before + 1
    assert [chunk async for chunk in FallbackChatModel(dead(), limited)._astream(asked[0])]
    assert limiter.waited == before + 2


@pytest.mark.parametrize("verb", VERBS)
async def test_retries_around_a_candidate_are_made(verb: str) -> None:
    """A retry is a binding too, and more than one."""
    flaky = chat("primary", StatusError(503), "late")
    backup = alive()
    retrying = flaky.with_retry(stop_after_attempt=2, wait_exponential_jitter=False)
    assert (await ask(verb, FallbackChatModel(retrying, backup))).text == "late"
    assert backup.asked == []


@pytest.mark.parametrize("verb", VERBS)
async def test_what_is_meant_for_tracers_does_not_reach_the_provider(verb: str) -> None:
    """LangChain takes such keywords out; so is it done where it is not asked."""
    backup = alive()
    bound = backup.bind(ls_structured_output_format={"schema": {}, "kwargs": {}}, seed=1)
    await ask(verb, FallbackRunnable(dead(), bound))
    assert backup.asked[0].kwargs.keys() == {"seed", "stop"}
