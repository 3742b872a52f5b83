"""The kit's scripts, clock, records and mode, through the fixtures that its plugin brings."""

from __future__ import annotations

import asyncio
import gc
import sys
import traceback
from threading import Thread
from typing import TYPE_CHECKING, Any

import pytest

from honcho_fallback import (
    FailureKind,
    FallbackConfig,
    FallbackConfigError,
    FallbackExhausted,
    FallbackPolicy,
    Runtime,
    StreamInterrupted,
    Target,
)
from honcho_fallback.testing import (
    Clock,
    Records,
    Script,
    Scripted,
    StatusError,
    assert_not_switched,
    assert_switched,
    recorded,
    set_testing,
)
from tests.helpers.observers import Listener
from tests.helpers.scripted import DRIVERS, repeating
from tests.helpers.scripted import ask as asked

if TYPE_CHECKING:
    from collections.abc import Callable

    from honcho_fallback import FallbackRun

    Way = Callable[[FallbackPolicy, Script, FallbackRun], Any]


ALL = {*FailureKind} - {FailureKind.CANCELLED}
DOWN = StatusError(503, retry_after=20)
WAYS = pytest.mark.parametrize("way", DRIVERS.values(), ids=DRIVERS)


@WAYS
def test_targets_play_their_scripts(scripted: Scripted, way: Way) -> None:
    """Statuses, codes, exceptions and answers come in order, target by target, however asked."""
    whole = Target("m", provider="p", name="fourth", params={"a": 1}, context_window=5)
    script = scripted(
        {"openai/gpt": [scripted.status(429, retry_after=60), "again"], whole: ["hello"]},
        backup=[ConnectionResetError],
        third=[scripted.status(429, code="insufficient_quota"), "third"],
    )
    assert script.targets[:2] == (Target("gpt", provider="openai"), whole)
    chain = [script.targets[0], *script.targets[2:], whole]
    policy = FallbackPolicy(chain, FallbackConfig(max_attempts=4))
    run = policy.start()
    assert way(policy, script, run) == "hello"
    assert script.asked == ["openai/gpt", "backup", "third", "fourth"]
    assert [(one.kind, one.code, one.retry_after) for one in run.record.attempts] == [
        (FailureKind.RATE_LIMIT, None, 60),
        (FailureKind.CONNECTION, None, None),
        (FailureKind.QUOTA, "insufficient_quota", None),
        (None, None, None),
    ]
    assert script.unplayed == {"openai/gpt": ["again"], "third": ["third"]}
    assert way(policy, script, policy.start()) == "again"


@WAYS
def test_what_comes_late_takes_the_clocks_time(
    scripted: Scripted, fallback_clock: Clock, way: Way
) -> None:
    """It is no wait of the policy; too late, or never, it costs the timeout and is a timeout."""
    script = scripted(
        primary=[scripted.after(12.5, "hello"), scripted.hang(), scripted.after(31, "too late")],
        backup=["hello", "hello"],
    )
    policy = FallbackPolicy(script.targets, FallbackConfig(timeout=30))
    ends: list[Any] = []
    for _ in range(3):
        run = policy.start()
        assert way(policy, script, run) == "hello"
        ends.append((run.record.seconds, run.record.attempts[0].kind))
    assert ends == [(12.5, None), (30, FailureKind.TIMEOUT), (30, FailureKind.TIMEOUT)]
    assert fallback_clock.slept == []


