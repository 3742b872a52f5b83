"""A process that counts for Prometheus, and does what it reads line by line."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from honcho_fallback import Cooldown, FallbackPolicy, Target
from honcho_fallback.testing import Clock, StatusError
from honcho_fallback_prometheus import PrometheusObserver

if TYPE_CHECKING:
    from honcho_fallback import Attempt


def fail(attempt: Attempt) -> str:
    if attempt.position == 0:
        raise StatusError(503)
    return "hello"


def main(clock: Clock) -> None:
    policy = FallbackPolicy(
        [Target("primary"), Target("fallback")],
        agent="deriver",
        observers=[PrometheusObserver()],
        cooldown=Cooldown(after=1, base=60),
    )
    for line in sys.stdin:
        match line.strip():
            case "call":
                policy.call(lambda _: "hello")
            case "rest":
                policy.call(fail)
                policy.call(fail)
            case "recover":
                clock.advance(60)
                policy.call(lambda _: "back")
        sys.stdout.write("done\n")
        sys.stdout.flush()


if __name__ == "__main__":
    with Clock().installed() as now:
        main(now)
