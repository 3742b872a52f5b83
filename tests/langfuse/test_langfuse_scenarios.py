"""Every way of asking, every way of ending, over real SDKs: one clean generation each."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
from providers import BUCKETS, MESSAGES, SECRET, SPEAKERS, TEXT, WORDS, Speaker
from servermap import Stored, stored

from honcho_fallback import (
    FallbackConfig,
    FallbackExhausted,
    FallbackPolicy,
    FallbackRun,
    StreamInterrupted,
)
from honcho_fallback_langfuse import LangfuseCallbackHandler

if TYPE_CHECKING:
    from collections.abc import Callable

    from langfuse import Langfuse
    from memory import Memory

    from honcho_fallback.testing import OtlpReceiver

NONE = {"input": 0, "output": 0, "total": 0}


@dataclass(frozen=True)
class Ending:
    """How a call goes, and what a server stores of it."""

    chain: tuple[str, ...]
    model: str
    level: str
    outcome: str
    is_fallback: bool = False
    reason: str | None = None
    raises: type[BaseException] | None = None
    reads: int | None = None  # chunks the reader takes before it leaves
    cancels: int | None = None  # chunks it has when it is cancelled
    streams_only: bool = False
    attempts: tuple[str | None, ...] = (None,)
    answers: bool = True


BUSY = {"openai": "overloaded InternalServerError 503", "anthropic": "overloaded"}

ENDINGS = {
    "no fallback": Ending(("ok", "busy"), "ok-model", "DEFAULT", "success"),
    "fallback": Ending(
        ("busy", "ok"),
        "ok-model",
        "WARNING",
        "success",
        is_fallback=True,
        reason="overloaded",
        attempts=("overloaded", None),
    ),
    "exhausted": Ending(
        ("busy", "busy2"),
        "busy2-model",
        "ERROR",
        "exhausted",
        reason="overloaded",
        raises=FallbackExhausted,
        attempts=("overloaded", "overloaded"),
        answers=False,
    ),
    "rejected": Ending(
        ("denied", "ok"),
        "denied-model",
        "ERROR",
        "rejected",
        raises=Exception,
        attempts=("invalid_request",),
        answers=False,
    ),
    "cancelled": Ending(
        ("ok", "busy"),
        "ok-model",
        "WARNING",
        "cancelled",
        raises=BaseException,
        cancels=0,
        attempts=("cancelled",),
        answers=False,
    ),
    "abandoned": Ending(
        ("busy", "ok"),
        "ok-model",
        "WARNING",
        "abandoned",
        is_fallback=True,
        reason="overloaded",
        reads=1,
        streams_only=True,
        attempts=("overloaded", None),
    ),
    "interrupted": Ending(
        ("busy", "broken"),
        "broken-model",
        "ERROR",
        "interrupted",
        reason="overloaded",
        raises=StreamInterrupted,
        streams_only=True,
        attempts=("overloaded", "overloaded"),
    ),
}


def asking(speaker: Speaker, ending: Ending) -> Callable[[Any], Any]:
    def ask(attempt: Any) -> Any:
        if ending.cancels is not None:
            raise KeyboardInterrupt
        return speaker.ask(attempt)

    return ask


def play_sync(policy: FallbackPolicy, run: FallbackRun, speaker: Speaker, ending: Ending) -> None:
    policy.call(asking(speaker, ending), run=run)


def play_async(policy: FallbackPolicy, run: FallbackRun, speaker: Speaker, ending: Ending) -> None:
    async def play() -> None:
        asked = asyncio.Event()

        async def ask(attempt: Any) -> Any:
            if ending.cancels is None:
                return await speaker.aask(attempt)
            asked.set()
            return await asyncio.Event().wait()

        calling = asyncio.ensure_future(policy.acall(ask, run=run))
        if ending.cancels is not None:
            await asked.wait()
            calling.cancel()
        await calling

    asyncio.run(play())


def play_stream(
    policy: FallbackPolicy, run: FallbackRun, speaker: Speaker, ending: Ending
) -> None:
    ask = speaker.stream if ending.cancels is None else asking(speaker, ending)
    chunks = policy.stream(ask, has_content=speaker.has_content, run=run)
    if ending.reads is None:
        list(chunks)
        return
    while not speaker.has_content(next(chunks)):
        pass
    chunks.close()


def play_astream(
    policy: FallbackPolicy, run: FallbackRun, speaker: Speaker, ending: Ending
) -> None:
    async def play() -> None:
        asked = asyncio.Event()

        async def ask(attempt: Any) -> Any:
            if ending.cancels is None:
                return speaker.astream(attempt)
            asked.set()
            return await asyncio.Event().wait()

        chunks = policy.astream(ask, has_content=speaker.has_content, run=run)
        if ending.reads is not None:
            while not speaker.has_content(await anext(chunks)):
                pass
            await chunks.aclose()
            return

        async def read() -> list[Any]:
            return [chunk async for chunk in chunks]

        reading = asyncio.ensure_future(read())
        if ending.cancels is not None:
            await asked.wait()
            reading.cancel()
        await reading

    asyncio.run(play())


MODES = {
    "sync": play_sync,
    "async": play_async,
    "stream": play_stream,
    "astream": play_astream,
}
CASES = [
    (mode, name)
    for name, ending in ENDINGS.items()
    for mode in MODES
    if "stream" in mode or not ending.streams_only
]


def play(mode: str, name: str, speaker: Speaker, handler: LangfuseCallbackHandler) -> None:
    """Make one call as a service would."""
    ending = ENDINGS[name]
    policy = FallbackPolicy(
        [speaker.target(behaviour) for behaviour in ending.chain],
        FallbackConfig(max_attempts=2),
        agent="deriver",
        observers=[handler],
    )
    run = policy.start()
    run.tell(input=MESSAGES, parameters={"top_p": 0.9})
    if ending.raises is None:
        MODES[mode](policy, run, speaker, ending)
        return
    with pytest.raises(ending.raises):
        MODES[mode](policy, run, speaker, ending)


def check(one: Stored, mode: str, name: str, speaker: Speaker) -> None:
    """Compare what a server stores with what happened."""
    ending, said = ENDINGS[name], one.metadata
    whole = ending.outcome == "success"
    assert (one.type, one.name, one.model) == ("GENERATION", "deriver", ending.model)
    assert (one.level, said["outcome"]) == (ending.level, ending.outcome)
    assert said["is_fallback"] is ending.is_fallback
    provider = speaker.name
    assert (said["primary_provider"], said["primary_model"]) == (
        provider,
        f"{ending.chain[0]}-model",
    )
    if ending.is_fallback:
        assert (said["fallback_provider"], said["fallback_model"]) == (provider, ending.model)
    else:
        assert not {"fallback_provider", "fallback_model"} & said.keys()
    assert str(said.get("fallback_reason")).partition(" ")[0] == str(ending.reason)
    assert tuple(attempt.get("kind") for attempt in said["attempts"]) == ending.attempts
    assert all(type(attempt["milliseconds"]) is int for attempt in said["attempts"])
    assert one.input == MESSAGES
    assert one.parameters == {**speaker.parameters, "top_p": 0.9}
    check_answer(one, ending, provider)
    assert (one.first_token is not None) == ("stream" in mode and ending.answers)
    assert one.start <= one.end
    if whole:
        assert one.usage == BUCKETS[provider]
        assert said["usage_source"] == "provider"


def check_answer(one: Stored, ending: Ending, provider: str) -> None:
    """Compare the answer, or the part of it that was seen."""
    if not ending.answers:
        assert one.output is None
        assert one.usage == NONE
        assert one.metadata["usage_source"] == "none"
        return
    text = TEXT if ending.outcome == "success" else WORDS[0]
    assert one.output["content"] == text
    if ending.outcome != "success" and provider == "openai":
        # Its usage would have come with the end; nothing is invented.
        assert one.usage == {}
        assert one.metadata["usage_source"] == "none"


@pytest.mark.parametrize("nested", [False, True], ids=["alone", "nested"])
@pytest.mark.parametrize(("mode", "name"), CASES)
@pytest.mark.parametrize("who", SPEAKERS)
def test_one_generation_tells_the_call(  # the table's columns
    who: str, mode: str, name: str, nested: bool, memory: Memory, providers: str
) -> None:
    """HON-061 to HON-065: one generation, who answered, what it cost, no span for a failure."""
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
    speaker = SPEAKERS["raw openai"](providers)
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
    speaker = SPEAKERS["raw openai"](providers)
    handler = LangfuseCallbackHandler(memory.client)
    asking = FallbackPolicy([speaker.target("quiet")], observers=[handler])
    MODES[mode](asking, asking.start(), speaker, ENDINGS["no fallback"])
    one = memory.only()
    assert (one.usage, one.metadata["usage_source"]) == ({}, "none")
    assert one.output["content"] == TEXT
