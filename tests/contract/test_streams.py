"""Streams switch before their first content, and only the answering target's chunks are seen."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from openai.types.chat import ChatCompletionChunk

from honcho_fallback import FailureKind

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.vcr


def _all_of(kind: Any, chunks: list[Any]) -> bool:
    return all(isinstance(chunk, kind) for chunk in chunks)


@pytest.mark.upstream("openai_stream")
async def test_a_primary_that_streams_is_the_only_one_asked(
    sdk: Any, text: Callable[[Any], str]
) -> None:
    """Every chunk of the primary comes through, the last with the usage."""
    chunks = await sdk.chunks(sdk.policy("openai", "anthropic"))

    assert "harbor" in "".join(map(text, chunks)).lower()
    assert chunks[-1].usage.completion_tokens > 0
    assert sdk.asks.asked == ["openai/gpt-5.5"]
    assert sdk.record.outcome == "success"
    assert sdk.record.time_to_first_token is not None


@pytest.mark.upstream("openai_rate_limit", "anthropic_stream")
async def test_anthropics_stream_stands_in_for_openai(
    sdk: Any, text: Callable[[Any], str]
) -> None:
    """A stream refused at its opening is the fallback's from its first event to its last."""
    chunks = await sdk.chunks(sdk.policy("openai", "anthropic"))

    assert [chunks[0].type, chunks[-1].type] == ["message_start", "message_stop"]
    assert "harbor" in "".join(map(text, chunks)).lower()
    assert [a.kind for a in sdk.record.attempts] == [FailureKind.RATE_LIMIT, None]
    assert sdk.record.answered_by == "anthropic/claude-sonnet-5"


@pytest.mark.upstream("anthropic_overloaded", "openai_stream")
async def test_openais_stream_stands_in_for_anthropic(
    sdk: Any, text: Callable[[Any], str]
) -> None:
    """A stream refused at its opening is the fallback's from its first chunk to its last."""
    chunks = await sdk.chunks(sdk.policy("anthropic", "openai"))

    assert _all_of(ChatCompletionChunk, chunks)
    assert "harbor" in "".join(map(text, chunks)).lower()
    assert [a.kind for a in sdk.record.attempts] == [FailureKind.OVERLOADED, None]
    assert sdk.record.answered_by == "openai/gpt-5.5"


@pytest.mark.upstream("anthropic_stream_error", "openai_stream")
async def test_an_error_event_in_a_good_response_is_told_by_its_type(
    sdk: Any, text: Callable[[Any], str]
) -> None:
    """An overload told inside an HTTP 200 stream, before any content, costs one request."""
    chunks = await sdk.chunks(sdk.policy("anthropic", "openai"))

    assert _all_of(ChatCompletionChunk, chunks)
    assert "harbor" in "".join(map(text, chunks)).lower()
    assert [a.kind for a in sdk.record.attempts] == [FailureKind.OVERLOADED, None]
    assert sdk.asks.asked == ["anthropic/claude-sonnet-5", "openai/gpt-5.5"]


@pytest.mark.upstream("openai_overloaded", "local_stream")
async def test_a_stream_on_this_machine_stands_in_for_openai(
    sdk: Any, text: Callable[[Any], str]
) -> None:
    """The local server's chunks come through, the last with the usage."""
    chunks = await sdk.chunks(sdk.policy("openai", "local"))

    assert _all_of(ChatCompletionChunk, chunks)
    assert "".join(map(text, chunks))
    assert chunks[-1].usage.completion_tokens > 0
    assert sdk.record.answered_by == "local/tiny-local"
