"""The kit's scripts, clock, records and mode, through the fixtures that its plugin brings."""

from __future__ import annotations

import asyncio
import gc
import sys
import time
import traceback
from importlib.metadata import entry_points
from threading import Thread
from typing import TYPE_CHECKING, Any

import pytest

from honcho_fallback import (
    FailureKind,
    FallbackConfig,
    FallbackConfigError,
    FallbackExhausted,
    FallbackObserver,
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
from tests.helpers.scripted import DRIVERS, repeating

if TYPE_CHECKING:
    from collections.abc import Callable

    from honcho_fallback import Attempt, CallRecord, FallbackRun

    Way = Callable[[FallbackPolicy, Script, FallbackRun], Any]
    Run = Callable[..., pytest.RunResult]


ALL = {*FailureKind} - {FailureKind.CANCELLED}
WAYS = pytest.mark.parametrize("way", DRIVERS.values(), ids=DRIVERS)


@WAYS
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


@WAYS
def test_delays_pass_on_the_clock(scripted: Scripted, fallback_clock: Clock, way: Way) -> None:
    """What comes late takes so long by the record, and is no wait of the policy."""
    script = scripted(only=[scripted.after(12.5, "hello")])
    policy = FallbackPolicy(script.targets)
    run = policy.start()
    assert way(policy, script, run) == "hello"
    assert run.record.seconds == 12.5
    assert fallback_clock.slept == []


@WAYS
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


@pytest.mark.parametrize("asynchronous", [False, True])
def test_streams_come_in_chunks_and_break(scripted: Scripted, asynchronous: bool) -> None:
    """A list is a stream; an error in it breaks it off there."""
    script = scripted(
        primary=[
            ["", scripted.status(529)],
            ["a", scripted.after(2, "b"), ConnectionResetError()],
        ],
        backup=[["hel", "lo"]],
    )
    policy = FallbackPolicy(script.targets)

    async def aread(run: FallbackRun) -> list[str]:
        return [chunk async for chunk in policy.astream(script.astream, run=run)]

    def read(run: FallbackRun) -> list[str]:
        return (
            asyncio.run(aread(run)) if asynchronous else [*policy.stream(script.stream, run=run)]
        )

    assert "".join(read(policy.start())) == "hello"
    run = policy.start()
    with pytest.raises(StreamInterrupted) as caught:
        read(run)
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


@pytest.mark.parametrize("driver", DRIVERS)
def test_the_policys_waits_move_the_clock_and_take_no_time(
    fallback_clock: Clock, driver: str
) -> None:
    """Retry-After is waited for by every driver, on the clock; the record counts it."""
    policy = FallbackPolicy([Target("only")])
    script = repeating(only=[StatusError(429, retry_after=20), "hello"])
    run = policy.start()
    before = fallback_clock.now
    assert DRIVERS[driver](policy, script, run) == "hello"
    assert fallback_clock.slept == [20.0]
    assert fallback_clock.now == before + 20
    assert run.record.seconds == 20


def test_it_stands_still_until_it_is_moved(fallback_clock: Clock) -> None:
    """Only the test moves it; records start where it stands."""
    policy = FallbackPolicy([Target("only")])
    first, second = policy.start(), policy.start()
    assert first.record.started_at == second.record.started_at == fallback_clock.time()
    assert first.record.seconds == 0
    fallback_clock.advance(3600)
    assert first.record.seconds == 3600
    assert policy.start().record.started_at == second.record.started_at + 3600


def test_time_is_given_back() -> None:
    """After the block policies wait and read the real time again, also after an error."""
    policy = FallbackPolicy([Target("only")])
    with pytest.raises(ZeroDivisionError), Clock().installed():
        raise ZeroDivisionError
    before = time.monotonic()
    script = repeating(only=[StatusError(500), "hello"])
    run = policy.start(wait=0.01)
    assert policy.call(script.ask, run=run) == "hello"
    assert time.monotonic() - before >= 0.01
    assert abs(run.record.started_at - time.time()) < 60


def test_tasks_wait_through_the_same_time() -> None:
    """Waits at once overlap: they end in order, and the clock stands where the last one ends."""
    clock, woke = Clock(now=0.0), list[tuple[str, float]]()

    async def wait(name: str, *seconds: float) -> None:
        for pause in seconds:
            await clock.asleep(pause)
            woke.append((name, clock.now))

    async def main() -> None:
        await asyncio.gather(wait("long", 10), wait("short", 1, 2, 3), wait("middle", 5))

    asyncio.run(main())
    assert woke == [
        ("short", 1),
        ("short", 3),
        ("middle", 5),
        ("short", 6),
        ("long", 10),
    ]
    assert clock.now == 10


def test_a_cancelled_wait_holds_nobody_up() -> None:
    """Who is cancelled while waiting leaves the queue, and moves no clock."""
    clock = Clock(now=0.0)

    async def main() -> None:
        waiting = asyncio.create_task(clock.asleep(1))
        await asyncio.sleep(0)
        waiting.cancel()
        await clock.asleep(5)

    asyncio.run(main())
    assert clock.now == 5


def test_concurrent_calls_share_the_time(fallback_clock: Clock, scripted: Scripted) -> None:
    """Twenty calls that each wait 8 s take 8 s."""
    script = scripted(only=[scripted.status(503, retry_after=8)] * 20 + ["hello"] * 20)
    policy = FallbackPolicy(script.targets, FallbackConfig(retry_after_cap=8))

    async def main() -> list[str]:
        return [*await asyncio.gather(*(policy.acall(script.aask) for _ in range(20)))]

    before = fallback_clock.now
    assert asyncio.run(main()) == ["hello"] * 20
    assert fallback_clock.now == before + 8
    assert fallback_clock.slept == [8.0] * 20


def ask(attempt: Attempt) -> str:
    if attempt.target.name == "primary":
        raise StatusError(429)
    return "hello"


# Made before any test, as services do.
POLICY = FallbackPolicy([Target("primary"), Target("backup")], agent="service")


def test_records_of_policies_made_elsewhere_are_collected(fallback_records: Records) -> None:
    """Neither the policy nor its maker knows of the test."""
    assert list(fallback_records) == []
    POLICY.call(ask)
    assert_switched(fallback_records.one, from_="primary", to="backup", kind="rate_limit")
    POLICY.call(ask, agent="other")
    assert [record.agent for record in fallback_records] == ["service", "other"]
    assert [*fallback_records[:1]] == [fallback_records[0]]


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
    assert [record.outcome for record in fallback_records] == [
        "success",
        "exhausted",
        "rejected",
        "cancelled",
        "abandoned",
        "interrupted",
    ]


def test_threads_and_loops_are_seen(fallback_records: Records) -> None:
    """A call counts wherever it is made."""
    thread = Thread(target=POLICY.call, args=(ask,))
    thread.start()
    thread.join()

    async def aask(attempt: Attempt) -> str:
        return ask(attempt)

    asyncio.run(POLICY.acall(aask))
    assert len(fallback_records) == 2


def test_observers_are_told_as_ever(fallback_records: Records) -> None:
    """Records come to those who were asked to be told, too."""
    heard: list[CallRecord] = []

    class Listener(FallbackObserver):
        def on_start(self, call: Any) -> None: ...
        def on_switch(self, switch: Any) -> None: ...
        def on_finish(self, record: CallRecord) -> None:
            heard.append(record)

    FallbackPolicy([Target("backup")], observers=[Listener()]).call(ask)
    assert heard == [*fallback_records]


def test_blocks_nest_and_end() -> None:
    """Each block collects its own time; after it, nothing is collected."""
    with recorded() as outer:
        POLICY.call(ask)
        with recorded() as inner:
            POLICY.call(ask)
    POLICY.call(ask)
    assert (len(outer), len(inner)) == (2, 1)


def test_not_one_record_shows_those_there_are(fallback_records: Records) -> None:
    """Who expects one call and sees two learns which."""
    with pytest.raises(AssertionError, match="there are 0 records, not one"):
        _ = fallback_records.one
    POLICY.call(ask)
    POLICY.call(ask)
    with pytest.raises(
        AssertionError, match=r"2 records, not one\nCall .* agent service: the fall"
    ):
        _ = fallback_records.one
    assert repr(fallback_records).count("rate_limit") == 2


@pytest.fixture
def record(fallback_records: Records) -> CallRecord:
    """Of a call that went from the primary over the second to the third."""
    policy = FallbackPolicy([Target(name) for name in ("primary", "second", "third")])

    def serve(attempt: Attempt) -> str:
        if attempt.target.name == "third":
            return "hello"
        raise StatusError({"primary": 429, "second": 503}[attempt.target.name])

    policy.call(serve)
    return fallback_records.one


@pytest.mark.parametrize(
    "expected",
    [
        {},
        {"from_": "primary"},
        {"to": "third"},
        {"kind": FailureKind.RATE_LIMIT},
        {"from_": "second", "to": Target("third"), "kind": "overloaded"},
        {"from_": Target("primary"), "to": "second", "kind": "rate_limit"},
    ],
)
def test_switches_that_were_made(record: CallRecord, expected: dict[str, Any]) -> None:
    """What is left out may be anything; the rest has to be true of one and the same switch."""
    assert_switched(record, **expected)


@pytest.mark.parametrize(
    ("expected", "wanted"),
    [
        ({"from_": "third"}, "from third to any target"),
        ({"to": Target("primary")}, "from any target to primary"),
        ({"from_": "primary", "to": "third"}, "from primary to third"),
        ({"from_": "primary", "kind": "overloaded"}, "from primary to any target for overloaded"),
        ({"kind": FailureKind.TIMEOUT}, "from any target to any target for timeout"),
    ],
)
def test_switches_that_were_not_made(
    record: CallRecord, expected: dict[str, Any], wanted: str
) -> None:
    """The message says what was wanted, what was done, and the whole call."""
    with pytest.raises(AssertionError) as caught:
        assert_switched(record, **expected)
    assert str(caught.value) == (
        f"expected a switch {wanted}, but it switched from primary to second for rate_limit, "
        f"then from second to third for overloaded\n{record.explain()}"
    )


def test_a_retry_is_no_switch(scripted: Scripted, fallback_records: Records) -> None:
    """Asking the same target again is not going to another."""
    script = scripted(only=[scripted.status(503), "hello"])
    FallbackPolicy(script.targets).call(script.ask)
    assert_not_switched(fallback_records.one)
    with pytest.raises(AssertionError, match="to any target, but there was no switch\nCall "):
        assert_switched(fallback_records.one)


def test_the_switches_of_a_call_that_should_have_made_none(record: CallRecord) -> None:
    """They are told with the call."""
    with pytest.raises(AssertionError, match="expected no switch, but it switched from primary"):
        assert_not_switched(record)


DOWN = StatusError(503, retry_after=20)


@WAYS
def test_nothing_waits_in_set_testing(scripted: Scripted, way: Way) -> None:
    """A target that would be asked again after 20 s is asked at once, however it is asked."""
    policy = FallbackPolicy([Target("only")])
    clock = Clock()
    with clock.installed(), set_testing():
        script = scripted(only=[DOWN, DOWN, "hello"])
        assert way(policy, script, policy.start()) == "hello"
        assert [request.attempt.wait for request in script.requests] == [0, 0, 0]
    assert clock.slept == []


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


@pytest.mark.parametrize("wrong", [0, -1, True, "1", 1.5])
def test_a_wrong_number_is_refused(wrong: int) -> None:
    """The message says what to pass."""
    with (
        pytest.raises(FallbackConfigError, match=r"max_attempts: got .*; pass a whole number"),
        set_testing(max_attempts=wrong),
    ):
        pass


def test_modes_and_clocks_and_records_go_together(scripted: Scripted) -> None:
    """Each takes what the runtime of the process is and adds its part."""
    policy = FallbackPolicy([Target("only")])
    with Clock().installed() as clock, recorded() as outer, set_testing(), recorded() as inner:
        assert policy.call(scripted(only=[DOWN, "hello"]).ask) == "hello"
    assert outer.one == inner.one
    assert (outer.one.outcome, outer.one.started_at) == ("success", clock.time())


def test_the_mode_ends_with_its_block() -> None:
    """Nested or not, what was before comes back, also where the block raises."""
    before = Runtime.current()
    with pytest.raises(KeyError), set_testing():
        with set_testing(max_attempts=1):
            assert Runtime.current().max_attempts == 1
        assert Runtime.current().max_attempts is None
        raise KeyError
    assert Runtime.current() is before


def test_a_policy_may_have_a_runtime_of_its_own() -> None:
    """`runtime=` gives time to one policy; the others stay with that of the process."""
    waits: list[float] = []
    own = Runtime(monotonic=lambda: 7.0, time=lambda: 100.0, sleep=waits.append)

    def ask(attempt: Attempt) -> str:
        if attempt.number == 1:
            raise DOWN
        return "hello"

    policy = FallbackPolicy([Target("only")], runtime=own)
    run = policy.start()
    assert policy.call(ask, run=run) == "hello"
    assert (waits, run.record.started_at, run.record.seconds) == ([20], 100.0, 0)
    with pytest.raises(FallbackConfigError, match="runtime: got a int; pass a Runtime"):
        FallbackPolicy([Target("only")], runtime=5)  # type: ignore[arg-type] # the point


pytest_plugins = ["pytester"]

SCRIPTED = """
from honcho_fallback import FallbackPolicy

def test_it(scripted, fallback_records):
    script = scripted(primary=[scripted.status(429)], backup=["hello"])
    assert FallbackPolicy(script.targets).call(script.ask) == "hello"
    assert fallback_records.one.is_fallback
"""


@pytest.fixture
def run(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run pytest in a process of its own, with no plugins but this one and those asked for."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")

    def run_pytest(*arguments: str) -> pytest.RunResult:
        command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider"]
        return pytester.run(*command, "-p", "honcho_fallback", *arguments)

    return run_pytest


def test_startup_imports_nothing_heavy(pytester: pytest.Pytester, run: Run) -> None:
    """Until a fixture is used, pytest has imported the plugin's one module and no more."""
    pytester.makepyfile("""
        import sys

        CORE = {"honcho_fallback", "pydantic", "pydantic_core", "tenacity"}
        HEAVY = CORE | {"anthropic", "httpx", "langchain_core", "litellm", "openai"}

        def test_before(request):
            assert request.config.pluginmanager.hasplugin("honcho_fallback")
            assert not HEAVY & {*sys.modules}

        def test_using(fallback_clock):
            assert "honcho_fallback" in sys.modules
            assert not (HEAVY - CORE) & {*sys.modules}
    """)
    run().assert_outcomes(passed=2)


def test_fixtures_are_there_without_an_import(pytester: pytest.Pytester, run: Run) -> None:
    """A test file that names a fixture gets it; --fixtures tells what each is for."""
    pytester.makepyfile(SCRIPTED)
    run("-W", "error").assert_outcomes(passed=1)
    listed = run("--fixtures").stdout.str()
    for name in ("fallback_clock", "fallback_records", "scripted"):
        assert f"\n{name} -- " in listed


def test_the_failures_message_is_the_users(pytester: pytest.Pytester, run: Run) -> None:
    """A failed assertion shows the call and the user's line, and none of the kit's own lines."""
    pytester.makepyfile("""
        from honcho_fallback import FallbackPolicy
        from honcho_fallback.testing import assert_switched

        def test_it(scripted, fallback_records):
            script = scripted(primary=["hello"], backup=["unheard"])
            FallbackPolicy(script.targets, agent="deriver").call(script.ask)
            assert_switched(fallback_records.one, to="backup")
    """)
    result = run()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            ">*assert_switched(fallback_records.one, to=*",
            "E *expected a switch from any target to backup, but there was no switch",
            "E *Call * of agent deriver: the primary primary answered *",
            "E *1. primary: answered in 0 ms",
        ]
    )
    result.stdout.no_fnmatch_line("*raise AssertionError*")


