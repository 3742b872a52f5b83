"""The calls of the demo, through the core alone."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from honcho_fallback import Cooldown, FallbackConfig, FallbackPolicy
from honcho_fallback.cli._checks import (
    check_loop,
    check_nobody,
    check_one_failover,
    check_restored,
)
from honcho_fallback.cli._connect import connect
from honcho_fallback.cli._played import Call, Demo, Scenario
from honcho_fallback.cli._speakers import ToolUse

if TYPE_CHECKING:
    from collections.abc import Callable

    from honcho_fallback import Attempt, FallbackRun
    from honcho_fallback.cli._speakers import Speaker
    from honcho_fallback.cli._stage import Stage

_ITERATIONS = 5
_REST = 2.0
_PROMPT = "Say hello in five words."
_TASK = "Read the thermometer of four cities, one at a time, then say which is the warmest."


def _speaker(attempt: Attempt) -> Speaker:
    speaker: Speaker = attempt.target.client
    return speaker


def _made(stage: Stage, policy: FallbackPolicy, ask: Callable[[FallbackRun], Any]) -> Call:
    before, run = stage.seen(), policy.start()
    said, error = "", None
    try:
        said = str(ask(run)).strip()
    except Exception as raised:  # noqa: BLE001 # how a call ends is what is shown and judged
        error = type(raised).__name__
    after = stage.seen()
    seen = None if before is None or after is None else after - before
    return Call(run.record, seen, said, error)


def _rate_limited(stage: Stage) -> list[Call]:
    stage.break_primary(lambda primary: primary.fail(429, retry_after=30, times=None))
    policy = FallbackPolicy(stage.chain, agent="demo")
    return [
        _made(
            stage,
            policy,
            lambda run: policy.call(lambda at: _speaker(at).say(at, _PROMPT), run=run),
        )
    ]


def _cut_stream(stage: Stage) -> list[Call]:
    stage.break_primary(lambda primary: primary.cut_stream(times=None))
    policy = FallbackPolicy(stage.chain, agent="demo")

    def ask(run: FallbackRun) -> str:
        return "".join(policy.stream(lambda at: _speaker(at).stream(at, _PROMPT), run=run))

    return [_made(stage, policy, ask)]


def _tool_loop(reset: Any) -> Callable[[Stage], list[Call]]:
    def play_loop(stage: Stage) -> list[Call]:
        stage.break_primary(lambda primary: primary.fail(503, times=None))
        policy = FallbackPolicy(stage.chain, FallbackConfig(reset=reset), agent="demo")
        done: list[ToolUse] = []
        calls: list[Call] = []

        def iterate(run: FallbackRun) -> str:
            last = len(calls) == _ITERATIONS - 1
            answer = policy.call(lambda at: _speaker(at).step(at, _TASK, done, last=last), run=run)
            if isinstance(answer, ToolUse):
                done.append(answer)
                return f"tool call {answer.arguments}"
            return answer

        with policy.turn():
            while len(calls) < _ITERATIONS:
                calls.append(_made(stage, policy, iterate))
        return calls

    return play_loop


def _outage_that_ends(stage: Stage) -> list[Call]:
    stage.break_primary(lambda primary: primary.fail(503, times=1))
    config = FallbackConfig(cooldown=Cooldown(base=_REST, cap=_REST))
    policy = FallbackPolicy(stage.chain, config, agent="demo")

    def ask(run: FallbackRun) -> str:
        return policy.call(lambda at: _speaker(at).say(at, _PROMPT), run=run)

    calls = [_made(stage, policy, ask) for _ in range(2)]
    time.sleep(_REST)
    return calls + [_made(stage, policy, ask) for _ in range(2)]


def _nobody(stage: Stage) -> list[Call]:
    stage.break_primary(lambda primary: primary.fail(503, times=None))
    policy = FallbackPolicy(stage.dead_chain, agent="demo")
    return [
        _made(
            stage,
            policy,
            lambda run: policy.call(lambda at: _speaker(at).say(at, _PROMPT), run=run),
        )
    ]


SCENARIOS = (
    Scenario(
        "rate limit",
        "A plain call",
        "the primary answers 429 with Retry-After 30",
        _rate_limited,
        check_one_failover("rate_limit", 429),
    ),
    Scenario(
        "cut stream",
        "A streaming call",
        "the primary's connection drops before the first token",
        _cut_stream,
        check_one_failover("connection", None),
    ),
    Scenario(
        "tool loop, reset=iteration",
        "A tool loop of five iterations, reset=iteration",
        "an outage; each iteration starts on the primary",
        _tool_loop("iteration"),
        check_loop([1, 1, 1, 1, 1]),
    ),
    Scenario(
        "tool loop, reset=turn",
        "The same tool loop, reset=turn",
        "an outage; the turn stays where it works",
        _tool_loop("turn"),
        check_loop([1, 0, 0, 0, 0]),
    ),
    Scenario(
        "outage that ends",
        "Four calls with a cooldown",
        f"an outage; after {_REST:g} s one call probes the primary, which is back",
        _outage_that_ends,
        check_restored,
    ),
    Scenario(
        "nobody",
        "A last call",
        "nobody answers: the primary is down, the fallback is not running",
        _nobody,
        check_nobody,
    ),
)

DEMO = Demo(connect, SCENARIOS)
