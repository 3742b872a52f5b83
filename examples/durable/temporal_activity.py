"""Temporal: the chain is asked in an activity, and the server repeats it when that may help.

Run:     python examples durable/temporal_activity  (OPENAI_API_KEY=... asks the real one)
Install: pip install honcho-fallback anthropic openai temporalio
"""

import asyncio
from dataclasses import replace
from datetime import timedelta
from typing import Any

import anthropic
import openai
from temporalio import activity
from temporalio.exceptions import ApplicationError
from temporalio.testing import ActivityEnvironment

from endpoints import endpoints
from honcho_fallback import (
    Attempt,
    FallbackExhausted,
    FallbackPolicy,
    OutcomeUnknown,
    Target,
    classify,
)
from raw_sdk import text_of


async def ask(attempt: Attempt, prompt: str) -> str:
    """Ask with a key that is the same when the activity runs again."""
    info = activity.info()
    key = f"{info.workflow_id}-{info.activity_id}-{attempt.position}"
    client: Any = attempt.target.client.with_options(default_headers={"Idempotency-Key": key})
    asked, messages = replace(attempt.target, client=client), [{"role": "user", "content": prompt}]
    options: Any = {"model": asked.model, "messages": messages, "timeout": attempt.timeout}
    if isinstance(client, openai.AsyncOpenAI):
        return text_of(await client.chat.completions.create(**options))
    return text_of(await client.messages.create(max_tokens=1024, **options))


def as_temporal_takes_it(error: Exception) -> ApplicationError:
    """Say whether the activity is run again, and after which time; Temporal's policy bounds it."""
    errors = error.exceptions if isinstance(error, FallbackExhausted) else (error,)
    failures = [*map(classify, errors)]
    waits = [one.retry_after for one in failures if one.retry_after is not None]
    may_help = any(one.transient for one in failures) and not isinstance(error, OutcomeUnknown)
    wait = timedelta(seconds=min(waits)) if waits else None
    kind = failures[-1].kind.value
    return ApplicationError(
        str(error), type=kind, non_retryable=not may_help, next_retry_delay=wait
    )


with endpoints() as (primary, fallback):
    first = openai.AsyncOpenAI(base_url=primary.base_url, api_key=primary.api_key, max_retries=0)
    second = anthropic.AsyncAnthropic(
        base_url=fallback.base_url, api_key=fallback.api_key, max_retries=0
    )
    targets = [Target(primary.model, client=first), Target(fallback.model, client=second)]
    policy = FallbackPolicy(targets, agent="greeter")

    @activity.defn  # type: ignore[untyped-decorator] # where it is not installed
    async def greet(prompt: str) -> str:
        """Ask the chain once; a cancelled activity is a cancelled call."""
        try:
            return await policy.acall(lambda attempt: ask(attempt, prompt))
        except Exception as error:
            raise as_temporal_takes_it(error) from error

    # A worker runs it: Worker(client, task_queue="agents", activities=[greet], ...).
    print(asyncio.run(ActivityEnvironment().run(greet, "Say good morning.")))
