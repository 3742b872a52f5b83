"""The state machine alone: order of steps, time, any class of error, and random histories."""

from __future__ import annotations

import asyncio
import concurrent.futures
from dataclasses import dataclass
from time import monotonic
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NoReturn

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from honcho_fallback import (
    Attempt,
    CallRecord,
    Failure,
    FailureKind,
    FallbackConfig,
    FallbackExhausted,
    FallbackObserver,
    FallbackPolicy,
    FallbackRun,
    OutcomeUnknown,
    StreamInterrupted,
    Target,
)
from honcho_fallback.testing import StatusError
from tests.helpers.own_rules import of_provider
from tests.helpers.scripted import DRIVERS, pair, repeating

if TYPE_CHECKING:
    from honcho_fallback.testing import Clock

DOWN = StatusError(503)


@pytest.mark.parametrize("accepts", [False, True])
def test_a_run_is_driven_by_hand(accepts: bool) -> None:
    """Whoever owns the loop asks for the attempt, reports, and reads the record with its usage."""
    run = pair().start()
    assert run.attempt.target.name == "primary"
    following = run.fail(DOWN)
    assert following is run.attempt
    assert following.target.name == "fallback"
    if accepts:
        assert run.accept("answer", usage={"input": 3}) is None
    else:
        run.succeed(usage={"input": 3})
    assert (run.record.outcome, run.record.usage) == ("success", {"input": 3})


@pytest.mark.parametrize(
    ("step", "given"),
    [("attempt", ()), ("accept", ("late",)), ("succeed", ()), ("commit", ()), ("fail", (DOWN,))],
)
def test_a_step_after_the_end_is_an_error(step: str, given: Any) -> None:
    """An illegal order raises and says what to do; the record stays as it was."""
    run = pair().start()
    run.succeed()
    record = run.record
    with pytest.raises(RuntimeError, match="has ended"):
        getattr(run, step)(*given)
    assert run.record == record


INTERRUPT = type("GraphInterrupt", (Exception,), {"__module__": "langgraph.errors"})
CANCELLED = [asyncio.CancelledError, KeyboardInterrupt, SystemExit, GeneratorExit, INTERRUPT]


@pytest.mark.parametrize("cls", [*CANCELLED, concurrent.futures.CancelledError])
def test_a_cancellation_goes_out_as_it_is(cls: type[BaseException]) -> None:
    """HON-031, G-48: never retried, never a switch, whatever the config and whatever it carries.

    The record closes. Refine, which may say something else of any error, cannot undo it.
    """
    refined = pair(refine=lambda *_: Failure.of(FailureKind.OVERLOADED))
    assert refined.start().fail(KeyError("x")).target.name == "fallback"
    for policy in (pair(rules=of_provider(BaseException), switch_after=3), refined):
        run, error = policy.start(), cls()
        error.__dict__["status_code"] = 429
        with pytest.raises(cls) as caught:
            run.fail(error)
        assert caught.value is error
        assert run.record.outcome == "cancelled"
        assert [attempt.kind for attempt in run.record.attempts] == ["cancelled"]


def test_time_comes_in_as_now(clock: Clock) -> None:
    """Durations come from the caller's clock, waits go out in the attempt."""
    run = pair(wait=2.0).start()
    start = clock.now
    run.fail(DOWN, now=start + 1)
    following = run.fail(DOWN, now=start + 3)
    assert (following.target.name, following.wait) == ("fallback", 2.0)
    run.succeed(now=start + 6)
    record = run.record
    assert [attempt.started for attempt in record.attempts] == pytest.approx([0, 1, 5])
    assert [attempt.seconds for attempt in record.attempts] == pytest.approx([1, 2, 1])
    assert record.seconds == pytest.approx(6)


def test_the_default_wait_has_full_jitter_and_doubles_to_eight_seconds() -> None:
    """HON-040, HON-041, G-08: 0.5 s doubling to 8 s, anywhere below; not a fixed 4 s."""
    run = FallbackPolicy([Target("only")], FallbackConfig(max_attempts=9)).start()
    waits = [run.fail(DOWN).wait for _ in range(8)]
    ceilings = [0.5, 1, 2, 4, 8, 8, 8, 8]
    assert all(0 <= wait <= top for wait, top in zip(waits, ceilings, strict=True))
    assert len(set(waits)) > 1


