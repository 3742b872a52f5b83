"""Scripted targets play what they were given, and say clearly when they were not given enough."""

from __future__ import annotations

import asyncio
import traceback
from typing import TYPE_CHECKING, Any

import pytest

from honcho_fallback import (
    FailureKind,
    FallbackConfig,
    FallbackExhausted,
    FallbackPolicy,
    StreamInterrupted,
    Target,
)
from honcho_fallback.testing import Clock, Script, Scripted, StatusError

if TYPE_CHECKING:
    from collections.abc import Callable

    from honcho_fallback import FallbackRun

    Way = Callable[[FallbackPolicy, Script, FallbackRun], Any]


def by_call(policy: FallbackPolicy, script: Script, run: FallbackRun) -> Any:
    return policy.call(script.ask, run=run)


def by_acall(policy: FallbackPolicy, script: Script, run: FallbackRun) -> Any:
    return asyncio.run(policy.acall(script.aask, run=run))


def by_stream(policy: FallbackPolicy, script: Script, run: FallbackRun) -> Any:
    return "".join(policy.stream(script.stream, run=run))


def by_astream(policy: FallbackPolicy, script: Script, run: FallbackRun) -> Any:
    async def read() -> str:
        return "".join([chunk async for chunk in policy.astream(script.astream, run=run)])

    return asyncio.run(read())


WAYS = [by_call, by_acall, by_stream, by_astream]
ALL = {*FailureKind} - {FailureKind.CANCELLED}
STREAMS = [by_stream, by_astream]


@pytest.mark.parametrize("way", WAYS)
def test_targets_play_their_scripts(scripted: Scripted, way: Way) -> None:
    """Statuses, exceptions and answers come in order, target by target, however asked."""
    script = scripted(
        {"openai/gpt": [scripted.status(429, retry_after=60), "again"]},
        backup=[ConnectionResetError],
        third=[ConnectionResetError("gone"), "third"],
        fourth=["hello"],
    )
    policy = FallbackPolicy(script.targets, FallbackConfig(max_attempts=4))
    run = policy.start()
    assert way(policy, script, run) == "hello"
    assert script.asked == ["openai/gpt", "backup", "third", "fourth"]
    assert [one.kind for one in run.record.attempts] == [
        FailureKind.RATE_LIMIT,
        FailureKind.CONNECTION,
        FailureKind.CONNECTION,
        None,
    ]
    assert run.record.attempts[0].retry_after == 60
    assert script.unplayed == {"openai/gpt": ["again"], "third": ["third"]}
    assert way(policy, script, policy.start()) == "again"
    assert script.targets[0] == Target("gpt", provider="openai")


@pytest.mark.parametrize("way", WAYS)
def test_delays_pass_on_the_clock(scripted: Scripted, fallback_clock: Clock, way: Way) -> None:
    """What comes late takes so long by the record, and is no wait of the policy."""
    script = scripted(only=[scripted.after(12.5, "hello")])
    policy = FallbackPolicy(script.targets)
    run = policy.start()
    assert way(policy, script, run) == "hello"
    assert run.record.seconds == 12.5
    assert fallback_clock.slept == []


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("late", ["hang", "after"])
def test_what_hangs_ends_at_the_timeout(scripted: Scripted, way: Way, late: str) -> None:
    """A target that never answers, or too late, costs the attempt's timeout and is a timeout."""
    step = scripted.hang() if late == "hang" else scripted.after(31, "too late")
    script = scripted(primary=[step], backup=["hello"])
    policy = FallbackPolicy(script.targets, FallbackConfig(timeout=30))
    run = policy.start()
    assert way(policy, script, run) == "hello"
    assert run.record.attempts[0].kind is FailureKind.TIMEOUT
    assert run.record.seconds == 30


def test_a_hang_without_a_timeout_is_an_error_of_the_test(scripted: Scripted) -> None:
    """Nothing would ever end it, so the test says so at once."""
    script = scripted(primary=[scripted.hang()], backup=["hello"])
    policy = FallbackPolicy(script.targets, FallbackConfig(timeout=None))
    with pytest.raises(pytest.fail.Exception, match=r"primary hangs for ever: .* no timeout"):
        policy.call(script.ask)


