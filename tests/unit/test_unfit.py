"""Targets that cannot take a call, or may not see its data: who is asked instead, and why."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from honcho_fallback import (
    Cooldown,
    FallbackConfig,
    FallbackConfigError,
    FallbackExhausted,
    FallbackPolicy,
    Target,
)
from honcho_fallback.testing import StatusError
from tests.helpers.scripted import DRIVERS, repeating

if TYPE_CHECKING:
    from collections.abc import Callable

    from honcho_fallback.testing import Clock

DOWN = StatusError(503)
BLIND = "it cannot read images"


def chain(**options: Any) -> FallbackPolicy:
    given: dict[str, Any] = {"wait": 0, **options}
    return FallbackPolicy(
        [Target(name) for name in ("primary", "second", "third")], FallbackConfig(**given)
    )


@pytest.mark.parametrize("driver", DRIVERS)
def test_who_does_not_fit_is_passed_over(driver: str, caplog: Any) -> None:
    """The first that fits is asked first, as attempt one, and nothing of it is a switch."""
    policy, script = chain(), repeating(primary=[DOWN], second=["hello"], third=[DOWN])
    run = policy.start(unfit={0: BLIND})
    assert DRIVERS[driver](policy, script, run) == "hello"
    record = run.record
    assert script.asked == ["second"]
    assert [(one.number, one.position) for one in record.attempts] == [(1, 1)]
    assert record.untried == (("primary", BLIND), ("third", "another target answered first"))
    assert f"  -. primary: never asked, {BLIND}" in record.explain().splitlines()
    assert not caplog.records


@pytest.mark.parametrize("driver", DRIVERS)
def test_the_last_that_fits_ends_the_chain(driver: str) -> None:
    """A failure that may pass is waited for on the last target that fits, not handed on."""
    policy, script = chain(), repeating(primary=[DOWN], second=[DOWN, "hello"], third=["no"])
    run = policy.start(unfit={2: BLIND})
    assert DRIVERS[driver](policy, script, run) == "hello"
    assert script.asked == ["primary", "second", "second"]
    assert run.record.untried == (("third", BLIND),)


def test_a_failure_with_nobody_fit_left_exhausts_the_call() -> None:
    """What would have switched ends as exhausted, with the reason of who was not asked."""
    policy, denied = chain(), StatusError(401)
    with pytest.raises(FallbackExhausted) as caught:
        policy.call(repeating(primary=[denied], second=["no"]).ask, unfit={1: BLIND, 2: "x"})
    assert caught.value.exceptions == (denied,)
    assert caught.value.record.untried == (("second", BLIND), ("third", "x"))


def test_what_is_passed_in_is_copied_and_may_be_empty() -> None:
    """A caller that changes its own mapping later changes no call; an empty one says nothing."""
    unfit = {1: BLIND}
    run = chain().start(unfit=unfit)
    unfit[2] = BLIND
    assert run.fail(DOWN).position == 2
    assert chain().start(unfit={}).attempt.position == 0


@pytest.mark.parametrize(
    ("unfit", "options", "problem"),
    [
        ({0: "a", 1: "b", 2: "c"}, {}, "unfit: it leaves no target to ask"),
        ({0: "a"}, {"must_not_degrade": True}, "unfit: it leaves no target to ask"),
        ({3: "a"}, {}, "unfit: 3 is no position of this chain; pass numbers from 0 to 2"),
        ({-1: "a"}, {}, "unfit: -1 is no position"),
        ({True: "a"}, {}, "unfit: True is no position"),
        ({"second": "a"}, {}, "unfit: 'second' is no position"),
        ({1: " "}, {}, r"unfit\[1\]: got ' '; say why"),
        ({1: None}, {}, r"unfit\[1\]: got None"),
        ([1], {}, "unfit: got a list; pass positions"),
    ],
)
def test_what_says_nothing_is_refused(unfit: Any, options: Any, problem: str) -> None:
    """Bad input is refused before anybody is asked, with what to do."""
    with pytest.raises(FallbackConfigError, match=problem):
        chain(**options).start(unfit=unfit)


def test_a_cooldown_chooses_among_those_that_fit(clock: Clock) -> None:
    """Who does not fit neither stands in for one that cools down nor is its probe taken."""
    policy = chain(cooldown=Cooldown(after=1, base=60))
    ended = policy.start()
    ended.fail(DOWN)
    ended.succeed()
    assert policy.start(unfit={1: BLIND}).attempt.position == 2
    clock.now += 61
    assert policy.start(unfit={0: BLIND}).attempt.position == 1
    run = policy.start()
    assert run.attempt.position == 0
    run.succeed()
    assert run.record.attempts[0].note == "a probe after its cooldown"


def test_where_all_that_fit_cool_down_one_of_them_is_asked() -> None:
    """A target that is free and does not fit is no way out: the one due first is asked."""
    policy = chain(cooldown=Cooldown(after=1, base=60), max_attempts=2)
    with pytest.raises(FallbackExhausted):
        policy.call(repeating(primary=[DOWN], second=[DOWN]).ask, unfit={2: BLIND})
    run = policy.start(unfit={2: BLIND})
    assert run.attempt.position == 0
    assert run.record.untried[-1] == ("third", BLIND)


def test_what_other_processes_know_is_asked_of_those_that_fit() -> None:
    """The look into a shared store names nobody who is not asked in this call anyway."""
    looks: list[Any] = []
    cooldown: Any = Cooldown()
    ways = dict.fromkeys(("push", "apull", "apush"), int)  # which tell nobody
    cooldown.shared = SimpleNamespace(pull=lambda keys, *_: looks.append(keys), **ways)
    policy = chain(cooldown=cooldown)
    assert policy.call(repeating(second=["hello"]).ask, unfit={0: BLIND}) == "hello"
    assert looks == [[(target.identity,) for target in policy.targets[1:]]]


@pytest.mark.parametrize("cooldown", [None, Cooldown])
def test_a_turn_does_not_leave_whom_one_call_did_not_fit(cooldown: Any) -> None:
    """The next call of the turn starts on the target that this call was too much for.

    Whom the turn has left is asked before nobody is, and the turn stays where it was.
    """
    policy = chain(reset="turn", cooldown=cooldown and cooldown())
    with policy.turn() as turn:
        policy.call(repeating(second=["hello"]).ask, unfit={0: BLIND})
        assert turn.position == 0
        policy.call(repeating(primary=[DOWN], third=["hello"]).ask, unfit={1: BLIND})
        assert turn.position == 1
        assert policy.call(repeating(second=["hello"]).ask) == "hello"
        back = repeating(primary=["hello"])
        assert policy.call(back.ask, unfit={1: BLIND, 2: BLIND}) == "hello"
        assert turn.position == 1


def test_no_time_is_kept_for_who_does_not_fit(clock: Clock) -> None:
    """A deadline's reserve is for those that can still be asked."""
    del clock
    policy = chain(deadline=30.0)
    limits = [
        policy.start(unfit=unfit).attempt.timeout for unfit in (None, {1: "x"}, {1: "x", 2: "x"})
    ]
    assert limits == pytest.approx([10.0, 20.0, 30.0])


