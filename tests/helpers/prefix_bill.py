"""Providers that keep the beginning of a prompt for a while and bill what they read again less."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from honcho_fallback.testing import StatusError

if TYPE_CHECKING:
    from collections.abc import Callable

    from honcho_fallback import Attempt

TTL = 300.0  # seconds that a prefix is kept after it was used
SHORTEST = 1024  # tokens below which nothing is kept
CACHED_PRICE = 0.1  # of a token that was read before


class PrefixBill:
    """Answer a conversation whose prompt grows, and count what each provider charges for input.

    Args:
        clock: The time in seconds.
        outages: From when to when which model answers 503.
    """

    def __init__(
        self, clock: Callable[[], float], outages: dict[str, tuple[float, float]] | None = None
    ) -> None:
        self.clock = clock
        self.outages = outages or {}
        self.prompt = 0  # tokens of the conversation so far
        self.asked: list[str] = []
        self.cost = 0.0
        self._kept: dict[str, tuple[int, float]] = {}

    def ask(self, attempt: Attempt) -> dict[str, Any]:
        """Answer with the usage that OpenAI would report, or with a 503."""
        model, now = attempt.target.model, self.clock()
        self.asked.append(model)
        begins, ends = self.outages.get(model, (0.0, 0.0))
        if begins <= now < ends:
            raise StatusError(503)
        prefix, until = self._kept.get(model, (0, 0.0))
        read = prefix if now < until else 0
        self.cost += self.prompt - read + CACHED_PRICE * read
        if self.prompt >= SHORTEST:
            self._kept[model] = self.prompt, now + TTL
        return {
            "object": "chat.completion",
            "choices": [{"message": {"content": "hello"}, "finish_reason": "stop"}],
            "usage": {
                "prompt_tokens": self.prompt,
                "completion_tokens": 1,
                "total_tokens": self.prompt + 1,
                "prompt_tokens_details": {"cached_tokens": read},
            },
        }
