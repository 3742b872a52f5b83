"""Every way of asking and of ending, over SDKs and LangChain: one generation each."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, ClassVar

import pytest
from langchain_anthropic import ChatAnthropic
from langchain_openai import ChatOpenAI
from langfuse.langchain import CallbackHandler

from honcho_fallback_langchain import FallbackChatModel
from honcho_fallback_langfuse import LangfuseCallbackHandler
from tests.helpers.langfuse_scenarios import ENDINGS, MODES, check, play, spread
from tests.helpers.langfuse_server import stored
from tests.helpers.langfuse_speakers import (
    MESSAGES,
    SECRET,
    TEXT,
    RawAnthropic,
    RawOpenAI,
    Speaker,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

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


SPEAKERS: dict[str, dict[str, Any]] = {
    "the SDK": {"openai": RawOpenAI, "anthropic": RawAnthropic},
    "LangChain": {"openai": OpenAIModels, "anthropic": AnthropicModels},
}
EVERY_WAY = [
    (over, *case) for over in SPEAKERS for case in spread(["openai", "anthropic"], [False, True])
]


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