def test_no_test_sees_anothers(pytester: pytest.Pytester, run: Run) -> None:
    """Clock and records end with the test that used them."""
    pytester.makepyfile("""
        import time
        from honcho_fallback import FallbackPolicy, Target

        POLICY = FallbackPolicy([Target("only")])

        def test_first(fallback_clock, fallback_records):
            fallback_clock.advance(1e6)
            POLICY.call(lambda attempt: "hello")
            assert len(fallback_records) == 1

        def test_second(fallback_records):
            POLICY.call(lambda attempt: "hello")
            assert abs(fallback_records.one.started_at - time.time()) < 60

        def test_third(fallback_clock):
            assert fallback_clock.now == 1000
    """)
    run().assert_outcomes(passed=3)


ASYNC = """
import pytest
from honcho_fallback import FallbackPolicy

{mark}
async def test_it(scripted, fallback_records, fallback_clock):
    script = scripted(only=[scripted.status(503, retry_after=9), "hello"])
    assert await FallbackPolicy(script.targets).acall(script.aask) == "hello"
    assert fallback_records.one.seconds == 9

{mark}
async def test_again(fallback_records, scripted):
    script = scripted(only=["hello"])
    await FallbackPolicy(script.targets).acall(script.aask)
    assert fallback_records.one.outcome == "success"
"""


