"""How long to wait before the same target is asked again: tenacity's strategies."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import tenacity

if TYPE_CHECKING:
    from collections.abc import Callable

# Full jitter (AWS Architecture Blog, "Exponential Backoff And Jitter"): 0.5 s doubling to 8 s.
DEFAULT_WAIT = tenacity.wait_random_exponential(multiplier=0.5, max=8)


def seconds(wait: Callable[[Any], Any], failures: int, error: BaseException) -> float:
    """Ask a tenacity wait strategy.

    Args:
        wait: The strategy, or any callable on a tenacity ``RetryCallState``.
        failures: How often this target has failed in this call, 1-based.
        error: The last failure, for strategies that look at it.
    """
    state = tenacity.RetryCallState(tenacity.Retrying(reraise=True), None, (), {})
    state.attempt_number = failures
    state.set_exception((type(error), error, error.__traceback__))
    pause = wait(state)
    return max(0.0, pause.total_seconds() if hasattr(pause, "total_seconds") else float(pause))