@pytest.mark.parametrize("verb", ["stream", "astream"])
def test_streams_come_in_chunks_and_break(scripted: Scripted, verb: str) -> None:
    """A list is a stream; an error in it breaks it off there."""
    script = scripted(
        primary=[
            ["", scripted.status(529)],
            ["a", scripted.after(2, "b"), ConnectionResetError()],
        ],
        backup=[["hel", "lo"], ["a", "b"]],
    )
    policy = FallbackPolicy(script.targets)
    assert asked(policy, script, verb) == ["hel", "lo"]
    run = policy.start()
    with pytest.raises(StreamInterrupted) as caught:
        asked(policy, script, verb, run=run)
    assert caught.value.partial == ("a", "b")
    assert run.record.seconds == 2
    assert script.closed == {"primary": 2, "backup": 1}
    reading = FallbackPolicy(script.targets[1:]).stream(script.stream)
    assert next(reading) == "a"
    assert script.closed["backup"] == 1
    reading.close()  # who stops reading closes the target's stream
    assert script.closed["backup"] == 2


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


@WAYS
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


def test_what_no_script_can_answer_fails_the_test(scripted: Scripted) -> None:
    """A target that the script does not cover, and one that hangs where nothing would end it."""
    script = scripted(primary=[scripted.hang()])
    with pytest.raises(pytest.fail.Exception, match="knows no target other, only primary"):
        FallbackPolicy([Target("other")]).call(script.ask)
    with pytest.raises(pytest.fail.Exception, match=r"primary hangs for ever: .* no timeout"):
        FallbackPolicy(script.targets, FallbackConfig(timeout=None)).call(script.ask)


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


@WAYS
def test_the_policys_waits_move_the_clock_and_take_no_time(
    fallback_clock: Clock, way: Way
) -> None:
    """Retry-After is waited for by every driver, on the clock, which nothing else moves.

    In ``set_testing`` a target that would be asked again after 20 s is asked at once.
    """
    policy = FallbackPolicy([Target("only")])
    run, before = policy.start(), fallback_clock.now
    assert run.record.started_at == fallback_clock.time()
    assert way(policy, repeating(only=[DOWN, "hello"]), run) == "hello"
    assert fallback_clock.slept == [20.0]
    assert fallback_clock.now == before + 20
    assert run.record.seconds == 20
    fallback_clock.advance(3600)
    assert policy.start().record.started_at == run.record.started_at + 3620
    script = repeating(only=[DOWN, DOWN, "hello"])
    with set_testing():
        assert way(policy, script, policy.start()) == "hello"
    assert [request.attempt.wait for request in script.requests] == [0, 0, 0]
    assert fallback_clock.slept == [20.0]


async def test_tasks_wait_through_the_same_time() -> None:
    """Waits at once overlap and end in order; who is cancelled in one holds nobody up."""
    clock, woke = Clock(now=0.0), list[tuple[str, float]]()

    async def wait(name: str, *seconds: float) -> None:
        for pause in seconds:
            await clock.asleep(pause)
            woke.append((name, clock.now))

    cancelled = asyncio.create_task(clock.asleep(4))
    await asyncio.sleep(0)
    cancelled.cancel()
    await asyncio.gather(wait("long", 10), wait("short", 1, 2, 3), wait("middle", 5))
    assert woke == [("short", 1), ("short", 3), ("middle", 5), ("short", 6), ("long", 10)]
    assert clock.now == 10


# Made before any test, as services do.
SERVICE = repeating(primary=[StatusError(429)], backup=["hello"])
POLICY = FallbackPolicy(SERVICE.targets, agent="service")


def test_records_of_policies_made_elsewhere_are_collected(fallback_records: Records) -> None:
    """Neither the policy nor its maker knows of the test; threads and loops count, too."""
    listener = Listener()
    assert list(fallback_records) == []
    with pytest.raises(AssertionError, match="there are 0 records, not one"):
        _ = fallback_records.one
    POLICY.call(SERVICE.ask)
    assert_switched(fallback_records.one, from_="primary", to="backup", kind="rate_limit")
    thread = Thread(target=POLICY.call, args=(SERVICE.ask,), kwargs={"agent": "thread"})
    thread.start()
    thread.join()
    asyncio.run(POLICY.acall(SERVICE.aask, agent="loop"))
    FallbackPolicy([Target("backup")], observers=[listener], agent="heard").call(SERVICE.ask)
    assert [record.agent for record in fallback_records] == ["service", "thread", "loop", "heard"]
    assert listener.records == fallback_records[3:]
    assert repr(fallback_records).count("rate_limit") == 3
    with pytest.raises(
        AssertionError, match=r"4 records, not one\nCall .* agent service: the fall"
    ):
        _ = fallback_records.one  # who expects one call and sees more learns which


