"""What the simulated providers can be told to do."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

import openai
import pytest

from honcho_fallback import FailureKind, FallbackPolicy, Target

if TYPE_CHECKING:
    from collections.abc import Iterator

    from openai.types.chat import ChatCompletionChunk

    from honcho_fallback import Attempt
    from honcho_fallback.testing import FaultSimulator


@pytest.fixture
def policy(faults: FaultSimulator) -> Iterator[FallbackPolicy]:
    """A chain of two simulated providers that speak OpenAI's protocol."""
    with ExitStack() as stack:
        clients = {
            provider: stack.enter_context(
                openai.OpenAI(base_url=faults.base_url(provider), api_key="test", max_retries=0)
            )
            for provider in ("openai", "groq")
        }
        yield FallbackPolicy(
            [Target("m", provider=name, client=clients[name]) for name in clients]
        )


def say(attempt: Attempt) -> str | None:
    """Ask for a text."""
    client: openai.OpenAI = attempt.target.client
    answer = client.chat.completions.create(
        model="m",
        messages=[{"role": "user", "content": "hello"}],
        timeout=attempt.timeout,
    )
    return answer.choices[0].message.content


def stream(attempt: Attempt) -> Iterator[ChatCompletionChunk]:
    """Ask for a text, chunk by chunk."""
    client: openai.OpenAI = attempt.target.client
    with client.chat.completions.create(
        model="m",
        messages=[{"role": "user", "content": "hello"}],
        stream=True,
        timeout=attempt.timeout,
    ) as chunks:
        yield from chunks


def test_a_stream_that_is_cut_before_content_switches(
    faults: FaultSimulator, policy: FallbackPolicy
) -> None:
    """After its first chunk, which names the role, nothing has been handed out."""
    faults.cut_stream(after_chunks=1)
    run = policy.start()
    assert any(chunk.choices[0].delta.content for chunk in policy.stream(stream, run=run))
    assert [attempt.kind for attempt in run.record.attempts] == [FailureKind.CONNECTION, None]
    assert [seen.stream for seen in faults.requests()] == [True, True]


def test_a_stream_that_stalls_before_content_switches(
    faults: FaultSimulator, policy: FallbackPolicy
) -> None:
    """A provider that stops sending is left for the next one when the attempt's time is over."""
    faults.stall_stream(3, after_chunks=1)
    run = policy.start(timeout=1)
    assert any(chunk.choices[0].delta.content for chunk in policy.stream(stream, run=run))
    assert [attempt.kind for attempt in run.record.attempts] == [FailureKind.TIMEOUT, None]


def test_a_delayed_answer_is_a_timeout(faults: FaultSimulator, policy: FallbackPolicy) -> None:
    """A provider that holds back its answer is left for the next one."""
    faults.delay(3)
    run = policy.start(timeout=1)
    policy.call(say, run=run)
    assert [attempt.kind for attempt in run.record.attempts] == [FailureKind.TIMEOUT, None]


def test_a_reply_may_be_everybodys(faults: FaultSimulator, policy: FallbackPolicy) -> None:
    """Without a provider a reply is said by whoever is asked."""
    faults.reply("hello yourself", times=None, provider=None)
    faults.fail(503)
    assert policy.call(say) == policy.call(say) == "hello yourself"
    assert [seen.provider for seen in faults.requests()] == ["openai", "groq", "openai"]
