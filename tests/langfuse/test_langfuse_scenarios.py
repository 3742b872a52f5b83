"""Every way of asking and of ending, over SDKs, LangChain and LiteLLM: one generation each."""

from __future__ import annotations

import asyncio
from contextlib import nullcontext
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, ClassVar

import openai
import pytest
from langchain.agents import create_agent
from langchain_anthropic import ChatAnthropic
from langchain_core.runnables import RunnableLambda
from langchain_openai import ChatOpenAI
from langfuse.langchain import CallbackHandler
from litellm import Router
from litellm.llms.custom_httpx.async_client_cleanup import close_litellm_async_clients

from honcho_fallback_langchain import FallbackChatModel, FallbackMiddleware
from honcho_fallback_langfuse import LangfuseCallbackHandler
from honcho_fallback_litellm import FallbackRoutingStrategy, warm_up
from tests.helpers.langfuse_scenarios import ENDINGS, MODES, check, play, spread
from tests.helpers.langfuse_server import stored
from tests.helpers.langfuse_speakers import (
    BUCKETS,
    MESSAGES,
    SECRET,
    TEXT,
    RawAnthropic,
    RawOpenAI,
    Speaker,
)
from tests.helpers.litellm_runs import litellm_left_clean

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterator, Sequence

    from langfuse import Langfuse

    from honcho_fallback import FallbackObserver
    from tests.helpers.langfuse_server import Memory
    from tests.helpers.otlp import OtlpReceiver


class OverLangChain(Speaker):
    """Ask over LangChain's models."""

    def __init__(self, url: str, config: Any = None) -> None:
        super().__init__(url)
        self.config = config

    def model(self, behaviour: str) -> Any:
        raise NotImplementedError

    def calls(self, chain: Sequence[str], observer: FallbackObserver) -> Any:
        models = [self.model(behaviour) for behaviour in chain]
        options: Any = {"agent": "deriver", "max_attempts": 2, "observers": [observer]}
        model, asked = FallbackChatModel(*models, **options), (MESSAGES, self.config)
        return SimpleNamespace(
            call=lambda: model.invoke(*asked),
            acall=lambda: model.ainvoke(*asked),
            stream=lambda: model.stream(*asked),
            astream=lambda: model.astream(*asked),
        )

    def has_content(self, chunk: Any) -> object:
        return chunk.text


class OpenAIModels(OverLangChain):
    """Ask ChatOpenAI."""

    provider = "openai"
    parameters: ClassVar[dict[str, Any]] = {"temperature": 0.5}

    def model(self, behaviour: str) -> Any:
        return ChatOpenAI(
            model=f"{behaviour}-model",
            base_url=f"{self.url}/{behaviour}",
            api_key=SECRET,
            temperature=0.5,
        )


class AnthropicModels(OverLangChain):
    """Ask ChatAnthropic."""

    provider = "anthropic"
    parameters: ClassVar[dict[str, Any]] = {"max_tokens": 9}

    def model(self, behaviour: str) -> Any:
        options: Any = {"model": f"{behaviour}-model", "api_key": SECRET, "max_tokens": 9}
        return ChatAnthropic(base_url=f"{self.url}/{behaviour}", **options)


def stock() -> CallbackHandler:
    """Return Langfuse's own handler."""
    return CallbackHandler(public_key="pk-memory")


class RouterCalls:
    """Ask a Router."""

    def __init__(self, router: Any) -> None:
        self._router = router
        self._asked: dict[str, Any] = {"model": "deriver", "messages": MESSAGES, "top_p": 0.9}

    def call(self) -> Any:
        return self._router.completion(**self._asked)

    async def acall(self) -> Any:
        try:
            return await self._router.acompletion(**self._asked)
        finally:
            await close_litellm_async_clients()

    def stream(self) -> Any:
        return self._router.completion(**self._asked, stream=True)

    async def astream(self) -> AsyncGenerator[Any]:
        try:
            chunks = await self._router.acompletion(**self._asked, stream=True)
            try:
                async for chunk in chunks:
                    yield chunk
            finally:
                await chunks.aclose()
        finally:
            await close_litellm_async_clients()


class OverLiteLLM(Speaker):
    """Ask deployments behind a Router."""

    parameters: ClassVar[dict[str, Any]] = {"top_p": 0.9}
    raises = (openai.OpenAIError,)

    def calls(self, chain: Sequence[str], observer: FallbackObserver) -> RouterCalls:
        router = Router(
            model_list=[
                {
                    "model_name": "deriver",
                    "litellm_params": {
                        "model": f"{self.provider}/{behaviour}-model",
                        "api_base": f"{self.url}/{behaviour}",
                        "api_key": SECRET,
                    },
                    "model_info": {"id": behaviour, "fallback_rank": rank},
                }
                for rank, behaviour in enumerate(chain)
            ]
        )
        FallbackRoutingStrategy(observers=[observer]).register(router)
        return RouterCalls(router)

    def has_content(self, chunk: Any) -> object:
        return chunk.choices and chunk.choices[0].delta.content


