"""Honcho's call path over a policy: one request to a dead primary, one event for each call.

Run:     python examples/honcho_adoption.py  (no key and no network: the executor plays a script)
Install: pip install honcho-fallback
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from honcho_fallback_honcho import policy_from
from honcho_standins import SAMPLING, THINKING, ModelConfig, emit, execute

if TYPE_CHECKING:
    from honcho_fallback import Attempt, FallbackConfig


async def call_llm(  # noqa: PLR0913 # Honcho's own call takes more
    model_config: ModelConfig,
    messages: list[Any],
    *,
    metadata: dict[str, Any],
    retry_attempts: int = 3,
    enable_retry: bool = True,
    config: FallbackConfig | None = None,
    **caller: Any,
) -> dict[str, Any]:
    """Ask the model, and its fallback where it fails; write one event, whatever the end."""
    policy = policy_from(
        model_config,
        agent=metadata["purpose"],
        retry_attempts=retry_attempts,
        enable_retry=enable_retry,
        config=config,
    )
    run = policy.start(metadata=metadata)

    async def ask(attempt: Attempt) -> dict[str, Any]:
        return await execute(attempt.target.client, messages, **parameters_for(attempt, caller))

    try:
        return await policy.acall(ask, run=run)
    finally:  # after an answer, an error or a cancellation
        emit(run.record.to_dict() | {"was_fallback": run.record.is_fallback})


def parameters_for(attempt: Attempt, caller: dict[str, Any]) -> dict[str, Any]:
    """Merge the caller's values with those that were configured for whoever is asked."""
    chosen: ModelConfig = attempt.target.client  # the primary's own object, or its fallback's
    parameters = {name: getattr(chosen, name) for name in (*SAMPLING, *THINKING)}
    # A fallback thinks as it was configured to; the rest is the caller's, whoever is asked.
    wins = SAMPLING if attempt.is_fallback else (*SAMPLING, *THINKING)
    parameters |= {name: caller[name] for name in wins if caller.get(name) is not None}
    if caller.get("temperature") == 0.0 and attempt.number > 1:
        parameters["temperature"] = 0.2  # as Honcho does when it asks again
    return parameters | {"max_tokens": caller.get("max_tokens"), "timeout": attempt.timeout}


async def tool_loop(model_config: ModelConfig, question: str) -> dict[str, Any]:
    """Make each iteration a call of its own, so that it begins on the primary again."""
    call = {"workspace": "acme", "run_id": "r-17", "purpose": "dialectic.answer"}
    messages = [answer := {"role": "user", "text": question}]
    for iteration in (1, 2):
        metadata = call | {"iteration": iteration}
        answer = await call_llm(model_config, messages, metadata=metadata, temperature=0.0)
        messages = [*messages, answer, {"role": "tool", "text": "12:00"}]
    return answer


def main() -> None:
    """Answer in two iterations; in the first of them the primary fails."""
    fallback = ModelConfig("claude-haiku-4-5", "anthropic", thinking_budget_tokens=1024)
    primary = ModelConfig("gpt-5.4-mini", "openai", fallback)
    print(asyncio.run(tool_loop(primary, "How late is it?"))["text"])


if __name__ == "__main__":
    main()
