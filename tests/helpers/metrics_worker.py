"""A process that counts for Prometheus, and does what it reads line by line."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from honcho_fallback import Cooldown, FallbackPolicy, Target
from honcho_fallback.testing import Clock, StatusError
from honcho_fallback_metrics import PrometheusObserver

if TYPE_CHECKING:
    from honcho_fallback import Attempt

# A fork's first call forgets at once what would be forgotten after an hour.
FORGET_AFTER = 0.0 if "fork" in sys.argv else 3600.0


def fail(attempt: Attempt) -> str:
    if attempt.position == 0:
        raise StatusError(503)
    return "hello"


def main(clock: Clock) -> None:
    policy = FallbackPolicy(
        [Target("primary"), Target("fallback")],
        agent="deriver",
        observers=[PrometheusObserver(forget_after=FORGET_AFTER)],
        cooldown=Cooldown(base=60),
    )
    run = None
    for line in sys.stdin:
        match line.strip():
            case "call":
                policy.call(lambda _: "hello")
            case "begin":
                run = policy.start()
            case "end" if run is not None:
                run.succeed()
            case "rest":
                policy.call(fail)
                policy.call(fail)
            case "recover":
                clock.advance(60)
                policy.call(lambda _: "back")
            case "fork":
                child = os.fork()
                if child == 0:
                    policy.call(lambda _: "hello")
                    os._exit(0)
                os.waitpid(child, 0)
        sys.stdout.write("done\n")
        sys.stdout.flush()


if __name__ == "__main__":
    with Clock().installed() as now:
        main(now)