@pytest.mark.parametrize("way", STREAMS)
def test_streams_come_in_chunks_and_break(scripted: Scripted, way: Way) -> None:
    """A list is a stream; an error in it breaks it off there."""
    script = scripted(
        primary=[
            ["", scripted.status(529)],
            ["a", scripted.after(2, "b"), ConnectionResetError()],
        ],
        backup=[["hel", "lo"]],
    )
    policy = FallbackPolicy(script.targets)
    assert way(policy, script, policy.start()) == "hello"
    run = policy.start()
    with pytest.raises(StreamInterrupted) as caught:
        way(policy, script, run)
    assert caught.value.partial == ("a", "b")
    assert run.record.seconds == 2
    assert script.closed == {"primary": 2, "backup": 1}


def test_a_stream_that_is_left_is_closed(scripted: Scripted) -> None:
    """Who stops reading closes the target's stream."""
    script = scripted(only=[["a", "b"]])
    reading = FallbackPolicy(script.targets).stream(script.stream)
    assert next(reading) == "a"
    assert script.closed["only"] == 0
    reading.close()
    assert script.closed["only"] == 1


def test_requests_are_kept(scripted: Scripted, fallback_clock: Clock) -> None:
    """A script keeps each attempt, what else it was given, and when; it shows no prompt."""
    script = scripted(primary=[scripted.after(3, scripted.status(500))], backup=["hello"])
    FallbackPolicy(script.targets).call(
        lambda attempt: script.ask(attempt, ["secret prompt"], temperature=0)
    )
    first, second = script.requests
    assert (first.args, first.kwargs) == ((["secret prompt"],), {"temperature": 0})
    assert (first.attempt.number, second.attempt.is_fallback) == (1, True)
    assert (first.at, second.at) == (0, 3)
    assert "secret" not in repr(script.requests)


@pytest.mark.parametrize("way", WAYS)
def test_a_script_that_runs_out_fails_the_test(scripted: Scripted, way: Way) -> None:
    """No policy takes the end of a script for a provider's failure, whatever it falls back on."""
    script = scripted(primary=[scripted.status(500)], backup=["hello", "unheard"])
    policy = FallbackPolicy(script.targets, FallbackConfig(fallback_on=ALL))
    assert way(policy, script, policy.start()) == "hello"
    message = (
        "the script of primary ran out: it was asked for step 2 of 1 "
        r"\(asked before: primary, backup\); add a step, or end it with scripted.always"
    )
    with pytest.raises(pytest.fail.Exception, match=message):
        way(policy, script, policy.start())


def test_a_target_without_a_script_fails_the_test(scripted: Scripted) -> None:
    """A chain of the service's own that the script does not cover is named."""
    script = scripted(primary=["hello"])
    with pytest.raises(pytest.fail.Exception, match="knows no target other, only primary"):
        FallbackPolicy([Target("other")]).call(script.ask)


def test_always_is_never_used_up(scripted: Scripted) -> None:
    """The last step may stand for all that follow; an error keeps no trace of the one before."""
    script = scripted(primary=["first", scripted.always(scripted.status(503))])
    policy = FallbackPolicy(script.targets, FallbackConfig(wait=1))
    assert policy.call(script.ask) == "first"
    lengths: list[int] = []
    for _ in range(2):
        with pytest.raises(StatusError) as caught:
            policy.call(script.ask, max_attempts=1)
        lengths.append(len([*traceback.walk_tb(caught.value.__traceback__)]))
    assert lengths[0] == lengths[1]
    assert script.unplayed == {}


def test_codes_reach_the_classifier(scripted: Scripted) -> None:
    """A 429 with the code of an empty account is a quota, as from a provider."""
    step = scripted.status(429, code="insufficient_quota")
    script = scripted(primary=[step], backup=[step])
    with pytest.raises(FallbackExhausted) as caught:
        FallbackPolicy(script.targets).call(script.ask)
    assert {one.kind for one in caught.value.record.attempts} == {FailureKind.QUOTA}
    assert {one.code for one in caught.value.record.attempts} == {"insufficient_quota"}


def test_targets_may_be_given_whole(scripted: Scripted) -> None:
    """A chain of the service's own keeps its parameters and windows."""
    target = Target("gpt", provider="openai", name="mine", params={"a": 1}, context_window=5)
    script = scripted({target: ["hello"]})
    assert script.targets == (target,)
    assert script.targets[0].params == {"a": 1}
    assert FallbackPolicy([target]).call(script.ask) == "hello"
