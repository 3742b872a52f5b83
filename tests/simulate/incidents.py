"""Small incidents, whose every figure can be worked out by hand."""

from __future__ import annotations

from typing import Any

from honcho_fallback.testing.simulate import Scenario

PRIMARY, FALLBACK = "p/one", "f/two"


def incident(
    *phases: dict[str, Any],
    fallback: tuple[dict[str, Any], ...] = (),
    traffic: dict[str, Any] | None = None,
    seconds: float = 10.0,
    **target: Any,
) -> Scenario:
    """A call a second for ten seconds; the primary answers in 1 s, the fallback in 2 s."""
    return Scenario.parse(
        {
            "name": "by hand",
            "seconds": seconds,
            "traffic": {"kind": "steady", "per_second": 1.0, **(traffic or {})},
            "targets": [
                {"name": PRIMARY, "latency": 1.0, "phases": phases, **target},
                {"name": FALLBACK, "latency": 2.0, "phases": fallback, **target},
            ],
        }
    )


def failing(status: int = 503, **more: Any) -> dict[str, Any]:
    """A phase of refusals that take 0.5 s."""
    return {"kind": "failing", "status": status, "delay": 0.5, **more}
