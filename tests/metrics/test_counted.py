"""What is counted of calls, by both observers alike."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import pytest
from prometheus_client import generate_latest

from honcho_fallback import (
    Cooldown,
    DeadlineExceeded,
    RetryBudget,
    StreamInterrupted,
)
from honcho_fallback.testing import StatusError
from tests.helpers.metrics import Counted
from tests.helpers.prometheus import prometheus_figures
from tests.helpers.scenarios import SCENARIOS, F, P, Scenario
from tests.helpers.scripted import DRIVERS, repeating

if TYPE_CHECKING:
    from collections.abc import Iterator

    from honcho_fallback import Attempt
    from honcho_fallback.testing import Clock

DOWN = StatusError(503)
keeps_gauges = pytest.mark.skipif(
    tuple(map(int, version("opentelemetry-sdk").split(".")[:2])) < (1, 45),
    reason="OpenTelemetry's SDK before 1.45 forgets a gauge once it has been read",
)


def about(unix_time: float) -> Any:
    return pytest.approx(unix_time, rel=0, abs=0.001)


def failing(primary: Any = DOWN, fallback: Any = "hello") -> Any:
    return repeating(primary=[primary], fallback=[fallback]).ask


@pytest.mark.parametrize("driver", DRIVERS)
@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
def test_every_scenario_is_counted_as_its_record_tells(scenario: Scenario, driver: str) -> None:
    """Prometheus and OpenTelemetry agree, and what they say is what the call's record says."""
    counted = Counted(scenario.replies, **scenario.config)
    run = counted.policy.start()
    with nullcontext() if scenario.error is None else pytest.raises(scenario.error):
        DRIVERS[driver](counted.policy, repeating(**scenario.replies), run)
    record, figures = run.record, counted.figures()
    answered = scenario.order[-1] if scenario.error is None else "nobody"
    expected: dict[tuple[str, ...], Any] = {
        ("calls", "deriver", scenario.outcome, answered): 1,
        ("call.duration", "deriver", scenario.outcome): (1, record.seconds),
    }
    if answered not in {P, "nobody"}:
        expected["answers_by_fallback", "deriver", answered] = 1
    if "stream" in driver and scenario.error is None:
        first = record.time_to_first_token
        expected["time_to_first_token", "deriver", answered] = (1, first)
    for one, after in zip(record.attempts, [*record.attempts[1:], None], strict=True):
        kind = one.kind.value if one.kind else "answered"
        key = ("attempts", "deriver", one.target, kind, one.billed)
        expected[key] = expected.get(key, 0) + 1
        number, seconds = expected.get(("attempt.duration", one.target), (0, 0))
        expected["attempt.duration", one.target] = (number + 1, seconds + one.seconds)
        if after is not None and after.target != one.target:
            expected["switches", "deriver", one.target, kind] = 1
    assert figures == expected


def test_what_is_rare_is_shown_before_it_counts() -> None:
    """The first failure is an increase from 0; of a series that begins at 1 none is seen."""
    counted = Counted()
    counted.policy.call(lambda _: "hello")
    figures = prometheus_figures(generate_latest(counted.registry).decode())
    assert figures["calls", "deriver", "exhausted", "nobody"] == 0
    assert figures["calls", "deriver", "interrupted", "nobody"] == 0
    assert figures["calls_ended_by_limit", "deriver", "deadline"] == 0
    assert figures["calls_ended_by_limit", "deriver", "retry_budget"] == 0


def test_the_calls_label_is_the_agent_of_the_call() -> None:
    """A label given for one call counts."""
    counted = Counted()
    counted.policy.call(lambda _: "hello", agent="dreamer")
    assert counted.of("calls") == {("dreamer", "success", P): 1}


# Tokens.


def answer(**usage: Any) -> dict[str, Any]:
    message = {"role": "assistant", "content": "hello"}
    return {"choices": [{"finish_reason": "stop", "message": message}], "usage": usage}


ANSWER = answer(
    prompt_tokens=12,
    completion_tokens=7,
    total_tokens=19,
    prompt_tokens_details={"cached_tokens": 4},
    completion_tokens_details={"reasoning_tokens": 2},
)


