"""The ways to ask and to end: how a service plays each, and what a server has to store of it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from honcho_fallback import FallbackExhausted, StreamInterrupted
from tests.helpers.langfuse_speakers import BUCKETS, MESSAGES, TEXT, WORDS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from honcho_fallback import FallbackObserver
    from tests.helpers.langfuse_server import Stored
    from tests.helpers.langfuse_speakers import Speaker

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
    leaves: bool = False  # the reader, after the first content
    streams_only: bool = False
    attempts: tuple[str | None, ...] = (None,)
    answers: bool = True


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
        ("stopped", "busy"),
        "stopped-model",
        "WARNING",
        "cancelled",
        raises=KeyboardInterrupt,
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
        leaves=True,
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


def play_sync(calls: Any, _: Speaker, ending: Ending) -> None:
    calls.call()


def play_async(calls: Any, _: Speaker, ending: Ending) -> None:
    asyncio.run(calls.acall())


def play_stream(calls: Any, speaker: Speaker, ending: Ending) -> None:
    chunks = calls.stream()
    if not ending.leaves:
        list(chunks)
        return
    while not speaker.has_content(next(chunks)):
        pass
    chunks.close()


def play_astream(calls: Any, speaker: Speaker, ending: Ending) -> None:
    async def play() -> None:
        chunks = calls.astream()
        if not ending.leaves:
            async for _ in chunks:
                pass
            return
        while not speaker.has_content(await anext(chunks)):
            pass
        await chunks.aclose()

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


def spread(first: Sequence[str], second: Sequence[Any]) -> list[tuple[str, str, str, Any]]:
    """Return each case once, with two more columns of which every pair of values occurs."""
    places = [(list(MODES).index(mode), list(ENDINGS).index(name)) for mode, name in CASES]
    return [
        (mode, name, first[(m + n) % 2], second[(m // 2 + n // 2 + m * (n % 2)) % 2])
        for (mode, name), (m, n) in zip(CASES, places, strict=True)
    ]


def play(mode: str, name: str, speaker: Speaker, observer: FallbackObserver) -> None:
    ending = ENDINGS[name]
    calls = speaker.calls(ending.chain, observer)
    if ending.raises is None:
        MODES[mode](calls, speaker, ending)
        return
    with pytest.raises((ending.raises, *speaker.raises)):
        MODES[mode](calls, speaker, ending)


def check(one: Stored, mode: str, name: str, speaker: Speaker) -> None:
    ending, metadata = ENDINGS[name], one.metadata
    whole = ending.outcome == "success"
    assert (one.type, one.name, one.model) == ("GENERATION", "deriver", ending.model)
    assert (one.level, metadata["outcome"]) == (ending.level, ending.outcome)
    assert metadata["is_fallback"] is ending.is_fallback
    provider = speaker.provider
    assert (metadata["primary_provider"], metadata["primary_model"]) == (
        provider,
        f"{ending.chain[0]}-model",
    )
    if ending.is_fallback:
        assert (metadata["fallback_provider"], metadata["fallback_model"]) == (
            provider,
            ending.model,
        )
    else:
        assert not {"fallback_provider", "fallback_model"} & metadata.keys()
    assert str(metadata.get("fallback_reason")).partition(" ")[0] == str(ending.reason)
    kinds = [attempt.get("kind") for attempt in metadata["attempts"]]
    assert kinds == [*ending.attempts[:-1], speaker.blurred_kinds.get(name, ending.attempts[-1])]
    assert all(type(attempt["milliseconds"]) is int for attempt in metadata["attempts"])
    assert one.input == MESSAGES
    assert one.parameters == speaker.parameters
    check_answer(one, ending, provider)
    assert (one.first_token is not None) == ("stream" in mode and ending.answers)
    assert one.start <= one.end
    if whole:
        assert one.usage == BUCKETS[provider]
        assert metadata["usage_source"] == "provider"


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
