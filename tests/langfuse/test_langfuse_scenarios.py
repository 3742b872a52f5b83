"""Every way of asking, every way of ending, over real SDKs: one clean generation each."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from honcho_fallback_langfuse import LangfuseCallbackHandler
from tests.helpers.langfuse_scenarios import ENDINGS, MODES, check, play, spread
from tests.helpers.langfuse_server import stored
from tests.helpers.langfuse_speakers import SECRET, TEXT, RawAnthropic, RawOpenAI

if TYPE_CHECKING:
    from langfuse import Langfuse

    from tests.helpers.langfuse_memory import Memory
    from tests.helpers.otlp import OtlpReceiver

SPEAKERS = {"openai": RawOpenAI, "anthropic": RawAnthropic}


@pytest.mark.parametrize(("mode", "name", "who", "nested"), spread([*SPEAKERS], [False, True]))
def test_one_generation_tells_the_call(  # the table's columns
    mode: str, name: str, who: str, nested: bool, memory: Memory, providers: str
) -> None:
    """One generation: who answered, what it cost, nothing of the failure but a fact.

    HON-061 to HON-066, HON-068; HON-069: is_fallback is asserted, both ways; HON-071: alone, the
    generation is the whole trace, which has the agent's name; HON-075: no provider's text.
    """
    speaker = SPEAKERS[who](providers)
    handler = LangfuseCallbackHandler(memory.client)
    if not nested:
        play(mode, name, speaker, handler)
        one = memory.only()
        assert (one.parent_id, one.trace_name) == (None, "deriver")
    else:
        with memory.client.start_as_current_observation(name="request") as request:
            play(mode, name, speaker, handler)
        one, outer = memory.stored()
        assert (outer.name, outer.type, outer.trace_name) == ("request", "SPAN", "request")
        assert (one.trace_id, one.parent_id) == (request.trace_id, request.id)
        assert one.trace_name is None
    check(one, mode, name, speaker)
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
