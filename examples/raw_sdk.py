"""A policy over the providers' own SDKs: one failed request, no wait, the second model's answer.

Run:     python examples/raw_sdk.py  (set OPENAI_API_KEY, ANTHROPIC_API_KEY to ask the real ones)
Install: pip install honcho-fallback anthropic openai
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import anthropic
import openai

from endpoints import endpoints
from honcho_fallback import FallbackPolicy, Target

if TYPE_CHECKING:
    from collections.abc import Sequence

    from anthropic.types import Message
    from openai.types.chat import ChatCompletion

    from endpoints import Endpoint
    from honcho_fallback import Attempt, FallbackObserver

    SDKAnswer = ChatCompletion | Message


def build_policy(
    primary: Endpoint, fallback: Endpoint, observers: Sequence[FallbackObserver] = ()
) -> FallbackPolicy:
    """Make the chain; with max_retries=0 an SDK leaves it to the policy who is asked again."""
    url, key = primary.base_url, primary.api_key
    first = openai.OpenAI(base_url=url, api_key=key, max_retries=0)
    url, key = fallback.base_url, fallback.api_key
    second = anthropic.Anthropic(base_url=url, api_key=key, max_retries=0)
    targets = [
        Target(primary.model, provider="openai", client=first),
        Target(fallback.model, provider="anthropic", client=second),
    ]
    return FallbackPolicy(targets, agent="greeter", observers=observers)


def ask(attempt: Attempt, prompt: str) -> SDKAnswer:
    """Ask the attempt's target, and return the SDK's own answer: the policy looks at it."""
    target = attempt.target
    if isinstance(target.client, openai.OpenAI):
        return target.client.chat.completions.create(
            model=target.model,
            messages=[{"role": "user", "content": prompt}],
            timeout=attempt.timeout,
        )
    client: anthropic.Anthropic = target.client
    return client.messages.create(
        model=target.model,
        messages=[{"role": "user", "content": prompt}],
        max_tokens=1024,
        timeout=attempt.timeout,
    )


def text_of(answer: SDKAnswer) -> str:
    """Return the text of either SDK's answer."""
    if isinstance(answer, anthropic.types.Message):
        return "".join(block.text for block in answer.content if block.type == "text")
    return answer.choices[0].message.content or ""


def main() -> None:
    """Make one call, and print the answer and the record."""
    with endpoints() as (primary, fallback):
        policy = build_policy(primary, fallback)
        run = policy.start()
        answer = policy.call(lambda attempt: ask(attempt, "Say good morning."), run=run)
        print(text_of(answer), run.record.explain(), sep="\n")


if __name__ == "__main__":
    main()