@pytest.mark.parametrize("keeps", [False, True])
def test_content_closes_the_way_to_the_fallback(clock: Clock, keeps: bool) -> None:
    """After commit() a failure ends the call with what was received.

    Who hands content out inside of an ask says where it keeps it; fail needs no chunks then.
    """
    run, shown = pair().start(), ["hel"]
    run.commit(now=clock.now + 1, partial=shown if keeps else ())
    run.commit(now=clock.now + 2)
    shown.append("lo")
    with pytest.raises(StreamInterrupted) as caught:
        run.fail(DOWN, partial=() if keeps else ("hel", "lo"))
    assert caught.value.partial == ("hel", "lo")
    assert run.record.time_to_first_token == pytest.approx(1)


def test_agents_with_their_own_chains_use_only_their_own() -> None:
    """HON-018: two policies in one process share no target, no config and no count."""
    deriver, summary = pair(), FallbackPolicy([Target("third")], FallbackConfig(max_attempts=1))
    deriver.start().fail(DOWN)
    with pytest.raises(StatusError):
        summary.start().fail(DOWN)
    assert deriver.start().attempt.target.name == "primary"


def test_no_id_reads_as_a_number() -> None:
    """What shows a trace or a log would round it, or make infinity of 22e80561."""
    policy = FallbackPolicy([Target("one")])
    ids = [policy.start().attempt.call_id for _ in range(50)] + [policy.turn().turn_id]
    assert not any(one[0].isdecimal() for one in ids)


# An error of anybody's class ends a call, or sends it on; it never breaks it.


def boom(*_: Any) -> NoReturn:
    """Be a hostile attribute."""
    raise ArithmeticError


def hostile(**attributes: Any) -> type[Exception]:
    """Make a class of errors with attributes that are not what others have."""
    name = "".join(one.strip("_").title() for one in attributes)
    return type(f"With{name}", (Exception,), {"status_code": 503, **attributes})


def holding(**facts: Any) -> type[Exception]:
    """Make one whose errors hold facts themselves, as those of SDKs hold their request."""
    return hostile(__init__=lambda self: self.__dict__.update(facts))


def with_headers(headers: Any) -> type[Exception]:
    return holding(request=SimpleNamespace(headers=headers))


@dataclass(frozen=True)
class FrozenError(Exception):
    """A value, as people write their errors: it refuses notes and tracebacks."""

    status_code: int = 503


class Headers(dict[str, Any]):
    __getitem__ = get = boom


NEXT_TO_IT: list[type[Exception]] = [
    FrozenError,
    holding(__notes__=[1, None]),
    hostile(__setattr__=boom),
    with_headers(Headers()),
]
CLASSES: list[type[Exception]] = [
    *NEXT_TO_IT,
    hostile(__getattribute__=boom),
    with_headers({"x-stainless-retry-count": [1]}),
    with_headers({"x-stainless-retry-count": "many"}),
    holding(request=hostile(headers=property(boom))()),
    *(hostile(**{name: property(boom)}) for name in (
        "__dict__", "__class__", "__notes__", "__cause__", "__context__", "__suppress_context__",
        "__traceback__", "args", "status", "response", "body", "headers", "request",
    )),
    *(hostile(**{name: boom}) for name in (
        "__str__", "__repr__", "__eq__", "__bool__", "add_note",
    )),
]  # fmt: skip


@pytest.mark.parametrize("cls", CLASSES)
@pytest.mark.parametrize("chain", [1, 2])
@pytest.mark.parametrize("options", [{}, {"replay": "safe"}, {"on_exhausted": "last"}])
@pytest.mark.parametrize("is_cut", [False, True])
def test_fail_never_raises_what_nobody_reported(
    cls: type[Exception], chain: int, options: Any, *, is_cut: bool
) -> None:
    """It raises that error, or one of ours, and the call is over."""
    config = FallbackConfig(wait=0, max_attempts=2, **options)
    run = FallbackPolicy(pair().targets[:chain], config).start()
    if is_cut:
        run.commit(partial=["once"])
    known = (FallbackExhausted, OutcomeUnknown, StreamInterrupted, cls)
    raised: BaseException | None = None
    try:
        while run.outcome == "running":
            try:
                raise cls
            except Exception as error:  # noqa: BLE001 # a traceback is a part of it
                run.fail(error)
    except Exception as error:  # noqa: BLE001 # looked at below
        raised = error
    assert issubclass(type(raised), known)
    assert run.outcome in {"exhausted", "rejected", "interrupted"}


@pytest.mark.parametrize("driver", DRIVERS)
@pytest.mark.parametrize("cls", NEXT_TO_IT)
def test_the_next_target_answers(driver: str, cls: type[Exception]) -> None:
    """Whatever the primary's error is."""
    policy, script = pair(), repeating(primary=[cls()], fallback=["hello"])
    assert DRIVERS[driver](policy, script, policy.start()) == "hello"