class OpenAIDeployments(OverLiteLLM):
    """Ask OpenAI's protocol."""

    provider = "openai"


class AnthropicDeployments(OverLiteLLM):
    """Ask Anthropic's protocol, of whose errors in a stream LiteLLM makes a 500."""

    provider = "anthropic"
    blurred_kinds: ClassVar[dict[str, str]] = {"interrupted": "server_error"}


SPEAKERS: dict[str, dict[str, Any]] = {
    "the SDK": {"openai": RawOpenAI, "anthropic": RawAnthropic},
    "LangChain": {"openai": OpenAIModels, "anthropic": AnthropicModels},
    "LiteLLM": {"openai": OpenAIDeployments, "anthropic": AnthropicDeployments},
}
# LiteLLM's own, and what it leaves open.
MARKS = {"LiteLLM": [pytest.mark.filterwarnings("ignore")]}
EVERY_WAY = [
    pytest.param(over, *case, marks=MARKS.get(over, []))
    for over in SPEAKERS
    for case in spread(["openai", "anthropic"], [False, True])
]


@pytest.fixture(scope="module", autouse=True)
def warmed() -> None:
    """Pay LiteLLM's lazy imports once, outside of any test's time."""
    warm_up()


@pytest.fixture(autouse=True)
def clean_litellm() -> Iterator[None]:
    """Leave LiteLLM's global lists as they were: every Router adds to them."""
    with litellm_left_clean():
        yield


@pytest.mark.parametrize(("over", "mode", "name", "who", "surrounded"), EVERY_WAY)
def test_one_generation_tells_the_call(  # the table's columns
    over: str, mode: str, name: str, who: str, surrounded: bool, memory: Memory, providers: str
) -> None:
    """One generation: who answered, what it cost, nothing of the failure but a fact.

    HON-061 to HON-066, HON-068; HON-069: is_fallback is asserted, both ways; HON-071: alone, the
    generation is the whole trace, which has the agent's name; HON-075: no provider's text. Around
    it is the user's observation or, over LangChain, Langfuse's own handler, which adds nothing.
    """
    speaker = SPEAKERS[over][who](providers)
    handler = LangfuseCallbackHandler(memory.client)
    around: Any = nullcontext()
    if surrounded and over == "LangChain":
        speaker.config = {"callbacks": [stock()]}
    elif surrounded:
        around = memory.client.start_as_current_observation(name="request")
    with around as request:
        play(mode, name, speaker, handler)
    one, *outer = memory.stored()
    check(one, mode, name, speaker)
    if request is None:
        assert (outer, one.parent_id, one.trace_name) == ([], None, "deriver")
    else:
        assert [(span.type, span.trace_name) for span in outer] == [("SPAN", "request")]
        assert (one.trace_id, one.parent_id) == (request.trace_id, request.id)
        assert one.trace_name is None
    assert SECRET not in repr(memory.spans())
    assert len(handler._calls) == 0


@pytest.mark.parametrize("name", ENDINGS)
def test_the_wire_carries_the_same(
    name: str, wire: OtlpReceiver, wire_client: Langfuse, providers: str
) -> None:
    """What leaves the process, packed and signed, means the same to a server."""
    speaker = RawOpenAI(providers)
    handler = LangfuseCallbackHandler(wire_client)
    play("astream", name, speaker, handler)
    assert handler.flush(10)
    (export,) = wire.exports
    assert export.credentials == ("pk-wire", "sk-wire")
    assert export.headers["content-type"] == "application/x-protobuf"
    (span,) = export.spans
    check(stored(span), "astream", name, speaker)


@pytest.mark.parametrize("mode", MODES)
def test_a_provider_that_counts_nothing_is_not_counted_for(
    mode: str, memory: Memory, providers: str
) -> None:
    """HON-068: without counts from a local model there is no usage, and no invented number."""
    speaker = RawOpenAI(providers)
    handler = LangfuseCallbackHandler(memory.client)
    MODES[mode](speaker.calls(["quiet"], handler), speaker, ENDINGS["no fallback"])
    one = memory.only()
    assert (one.usage, one.metadata["usage_source"]) == ({}, "none")
    assert one.output["content"] == TEXT


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
@pytest.mark.parametrize("who", ["openai", "anthropic"])
def test_an_agent_makes_one_generation_of_each_model_call(
    who: str, mode: str, own: bool, memory: Memory, providers: str
) -> None:
    """Around an agent's model, too: the message is shown, not the object that holds it."""
    speaker, handler = (
        SPEAKERS["LangChain"][who](providers),
        LangfuseCallbackHandler(memory.client),
    )
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