@pytest.mark.parametrize(
    ("mark", "arguments"),
    [
        ("@pytest.mark.asyncio", ["-p", "asyncio"]),
        ("@pytest.mark.asyncio(loop_scope='session')", ["-p", "asyncio"]),
        ("@pytest.mark.anyio", ["-p", "anyio"]),
    ],
)
def test_any_async_runner_will_do(
    pytester: pytest.Pytester, run: Run, mark: str, arguments: list[str]
) -> None:
    """Fixtures are sync, so pytest-asyncio and anyio may run the tests, in loops of any scope."""
    pytester.makeconftest("""
        import pytest

        @pytest.fixture
        def anyio_backend():
            return "asyncio"
    """)
    pytester.makepyfile(ASYNC.format(mark=mark))
    run(*arguments).assert_outcomes(passed=2)


def test_without_any_async_plugin(pytester: pytest.Pytester, run: Run) -> None:
    """A plain test that runs its own loop needs neither."""
    pytester.makepyfile("""
        import asyncio
        from honcho_fallback import FallbackPolicy

        def test_it(scripted, fallback_records):
            script = scripted(only=["hello"])
            assert asyncio.run(FallbackPolicy(script.targets).acall(script.aask)) == "hello"
            assert len(fallback_records) == 1
    """)
    run().assert_outcomes(passed=1)


