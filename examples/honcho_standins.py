"""Stand-ins for what Honcho has: a model's configuration, an executor, telemetry."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

SAMPLING = ("temperature", "stop_sequences")
THINKING = ("thinking_budget_tokens", "thinking_effort")


@dataclass(frozen=True)
class ModelConfig:
    """Describe one model; its fallback is complete in itself.

    Args:
        model: The model's name.
        transport: Whose API it is asked over.
        fallback: Whom to ask where it fails, or None.
        temperature: The configured one; a caller's own comes first.
        stop_sequences: As the temperature.
        thinking_budget_tokens: The configured one; a caller's own is the primary's alone.
        thinking_effort: As the budget.
        provider_params: What goes to the provider as it is, and a ``timeout`` in seconds.
    """

    model: str
    transport: str
    fallback: ModelConfig | None = None
    temperature: float | None = None
    stop_sequences: list[str] | None = None
    thinking_budget_tokens: int | None = None
    thinking_effort: str | None = None
    provider_params: dict[str, Any] = field(default_factory=dict)


class ProviderError(Exception):
    """Carry an HTTP status, as the errors of the SDKs do.

    Args:
        status_code: The status.
    """

    def __init__(self, status_code: int) -> None:
        super().__init__(f"HTTP {status_code}")
        self.status_code = status_code


# The primary has a bad moment, the fallback calls a tool, the primary answers.
SCRIPT = iter([503, {"tool": "clock"}, {"text": "It is noon."}])


async def execute(
    config: ModelConfig,
    messages: list[Any],
    *,
    temperature: float | None,
    thinking_budget_tokens: int | None,
    **_: Any,
) -> dict[str, Any]:
    """Ask one model once, with a client that never retries; here, play the script."""
    thinking = f"{thinking_budget_tokens or 'no'} tokens of thinking"
    print(f"Request to {config.transport}/{config.model}: temperature {temperature}, {thinking}")
    step: Any = next(SCRIPT)
    if isinstance(step, int):
        raise ProviderError(step)
    return {**step, "usage": {"input_tokens": 9 * len(messages), "output_tokens": 4}}


def emit(event: dict[str, Any]) -> None:
    """Write one event of telemetry; here, print what fits on a line of it."""
    attempts = [f"{one['target']} {one['kind'] or 'answered'}" for one in event["attempts"]]
    print(
        f"Event of iteration {event['metadata']['iteration']}: {', then '.join(attempts)};", end=""
    )
    print(f" {event['outcome']}, was_fallback={event['was_fallback']}")