def test_every_ending_is_collected_once(fallback_records: Records, scripted: Scripted) -> None:
    """Answered, exhausted, rejected, cancelled, abandoned, interrupted: one record each."""
    bad = scripted.status(400)
    script = scripted(
        only=["a", scripted.status(401), bad, asyncio.CancelledError, ["b", "c"], ["d", OSError]]
    )
    policy = FallbackPolicy(script.targets, agent="each")
    policy.call(script.ask)
    for error in (StatusError, StatusError, asyncio.CancelledError):
        with pytest.raises(error):
            policy.call(script.ask)
    next(policy.stream(script.stream))
    gc.collect()
    with pytest.raises(Exception, match="broke off"):
        list(policy.stream(script.stream))
    endings = "success exhausted rejected cancelled abandoned interrupted"
    assert [record.outcome for record in fallback_records] == endings.split()


def test_switches_are_told(scripted: Scripted, fallback_records: Records) -> None:
    """What is left out may be anything; the rest has to be true of one and the same switch.

    Asking the same target again is none. A message says what was wanted, what was done, and the
    whole call.
    """
    script = scripted(
        primary=[scripted.status(429)], second=[scripted.status(503)], third=["hello"]
    )
    FallbackPolicy(script.targets).call(script.ask)
    record = fallback_records.one
    assert_switched(record)
    assert_switched(record, to="third")
    assert_switched(record, kind=FailureKind.RATE_LIMIT)
    assert_switched(record, from_="second", to=Target("third"), kind="overloaded")
    not_made: list[tuple[dict[str, Any], str]] = [
        ({"to": Target("primary")}, "from any target to primary"),
        ({"from_": "primary", "to": "third"}, "from primary to third"),
        ({"from_": "primary", "kind": "overloaded"}, "from primary to any target for overloaded"),
    ]
    for expected, wanted in not_made:
        with pytest.raises(AssertionError) as caught:
            assert_switched(record, **expected)
        assert str(caught.value) == (
            f"expected a switch {wanted}, but it switched from primary to second for rate_limit, "
            f"then from second to third for overloaded\n{record.explain()}"
        )
    with pytest.raises(AssertionError, match="expected no switch, but it switched from primary"):
        assert_not_switched(record)
    script = scripted(only=[scripted.status(503), "hello"])
    FallbackPolicy(script.targets).call(script.ask)
    assert_not_switched(fallback_records[-1])
    with pytest.raises(AssertionError, match="to any target, but there was no switch\nCall "):
        assert_switched(fallback_records[-1])


@pytest.mark.parametrize(
    ("most", "wanted"), [(1, ["one"]), (2, ["one", "two"]), (None, ["one", "two", "two"])]
)
def test_attempts_are_bounded(scripted: Scripted, most: int | None, wanted: list[str]) -> None:
    """`max_attempts` bounds every call of the process, whatever its policy says."""
    policy = FallbackPolicy([Target("one"), Target("two")], max_attempts=3)
    script = scripted(one=[scripted.always(DOWN)], two=[scripted.always(DOWN)])
    with set_testing(max_attempts=most), pytest.raises(FallbackExhausted):
        policy.call(script.ask)
    assert script.asked == wanted


def test_wrong_numbers_and_runtimes_are_refused() -> None:
    """The message says what to pass."""
    for wrong in (0, True, "1"):
        with (
            pytest.raises(FallbackConfigError, match=r"max_attempts: got .*; pass a whole number"),
            set_testing(max_attempts=wrong),  # type: ignore[arg-type] # the point
        ):
            pass
    with pytest.raises(FallbackConfigError, match="runtime: got a int; pass a Runtime"):
        FallbackPolicy([Target("only")], runtime=5)  # type: ignore[arg-type] # the point