# Boundaries: which targets may see a call's data, by labels.

LABELLED = [
    Target("primary", labels={"eu", "zdr"}),
    Target("abroad"),
    Target("careless", labels={"eu"}),
    Target("last", labels=frozenset(["zdr", "eu", "new"])),
]


def within(**options: Any) -> FallbackPolicy:
    return FallbackPolicy(LABELLED, FallbackConfig(wait=0, **options))


@pytest.mark.parametrize("driver", DRIVERS)
@pytest.mark.parametrize("cooldown", [lambda: None, Cooldown])
def test_data_stays_within_the_labels(driver: str, cooldown: Callable[[], Any]) -> None:
    """Whoever lacks one is passed over, with the reason, also when all others are down."""
    script = repeating(primary=[DOWN], abroad=["leak"], careless=["leak"], last=["hello"])
    boundary = within(require={"eu", "zdr"}, cooldown=cooldown())
    run = boundary.start()
    assert DRIVERS[driver](boundary, script, run) == "hello"
    assert script.asked == ["primary", "last"]
    assert run.record.untried == (
        ("abroad", "it lacks the label 'eu'"),
        ("careless", "it lacks the label 'zdr'"),
    )
    script = repeating(primary=[DOWN], abroad=["leak"], careless=["leak"], last=[DOWN])
    with pytest.raises(FallbackExhausted):
        DRIVERS[driver](boundary, script, boundary.start())
    assert not {"abroad", "careless"} & {*script.asked}


def test_one_call_may_require_more() -> None:
    """An option of a call, beside what its caller says of targets that do not fit."""
    asks_all = within()
    script = repeating(primary=[DOWN], abroad=["hello"], last=["hello"])
    asks_all.call(script.ask)
    asks_all.call(script.ask, require={"new"})
    asks_all.call(script.ask, require={"eu"}, unfit={0: "blind", 2: "deaf"})
    assert script.asked == ["primary", "abroad", "last", "last"]


def test_a_turn_that_is_elsewhere_comes_back_within_the_labels() -> None:
    """A turn that went on to a target that this call may not ask begins on one that it may."""
    both = within(reset="turn")
    script = repeating(primary=[DOWN, "hello"], abroad=["hello"], careless=["hello"])
    with both.turn():
        both.call(script.ask)
        both.call(script.ask, require={"eu"})
    assert script.asked == ["primary", "abroad", "careless"]


def test_where_nobody_may_be_asked_nobody_is() -> None:
    """The error says which label is missing where, before any request."""
    script = repeating(primary=["leak"])
    with pytest.raises(FallbackConfigError, match="primary: it lacks the label 'us'"):
        within(require={"us"})
    refused: list[Any] = [
        ({"require": {"us"}}, "add a target that has it"),
        ({"require": {"new"}, "must_not_degrade": True}, "begin with a target that has it"),
    ]
    for options, fix in refused:
        message = f"nobody may be asked: primary: it lacks .*; {fix}"
        with pytest.raises(FallbackConfigError, match=message):
            within().call(script.ask, **options)
    with pytest.raises(FallbackConfigError, match="lacks the label 'new'; last: blind"):
        within().call(script.ask, require={"new"}, unfit={3: "blind"})
    assert script.asked == []


@pytest.mark.parametrize("labels", ["eu", 3, [""], [3]])
def test_wrong_labels_are_refused(labels: Any) -> None:
    """A single text would be taken for its letters."""
    with pytest.raises(FallbackConfigError, match=r"pass a set of texts, such as \{'eu'\}"):
        Target("m", labels=labels)
    with pytest.raises(FallbackConfigError, match=r"pass a set of texts, such as \{'eu'\}"):
        FallbackConfig(require=labels)