def test_workers_share_nothing(pytester: pytest.Pytester, run: Run) -> None:
    """Under pytest-xdist every test sees its own calls only."""
    pytester.makepyfile("""
        import pytest
        from honcho_fallback import FallbackPolicy, Target

        POLICY = FallbackPolicy([Target("only")])

        @pytest.mark.parametrize("number", range(8))
        def test_it(number, scripted, fallback_records, fallback_clock):
            script = scripted(only=[scripted.status(500, retry_after=5), number])
            assert POLICY.call(script.ask) == number
            assert fallback_records.one.seconds == 5
            assert fallback_clock.slept == [5.0]
    """)
    run("-p", "xdist", "-n", "2").assert_outcomes(passed=8)


def test_a_users_fixture_of_the_same_name_wins(pytester: pytest.Pytester, run: Run) -> None:
    """A name as plain as ``scripted`` may be taken already; the plugin stands back."""
    pytester.makeconftest("""
        import pytest

        @pytest.fixture
        def scripted():
            return "mine"
    """)
    pytester.makepyfile("def test_it(scripted): assert scripted == 'mine'")
    run().assert_outcomes(passed=1)


def test_the_installed_distribution_names_the_plugin() -> None:
    """The entry point is what pytest finds it by."""
    (found,) = entry_points(group="pytest11", name="honcho_fallback")
    assert found.value == "honcho_fallback_pytest"