def test_each_token_counts_under_one_type() -> None:
    """What a cache gave is no other input, and what was reasoned no other output."""
    counted = Counted()
    counted.policy.call(lambda _: ANSWER)
    assert counted.of("tokens") == {
        ("deriver", P, "input"): 8,
        ("deriver", P, "cache_read"): 4,
        ("deriver", P, "output"): 5,
        ("deriver", P, "reasoning"): 2,
    }


def test_a_usage_may_come_in_any_form() -> None:
    """What the caller reports is read as what a provider sends; what is no count is left out."""
    counted = Counted()
    reports: dict[str, dict[str, Any]] = {
        "core": {"input_tokens": 3, "output_tokens": 2},
        "openai": {"prompt_tokens": 3, "completion_tokens": 2},
        "anthropic": {"input_tokens": 3, "output_tokens": 2, "cache_creation_input_tokens": 5},
        "odd": {"input_tokens": "many", "output_tokens": 2},
        "other": {"price": 3},
    }
    for agent, usage in reports.items():
        counted.policy.start(agent=agent).succeed(usage=usage)
    assert counted.of("tokens") == {
        ("core", P, "input"): 3,
        ("core", P, "output"): 2,
        ("openai", P, "input"): 3,
        ("openai", P, "output"): 2,
        ("anthropic", P, "input"): 3,
        ("anthropic", P, "cache_write"): 5,
        ("anthropic", P, "output"): 2,
        ("odd", P, "output"): 2,
    }


