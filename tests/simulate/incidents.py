"""Small incidents, whose every figure can be worked out by hand."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from honcho_fallback.simulate import Scenario, simulate

if TYPE_CHECKING:
    from honcho_fallback import CallRecord, FallbackConfig
    from honcho_fallback.simulate import Report

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
                {"name": PRIMARY, "latency": {"median": 1.0}, "phases": phases, **target},
                {"name": FALLBACK, "latency": {"median": 2.0}, "phases": fallback, **target},
            ],
        }
    )


def failing(status: int = 503, **more: Any) -> dict[str, Any]:
    """A phase of refusals that take 0.5 s."""
    return {"kind": "failing", "status": status, "delay": 0.5, **more}


def only(*phases: dict[str, Any], config: FallbackConfig, **more: Any) -> CallRecord:
    """The record of a single call."""
    (record,) = simulate(incident(*phases, seconds=1, **more), config).records
    return record


def took(record: CallRecord) -> Any:
    """How long each attempt of a call took."""
    return pytest.approx([attempt.seconds for attempt in record.attempts])


def asked(report: Report) -> list[str]:
    """Who was asked in each call, a letter for each."""
    return ["".join(one.target[0] for one in record.attempts) for record in report.records]