def test_modes_and_clocks_and_records_go_together(scripted: Scripted) -> None:
    """Each takes what the runtime of the process is and adds its part, until its block ends."""
    before = Runtime.current()
    policy = FallbackPolicy([Target("only")])
    with Clock().installed() as clock, recorded() as outer, set_testing(), recorded() as inner:
        assert policy.call(scripted(only=[DOWN, "hello"]).ask) == "hello"
    with pytest.raises(KeyError), set_testing(max_attempts=1):
        raise KeyError
    assert Runtime.current() is before
    policy.call(scripted(only=["hello"]).ask)
    assert outer.one == inner.one
    assert (outer.one.outcome, outer.one.started_at) == ("success", clock.time())


pytest_plugins = ["pytester"]

IN_A_FILE_OF_ITS_OWN = """
import sys

CORE = {"honcho_fallback", "pydantic", "pydantic_core", "tenacity"}
OTHERS = {"anthropic", "groq", "httpx", "httpx2", "langchain_core", "litellm", "openai"}

def test_before(request):
    assert request.config.pluginmanager.hasplugin("honcho_fallback")
    assert not (CORE | OTHERS) & {*sys.modules}

def test_using(fallback_clock):
    assert "honcho_fallback" in sys.modules
    assert not OTHERS & {*sys.modules}

import pytest

@pytest.fixture
def anyio_backend():
    return "asyncio"

@pytest.mark.RUNNER
@pytest.mark.parametrize("again", [False, True])
async def test_async(scripted, fallback_records, fallback_clock, again):
    from honcho_fallback import FallbackPolicy
    script = scripted(only=[scripted.status(503, retry_after=9), "hello"])
    assert await FallbackPolicy(script.targets).acall(script.aask) == "hello"
    assert fallback_records.one.seconds == 9

def test_that_fails(scripted, fallback_records):
    from honcho_fallback import FallbackPolicy
    from honcho_fallback.testing import assert_switched
    script = scripted(primary=["hello"], backup=["unheard"])
    FallbackPolicy(script.targets, agent="deriver").call(script.ask)
    assert_switched(fallback_records.one, to="backup")
"""


@pytest.mark.parametrize("runner", ["asyncio", "anyio"])
def test_a_file_of_tests_needs_nothing_but_the_plugin(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, runner: str
) -> None:
    """A test file that names a fixture gets it, in a process that has only what it asked for.

    Until a fixture is used, nothing but the plugin's module is imported; then the core, and no
    SDK. Fixtures are sync, so pytest-asyncio and anyio may run the tests, in loops of any scope.
    A failed assertion shows the call and the user's line, and none of the kit's own lines.
    ``--fixtures`` tells what each is for.
    """
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    pytester.makepyfile(IN_A_FILE_OF_ITS_OWN.replace("RUNNER", runner))
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "honcho_fallback"]
    # pytest-asyncio says of itself what it will change.
    warnings = ("-W", "error", "-W", "ignore::pytest.PytestDeprecationWarning")
    result = pytester.run(*command, *warnings, "-p", runner)
    result.assert_outcomes(passed=4, failed=1)
    result.stdout.fnmatch_lines(
        [
            ">*assert_switched(fallback_records.one, to=*",
            "E *expected a switch from any target to backup, but there was no switch",
            "E *Call * of agent deriver: the primary primary answered *",
            "E *1. primary: answered in 0 ms",
        ]
    )
    result.stdout.no_fnmatch_line("*raise AssertionError*")
    listed = pytester.run(*command, "--fixtures").stdout.str()
    for name in ("fallback_clock", "fallback_records", "scripted"):
        assert f"\n{name} -- " in listed