def test_an_answer_that_was_refused_has_cost_its_tokens() -> None:
    """Its request is wasted, and its tokens count for the target that sent it."""
    counted = Counted()
    refused = {"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 1}}
    counted.policy.call(failing(refused, ANSWER))
    assert counted.of("attempts") == {
        ("deriver", P, "malformed_response", "yes"): 1,
        ("deriver", F, "answered", "yes"): 1,
    }
    tokens = counted.of("tokens")
    assert tokens["deriver", P, "input"] == 9
    assert tokens["deriver", F, "input"] == 8


# Streams, and calls that end otherwise.


def broken_stream(attempt: Attempt) -> Iterator[str]:
    yield "a"
    raise DOWN


def test_a_stream_that_breaks_is_interrupted() -> None:
    """It had a first token, and its target failed."""
    counted = Counted()
    with pytest.raises(StreamInterrupted):
        list(counted.policy.stream(broken_stream))
    assert counted.of("calls") == {("deriver", "interrupted", "nobody"): 1}
    assert counted.of("attempts") == {("deriver", P, "overloaded", "yes"): 1}
    assert counted.counts("time_to_first_token") == {("deriver", P): 1}


def test_a_stream_that_is_replaced_has_the_first_token_of_the_answer(clock: Clock) -> None:
    """What the reader drops is no first token."""
    counted = Counted()

    def ask(attempt: Attempt) -> Iterator[str]:
        clock.advance(2)
        return broken_stream(attempt) if attempt.position == 0 else iter(["b"])

    assert list(counted.policy.stream(ask, partial="replace")) == ["a", "b"]
    assert counted.of("time_to_first_token") == {("deriver", F): (1, 4.0)}
    assert counted.of("attempt.duration") == {(P,): (1, 2.0), (F,): (1, 2.0)}


def test_a_stream_that_is_left_is_abandoned() -> None:
    """Its target has answered, as far as it was let."""
    counted = Counted()
    stream = counted.policy.stream(lambda _: iter("abc"))
    next(stream)
    stream.close()
    assert counted.of("calls") == {("deriver", "abandoned", P): 1}
    assert counted.of("attempts") == {("deriver", P, "answered", "yes"): 1}


async def test_a_cancelled_call_is_cancelled() -> None:
    """Its request is wasted."""
    counted = Counted()
    began = asyncio.Event()

    async def ask(_: Attempt) -> str:
        began.set()
        await asyncio.Event().wait()
        return "never"

    task = asyncio.create_task(counted.policy.acall(ask))
    await began.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert counted.of("calls") == {("deriver", "cancelled", "nobody"): 1}
    assert counted.of("attempts") == {("deriver", P, "cancelled", "unknown"): 1}


def test_a_turn_that_stays_on_the_fallback_is_answered_by_it() -> None:
    """Its second call switches no more, and a fallback answers it all the same."""
    counted = Counted(reset="turn")
    with counted.policy.turn():
        counted.policy.call(failing())
        counted.policy.call(failing())
    assert counted.of("answers_by_fallback") == {("deriver", F): 2}
    assert counted.of("switches") == {("deriver", P, "overloaded"): 1}
    assert counted.of("attempts")["deriver", P, "overloaded", "unknown"] == 1


# What limits a call.


def test_a_deadline_that_ends_a_call_counts(clock: Clock) -> None:
    """Under its name."""
    counted = Counted(deadline=10)

    def ask(_: Attempt) -> str:
        clock.advance(20)
        raise DOWN

    with pytest.raises(DeadlineExceeded):
        counted.policy.call(ask)
    assert counted.of("calls_ended_by_limit") == {("deriver", "deadline"): 1}


def test_a_retry_budget_that_ends_a_call_counts(clock: Clock) -> None:
    """Under its name."""
    budget = RetryBudget(ratio=0, min_per_second=0)
    counted = Counted([P], retry_budget=budget)
    with pytest.raises(StatusError):
        counted.policy.call(failing())
    assert counted.of("calls_ended_by_limit") == {("deriver", "retry_budget"): 1}


# Cooldowns.


@keeps_gauges
def test_a_target_rests_until_a_time_and_a_probe_ends_it(clock: Clock) -> None:
    """The gauge says until when, does not change with time, and is 0 once a probe was answered."""
    counted = Counted(cooldown=Cooldown(after=1, base=60))
    counted.policy.call(failing())
    assert counted.of("cooldown_until_timestamp") == {}  # the first to be passed over tells
    until = clock.time() + 60
    clock.advance(25)
    counted.policy.call(failing())
    assert counted.of("cooldown_until_timestamp") == {(P,): about(until)}
    clock.advance(35)
    counted.policy.call(failing())
    assert counted.of("probes") == {(P, "overloaded"): 1}
    clock.advance(1)
    counted.policy.call(failing())  # a probe that failed doubles the rest
    assert counted.of("cooldown_until_timestamp") == {(P,): about(until + 120)}
    clock.advance(119)
    counted.policy.call(lambda _: "back")
    assert counted.of("probes") == {(P, "overloaded"): 1, (P, "answered"): 1}
    assert counted.of("cooldown_until_timestamp") == {(P,): 0}
    counted.policy.call(lambda _: "hello")
    assert counted.of("cooldown_until_timestamp") == {(P,): 0}


@keeps_gauges
def test_a_probe_under_way_is_no_rest(clock: Clock) -> None:
    """Who stays away from a target because another call probes it leaves the gauge alone."""
    counted = Counted(cooldown=Cooldown(after=1, base=60))
    counted.policy.call(failing())
    counted.policy.call(failing())
    until = counted.of("cooldown_until_timestamp")
    clock.advance(60)
    probe = counted.policy.start()
    assert probe.attempt.position == 0
    clock.advance(1)
    counted.policy.call(failing())
    assert counted.of("cooldown_until_timestamp") == until
    probe.succeed()
    assert counted.of("cooldown_until_timestamp") == {(P,): 0}


@keeps_gauges
def test_a_rest_that_is_seen_early_in_a_call_ends_when_it_ends(clock: Clock) -> None:
    """What the call does after it has gone past the target adds nothing to its rest."""
    counted = Counted([P, F, "third"], cooldown=Cooldown(after=1, base=60))
    counted.policy.call(failing())
    until = clock.time() + 60

    def ask(attempt: Attempt) -> str:
        clock.advance(20)
        if attempt.target.name == F:
            raise DOWN
        return "hello"

    counted.policy.call(ask)
    assert counted.of("cooldown_until_timestamp") == {(P,): about(until)}


def test_threads_agree_to_the_call() -> None:
    """1,000 calls over 8 threads, of which each third is answered by the fallback."""
    counted = Counted()
    barrier = threading.Barrier(8)

    def work(_: int) -> None:
        barrier.wait()
        for number in range(125):
            if number % 3:
                counted.policy.call(lambda _: ANSWER)
            else:
                counted.policy.call(failing(fallback=ANSWER))

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))
    fallbacks = 8 * 42
    assert counted.of("calls") == {
        ("deriver", "success", P): 1000 - fallbacks,
        ("deriver", "success", F): fallbacks,
    }
    assert counted.of("switches") == {("deriver", P, "overloaded"): fallbacks}
    assert sum(counted.counts("call.duration").values()) == 1000
    assert counted.of("tokens")["deriver", F, "input"] == 8 * fallbacks
