"""What the scenarios stand on: a judge that sees each wrong, and time that passes unwaited for."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from typing import Any

import pytest

from benchmarks.faults import ANSWER, WORDS, Request
from benchmarks.faults.scenarios import (
    FALLBACK_MODEL,
    PRIMARY_MODEL,
    SCENARIOS,
    Answer,
    Call,
    Hang,
    Observation,
    Verdict,
    judge,
)
from tests.helpers.idle_loop import IdleLoop

SCENARIO = {scenario.name: scenario for scenario in SCENARIOS}
WHOLE = Answer(ANSWER, FALLBACK_MODEL, has_usage=True)
ERROR = RuntimeError("down")
ONCE, TWICE = [Request(0.0, answered=False)], [Request(at, answered=False) for at in (0.0, 2.0)]


def seen(result: Any, primary: list[Request] = ONCE, seconds: float = 1.0, **more: Any) -> Any:
    """Return what was seen of one call that a fallback took over."""
    fallback = [Request(1.0, answered=True)]
    return Observation([Call(0.0, seconds, result)], primary, fallback, **more)


def outage(errors: int = 0, returns_at: float = 64.0) -> Observation:
    """Return what was seen of an outage: the calls that were lost, and who came back when."""
    results = [ERROR] * errors + [WHOLE] * (20 - errors)
    calls = [Call(number * 4.0, 0.1, result) for number, result in enumerate(results)]
    return Observation(calls, [Request(returns_at, answered=True)], [])


@pytest.mark.parametrize(
    ("scenario", "observation", "verdict"),
    [
        ("S01", seen(WHOLE, TWICE), Verdict.PASS),
        ("S01", seen(WHOLE), Verdict.PARTIAL),
        ("S01", seen(WHOLE, [Request(0.1 * at, answered=False) for at in range(3)]), Verdict.FAIL),
        ("S02", seen(WHOLE, [Request(9.0 * at, answered=False) for at in range(7)]), Verdict.FAIL),
        ("S03", seen(WHOLE), Verdict.PARTIAL),
        ("S04", seen(WHOLE), Verdict.PASS),
        ("S04", seen(ERROR), Verdict.SAFE),
        ("S04", seen(Hang()), Verdict.FAIL),
        ("S06", seen(WHOLE, TWICE), Verdict.PARTIAL),
        ("S06", seen(WHOLE, seconds=120.0), Verdict.FAIL),
        ("S07", seen(WHOLE, seconds=20.0), Verdict.PARTIAL),
        ("S08", seen(Answer(" ".join(WORDS[:8]))), Verdict.FAIL),
        ("S08", seen(Answer(f"{' '.join(WORDS[:8])} {ANSWER}")), Verdict.FAIL),
        ("S08", seen(ERROR), Verdict.SAFE),
        ("S09", seen(ERROR, works_afterwards=False), Verdict.FAIL),
        ("S11", seen(replace(WHOLE, has_usage=False)), Verdict.PARTIAL),
        ("S12", seen(WHOLE, TWICE), Verdict.FAIL),
        ("S13", seen(ERROR), Verdict.PASS),
        ("S13", seen(WHOLE), Verdict.PARTIAL),
        ("S15", outage(), Verdict.PASS),
        ("S15", outage(errors=1), Verdict.FAIL),
        ("S15", outage(returns_at=91.0), Verdict.FAIL),
        ("S16", seen(replace(WHOLE, model=PRIMARY_MODEL)), Verdict.FAIL),
        # The fallback's 400 for a prefill is not what a caller may hear: it hides the cut.
        ("S14", seen(ValueError("Error code: 400 - invalid_prefill")), Verdict.FAIL),
        ("S14", seen(ERROR), Verdict.SAFE),
        # A model by itself can but fail cleanly in an outage, or wait.
        ("S15 alone", outage(errors=15), Verdict.SAFE),
        ("S07 alone", seen(WHOLE, seconds=20.0), Verdict.PASS),
    ],
)
def test_the_judge(scenario: str, observation: Observation, verdict: Verdict) -> None:
    """Whoever does well passes, and each wrong costs what it should."""
    name, _, alone = scenario.partition(" ")
    found, reason = judge(SCENARIO[name], observation, has_fallback=not alone)
    assert found is verdict
    assert bool(reason) is (verdict is not Verdict.PASS)


def test_time_stands_still_while_a_thread_works() -> None:
    """Else its slowness would look like a timeout; who waits for the loop lets it pass."""

    async def work() -> tuple[float, float]:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, IdleLoop)
        async with asyncio.timeout(1):
            await asyncio.to_thread(time.sleep, 0.05)
        before = loop.time()
        await asyncio.to_thread(loop.wait_for, asyncio.sleep(3600))
        return before, loop.time()

    with asyncio.Runner(loop_factory=IdleLoop) as runner:
        before, after = runner.run(work())
    assert (before, after) == (0.0, 3600.0)
