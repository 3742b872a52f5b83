"""Over LangChain, alone and beside Langfuse's own handler: one clean generation per call."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, ClassVar

import pytest

from honcho_fallback_langfuse import LangfuseCallbackHandler
from tests.helpers.langfuse_scenarios import MODES, check, play, spread
from tests.helpers.langfuse_speakers import BUCKETS, MESSAGES, SECRET, TEXT

if TYPE_CHECKING:
    from collections.abc import Sequence

    from honcho_fallback import FallbackObserver
    from tests.helpers.langfuse_memory import Memory

pytest.importorskip("langchain")

from langchain.agents import create_agent
from langchain_anthropic import ChatAnthropic
from langchain_core.runnables import RunnableLambda
from langchain_openai import ChatOpenAI
from langfuse.langchain import CallbackHandler

from honcho_fallback_langchain import FallbackChatModel, FallbackMiddleware


class ModelCalls:
    """Ask a FallbackChatModel."""

    def __init__(self, model: FallbackChatModel, config: Any) -> None:
        self._model = model
        self._config = config

    def call(self) -> Any:
        return self._model.invoke(MESSAGES, self._config)

    async def acall(self) -> Any:
        return await self._model.ainvoke(MESSAGES, self._config)

    def stream(self) -> Any:
        return self._model.stream(MESSAGES, self._config)

    def astream(self) -> Any:
        return self._model.astream(MESSAGES, self._config)


class OverLangChain:
    """Ask over LangChain's models."""

    provider: str
    parameters: ClassVar[dict[str, Any]]
    raises: tuple[type[BaseException], ...] = ()
    blurred_kinds: ClassVar[dict[str, str]] = {}

    def __init__(self, url: str, config: Any = None) -> None:
        self._url = url
        self._config = config

    def model(self, behaviour: str) -> Any:
        raise NotImplementedError

    def calls(self, chain: Sequence[str], observer: FallbackObserver) -> ModelCalls:
        models = [self.model(behaviour) for behaviour in chain]
        options: Any = {"agent": "deriver", "max_attempts": 2, "observers": [observer]}
        return ModelCalls(FallbackChatModel(*models, **options), self._config)

    def has_content(self, chunk: Any) -> object:
        return chunk.text


class OpenAIModels(OverLangChain):
    """Ask ChatOpenAI."""

    provider = "openai"
    parameters: ClassVar[dict[str, Any]] = {"temperature": 0.5}

    def model(self, behaviour: str) -> Any:
        return ChatOpenAI(
            model=f"{behaviour}-model",
            base_url=f"{self._url}/{behaviour}",
            api_key=SECRET,
            temperature=0.5,
        )


class AnthropicModels(OverLangChain):
    """Ask ChatAnthropic."""

    provider = "anthropic"
    parameters: ClassVar[dict[str, Any]] = {"max_tokens": 9}

    def model(self, behaviour: str) -> Any:
        options: Any = {"model": f"{behaviour}-model", "api_key": SECRET, "max_tokens": 9}
        return ChatAnthropic(base_url=f"{self._url}/{behaviour}", **options)


SPEAKERS = {"openai": OpenAIModels, "anthropic": AnthropicModels}


def stock() -> CallbackHandler:
    """Return Langfuse's own handler."""
    return CallbackHandler(public_key="pk-memory")


@pytest.mark.parametrize(("mode", "name", "who", "own"), spread([*SPEAKERS], [False, True]))
def test_one_generation_tells_the_call(
    mode: str, name: str, who: str, own: bool, memory: Memory, providers: str
) -> None:
    """HON-061 to HON-066, HON-069: over LangChain; Langfuse's own handler adds nothing."""
    speaker = SPEAKERS[who](providers, {"callbacks": [stock()]} if own else None)
    handler = LangfuseCallbackHandler(memory.client)
    play(mode, name, speaker, handler)
    one = memory.only()
    assert (one.parent_id, one.trace_name) == (None, "deriver")
    check(one, mode, name, speaker)
    assert SECRET not in repr(memory.spans())
    assert len(handler._calls) == 0


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", ["fallback", "exhausted"])
def test_it_takes_its_place_under_langfuses_own_run(
    mode: str, name: str, memory: Memory, providers: str
) -> None:
    """In a chain that Langfuse's handler traces, the one generation is a child of its run."""
    speaker, handler = OpenAIModels(providers), LangfuseCallbackHandler(memory.client)

    def step(_: str, config: Any) -> None:
        play(mode, name, OpenAIModels(providers, config), handler)

    chain: Any = RunnableLambda(step).with_config(run_name="chain")
    chain.invoke("go", {"callbacks": [stock()]})
    one, outer = memory.stored()
    assert (outer.type, outer.name) == ("CHAIN", "chain")
    assert (one.trace_id, one.parent_id) == (outer.trace_id, outer.id)
    check(one, mode, name, speaker)


def weather(city: str) -> str:
    """Say what the weather is like."""
    return f"sunny in {city}"


@pytest.mark.parametrize("own", [False, True], ids=["alone", "beside langfuse's own"])
@pytest.mark.parametrize("mode", ["sync", "async"])
@pytest.mark.parametrize("who", SPEAKERS)
def test_an_agent_makes_one_generation_of_each_model_call(
    who: str, mode: str, own: bool, memory: Memory, providers: str
) -> None:
    """Around an agent's model, too: the message is shown, not the object that holds it."""
    speaker, handler = SPEAKERS[who](providers), LangfuseCallbackHandler(memory.client)
    options: Any = {"agent": "deriver", "observers": [handler]}
    agent: Any = create_agent(
        speaker.model("busy"),
        tools=[weather],
        middleware=[FallbackMiddleware(speaker.model("ok"), **options)],
        system_prompt="Be brief",
    )
    config = {"callbacks": [stock()]} if own else None
    asked = {"messages": MESSAGES}
    if mode == "sync":
        agent.invoke(asked, config)
    else:
        asyncio.run(agent.ainvoke(asked, config))
    one, *others = [one for one in memory.stored() if one.type == "GENERATION"]
    assert others == []
    assert (one.name, one.model, one.level) == ("deriver", "ok-model", "WARNING")
    assert one.input == [{"role": "system", "content": "Be brief"}, *MESSAGES]
    assert one.output == {"role": "assistant", "content": TEXT}
    assert one.usage == BUCKETS[who]
    assert one.metadata["is_fallback"] is True
    assert one.parameters == speaker.parameters
    runs = {run.id: run.name for run in memory.stored() if run is not one}
    assert (runs.get(one.parent_id or "") == "model") is own