@pytest.mark.filterwarnings("error")
def test_a_warning_that_is_an_error_ends_the_call() -> None:
    """Where warnings are errors, the one about an SDK's own retries leaves no call open."""
    run = pair().start()
    with pytest.raises(UserWarning, match="made 3 retries of its own"):
        run.fail(with_headers({"x-stainless-retry-count": "3"})())
    assert run.outcome == "cancelled"


# Random histories.


def after(run: FallbackRun, error: Exception, now: float) -> Attempt | type[BaseException]:
    """Report a failure, and return the next attempt, whatever its call is, or what comes out."""
    try:
        return run.fail(error, now=now)._replace(call_id="")
    except (StatusError, FallbackExhausted) as raised:
        return type(raised)


class Histories(RuleBasedStateMachine, FallbackObserver):
    """Random chains, options, failures and times; the same input gives the same plan.

    HON-041, G-07: a switch waits nothing, whatever the strategy and a Retry-After say.
    AN-007, AN-022: the first ending wins; what comes late neither raises nor overwrites.
    """

    run: FallbackRun
    twin: FallbackRun

    @initialize(
        windows=st.lists(st.one_of(st.none(), st.integers(1, 3)), min_size=1, max_size=4),
        options=st.fixed_dictionaries(
            {
                "max_attempts": st.one_of(st.none(), st.integers(1, 6)),
                "switch_after": st.integers(1, 3),
                "wait": st.sampled_from([0.0, 1.5]),
            }
        ),
        unfit=st.sets(st.integers(0, 3), max_size=3),
    )
    def start(self, windows: list[int | None], options: Any, unfit: set[int]) -> None:
        self.finished: list[CallRecord] = []
        length = len(windows)
        chain = [Target(f"t{n}", context_window=windows[n]) for n in range(length)]
        policy = FallbackPolicy(chain, FallbackConfig(**options), observers=[self])
        self.limit = options["max_attempts"] or max(3, (length - 1) * options["switch_after"] + 1)
        self.unfit = {position for position in unfit if position < length}
        if len(self.unfit) == length:
            self.unfit = set()
        reasons = dict.fromkeys(self.unfit, "too small")
        self.run = policy.start(unfit=reasons)
        self.twin = FallbackPolicy(chain, FallbackConfig(**options)).start(unfit=reasons)
        self.now = monotonic()
        self.asked: list[Attempt] = [self.run.attempt]
        self.over = False

    def on_finish(self, record: CallRecord, /) -> None:
        self.finished.append(record)

    @precondition(lambda self: not self.over)
    @rule(
        status=st.sampled_from([400, 401, 408, 413, 429, 500, 503, 529]),
        retry_after=st.one_of(st.none(), st.integers(0, 100)),
        seconds=st.floats(0, 5),
    )
    def fail(self, status: int, retry_after: int | None, seconds: float) -> None:
        error = StatusError(status, retry_after=retry_after)
        self.now += seconds
        before = self.run.attempt
        following = after(self.run, error, self.now)
        assert after(self.twin, error, self.now) == following
        if not isinstance(following, Attempt):
            self.over = True
            return
        self.asked.append(following)
        assert following.number == before.number + 1
        if following.position != before.position:
            assert following.wait == 0

    @precondition(lambda self: not self.over)
    @rule(how=st.sampled_from(["succeed", "cancelled", "abandoned"]))
    def end(self, how: str) -> None:
        self.run.succeed() if how == "succeed" else self.run.cancel(how)  # type: ignore[arg-type] # one of the two
        self.over = True

    @precondition(lambda self: not self.over)
    @rule()
    def interrupt(self) -> None:
        with pytest.raises(asyncio.CancelledError):
            self.run.fail(asyncio.CancelledError())
        self.over = True

    @precondition(lambda self: self.over)
    @rule()
    def late_steps_do_nothing(self) -> None:
        record = self.run.record
        self.run.cancel()
        self.run.cancel("abandoned")
        with pytest.raises(RuntimeError):
            self.run.fail(DOWN)
        assert self.run.record == record

    @invariant()
    def never_back_and_never_too_often(self) -> None:
        positions = [attempt.position for attempt in self.asked]
        assert positions == sorted(positions)
        assert self.unfit.isdisjoint(positions)
        assert len(self.asked) <= self.limit

    @invariant()
    def closes_exactly_once(self) -> None:
        assert len(self.finished) == int(self.over)
        if self.over:
            assert self.finished[0] == self.run.record
            assert self.finished[0].outcome != "running"
            untried = dict(self.finished[0].untried)
            assert all(untried[f"t{position}"] == "too small" for position in self.unfit)


TestHistories = Histories.TestCase
TestHistories.settings = settings(max_examples=100, stateful_step_count=12, deadline=None)
